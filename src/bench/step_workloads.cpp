#include "quire/bench/step_workloads.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <random>
#include <span>

#include <fmt/format.h>

namespace quire::bench {
namespace {

using engine::HostedModel;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kShort = 64;  // length of a sequence with negligible attention cost

// Sequences in a host's pool, and decode steps with them.
class Steps {
 public:
  explicit Steps(const BenchHost& host)
      : host_(*host),
        team_(*host.team),
        cost_(cost_of(host->model().file(), host->pool().layout())),
        batch_(host->executor().max_rows(), host->pool().config().max_sequences,
               static_cast<std::uint32_t>(host->pool().layout().groups.size())) {}

  ThreadTeam& team() { return team_; }
  const ModelCost& cost() const { return cost_; }

  // Prefills a sequence of random tokens.
  Result<SequenceId> prefill(std::uint32_t tokens, const Told& tell) {
    std::vector<Token> prompt(tokens);
    for (Token& token : prompt) token = random_token();
    const auto created = host_.pool().create({.prompt = prompt, .reuse = false});
    if (!created) return fail(created.error().message());
    for (std::span<const Token> rest = prompt; !rest.empty();) {
      const auto piece = rest.first(std::min<std::size_t>(rest.size(), host_.executor().max_rows()));
      rest = rest.subspan(piece.size());
      batch_.clear();
      batch_.add(created->id, piece, rest.empty() ? Logits::Last : Logits::None);
      if (auto ok = step(); !ok) return std::unexpected(ok.error());
      tell.prefill(tokens - rest.size(), tokens);
    }
    return created->id;
  }

  // A copy that shares the pages of the sequence. save() and restore() make copies with their own pages.
  Result<SequenceId> share(SequenceId id) {
    const auto length = host_.pool().length(id);
    if (!length) return fail(length.error().message());
    const auto forked = host_.pool().fork(id, *length);
    if (!forked) return fail(forked.error().message());
    return forked->id;
  }
  Result<SavedSequence> save(SequenceId id) {
    auto saved = host_.pool().save(id);
    if (!saved) return fail(saved.error().message());
    return std::move(*saved);
  }
  Result<SequenceId> restore(const SavedSequence& saved) {
    const auto restored = host_.pool().restore(saved);
    if (!restored) return fail(restored.error().message());
    return *restored;
  }
  Result<void> release(std::span<const SequenceId> ids) {
    for (const SequenceId id : ids) {
      if (auto ok = host_.pool().release(id); !ok) return fail(ok.error().message());
    }
    return {};
  }

  struct Timed {
    double seconds = 0;               // per step
    double context = 0;               // of each sequence, on average
    std::optional<double> read = {};  // speed of the memory around it, bytes per second
  };
  // Runs decode steps: each sequence gets one token per step.
  Result<Timed> decode(std::span<const SequenceId> ids, std::uint32_t steps) {
    const std::uint32_t before = *host_.pool().length(ids.front());
    const auto start = Clock::now();
    for (std::uint32_t i = 0; i < steps; ++i) {
      batch_.clear();
      for (const SequenceId id : ids) {
        const Token token = random_token();
        batch_.add(id, {&token, 1});
      }
      if (auto ok = step(); !ok) return std::unexpected(ok.error());
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return Timed{seconds / steps, before + (steps + 1) / 2.0};
  }

 private:
  Token random_token() { return static_cast<Token>(random_() % host_.executor().vocabulary()); }

  Result<void> step() {
    if (auto ok = host_.pool().reserve(batch_.entries()); !ok) return fail(ok.error().message());
    if (const auto output = host_.executor().forward(batch_, {}); !output) return fail(output.error().message());
    if (auto ok = host_.pool().commit(batch_); !ok) return fail(ok.error().message());
    return {};
  }

  HostedModel& host_;
  ThreadTeam& team_;
  ModelCost cost_;
  Batch batch_;
  std::mt19937_64 random_{1};
};

// Tokens that best_of() decodes.
std::uint32_t decoded_tokens(const WorkloadOptions& options) { return 1 + options.repeat * options.tokens; }

// The best moment of a set of sequences, or of several sets in turn. The first step only warms up.
template <std::size_t kSets>
Result<std::array<Steps::Timed, kSets>> best_of(Steps& steps,
                                                const std::array<std::span<const SequenceId>, kSets>& sets,
                                                const WorkloadOptions& options, const Told& tell) {
  std::array<Steps::Timed, kSets> best, now;
  for (const auto& ids : sets) {
    if (auto first = steps.decode(ids, 1); !first) return std::unexpected(first.error());
  }
  BestMoment moments(tell.read_rate, steps.team());
  const std::uint32_t all = options.repeat * options.tokens;
  for (std::uint32_t done = 0; done < all;) {
    const std::uint32_t count = std::min(kStepsInAMoment, all - done);
    Result<void> ok;
    const bool better = moments.beats([&] {
      double seconds = 0;
      for (std::size_t i = 0; i < kSets && ok; ++i) {
        const auto timed = steps.decode(sets[i], count);
        if (timed) {
          now[i] = *timed;
          seconds += timed->seconds;
        } else {
          ok = std::unexpected(timed.error());
        }
      }
      return 1 / seconds;
    });
    if (!ok) return std::unexpected(ok.error());
    if (better) best = now;
    done += count;
  }
  for (Steps::Timed& timed : best) timed.read = moments.read();
  return best;
}

// Whether the model's context is long enough for the workload.
bool long_enough(const HostedModel& host, std::uint32_t wanted, const char* workload, const Told& tell) {
  if (host.context() >= wanted) return true;
  tell.note(fmt::format("{}: left out, a sequence of {} tokens is longer than the context of {}", workload, wanted,
                        host.context()));
  return false;
}

}  // namespace

Result<void> long_decode(const WorkloadOptions& options, const MakeHost& make, const Told& tell) {
  const std::uint32_t context = options.context != 0 ? options.context : 8192;
  const std::uint32_t longest = std::max(context, kShort) + decoded_tokens(options);
  auto host = make({.sequences = 2, .context = longest, .prefix_cache = false});
  if (!host) return std::unexpected(host.error());
  if (!(*host)->pool().layout().has_attention()) {
    tell.note("long-decode: left out, the model has no attention");
    return {};
  }
  if (!long_enough(**host, longest, "long-decode", tell)) return {};
  if ((*host)->pool().config().max_sequences < 2) {
    tell.note("long-decode: left out, there is not enough memory");
    return {};
  }
  Steps steps(*host);
  const auto few = steps.prefill(std::min(context, kShort), tell);
  if (!few) return std::unexpected(few.error());
  const auto many = steps.prefill(context, tell);
  if (!many) return std::unexpected(many.error());
  const auto best = best_of<2>(steps, {{{&*few, 1}, {&*many, 1}}}, options, tell);
  if (!best) return std::unexpected(best.error());
  const auto& [near, far] = *best;

  BenchRow whole{.workload = "long-decode", .context = context, .tokens_per_second = 1 / far.seconds};
  whole.work = work_of(steps.cost(), {.tokens = 1, .logits = 1, .context = far.context});
  whole.read = far.read;
  tell.row(whole);
  const double more_bytes = kv_bytes(steps.cost(), far.context) - kv_bytes(steps.cost(), near.context);
  if (more_bytes <= 0) {
    tell.note(fmt::format("long-decode: no attention part, {} tokens are not a long sequence", context));
    return {};
  }
  BenchRow attention{.workload = "long-decode", .phase = "attention", .context = context};
  // If the difference is lost in the noise, the rate is 0, not infinite.
  const double more_seconds = far.seconds - near.seconds;
  attention.tokens_per_second = more_seconds > 0 ? 1 / more_seconds : 0;
  attention.work = Work{.tokens = 1, .bytes = more_bytes};
  attention.read = far.read;
  tell.row(attention);
  return {};
}

Result<void> shared_decode(const WorkloadOptions& options, const MakeHost& make, const Told& tell) {
  const std::uint32_t context = options.context != 0 ? options.context : 4096;
  const std::uint32_t longest = context + decoded_tokens(options);
  auto host = make({.sequences = options.shared, .context = longest, .prefix_cache = false});
  if (!host) return std::unexpected(host.error());
  if (!(*host)->pool().layout().has_attention()) {
    tell.note("shared-decode: left out, the model has no attention");
    return {};
  }
  if (!long_enough(**host, longest, "shared-decode", tell)) return {};
  const std::uint32_t count = std::min(options.shared, (*host)->pool().config().max_sequences);
  if (count < 2) {
    tell.note(fmt::format("shared-decode: left out, there is no memory for two sequences of {} tokens", longest));
    return {};
  }
  if (count < options.shared) {
    tell.note(fmt::format("shared-decode: there is memory for {} sequences of {} tokens only, not {}", count, longest,
                          options.shared));
  }
  Steps steps(*host);
  const auto first = steps.prefill(context, tell);
  if (!first) return std::unexpected(first.error());
  const auto saved = steps.save(*first);
  if (!saved) return std::unexpected(saved.error());

  const auto measure = [&](bool shared) -> Result<BenchRow> {
    std::vector<SequenceId> ids;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto id = shared && i > 0 ? steps.share(ids.front()) : steps.restore(*saved);
      if (!id) return std::unexpected(id.error());
      ids.push_back(*id);
    }
    const auto best = best_of<1>(steps, {ids}, options, tell);
    if (!best) return std::unexpected(best.error());
    const Steps::Timed& timed = best->front();
    if (auto ok = steps.release(ids); !ok) return std::unexpected(ok.error());
    BenchRow row{.workload = "shared-decode", .phase = shared ? "shared" : "unshared", .batch = count};
    row.context = context;
    row.tokens_per_second = count / timed.seconds;
    row.read = timed.read;
    row.work = work_of(steps.cost(), {.tokens = static_cast<double>(count),
                                      .logits = static_cast<double>(count),
                                      .sequences = static_cast<double>(count),
                                      .context = timed.context,
                                      .shared = shared ? static_cast<double>(context) : 0});
    return row;
  };
  if (auto ok = steps.release({&*first, 1}); !ok) return std::unexpected(ok.error());
  auto shared = measure(true);
  if (!shared) return std::unexpected(shared.error());
  const auto unshared = measure(false);
  if (!unshared) return std::unexpected(unshared.error());
  shared->speedup = shared->tokens_per_second / unshared->tokens_per_second;
  tell.row(*shared);
  tell.row(*unshared);
  return {};
}

}  // namespace quire::bench

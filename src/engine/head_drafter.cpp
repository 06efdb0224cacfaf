#include "quire/engine/head_drafter.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "quire/engine/pool_size.h"
#include "quire/engine/request.h"

namespace quire::engine {
namespace {

constexpr double kMemory = 0.9;                                // weight of earlier calls in what a guess costs
constexpr std::uint32_t kPending = 64;                         // hidden states that wait, of a choice
constexpr std::uint64_t kMostPool = std::uint64_t{256} << 20;  // bytes
constexpr std::uint32_t kContexts = 16;                        // sequences of the whole context, within that

}  // namespace

// The pairs of a choice: those in the pool, and behind them some that wait. Pair i is the hidden state of position
// `begin` + i and the token after it.
class HeadDrafter::Sequence final : public DrafterMemory {
 public:
  explicit Sequence(HeadDrafter& drafter) : drafter_(&drafter), width_(drafter.width_) {
    hidden_.resize(std::size_t{kPending} * width_);
    guess.resize(width_);
  }
  ~Sequence() override { drafter_->forget(*this); }

  std::uint32_t in_pool() const { return id.valid() ? *drafter_->head_->pool().length(id) : 0; }
  // The position whose hidden state is wanted next.
  std::uint32_t next() const { return begin + in_pool() + waiting; }
  std::span<const float> pending() const { return std::span(hidden_).first(std::size_t{waiting} * width_); }
  void push(std::span<const float> hidden) {
    std::ranges::copy(hidden, hidden_.begin() + static_cast<std::ptrdiff_t>(std::size_t{waiting} * width_));
    ++waiting;
  }
  // Gives up what is in the pool.
  void close() {
    if (!id.valid()) return;
    begin += in_pool();
    (void)drafter_->head_->pool().release(id);
    id = SequenceId{};
    std::erase(drafter_->open_, this);
  }
  void begin_anew(std::uint32_t position) {
    close();
    begin = position;
    waiting = 0;
  }

  SequenceId id;              // not valid: it has nothing in the pool
  std::uint32_t begin = 0;    // position of the first pair
  std::uint32_t waiting = 0;  // pairs
  std::uint32_t idle = 0;     // tokens that were shown since it drafted
  std::uint64_t used = 0;     // the last call that drafted with it
  std::uint32_t certain = 0;  // during a call: pairs in the pool before those of guesses
  std::vector<float> guess;   // during a call: the head's hidden state of its last guess

 private:
  HeadDrafter* drafter_;
  std::uint32_t width_;
  std::vector<float> hidden_;
};

Result<std::shared_ptr<Drafter>> make_head_drafter(const model::Model& model, const Backend& backend,
                                                   const HostOptions& options) {
  auto head = model.head();
  if (!head) return std::unexpected(head.error());
  auto own = make_backend(options.backend);
  if (!own) return std::unexpected(own.error());
  const BackendFacts ours = (*own)->facts(), theirs = backend.facts();
  if (ours.device != theirs.device || ours.variant != theirs.variant) {
    return fail(fmt::format("a head on {} {} cannot use the weights of a model on {} {}", ours.device, ours.variant,
                            theirs.device, theirs.variant));
  }
  HostOptions host{.kv_type = options.kv_type,
                   .block_size = options.block_size,
                   .max_sequences = options.max_sequences,
                   .step_tokens = options.step_tokens,
                   .checkpoints = 0,
                   .prefix_cache = false,
                   .event_capacity = 64};
  host.engine.host_bytes = 0;
  const auto layout = (*head)->layout(options.block_size, options.kv_type);
  if (!layout) return std::unexpected(layout.error());
  const std::uint32_t trained = model.hyperparameters().context_length;
  const std::uint32_t context = options.context == 0 ? trained : options.context;
  const auto one = bytes_for(*layout, {.tokens = context, .chunk = options.step_tokens});
  host.memory = one ? std::min(kMostPool, *one * std::min(kContexts, options.max_sequences)) : kMostPool;
  auto hosted = HostedModel::create(std::move(*head), std::move(*own), host);
  if (!hosted) return fail(fmt::format("the head that guesses: {}", hosted.error().message));
  return std::make_shared<HeadDrafter>(std::move(*hosted));
}

HeadDrafter::HeadDrafter(std::unique_ptr<HostedModel> head) : head_(std::move(head)) {
  width_ = head_->model().hyperparameters().embedding;
  most_ = head_->pool().config().max_sequences;
  const std::uint32_t rows = head_->executor().max_rows();
  batch_ = Batch(rows, most_, static_cast<std::uint32_t>(head_->pool().layout().groups.size()));
  given_.reserve(std::size_t{rows} * width_);
  open_.reserve(most_);
  writing_.reserve(most_);
  in_step_.reserve(most_);
  wanted_.reserve(most_);
  jobs_.reserve(most_);
}

HeadDrafter::~HeadDrafter() = default;

void HeadDrafter::forget(const Sequence& sequence) {
  if (sequence.id.valid()) (void)head_->pool().release(sequence.id);
  std::erase(open_, &sequence);
}

HeadDrafter::Sequence* HeadDrafter::sequence_of(Drafts& drafts) {
  if (!drafts.memory) {
    try {
      drafts.memory = std::make_unique<Sequence>(*this);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  return static_cast<Sequence*>(drafts.memory.get());
}

bool HeadDrafter::open(Sequence& sequence) {
  if (sequence.id.valid()) return true;
  if (open_.size() == most_ && !give_up_one(sequence)) return false;
  for (;;) {
    if (const auto created = head_->pool().create({})) {
      sequence.id = created->id;
      open_.push_back(&sequence);
      return true;
    }
    if (!give_up_one(sequence)) return false;
  }
}

// The sequence that has not drafted for longest leaves the pool. None that drafts in this call does.
bool HeadDrafter::give_up_one(const Sequence& but) {
  Sequence* oldest = nullptr;
  for (Sequence* each : open_) {
    const bool drafts = std::ranges::any_of(writing_, [&](const Writing& other) { return other.sequence == each; });
    if (each == &but || drafts) continue;
    if (oldest == nullptr || each->used < oldest->used) oldest = each;
  }
  if (oldest == nullptr) return false;
  oldest->close();
  return true;
}

bool HeadDrafter::reserve(const Sequence& sequence, std::uint32_t rows) {
  while (!head_->pool().reserve(sequence.id, rows)) {
    if (!give_up_one(sequence)) return false;
  }
  return true;
}

void HeadDrafter::begin_batch() {
  batch_.clear();
  given_.clear();
  jobs_.clear();
  wanted_.clear();
  in_step_.clear();
}

// Adds pairs of a sequence to the batch. With logits, a token is guessed after the last one.
void HeadDrafter::add(const Writing& writing, std::span<const Token> tokens, std::span<const float> hidden,
                      Logits logits) {
  batch_.add(writing.sequence->id, tokens, logits);
  given_.insert(given_.end(), hidden.begin(), hidden.end());
  if (logits == Logits::None) return;
  const auto row = static_cast<std::uint32_t>(jobs_.size());
  jobs_.push_back({.row = row, .rule = sampling::rule_of(0, 0, 1, 0)});
  wanted_.push_back(row);
  in_step_.push_back(writing);
}

// Computes the batch and takes the guesses. False: there was none, or the device has failed.
bool HeadDrafter::compute() {
  if (batch_.empty()) return false;
  const auto output =
      head_->executor().forward(batch_, {.jobs = jobs_, .logits = {}, .hidden = wanted_, .given = given_});
  broken_ = !output || !head_->pool().commit(batch_);
  if (broken_) return false;
  for (std::size_t i = 0; i < in_step_.size(); ++i) {
    Drafts& drafts = *in_step_[i].drafts;
    const Token token = output->picked[i].token;
    if (token < 0) {
      drafts.most = drafts.count;  // all logits are NaN
      continue;
    }
    drafts.tokens[drafts.count++] = token;
    std::ranges::copy(output->hidden.row(static_cast<std::uint32_t>(i)), in_step_[i].sequence->guess.begin());
  }
  return true;
}

// Computes the pairs that wait. False: there is no room, or the device has failed.
bool HeadDrafter::flush(const Drafts& drafts, Sequence& sequence) {
  std::uint32_t done = 0;
  while (done < sequence.waiting) {
    const std::uint32_t rows = std::min(sequence.waiting - done, head_->executor().max_rows());
    const std::uint32_t at = sequence.begin + sequence.in_pool();
    if (sequence.in_pool() + rows > head_->context() || !open(sequence) || !reserve(sequence, rows)) return false;
    begin_batch();
    add({.drafts = nullptr, .sequence = &sequence}, drafts.text.subspan(at + 1, rows),
        sequence.pending().subspan(std::size_t{done} * width_, std::size_t{rows} * width_), Logits::None);
    if (!compute()) return false;
    done += rows;
  }
  computed_pairs_ += done;
  sequence.waiting = 0;
  sequence.used = calls_;
  return true;
}

void HeadDrafter::observe(Drafts& drafts, std::uint32_t position, const HostRows& hidden) {
  if (broken_) return;
  Sequence* const sequence = sequence_of(drafts);
  if (sequence == nullptr) return;
  if (sequence->next() < position) sequence->begin_anew(position);
  const std::uint32_t end = position + hidden.rows;
  const bool prompt = hidden.rows > kMostDrafts + 1;
  while (sequence->next() < end && !broken_) {
    if (sequence->waiting == kPending) {
      const bool forgotten = !prompt && sequence->idle > kPending;
      const std::uint32_t next = sequence->next();
      if (forgotten || !flush(drafts, *sequence)) sequence->begin_anew(next);
    }
    sequence->push(hidden.row(sequence->next() - position));
    if (!prompt) ++sequence->idle;
  }
}

// What waits of the sequences, as far as there are rows for it. Whoever gets to the end has its first guess.
bool HeadDrafter::catch_up() {
  begin_batch();
  std::uint32_t room = head_->executor().max_rows();
  for (const Writing& each : writing_) {
    Sequence& sequence = *each.sequence;
    const std::uint32_t rows = sequence.waiting;
    if (rows == 0 || rows > room || each.drafts->most == 0) continue;
    if (!reserve(sequence, rows)) {
      each.drafts->most = 0;
      continue;
    }
    const std::uint32_t at = sequence.begin + sequence.in_pool();
    add(each, each.drafts->text.subspan(at + 1, rows), sequence.pending(), Logits::Last);
    room -= rows;
    computed_pairs_ += rows;
    sequence.certain = sequence.in_pool() + rows;
    sequence.waiting = 0;
  }
  return compute();
}

// One guess more for all that want one.
bool HeadDrafter::step() {
  begin_batch();
  for (const Writing& each : writing_) {
    Drafts& drafts = *each.drafts;
    if (drafts.count == 0 || drafts.count >= drafts.most) continue;
    if (!reserve(*each.sequence, 1)) {
      drafts.most = drafts.count;
      continue;
    }
    add(each, std::span(&drafts.tokens[drafts.count - 1], 1), each.sequence->guess, Logits::Last);
  }
  return compute();
}

void HeadDrafter::propose(std::span<Drafts* const> wanted) {
  const auto start = Clock::now();
  ++calls_;
  writing_.clear();
  for (Drafts* drafts : wanted) {
    drafts->count = 0;
    drafts->kind = 0;
    auto* const sequence = static_cast<Sequence*>(drafts->memory.get());
    if (broken_ || drafts->most == 0 || writing_.size() == most_ || sequence == nullptr) continue;
    // The hidden state before the last token has been seen, and nothing was guessed from it yet.
    if (sequence->waiting == 0 || sequence->next() + 1 != drafts->text.size()) continue;
    if (sequence->in_pool() + sequence->waiting + drafts->most > head_->context()) sequence->close();
    if (sequence->waiting > head_->executor().max_rows() || !open(*sequence)) continue;
    sequence->used = calls_;
    sequence->idle = 0;
    writing_.push_back({drafts, sequence});
  }
  while (catch_up()) {
  }
  while (!broken_ && step()) {
  }
  std::uint32_t tokens = 0;
  for (const Writing& each : writing_) {
    if (each.drafts->count > 0 && !broken_) {
      broken_ = !head_->pool().rewind(each.sequence->id, each.sequence->certain);
    }
    if (broken_) each.drafts->count = 0;
    tokens += each.drafts->count;
  }
  writing_.clear();
  if (tokens == 0) return;
  const double each = std::chrono::duration<double>(Clock::now() - start).count() / tokens;
  seconds_per_token_ = kMemory * seconds_per_token_ + (1 - kMemory) * each;
}

}  // namespace quire::engine

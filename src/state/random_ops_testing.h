// For tests: random operations on a pool. A list of numbers is read as operations on a ToyEngine. After each operation
// the pool is recounted, and every answer and count is compared with the reference model. After each commit every byte
// of the sequence is read back. One run in four uses plain pages and slots instead, which the reference model does not
// know. Used by the property tests, the failure tests and the fuzzer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quire/state/reference_pool.h"
#include "quire/state/toy_engine_testing.h"

namespace quire::testing {

class RandomOps {
 public:
  enum class Model : std::uint8_t { Attention, Windowed, Recurrent, Hybrid, Everything, WindowsOnly };
  static constexpr std::uint32_t kModels = 6;  // the model is the seed modulo this

  explicit RandomOps(std::uint32_t seed, Device* device = nullptr, std::uint64_t hash_seed = 0,
                     PoolJournal* journal = nullptr) {
    model_ = static_cast<Model>(seed % kModels);
    const std::uint32_t block_size = (seed >> 3) % 3 == 0 ? 2 : (seed >> 28) % 3 == 0 ? 8 : 4;
    const std::uint32_t window = 3 + (seed >> 5) % 10;
    const bool latent = seed >> 30 == 1;
    const ToyModel toy = model_ == Model::Attention
                             ? latent ? ToyModel::latent(block_size) : ToyModel::attention(block_size)
                         : model_ == Model::Windowed   ? ToyModel::windowed(window, block_size)
                         : model_ == Model::Recurrent  ? ToyModel::recurrent(block_size)
                         : model_ == Model::Hybrid     ? ToyModel::hybrid(block_size)
                         : model_ == Model::Everything ? ToyModel::everything(window, block_size)
                                                       : ToyModel::windows_only(window, block_size);
    PoolConfig config{.layout = toy.layout(), .max_sequences = 6, .max_tokens = 48};
    std::uint64_t largest = 0;
    for (const PageShape& shape : config.layout.groups) largest = std::max(largest, shape.page_bytes());
    if (config.layout.has_recurrent()) largest = std::max(largest, config.layout.recurrent.bytes());
    config.budget_bytes = largest * (5 + (seed >> 9) % 20);
    // Checkpoints may lie inside blocks in two of three pools that have any.
    config.checkpoint_unit = (seed >> 11) % 3 == 0 ? block_size : 1u << (seed >> 12) % 2;
    config.checkpoint_interval = std::min(config.checkpoint_unit, block_size) * (1 + (seed >> 13) % 3);
    config.max_recompute = config.checkpoint_interval * (1 + (seed >> 15) % 4);
    if ((seed >> 17) % 4 == 0) config.checkpoint_budget_bytes = config.budget_bytes / 3;
    config.scrub = (seed >> 19) % 4 == 0;
    config.hash_bits = (seed >> 21) % 3 == 0 ? 2 : 128;  // collisions must change nothing
    config.hash_seed = hash_seed;
    config.event_capacity = 64;
    config.eviction = (seed >> 26) % 4 == 0 ? Eviction::Lru : Eviction::Value;
    config.journal = journal;
    engine_ = std::make_unique<ToyEngine>(device != nullptr ? *device : own_device_, config);
    // Room for everything, or for a few pages.
    host_arena_ = *pool().create_host_arena((seed >> 25) % 2 == 0 ? 8 * config.budget_bytes : 4 * largest);
    if ((seed >> 23) % 4 != 0) reference_ = std::make_unique<ReferencePool>(pool());
  }

  // Whether the device may refuse calls. Then DeviceFailure is a valid answer, and the reference model
  // is not compared, because it has no device.
  void expect_device_failures() { device_may_fail_ = true, reference_.reset(); }

  SequencePool& pool() { return engine_->pool(); }
  Model model() const { return model_; }
  bool has_reference_model() const { return reference_ != nullptr; }
  const std::string& difference() const { return difference_; }  // empty if there is none
  std::uint64_t suspensions = 0, prefixes_gone = 0;              // for tests that count what happened

  // Runs one operation. Returns false once a difference was found.
  bool run(std::uint32_t word) {
    const std::uint32_t op = word % 16;
    a_ = (word >> 4) & 0xFF;
    b_ = (word >> 12) & 0xFF;
    c_ = (word >> 20) & 0xFFF;
    switch (op) {
      case 0:
      case 1:
      case 2: create(); break;
      case 3:
      case 4:
      case 5:
      case 6:
      case 7: append(); break;
      case 8: append_batch(); break;
      case 9:
      case 10: fork(); break;
      case 11: rewind(); break;
      case 12: release(); break;
      case 13: c_ % 2 == 0 ? leave_or_return() : suspend_or_resume(); break;
      case 14: plain(); break;
      case 15: odd(); break;
      default: break;
    }
    ++ops_;
    check();
    return difference_.empty();
  }

  // Releases everything: afterwards nothing may be left.
  bool finish() {
    while (!live_.empty()) {
      a_ = 0;
      release();
    }
    suspended_.clear();
    if (host_arena_->used_bytes() != 0) report("cells of the host arena are left over");
    for (const PlainPage& page : plain_pages_) (void)pool().free_kv(page.id, page.group);
    for (const SlotId slot : plain_slots_) (void)pool().release_ssm(slot);
    check();
    pool().drop_cache();
    const PoolStats stats = pool().stats();
    if (stats.free_slabs != stats.slabs) report("slabs are left over after everything was released");
    for (const ObjectCounts& pages : stats.pages) {
      if (pages.held + pages.cached != 0) report("pages are left over after everything was released");
    }
    if (stats.states.held + stats.states.cached != 0) report("states are left over after everything was released");
    if (stats.prefix_blocks != 0) report("prefixes are left over after everything was released");
    reference_.reset();
    check();
    return difference_.empty();
  }

 private:
  struct Live {
    int name;
    ToyEngine::Sequence sequence;
  };

  struct Away {
    Live live;
    SavedSequence saved;
  };
  struct Suspended {
    Live live;
    SuspendedSequence copy;
    ReferencePool::Away predicted;
  };

  struct PlainPage {
    PageId id;
    std::uint32_t group;
  };

  void report(std::string what) {
    if (difference_.empty()) difference_ = "operation " + std::to_string(ops_) + ": " + std::move(what);
  }
  template <typename T>
  bool refused_by_device(const PoolResult<T>& result) const {
    return device_may_fail_ && !result &&
           (result.error().code == PoolError::Code::DeviceFailure ||
            result.error().code == PoolError::Code::WorkFailed);
  }
  Live* pick(std::uint32_t which) { return live_.empty() ? nullptr : &live_[which % live_.size()]; }

  // Few stems and few distinct tokens, so that prefixes are shared.
  std::vector<Token> prompt_of(std::uint32_t stem, std::uint32_t length, std::uint32_t tail) const {
    std::vector<Token> prompt;
    for (std::uint32_t i = 0; i < length; ++i) prompt.push_back(static_cast<Token>(mix(stem % 3, i / 7) % 3));
    for (std::uint32_t i = 0; i < tail % 6; ++i) prompt.push_back(static_cast<Token>((tail >> i) % 3));
    return prompt;
  }
  std::vector<Token> next_tokens(ToyEngine::Sequence& s, std::uint32_t count, std::uint32_t bits) const {
    std::vector<Token> tokens;
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i < s.pending.size()) {
        tokens.push_back(s.pending[i]);
      } else {
        tokens.push_back(static_cast<Token>((bits >> (i % 8)) % 3));
      }
    }
    return tokens;
  }
  static void consume(ToyEngine::Sequence& s, std::size_t count) {
    s.pending.erase(s.pending.begin(), s.pending.begin() + static_cast<long>(std::min(count, s.pending.size())));
  }

  void create() {
    const Namespace name_space = c_ % 5 == 0 ? 1 : 0;
    const std::vector<Token> prompt = prompt_of(a_, b_ % 40, c_ >> 3);
    const Hit before = pool().lookup(prompt, name_space);
    const bool reuse = (a_ / 3) % 8 != 0;
    const bool admits = (a_ / 24) % 3 == 0;
    auto created = admits ? admit(prompt, name_space, reuse) : engine_->create(prompt, name_space, reuse);
    if (refused_by_device(created)) return;
    if (reference_) {
      if (!admits) predicted_ = reference_->create(next_name_, prompt, name_space, reuse);
      if (predicted_.has_value() != created.has_value())
        return report("create: the reference model and the pool disagree whether it fits");
      if (created && !ReferencePool::same(engine_->last_hit(), *predicted_)) {
        return report("create: " + text(engine_->last_hit()) + ", the reference model says " + text(*predicted_));
      }
    }
    if (!created) {
      if (created.error().code != PoolError::Code::Exhausted) report("create: " + created.error().message());
      return;
    }
    const std::uint32_t reused = engine_->last_hit().tokens;
    const bool whole_blocks = admits && reused % pool().layout().block_size == 0;  // may take less if room is short
    if (reuse && reused != before.tokens && reused != 0 && !(whole_blocks && reused < before.tokens)) {
      report("create: lookup had promised another hit");
    }
    if (!prompt.empty() && engine_->last_hit().tokens >= prompt.size()) report("create: nothing left to compute");
    live_.push_back({next_name_++, std::move(*created)});
    verify(live_.back());
  }

  // With room for some tokens more than the prompt, beside what two other sequences may need.
  PoolResult<ToyEngine::Sequence> admit(const std::vector<Token>& prompt, Namespace name_space, bool reuse) {
    const auto tokens = static_cast<std::uint32_t>(std::min<std::size_t>(prompt.size() + (c_ >> 9), 48));
    const std::uint32_t chunk = 1 + b_ % 11;
    std::vector<BatchEntry> others;
    ReferencePool::Demands demands;
    for (std::size_t i = 0; i < std::min<std::size_t>(live_.size(), a_ % 3); ++i) {
      const auto length = static_cast<std::uint32_t>(live_[i].sequence.tokens.size());
      others.push_back({live_[i].sequence.id, std::min(c_ % 7, 48 - length)});
      demands.emplace_back(live_[i].name, others.back().rows);
    }
    if (reference_) predicted_ = reference_->admit(next_name_, prompt, name_space, reuse, tokens, chunk, demands);
    return engine_->admit({.prompt = prompt, .name_space = name_space, .reuse = reuse}, tokens, chunk, others);
  }
  static std::string text(const Hit& hit) {
    return std::to_string(hit.tokens) + " of " + std::to_string(hit.matched) + " tokens reused (" + name(hit.end) + ")";
  }

  void append() {
    Live* live = pick(a_);
    if (live == nullptr) return create();
    const std::uint32_t count = b_ % 9;
    const auto tokens = next_tokens(live->sequence, count, c_);
    const BatchEntry demand{live->sequence.id, count};
    const bool promised = pool().can_reserve(std::span(&demand, 1)).has_value();
    const auto ok = pool().reserve(live->sequence.id, count);
    if (refused_by_device(ok)) return verify_all();
    if (ok.has_value() != promised) report("reserve: can_reserve had said otherwise");
    if (reference_ && reference_->reserve({{live->name, count}}) != ok.has_value()) {
      return report("reserve: the reference model and the pool disagree whether it fits");
    }
    if (!ok) return check_refusal(ok.error(), {demand});
    if (count > 0 && c_ % 4 == 1) return draft(*live, tokens);
    commit(*live, tokens);
  }

  // The tokens were reserved. Drafts follow them, some of which turn out right; sometimes the sequence ends meanwhile.
  void draft(Live& live, const std::vector<Token>& tokens) {
    const auto certain = static_cast<std::uint32_t>(tokens.size());
    const std::uint32_t drafts = 1 + a_ % 7;
    const bool possible = live.sequence.tokens.size() + certain + drafts <= 48;
    const auto ok = pool().draft(live.sequence.id, certain, drafts);
    if (refused_by_device(ok)) return verify_all();
    if (!possible) {
      if (ok || ok.error().code != PoolError::Code::TooLong) report("draft: beyond the end of the context");
      return commit(live, tokens);
    }
    if (reference_ && reference_->draft(live.name, certain, drafts) != ok.has_value()) {
      return report("draft: the reference model and the pool disagree whether it fits");
    }
    if (!ok) {
      if (ok.error().code != PoolError::Code::Exhausted) report("draft: " + ok.error().message());
      return commit(live, tokens);
    }
    if (pool().draft(live.sequence.id, 1, 1) || pool().fork(live.sequence.id, 0) ||
        pool().rewind(live.sequence.id, 0) || pool().save(live.sequence.id) ||
        pool().suspend(live.sequence.id, *host_arena_)) {
      report("draft: an operation was allowed that does not go with drafts");
    }
    check();
    if (b_ / 9 % 8 == 0) {
      a_ = static_cast<std::uint32_t>(&live - live_.data());
      return release();
    }
    std::vector<Token> drafted;
    for (std::uint32_t i = 0; i < drafts; ++i) {
      const std::size_t at = certain + i;
      const bool known = at < live.sequence.pending.size();
      drafted.push_back(known ? live.sequence.pending[at] : static_cast<Token>((c_ >> (i % 8)) % 3));
    }
    std::uint32_t right = b_ / 72 % (drafts + 1);
    if (pool().layout().has_recurrent() && right < drafts) right = 0;
    if (auto done = engine_->write_and_accept(live.sequence, tokens, drafted, right); !done) {
      if (!refused_by_device(done)) return report("accept: " + done.error().message());
      if (!pool().end_draft(live.sequence.id)) report("end_draft: refused");
      return verify_all();
    }
    consume(live.sequence, certain + right);
    if (reference_) {
      reference_->commit(live.name, tokens, false);
      const auto first = drafted.begin();
      if (pool().layout().has_recurrent()) {
        if (right > 0) reference_->commit(live.name, drafted, false);
      } else {
        for (std::uint32_t i = 0; i < right; ++i) reference_->commit(live.name, {*(first + i)}, false);
      }
      reference_->end_draft(live.name);
    }
    verify(live);
  }

  void commit(Live& live, const std::vector<Token>& tokens) {
    const bool checkpoint = c_ % 3 == 0;
    const auto done = engine_->write_and_commit(live.sequence, tokens, checkpoint);
    if (refused_by_device(done)) return verify_all();
    if (!done) return report("commit: " + done.error().message());
    consume(live.sequence, tokens.size());
    if (reference_) reference_->commit(live.name, tokens, checkpoint);
    verify(live);
  }

  void append_batch() {
    if (live_.size() < 2) return append();
    std::vector<BatchEntry> demands;
    std::vector<std::pair<int, std::uint32_t>> reference_demands;
    const std::size_t many = std::min<std::size_t>(live_.size(), 2 + a_ % 3);
    for (std::size_t i = 0; i < many; ++i) {
      const std::uint32_t count = (b_ >> i) % 6;
      demands.push_back({live_[i].sequence.id, count});
      reference_demands.emplace_back(live_[i].name, count);
    }
    const PoolStats before = pool().stats();
    const auto ok = pool().reserve(demands);
    if (refused_by_device(ok)) return verify_all();
    if (reference_ && reference_->reserve(reference_demands) != ok.has_value()) {
      return report("batch: the reference model and the pool disagree whether it fits");
    }
    if (!ok) {
      const PoolStats after = pool().stats();
      for (std::size_t g = 0; g < before.pages.size(); ++g) {
        if (before.pages[g].held != after.pages[g].held) report("batch: refused, but pages were taken");
      }
      return check_refusal(ok.error(), demands);
    }
    for (std::size_t i = 0; i < many; ++i) commit(live_[i], next_tokens(live_[i].sequence, demands[i].rows, c_));
  }

  // A refusal must be justified: the held objects and those asked for do not fit into the slabs.
  void check_refusal(const PoolError& error, const std::vector<BatchEntry>& demands) {
    if (error.code == PoolError::Code::TooLong) return;
    if (error.code != PoolError::Code::Exhausted) return report("reserve: " + error.message());
    const PoolStats stats = pool().stats();
    const StateLayout& layout = pool().layout();
    std::uint64_t slabs = 0;
    for (std::size_t g = 0; g < stats.pages.size(); ++g) {
      std::uint64_t objects = stats.pages[g].held;
      for (const auto& demand : demands) {
        const std::uint64_t length = *pool().length(demand.sequence);
        const std::uint64_t have = pool().pages(demand.sequence, static_cast<std::uint32_t>(g))->size();
        const std::uint64_t blocks = (length + demand.rows + layout.block_size - 1) / layout.block_size;
        objects += blocks > have ? blocks - have : 0;
        objects += demand.rows > 0 && length % layout.block_size != 0 ? 1 : 0;  // possibly a copy
      }
      const std::uint64_t cells = pool().arena().slab_bytes() / stats.pages[g].object_bytes;
      slabs += (objects + cells - 1) / cells;
    }
    if (layout.has_recurrent()) {
      const std::uint64_t cells = pool().arena().slab_bytes() / stats.states.object_bytes;
      slabs += (stats.states.held + cells - 1) / cells;
    }
    // Slabs with pinned objects may be in the way as well.
    if (slabs + plain_pages_.size() + plain_slots_.size() <= stats.slabs) report("reserve: refused although it fits");
  }

  void fork() {
    Live* live = pick(a_);
    if (live == nullptr) return create();
    const auto position = static_cast<std::uint32_t>(b_ % (live->sequence.tokens.size() + 1));
    auto child = engine_->fork(live->sequence, position);
    if (refused_by_device(child)) return verify_all();
    if (reference_) {
      const auto predicted = reference_->fork(live->name, next_name_, position);
      if (predicted.has_value() != child.has_value())
        return report("fork: the reference model and the pool disagree whether it fits");
      if (child && child->tokens.size() != *predicted) {
        return report("fork: stands at " + std::to_string(child->tokens.size()) + ", the reference model says " +
                      std::to_string(*predicted));
      }
    }
    if (!child) {
      if (child.error().code != PoolError::Code::Exhausted) report("fork: " + child.error().message());
      return;
    }
    live_.push_back({next_name_++, std::move(*child)});
    verify_all();
  }

  void rewind() {
    Live* live = pick(a_);
    if (live == nullptr) return create();
    const auto position = static_cast<std::uint32_t>(b_ % (live->sequence.tokens.size() + 1));
    const auto ok = engine_->rewind(live->sequence, position);
    if (refused_by_device(ok)) return verify_all();
    if (!ok) return report("rewind: " + ok.error().message());
    if (reference_) {
      const std::uint32_t predicted = reference_->rewind(live->name, position);
      if (live->sequence.tokens.size() != predicted) {
        return report("rewind: stands at " + std::to_string(live->sequence.tokens.size()) +
                      ", the reference model says " + std::to_string(predicted));
      }
    }
    verify(*live);
  }

  void release() {
    if (live_.empty()) return;
    const std::size_t which = a_ % live_.size();
    const SequenceId id = live_[which].sequence.id;
    if (const auto ok = pool().release(id); !ok) report("release: " + ok.error().message());
    if (reference_) reference_->release(live_[which].name);
    live_.erase(live_.begin() + static_cast<long>(which));
    if (pool().release(id).has_value()) report("release: a stale id was taken");
    if (pool().reserve(id, 1).has_value()) report("reserve: a stale id was taken");
  }

  // Saves and releases a sequence, or restores a saved one, with every byte it had.
  void leave_or_return() {
    if (away_.size() < 3 && !live_.empty() && (a_ % 3 != 0 || away_.empty())) {
      const std::size_t which = b_ % live_.size();
      auto saved = pool().save(live_[which].sequence.id);
      if (refused_by_device(saved)) return verify_all();
      if (!saved) return report("save: " + saved.error().message());
      away_.push_back({live_[which], std::move(*saved)});
      a_ = static_cast<std::uint32_t>(which);
      return release();
    }
    if (away_.empty()) return;
    Away& back = away_[b_ % away_.size()];
    const bool promised = pool().can_restore(back.saved, 0, 1, {}).has_value();
    const auto id = pool().restore(back.saved);
    if (refused_by_device(id)) return verify_all();
    if (id.has_value() != promised) return report("restore: can_restore had said otherwise");
    const ToyEngine::Sequence& sequence = back.live.sequence;
    if (reference_ && reference_->restore(next_name_, sequence.tokens, sequence.name_space, back.saved.first_blocks) !=
                          id.has_value()) {
      return report("restore: the reference model and the pool disagree whether it fits");
    }
    if (!id) {
      if (id.error().code != PoolError::Code::Exhausted) report("restore: " + id.error().message());
      return;
    }
    live_.push_back({next_name_++, back.live.sequence});
    live_.back().sequence.id = *id;
    away_.erase(away_.begin() + (&back - away_.data()));
    verify_all();
  }

  // Suspends a sequence into the host arena, or resumes a suspended one.
  void suspend_or_resume() {
    if (suspended_.size() < 4 && !live_.empty() && (a_ % 3 != 0 || suspended_.empty())) {
      suspend(b_ % live_.size());
    } else if (!suspended_.empty()) {
      resume(b_ % suspended_.size());
    }
  }

  void suspend(std::size_t which) {
    const Live live = live_[which];
    const std::uint64_t promised = pool().holding(live.sequence.id)->saved_bytes;
    const std::uint64_t used = host_arena_->used_bytes(), room = host_arena_->total_bytes() - used;
    auto copy = pool().suspend(live.sequence.id, *host_arena_);
    if (refused_by_device(copy)) {
      if (host_arena_->used_bytes() != used) report("suspend: refused, but cells were taken");
      return verify_all();
    }
    if (!copy) {
      if (copy.error().code != PoolError::Code::Exhausted) return report("suspend: " + copy.error().message());
      // A page takes whole cells: at most twice its size.
      if (2 * promised < room) report("suspend: refused although it fits");
      if (host_arena_->used_bytes() != used) report("suspend: refused, but cells were taken");
      return verify(live_[which]);
    }
    ++suspensions;
    if (copy->bytes != promised) report("suspend: other bytes than promised");
    if (host_arena_->used_bytes() < used + promised) report("suspend: too few cells were taken");
    ReferencePool::Away predicted;
    if (reference_) {
      predicted = reference_->suspend(live.name);
      std::uint64_t bytes = pool().layout().has_recurrent() ? pool().layout().recurrent.bytes() : 0;
      for (std::size_t g = 0; g < predicted.copied.size(); ++g) {
        const auto pages = static_cast<std::uint64_t>(std::ranges::count(predicted.copied[g], true));
        bytes += pages * pool().layout().groups[g].page_bytes();
      }
      if (bytes != copy->bytes) report("suspend: the reference model and the pool disagree on what is copied");
    }
    if (pool().release(live.sequence.id)) report("suspend: the sequence is still alive");
    live_.erase(live_.begin() + static_cast<long>(which));
    suspended_.push_back({live, std::move(*copy), std::move(predicted)});
    verify_all();
  }

  void resume(std::size_t which) {
    using Outcome = ReferencePool::Outcome;
    Suspended& back = suspended_[which];
    const std::vector<Token>& tokens = back.live.sequence.tokens;
    const auto promised = pool().can_resume(back.copy, tokens, 0, 1, {});
    const auto id = pool().resume(back.copy, tokens);
    if (refused_by_device(id)) return verify_all();
    if (id.has_value() != promised.has_value()) return report("resume: can_resume had said otherwise");
    const Outcome outcome = id                                               ? Outcome::Back
                            : id.error().code == PoolError::Code::PrefixGone ? Outcome::PrefixGone
                                                                             : Outcome::NoRoom;
    if (reference_ && reference_->resume(next_name_, back.predicted) != outcome) {
      return report("resume: the reference model and the pool disagree whether it can be resumed");
    }
    if (!id && outcome == Outcome::NoRoom) {
      if (id.error().code != PoolError::Code::Exhausted) report("resume: " + id.error().message());
      return;
    }
    if (id) {
      live_.push_back({next_name_++, back.live.sequence});
      live_.back().sequence.id = *id;
    }
    prefixes_gone += outcome == Outcome::PrefixGone;
    suspended_.erase(suspended_.begin() + static_cast<long>(which));
    verify_all();
  }

  // New costs, or another floor and cap for one of the two tenants. Half of the time both are removed.
  void policy() {
    if (a_ % 4 == 0) {
      const RecomputeCosts costs{.token = 1e-3 * (1 + b_ % 5), .token_per_context = 1e-6 * (c_ % 7) * (c_ % 7)};
      pool().set_costs(costs);
      if (reference_) reference_->set_costs(costs);
      return;
    }
    const std::uint64_t unit = pool().config().budget_bytes / 16;
    const std::uint64_t floor = a_ % 2 == 0 ? 0 : b_ % 8 * unit;
    const std::uint64_t cap = a_ % 2 == 0 ? UINT64_MAX : c_ % 4 == 0 ? UINT64_MAX : floor + c_ % 9 * unit;
    const Namespace tenant = a_ / 4 % 2;
    const auto ok = pool().set_share(tenant, floor, cap);
    if (ok.has_value() != (pool().config().eviction == Eviction::Value)) report("set_share: the wrong answer");
    if (reference_ && reference_->set_share(tenant, floor, cap) != ok.has_value()) {
      report("set_share: the reference model and the pool disagree");
    }
    verify_all();
  }

  // Plain pages and slots outside any sequence, in the same arena.
  void plain() {
    if (reference_ || a_ % 5 == 0) return policy();
    const auto groups = static_cast<std::uint32_t>(pool().layout().groups.size());
    if (a_ % 2 == 0 && pool().layout().has_attention()) {
      if (plain_pages_.size() < 2) {
        const std::uint32_t group = b_ % groups;
        if (const auto page = pool().alloc_kv(group)) plain_pages_.push_back({*page, group});
      } else {
        const PlainPage page = plain_pages_.back();
        if (groups > 1 && pool().free_kv(page.id, (page.group + 1) % groups))
          report("free_kv: took another group's page");
        if (!pool().free_kv(page.id, page.group)) report("free_kv: refused its own page");
        if (pool().free_kv(page.id, page.group)) report("free_kv: took a page twice");
        plain_pages_.pop_back();
      }
    } else if (pool().layout().has_recurrent()) {
      if (plain_slots_.size() < 2) {
        if (const auto slot = pool().alloc_ssm(77)) plain_slots_.push_back(*slot);
      } else {
        if (!pool().release_ssm(plain_slots_.back())) report("release_ssm: refused its own slot");
        if (pool().release_ssm(plain_slots_.back())) report("release_ssm: took a slot twice");
        plain_slots_.pop_back();
      }
    }
  }

  void odd() {
    if (a_ % 8 == 0) {
      pool().drop_cache();
      if (reference_) reference_->drop_cache();
      verify_all();
      return;
    }
    Live* live = pick(a_);
    if (live == nullptr) return;
    const auto length = static_cast<std::uint32_t>(live->sequence.tokens.size());
    if (pool().fork(live->sequence.id, length + 1)) report("fork: beyond the end");
    if (pool().rewind(live->sequence.id, length + 1)) report("rewind: beyond the end");
    const std::vector<Token> too_many(64, 1);
    if (pool().commit(live->sequence.id, too_many)) report("commit: without a reservation");
    const BatchEntry twice[] = {{live->sequence.id, 1}, {live->sequence.id, 1}};
    if (pool().reserve(twice)) report("reserve: the same sequence twice");
    if (pool().layout().has_attention()) {
      const auto pages = pool().pages(live->sequence.id, 0);
      if (!pages->empty() && pages->back().valid() && pool().free_kv(pages->back())) {
        report("free_kv: took a sequence's page");
      }
    }
    if (pool().layout().has_recurrent() && pool().release_ssm(*pool().slot(live->sequence.id))) {
      report("release_ssm: took a sequence's slot");
    }
  }

  void verify(Live& live) {
    const std::string wrong = engine_->verify(live.sequence);
    if (!wrong.empty() && !device_may_fail_) report("sequence " + std::to_string(live.name) + ": " + wrong);
    if (!wrong.empty() && device_may_fail_ && wrong.find("the device") == std::string::npos) {
      report("sequence " + std::to_string(live.name) + ": " + wrong);
    }
  }
  void verify_all() {
    for (Live& live : live_) verify(live);
  }

  void check() {
    if (const auto ok = pool().check_integrity(); !ok) report("integrity: " + ok.error());
    if (!reference_) return;
    const PoolStats stats = pool().stats();
    const auto same = [&](const std::string& what, std::uint64_t counted, std::uint64_t predicted) {
      if (counted == predicted) return;
      report(std::to_string(counted) + " " + what + ", the reference model says " + std::to_string(predicted));
    };
    for (std::size_t g = 0; g < stats.pages.size(); ++g) {
      same("pages of group " + std::to_string(g) + " held", stats.pages[g].held, reference_->held(g));
      same("pages of group " + std::to_string(g) + " cached", stats.pages[g].cached, reference_->cached(g));
    }
    same("states held", stats.states.held, reference_->held_states());
    same("checkpoints", stats.states.cached, reference_->checkpoints());
    same("blocks known", stats.prefix_blocks, reference_->known_blocks());
    same("evictions below a floor", stats.floors_yielded, reference_->floors_yielded());
    for (const Namespace tenant : {0, 1}) {
      if (const auto bytes = pool().tenant_bytes(tenant)) {
        same("bytes of tenant " + std::to_string(tenant), bytes->resident, reference_->resident(tenant));
      }
    }
  }

  Model model_;
  CountingDevice own_device_;
  std::unique_ptr<ToyEngine> engine_;
  std::unique_ptr<ReferencePool> reference_;
  std::optional<Hit> predicted_;  // the last admission, by the reference model
  bool device_may_fail_ = false;
  std::vector<Live> live_;
  std::vector<Away> away_;
  std::unique_ptr<HostArena> host_arena_;
  std::vector<Suspended> suspended_;
  std::vector<PlainPage> plain_pages_;
  std::vector<SlotId> plain_slots_;
  int next_name_ = 1;
  std::uint64_t ops_ = 0;
  std::uint32_t a_ = 0, b_ = 0, c_ = 0;
  std::string difference_;
};

}  // namespace quire::testing

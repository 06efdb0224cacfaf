// The rule of exactness, for every golden and demo model and every kind of backend of this machine. The logits of a
// sequence have the same bits whatever the layout, the chunks, the other sequences, the block size, the pages and the
// threads.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/backends_testing.h"
#include "quire/model/exact_testing.h"
#include "quire/model/model_files_testing.h"
#include "quire/model/runner.h"

namespace quire::model {
namespace {

using testing::Bits;
using testing::kPrompt;
using testing::prompt_of;
using testing::random_chunks;
using testing::Subject;

class Exact : public ::testing::TestWithParam<std::string> {};

std::string path_of(const std::string& file) {
  return file.starts_with('/') ? file : std::string(QUIRE_SOURCE_DIR) + "/" + file;
}

// Files of other sizes (tests/gpu/run): QUIRE_EXACT_FILES, absolute paths with colons between them.
std::vector<std::string> other_files() {
  const char* given = std::getenv("QUIRE_EXACT_FILES");
  std::vector<std::string> files;
  std::istringstream names(given != nullptr ? given : "");
  for (std::string name; std::getline(names, name, ':');) files.push_back(name);
  return files;
}

using quire::testing::BackendKind;

// Sanitizers are slow, so with QUIRE_PROPERTY_PERCENT below 100 only the best kind is tested.
std::vector<BackendKind> kinds() {
  std::vector<BackendKind> all = quire::testing::backend_kinds();
  const char* percent = std::getenv("QUIRE_PROPERTY_PERCENT");
  if (percent != nullptr && std::strtoul(percent, nullptr, 10) < 100) all.erase(all.begin(), all.end() - 1);
  return all;
}

// Numbers of threads to try: also more than there are cores, and numbers that divide nothing evenly. A GPU has none;
// the tests do most with two.
std::vector<std::uint32_t> thread_counts(const BackendKind& kind) {
  return kind.gpu ? std::vector{2u} : std::vector{1u, 2u, 3u, 5u, 8u, 16u};
}

TEST_P(Exact, LogitsAreTheSameBitsHoweverTheyAreComputed) {
  const std::string path = path_of(GetParam());
  for (const BackendKind& kind : kinds()) {
    std::map<ElementType, Bits> references;
    for (const std::uint32_t threads : thread_counts(kind)) {
      Subject subject(path, kind.make(threads));
      const auto prompt = prompt_of(42, kPrompt, subject.vocabulary());
      const auto same = [&](const char* what, const Subject::Way& way) {
        const Bits bits = subject.logits(prompt, way);
        ASSERT_EQ(bits.size(), std::size_t{kPrompt} * subject.vocabulary());
        const Bits& expected = references.try_emplace(way.kv, bits).first->second;
        EXPECT_EQ(std::memcmp(bits.data(), expected.data(), bits.size() * sizeof(float)), 0)
            << kind.name << ", " << threads << " threads, " << name(way.kv) << ": " << what;
      };
      same("prefill at once", {});
      same("random chunks, pages in any order", {.chunks = random_chunks(threads), .scatter_pages = true});
      same("among 7 others", {.chunks = {50, 1, 24}, .others = 7});
      for (const ElementType kv : {ElementType::BF16, ElementType::Q8_0, ElementType::F32}) {
        same("random chunks", {.chunks = random_chunks(threads), .kv = kv});
      }
      if (threads == 2) {
        same("contiguous layout, random chunks", {.chunks = random_chunks(9), .contiguous = true});
        same("token by token", {.chunks = std::vector<std::uint32_t>(kPrompt, 1)});
        for (const std::uint32_t block : {1u, 8u, 32u, 64u, 128u}) {
          same("another size of blocks, random chunks", {.block_size = block, .chunks = random_chunks(block)});
        }
        same("among 1 other", {.chunks = random_chunks(3), .others = 1});
        same("among 32 others", {.chunks = {30, 1, 1, 43}, .others = 32});
        for (const ElementType kv : {ElementType::BF16, ElementType::Q8_0, ElementType::F32}) {
          same("at once, blocks of 64", {.block_size = 64, .kv = kv});
          same("contiguous, token by token",
               {.chunks = std::vector<std::uint32_t>(kPrompt, 1), .contiguous = true, .kv = kv});
        }
      }
    }
  }
}

// All numbers from 1 to 16, with the shapes of steps that are divided differently: a prompt at once, a batch, a token.
TEST_P(Exact, LogitsAreTheSameBitsWithEveryNumberOfThreads) {
  const std::string path = path_of(GetParam());
  for (const BackendKind& kind : kinds()) {
    if (kind.gpu) continue;
    std::optional<Bits> expected;
    for (std::uint32_t threads = 1; threads <= 16; ++threads) {
      Subject subject(path, kind.make(threads));
      const auto prompt = prompt_of(42, kPrompt, subject.vocabulary());
      for (const Subject::Way& way : {Subject::Way{}, Subject::Way{.chunks = {40, 1, 34}, .others = 9}}) {
        const Bits bits = subject.logits(prompt, way);
        if (!expected) expected = bits;
        ASSERT_EQ(bits.size(), expected->size());
        EXPECT_EQ(std::memcmp(bits.data(), expected->data(), bits.size() * sizeof(float)), 0)
            << kind.name << ", " << threads << " threads, " << way.others << " others";
      }
    }
  }
}

// States in 16 bits are rounded after every token, also in the middle of a chunk.
TEST_P(Exact, LogitsAreTheSameBitsWithRecurrentStatesOfEveryType) {
  const std::string path = path_of(GetParam());
  for (const BackendKind& kind : kinds()) {
    std::optional<Bits> in_f32;
    bool typed = false;
    for (const ElementType type : {ElementType::F32, ElementType::F16, ElementType::BF16}) {
      std::optional<Bits> expected;
      for (const std::uint32_t threads : thread_counts(kind)) {
        Subject subject(path, kind.make(threads));
        if (!subject.recurrent()) return;
        typed = subject.typed_state();
        const auto prompt = prompt_of(42, kPrompt, subject.vocabulary());
        const auto same = [&](const char* what, Subject::Way way) {
          way.state = type;
          const Bits bits = subject.logits(prompt, way);
          ASSERT_EQ(bits.size(), std::size_t{kPrompt} * subject.vocabulary());
          if (!expected) expected = bits;
          EXPECT_EQ(std::memcmp(bits.data(), expected->data(), bits.size() * sizeof(float)), 0)
              << kind.name << ", " << name(type) << ", " << threads << " threads: " << what;
        };
        same("prefill at once", {});
        same("random chunks, pages in any order", {.chunks = random_chunks(threads), .scatter_pages = true});
        if (threads != 2) continue;
        same("token by token", {.chunks = std::vector<std::uint32_t>(kPrompt, 1)});
        same("among 7 others", {.chunks = {50, 1, 24}, .others = 7});
        same("contiguous layout, random chunks", {.chunks = random_chunks(9), .contiguous = true});
      }
      if (!in_f32) in_f32 = expected;
      EXPECT_EQ(*expected == *in_f32, type == ElementType::F32 || !typed) << name(type);
    }
  }
}

// A pool in which the state of a prompt is reused, shared, forked, rewound, evicted and moved. Each function expects
// the logits of new state.
class OldState {
 public:
  OldState(const std::string& path, const BackendKind& kind, ElementType state_type)
      : backend_(kind.make(2)), model_(*Model::load(path)), vocabulary_(model_->hyperparameters().vocabulary) {
    EXPECT_TRUE(model_->prepare(*backend_, 256, 256).has_value());
    prompt_ = prompt_of(42, kPrompt, vocabulary_);
    config_ = {.layout = *model_->layout(8, ElementType::F16, state_type), .max_sequences = 8, .max_tokens = 128};
    config_.checkpoint_interval = 16;
    config_.max_recompute = 32;
    for (const PageShape& shape : config_.layout.groups) config_.budget_bytes += 48 * shape.page_bytes();
    if (config_.layout.has_recurrent()) config_.budget_bytes += 12 * config_.layout.recurrent.bytes();
    pool_ = *SequencePool::create(backend_->device(), config_);
    runner_.emplace(*Runner::create(*model_, *pool_));
    batch_ = runner_->make_batch();
  }

  void reused_forked_and_rewound() {
    const SequenceId first = pool_->create({.prompt = prompt_})->id;
    cold_ = finish(first);
    const auto again = pool_->create({.prompt = prompt_});
    ASSERT_TRUE(again.has_value());
    EXPECT_GE(again->hit.tokens, 64u) << name(again->hit.end);
    same_from(again->hit.tokens, finish(again->id), "a prefix that another sequence holds");

    const auto forked = pool_->fork(first, 61);
    ASSERT_TRUE(forked.has_value());
    EXPECT_GE(forked->position, 29u);
    same_from(forked->position, finish(forked->id), "a fork in the middle of a page");

    const auto rewound = pool_->rewind(again->id, 43);
    ASSERT_TRUE(rewound.has_value());
    same_from(*rewound, finish(again->id), "a rewound sequence");

    for (const SequenceId id : {first, again->id, forked->id}) release(id);
    const auto cached = pool_->create({.prompt = prompt_});
    EXPECT_GE(cached->hit.tokens, 64u) << name(cached->hit.end);
    same_from(cached->hit.tokens, finish(cached->id), "a prefix that nobody held any more");
    release(cached->id);
  }

  // Other sequences come until part of the prefix has been evicted. It is computed again then.
  void half_evicted() {
    Hit hit{.tokens = kPrompt};
    for (std::uint32_t i = 0; i < 40 && hit.tokens > 40; ++i) {
      const auto other = pool_->create({.prompt = std::span(prompt_).first(1), .name_space = 1 + i});
      ASSERT_TRUE(other.has_value());
      const auto tokens = prompt_of(500 + i, 40, vocabulary_);
      batch_.clear();
      batch_.add(other->id, tokens, Logits::None, true);
      ASSERT_TRUE(runner_->run(batch_).has_value());
      release(other->id);
      hit = pool_->lookup(prompt_);
    }
    EXPECT_LE(hit.tokens, 40u);
    const auto partly = pool_->create({.prompt = prompt_});
    same_from(partly->hit.tokens, finish(partly->id), "a prefix of which part was evicted");
    release(partly->id);
  }

  void suspended_by_copy() {
    const auto arena = *pool_->create_host_arena(config_.budget_bytes);
    const auto suspended = pool_->suspend(begin(), *arena);
    ASSERT_TRUE(suspended.has_value()) << suspended.error().message();
    overwrite();
    const auto resumed = pool_->resume(*suspended, moved_tokens());
    ASSERT_TRUE(resumed.has_value()) << resumed.error().message();
    same_from(kMoved, finish(*resumed), "suspended by copy");
    release(*resumed);
  }

  // Full blocks that another sequence holds stay in the pool. The rest is copied.
  void suspended_beside_a_fork() {
    const auto arena = *pool_->create_host_arena(config_.budget_bytes);
    const SequenceId stays = begin();
    const auto leaves = pool_->fork(stays, kMoved);
    ASSERT_TRUE(leaves.has_value()) << leaves.error().message();
    ASSERT_EQ(leaves->position, kMoved);
    const auto suspended = pool_->suspend(leaves->id, *arena);
    ASSERT_TRUE(suspended.has_value()) << suspended.error().message();
    same_from(kMoved, finish(stays), "a sequence whose fork was suspended");
    const auto resumed = pool_->resume(*suspended, moved_tokens());
    ASSERT_TRUE(resumed.has_value()) << resumed.error().message();
    same_from(kMoved, finish(*resumed), "suspended by copy, except blocks that are shared");
    release(stays);
    release(*resumed);
  }

  // As the engine does it: the sequence is released, and created again from its tokens.
  void suspended_by_recomputation() {
    release(begin());
    overwrite();
    const auto recomputed = pool_->create({.prompt = prompt_});
    ASSERT_TRUE(recomputed.has_value());
    EXPECT_EQ(recomputed->hit.tokens, 0u);
    same_from(0, finish(recomputed->id), "suspended by recomputation");
    release(recomputed->id);
  }

  void saved_and_restored() {
    const SequenceId first = begin();
    const auto saved = pool_->save(first);
    ASSERT_TRUE(saved.has_value()) << saved.error().message();
    same_from(kMoved, finish(first), "a sequence that was saved");
    release(first);
    overwrite();
    const auto restored = pool_->restore(*saved);
    ASSERT_TRUE(restored.has_value()) << restored.error().message();
    same_from(kMoved, finish(*restored), "saved and restored");
    release(*restored);

    const auto other_pool = *SequencePool::create(backend_->device(), config_);
    auto runner = *Runner::create(*model_, *other_pool);
    const auto there = other_pool->restore(*saved);
    ASSERT_TRUE(there.has_value()) << there.error().message();
    same_from(kMoved, compute(*other_pool, runner, *there, kPrompt), "restored into another pool");
    expect_integrity(*other_pool);
  }

  void expect_integrity() const { expect_integrity(*pool_); }

 private:
  static constexpr std::uint32_t kMoved = 43;  // tokens of a sequence that is moved: inside a block, at no checkpoint

  static void expect_integrity(const SequencePool& pool) {
    const auto ok = pool.check_integrity();
    EXPECT_TRUE(ok.has_value()) << ok.error();
  }

  std::span<const Token> moved_tokens() const { return std::span(prompt_).first(kMoved); }

  // Computes the prompt up to `to`, in chunks that end at checkpoint positions.
  Bits compute(SequencePool& pool, Runner& runner, SequenceId id, std::uint32_t to) {
    Bits bits;
    for (std::uint32_t at = *pool.length(id); at < to; at = *pool.length(id)) {
      std::uint32_t end = to;
      if (const auto due = pool.next_checkpoint(id)) end = std::min(end, *due);
      batch_.clear();
      batch_.add(id, std::span(prompt_).subspan(at, end - at), Logits::All);
      const HostRows rows = *runner.run(batch_);
      for (std::uint32_t i = 0; i < rows.rows; ++i) bits.insert(bits.end(), rows.row(i).begin(), rows.row(i).end());
    }
    return bits;
  }
  Bits finish(SequenceId id) { return compute(*pool_, *runner_, id, kPrompt); }

  void same_from(std::uint32_t from, const Bits& bits, const char* what) const {
    ASSERT_EQ(bits.size(), std::size_t{kPrompt - from} * vocabulary_) << what;
    EXPECT_EQ(std::memcmp(bits.data(), cold_.data() + std::size_t{from} * vocabulary_, bits.size() * sizeof(float)), 0)
        << what;
  }

  void release(SequenceId id) { EXPECT_TRUE(pool_->release(id).has_value()); }

  // A new sequence in the middle of the prompt. Nothing of it was cached before.
  SequenceId begin() {
    pool_->drop_cache();
    const SequenceId id = pool_->create({.prompt = prompt_})->id;
    EXPECT_EQ(compute(*pool_, *runner_, id, kMoved).size(), std::size_t{kMoved} * vocabulary_);
    return id;
  }

  // Other sequences use the memory that is free, and nothing of the prompt stays cached.
  void overwrite() {
    pool_->drop_cache();
    std::vector<SequenceId> others;
    for (std::uint32_t i = 0; i < 4; ++i) {
      others.push_back(pool_->create({.prompt = {}, .name_space = 100 + i})->id);
      const auto tokens = prompt_of(700 + i, 60, vocabulary_);
      batch_.clear();
      batch_.add(others.back(), tokens, Logits::None);
      EXPECT_TRUE(runner_->run(batch_).has_value());
    }
    for (const SequenceId id : others) release(id);
    EXPECT_EQ(pool_->lookup(prompt_).matched, 0u);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::uint32_t vocabulary_;
  std::vector<Token> prompt_;
  PoolConfig config_;
  std::unique_ptr<SequencePool> pool_;
  std::optional<Runner> runner_;
  Batch batch_;
  Bits cold_;  // the logits of new state
};

void expect_same_bits_with_old_state(const std::string& path, const BackendKind& kind, ElementType state_type) {
  SCOPED_TRACE(kind.name + ", " + name(state_type));
  OldState state(path, kind, state_type);
  state.reused_forked_and_rewound();
  state.half_evicted();
  state.suspended_by_copy();
  state.suspended_beside_a_fork();
  state.suspended_by_recomputation();
  state.saved_and_restored();
  state.expect_integrity();
}

TEST_P(Exact, LogitsAreTheSameBitsWithStateThatWasReusedForkedRewoundOrMoved) {
  const std::string path = path_of(GetParam());
  const bool recurrent = (*Model::load(path))->layout(16, ElementType::F16)->has_recurrent();
  // Other instruction sets compute other bits, but the pool does the same with them.
  std::vector<BackendKind> best = kinds();
  best.erase(best.begin(), best.end() - std::min<std::ptrdiff_t>(std::ssize(best), best.back().gpu ? 2 : 1));
  for (const BackendKind& kind : best) {
    expect_same_bits_with_old_state(path, kind, ElementType::F32);
    if (!recurrent) continue;
    for (const ElementType type : {ElementType::F16, ElementType::BF16}) {
      expect_same_bits_with_old_state(path, kind, type);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Exact, testing::golden_files(), testing::readable);
INSTANTIATE_TEST_SUITE_P(Other, Exact, ::testing::ValuesIn(other_files()), testing::readable);
INSTANTIATE_TEST_SUITE_P(Demo, Exact, testing::demo_files(), testing::readable);

}  // namespace
}  // namespace quire::model

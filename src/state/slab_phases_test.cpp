// One arena without a static split. A hybrid workload changes from many short sequences (mostly states) to few long
// ones (mostly pages) and back, while some sequences live through all of it. Each time nearly every byte is in use.
#include <gtest/gtest.h>

#include "quire/state/toy_engine_testing.h"

namespace quire::testing {
namespace {

double useful_share(const SequencePool& pool) {
  const PoolStats stats = pool.stats();
  double bytes = static_cast<double>(stats.states.held * stats.states.object_bytes);
  for (const ObjectCounts& pages : stats.pages) bytes += static_cast<double>(pages.held * pages.object_bytes);
  return bytes / static_cast<double>(stats.arena_bytes);
}

double share_of_states(const SequencePool& pool) {
  const PoolStats stats = pool.stats();
  return static_cast<double>(stats.states.held * stats.states.object_bytes) / static_cast<double>(stats.arena_bytes);
}

class Workload {
 public:
  Workload(const std::vector<LayerDesc>& layers, std::uint64_t budget)
      : engine_(device_, {.layout = *StateLayout::from_layers(layers, 16),
                          .budget_bytes = budget,
                          .max_sequences = 1024,
                          .max_tokens = 1 << 15}) {}

  SequencePool& pool() { return engine_.pool(); }

  // Adds sequences with one short prompt each, until one is refused.
  void many_short() {
    for (;;) {
      const std::vector<Token> prompt(9, static_cast<Token>(sequences_.size() + 100 * ++round_));
      auto sequence = engine_.create(prompt);
      if (!sequence) {
        EXPECT_EQ(sequence.error().code, PoolError::Code::Exhausted) << sequence.error().message();
        return;
      }
      const bool fits = engine_.append(*sequence, sequence->pending).has_value();
      sequences_.push_back(std::move(*sequence));
      if (!fits) return;
    }
  }

  // Grows three sequences in turn until none can grow.
  void few_long() {
    const std::size_t first = sequences_.size();
    for (int i = 0; i < 3; ++i) sequences_.push_back(*engine_.create(std::vector<Token>(2, 7000 + ++round_)));
    for (std::uint32_t chunk = 64; chunk > 0;) {
      bool any = false;
      for (std::size_t i = first; i < first + 3; ++i) {
        any =
            engine_.append(sequences_[i], std::vector<Token>(chunk, static_cast<Token>(i + chunk))).has_value() || any;
      }
      if (!any) chunk /= 2;
    }
  }

  // Releases all but every `keep`-th; those stay where they are.
  void end_most(std::size_t keep) {
    std::vector<ToyEngine::Sequence> left;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      if (i % keep == keep / 2) {
        left.push_back(std::move(sequences_[i]));
      } else {
        EXPECT_TRUE(pool().release(sequences_[i].id).has_value());
      }
    }
    sequences_ = std::move(left);
  }

  void check() {
    for (const auto& sequence : sequences_) EXPECT_EQ(engine_.verify(sequence), "");
    const auto ok = pool().check_integrity();
    EXPECT_TRUE(ok.has_value()) << ok.error();
  }

 private:
  CountingDevice device_;
  ToyEngine engine_;
  std::vector<ToyEngine::Sequence> sequences_;
  int round_ = 0;
};

void run(const std::vector<LayerDesc>& layers, std::uint64_t budget) {
  Workload workload(layers, budget);
  EXPECT_GE(static_cast<double>(workload.pool().stats().arena_bytes), 0.98 * static_cast<double>(budget));
  for (int turn = 0; turn < 3; ++turn) {
    workload.many_short();
    EXPECT_GE(useful_share(workload.pool()), 0.95) << "many short sequences, turn " << turn;
    EXPECT_GE(share_of_states(workload.pool()), 0.5);
    workload.check();
    workload.end_most(25);
    workload.few_long();
    EXPECT_GE(useful_share(workload.pool()), 0.95) << "few long sequences, turn " << turn;
    EXPECT_LE(share_of_states(workload.pool()), 0.2);
    workload.check();
    workload.end_most(12);
  }
  EXPECT_GT(workload.pool().stats().objects_moved, 0u);
}

TEST(Slabs, AHybridFillsTheArenaInEachPhaseWithoutARestart) {
  // State 33,280 bytes, page 2,048.
  run({LayerDesc::attention(2, 16), LayerDesc::recurrent(512, 16128), LayerDesc::recurrent(512, 16128)}, 4 << 20);
}

TEST(Slabs, AHybridWithWindowsFillsTheArenaInEachPhaseWithoutARestart) {
  // Three classes of objects, whose sizes do not divide each other: 33,280, 2,048 and 3,072 bytes.
  run({LayerDesc::attention(2, 16), LayerDesc::attention(3, 16, ElementType::F16, 64), LayerDesc::recurrent(512, 16128),
       LayerDesc::recurrent(512, 16128)},
      4 << 20);
}

TEST(Slabs, OddSizesStillLeaveLittleOver) {
  // A state of 100,032 bytes and pages of 7,680: neither is a multiple of the other.
  const std::uint64_t sizes[] = {7680, 100'032};
  const auto plan = plan_slabs(64 << 20, sizes);
  ASSERT_TRUE(plan.has_value());
  EXPECT_GE(plan->worst_fill, 0.97);
  EXPECT_GE(plan->slabs, 64u);
}

}  // namespace
}  // namespace quire::testing

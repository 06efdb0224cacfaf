// The heap runs out, at every allocation in turn. Functions of this library then return an error, throw nothing, leave
// everything unchanged and leak no memory.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/state/pool_behaviour_testing.h"

// The large tables of a pool and the host device allocate aligned memory without operator new.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  if (quire::testing::heap_fails()) return nullptr;
  void* memory = nullptr;
  return posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes) == 0 ? memory : nullptr;
}

namespace quire::testing {
namespace {

// Calls repeatedly, and lets one more allocation succeed each time, until all do. Returns how many could fail.
template <typename Call>
std::int64_t let_each_allocation_fail(Call call) {
  for (std::int64_t n = 0;; ++n) {
    const std::size_t before = live_bytes;
    std::optional<PoolError::Code> error;
    heap_fails_after = n;
    {
      const auto result = call();
      if (!result) error = result.error().code;
    }
    const bool failed = heap_fails_after < 0;
    heap_fails_after = -1;
    EXPECT_EQ(live_bytes, before) << "memory was lost when allocation " << n << " failed";
    if (!failed) {
      EXPECT_FALSE(error.has_value()) << "was refused although nothing failed";
      return n;
    }
    EXPECT_TRUE(error == PoolError::Code::OutOfMemory || error == PoolError::Code::DeviceFailure)
        << "allocation " << n << ": " << (error ? name(*error) : "no error");
    if (::testing::Test::HasFailure()) return n;
  }
}

constexpr PageShape kPages{
    .block_size = 4, .num_layers = 2, .num_kv_heads = 2, .head_dim = 8, .type = ElementType::F32};
constexpr StateShape kStates{.num_layers = 2, .conv_bytes = 64, .ssm_bytes = 256};

TEST(HeapFailure, TheCounterFailsTheAllocationThatWasChosen) {
  heap_fails_after = 1;
  auto first = std::unique_ptr<int>(new (std::nothrow) int(1)),
       second = std::unique_ptr<int>(new (std::nothrow) int(2));
  auto third = std::unique_ptr<int>(new (std::nothrow) int(3));
  EXPECT_TRUE(first != nullptr && second == nullptr && third != nullptr);
}

TEST(HeapFailure, OfALayoutIsAnError) {
  const ToyModel model = ToyModel::everything(8);
  EXPECT_GT(let_each_allocation_fail([&] { return StateLayout::from_layers(model.layers, 4); }), 1);
}

TEST(HeapFailure, OfAnArenaAndOfPoolsThatStandAloneIsAnError) {
  HostDevice device;
  EXPECT_GT(let_each_allocation_fail([&] { return Arena::create(device, 4096, 8); }), 4);
  EXPECT_GT(let_each_allocation_fail([&] { return BlockPool::create(device, 8, kPages); }), 6);
  EXPECT_GT(let_each_allocation_fail([&] { return SsmStatePool::create(device, 4, kStates); }), 3);
  const SsmStatePool::Factory factory = [&](std::uint32_t) { return SequenceState::create(device, kStates); };
  EXPECT_GT(let_each_allocation_fail([&] { return SsmStatePool::create(4, factory); }), 6);
}

TEST(HeapFailure, OfASequencesTableIsAnError) {
  HostDevice device;
  auto pool = BlockPool::create(device, 8, kPages);
  ASSERT_TRUE(done(pool));
  EXPECT_GT(let_each_allocation_fail([&] { return PagedSeqState::create(*pool, 16); }), 3);
}

TEST(HeapFailure, WhereSeveralPagesAreAskedForTakesNone) {
  HostDevice device;
  auto pool = BlockPool::create(device, 8, kPages);
  heap_fails_after = 0;
  EXPECT_EQ(pool->allocate(3u), std::nullopt);
  EXPECT_LT(heap_fails_after, 0);
  EXPECT_EQ(pool->free_count(), 8u);
  EXPECT_TRUE(pool->allocate(3u).has_value());
}

TEST(HeapFailure, OfARewriteLeavesTheCacheAsItWas) {
  HostDevice device;
  auto pool = BlockPool::create(device, 8, kPages);
  auto sequence = PagedSeqState::create(*pool, 8);
  ASSERT_TRUE(done(sequence->ensure_capacity(8)));
  KvCache cache = *KvCache::paged(*sequence, 0);
  const auto first = pattern(4 * cache.token_bytes(), 1), second = pattern(2 * cache.token_bytes(), 2);
  ASSERT_TRUE(done(cache.write(0, first, first)));
  std::vector<std::byte> k(4 * cache.token_bytes()), v = k;
  heap_fails_after = 1;
  EXPECT_TRUE(refused(cache.write(1, second, second), Code::OutOfMemory));
  heap_fails_after = -1;
  ASSERT_TRUE(done(cache.read(0, 4, k, v)));
  EXPECT_EQ(k, first);
  EXPECT_EQ(let_each_allocation_fail([&] { return cache.write(1, second, second); }), 2);
}

TEST(HeapFailure, OfASnapshotIsAnError) {
  HostDevice device;
  const auto state = SequenceState::create(device, kStates);
  EXPECT_EQ(let_each_allocation_fail([&] { return state->snapshot(); }), 1);
}

class HeapFailureOfAPool : public ::testing::TestWithParam<const char*> {
 protected:
  static ToyModel model() {
    const std::string name = GetParam();
    return name == "Attention"   ? ToyModel::attention()
           : name == "Recurrent" ? ToyModel::recurrent()
                                 : ToyModel::everything(8);
  }
};
INSTANTIATE_TEST_SUITE_P(Models, HeapFailureOfAPool, ::testing::Values("Attention", "Recurrent", "Everything"),
                         [](const auto& model) { return std::string(model.param); });

TEST_P(HeapFailureOfAPool, ThatIsMadeIsAnError) {
  HostDevice device;
  const PoolConfig config = pool_of(model(), 1 << 14);
  EXPECT_GT(let_each_allocation_fail([&] { return SequencePool::create(device, config); }), 40);
}

TEST_P(HeapFailureOfAPool, ThatMakesAHostArenaIsAnErrorAndSuspendingNeedsNoHeap) {
  HostDevice device;
  ToyEngine engine(device, pool_of(model(), 1 << 14));
  SequencePool& pool = engine.pool();
  EXPECT_EQ(let_each_allocation_fail([&] { return pool.create_host_arena(1 << 14); }), 2);
  const auto arena = pool.create_host_arena(1 << 14).value();
  auto sequence = written(engine, counting(0, 13));
  heap_fails_after = 0;
  const auto suspended = pool.suspend(sequence.id, *arena);
  const auto id = suspended ? pool.resume(*suspended, sequence.tokens) : std::unexpected(suspended.error());
  EXPECT_EQ(heap_fails_after, 0);
  heap_fails_after = -1;
  ASSERT_TRUE(done(id));
  sequence.id = *id;
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST_P(HeapFailureOfAPool, ThatSavesOrRecountsLeavesItAsItWas) {
  HostDevice device;
  ToyEngine engine(device, pool_of(model(), 1 << 14));
  SequencePool& pool = engine.pool();
  auto sequence = written(engine, counting(0, 13));
  EXPECT_GT(let_each_allocation_fail([&] { return pool.save(sequence.id); }), 1);
  EXPECT_EQ(engine.verify(sequence), "");
  EXPECT_TRUE(sound(pool));  // its scratch buffers exist now

  std::int64_t refusals = 0;
  for (bool failed = true; failed;) {
    heap_fails_after = refusals;
    const auto ok = pool.check_integrity();
    failed = heap_fails_after < 0;
    heap_fails_after = -1;
    ASSERT_NE(ok.has_value(), failed);
    if (!failed) break;
    EXPECT_EQ(ok.error(), "out of memory");
    ++refusals;
  }
  EXPECT_GT(refusals, 1);

  const auto saved = pool.save(sequence.id);
  ASSERT_TRUE(done(pool.release(sequence.id)));
  pool.drop_cache();
  heap_fails_after = 0;
  const auto id = pool.restore(*saved);  // takes nothing from the heap
  const PoolStats stats = pool.stats();  // nor does this
  EXPECT_EQ(heap_fails_after, 0);
  heap_fails_after = -1;
  ASSERT_TRUE(done(id));
  EXPECT_EQ(stats.sequences, 1u);
  sequence.id = *id;
  EXPECT_EQ(engine.verify(sequence), "");
}

TEST(HeapFailure, OfAMessageLeavesTheNameOfTheError) {
  const PoolError error = PoolError::not_written(7);
  heap_fails_after = 0;
  const std::string message = error.message();
  heap_fails_after = -1;
  EXPECT_EQ(message, "NotWritten");
}

}  // namespace
}  // namespace quire::testing

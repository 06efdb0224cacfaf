// Pools larger than this machine, on a device that only pretends to allocate large buffers.
// Bookkeeping and addresses are real, bytes are not.
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/sequence_pool.h"

namespace quire::testing {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// Small buffers (tables) are real. Large ones are addresses without memory: nobody may
// dereference them, and this device does not either.
class PretendingDevice final : public Device {
 public:
  const char* name() const override { return "pretending"; }
  DeviceMemory memory() const override { return {UINT64_MAX, UINT64_MAX}; }
  PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) override {
    if (bytes < kGiB) return host_.allocate(bytes, alignment);
    return reinterpret_cast<void*>(kNowhere);
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    if (bytes < kGiB) host_.deallocate(memory, bytes);
  }
  PoolResult<void> upload(void* to, const void* from, std::size_t bytes) override {
    return is_real(to) ? host_.upload(to, from, bytes) : PoolResult<void>();
  }
  PoolResult<void> download(void* to, const void* from, std::size_t bytes) override {
    return is_real(from) ? host_.download(to, from, bytes) : PoolResult<void>();
  }
  PoolResult<void> copy(void* to, const void* from, std::size_t bytes) override {
    return is_real(to) && is_real(from) ? host_.copy(to, from, bytes) : PoolResult<void>();
  }
  PoolResult<void> zero(void* to, std::size_t bytes) override {
    return is_real(to) ? host_.zero(to, bytes) : PoolResult<void>();
  }
  PoolResult<void> fence() override { return {}; }
  PoolResult<void> upload_words(void* to, std::span<const Word> words) override {
    return is_real(to) ? host_.upload_words(to, words) : PoolResult<void>();
  }

 private:
  static constexpr std::uintptr_t kNowhere = std::uintptr_t{1} << 60;  // no program on this machine has memory there
  static bool is_real(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) < kNowhere; }
  HostDevice host_;
};

// A page of 64 MiB: 64 layers x (K, V) x 16 heads x 64 tokens x 256 halves.
LayerDesc large_attention(std::uint32_t heads = 16) { return LayerDesc::attention(heads, 256); }
constexpr std::uint64_t kPage = std::uint64_t{64} << 20;

PoolConfig config_of(const std::vector<LayerDesc>& layers, std::uint64_t budget) {
  return {.layout = *StateLayout::from_layers(layers, 64),
          .budget_bytes = budget,
          .max_sequences = 2,
          .max_tokens = 1 << 20};
}

// Fills the pool with pages and checks the addresses in its tables.
void expect_every_page_has_an_address_of_its_own(SequencePool& pool, std::uint64_t page_bytes) {
  const std::uint32_t pages = pool.stats().pages[0].total;
  const SequenceId id = pool.create({})->id;
  ASSERT_TRUE(done(pool.reserve(id, pages * 64)));
  const auto view = pool.kv_view(id, 0, 0);
  ASSERT_TRUE(done(view));
  const auto table = pool.pages(id, 0).value();
  std::uint64_t highest = 0;
  for (std::uint32_t block = 0; block < pages; ++block) {
    const std::uint64_t offset = view->table[block] * view->page_unit;
    ASSERT_EQ(pool.arena().base() + offset, pool.block_pool(0).address(table[block].index)) << block;
    highest = std::max(highest, offset + page_bytes);
  }
  EXPECT_GT(highest, 256 * kGiB) << "the pool was not filled";
  EXPECT_TRUE(sound(pool));
}

TEST(LargePools, OfMoreThan256GiBAreMadeAndEveryPageCanBeAddressed) {
  PretendingDevice device;
  const std::vector<LayerDesc> layers(64, large_attention());
  const auto pool = SequencePool::create(device, config_of(layers, 600 * kGiB));
  ASSERT_TRUE(done(pool));
  EXPECT_EQ((*pool)->stats().pages[0].object_bytes, kPage);
  EXPECT_EQ((*pool)->stats().pages[0].total, 600 * kGiB / kPage);
  expect_every_page_has_an_address_of_its_own(**pool, kPage);
}

// A state of an odd size. Slabs that are multiples of it share few factors with a page, and
// locations would be counted in units of 64 bytes.
TEST(LargePools, OfAHybridWhoseStatesAndPagesHaveLittleInCommonAreMadeToo) {
  PretendingDevice device;
  std::vector<LayerDesc> layers(64, large_attention());
  layers.push_back(LayerDesc::recurrent(64, (std::uint64_t{60} << 20) + 64));
  const auto pool = SequencePool::create(device, config_of(layers, 600 * kGiB));
  ASSERT_TRUE(done(pool));
  ASSERT_TRUE(done((*pool)->alloc_ssm(1)));
  EXPECT_GT((*pool)->stats().pages[0].total, 550 * kGiB / kPage);
  expect_every_page_has_an_address_of_its_own(**pool, kPage);
}

TEST(LargePools, WithMoreObjectsThanCanBeCountedAreRefusedBeforeAnythingIsTaken) {
  PretendingDevice device;
  const std::vector<LayerDesc> layers(1, LayerDesc::attention(1, 8));  // 2 KiB pages
  EXPECT_TRUE(refused(SequencePool::create(device, config_of(layers, 16384 * kGiB)), Code::InvalidArgument));
}

}  // namespace
}  // namespace quire::testing

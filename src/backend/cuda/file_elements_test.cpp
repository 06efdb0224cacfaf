// Elements one by one against the reference that dequantizes whole blocks.
#include "quire/backend/cuda/file_elements.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/gguf/types.h"

namespace quire::cuda {
namespace {

// Ids of the format up to 63: more than it has used.
constexpr std::uint32_t kIds = 64;

TEST(FileElements, EveryTypeThatCanBeDequantizedHasElements) {
  for (std::uint32_t id = 0; id < kIds; ++id) {
    const gguf::TypeInfo* info = gguf::find_type(id);
    if (info == nullptr) continue;
    const bool visited = visit_elements(info->type, [&]<gguf::Type kType>() {
      EXPECT_EQ(Elements<kType>::kSize, info->block_size) << info->name;
      EXPECT_EQ(Elements<kType>::kBytes, info->block_bytes) << info->name;
      EXPECT_EQ(kType, info->type);
    });
    EXPECT_EQ(visited, info->dequantizable) << info->name;
  }
}

// Random bytes, so every bit of every field is used. Scales become infinite and NaN too.
TEST(FileElements, HaveTheBitsOfTheReference) {
  std::mt19937 random(7);
  for (std::uint32_t id = 0; id < kIds; ++id) {
    const gguf::TypeInfo* info = gguf::find_type(id);
    if (info == nullptr || !info->dequantizable) continue;
    SCOPED_TRACE(std::string(info->name));
    const std::size_t blocks = 200'000 / info->block_bytes;
    std::vector<std::byte> bytes(blocks * info->block_bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    std::vector<float> expected(blocks * info->block_size);
    ASSERT_TRUE(gguf::dequantize(info->type, bytes, expected));
    std::size_t wrong = 0, numbers = 0;
    visit_elements(info->type, [&]<gguf::Type kType>() {
      using E = Elements<kType>;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto* block = reinterpret_cast<Block>(bytes.data()) + i / E::kSize * E::kBytes;
        const float got = E::at(block, static_cast<int>(i % E::kSize));
        if (std::isnan(got) && std::isnan(expected[i])) continue;
        numbers += 1;
        wrong += std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(expected[i]) ? 1 : 0;
      }
    });
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(numbers, expected.size() / 2);
  }
}

}  // namespace
}  // namespace quire::cuda

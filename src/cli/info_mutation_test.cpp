// Runs `quire info` on ten thousand mutated copies of each demo model. Each is read, or refused with one line. None
// takes more memory than twice the file.
#include <algorithm>
#include <cstdlib>
#include <string>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/cli/cli_testing.h"
#include "quire/cli/info.h"
#include "quire/cli/mutation_testing.h"
#include "quire/cli/printable.h"
#include "quire/gguf/gguf.h"

namespace quire::cli {
namespace {

using quire::testing::live_bytes;
using quire::testing::peak_bytes;

using testing::Mutator;

// A file of a few bytes still costs a message.
constexpr std::size_t kSlack = 64 << 10;

struct Answer {
  Result<std::string> text;
  Result<std::string> json;
};

// Everything that `quire info` does, except opening the file and printing.
Answer answer(std::span<const std::byte> image) {
  const auto file = gguf::File::from_memory(image, "mutant");
  if (!file) return {std::unexpected(file.error()), std::unexpected(file.error())};
  const auto facts = model_facts(*file);
  if (!facts) return {std::unexpected(facts.error()), std::unexpected(facts.error())};
  return {info_text(*facts, {.terminal = true, .utf8 = true}), json_line(info_json(*facts))};
}

bool is_clean(std::string_view text, bool lines) {
  return std::ranges::all_of(text, [lines](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x20 && byte != 0x7F) || (lines && c == '\n');
  });
}

class InfoMutations : public ::testing::TestWithParam<const char*> {};

TEST_P(InfoMutations, TenThousandAreReadOrRefusedWithAReason) {
  constexpr int kCount = 10000;
  Mutator mutator(testing::demo_model(GetParam()), 3);
  const std::string unchanged = *answer(mutator.original()).text;
  int read = 0, refused = 0, changed = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto image = mutator.next(testing::kMutationKinds[i % std::size(testing::kMutationKinds)]);
    const std::size_t before = live_bytes;
    peak_bytes = before;
    {
      const Answer got = answer(image);
      ASSERT_LE(peak_bytes - before, 2 * image.size() + kSlack) << i;
      if (got.text) {
        ++read;
        changed += *got.text != unchanged;
        ASSERT_TRUE(is_clean(*got.text, true)) << i;
        ASSERT_TRUE(is_clean(got.json->substr(0, got.json->size() - 1), false)) << i;
        boost::json::error_code error;
        boost::json::parse(*got.json, error);
        ASSERT_FALSE(error) << i << ": " << *got.json;
      } else {
        ++refused;
        const std::string& why = got.text.error().message;
        ASSERT_TRUE(why.starts_with("mutant: ")) << i << ": " << why;
        ASSERT_TRUE(is_clean(why, false)) << i << ": " << why;
        ASSERT_LT(why.size(), 1000u) << i << ": " << why;
      }
    }
    ASSERT_EQ(live_bytes, before) << i;
  }
  // If all or none are refused, the mutations are useless.
  EXPECT_EQ(read + refused, kCount);
  EXPECT_GT(read, kCount / 20);
  EXPECT_GT(changed, 20);
  EXPECT_GT(refused, kCount / 5);
  RecordProperty("read", read);
  RecordProperty("refused", refused);
}

TEST_P(InfoMutations, UndoingThemGivesTheModelBack) {
  Mutator mutator(testing::demo_model(GetParam()), 4);
  for (int i = 0; i < 100; ++i) mutator.next(testing::kMutationKinds[i % std::size(testing::kMutationKinds)]);
  // The flip changes only the copy; the rest of the image is the original.
  const auto image = mutator.next(Mutator::Kind::flips);
  ASSERT_EQ(image.size(), mutator.original().size());
  int different = 0;
  for (std::size_t i = 0; i < image.size(); ++i) different += image[i] != mutator.original()[i];
  EXPECT_LE(different, 4);
}

INSTANTIATE_TEST_SUITE_P(DemoModels, InfoMutations, ::testing::Values("llama", "mamba2", "hybrid"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace quire::cli

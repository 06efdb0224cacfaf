// Runs `quire info` and a load on mutated copies of every model in the tree. Each is read, or refused with one line.
// None takes more memory than the file has bytes. QUIRE_MUTATIONS sets how many copies of each model.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/cli/cli_testing.h"
#include "quire/cli/info.h"
#include "quire/cli/mutation_testing.h"
#include "quire/cli/printable.h"
#include "quire/gguf/gguf.h"
#include "quire/model/model.h"
#include "quire/model/model_files_testing.h"

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

// Sanitizers are slow, so their runs set QUIRE_PROPERTY_PERCENT below 100.
int mutations() {
  if (const char* wanted = std::getenv("QUIRE_MUTATIONS")) return static_cast<int>(std::strtol(wanted, nullptr, 10));
  const char* percent = std::getenv("QUIRE_PROPERTY_PERCENT");
  return 100 * (percent != nullptr ? static_cast<int>(std::strtol(percent, nullptr, 10)) : 100);
}

// One line, of readable characters, that names the file.
void expect_reason(const std::string& why) {
  EXPECT_TRUE(why.starts_with("mutant: ")) << why;
  EXPECT_TRUE(is_clean(why, false)) << why;
  EXPECT_LT(why.size(), 1000u) << why;
}

class Mutations : public ::testing::TestWithParam<std::string> {
 protected:
  static std::string path() { return QUIRE_SOURCE_DIR "/" + GetParam(); }

  // Calls use(image, measure) for each mutation. It calls measure() when it has done everything that takes memory, and
  // returns whether the image was read.
  template <typename Use>
  void for_each_mutation(Use use) {
    Mutator mutator(path(), 3);
    const int count = mutations();
    int read = 0;
    for (int i = 0; i < count; ++i) {
      SCOPED_TRACE(i);
      const auto image = mutator.next(testing::kMutationKinds[i % std::size(testing::kMutationKinds)]);
      const std::size_t before = live_bytes;
      peak_bytes = before;
      std::size_t used = 0;
      read += use(image, [&] { used = peak_bytes - before; });
      ASSERT_FALSE(HasFailure());
      ASSERT_LE(used, image.size() + kSlack);
      ASSERT_EQ(live_bytes, before);
    }
    // If all or none are refused, the mutations are useless.
    EXPECT_GT(read, count / 20);
    EXPECT_GT(count - read, count / 5);
    RecordProperty("read", read);
    RecordProperty("refused", count - read);
  }
};

TEST_P(Mutations, InfoReadsThemOrGivesAReason) {
  const std::string unchanged = *answer(gguf::testing::read_whole(path())).text;
  int changed = 0;
  for_each_mutation([&](std::span<const std::byte> image, auto measure) {
    const Answer got = answer(image);
    measure();
    if (!got.text) {
      expect_reason(got.text.error().message);
      return false;
    }
    changed += *got.text != unchanged;
    EXPECT_TRUE(is_clean(*got.text, true));
    EXPECT_TRUE(is_clean(got.json->substr(0, got.json->size() - 1), false));
    boost::json::error_code error;
    boost::json::parse(*got.json, error);
    EXPECT_FALSE(error) << *got.json;
    return true;
  });
  EXPECT_GT(changed, mutations() / 500);
}

TEST_P(Mutations, LoadTakesThemOrGivesAReason) {
  for_each_mutation([](std::span<const std::byte> image, auto measure) {
    auto file = gguf::File::from_memory(image, "mutant");
    const auto model = file ? model::Model::create(std::move(*file)) : std::unexpected(file.error());
    measure();
    if (!model) expect_reason(model.error().message);
    return model.has_value();
  });
}

TEST_P(Mutations, UndoingThemGivesTheModelBack) {
  Mutator mutator(path(), 4);
  for (int i = 0; i < 100; ++i) mutator.next(testing::kMutationKinds[i % std::size(testing::kMutationKinds)]);
  // The flip changes only the copy; the rest of the image is the original.
  const auto image = mutator.next(Mutator::Kind::flips);
  ASSERT_EQ(image.size(), mutator.original().size());
  int different = 0;
  for (std::size_t i = 0; i < image.size(); ++i) different += image[i] != mutator.original()[i];
  EXPECT_LE(different, 4);
}

INSTANTIATE_TEST_SUITE_P(Golden, Mutations, model::testing::golden_files(), model::testing::readable);
INSTANTIATE_TEST_SUITE_P(Demo, Mutations, model::testing::demo_files(), model::testing::readable);

}  // namespace
}  // namespace quire::cli

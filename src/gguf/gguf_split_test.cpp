// Models in several files.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/gguf/gguf.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/gguf/split.h"
#include "quire/gguf/writer.h"

namespace quire::gguf {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

// The metadata and the tensors of one part. Each test changes what it wants to be wrong.
struct PartPlan {
  std::uint16_t number = 0;
  std::uint16_t count = 3;
  std::int32_t all_tensors = 5;
  std::vector<std::string> tensors;
};

std::vector<PartPlan> three_parts() {
  return {{.number = 0, .tensors = {"a", "b"}}, {.number = 1, .tensors = {"c"}}, {.number = 2, .tensors = {"d", "e"}}};
}

std::string part_path(const TemporaryFolder& folder, std::uint32_t number, std::uint32_t count = 3) {
  return split_path(folder / "model", number, count);
}

void write_parts(const TemporaryFolder& folder, const std::vector<PartPlan>& plans) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    Writer writer;
    if (i == 0) writer.add("general.architecture", "llama");
    writer.add("split.no", plans[i].number);
    writer.add("split.count", plans[i].count);
    writer.add("split.tensors.count", plans[i].all_tensors);
    std::vector<std::vector<float>> data;
    for (const std::string& name : plans[i].tensors)
      data.push_back(std::vector<float>(10, static_cast<float>(name[0])));
    for (std::size_t t = 0; t < data.size(); ++t) {
      writer.add_tensor(plans[i].tensors[t], Type::F32, {10}, std::as_bytes(std::span(data[t])));
    }
    const auto done = writer.write(part_path(folder, static_cast<std::uint32_t>(i) + 1));
    ASSERT_TRUE(done) << done.error().message;
  }
}

std::string refusal(const std::string& path) {
  const auto file = File::open(path);
  return file ? "was read" : file.error().message;
}

TEST(GgufSplit, AnyPartOpensTheWholeModel) {
  const TemporaryFolder folder;
  write_parts(folder, three_parts());
  for (std::uint32_t opened = 1; opened <= 3; ++opened) {
    const auto file = File::open(part_path(folder, opened));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->path(), part_path(folder, 1));
    EXPECT_EQ(file->get<std::string_view>("general.architecture"), "llama");
    ASSERT_EQ(file->parts().size(), 3u);
    EXPECT_EQ(file->parts()[1].path, part_path(folder, 2));
    EXPECT_EQ(file->parts()[1].tensors, 1u);
    ASSERT_EQ(file->tensor_count(), 5u);
    const std::string names = "abcde";
    const std::vector<std::uint32_t> parts = {0, 0, 1, 2, 2};
    for (std::size_t i = 0; i < 5; ++i) {
      const Tensor tensor = file->tensor(i);
      EXPECT_EQ(tensor.name, names.substr(i, 1));
      EXPECT_EQ(tensor.part, parts[i]);
      EXPECT_EQ(detail::load<float>(tensor.data.data()), static_cast<float>(names[i]));
      EXPECT_EQ(file->tensor(names.substr(i, 1))->data.data(), tensor.data.data());
    }
  }
}

TEST(GgufSplit, APartWithoutTensorsIsFine) {
  const TemporaryFolder folder;
  auto plans = three_parts();
  plans[0].tensors.clear();
  for (PartPlan& plan : plans) plan.all_tensors = 3;
  write_parts(folder, plans);
  const auto file = File::open(part_path(folder, 1));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensor(0).name, "c");
  EXPECT_EQ(file->tensor(0).part, 1u);
  EXPECT_EQ(file->tensor("e")->part, 2u);
}

TEST(GgufSplit, AMissingPartIsNamed) {
  const TemporaryFolder folder;
  write_parts(folder, three_parts());
  std::filesystem::remove(part_path(folder, 2));
  EXPECT_EQ(refusal(part_path(folder, 3)),
            "part 2 of 3: " + part_path(folder, 2) + ": cannot be opened: No such file or directory");
}

TEST(GgufSplit, ADamagedPartIsNamed) {
  const TemporaryFolder folder;
  write_parts(folder, three_parts());
  std::filesystem::resize_file(part_path(folder, 3), 100);
  EXPECT_THAT(refusal(part_path(folder, 1)), HasSubstr("part 3 of 3: " + part_path(folder, 3) + ": metadata"));
}

TEST(GgufSplit, APartThatSaysItIsAnotherIsRefused) {
  const TemporaryFolder folder;
  auto plans = three_parts();
  plans[1].number = 2;
  write_parts(folder, plans);
  EXPECT_EQ(refusal(part_path(folder, 1)),
            part_path(folder, 2) + ": metadata 'split.no' at byte 24: wanted 1 for part 2 of 3, found u16 2");
}

TEST(GgufSplit, PartsThatDisagreeAboutTheirNumberAreRefused) {
  const TemporaryFolder folder;
  auto plans = three_parts();
  plans[2].count = 4;
  write_parts(folder, plans);
  EXPECT_THAT(
      refusal(part_path(folder, 1)),
      HasSubstr(part_path(folder, 3) + ": metadata 'split.count' at byte 46: wanted 3 for part 3 of 3, found u16 4"));
  EXPECT_THAT(refusal(part_path(folder, 3)),
              HasSubstr("is one of 4 parts (metadata 'split.count'), but is not named so"));
}

TEST(GgufSplit, AWrongNumberOfTensorsIsRefused) {
  const TemporaryFolder folder;
  auto plans = three_parts();
  plans[1].all_tensors = 6;
  write_parts(folder, plans);
  EXPECT_THAT(refusal(part_path(folder, 1)),
              HasSubstr(part_path(folder, 2) + ": metadata 'split.tensors.count' at byte 71: the parts have 5 tensors "
                                               "together, found i32 6"));
}

TEST(GgufSplit, ATensorInTwoPartsIsRefused) {
  const TemporaryFolder folder;
  auto plans = three_parts();
  plans[2].tensors[1] = "a";
  write_parts(folder, plans);
  EXPECT_THAT(refusal(part_path(folder, 2)), HasSubstr("tensor 'a' at byte 139: the same name stands at byte"));
  EXPECT_THAT(refusal(part_path(folder, 2)), HasSubstr(part_path(folder, 1) + " already"));
}

TEST(GgufSplit, APartUnderAnotherNameIsRefused) {
  const TemporaryFolder folder;
  write_parts(folder, three_parts());
  std::filesystem::rename(part_path(folder, 1), folder / "renamed.gguf");
  EXPECT_EQ(refusal(folder / "renamed.gguf"), folder / "renamed.gguf" +
                                                  ": is one of 3 parts (metadata 'split.count'), but is not named so: "
                                                  "NAME-00001-of-00003.gguf is expected");
}

TEST(GgufSplit, APartGivenAloneFromMemoryIsRefused) {
  const TemporaryFolder folder;
  write_parts(folder, three_parts());
  const auto bytes = testing::read_whole(part_path(folder, 1));
  const auto file = File::from_memory(bytes, "part");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().message, "part: is one of 3 parts (metadata 'split.count'), and was given alone");
}

TEST(GgufSplit, AnAbsurdNumberOfPartsIsRefused) {
  const auto image = testing::Image().header(0, 1).entry_u32("split.count", 4000000000u);
  const auto file = image.read();
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().message,
            "test.gguf: metadata 'split.count' at byte 24: wanted a number of parts, found u32 4000000000");
}

TEST(GgufSplit, ASingleFileMayBeNamedAsAPart) {
  const TemporaryFolder folder;
  Writer writer;
  writer.add("general.architecture", "llama");
  ASSERT_TRUE(writer.write(part_path(folder, 1)));
  EXPECT_EQ(refusal(part_path(folder, 1)), "was read");
}

TEST(GgufSplit, NamesOfPartsAreTakenApart) {
  const auto name = parse_split_name("/models/big-v2-00012-of-00345.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "/models/big-v2");
  EXPECT_EQ(name->number, 12u);
  EXPECT_EQ(name->count, 345u);
  EXPECT_EQ(split_path(name->prefix, 13, 345), "/models/big-v2-00013-of-00345.gguf");
  for (const char* not_one :
       {"model.gguf", "-of-00003.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-0001-of-00003.gguf",
        "m-00001-of-00003.bin", "m00001-of-00003.gguf", "m-+0001-of-00003.gguf"}) {
    EXPECT_FALSE(parse_split_name(not_one)) << not_one;
  }
}

}  // namespace
}  // namespace quire::gguf

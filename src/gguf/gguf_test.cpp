// Reading: what a File returns, and how values convert.
#include "quire/gguf/gguf.h"

#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/gguf/gguf_testing.h"
#include "quire/gguf/writer.h"

namespace quire::gguf {
namespace {

using ::testing::ElementsAre;
using testing::Image;

TEST(GgufReader, AFileWithNothingInItIsRead) {
  const Image image = Image().header(0, 0);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->alignment(), 32u);
  EXPECT_EQ(file->entry_count(), 0u);
  EXPECT_EQ(file->tensor_count(), 0u);
  EXPECT_EQ(file->path(), "test.gguf");
  ASSERT_EQ(file->parts().size(), 1u);
  EXPECT_EQ(file->parts()[0].bytes, image.bytes.size());
}

TEST(GgufReader, Version2IsRead) {
  const Image image = Image().header(0, 1, 2).entry_u32("a", 7);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 2u);
  EXPECT_EQ(file->get<std::uint32_t>("a"), 7u);
}

TEST(GgufReader, EveryValueTypeIsRead) {
  const Image image = Image()
                          .header(0, 13)
                          .string("u8")
                          .type(ValueType::u8)
                          .put<std::uint8_t>(200)
                          .string("i8")
                          .type(ValueType::i8)
                          .put<std::int8_t>(-100)
                          .string("u16")
                          .type(ValueType::u16)
                          .put<std::uint16_t>(60000)
                          .string("i16")
                          .type(ValueType::i16)
                          .put<std::int16_t>(-30000)
                          .string("u32")
                          .type(ValueType::u32)
                          .put<std::uint32_t>(4000000000)
                          .string("i32")
                          .type(ValueType::i32)
                          .put<std::int32_t>(-2000000000)
                          .string("f32")
                          .type(ValueType::f32)
                          .put<float>(1.5f)
                          .string("bool")
                          .type(ValueType::boolean)
                          .u8(1)
                          .string("string")
                          .type(ValueType::string)
                          .string("hello")
                          .array("array", ValueType::u16, 2)
                          .put<std::uint16_t>(1)
                          .put<std::uint16_t>(2)
                          .string("u64")
                          .type(ValueType::u64)
                          .put<std::uint64_t>(UINT64_MAX)
                          .string("i64")
                          .type(ValueType::i64)
                          .put<std::int64_t>(INT64_MIN)
                          .string("f64")
                          .type(ValueType::f64)
                          .put<double>(0.1);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->get<std::uint8_t>("u8"), 200);
  EXPECT_EQ(file->get<std::int8_t>("i8"), -100);
  EXPECT_EQ(file->get<std::uint16_t>("u16"), 60000);
  EXPECT_EQ(file->get<std::int16_t>("i16"), -30000);
  EXPECT_EQ(file->get<std::uint32_t>("u32"), 4000000000u);
  EXPECT_EQ(file->get<std::int32_t>("i32"), -2000000000);
  EXPECT_EQ(file->get<float>("f32"), 1.5f);
  EXPECT_EQ(file->get<bool>("bool"), true);
  EXPECT_EQ(file->get<std::string_view>("string"), "hello");
  EXPECT_EQ(file->get_array<std::uint16_t>("array")->to_vector(), (std::vector<std::uint16_t>{1, 2}));
  EXPECT_EQ(file->get<std::uint64_t>("u64"), UINT64_MAX);
  EXPECT_EQ(file->get<std::int64_t>("i64"), INT64_MIN);
  EXPECT_EQ(file->get<double>("f64"), 0.1);

  // In the order of the file, with their offsets.
  EXPECT_EQ(file->entry(0).key, "u8");
  EXPECT_EQ(file->entry(0).offset, 24u);
  EXPECT_EQ(file->entry(12).key, "f64");
  std::string described;
  for (std::size_t i = 0; i < file->entry_count(); ++i) described += file->entry(i).value.describe() + "; ";
  EXPECT_EQ(described,
            "u8 200; i8 -100; u16 60000; i16 -30000; u32 4000000000; i32 -2000000000; f32 1.5; bool true; "
            "string 'hello'; array of 2 u16; u64 18446744073709551615; i64 -9223372036854775808; f64 0.1; ");
}

TEST(GgufReader, AnIntegerOfAnyTypeIsReadAsAnyOtherThatItFits) {
  const Image image = Image()
                          .header(0, 3)
                          .string("small")
                          .type(ValueType::u64)
                          .u64(17)
                          .string("negative")
                          .type(ValueType::i8)
                          .put<std::int8_t>(-1)
                          .string("large")
                          .type(ValueType::u64)
                          .u64(UINT64_MAX);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->get<std::uint8_t>("small"), 17);
  EXPECT_EQ(file->get<std::int64_t>("small"), 17);
  EXPECT_EQ(file->get<std::int64_t>("negative"), -1);
  EXPECT_EQ(file->get<std::uint32_t>("negative").error().message,
            "test.gguf: metadata 'negative' at byte 49: wanted u32, found i8 -1");
  EXPECT_FALSE(file->get<std::int64_t>("large"));
  EXPECT_FALSE(file->get<std::uint32_t>("large"));
}

TEST(GgufReader, ABoolIsNoNumberAndAnIntegerIsNoFloat) {
  const Image image = Image()
                          .header(0, 3)
                          .string("bool")
                          .type(ValueType::boolean)
                          .u8(1)
                          .string("one")
                          .type(ValueType::u8)
                          .u8(1)
                          .string("float")
                          .type(ValueType::f32)
                          .put(1.0f);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_FALSE(file->get<std::uint32_t>("bool"));
  EXPECT_FALSE(file->get<bool>("one"));
  EXPECT_FALSE(file->get<float>("one"));
  EXPECT_FALSE(file->get<std::uint32_t>("float"));
}

TEST(GgufReader, ADoubleIsReadAsAFloatIfItStaysInRange) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Image image = Image()
                          .header(0, 4)
                          .string("third")
                          .type(ValueType::f64)
                          .put(1.0 / 3)
                          .string("huge")
                          .type(ValueType::f64)
                          .put(1e300)
                          .string("infinite")
                          .type(ValueType::f64)
                          .put(infinity)
                          .string("single")
                          .type(ValueType::f32)
                          .put(0.1f);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->get<float>("third"), static_cast<float>(1.0 / 3));
  EXPECT_FALSE(file->get<float>("huge"));
  EXPECT_EQ(file->get<float>("infinite"), std::numeric_limits<float>::infinity());
  EXPECT_EQ(file->get<double>("single"), static_cast<double>(0.1f));
}

TEST(GgufReader, AnAbsentKeyIsAnErrorThatNamesItOrTheFallback) {
  const Image image = Image().header(0, 1).entry_u32("there", 3);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->has("there"));
  EXPECT_FALSE(file->has("ther"));
  EXPECT_FALSE(file->has("theref"));
  EXPECT_EQ(file->get<std::uint32_t>("absent").error().message, "test.gguf: has no metadata 'absent'");
  EXPECT_EQ(file->get_array<float>("absent").error().message, "test.gguf: has no metadata 'absent'");
  EXPECT_EQ(file->get_or<std::uint32_t>("absent", 5), 5u);
  EXPECT_EQ(file->get_or<std::uint32_t>("there", 5), 3u);
  EXPECT_EQ(file->get_or<std::string_view>("there", "x").error().message,
            "test.gguf: metadata 'there' at byte 24: wanted string, found u32 3");
}

TEST(GgufReader, ArraysOfStringsAreWalkedInPlace) {
  const Image image = Image()
                          .header(0, 2)
                          .array("words", ValueType::string, 3)
                          .string("one")
                          .string("")
                          .string("three")
                          .entry_u32("z", 1);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  const auto words = file->get_array<std::string_view>("words");
  ASSERT_TRUE(words) << words.error().message;
  EXPECT_EQ(words->size(), 3u);
  EXPECT_THAT(words->to_vector(), ElementsAre("one", "", "three"));
  const char* begin = image.bytes.data();
  EXPECT_GE((*words->begin()).data(), begin);
  EXPECT_LT((*words->begin()).data(), begin + image.bytes.size());
  EXPECT_EQ(file->get<std::uint32_t>("z"), 1u);
  EXPECT_EQ(file->get_array<std::int32_t>("words").error().message,
            "test.gguf: metadata 'words' at byte 24: wanted array of i32, found array of 3 string");
  EXPECT_EQ(file->get<std::string_view>("words").error().message,
            "test.gguf: metadata 'words' at byte 24: wanted string, found array of 3 string");
}

TEST(GgufReader, ArraysOfNumbersConvertAsNumbersDo) {
  const Image image = Image()
                          .header(0, 4)
                          .array("u8", ValueType::u8, 3)
                          .u8(1)
                          .u8(2)
                          .u8(255)
                          .array("f64", ValueType::f64, 2)
                          .put(0.5)
                          .put(-2.0)
                          .array("bools", ValueType::boolean, 3)
                          .u8(0)
                          .u8(1)
                          .u8(1)
                          .array("wide", ValueType::i64, 2)
                          .put<std::int64_t>(1)
                          .put<std::int64_t>(-1);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  const auto numbers = file->get_array<std::int32_t>("u8");
  ASSERT_TRUE(numbers);
  EXPECT_EQ((*numbers)[2], 255);
  EXPECT_THAT(numbers->to_vector(), ElementsAre(1, 2, 255));
  EXPECT_FALSE(file->get_array<std::int8_t>("u8"));
  EXPECT_THAT(file->get_array<float>("f64")->to_vector(), ElementsAre(0.5f, -2.0f));
  EXPECT_THAT(file->get_array<bool>("bools")->to_vector(), ElementsAre(false, true, true));
  EXPECT_FALSE(file->get_array<std::uint8_t>("bools"));
  EXPECT_THAT(file->get_array<std::int32_t>("wide")->to_vector(), ElementsAre(1, -1));
  EXPECT_FALSE(file->get_array<std::uint32_t>("wide"));
}

TEST(GgufReader, AnEmptyArrayIsAnArrayOfAnything) {
  const Image image = Image().header(0, 1).array("none", ValueType::i32, 0);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  const auto words = file->get_array<std::string_view>("none");
  const auto numbers = file->get_array<float>("none");
  ASSERT_TRUE(words && numbers);
  EXPECT_TRUE(words->empty());
  EXPECT_TRUE(numbers->empty());
  for ([[maybe_unused]] const std::string_view word : *words) ADD_FAILURE();
  for ([[maybe_unused]] const float number : *numbers) ADD_FAILURE();
}

TEST(GgufReader, NestedArraysAreWalkedElementByElement) {
  const Image image = Image()
                          .header(0, 2)
                          .array("nested", ValueType::array, 3)
                          .type(ValueType::u8)
                          .u64(2)
                          .u8(1)
                          .u8(2)
                          .type(ValueType::string)
                          .u64(2)
                          .string("a")
                          .string("bc")
                          .type(ValueType::array)
                          .u64(1)
                          .type(ValueType::boolean)
                          .u64(1)
                          .u8(1)
                          .entry_u32("after", 9);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  const Value nested = file->find("nested")->value;
  std::vector<std::string> described;
  for (const Value element : nested.elements()) described.push_back(element.describe());
  EXPECT_THAT(described, ElementsAre("array of 2 u8", "array of 2 string", "array of 1 array"));
  auto element = nested.elements().begin();
  EXPECT_THAT((*element).as_array<std::uint32_t>()->to_vector(), ElementsAre(1u, 2u));
  ++element;
  EXPECT_THAT((*element).as_array<std::string_view>()->to_vector(), ElementsAre("a", "bc"));
  EXPECT_FALSE(nested.as_array<std::int32_t>());
  EXPECT_EQ(file->get<std::uint32_t>("after"), 9u);
}

TEST(GgufReader, TensorsAreViewsIntoTheImage) {
  Image image = Image()
                    .header(3, 0)
                    .tensor("a", {64, 3}, Type::Q8_0, 0)
                    .tensor("b", {5}, Type::I32, 224)
                    .tensor("c", {}, Type::F64, 256)
                    .data(264);
  image.bytes[image.bytes.size() - 264 + 224] = 42;
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensor_count(), 3u);
  const Tensor a = file->tensor(0);
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.type, Type::Q8_0);
  EXPECT_EQ(a.n_dims, 2u);
  EXPECT_THAT(a.shape, ElementsAre(64, 3, 1, 1));
  EXPECT_EQ(a.elements(), 192u);
  EXPECT_EQ(a.rows(), 3u);
  EXPECT_EQ(a.row_bytes(), 68u);
  EXPECT_EQ(a.data.size(), 204u);
  EXPECT_EQ(a.offset, file->parts()[0].data_begin);

  const auto b = file->tensor("b");
  ASSERT_TRUE(b);
  EXPECT_EQ(b->data.size(), 20u);
  EXPECT_EQ(std::to_integer<int>(b->data[0]), 42);
  EXPECT_EQ(reinterpret_cast<const char*>(b->data.data()), image.bytes.data() + b->offset);

  EXPECT_EQ(file->tensor("c")->elements(), 1u);
  EXPECT_FALSE(file->find_tensor("d"));
  EXPECT_EQ(file->tensor("d\n").error().message, "test.gguf: has no tensor 'd\\n'");
}

TEST(GgufReader, TensorsNeedNotLieInTheOrderOfTheDirectory) {
  const Image image =
      Image().header(2, 0).tensor("second", {8}, Type::F32, 32).tensor("first", {8}, Type::F32, 0).data(64);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensor("second")->offset, file->tensor("first")->offset + 32);
}

TEST(GgufReader, AnAlignmentOfTheFilesOwnIsUsed) {
  const Image image = Image()
                          .header(2, 1)
                          .entry_u32("general.alignment", 128)
                          .tensor("a", {1}, Type::F32, 0)
                          .tensor("b", {1}, Type::F32, 128)
                          .data(132, 128);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->alignment(), 128u);
  EXPECT_EQ(file->parts()[0].data_begin % 128, 0u);
  EXPECT_EQ(file->tensor("b")->offset % 128, 0u);
}

TEST(GgufReader, ViewsOutliveAMoveOfTheFile) {
  const testing::TemporaryFolder folder;
  Writer writer;
  writer.add("name", "a name");
  const std::vector<float> numbers = {1, 2, 3};
  writer.add_tensor("t", Type::F32, {3}, std::as_bytes(std::span(numbers)));
  ASSERT_TRUE(writer.write(folder / "m.gguf"));
  auto opened = File::open(folder / "m.gguf");
  ASSERT_TRUE(opened) << opened.error().message;
  const std::string_view name = *opened->get<std::string_view>("name");
  const Tensor tensor = *opened->tensor("t");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data.data()) % 32, 0u);
  File moved = std::move(*opened);
  File again = std::move(moved);
  EXPECT_EQ(name, "a name");
  EXPECT_EQ(name.data(), again.get<std::string_view>("name")->data());
  EXPECT_EQ(tensor.data.data(), again.tensor("t")->data.data());
}

// The largest published vocabularies have a quarter of a million tokens and as many merges.
TEST(GgufReader, ALargeVocabularyIsOpenedInTensOfMilliseconds) {
  constexpr std::size_t kTokens = 262144;
  std::vector<std::string> words;
  for (std::size_t i = 0; i < kTokens; ++i) words.push_back("token" + std::to_string(i));
  const std::vector<std::string_view> views(words.begin(), words.end());
  const std::vector<float> scores(kTokens, 1.0f);
  Writer writer;
  writer.add_array<std::string_view>("tokens", views);
  writer.add_array<std::string_view>("merges", views);
  writer.add_array<float>("scores", scores);
  const auto image = writer.to_memory();
  ASSERT_TRUE(image);
  const auto begin = std::chrono::steady_clock::now();
  const auto file = File::from_memory(*image, "large.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const auto tokens = file->get_array<std::string_view>("tokens")->to_vector();
  const auto floats = file->get_array<float>("scores")->to_vector();
  const auto taken = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(tokens.back(), "token262143");
  EXPECT_EQ(floats.size(), kTokens);
  // Measured: 5 ms in a release build. The limit leaves room for sanitizers and busy machines.
  EXPECT_LT(taken, std::chrono::milliseconds(500));
  RecordProperty("milliseconds", std::to_string(std::chrono::duration<double, std::milli>(taken).count()));
}

}  // namespace
}  // namespace quire::gguf

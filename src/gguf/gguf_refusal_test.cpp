// Refusals: each way in which a file can be wrong, and its error message.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quire/gguf/gguf.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::gguf {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::Image;
using ::testing::StartsWith;
using testing::TemporaryFolder;

std::string refusal(const Result<File>& file) { return file ? "was read" : file.error().message; }
std::string refusal(const Image& image) { return refusal(image.read()); }
std::string refusal(const std::string& path) { return refusal(File::open(path)); }

Image one_tensor(std::vector<std::uint64_t> shape, Type type, std::uint64_t offset, std::size_t data) {
  return Image().header(1, 0).tensor("t", std::move(shape), type, offset).data(data);
}

// The file itself.

TEST(GgufRefusal, AFileThatIsNotThereIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(refusal(folder / "absent.gguf"), folder / "absent.gguf" + ": cannot be opened: No such file or directory");
}

TEST(GgufRefusal, ADirectoryIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(refusal(folder.path().string()), folder.path().string() + ": is a directory, not a file");
}

TEST(GgufRefusal, APipeIsRefusedWithoutWaitingForAWriter) {
  const TemporaryFolder folder;
  const std::string path = folder / "pipe.gguf";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(refusal(path), StartsWith(path + ": is a pipe"));
}

TEST(GgufRefusal, ADeviceIsRefused) { EXPECT_EQ(refusal("/dev/null"), "/dev/null: is a device, not a file"); }

TEST(GgufRefusal, AnUnreadableFileIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "secret.gguf";
  testing::write_whole(path, std::as_bytes(std::span("GGUF")));
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  // Root may read everything, so become another user for a moment.
  const bool root = ::geteuid() == 0;
  ASSERT_EQ(root ? ::seteuid(65534) : 0, 0);
  const std::string why = refusal(path);
  ASSERT_EQ(root ? ::seteuid(0) : 0, 0);
  EXPECT_EQ(why, path + ": cannot be opened: Permission denied");
}

TEST(GgufRefusal, AnEmptyFileIsRefused) {
  const TemporaryFolder folder;
  testing::write_whole(folder / "empty.gguf", {});
  EXPECT_EQ(refusal(folder / "empty.gguf"), folder / "empty.gguf" + ": is empty");
  EXPECT_EQ(refusal(Image()), "test.gguf: is empty");
}

TEST(GgufRefusal, APathWithAControlCharacterIsShownInOneLine) {
  EXPECT_EQ(refusal(std::string("/no\nsuch\x1b[2J")),
            "/no\\nsuch\\x1b[2J: cannot be opened: No such file or directory");
  EXPECT_THAT(refusal(std::string("/dev/null\0x", 11)), EndsWith("it contains a NUL"));
}

// The header.

TEST(GgufRefusal, AnotherKindOfFileIsRefused) {
  EXPECT_EQ(refusal(Image().raw("PK\x03\x04 and more of it")),
            "test.gguf: header at byte 0: not a GGUF file: it begins with 'PK\\x03\\x04'");
  EXPECT_EQ(refusal(Image().raw("G")), "test.gguf: header at byte 0: not a GGUF file: it begins with 'G'");
  EXPECT_EQ(refusal(Image().raw("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")),
            "test.gguf: is a Git LFS pointer, not the model itself");
}

TEST(GgufRefusal, OtherVersionsAreRefusedByNumber) {
  EXPECT_EQ(refusal(Image().header(0, 0, 1)),
            "test.gguf: version at byte 4: GGUF version 1 is not supported, only 2 and 3 are");
  EXPECT_THAT(refusal(Image().header(0, 0, 0)), HasSubstr("GGUF version 0 is not supported"));
  EXPECT_THAT(refusal(Image().header(0, 0, 4)), HasSubstr("GGUF version 4 is not supported"));
}

TEST(GgufRefusal, ABigEndianFileIsCalledThat) {
  EXPECT_EQ(refusal(Image().header(0, 0, 0x03000000)),
            "test.gguf: version at byte 4: the file is big-endian, which is not supported");
  EXPECT_THAT(refusal(Image().raw("FUGG").u32(3).u64(0).u64(0)), HasSubstr("big-endian"));
}

TEST(GgufRefusal, EveryTruncationOfASmallFileIsRefused) {
  const Image whole = Image()
                          .header(1, 3)
                          .entry_u32("a", 1)
                          .string("s")
                          .type(ValueType::string)
                          .string("text")
                          .array("l", ValueType::string, 2)
                          .string("x")
                          .string("yz")
                          .tensor("t", {8}, Type::F32, 0)
                          .data(32);
  ASSERT_EQ(refusal(whole), "was read");
  for (std::size_t size = 0; size < whole.bytes.size(); ++size) {
    Image cut = whole;
    cut.bytes.resize(size);
    const std::string why = refusal(cut);
    EXPECT_THAT(why, StartsWith("test.gguf: ")) << size;
    EXPECT_NE(why, "was read") << size;
  }
}

TEST(GgufRefusal, CountsLargerThanTheFileAreRefused) {
  EXPECT_EQ(
      refusal(Image().header(0, UINT64_MAX)),
      "test.gguf: header at byte 8: claims 18446744073709551615 metadata entries, more than fit into the 0 bytes left");
  EXPECT_THAT(refusal(Image().header(UINT64_MAX, 0)), HasSubstr("claims 18446744073709551615 tensors"));
  EXPECT_THAT(refusal(Image().header(0, 2).entry_u32("a", 1)), HasSubstr("claims 2 metadata entries"));
  // The metadata leave no room for the tensors.
  EXPECT_THAT(
      refusal(Image().header(1, 1).string("key").type(ValueType::string).string("enough for a tensor, were it one")),
      HasSubstr("claims 1 tensors, more than fit into the 0 bytes left"));
}

// Metadata.

TEST(GgufRefusal, AStringLongerThanTheFileIsRefusedByName) {
  const Image image = Image().header(0, 1).string("general.name").type(ValueType::string).u64(1000).raw("short");
  EXPECT_EQ(refusal(image),
            "test.gguf: metadata 'general.name' at byte 48: a string of 1000 bytes, but only 5 are left in the file");
  EXPECT_THAT(refusal(Image().header(0, 1).string("k").type(ValueType::string).u64(UINT64_MAX).raw("x")),
              HasSubstr("a string of 18446744073709551615 bytes"));
  EXPECT_THAT(refusal(Image().header(0, 1).string("k").type(ValueType::string).u64(UINT64_MAX - 7).raw("x")),
              HasSubstr("only 1 are left"));
}

TEST(GgufRefusal, KeysAreNeitherEmptyNorEndless) {
  EXPECT_EQ(refusal(Image().header(0, 1).entry_u32("", 1)),
            "test.gguf: metadata entry 1 of 1 at byte 24: the name is empty");
  EXPECT_EQ(
      refusal(Image().header(0, 1).u64(UINT64_MAX).raw("a little more than nothing")),
      "test.gguf: metadata entry 1 of 1 at byte 24: a name of 18446744073709551615 bytes, but only 26 are left in "
      "the file");
  EXPECT_EQ(refusal(Image().header(0, 1).entry_u32(std::string(65535, 'k'), 1)), "was read");
  EXPECT_THAT(refusal(Image().header(0, 1).entry_u32(std::string(65536, 'k'), 1)),
              HasSubstr("a name of 65536 bytes; the longest allowed is 65535"));
}

TEST(GgufRefusal, AKeyThatCouldMoveTheCursorIsEscapedAndCut) {
  const std::string why = refusal(Image().header(0, 1).string("a\n\x1b[2J\xff" + std::string(500, 'x')).u32(99).u8(0));
  EXPECT_THAT(why, StartsWith("test.gguf: metadata 'a\\n\\x1b[2J\\xffxxx"));
  EXPECT_THAT(why, EndsWith("xxx...' at byte 539: unknown value type 99"));
  EXPECT_LT(why.size(), 200u);
}

TEST(GgufRefusal, UnknownValueTypesAreRefused) {
  EXPECT_EQ(refusal(Image().header(0, 1).string("k").u32(13).u64(0)),
            "test.gguf: metadata 'k' at byte 33: unknown value type 13");
  EXPECT_EQ(refusal(Image().header(0, 1).string("k").type(ValueType::array).u32(13).u64(0)),
            "test.gguf: metadata 'k' at byte 37: an array of unknown value type 13");
}

TEST(GgufRefusal, ABoolIsZeroOrOne) {
  EXPECT_EQ(refusal(Image().header(0, 1).string("k").type(ValueType::boolean).u8(2)),
            "test.gguf: metadata 'k' at byte 37: a bool is 0 or 1, not 2");
  EXPECT_THAT(refusal(Image().header(0, 1).array("k", ValueType::boolean, 3).u8(1).u8(0).u8(255)),
              HasSubstr("a bool is 0 or 1, not 255"));
}

TEST(GgufRefusal, AnArrayLongerThanTheFileIsRefused) {
  EXPECT_EQ(refusal(Image().header(0, 1).array("k", ValueType::u32, 3).u32(1).u32(2)),
            "test.gguf: metadata 'k' at byte 37: an array of 3 u32, but only 8 bytes are left in the file");
  // 2^62 times 4 bytes is 0 in 64 bits.
  EXPECT_THAT(refusal(Image().header(0, 1).array("k", ValueType::u32, std::uint64_t{1} << 62).u32(1)),
              HasSubstr("an array of 4611686018427387904 u32"));
  EXPECT_THAT(refusal(Image().header(0, 1).array("k", ValueType::string, UINT64_MAX).u64(0)),
              HasSubstr("an array of 18446744073709551615 string"));
  EXPECT_THAT(refusal(Image().header(0, 1).array("k", ValueType::array, UINT64_MAX).u64(0).u64(0)),
              HasSubstr("an array of 18446744073709551615 array"));
  EXPECT_THAT(refusal(Image().header(0, 1).array("k", ValueType::string, 2).string("a long enough string").u32(0)),
              HasSubstr("the file ends here"));
}

TEST(GgufRefusal, ArraysNestedTooDeepAreRefused) {
  const auto nested = [](int depth) {
    Image image = Image().header(0, 1).string("k").type(ValueType::array);
    for (int i = 1; i < depth; ++i) image.type(ValueType::array).u64(1);
    return image.type(ValueType::u8).u64(1).u8(1);
  };
  EXPECT_EQ(refusal(nested(8)), "was read");
  EXPECT_THAT(refusal(nested(9)), HasSubstr("metadata 'k' at byte 133: arrays nested more than 8 deep"));
  EXPECT_THAT(refusal(nested(100000)), HasSubstr("arrays nested more than 8 deep"));
}

TEST(GgufRefusal, AKeyThatOccursTwiceIsRefused) {
  EXPECT_EQ(refusal(Image().header(0, 3).entry_u32("k", 1).entry_u32("a", 2).entry_u32("k", 1)),
            "test.gguf: metadata 'k' at byte 58: the same key stands at byte 24 already");
}

TEST(GgufRefusal, AnAlignmentIsASanePowerOfTwo) {
  for (const std::uint32_t alignment : {8u, 16u, 32u, 4096u, 1u << 20}) {
    EXPECT_EQ(refusal(Image().header(0, 1).entry_u32("general.alignment", alignment)), "was read") << alignment;
  }
  for (const std::uint32_t alignment : {0u, 1u, 4u, 12u, 24u, 33u, 1u << 21, 1u << 31}) {
    EXPECT_THAT(
        refusal(Image().header(0, 1).entry_u32("general.alignment", alignment)),
        HasSubstr("metadata 'general.alignment' at byte 24: wanted a power of two from 8 to 1048576, found u32"))
        << alignment;
  }
  EXPECT_THAT(refusal(Image().header(0, 1).string("general.alignment").type(ValueType::f32).put(32.0f)),
              EndsWith("found f32 32"));
}

// Tensors.

TEST(GgufRefusal, ATensorsNameIsNeitherEmptyNorEndless) {
  EXPECT_EQ(refusal(Image().header(1, 0).tensor("", {1, 1}, Type::F32, 0).data(32)),
            "test.gguf: tensor 1 of 1 at byte 24: the name is empty");
  EXPECT_THAT(refusal(Image().header(1, 0).u64(std::uint64_t{1} << 63).raw("a name that is not so very long")),
              HasSubstr("tensor 1 of 1 at byte 24: a name of 9223372036854775808 bytes"));
}

TEST(GgufRefusal, ATensorHasAtMostFourDimensions) {
  EXPECT_EQ(refusal(one_tensor({1, 1, 1, 1}, Type::F32, 0, 4)), "was read");
  EXPECT_EQ(refusal(one_tensor({1, 1, 1, 1, 1}, Type::F32, 0, 4)),
            "test.gguf: tensor 't' at byte 33: 5 dimensions; at most 4 are allowed");
  EXPECT_THAT(refusal(Image().header(1, 0).string("t").u32(UINT32_MAX).u64(0).u64(0)),
              HasSubstr("4294967295 dimensions"));
}

TEST(GgufRefusal, ADimensionIsNotZero) {
  EXPECT_EQ(refusal(one_tensor({32, 0}, Type::F32, 0, 64)), "test.gguf: tensor 't' at byte 45: dimension 1 is 0");
}

TEST(GgufRefusal, ElementsAndBytesThatOverflowAreRefused) {
  EXPECT_THAT(refusal(one_tensor({1ULL << 32, 1ULL << 32}, Type::F32, 0, 64)),
              HasSubstr("tensor 't' at byte 45: the number of elements overflows 64 bits"));
  EXPECT_THAT(refusal(one_tensor({UINT64_MAX, 2, 1, 1}, Type::F32, 0, 64)), HasSubstr("elements overflows"));
  EXPECT_THAT(refusal(one_tensor({1ULL << 62}, Type::F32, 0, 64)),
              HasSubstr("tensor 't' at byte 24: the size of 4611686018427387904 elements overflows 64 bits"));
}

TEST(GgufRefusal, TypesThatAreUnknownOrWithdrawnAreRefused) {
  EXPECT_EQ(refusal(one_tensor({32}, static_cast<Type>(77), 0, 64)),
            "test.gguf: tensor 't' at byte 45: unknown tensor type 77");
  EXPECT_EQ(refusal(one_tensor({32}, static_cast<Type>(31), 0, 64)),
            "test.gguf: tensor 't' at byte 45: tensor type Q4_0_4_4 (number 31) is not supported");
}

TEST(GgufRefusal, ARowIsWholeBlocks) {
  EXPECT_EQ(refusal(one_tensor({128, 2}, Type::Q4_K, 0, 1024)),
            "test.gguf: tensor 't' at byte 24: rows of 128 elements are not whole blocks of Q4_K (256 elements each)");
  EXPECT_THAT(refusal(one_tensor({}, Type::Q8_0, 0, 1024)), HasSubstr("rows of 1 elements are not whole blocks"));
}

TEST(GgufRefusal, AnOffsetThatIsNotAlignedIsRefused) {
  EXPECT_EQ(refusal(one_tensor({4}, Type::F32, 8, 64)),
            "test.gguf: tensor 't' at byte 24: offset 8 is not a multiple of the alignment 32");
}

TEST(GgufRefusal, DataBehindTheEndOfTheFileAreRefused) {
  EXPECT_EQ(refusal(one_tensor({16}, Type::F32, 32, 96)), "was read");
  EXPECT_EQ(
      refusal(one_tensor({16}, Type::F32, 32, 95)),
      "test.gguf: tensor 't' at byte 24: its 64 bytes at offset 32 of the data (from byte 64) reach behind the end of "
      "the file (159 bytes); it is cut short or damaged");
  EXPECT_THAT(refusal(one_tensor({16}, Type::F32, UINT64_MAX - 31, 64)), HasSubstr("reach behind the end"));
  EXPECT_THAT(refusal(one_tensor({16}, Type::F32, 128, 64)), HasSubstr("reach behind the end"));
}

TEST(GgufRefusal, TensorsThatOverlapAreRefused) {
  EXPECT_EQ(refusal(Image().header(2, 0).tensor("a", {16}, Type::F32, 0).tensor("b", {4}, Type::F32, 32).data(64)),
            "test.gguf: tensor 'b' at byte 57: its data overlap those of tensor 'a'");
  EXPECT_THAT(refusal(Image().header(2, 0).tensor("a", {4}, Type::F32, 32).tensor("b", {16}, Type::F32, 0).data(64)),
              HasSubstr("overlap"));
  EXPECT_THAT(refusal(Image().header(2, 0).tensor("a", {4}, Type::F32, 0).tensor("b", {4}, Type::F32, 0).data(64)),
              HasSubstr("overlap"));
  // A small tensor within a large one, with another between them in the directory.
  EXPECT_THAT(refusal(Image()
                          .header(3, 0)
                          .tensor("large", {64}, Type::F32, 0)
                          .tensor("after", {8}, Type::F32, 256)
                          .tensor("within", {8}, Type::F32, 64)
                          .data(288)),
              HasSubstr("tensor 'within' at byte 98: its data overlap those of tensor 'large'"));
}

TEST(GgufRefusal, ATensorNameThatOccursTwiceIsRefused) {
  EXPECT_EQ(refusal(Image().header(2, 0).tensor("a", {8}, Type::F32, 0).tensor("a", {8}, Type::F32, 32).data(64)),
            "test.gguf: tensor 'a' at byte 57: the same name stands at byte 24 of test.gguf already");
}

}  // namespace
}  // namespace quire::gguf

// Writing, and reading back.
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "quire/gguf/gguf.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/gguf/writer.h"

namespace quire::gguf {
namespace {

using ::testing::ElementsAre;
using testing::TemporaryFolder;

std::string failure(const Result<void>& done) { return done ? "was written" : done.error().message; }

template <typename T>
void add_with_array(Writer& writer, const std::string& name, T value) {
  const std::array<T, 3> values = {value, T{}, value};
  writer.add(name, value);
  writer.add_array<T>(name + "s", values);
}

template <typename T>
void expect_with_array(const File& file, const std::string& name, T value, ValueType type) {
  ASSERT_TRUE(file.has(name)) << name;
  EXPECT_EQ(file.find(name)->value.type(), type) << name;
  EXPECT_EQ(file.get<T>(name), value) << name;
  const auto array = file.get_array<T>(name + "s");
  ASSERT_TRUE(array) << array.error().message;
  EXPECT_EQ(file.find(name + "s")->value.element_type(), type) << name;
  EXPECT_THAT(array->to_vector(), ElementsAre(value, T{}, value)) << name;
}

TEST(GgufWriter, EveryTypeOfMetadataComesBack) {
  Writer writer;
  add_with_array<std::uint8_t>(writer, "u8", 255);
  add_with_array<std::int8_t>(writer, "i8", -128);
  add_with_array<std::uint16_t>(writer, "u16", 65535);
  add_with_array<std::int16_t>(writer, "i16", -32768);
  add_with_array<std::uint32_t>(writer, "u32", UINT32_MAX);
  add_with_array<std::int32_t>(writer, "i32", INT32_MIN);
  add_with_array<std::uint64_t>(writer, "u64", UINT64_MAX);
  add_with_array<std::int64_t>(writer, "i64", INT64_MIN);
  add_with_array<float>(writer, "f32", std::numeric_limits<float>::denorm_min());
  add_with_array<double>(writer, "f64", 1e300);
  add_with_array<bool>(writer, "bool", true);
  add_with_array<std::string_view>(writer, "string", "w\xC3\xB6rd with a \0 in it");
  writer.add_array<float>("none", {});
  const auto image = writer.to_memory();
  ASSERT_TRUE(image) << image.error().message;
  const auto file = File::from_memory(*image, "written");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->entry_count(), 25u);
  expect_with_array<std::uint8_t>(*file, "u8", 255, ValueType::u8);
  expect_with_array<std::int8_t>(*file, "i8", -128, ValueType::i8);
  expect_with_array<std::uint16_t>(*file, "u16", 65535, ValueType::u16);
  expect_with_array<std::int16_t>(*file, "i16", -32768, ValueType::i16);
  expect_with_array<std::uint32_t>(*file, "u32", UINT32_MAX, ValueType::u32);
  expect_with_array<std::int32_t>(*file, "i32", INT32_MIN, ValueType::i32);
  expect_with_array<std::uint64_t>(*file, "u64", UINT64_MAX, ValueType::u64);
  expect_with_array<std::int64_t>(*file, "i64", INT64_MIN, ValueType::i64);
  expect_with_array<float>(*file, "f32", std::numeric_limits<float>::denorm_min(), ValueType::f32);
  expect_with_array<double>(*file, "f64", 1e300, ValueType::f64);
  expect_with_array<bool>(*file, "bool", true, ValueType::boolean);
  expect_with_array<std::string_view>(*file, "string", "w\xC3\xB6rd with a \0 in it", ValueType::string);
  EXPECT_TRUE(file->get_array<float>("none")->empty());
}

TEST(GgufWriter, TensorsComeBackAligned) {
  std::vector<float> floats = {1, 2, 3, 4, 5};
  std::vector<std::byte> blocks(2 * 34, std::byte{7});
  const double one = 1;
  for (const std::uint32_t alignment : {8u, 32u, 64u, 4096u}) {
    Writer writer;
    if (alignment != 32) writer.add("general.alignment", alignment);
    writer.add_tensor("floats", Type::F32, {5}, std::as_bytes(std::span(floats)));
    writer.add_tensor("blocks", Type::Q8_0, {32, 1, 2}, blocks);
    writer.add_tensor("scalar", Type::F64, {}, std::as_bytes(std::span(&one, 1)));
    const auto image = writer.to_memory();
    ASSERT_TRUE(image) << image.error().message;
    const auto file = File::from_memory(*image, "written");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->alignment(), alignment);
    ASSERT_EQ(file->tensor_count(), 3u);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(file->tensor(i).offset % alignment, 0u);
    EXPECT_EQ(std::memcmp(file->tensor("floats")->data.data(), floats.data(), 20), 0);
    EXPECT_THAT(file->tensor("blocks")->shape, ElementsAre(32, 1, 2, 1));
    EXPECT_EQ(file->tensor("blocks")->n_dims, 3u);
    EXPECT_EQ(std::memcmp(file->tensor("blocks")->data.data(), blocks.data(), blocks.size()), 0);
    EXPECT_EQ(detail::load<double>(file->tensor("scalar")->data.data()), 1);
  }
}

TEST(GgufWriter, ATensorIsWrittenInPiecesByAFunction) {
  const TemporaryFolder folder;
  Writer writer;
  writer.add_tensor("t", Type::I32, {1000, 3}, [](Sink& sink) -> Result<void> {
    for (std::int32_t i = 0; i < 3000; ++i) {
      if (auto ok = sink.write(std::as_bytes(std::span(&i, 1))); !ok) return ok;
    }
    return {};
  });
  ASSERT_EQ(failure(writer.write(folder / "m.gguf")), "was written");
  const auto file = File::open(folder / "m.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(detail::load<std::int32_t>(file->tensor("t")->data.data() + 4 * 2999), 2999);
}

TEST(GgufWriter, ADemoModelCopiedEntryByEntryIsTheSameFile) {
  const TemporaryFolder folder;
  for (const auto& path : testing::files_with_extension(QUIRE_SOURCE_DIR "/models", ".gguf")) {
    const auto file = File::open(path);
    ASSERT_TRUE(file) << file.error().message;
    Writer writer;
    for (std::size_t i = 0; i < file->entry_count(); ++i) writer.add_value(file->entry(i).key, file->entry(i).value);
    for (std::size_t i = 0; i < file->tensor_count(); ++i) {
      const Tensor tensor = file->tensor(i);
      writer.add_tensor(tensor.name, tensor.type, {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                        tensor.data);
    }
    ASSERT_EQ(failure(writer.write(folder / "copy.gguf")), "was written");
    EXPECT_EQ(testing::read_whole(folder / "copy.gguf"), testing::read_whole(path)) << path;
  }
}

TEST(GgufWriter, NestedArraysOfAnotherFileAreCopied) {
  const testing::Image image = testing::Image()
                                   .header(0, 1)
                                   .array("nested", ValueType::array, 2)
                                   .type(ValueType::string)
                                   .u64(1)
                                   .string("a")
                                   .type(ValueType::u8)
                                   .u64(2)
                                   .u8(1)
                                   .u8(2);
  const auto file = image.read();
  ASSERT_TRUE(file) << file.error().message;
  Writer writer;
  writer.add_value("nested", file->find("nested")->value);
  const auto written = writer.to_memory();
  ASSERT_TRUE(written);
  // The same, except for the padding at the end, where data would begin.
  EXPECT_EQ(std::memcmp(written->data(), image.bytes.data(), image.bytes.size()), 0);
}

TEST(GgufWriter, MistakesAreReturnedByWriteAndTheFirstCounts) {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes(36);
  const auto mistake = [&](const auto& make) {
    Writer writer;
    make(writer);
    writer.add("afterwards", 1);
    EXPECT_FALSE(writer.to_memory());
    const auto done = writer.write(folder / "m.gguf");
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    return failure(done).substr((folder / "m.gguf: ").size());
  };
  EXPECT_EQ(mistake([](Writer& w) { w.add("k", 1), w.add("k", 2); }), "metadata 'k': was added before");
  EXPECT_EQ(mistake([](Writer& w) { w.add("", "x"), w.add("", "x"); }), "metadata '': a key has 1 to 65535 bytes");
  EXPECT_EQ(mistake([](Writer& w) { w.add("general.alignment", 24); }),
            "metadata 'general.alignment': i32 24 is not an alignment");
  EXPECT_EQ(mistake([&](Writer& w) { w.add_tensor("t", Type::F32, {10}, bytes); }),
            "tensor 't': 36 bytes of data, where type and shape need 40");
  EXPECT_EQ(mistake([&](Writer& w) {
              w.add_tensor("t", Type::Q4_0, {16, 2}, bytes);
            }),
            "tensor 't': rows of 16 elements are not whole blocks of Q4_0");
  EXPECT_EQ(mistake([&](Writer& w) {
              w.add_tensor("t", Type::F32, {3, 0}, bytes);
            }),
            "tensor 't': has a dimension that is 0, or too many elements");
  EXPECT_EQ(mistake([&](Writer& w) {
              w.add_tensor("t", Type::F32, {1ULL << 40, 1ULL << 40}, bytes);
            }),
            "tensor 't': has a dimension that is 0, or too many elements");
  EXPECT_EQ(mistake([&](Writer& w) { w.add_tensor("t", Type::F32, {1ULL << 61}, bytes); }),
            "tensor 't': is too large for a file together with those before");
  EXPECT_EQ(mistake([&](Writer& w) {
              w.add_tensor("t", Type::F32, {1, 1, 1, 1, 9}, bytes);
            }),
            "tensor 't': has more than 4 dimensions");
  EXPECT_EQ(mistake([&](Writer& w) { w.add_tensor("t", static_cast<Type>(31), {32}, bytes); }),
            "tensor 't': has a type that files cannot have");
  EXPECT_EQ(mistake([&](Writer& w) { w.add_tensor("", Type::F32, {9}, bytes); }),
            "tensor '': a name has 1 to 65535 bytes");
  EXPECT_EQ(mistake([&](Writer& w) {
              w.add_tensor("t", Type::F32, {9}, bytes);
              w.add_tensor("t", Type::F32, {9}, bytes);
            }),
            "tensor 't': was added before");
}

TEST(GgufWriter, AFunctionThatWritesTooLittleOrTooMuchOrFailsIsAnError) {
  const TemporaryFolder folder;
  const std::vector<std::byte> bytes(100);
  const auto written_by = [&](Writer::Fill fill) {
    Writer writer;
    writer.add_tensor("t", Type::I8, {50}, std::move(fill));
    const auto done = writer.write(folder / "m.gguf");
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
    return failure(done).substr((folder / "m.gguf: ").size());
  };
  EXPECT_EQ(written_by([&](Sink& sink) { return sink.write(std::span(bytes).first(30)); }),
            "tensor 't': 20 of its 50 bytes were not written");
  EXPECT_EQ(written_by([&](Sink& sink) { return sink.write(bytes); }), "tensor 't': 50 bytes more than it has");
  EXPECT_EQ(written_by([](Sink&) -> Result<void> { return fail("no such row"); }), "tensor 't': no such row");
}

TEST(GgufWriter, AFileThatCannotBeCreatedIsRefusedByName) {
  const TemporaryFolder folder;
  Writer writer;
  EXPECT_EQ(failure(writer.write(folder / "no/such/m.gguf")),
            folder / "no/such/m.gguf" + ": cannot be created: No such file or directory");
  EXPECT_EQ(failure(writer.write("/dev/full")), "/dev/full: is there already and is not a regular file");
  EXPECT_EQ(failure(writer.write(folder.path().string())),
            folder.path().string() + ": is there already and is not a regular file");
}

// A limit on the size of files stands in for a full disk: the kernel refuses the write either way.
class SmallFiles {
 public:
  SmallFiles() {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &previous_), 0);
    const rlimit small = {.rlim_cur = 10000, .rlim_max = previous_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_ = {};
  void (*previous_handler_)(int) = nullptr;
};

TEST(GgufWriter, AFullDiskIsAnErrorThatNamesTheFileAndLeavesTheOldOneAlone) {
  const TemporaryFolder folder;
  const std::string path = folder / "m.gguf";
  testing::write_whole(path, std::as_bytes(std::span("precious")));
  const std::vector<std::byte> piece(1 << 16);
  for (const std::uint64_t megabytes : {1, 20}) {
    Writer writer;
    writer.add_tensor("t", Type::I8, {megabytes << 20}, [&](Sink& sink) -> Result<void> {
      // Ignores the result of write(), as a careless caller might.
      for (std::uint64_t i = 0; i < megabytes * 16; ++i) static_cast<void>(sink.write(piece));
      return {};
    });
    std::string why;
    {
      const SmallFiles limit;
      why = failure(writer.write(path));
    }
    EXPECT_EQ(why, path + ": cannot be written: File too large");
    EXPECT_EQ(testing::read_whole(path).size(), sizeof("precious"));
    EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  }
}

TEST(GgufWriter, AFileIsReplacedByANewOne) {
  const TemporaryFolder folder;
  const std::string path = folder / "m.gguf";
  for (const std::uint32_t n : {1u, 2u}) {
    Writer writer;
    writer.add("n", n);
    ASSERT_EQ(failure(writer.write(path)), "was written");
    EXPECT_EQ(File::open(path)->get<std::uint32_t>("n"), n);
  }
}

}  // namespace
}  // namespace quire::gguf

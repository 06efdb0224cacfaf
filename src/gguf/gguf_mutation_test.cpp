// Many hostile files: mutated copies of real ones, and files made to cost as much memory as possible. Each is either
// read or refused with one line. Reading takes no more memory than twice the file (gguf.h promises once).
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/base/counted_heap_testing.h"
#include "quire/gguf/gguf.h"
#include "quire/gguf/gguf_testing.h"

namespace quire::gguf {
namespace {

using quire::testing::live_bytes;
using quire::testing::peak_bytes;

using testing::Image;

// Even a file of a few bytes costs an error message and the File itself.
constexpr std::size_t kSlack = 16 << 10;

struct Outcome {
  bool read = false;
  std::size_t peak = 0;  // bytes allocated at once while reading
};

// Reads an image and everything in it, as a user would.
Outcome try_to_read(std::span<const std::byte> image) {
  Outcome outcome;
  const std::size_t before = live_bytes;
  peak_bytes = before;
  {
    const auto file = File::from_memory(image, "mutant");
    outcome.peak = peak_bytes - before;
    outcome.read = file.has_value();
    if (file) {
      testing::walk(*file);
    } else {
      const std::string& why = file.error().message;
      EXPECT_TRUE(why.starts_with("mutant: ")) << why;
      EXPECT_GT(why.size(), std::strlen("mutant: "));
      EXPECT_LT(why.size(), 1000u);
      EXPECT_TRUE(std::ranges::all_of(why, [](char c) { return c >= 0x20 && c < 0x7F; })) << why;
    }
  }
  EXPECT_EQ(live_bytes, before);
  return outcome;
}

class Mutations : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int kPerKind = 2500;

  void SetUp() override {
    original_ = testing::read_whole(GetParam());
    const auto file = File::from_memory(original_, "original");
    ASSERT_TRUE(file) << file.error().message;
    header_ = file->parts()[0].data_begin;
    // Names, counts, lengths, types and offsets are before and after the vocabulary, which is most of the header. So
    // half of the mutations go to the directory of tensors.
    for (std::size_t i = 0; i < file->entry_count(); ++i) {
      places_.push_back(file->entry(i).offset);
      places_.push_back(file->entry(i).offset + 8 + file->entry(i).key.size());
    }
    directory_ = header_ - std::min<std::size_t>(header_, file->tensor_count() * 64);
    image_ = original_;
  }

  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_); }

  std::size_t place() {
    switch (below(3)) {
      case 0: return below(header_);
      case 1: return directory_ + below(header_ - directory_);
      default: return std::min(header_ - 1, places_[below(places_.size())] + below(16));
    }
  }

  std::uint64_t interesting_number() {
    constexpr std::uint64_t kNumbers[] = {0,          1,          7,          8,          0x7F,
                                          0xFF,       0x7FFF,     0xFFFF,     0x10000,    0x7FFFFFFF,
                                          0x80000000, 0xFFFFFFFF, 1ULL << 32, 1ULL << 40, 1ULL << 60,
                                          1ULL << 61, 1ULL << 62, 1ULL << 63, ~7ULL,      ~0ULL};
    switch (below(3)) {
      case 0: return image_.size() - std::min(image_.size(), below(64));
      case 1: return kNumbers[below(std::size(kNumbers))] + below(3) - 1;
      default: return std::uint64_t{1} << below(64);
    }
  }

  void overwrite(std::size_t at, const void* bytes, std::size_t count) {
    if (at < image_.size()) std::memcpy(image_.data() + at, bytes, std::min(count, image_.size() - at));
  }

  void expect_survived(std::span<const std::byte> image) {
    const Outcome outcome = try_to_read(image);
    (outcome.read ? read_ : refused_) += 1;
    EXPECT_LE(outcome.peak, 2 * image.size() + kSlack);
  }

  // Only restores the header. For mutations that keep its size.
  void restore() { std::memcpy(image_.data(), original_.data(), header_); }

  std::vector<std::byte> original_, image_;
  std::size_t header_ = 0, directory_ = 0;
  std::vector<std::size_t> places_;
  std::mt19937_64 random_{20240726};
  int read_ = 0, refused_ = 0;
};

TEST_P(Mutations, TruncatedFilesAreRefused) {
  for (int i = 0; i < kPerKind; ++i) {
    // In a copy, so that the address sanitizer detects reads beyond its end.
    expect_survived(
        std::vector(original_.begin(), original_.begin() + static_cast<std::ptrdiff_t>(below(header_ + 1))));
  }
  for (int i = 0; i < kPerKind / 10; ++i) {
    // Within the data, before the end of the last tensor.
    expect_survived(std::span(original_).first(header_ + below(original_.size() - header_ - 32)));
  }
  EXPECT_EQ(read_, 0);
}

TEST_P(Mutations, FilesWithFlippedBitsAreReadOrRefused) {
  for (int i = 0; i < kPerKind; ++i) {
    for (std::size_t flips = 1 + below(4); flips > 0; --flips) image_[place()] ^= static_cast<std::byte>(1 << below(8));
    expect_survived(image_);
    restore();
  }
  EXPECT_GT(read_, 0);
  EXPECT_GT(refused_, 0);
}

TEST_P(Mutations, FilesWithOtherNumbersAreReadOrRefused) {
  for (int i = 0; i < kPerKind; ++i) {
    const std::uint64_t number = interesting_number();
    overwrite(place(), &number, below(2) == 0 ? 4 : 8);
    expect_survived(image_);
    restore();
  }
  EXPECT_GT(refused_, 0);
}

TEST_P(Mutations, FilesWithPiecesCopiedElsewhereAreReadOrRefused) {
  for (int i = 0; i < kPerKind; ++i) {
    const std::size_t from = place(), length = std::min(1 + below(200), header_ - from);
    overwrite(place(), original_.data() + from, length);
    expect_survived(image_);
    std::memcpy(image_.data(), original_.data(), header_ + 200);
  }
  EXPECT_GT(refused_, 0);
}

TEST_P(Mutations, FilesWithBytesInsertedOrRemovedAreReadOrRefused) {
  // The data move too, which takes longer. So there are fewer of these.
  for (int i = 0; i < kPerKind / 5; ++i) {
    const std::size_t at = place(), length = 1 + below(40);
    if (below(2) == 0) {
      image_.erase(image_.begin() + static_cast<std::ptrdiff_t>(at),
                   image_.begin() + static_cast<std::ptrdiff_t>(at + length));
    } else {
      std::vector<std::byte> inserted(length);
      for (std::byte& byte : inserted) byte = static_cast<std::byte>(below(256));
      image_.insert(image_.begin() + static_cast<std::ptrdiff_t>(at), inserted.begin(), inserted.end());
    }
    expect_survived(image_);
    image_ = original_;
  }
  EXPECT_GT(refused_, 0);
}

std::vector<std::string> demo_models() {
  std::vector<std::string> paths;
  for (const auto& path : testing::files_with_extension(QUIRE_SOURCE_DIR "/models", ".gguf"))
    paths.push_back(path.string());
  return paths;
}

INSTANTIATE_TEST_SUITE_P(DemoModels, Mutations, ::testing::ValuesIn(demo_models()), [](const auto& test) {
  std::string name = std::filesystem::path(test.param).stem().string();
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

// The densest valid files, a megabyte or more each.
class MemoryBound : public ::testing::Test {
 protected:
  static void expect_read_within_the_file(const Image& image) {
    const Outcome outcome = try_to_read(std::as_bytes(std::span(image.bytes)));
    EXPECT_TRUE(outcome.read);
    EXPECT_LT(outcome.peak, image.bytes.size() + kSlack);
  }

  // Distinct names, as short as possible for that many.
  static std::string_view short_name(std::uint32_t number, char (&buffer)[3]) {
    for (char& c : buffer) {
      c = static_cast<char>('!' + number % 90);
      number /= 90;
    }
    return {buffer, 3};
  }
};

TEST_F(MemoryBound, AsManyEntriesAsFit) {
  constexpr std::uint32_t kCount = 200000;
  Image image = Image().header(0, kCount);
  char buffer[3];
  for (std::uint32_t i = 0; i < kCount; ++i) image.string(short_name(i, buffer)).type(ValueType::u8).u8(0);
  expect_read_within_the_file(image);
}

TEST_F(MemoryBound, AsManyTensorsAsFit) {
  constexpr std::uint32_t kCount = 100000;
  Image image = Image().header(kCount, 1).entry_u32("general.alignment", 8);
  char buffer[3];
  // In descending order, so that the reader has to sort them.
  for (std::uint32_t i = kCount; i-- > 0;) image.tensor(short_name(i, buffer), {}, Type::I8, i * 8);
  image.data(kCount * 8, 8);
  expect_read_within_the_file(image);
}

TEST_F(MemoryBound, AnArrayOfEmptyStrings) {
  constexpr std::uint32_t kCount = 200000;
  Image image = Image().header(0, 1).array("k", ValueType::string, kCount);
  image.bytes.resize(image.bytes.size() + kCount * 8);
  expect_read_within_the_file(image);
}

TEST_F(MemoryBound, AnArrayOfEmptyArrays) {
  constexpr std::uint32_t kCount = 100000;
  Image image = Image().header(0, 1).array("k", ValueType::array, kCount);
  image.bytes.resize(image.bytes.size() + kCount * kArrayHeader);
  expect_read_within_the_file(image);
}

TEST_F(MemoryBound, EnormousClaimsCostNothing) {
  Image entries = Image().header(0, 1ULL << 40);
  entries.bytes.resize(1 << 20);
  Image tensors = Image().header(1ULL << 40, 0);
  tensors.bytes.resize(1 << 20);
  Image array = Image().header(0, 1).array("k", ValueType::string, 1ULL << 40);
  array.bytes.resize(1 << 20);
  for (const Image& image : {entries, tensors, array}) {
    const Outcome outcome = try_to_read(std::as_bytes(std::span(image.bytes)));
    EXPECT_FALSE(outcome.read);
    EXPECT_LT(outcome.peak, kSlack);
  }
}

}  // namespace
}  // namespace quire::gguf

// The bytes of a session file: what is read back, and what is refused.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/session/session_testing.h"

namespace quire::session::testing {
namespace {

HostBytes filled(std::uint64_t size, int seed) {
  HostBytes bytes = HostBytes::create(size).value();
  for (std::uint64_t i = 0; i < size; ++i) bytes.data()[i] = static_cast<std::byte>(seed + 7 * i);
  return bytes;
}

std::vector<Token> tokens_to(Token count) {
  std::vector<Token> tokens;
  for (Token i = 0; i < count; ++i) tokens.push_back(100 + i);
  return tokens;
}

// Two groups, the second with a window: of nine tokens it has pages from block 1 on. States of 32 bytes.
Snapshot small() {
  Snapshot snapshot{.block_size = 4, .page_bytes = {64, 128}, .state_bytes = 32};
  snapshot.sequence = {.model = {{0x1234, 2, 3, 4}}, .layout = {5, 6}, .tokens = tokens_to(9), .first_blocks = {0, 1}};
  snapshot.sequence.bytes = 3 * 64 + 2 * 128 + 32;
  snapshot.sequence.data = filled(snapshot.sequence.bytes, 1);
  snapshot.checkpoints.push_back({4, filled(32, 2)});
  snapshot.checkpoints.push_back({8, filled(32, 3)});
  return snapshot;
}

Bytes small_file() { return bytes_of(encode(tokens_to(11), small(), R"({"a":1})")); }

std::string problem(const Bytes& file) {
  const auto contents = parse(file);
  return contents ? "" : contents.error().message;
}

TEST(SessionFormat, GivesBackWhatWasWritten) {
  const Bytes file = small_file();
  EXPECT_EQ(file.size() % 64, 0u);
  const auto contents = parse(file);
  ASSERT_TRUE(contents.has_value()) << contents.error().message;
  const Snapshot snapshot = small();
  EXPECT_EQ(contents->version, 1u);
  EXPECT_EQ(contents->model, snapshot.sequence.model);
  EXPECT_EQ(contents->layout, snapshot.sequence.layout);
  EXPECT_EQ(contents->tokens, tokens_to(11));
  EXPECT_EQ(contents->computed, 9u);
  EXPECT_EQ(contents->first_blocks, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(contents->page_bytes, (std::vector<std::uint64_t>{64, 128}));
  EXPECT_EQ(contents->metadata, R"({"a":1})");
  const auto same = [](std::span<const std::byte> a, const std::byte* b) { return std::equal(a.begin(), a.end(), b); };
  ASSERT_EQ(contents->pages.size(), 2u);
  EXPECT_EQ(contents->pages[0].size(), 3u * 64);
  EXPECT_TRUE(same(contents->pages[0], snapshot.sequence.data.data()));
  EXPECT_EQ(contents->pages[1].size(), 2u * 128);
  EXPECT_TRUE(same(contents->pages[1], snapshot.sequence.data.data() + 192));
  EXPECT_EQ(contents->state.size(), 32u);
  EXPECT_TRUE(same(contents->state, snapshot.sequence.data.data() + 448));
  ASSERT_EQ(contents->checkpoints.size(), 2u);
  EXPECT_EQ(contents->checkpoints[1].position, 8u);
  EXPECT_TRUE(same(contents->checkpoints[1].state, snapshot.checkpoints[1].state.data()));
  for (const Section& section : contents->sections) EXPECT_EQ(section.offset % 64, 0u) << name(section.kind);
}

TEST(SessionFormat, HasNoPagesWhereNothingWasComputed) {
  Snapshot nothing = small();
  nothing.sequence.tokens.clear();
  nothing.checkpoints.clear();
  const Bytes file = bytes_of(encode(tokens_to(3), nothing, "{}"));
  const auto contents = parse(file);
  ASSERT_TRUE(contents.has_value()) << contents.error().message;
  EXPECT_EQ(contents->computed, 0u);
  EXPECT_EQ(contents->tokens.size(), 3u);
  EXPECT_TRUE(contents->pages.empty());
  EXPECT_EQ(contents->sections.size(), 2u);
}

TEST(SessionFormat, EveryFlippedBitIsNoticed) {
  const Bytes file = small_file();
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    Bytes flipped = file;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_NE(problem(flipped), "") << bit;
  }
}

TEST(SessionFormat, EveryCutAndEveryExtraByteIsNoticed) {
  const Bytes file = small_file();
  for (std::size_t size = 0; size < file.size(); ++size) {
    const Bytes cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_NE(problem(cut), "") << size;
  }
  EXPECT_EQ(problem(Bytes(file.begin(), file.end() - 1)),
            "is cut: it has " + std::to_string(file.size() - 1) + " of " + std::to_string(file.size()) + " bytes");
  Bytes longer = file;
  longer.resize(file.size() + 64);
  EXPECT_NE(problem(longer).find("64 more than it should"), std::string::npos);
}

TEST(SessionFormat, SaysWhatIsWrong) {
  const Bytes file = small_file();
  const auto with = [&](auto change, bool sealed) {
    Bytes changed = file;
    change(changed);
    if (sealed) seal(changed);
    return problem(changed);
  };
  EXPECT_EQ(with([](Bytes&) {}, true), "") << "sealing a right file changes nothing";
  EXPECT_EQ(with([](Bytes& f) { f[0] = std::byte{'q'}; }, true), "is not a session file: its first bytes are others");
  EXPECT_EQ(with([](Bytes& f) { set_number<std::uint32_t>(f, 8, 7); }, true),
            "has format version 7, and this program reads versions up to 1");
  EXPECT_EQ(with([](Bytes& f) { set_number<std::uint32_t>(f, 8, 0); }, true),
            "has format version 0, which there is not");
  EXPECT_EQ(with([](Bytes& f) { f[30] ^= std::byte{1}; }, false),
            "is damaged: the checksum of its header and table is wrong");
  const auto contents = parse(file);
  for (const Section& section : contents->sections) {
    EXPECT_EQ(with([&](Bytes& f) { f[section.offset] ^= std::byte{1}; }, false),
              "is damaged: the checksum of its " + std::string(name(section.kind)) + " is wrong");
  }
}

// Somebody who writes such a file on purpose makes the checksums right too.
TEST(SessionFormat, NumbersThatMakeNoSenseAreRefusedAlsoWithRightChecksums) {
  const Bytes file = small_file();
  const std::size_t sections = number_at<std::uint32_t>(file, 12);
  const auto with = [&](std::size_t at, auto value) {
    Bytes changed = file;
    set_number(changed, at, value);
    seal(changed);
    return problem(changed);
  };
  const std::uint64_t numbers[] = {0,         1, 3, 63, 64, 65, 1 << 20, UINT32_MAX, UINT64_MAX / 2, UINT64_MAX - 63,
                                   UINT64_MAX};
  const auto try_all = [&](std::size_t at, bool wide) {
    for (const std::uint64_t number : numbers) {
      const bool same = wide ? number_at<std::uint64_t>(file, at) == number
                             : number_at<std::uint32_t>(file, at) == static_cast<std::uint32_t>(number);
      if (same) continue;
      const std::string why = wide ? with(at, number) : with(at, static_cast<std::uint32_t>(number));
      EXPECT_NE(why, "") << "byte " << at << " set to " << number;
    }
  };
  try_all(12, false);                                               // sections
  try_all(16, true);                                                // length
  for (const std::size_t at : {72u, 84u}) try_all(at, false);       // tokens, groups
  for (const std::size_t at : {88u, 96u, 104u}) try_all(at, true);  // bytes of a state, reserved
  EXPECT_NE(with(80, std::uint32_t{0}), "") << "blocks of no tokens";
  EXPECT_NE(with(76, std::uint32_t{12}), "") << "more computed tokens than tokens";
  for (std::size_t i = 0; i < sections; ++i) {
    const std::size_t entry = kHeaderBytes + i * kEntryBytes;
    for (const std::size_t at : {entry, entry + 4}) try_all(at, false);
    for (const std::size_t at : {entry + 8, entry + 56}) try_all(at, true);
    if (i + 1 < sections) try_all(entry + 16, true);  // metadata may be followed by zeros
  }
}

TEST(SessionFormat, SectionsInAnotherOrderAreRefused) {
  Bytes file = small_file();
  std::swap_ranges(file.begin() + kHeaderBytes, file.begin() + kHeaderBytes + kEntryBytes,
                   file.begin() + kHeaderBytes + kEntryBytes);
  seal(file);
  EXPECT_EQ(problem(file), "is damaged: its table has no tokens where they belong");
}

}  // namespace
}  // namespace quire::session::testing

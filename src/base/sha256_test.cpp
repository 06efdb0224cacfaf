#include "quire/base/sha256.h"

#include <set>

#include <gtest/gtest.h>

namespace quire {
namespace {

std::string hash(std::string_view text) { return to_hex(Sha256().add(text).finish()); }

// The examples of FIPS 180-4, and lengths around the end of a block (computed with coreutils' sha256sum).
TEST(Sha256, HashesTheStandardsExamples) {
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(
      hash("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrs"
           "tnopqrstu"),
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hash(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, LengthsAroundABlock) {
  EXPECT_EQ(hash(std::string(55, 'x')), "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072");
  EXPECT_EQ(hash(std::string(56, 'x')), "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e");
  EXPECT_EQ(hash(std::string(63, 'x')), "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2");
  EXPECT_EQ(hash(std::string(64, 'x')), "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c");
  EXPECT_EQ(hash(std::string(65, 'x')), "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9");
  EXPECT_EQ(hash(std::string(119, 'x')), "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c");
  EXPECT_EQ(hash(std::string(120, 'x')), "13f05a0b594787f5ecd315edc96141bd3243203d1b7d4f0836f37308b276ba98");
}

TEST(Sha256, PiecesGiveTheHashOfTheWhole) {
  const std::string text(300, 'q');
  for (const std::size_t cut : {0, 1, 63, 64, 65, 128, 299, 300}) {
    EXPECT_EQ(to_hex(Sha256().add(text.substr(0, cut)).add(text.substr(cut)).finish()), hash(text)) << cut;
  }
}

TEST(Hex, IsReadBackAndNothingElseIsRead) {
  std::array<std::uint8_t, 3> bytes{};
  EXPECT_TRUE(from_hex("00fFa1", bytes));
  EXPECT_EQ(to_hex(bytes), "00ffa1");
  for (const char* wrong : {"", "00ff", "00ffa1b", "00ffa1b2", "00ffg1", "0x00ff"}) {
    EXPECT_FALSE(from_hex(wrong, bytes)) << wrong;
  }
}

TEST(Secrets, AreTheSameOnlyIfAllBytesAre) {
  const std::array<std::uint8_t, 3> a = {1, 2, 3}, last = {1, 2, 4}, first = {0, 2, 3};
  EXPECT_TRUE(same_secret(a, a));
  EXPECT_FALSE(same_secret(a, last));
  EXPECT_FALSE(same_secret(a, first));
  EXPECT_FALSE(same_secret(a, std::span(a).first(2)));
}

TEST(Secrets, RandomBytesDifferEachTime) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    std::array<std::uint8_t, 300> bytes{};
    ASSERT_TRUE(fill_random(bytes));
    seen.insert(to_hex(std::span(bytes).first(16)));
    seen.insert(to_hex(std::span(bytes).last(16)));
  }
  EXPECT_EQ(seen.size(), 200u);
}

}  // namespace
}  // namespace quire

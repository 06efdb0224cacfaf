// Tests of PoolError: its fields and its message.
#include "quire/state/pool_error.h"

#include <set>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

namespace quire {
namespace {

using Code = PoolError::Code;

TEST(PoolError, IsAValueThatIsCheapToCopy) {
  static_assert(std::is_trivially_copyable_v<PoolError>);
  static_assert(!std::is_polymorphic_v<PoolError>);
  EXPECT_LE(sizeof(PoolError), 40u);
}

TEST(PoolError, InvalidSlotSaysWhichSlot) {
  const PoolError error = PoolError::invalid_slot(17);
  EXPECT_EQ(error.code, Code::InvalidSlot);
  EXPECT_EQ(error.index, 17u);
  EXPECT_EQ(error.message(), "slot 17 is not in use here");
}

TEST(PoolError, ExhaustedSaysWhatWasWantedAndWhatThereIs) {
  const PoolError error = PoolError::exhausted("pages", 4, 3);
  EXPECT_EQ(error.code, Code::Exhausted);
  EXPECT_EQ(error.wanted, 4u);
  EXPECT_EQ(error.available, 3u);
  EXPECT_EQ(error.message(), "the pool is exhausted: 4 pages wanted, 3 available");
}

TEST(PoolError, TooLongSaysTheLimit) {
  EXPECT_EQ(PoolError::too_long("blocks", 5, 4).message(), "a sequence may have 4 blocks, 5 were wanted");
}

TEST(PoolError, EveryOtherKindNamesTheThingThatIsWrong) {
  EXPECT_EQ(PoolError::invalid_page(3).message(), "page 3 is not in use here");
  EXPECT_EQ(PoolError::stale(5).message(), "the id of 5 is stale: what it named was given back");
  EXPECT_EQ(PoolError::invalid_sequence(6).message(), "sequence 6 is not alive");
  EXPECT_EQ(PoolError::not_reserved(9, 8).message(), "position 9 was not reserved: room ends at 8");
  EXPECT_EQ(PoolError::not_written(7).message(), "position 7 was not written by this sequence");
  EXPECT_EQ(PoolError::shared_page(2).message(), "page 2 is shared and must be copied before it is written");
  EXPECT_EQ(PoolError::shape_mismatch("a snapshot", 64, 32).message(),
            "a snapshot of another shape: 64 expected, 32 given");
  EXPECT_EQ(PoolError::device_failure("upload", 12).message(), "the device refused to upload 12 bytes");
  EXPECT_EQ(PoolError::incompatible("model").message(), "what was saved has another model than this pool");
  EXPECT_EQ(PoolError::incompatible("format version", 1, 2).message(),
            "what was saved has another format version than this pool: 1 expected, 2 given");
  EXPECT_EQ(PoolError::prefix_gone(48).message(),
            "the page of position 48 was shared when the sequence was suspended, and was evicted");
  EXPECT_EQ(PoolError::damaged("checksum").message(), "what was saved is damaged: checksum");
  EXPECT_EQ(PoolError::damaged("bytes", 64, 32).message(), "what was saved is damaged: bytes, 64 expected, 32 given");
  EXPECT_EQ(PoolError::out_of_memory("a snapshot", 12).message(), "out of memory for a snapshot (12 bytes)");
  EXPECT_EQ(PoolError::out_of_memory("a pool").message(), "out of memory for a pool");
  EXPECT_EQ(PoolError::failed_at_fence().message(), "the device failed at work that was submitted before the fence");
  EXPECT_EQ(PoolError::failed_at_fence("an illegal memory access").message(),
            "the device failed at work that was submitted before the fence: an illegal memory access");
  EXPECT_EQ(PoolError::invalid_argument("no such thing").message(), "no such thing");
}

TEST(PoolError, EveryCodeHasANameOfItsOwn) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::InvalidArgument); ++code)
    names.insert(name(static_cast<Code>(code)));
  for (const std::string& name : names) EXPECT_LE(name.size(), std::string().capacity()) << "needs the heap: " << name;
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Code::InvalidArgument) + 1);
  EXPECT_FALSE(names.contains("?"));
  EXPECT_STREQ(name(Code::Exhausted), "Exhausted");
  EXPECT_STREQ(name(Code::InvalidSlot), "InvalidSlot");
}

TEST(PoolError, EveryMessageIsOneLine) {
  for (int code = 0; code <= static_cast<int>(Code::InvalidArgument); ++code) {
    const PoolError error{.code = static_cast<Code>(code), .what = "things"};
    EXPECT_FALSE(error.message().empty());
    EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace quire

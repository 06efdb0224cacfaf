#include "quire/server/keys.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

TEST(Keys, NoKeysLetEverybodyIntoOneNamespace) {
  const Keys keys;
  EXPECT_FALSE(keys.any());
  EXPECT_EQ(keys.admit(""), 0u);
  EXPECT_EQ(keys.admit("Bearer whatever"), 0u);
}

TEST(Keys, EachKeyHasANamespaceOfItsOwn) {
  const auto keys = Keys::create({"first", "second", "first"});
  ASSERT_TRUE(keys.has_value());
  const auto first = keys->admit("Bearer first");
  const auto second = keys->admit("bearer   second ");
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
  EXPECT_NE(*first, 0u);
}

TEST(Keys, OnlyTheWholeKeyIsTheKey) {
  const auto keys = Keys::create({"secret"});
  ASSERT_TRUE(keys.has_value());
  for (const char* wrong : {"", "secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secretx", "Bearer Secret",
                            "Basic secret", "Bearer x secret"}) {
    EXPECT_FALSE(keys->admit(wrong).has_value()) << wrong;
  }
  EXPECT_TRUE(keys->admit("BEARER secret").has_value());
}

TEST(Keys, RefusesKeysThatNoHeaderCanHave) {
  EXPECT_FALSE(Keys::create({""}).has_value());
  EXPECT_FALSE(Keys::create({"two words"}).has_value());
  EXPECT_FALSE(Keys::create({"schl\xC3\xBCssel"}).has_value());
}

TEST(Keys, AFileHasOneOnEachLine) {
  EXPECT_EQ(keys_in("# for the team\nabc\r\n\n  def  \n#ghi\njkl"), (std::vector<std::string>{"abc", "def", "jkl"}));
  EXPECT_TRUE(keys_in("").empty());
}

}  // namespace
}  // namespace quire::server

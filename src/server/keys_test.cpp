#include "quire/server/keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/engine/request.h"

namespace quire::server {
namespace {

TEST(Keys, NoKeysLetEverybodyIntoOneNamespace) {
  const Keys keys;
  EXPECT_FALSE(keys.any());
  for (const char* sent : {"", "Bearer whatever"}) {
    const TenantRef everybody = keys.admit(sent);
    ASSERT_NE(everybody, nullptr);
    EXPECT_EQ(everybody->id, 0u);
    EXPECT_TRUE(everybody->admin);
    EXPECT_EQ(everybody->max_priority, engine::kMostPriority);
  }
}

TEST(Keys, EachKeyHasANamespaceOfItsOwn) {
  const auto keys = Keys::create({.plain = {"first", "second", "first"}});
  ASSERT_TRUE(keys.has_value());
  const auto first = keys->admit("Bearer first");
  const auto second = keys->admit("bearer   second ");
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->id, second->id);
  EXPECT_NE(first->id, 0u);
  EXPECT_EQ(first->name, "api-key-1");
  EXPECT_EQ(second->name, "api-key-2");
  EXPECT_FALSE(first->admin);
  EXPECT_TRUE(Keys::create({.plain = {"alone"}})->admit("Bearer alone")->admin) << "there is nobody to hide";
}

// A key's namespace has its cached prompts. If it were the key's place in the list, removing a key would hand them to
// the next one.
TEST(Keys, RemovingAKeyDoesNotMoveTheOthers) {
  const auto both = Keys::create({.plain = {"first", "second"}});
  const auto one = Keys::create({.plain = {"second"}});
  ASSERT_TRUE(both && one);
  EXPECT_EQ(one->admit("Bearer second")->id, both->admit("Bearer second")->id);
  EXPECT_NE(one->admit("Bearer second")->id, both->admit("Bearer first")->id);
}

TEST(Keys, APlainKeyHasTheSameNameInTheTiersOnEveryServer) {
  const auto both = Keys::create({.plain = {"first", "second", "first"}});
  const auto one = Keys::create({.plain = {"second"}});
  ASSERT_TRUE(both && one);
  ASSERT_EQ(both->tier_names().size(), 2u);
  ASSERT_EQ(one->tier_names().size(), 1u);
  EXPECT_EQ(one->tier_names()[0].id, one->admit("Bearer second")->id);
  EXPECT_EQ(one->tier_names()[0].name, both->tier_names()[1].name);
  EXPECT_NE(both->tier_names()[0].name, both->tier_names()[1].name);
  EXPECT_NE(both->tier_names()[0].name, TenantName{}) << "that is the name of everybody on a server without keys";
}

// Folders that are there already keep their names.
TEST(Keys, TheFolderOfAPlainKeyIsItsId) {
  EXPECT_EQ(Keys().admit("")->folder, "") << "without keys there is one tenant";
  const auto keys = Keys::create({.plain = {"first", "second"}});
  ASSERT_TRUE(keys.has_value());
  const auto first = keys->admit("Bearer first"), second = keys->admit("Bearer second");
  EXPECT_EQ(first->folder, fmt::format("tenant-{:016x}", first->id));
  EXPECT_NE(first->folder, second->folder);
}

TEST(Keys, OnlyTheWholeKeyIsTheKey) {
  const auto keys = Keys::create({.plain = {"secret"}});
  ASSERT_TRUE(keys.has_value());
  for (const char* wrong : {"", "secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secretx", "Bearer Secret",
                            "Basic secret", "Bearer x secret"}) {
    EXPECT_EQ(keys->admit(wrong), nullptr) << wrong;
  }
  EXPECT_NE(keys->admit("BEARER secret"), nullptr);
}

TEST(Keys, RefusesKeysThatNoHeaderCanHave) {
  EXPECT_FALSE(Keys::create({.plain = {""}}).has_value());
  EXPECT_FALSE(Keys::create({.plain = {"two words"}}).has_value());
  EXPECT_FALSE(Keys::create({.plain = {"schl\xC3\xBCssel"}}).has_value());
}

TEST(Keys, AFileHasOneOnEachLine) {
  EXPECT_EQ(keys_in("# for the team\nabc\r\n\n  def  \n#ghi\njkl"), (std::vector<std::string>{"abc", "def", "jkl"}));
  EXPECT_TRUE(keys_in("").empty());
}

}  // namespace
}  // namespace quire::server

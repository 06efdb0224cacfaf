// The store of sessions: turns, ages, marks, and what goes into a file.
#include "quire/server/session_store.h"

#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

namespace quire::server {
namespace {

namespace json = boost::json;

SessionRecord conversation() {
  SessionRecord record{.id = "sess_1", .created = 5};
  record.set_conversation(json::array{"a"}, {1, 2, 3});
  record.set_conversation(json::array{"a", "b", "c"}, {1, 2, 3, 4, 5, 6});
  return record;
}

TEST(SessionRecord, KeepsItsMessagesWhereItIsRewoundToTheEndOfSome) {
  SessionRecord record = conversation();
  record.rewind(3);
  EXPECT_EQ(record.tokens, (std::vector<Token>{1, 2, 3}));
  ASSERT_TRUE(record.messages.has_value());
  EXPECT_EQ(record.messages->size(), 1u);
  record = conversation();
  record.rewind(4);
  EXPECT_FALSE(record.messages.has_value()) << "plain text";
  record = conversation();
  record.rewind(0);
  EXPECT_TRUE(record.messages->empty());
  // A template may render the beginning differently when more follows. Then there is no way back to it.
  record = conversation();
  record.set_conversation(json::array{"a", "b", "c", "d"}, {1, 2, 9, 9, 9, 9, 9});
  record.rewind(3);
  EXPECT_FALSE(record.messages.has_value());
}

TEST(SessionRecord, GoesThroughTheMetadataOfAFile) {
  SessionRecord record = conversation();
  record.tools = {json::object{{"type", "function"}}};
  record.options = {{"temperature", 0.5}};
  record.answer = {4, {{"seed", -7}, {"guided_regex", "a+"}}};
  const auto back = record_from(metadata_of(record), record.tokens);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(metadata_of(*back), metadata_of(record));
  EXPECT_EQ(back->answer->begin, 4u);
  EXPECT_EQ(back->marks.size(), 2u);
  EXPECT_TRUE(record_from("{}", {1}).has_value()) << "of quire session save";
  for (const char* wrong :
       {"", "[]", "{", R"({"messages": 5})", R"({"marks": [[0, 1]]})", R"({"messages": [], "marks": [[1, 1]]})",
        R"({"messages": [], "marks": [[0, 99]]})", R"({"messages": [], "marks": [[0, -1]]})", R"({"tools": {}})",
        R"({"options": []})", R"({"answer": {}})", R"({"answer": {"begin": 99, "options": {}}})",
        R"({"answer": {"begin": 0, "options": {}}})"}) {
    EXPECT_FALSE(record_from(wrong, {1, 2, 3}).has_value()) << wrong;
  }
}

TEST(SessionStore, ForgetsWhatWasNotUsedForLongButNotWhatIsInUse) {
  const auto store = SessionStore::create({.age = std::chrono::seconds(10)});
  const auto now = SessionStore::Clock::now();
  const auto make = [&] {
    const auto turn = store->make(1, now);
    EXPECT_FALSE((*turn)->commit().has_value());
    return (*turn)->record.id;
  };
  const std::string used = make(), unused = make(), busy = make();
  const auto turn = store->begin(1, busy, now);
  EXPECT_TRUE(store->find(1, used, now + std::chrono::seconds(9)).has_value());
  EXPECT_TRUE(store->find(1, used, now + std::chrono::seconds(15)).has_value());
  EXPECT_EQ(store->find(1, unused, now + std::chrono::seconds(15)).error().status, 404u);
  EXPECT_TRUE(store->find(1, busy, now + std::chrono::seconds(99)).has_value());
  EXPECT_EQ(store->count().sessions, 1u);
}

TEST(SessionStore, ATurnThatIsNotCommittedChangesNothing) {
  const auto store = SessionStore::create({});
  std::string id;
  {
    const auto turn = store->make(1);
    id = (*turn)->record.id;
    EXPECT_EQ(store->find(1, id).error().status, 404u) << "not before it is committed";
  }
  EXPECT_EQ(store->count().sessions, 0u);
  const auto made = store->make(1);
  id = (*made)->record.id;
  (*made)->record.tokens = {1, 2};
  EXPECT_FALSE((*made)->commit().has_value());
  {
    const auto turn = store->begin(1, id);
    (*turn)->record.tokens.push_back(3);
    EXPECT_EQ(store->begin(1, id).error().status, 409u);
    EXPECT_EQ(store->erase(1, id)->status, 409u);
  }
  EXPECT_EQ(store->find(1, id)->record.tokens.size(), 2u);
  {
    const auto turn = store->begin(1, id);
    (*turn)->begin_answer({1, 2}, false, {{"seed", 1}}, false);
    (*turn)->end_answer(false, true, std::nullopt);  // cut off before its first token
  }
  EXPECT_FALSE(store->find(1, id)->record.answer.has_value());
  {
    const auto turn = store->begin(1, id);
    (*turn)->begin_answer({1, 2}, false, {{"seed", 1}}, false);
    (*turn)->add(7, "x");
    (*turn)->end_answer(false, true, std::nullopt);
  }
  EXPECT_EQ(store->find(1, id)->record.tokens, (std::vector<Token>{1, 2, 7}));
  EXPECT_EQ(store->find(1, id)->record.answer->begin, 2u);
  EXPECT_FALSE(store->erase(1, id).has_value());
  EXPECT_EQ(store->erase(1, id)->status, 404u);
}

}  // namespace
}  // namespace quire::server

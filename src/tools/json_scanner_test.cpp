#include "quire/tools/json_scanner.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <gtest/gtest.h>

namespace quire::tools {
namespace {

using Status = JsonScanner::Status;

// How the scanner ends on `text`: Bad, Done at the last byte, or More.
Status scan(std::string_view text, JsonScanner& scanner) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const Status status = scanner.push(text[i]);
    if (status == Status::Bad) return status;
    if (status == Status::Done) return i + 1 == text.size() ? status : Status::Bad;
  }
  return Status::More;
}
Status scan(std::string_view text) {
  JsonScanner scanner;
  return scan(text, scanner);
}

TEST(JsonScanner, TakesWholeObjectsAndKnowsTheirEnd) {
  for (const char* const text :
       {"{}", R"({"a":1})", R"({ "a" : [ ] , "b" : { } })",
        R"({"a":[1,2.5,-0,1e9,1.5E-3,true,false,null,"x\u00e9\n"]})", R"({"a":{"b":{"c":[{"d":"}"}]}}})"}) {
    EXPECT_EQ(scan(text), Status::Done) << text;
  }
}

TEST(JsonScanner, RefusesWhatNoContinuationCanMend) {
  for (const char* const text : {"[",           "1",           "{1",
                                 "{a",          "{,",          R"({"a"})",
                                 R"({"a":})",   R"({"a":,)",   R"({"a":1,})",
                                 R"({"a":01)",  R"({"a":1.})", R"({"a":.5)",
                                 R"({"a":+1)",  R"({"a":1e})", R"({"a":tru})",
                                 R"({"a":"\x)", "{\"a\":\"\n", R"({"a":[1,])",
                                 R"({"a":[1})", R"({"a":1]})", R"({"a":"\u00g)"}) {
    EXPECT_EQ(scan(text), Status::Bad) << text;
  }
}

TEST(JsonScanner, KnowsTheMembersOfTheOuterObjectOnly) {
  const std::string_view text = R"({"name": "f", "n": 12 , "arguments": {"name": [1]}})";
  JsonScanner scanner;
  ASSERT_EQ(scan(text, scanner), Status::Done);
  ASSERT_EQ(scanner.members().size(), 3u);
  const auto piece = [&](std::size_t begin, std::size_t end) { return text.substr(begin, end - begin); };
  const auto members = scanner.members();
  EXPECT_EQ(piece(members[0].key_begin, members[0].key_end), "\"name\"");
  EXPECT_EQ(piece(members[0].value_begin, members[0].value_end), "\"f\"");
  EXPECT_EQ(piece(members[1].value_begin, members[1].value_end), "12");
  EXPECT_EQ(piece(members[2].value_begin, members[2].value_end), R"({"name": [1]})");
}

TEST(JsonScanner, NestingHasALimit) {
  std::string text;
  for (std::size_t i = 0; i < JsonScanner::kMostDepth; ++i) text += "{\"a\":";
  EXPECT_EQ(scan(text), Status::More);
  EXPECT_EQ(scan(text + "{"), Status::Bad);
}

// Boost is the judge: what is made by small changes to a good text is taken by both or by none.
TEST(JsonScanner, AgreesWithAnotherParserOnDamagedTexts) {
  const std::string good = R"({"a": [1, -2.5e3, "x\"\\y"], "b": {"c": null, "d": true}, "e": ""})";
  const std::string_view bytes = "{}[]\",:0123456789.-+eEtrufalsn \\/x\n";
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (std::uint32_t changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      const char c = bytes[random() % bytes.size()];
      switch (random() % 3) {
        case 0: text[at] = c; break;
        case 1: text.insert(text.begin() + static_cast<std::ptrdiff_t>(at), c); break;
        default: text.erase(at, 1); break;
      }
    }
    boost::system::error_code error;
    const boost::json::value value = boost::json::parse(text, error);
    const std::string_view core(text.data(), text.find_last_not_of(" \n") + 1);
    ASSERT_EQ(scan(core) == Status::Done && text.front() == '{', !error && value.is_object() && text.front() == '{')
        << text;
  }
}

}  // namespace
}  // namespace quire::tools

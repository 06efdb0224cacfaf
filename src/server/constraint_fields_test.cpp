#include "quire/server/constraint_fields.h"

#include <string>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::server {
namespace {

namespace json = boost::json;
using Kind = grammar::ConstraintSpec::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

auto read(std::string_view body) { return read_constraint(json::parse(body).as_object()); }

struct Case {
  std::string body;
  Kind kind;
  std::string field;
  std::string text = {};    // of the spec
  std::string schema = {};  // of the spec, as text
};
class ConstraintFields : public ::testing::TestWithParam<Case> {};

const std::string kSchema = R"({"type":"integer"})";

INSTANTIATE_TEST_SUITE_P(
    Ways, ConstraintFields,
    ::testing::Values(
        Case{R"({"response_format": {"type": "json_object"}})", Kind::JsonObject, "response_format"},
        Case{R"({"response_format": {"type": "json_object", "schema": {"type": "integer"}}})", Kind::JsonSchema,
             "response_format.schema", "", kSchema},
        Case{R"({"response_format": {"type": "json_schema",
                 "json_schema": {"name": "n", "strict": true, "schema": {"type": "integer"}}}})",
             Kind::JsonSchema, "response_format.json_schema.schema", "", kSchema},
        Case{R"({"json_schema": {"type": "integer"}})", Kind::JsonSchema, "json_schema", "", kSchema},
        Case{R"({"guided_json": {"type": "integer"}})", Kind::JsonSchema, "guided_json", "", kSchema},
        Case{R"({"guided_json": "{\"type\": \"integer\"}"})", Kind::JsonSchema, "guided_json", "", kSchema},
        Case{R"({"guided_regex": "a+"})", Kind::Regex, "guided_regex", "a+"},
        Case{R"({"regex": "a+"})", Kind::Regex, "regex", "a+"},
        Case{R"({"guided_grammar": "root ::= \"a\""})", Kind::Grammar, "guided_grammar", "root ::= \"a\""},
        Case{R"({"grammar": "root ::= \"a\"", "guided_json": null})", Kind::Grammar, "grammar", "root ::= \"a\""},
        Case{R"({"structured_outputs": {"json": {"type": "integer"}}})", Kind::JsonSchema, "structured_outputs.json",
             "", kSchema},
        Case{R"({"structured_outputs": {"regex": "b"}})", Kind::Regex, "structured_outputs.regex", "b"},
        Case{R"({"structured_outputs": {"grammar": "start: \"b\""}})", Kind::Grammar, "structured_outputs.grammar",
             "start: \"b\""},
        Case{R"({"structured_outputs": {"json_object": true}, "response_format": {"type": "text"}})", Kind::JsonObject,
             "structured_outputs.json_object"}));

TEST_P(ConstraintFields, AskForAShape) {
  const auto asked = read(GetParam().body);
  ASSERT_TRUE(asked.has_value()) << asked.error().message;
  ASSERT_TRUE(asked->has_value());
  EXPECT_EQ((*asked)->spec.kind, GetParam().kind);
  EXPECT_EQ((*asked)->field, GetParam().field);
  EXPECT_EQ((*asked)->spec.text, GetParam().text);
  if (!GetParam().schema.empty()) {
    EXPECT_EQ(json::serialize((*asked)->spec.schema), GetParam().schema);
  }
}

TEST(ConstraintFields, AChoiceHasItsTexts) {
  for (const char* body :
       {R"({"guided_choice": ["yes", "no"]})", R"({"structured_outputs": {"choice": ["yes", "no"]}})"}) {
    const auto asked = read(body);
    ASSERT_TRUE(asked.has_value() && asked->has_value());
    EXPECT_EQ((*asked)->spec.kind, Kind::Choice);
    EXPECT_THAT((*asked)->spec.choices, ElementsAre("yes", "no"));
  }
}

TEST(ConstraintFields, WhiteSpaceCanBeTurnedOff) {
  const auto asked = read(R"({"structured_outputs": {"json_object": true, "disable_any_whitespace": true}})");
  ASSERT_TRUE(asked.has_value() && asked->has_value());
  EXPECT_TRUE((*asked)->spec.compact);
}

TEST(ConstraintFields, MostRequestsAskForNothing) {
  for (const char* body :
       {"{}", R"({"response_format": {"type": "text"}})", R"({"response_format": null})", R"({"grammar": ""})",
        R"({"structured_outputs": {}})", R"({"structured_outputs": {"disable_additional_properties": false}})",
        R"({"structured_outputs": {"json_object": false}})"}) {
    const auto asked = read(body);
    ASSERT_TRUE(asked.has_value()) << body << asked.error().message;
    EXPECT_FALSE(asked->has_value()) << body;
  }
}

TEST(ConstraintFields, WhatIsWrongIsNamed) {
  const auto message = [](std::string_view body) {
    const auto asked = read(body);
    EXPECT_FALSE(asked.has_value()) << body;
    return asked ? "" : asked.error().message;
  };
  EXPECT_THAT(message(R"({"response_format": 1})"), HasSubstr("'response_format' must be an object"));
  EXPECT_THAT(message(R"({"response_format": {"type": "xml"}})"), HasSubstr("'response_format.type'"));
  EXPECT_THAT(message(R"({"response_format": {"type": "json_schema"}})"),
              HasSubstr("'response_format.json_schema' is missing"));
  EXPECT_THAT(message(R"({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}})"),
              HasSubstr("'response_format.json_schema.schema' is missing"));
  EXPECT_THAT(message(R"({"guided_json": "{"})"), HasSubstr("'guided_json' must be a JSON Schema"));
  EXPECT_THAT(message(R"({"guided_json": 3})"), HasSubstr("'guided_json'"));
  EXPECT_THAT(message(R"({"guided_regex": 3})"), HasSubstr("'guided_regex' must be a string"));
  EXPECT_THAT(message(R"({"guided_choice": []})"), HasSubstr("'guided_choice'"));
  EXPECT_THAT(message(R"({"guided_choice": [1]})"), HasSubstr("'guided_choice'"));
  EXPECT_THAT(message(R"({"structured_outputs": {"structural_tag": "x"}})"),
              HasSubstr("'structured_outputs.structural_tag' is not supported"));
  EXPECT_THAT(message(R"({"structured_outputs": {"json": {}, "whitespace_pattern": " "}})"),
              HasSubstr("'structured_outputs.whitespace_pattern' is not supported"));
  EXPECT_EQ(message(R"({"structured_outputs": {"json": {}, "disable_additional_properties": true}})"),
            "'structured_outputs.disable_additional_properties' is not supported, except as false");
  EXPECT_THAT(message(R"({"guided_regex": "a", "grammar": "root ::= \"a\""})"),
              HasSubstr("'grammar' cannot be used together with 'guided_regex'"));
  EXPECT_THAT(message(R"({"structured_outputs": {"regex": "a", "choice": ["a"]}})"),
              HasSubstr("cannot be used together with"));
}

}  // namespace
}  // namespace quire::server

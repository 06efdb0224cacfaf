#include "quire/grammar/json_schema.h"

#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include "quire/grammar/json_schema_testing.h"

namespace quire::grammar {
namespace {

using testing::CompiledSchema;
using Texts = std::vector<std::string>;

void expect(const std::string& schema, const Texts& admitted, const Texts& rejected) {
  const CompiledSchema compiled(schema);
  ASSERT_EQ(compiled.error(), "") << schema;
  for (const std::string& text : admitted) EXPECT_TRUE(compiled.admits(text)) << schema << "\n" << text;
  for (const std::string& text : rejected) EXPECT_FALSE(compiled.admits(text)) << schema << "\n" << text;
}

void expect_refused(const std::string& schema, const std::string& message) {
  EXPECT_EQ(CompiledSchema(schema).error(), message) << schema;
}

TEST(JsonSchema, EmptyAndTrueSchemasAdmitEveryValue) {
  const Texts values = {"null", "true", "-1.5e3", R"("a\u00e9")", "[]", "[1, [2]]", "{}", R"({"a": {"b": []}})"};
  expect("{}", values, {"", "nul", "01", "[1,]", R"({"a"})", "\"\n\"", "1 1"});
  expect("true", values, {"{"});
}

TEST(JsonSchema, AnyObjectIsAnObject) {
  Grammar grammar;
  grammar.set_start(add_any_json_object(grammar));
  const auto compiled = compile(std::move(grammar), testing::ByteModel::shared().trie);
  ASSERT_TRUE(compiled.has_value());
  Matcher matcher(*compiled);
  EXPECT_EQ(matcher.accept_bytes("[1]"), 0);
  EXPECT_EQ(matcher.accept_bytes(R"({"a": [1]})"), 10);
  EXPECT_TRUE(matcher.must_end());
}

TEST(JsonSchema, ListsOfTypesAreAlternatives) {
  expect(R"({"type": ["string", "null"]})", {"null", "\"\""}, {"1", "true", "[]"});
  expect(R"({"type": "integer"})", {"0", "-7", "120"}, {"1.5", "1e3", "01", "+1"});
  expect(R"({"type": "number"})", {"0", "-7.25", "1e-9", "1E+5"}, {".5", "1.", "1e", "Infinity"});
}

TEST(JsonSchema, PropertiesComeInTheirOrderAndRequiredOnesMust) {
  expect(R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {}},
             "required": ["b"], "additionalProperties": false})",
         {R"({"b": ""})", R"({"a": 1, "b": "x"})", R"({"b": "x", "c": null})", R"({"a": 1, "b": "", "c": 2})"},
         {"{}", R"({"a": 1})", R"({"b": "", "a": 1})", R"({"b": "", "b": ""})", R"({"b": "", "d": 1})", R"({"b": 1})"});
  expect(R"({"type": "object", "properties": {"a": {}}, "required": ["z", "a"]})", {R"({"a": 1, "z": 2})"},
         {R"({"z": 1})", R"({"a": 1})"});
}

TEST(JsonSchema, AdditionalKeysDoNotRepeatNamedOnesInAnySpelling) {
  const std::string schema = R"({"type": "object", "properties": {"ab": {"type": "integer"}},
                                 "additionalProperties": {"type": "string"}})";
  expect(schema, {R"({"ab": 1, "x": "y"})", R"({"a": "1"})", R"({"abc": "1"})", "{\"\u00e9\": \"1\"}"},
         {R"({"ab": "1"})", R"({"ab": 1, "ab": "1"})", R"({"\u0061b": "1"})", R"({"a\u0062": "1"})", R"({"x": 1})"});
}

TEST(JsonSchema, PatternPropertiesDivideTheKeys) {
  expect(R"({"type": "object", "patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 5}},
             "additionalProperties": {"type": "null"}})",
         {R"({"x": 1, "xy": 5, "by": "any", "z": null})", "{}"},
         {R"({"x": ""})", R"({"xy": 4})", R"({"xy": "5"})", R"({"by": 4})", R"({"z": 1})"});
  expect(R"({"type": "object", "properties": {"xa": {"maximum": 3}}, "patternProperties": {"^x": {"type": "integer"}},
             "additionalProperties": false})",
         {R"({"xa": 3, "xb": 9})"}, {R"({"xa": 4})", R"({"xa": "3"})", R"({"b": 1})"});
}

TEST(JsonSchema, PropertyNamesHoldForEveryKey) {
  expect(R"({"type": "object", "properties": {"abcd": {}, "a": {}}, "propertyNames": {"maxLength": 2}})",
         {R"({"a": 1, "xy": 2})"}, {R"({"abcd": 1})", R"({"xyz": 1})"});
}

TEST(JsonSchema, PropertiesAreCountedWhereTheyCanBe) {
  const std::string named = R"("properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": false)";
  expect("{\"type\": \"object\", \"minProperties\": 2, " + named + "}",
         {R"({"a": 1, "b": 2})", R"({"a": 1, "c": 2})", R"({"a": 1, "b": 1, "c": 2})"},
         {"{}", R"({"a": 1})", R"({"c": 1})"});
  expect("{\"type\": \"object\", \"maxProperties\": 1, " + named + "}", {"{}", R"({"c": 1})"}, {R"({"a": 1, "b": 2})"});
  expect(R"({"type": "object", "minProperties": 1, "maxProperties": 2})", {R"({"x": 1})", R"({"x": 1, "y": 1})"},
         {"{}", R"({"x": 1, "y": 1, "z": 1})"});
  // Two additional keys may be the same one.
  expect_refused(R"({"type": "object", "minProperties": 2})",
                 "#/minProperties: cannot be enforced where properties have no names");
  expect_refused(R"({"type": "object", "not": {"maxProperties": 1}})",
                 "#/not/minProperties: cannot be enforced where properties have no names");
}

TEST(JsonSchema, DependenciesAreChoices) {
  const Texts good = {"{}", R"({"a": 1, "b": 2})", R"({"b": 2})", "3"}, bad = {R"({"a": 1})"};
  expect(R"({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}})", good, bad);
  expect(R"({"properties": {"a": {}, "b": {}}, "dependencies": {"a": ["b"]}})", good, bad);
  expect(R"({"properties": {"a": {}, "b": {}}, "dependentSchemas": {"a": {"required": ["b"]}}})", good, bad);
}

TEST(JsonSchema, ArraysHaveItemsPrefixesAndCounts) {
  expect(R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})", {"[1]", "[1, 2, 3]"},
         {"[]", "[1, 2, 3, 4]", "[\"\"]"});
  const Texts good = {"[]", "[1]", "[1, \"x\"]", "[1, \"x\", null, null]"},
              bad = {"[\"x\"]", "[1, 1]", "[1, \"x\", 1]"};
  expect(R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": {"type": "null"}})",
         good, bad);
  expect(
      R"({"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": {"type": "null"}})",
      good, bad);
  expect(R"({"type": "array", "prefixItems": [{}, {}], "items": false, "minItems": 2})", {"[1, 2]"},
         {"[1]", "[1, 2, 3]"});
  expect(R"({"type": "array", "minItems": 3, "maxItems": 100000})", {"[1, 2, 3]"}, {"[1, 2]"});
}

TEST(JsonSchema, ALongPrefixIsNoDeepRecursion) {
  const auto list = [](int count, const std::string& one) {
    std::string result = "[" + one;
    for (int i = 1; i < count; ++i) result += "," + one;
    return result + "]";
  };
  const CompiledSchema long_one(R"({"type": "array", "items": false, "prefixItems": )" + list(3'000, "true") + "}");
  EXPECT_EQ(long_one.error(), "");
  EXPECT_TRUE(long_one.admits("[1, 2]"));
  EXPECT_TRUE(long_one.admits(list(3'000, "1")));
  EXPECT_FALSE(long_one.admits(list(3'001, "1")));
  expect_refused(R"({"type": "array", "prefixItems": )" + list(300'000, "true") + "}", "the schema is too large");
  const CompiledSchema between(R"({"type": "array", "prefixItems": )" + list(50'000, "true") + "}");
  EXPECT_TRUE(between.error().empty() || between.error().ends_with(" is too large")) << between.error();
  expect_refused(R"({"type": "array", "contains": {"const": 5}, "prefixItems": )" + list(50'000, "true") + "}",
                 "#/contains: cannot be enforced together with so many items");
}

// Threads of a server may have less than the main one.
void with_a_small_stack(const std::function<void()>& run) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{512} << 10);
  pthread_t thread{};
  std::function<void()> copy = run;
  const auto start = [](void* given) -> void* {
    (*static_cast<std::function<void()>*>(given))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, start, &copy), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(JsonSchema, ManyPropertiesAreNoDeepRecursion) {
  const auto properties = [](int count) {
    std::string result = R"("type": "object", "properties": {)";
    for (int i = 0; i < count; ++i) result += fmt::format("{}\"n{}\": true", i == 0 ? "" : ",", i);
    return result + "}";
  };
  with_a_small_stack([&] { EXPECT_EQ(CompiledSchema("{" + properties(5'000) + "}").error(), ""); });
  const CompiledSchema many("{" + properties(5'000) + "}");
  EXPECT_EQ(many.error(), "");
  EXPECT_TRUE(many.admits(R"({"n7": 1, "n4999": 2, "x": 3})"));
  EXPECT_FALSE(many.admits(R"({"n7": 1, "n6": 2})"));
  const CompiledSchema counted("{" + properties(3'000) + R"(, "minProperties": 1, "additionalProperties": false})");
  EXPECT_EQ(counted.error(), "");
  EXPECT_TRUE(counted.admits(R"({"n2999": 1})"));
  EXPECT_FALSE(counted.admits("{}"));
  for (const int count : {19'998, 30'000}) {
    const CompiledSchema large("{" + properties(count) + "}");
    EXPECT_TRUE(large.error() == "" || large.error() == "there are too many properties" ||
                large.error() == "the schema is too large")
        << large.error();
  }
}

TEST(JsonSchema, PrefixItemsAreAnAnnotationBeforeTheyWereDefined) {
  const std::string rest = R"("type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}})";
  for (const char* draft : {"http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#",
                            "https://json-schema.org/draft/2019-09/schema"}) {
    expect(fmt::format("{{\"$schema\": \"{}\", {}", draft, rest), {"[]", "[1, 2]"}, {R"(["a"])", R"(["a", 1])"});
  }
  for (const char* draft : {R"("$schema": "https://json-schema.org/draft/2020-12/schema", )", ""}) {
    expect(fmt::format("{{{}{}", draft, rest), {"[]", R"(["a", 2])"}, {"[1]", R"(["a", "b"])"});
  }
  expect(R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array",
             "not": {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}})",
         {R"(["a"])", R"([1, "a"])"}, {"[]", "[1]"});
}

TEST(JsonSchema, ContainsIsEnforced) {
  expect(R"({"type": "array", "contains": {"const": 5}})", {"[5]", "[1, 5, \"x\"]"}, {"[]", "[1, 2]"});
  expect(R"({"type": "array", "contains": {"const": 5}, "minContains": 2, "maxItems": 4})",
         {"[5, 5]", "[1, 5, 5]", "[5, 1, 2, 5]"}, {"[5]", "[5, 1, 2, 3, 5]"});
  expect_refused(R"({"type": "array", "contains": {"const": 5}, "maxContains": 2})",
                 "#/maxContains: cannot be enforced");
  expect_refused(R"({"type": "array", "contains": {"const": 5}, "minContains": 10000000000})",
                 "#/minContains: cannot be enforced");
  expect_refused(R"({"type": "array", "contains": {"const": 5}, "minContains": -1})",
                 "#/minContains: must be a whole number, at least 0");
}

TEST(JsonSchema, AllOfMergesWhatEachSays) {
  expect(R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                       {"properties": {"a": {"minimum": 3}, "b": {"type": "string"}}}],
             "additionalProperties": true})",
         {R"({"a": 3})", R"({"a": 4, "b": ""})"}, {R"({"a": 2})", R"({"b": ""})", R"({"a": 3, "b": 1})"});
  // additionalProperties sees only the properties beside it.
  expect(
      R"({"type": "object", "allOf": [{"properties": {"a": {}}}], "properties": {"b": {}}, "additionalProperties": false})",
      {"{}", R"({"b": 1})"}, {R"({"a": 1})"});
}

TEST(JsonSchema, AnyOfIsAUnionAndSiblingsHoldForEveryBranch) {
  expect(R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
             "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
         {R"({"a": 1})", R"({"b": 1})", R"({"a": 1, "b": 1})"}, {"{}", R"({"c": 1})", R"({"a": ""})"});
}

TEST(JsonSchema, OneOfIsExactAlsoWhereBranchesOverlap) {
  expect(R"({"oneOf": [{"type": "integer"}, {"minimum": 2, "type": "number"}]})", {"1", "2.5"}, {"3", "1.5"});
  expect(
      R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k"]},
                       {"type": "object", "properties": {"k": {"const": "b"}, "x": {"type": "string"}}, "required": ["k"]}]})",
      {R"({"k": "a", "x": 1})", R"({"k": "b", "x": ""})"}, {R"({"k": "a", "x": ""})", R"({"k": "c"})", "{}"});
  expect(R"({"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false,
             "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})",
         {R"({"a": 1})", R"({"b": 1})"}, {"{}", R"({"a": 1, "b": 1})"});
  expect(R"({"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "maxLength": 2}]})",
         {R"("abc")", R"("xy")"}, {R"("ab")", R"("xyz")"});
  expect(
      R"({"oneOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "string"}}]})",
      {"[1]", "[\"\", \"\"]"}, {"[]", "[1, \"\"]"});
  expect(R"({"oneOf": [{"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false},
                       {"type": "object", "properties": {"b": {}, "c": {}}, "additionalProperties": false}]})",
         {R"({"a": 1})", R"({"a": 1, "b": 2})", R"({"c": 1})"}, {"{}", R"({"b": 1})", R"({"a": 1, "c": 1})"});
}

TEST(JsonSchema, NotIsTheComplement) {
  expect(R"({"not": {"type": ["object", "array", "string"]}})", {"1", "null", "true"}, {"\"\"", "[]", "{}"});
  expect(R"({"type": "string", "not": {"enum": ["a", "b"]}})", {"\"c\"", "\"\""}, {"\"a\"", R"("\u0061")"});
  expect(R"({"type": "number", "not": {"type": "integer"}})", {"1.5"}, {"1", "1.0"});
  expect(R"({"type": "integer", "not": {"minimum": 3}})", {"2", "-5"}, {"3"});
  expect(R"({"type": "object", "properties": {"a": {}}, "not": {"required": ["a"]}})", {"{}", R"({"b": 1})"},
         {R"({"a": 1})"});
  expect(R"({"not": {"const": true}, "type": "boolean"})", {"false"}, {"true"});
  expect(
      R"({"type": "object", "properties": {"a": {}}, "not": {"properties": {"a": {}}, "additionalProperties": false}})",
      {R"({"b": 1})", R"({"a": 1, "b": 1, "c": 2})"}, {"{}", R"({"a": 1})"});
  expect(R"({"type": "object", "not": {"propertyNames": {"maxLength": 2}}})",
         {R"({"abc": 1})", R"({"a": 1, "abc": 1, "b": 1})"}, {"{}", R"({"a": 1})"});
  expect(R"({"type": "object", "patternProperties": {"^x": {"type": "integer"}},
             "not": {"patternProperties": {"^x": {"type": "string"}}}})",
         {R"({"x": 1})", R"({"y": "", "xx": 1})"}, {"{}", R"({"y": ""})", R"({"x": ""})"});
  // A second "x" with null would take its place.
  expect_refused(R"({"type": "object", "not": {"additionalProperties": {"type": "null"}}})",
                 "#/not/additionalProperties: cannot be negated");
  expect_refused(R"({"not": {}})", "#: no value fits the schema");
}

TEST(JsonSchema, IfThenElseFollowsTheCondition) {
  expect(R"({"type": "object", "properties": {"k": {"enum": ["a", "b"]}, "x": {}}, "required": ["k"],
             "if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["x"]},
             "else": {"properties": {"x": {"type": "integer"}}}})",
         {R"({"k": "a", "x": ""})", R"({"k": "b"})", R"({"k": "b", "x": 1})"},
         {R"({"k": "a"})", R"({"k": "b", "x": ""})"});
}

TEST(JsonSchema, WhiteSpaceIsFreeButBoundedOrNone) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "array"}}})";
  expect(schema,
         {R"({"a":[1,2]})", "{\n  \"a\": [\n    1,\n    2\n  ]\n}", "{ \"a\" : [ 1 , 2 ] }", "{\r\n\t\"a\": []\r\n}"},
         {"{\n\n\n\n\"a\": []}", " {}", "{} ", "{\"a\":" + std::string(100, ' ') + "[]}"});
  const CompiledSchema compact(schema, {.compact = true});
  EXPECT_TRUE(compact.admits(R"({"a":[1,2]})"));
  EXPECT_FALSE(compact.admits(R"({"a": [1,2]})"));
}

TEST(JsonSchema, WhatCannotBeEnforcedIsRefusedWithItsPlace) {
  expect_refused(R"({"properties": {"a/b": {"type": "array", "uniqueItems": true}}})",
                 "#/properties/a~1b/uniqueItems: cannot be enforced");
  expect_refused(R"({"type": "array", "unevaluatedItems": false})", "#/unevaluatedItems: cannot be enforced");
  expect_refused(R"({"type": "object", "allOf": [{}], "unevaluatedProperties": false})",
                 "#/unevaluatedProperties: cannot be enforced");
  expect_refused(R"({"items": {"type": "string", "format": "regex"}})", "#/items/format: regex cannot be enforced");
  expect_refused(R"({"type": "thing"})", "#/type: there is no type \"thing\"");
  expect_refused(R"({"minLength": -1})", "#/minLength: must be a whole number, at least 0");
  expect_refused(R"({"properties": {"a": 3}})", "3 stands where a schema must be an object or a boolean");
  // Draft 7 lets it be an assertion. Later drafts say that it is none.
  expect_refused(R"({"$schema": "http://json-schema.org/draft-07/schema#", "contentEncoding": "base64"})",
                 "#/contentEncoding: cannot be enforced");
  // Where it cannot matter it is not refused.
  expect(R"({"type": "string", "uniqueItems": true})", {"\"\""}, {"[]"});
  expect(R"({"type": "array", "uniqueItems": true, "maxItems": 1})", {"[]", "[1]"}, {"[1, 2]"});
}

TEST(JsonSchema, AnnotationsAreIgnored) {
  expect(R"({"type": "null", "title": "t", "default": 3, "examples": [1], "x-order": {"type": "string"}, "nullable": 1,
             "$comment": "c", "format": "int32", "readOnly": true, "contentEncoding": "base64", "example": {}})",
         {"null"}, {"3"});
}

TEST(JsonSchema, HostileSchemasAreRefusedInBoundedSteps) {
  std::string choices = R"({"allOf": [)";
  for (int i = 0; i < 40; ++i) {
    choices +=
        fmt::format(R"({}{{"anyOf": [{{"required": ["a{}"]}}, {{"required": ["b{}"]}}]}})", i == 0 ? "" : ", ", i, i);
  }
  choices += "], \"type\": \"object\"}";
  expect_refused(choices, "the schema is too large");
  std::string names;
  for (int i = 0; i < 20000; ++i)
    names += fmt::format("{}\"name{}\": {{\"pattern\": \"x{}$\"}}", i == 0 ? "" : ",", i, i);
  expect_refused("{\"properties\": {" + names + "}}", "the schema is too large");
}

TEST(JsonSchema, ComparingValuesIsCounted) {
  // Two lists of long values that differ only at their ends: comparing each with each takes minutes.
  const auto values = [](const std::string& end) {
    std::string body, result;
    for (int i = 0; i < 500; ++i) body += fmt::format("{},", i % 7);
    for (int i = 0; i < 1'000; ++i) result += fmt::format("{}[{}\"{}{}\"]", i == 0 ? "" : ",", body, end, i);
    return R"({"enum": [)" + result + "]}";
  };
  expect_refused("{\"allOf\": [" + values("a") + "," + values("b") + "]}", "the schema is too large");
  expect_refused("{\"not\": " + values("a") + ", \"allOf\": [" + values("b") + "]}", "the schema is too large");
  std::string names;
  for (int i = 0; i < 60'000; ++i) names += fmt::format("{}\"name{:06}\"", i == 0 ? "" : ",", i);
  expect_refused(R"({"type": "object", "required": [)" + names + "]}", "the schema is too large");
  // Every alternative excludes every name.
  std::string lengths;
  for (int i = 0; i < 2'000; ++i) lengths += fmt::format("{}{{\"minLength\": {}}}", i == 0 ? "" : ",", i);
  expect_refused(R"({"type": "string", "not": {"enum": [)" + names + R"(]}, "anyOf": [)" + lengths + "]}",
                 "the schema is too large");
}

TEST(JsonSchema, EqualValuesInTwoListsAreFound) {
  expect(R"({"allOf": [{"enum": [1, "a", [1, {"k": 2.0}], 3]}, {"enum": [1.0, [1, {"k": 2}], "b", "a"]}]})",
         {"1", R"("a")", R"([1, {"k": 2.0}])"}, {"3", R"("b")"});
}

}  // namespace
}  // namespace quire::grammar

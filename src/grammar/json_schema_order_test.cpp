#include "quire/grammar/json_schema_order.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/grammar/json_schema_testing.h"

namespace quire::grammar {
namespace {

using List = MemberOrder::List;
using Texts = std::vector<std::string>;

// Whether the members may be written in this order, and nothing that is required is missing.
bool admits(const MemberOrder& order, const List& members) {
  std::vector<MemberOrder::Place> places = {0};
  for (const std::uint32_t member : members) {
    std::vector<MemberOrder::Place> behind;
    for (const MemberOrder::Place place : places) {
      for (std::size_t list = 0; list < order.lists(); ++list) {
        auto step = order.next(place, list);
        while (step && step->member != member) {
          step = step->without ? order.next(*step->without, list) : std::nullopt;
        }
        if (step) behind.push_back(step->behind);
      }
    }
    places = std::move(behind);
  }
  return std::any_of(places.begin(), places.end(), [&](MemberOrder::Place place) { return order.complete(place); });
}

MemberOrder optional(const std::vector<List>& lists, std::size_t count, std::uint64_t most_places = 1000) {
  return MemberOrder(lists, std::vector<bool>(count, false), most_places);
}

TEST(MemberOrder, OneListHasOneOrder) {
  const MemberOrder order({{List{0, 1, 2}}}, {false, true, false}, 1000);
  for (const List& good : {List{1}, List{0, 1}, List{1, 2}, List{0, 1, 2}}) EXPECT_TRUE(admits(order, good));
  for (const List& bad : {List{}, List{0}, List{0, 2}, List{1, 0}, List{2, 1}, List{1, 1}}) {
    EXPECT_FALSE(admits(order, bad));
  }
}

TEST(MemberOrder, TwoListsInterleaveAndKeepTheirOwnOrder) {
  const MemberOrder order = optional({{0, 1}, {2, 3}}, 4);
  for (const List& good : {List{0, 1, 2, 3}, List{2, 3, 0, 1}, List{0, 2, 1, 3}, List{3, 1}, List{2, 0}}) {
    EXPECT_TRUE(admits(order, good));
  }
  for (const List& bad : {List{1, 0}, List{3, 2}, List{1, 2, 0}, List{0, 3, 2, 1}, List{2, 2}}) {
    EXPECT_FALSE(admits(order, bad));
  }
}

TEST(MemberOrder, AMemberOfTwoListsStandsInTheOrderOfBoth) {
  const MemberOrder order = optional({{0, 1, 2}, {3, 1, 4}}, 5);
  EXPECT_TRUE(admits(order, {3, 0, 1, 4, 2}));
  EXPECT_FALSE(admits(order, {0, 1, 3}));
  EXPECT_FALSE(admits(order, {4, 1}));
  EXPECT_FALSE(admits(order, {1, 1}));
  // A list that is part of another one says nothing new.
  EXPECT_EQ(optional({{0, 2}, {0, 1, 2}, {1}}, 3).lists(), 1);
  EXPECT_TRUE(admits(optional({{0, 1}, {0, 2, 1}}, 3), {0, 2, 1}));
}

TEST(MemberOrder, ContradictingListsHaveTheOrderOfTheFirst) {
  const MemberOrder order({{List{0, 1}, List{1, 2, 0}}}, {true, true, true}, 1000);
  EXPECT_TRUE(admits(order, {0, 1, 2}));
  EXPECT_TRUE(admits(order, {2, 0, 1}));
  EXPECT_FALSE(admits(order, {1, 2, 0}));
}

TEST(MemberOrder, RequiredMembersOfEveryListAreAskedFor) {
  const MemberOrder order({{List{0, 1}, List{2, 1, 3}}}, {false, true, true, false}, 1000);
  EXPECT_TRUE(admits(order, {2, 1}));
  EXPECT_TRUE(admits(order, {2, 0, 1, 3}));
  EXPECT_FALSE(admits(order, {0, 1}));
  EXPECT_FALSE(admits(order, {2, 3}));
  EXPECT_FALSE(admits(order, {1, 2}));
}

TEST(MemberOrder, TooManyPlacesJoinListsInTheOrderOfReading) {
  const std::vector<List> lists = {{0, 2}, {1, 2, 3}, {4, 5}};
  const MemberOrder all = optional(lists, 6, 1000), one = optional(lists, 6, 1), two = optional(lists, 6, 30);
  EXPECT_EQ(all.lists(), 3);
  EXPECT_EQ(one.lists(), 1);
  EXPECT_EQ(two.lists(), 2);
  for (const MemberOrder* order : {&all, &one, &two}) {
    EXPECT_TRUE(admits(*order, {0, 1, 2, 3, 4, 5}));
    EXPECT_FALSE(admits(*order, {2, 1}));
    EXPECT_FALSE(admits(*order, {5, 4}));
  }
  EXPECT_TRUE(admits(all, {4, 1, 0, 5}));
  EXPECT_FALSE(admits(one, {1, 0}));
}

TEST(MemberOrder, ManyListsCostLittle) {
  std::vector<List> lists;
  for (std::uint32_t i = 0; i < 20'000; ++i) lists.push_back({i, (i * 7 + 3) % 20'000});
  const MemberOrder order = optional(lists, 20'000, 256);
  EXPECT_LE(order.places(), 256 * 80);  // one list of all, if not fewer
}

void expect(const std::string& schema, const Texts& admitted, const Texts& rejected) {
  const testing::CompiledSchema compiled(schema);
  ASSERT_EQ(compiled.error(), "") << schema;
  for (const std::string& text : admitted) EXPECT_TRUE(compiled.admits(text)) << schema << "\n" << text;
  for (const std::string& text : rejected) EXPECT_FALSE(compiled.admits(text)) << schema << "\n" << text;
}

TEST(JsonSchemaOrder, PropertiesOfMergedSchemasInterleave) {
  const std::string a = R"("properties": {"a": {}, "b": {}}, "required": ["a"])",
                    c = R"("properties": {"c": {}, "d": {}})";
  const Texts good = {R"({"a": 1, "b": 1, "c": 1, "d": 1})", R"({"c": 1, "a": 1, "d": 1, "b": 1})", R"({"a": 1})",
                      R"({"d": 1, "a": 1})"},
              bad = {R"({"b": 1, "a": 1})", R"({"a": 1, "d": 1, "c": 1})", R"({"c": 1, "d": 1})",
                     R"({"a": 1, "c": 1, "a": 1})"};
  expect("{\"type\": \"object\", \"allOf\": [{" + a + "}, {" + c + "}]}", good, bad);
  expect("{\"type\": \"object\", \"allOf\": [{" + c + "}], " + a + "}", good, bad);
  expect("{\"type\": \"object\", \"$ref\": \"#/$defs/c\", " + a + ", \"$defs\": {\"c\": {" + c + "}}}", good, bad);
  expect("{\"type\": \"object\", \"anyOf\": [{" + c + "}], " + a + "}", good, bad);
}

TEST(JsonSchemaOrder, WhatAConditionAddsInterleaves) {
  expect(R"({"type": "object", "properties": {"kind": {"enum": ["x", "y"]}, "name": {}}, "required": ["kind"],
             "if": {"properties": {"kind": {"const": "x"}}}, "then": {"properties": {"size": {}}, "required": ["size"]},
             "additionalProperties": {}})",
         {R"({"kind": "x", "name": 1, "size": 1})", R"({"kind": "x", "size": 1, "name": 1})",
          R"({"size": 1, "kind": "x"})", R"({"kind": "y", "name": 1})"},
         {R"({"name": 1, "kind": "x", "size": 1})", R"({"kind": "x", "name": 1})"});
}

TEST(JsonSchemaOrder, ABranchThatNamesThePropertiesAgainLeavesTheirOrder) {
  expect(R"({"type": "object", "additionalProperties": false,
             "oneOf": [{"properties": {"a": {"const": 1}, "c": {"const": 1}}, "required": ["a"]},
                       {"properties": {"a": {"const": 2}, "c": {"const": 2}}, "required": ["a"]}],
             "properties": {"a": {}, "b": {}, "c": {}}})",
         {R"({"a": 1, "b": 0, "c": 1})", R"({"a": 2, "c": 2})"},
         {R"({"a": 1, "c": 1, "b": 0})", R"({"b": 1, "a": 1})", R"({"a": 1, "c": 2})"});
}

TEST(JsonSchemaOrder, RequiredNamesWithoutASchemaComeAnywhereInTheirOwnOrder) {
  expect(R"({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["y", "b", "z"]})",
         {R"({"y": 1, "a": 1, "b": 1, "z": 1})", R"({"a": 1, "b": 1, "y": 1, "z": 1})", R"({"y": 1, "z": 1, "b": 1})"},
         {R"({"z": 1, "y": 1, "b": 1})", R"({"y": 1, "b": 1, "a": 1, "z": 1})", R"({"y": 1, "b": 1})"});
}

TEST(JsonSchemaOrder, AdditionalMembersComeBetweenOptionalOnesAndBehindRequiredOnes) {
  const std::string schema = R"({"type": "object", "properties": {"r": {"type": "integer"}, "a": {"type": "integer"},
                                 "b": {"type": "integer"}}, "required": ["r"], "additionalProperties": {"type": "null"}})";
  expect(schema,
         {R"({"r": 1, "x": null, "a": 1, "y": null, "z": null, "b": 1})", R"({"r": 1, "x": null})",
          R"({"r": 1, "a": 1, "b": 1, "x": null})", R"({"r": 1, "x": null, "b": 1})"},
         {R"({"x": null, "r": 1})", R"({"r": 1, "x": null, "r": 1})", R"({"r": 1, "x": null, "a": null})",
          R"({"r": 1, "a": 1, "x": null, "a": 1})", R"({"r": 1, "b": 1, "x": null, "a": 1})", R"({"r": 1, "x": 1})",
          R"({"r": 1, "x": null, })"});
  expect(R"({"type": "object", "patternProperties": {"^/": {"type": "null"}}, "properties": {"order": {}},
             "additionalProperties": false})",
         {R"({"/a": null, "order": 1, "/b": null})", R"({"order": 1})"},
         {R"({"/a": null, "order": 1, "order": 1})", R"({"a": null, "order": 1})"});
}

// What must be written first is still the only way to go on.
TEST(JsonSchemaOrder, ARequiredPropertyIsForced) {
  const testing::CompiledSchema compiled(
      R"({"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]})",
      {.compact = true});
  ASSERT_EQ(compiled.error(), "");
  for (const char* wrong : {"{}", "{\"b", "{\"an\""}) EXPECT_FALSE(compiled.admits(wrong));
  Matcher matcher = compiled.matcher();
  EXPECT_EQ(matcher.accept_bytes("{\"x"), 2);
}

TEST(JsonSchemaOrder, CountedObjectsHaveTheOrderOfReadingAndAdditionalMembersLast) {
  const std::string counted = R"("properties": {"a": {}, "b": {}}, "maxProperties": 2})";
  expect("{\"type\": \"object\", " + counted, {R"({"a": 1, "b": 1})", R"({"b": 1, "x": 1})", R"({"x": 1, "y": 1})"},
         {R"({"a": 1, "b": 1, "x": 1})", R"({"x": 1, "b": 1})", R"({"b": 1, "a": 1})"});
  expect("{\"type\": \"object\", \"allOf\": [{\"properties\": {\"c\": {}}}], " + counted,
         {R"({"c": 1, "a": 1})", R"({"c": 1, "x": 1})"}, {R"({"c": 1, "a": 1, "b": 1})", R"({"a": 1, "c": 1})"});
}

TEST(JsonSchemaOrder, LargeMergedObjectsStayInTheOrderOfReading) {
  std::string lists[2];
  for (int i = 0; i < 100; ++i) {
    for (int which : {0, 1}) lists[which] += fmt::format("{}\"{}{}\": {{}}", i == 0 ? "" : ", ", "ab"[which], i);
  }
  expect("{\"type\": \"object\", \"allOf\": [{\"properties\": {" + lists[0] + "}}, {\"properties\": {" + lists[1] +
             "}}], \"additionalProperties\": {}}",
         {R"({"a0": 1, "a99": 1, "b0": 1, "b99": 1})"}, {R"({"b0": 1, "a0": 1})", R"({"a1": 1, "a0": 1})"});
}

TEST(JsonSchemaOrder, KeywordsHoldFromTheirDraftOn) {
  const auto draft = [](int number, const std::string& rest) {
    return fmt::format(R"({{"$schema": "http://json-schema.org/draft-0{}/schema#", {}}})", number, rest);
  };
  const std::string condition = R"("if": {"type": "integer"}, "then": {"minimum": 5})";
  expect(draft(7, condition), {"5"}, {"4"});
  expect(draft(6, condition), {"5", "4"}, {});
  for (const char* keyword : {R"("const": [1])", R"("contains": {"const": 1})",
                              R"("propertyNames": {"const": "a"}, "items": {"minimum": 1})"}) {
    expect(draft(6, keyword), {"[1]"}, {"[0]"});
  }
  expect(draft(4, R"("const": [1])"), {"[1]", "0"}, {});
  expect(draft(4, R"("contains": {"type": "null"}, "propertyNames": {"maxLength": 1})"), {"[1]", R"({"ab": 1})"}, {});
  expect(draft(7, R"("dependentRequired": {"a": ["b"]}, "properties": {"a": {}})"), {R"({"a": 1})"}, {});
}

}  // namespace
}  // namespace quire::grammar

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/grammar/json_schema_document.h"
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

TEST(JsonSchemaReferences, PointersAnchorsAndNamesLeadToTheirParts) {
  const Texts good = {"[1]"}, bad = {"[\"\"]"};
  expect(R"({"items": {"$ref": "#/$defs/a~1b%20c"}, "type": "array", "$defs": {"a/b c": {"type": "integer"}}})", good,
         bad);
  expect(R"({"items": {"$ref": "#/definitions/x/allOf/0"}, "type": "array",
             "definitions": {"x": {"allOf": [{"type": "integer"}]}}})",
         good, bad);
  expect(R"({"items": {"$ref": "#num"}, "type": "array", "$defs": {"x": {"$anchor": "num", "type": "integer"}}})", good,
         bad);
  expect(R"({"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$ref": "#num"}, "type": "array",
             "definitions": {"x": {"$id": "#num", "type": "integer"}}})",
         good, bad);
  expect(R"({"$id": "http://a.example/root.json", "items": {"$ref": "parts/num.json"}, "type": "array",
             "$defs": {"x": {"$id": "http://a.example/parts/num.json", "type": "integer"}}})",
         good, bad);
  // Inside a part with a name, pointers count from there.
  expect(R"({"type": "array", "items": {"$ref": "part"}, "$defs": {"n": {"type": "string"},
             "x": {"$id": "part", "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}}})",
         good, bad);
}

TEST(JsonSchemaReferences, RecursionIsFollowedAsDeepAsTheTextGoes) {
  expect(R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "additionalProperties": false,
             "properties": {"v": {"type": "integer"}, "left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}},
             "required": ["v"]}}})",
         {R"({"v": 1})", R"({"v": 1, "left": {"v": 2, "right": {"v": 3}}, "right": {"v": 4}})"},
         {R"({"v": 1, "left": {}})", R"({"v": 1, "left": {"v": 2, "right": {"v": "3"}}})"});
  expect(R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[], [[[]]]]"}, {"[1]", "[[1]]"});
}

TEST(JsonSchemaReferences, SiblingsOfARefHoldFrom2019OnAndNotBefore) {
  const std::string schema = R"("properties": {"a": {"$ref": "#/definitions/n", "minimum": 5}}, "type": "object",
                                "definitions": {"n": {"type": "integer"}}})";
  expect("{" + schema, {R"({"a": 5})"}, {R"({"a": 4})", R"({"a": ""})"});
  expect(R"({"$schema": "http://json-schema.org/draft-07/schema#", )" + schema, {R"({"a": 5})", R"({"a": 4})"},
         {R"({"a": ""})"});
}

TEST(JsonSchemaReferences, WhatLeadsNowhereIsAnError) {
  EXPECT_EQ(CompiledSchema(R"({"$ref": "#/$defs/x"})").error(), "#/$ref: there is no #/$defs/x in the schema");
  EXPECT_EQ(CompiledSchema(R"({"properties": {"a": {"$ref": "#x"}}})").error(),
            "#/properties/a/$ref: there is no anchor #x in the schema");
  EXPECT_EQ(CompiledSchema(R"({"$ref": "http://a.example/b"})").error(),
            "#/$ref: http://a.example/b is another document, and only the schema itself is looked into");
  EXPECT_EQ(CompiledSchema(R"({"$ref": "#"})").error(), "#: the schema refers to itself");
  EXPECT_EQ(CompiledSchema(R"({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]},
                                         "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})")
                .error(),
            "#/$defs/a: the schema refers to itself");
  EXPECT_EQ(CompiledSchema(R"({"$dynamicRef": "#n", "$defs": {"x": {"$dynamicAnchor": "n"}}})").error(),
            "#/$dynamicRef: cannot be enforced");
  // A value that would have to contain itself.
  EXPECT_NE(CompiledSchema(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})").error(), "");
}

TEST(JsonSchemaReferences, RelativeReferencesAreResolvedAgainstTheirBase) {
  EXPECT_EQ(resolve_uri("http://a/b/c/d", "g"), "http://a/b/c/g");
  EXPECT_EQ(resolve_uri("http://a/b/c/d", "./g/"), "http://a/b/c/g/");
  EXPECT_EQ(resolve_uri("http://a/b/c/d", "../../g"), "http://a/g");
  EXPECT_EQ(resolve_uri("http://a/b/c/d", "/g"), "http://a/g");
  EXPECT_EQ(resolve_uri("http://a/b/c/d", "//h/g"), "http://h/g");
  EXPECT_EQ(resolve_uri("http://a/b/c/d", "urn:x"), "urn:x");
  EXPECT_EQ(resolve_uri("", "x/y"), "x/y");
}

}  // namespace
}  // namespace quire::grammar

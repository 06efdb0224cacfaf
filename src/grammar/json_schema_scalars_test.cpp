#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/grammar/json_schema_numbers.h"
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

void expect_format(const std::string& name, const Texts& good, const Texts& bad) {
  const CompiledSchema compiled(fmt::format(R"({{"type": "string", "format": "{}"}})", name));
  const CompiledSchema negated(fmt::format(R"({{"type": "string", "not": {{"format": "{}"}}}})", name));
  ASSERT_EQ(compiled.error() + negated.error(), "");
  for (const std::string& text : good) {
    EXPECT_TRUE(compiled.admits("\"" + text + "\"")) << name << ": " << text;
    EXPECT_FALSE(negated.admits("\"" + text + "\"")) << name << ": " << text;
  }
  for (const std::string& text : bad) {
    EXPECT_FALSE(compiled.admits("\"" + text + "\"")) << name << ": " << text;
    EXPECT_TRUE(negated.admits("\"" + text + "\"")) << name << ": " << text;
  }
}

TEST(JsonSchemaScalars, EnumAndConstAreWrittenInOneSpelling) {
  expect(R"({"enum": ["a", 1, null, {"k": [1, 2]}, "q\"\n"]})",
         {"\"a\"", "1", "null", R"({"k": [1, 2]})", R"({"k":[1,2]})", R"("q\"\n")"},
         {"\"b\"", R"("\u0061")", "2", "{}"});
  expect(R"({"const": 2.5})", {"2.5"}, {"2", "2.50"});
  // Other keywords choose among the values.
  expect(R"({"enum": ["a", "bb", 3, {"x": 1}, {"x": ""}], "type": ["string", "object"], "minLength": 2,
             "properties": {"x": {"type": "integer"}}})",
         {"\"bb\"", R"({"x": 1})"}, {"\"a\"", "3", R"({"x": ""})"});
  EXPECT_EQ(CompiledSchema(R"({"enum": [1, 2], "type": "string"})").error(), "#: no value fits the schema");
}

TEST(JsonSchemaScalars, ANumberThatIsNoneInJsonIsRefused) {
  EXPECT_EQ(CompiledSchema(R"({"enum": [1e400]})").error(), "#/enum: a number is too large");
  EXPECT_EQ(CompiledSchema(R"({"enum": ["a", {"k": [-1e400]}]})").error(), "#/enum: a number is too large");
  EXPECT_EQ(CompiledSchema(R"({"properties": {"a": {"const": 1e400}}})").error(),
            "#/properties/a/const: a number is too large");
  EXPECT_EQ(CompiledSchema(R"({"type": "number", "not": {"const": 1e400}})").error(),
            "#/not/const: a number is too large");
  expect(R"({"enum": [1e300]})", {"1e+300"}, {"inf"});
}

TEST(JsonSchemaScalars, LengthsCountCharactersNotBytesOrEscapes) {
  expect(R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {"\"ab\"", "\"\u00e9\u00e9\u00e9\"", R"("\n\u00e9\\")", "\"\U0001F600\U0001F600\"", R"("\ud83d\ude00x")"},
         {"\"a\"", "\"abcd\"", R"("\ud83d\ude00")"});
  expect(R"({"type": "string", "maxLength": 0})", {"\"\""}, {"\"a\""});
}

TEST(JsonSchemaScalars, PatternMatchesAnywhereAndTogetherWithLengthsAndFormats) {
  expect(R"({"type": "string", "pattern": "b+c"})", {"\"bc\"", "\"abbcd\"", R"("\u0062c")"}, {"\"b\"", "\"\""});
  expect(R"({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3})", {"\"abc\""}, {"\"abcd\"", "\"aB\"", "\"\""});
  expect(R"({"type": "string", "pattern": "^2024", "format": "date"})", {"\"2024-02-29\""},
         {"\"2023-01-01\"", "\"2024\""});
  EXPECT_EQ(CompiledSchema(R"({"type": "string", "pattern": "^a{5}$", "maxLength": 3})").error(),
            "#: no value fits the schema");
  EXPECT_TRUE(CompiledSchema(R"({"type": "string", "pattern": "("})").error().starts_with("#/pattern: "));
}

TEST(JsonSchemaScalars, DigitsComeToAnEnd) {
  const std::string sixty(60, '7'), hundred(100, '7');
  expect(R"({"type": "integer"})", {sixty, "-" + sixty}, {hundred, "-" + hundred});
  expect(R"({"type": "number"})", {sixty + "." + sixty, "1e308"}, {hundred, "0." + hundred, "1e1000"});
  expect(R"({"type": "integer", "minimum": 12})", {sixty}, {hundred});
}

TEST(JsonSchemaScalars, IntegerRangesAreExact) {
  for (const auto& [least, most] :
       std::vector<std::pair<int, int>>{{-123, 45}, {0, 0}, {7, 1003}, {-50, -7}, {99, 100}}) {
    const CompiledSchema compiled(fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", least, most));
    ASSERT_EQ(compiled.error(), "");
    for (int i = -1100; i <= 1100; ++i) {
      EXPECT_EQ(compiled.admits(std::to_string(i)), i >= least && i <= most) << i << " in " << least << " " << most;
    }
  }
  expect(R"({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6})", {"4", "5"}, {"3", "6"});
  expect(R"({"type": "integer", "minimum": 3, "exclusiveMinimum": true})", {"4"}, {"3"});
  expect(R"({"type": "integer", "minimum": 1.5})", {"2", "15"}, {"1", "-2"});
  expect(R"({"type": "integer", "maximum": 18446744073709551615})", {"18446744073709551615"}, {"18446744073709551616"});
}

TEST(JsonSchemaScalars, AnIntegerHasAZeroFractionOnlyIfTheSchemasDraftSaysSo) {
  expect(R"({"type": "integer"})", {"1"}, {"1.0"});
  expect(R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"})", {"1"}, {"1.0"});
  const std::string draft = R"({"$schema": "https://json-schema.org/draft/2020-12/schema", )";
  expect(draft + R"("type": "integer", "maximum": 10})", {"1", "1.0", "10.0"}, {"1.5", "11.0", "1."});
  expect(draft + R"("const": 3})", {"3", "3.0"}, {"3.5"});
}

TEST(JsonSchemaScalars, NumberRangesAreExactInDecimalDigits) {
  expect(R"({"type": "number", "minimum": -1.25, "maximum": 10})",
         {"-1.25", "-1.2499", "-1.250", "0", "-0.5", "9.999", "10", "10.0", "10.000"},
         {"-1.251", "-2", "10.01", "11", "100", "1e0"});
  expect(R"({"type": "number", "exclusiveMinimum": 0})", {"0.001", "5"}, {"0", "0.0", "-1"});
  expect(R"({"type": "number", "minimum": 0})", {"0", "1.5e-7", "3E5"}, {"-1", "-1e-9"});
  expect(R"({"type": "number", "exclusiveMaximum": 0.1})", {"0.09", "0", "-5"}, {"0.1", "0.10", "0.11", "1"});
}

TEST(JsonSchemaScalars, MultiplesAreWholeDivisions) {
  for (const int of : {1, 2, 3, 4, 5, 7, 8, 10, 11, 12, 16, 25, 60}) {
    const CompiledSchema compiled(fmt::format(R"({{"type": "integer", "multipleOf": {}}})", of));
    ASSERT_EQ(compiled.error(), "") << of;
    for (int i = -600; i <= 600; ++i) EXPECT_EQ(compiled.admits(std::to_string(i)), i % of == 0) << i << " by " << of;
  }
  expect(R"({"type": "number", "multipleOf": 0.01})", {"1", "1.5", "1.25", "1.250", "-0.07"}, {"1.255", "1.2501"});
  expect(R"({"type": "number", "multipleOf": 0.25})", {"1", "1.5", "1.25", "0.75", "2.00"}, {"1.2", "1.3", "0.05"});
  expect(R"({"type": "number", "multipleOf": 2.5, "minimum": 0})", {"0", "2.5", "5", "7.5", "10.0"},
         {"2", "6", "-2.5"});
  EXPECT_EQ(CompiledSchema(R"({"type": "integer", "multipleOf": 1009})").error(), "#/multipleOf: cannot be enforced");
}

TEST(JsonSchemaScalars, WhatMustNotBeAMultipleIsNone) {
  for (const int of : {78125, 390625, 9765625}) {
    const CompiledSchema multiple(fmt::format(R"({{"type": "integer", "multipleOf": {}}})", of));
    const CompiledSchema none(fmt::format(R"({{"type": "integer", "not": {{"multipleOf": {}}}}})", of));
    ASSERT_EQ(multiple.error() + none.error(), "") << of;
    for (const int times : {0, 1, 2, 511, 1000, 1023, 1024, -3}) {
      EXPECT_TRUE(multiple.admits(std::to_string(std::int64_t{of} * times))) << of << " " << times;
      EXPECT_FALSE(none.admits(std::to_string(std::int64_t{of} * times))) << of << " " << times;
      EXPECT_FALSE(multiple.admits(std::to_string(std::int64_t{of} * times + 5))) << of << " " << times;
      EXPECT_TRUE(none.admits(std::to_string(std::int64_t{of} * times + 5))) << of << " " << times;
    }
  }
  // However many digits it has.
  for (const std::size_t digits : {63U, 64U, 65U, 66U, 67U}) {
    for (const char* sign : {"", "-"}) {
      const std::string even = sign + std::string(digits - 1, '7') + "2";
      expect(R"({"type": "number", "maximum": 0, "not": {"multipleOf": 2}})", {}, {even});
      expect(R"({"type": "number", "minimum": 3, "not": {"multipleOf": 4}})", {}, {even});
    }
  }
}

TEST(JsonSchemaScalars, FewMultiplesBetweenBoundsAreAnyNumbers) {
  const std::string sixteen = R"("type": "integer", "minimum": -2032, "maximum": 2031, "multipleOf": 16)";
  expect("{" + sixteen + "}", {"-2032", "-16", "0", "16", "2016"}, {"-2048", "2032", "8", "15", "17", "-0.5", "0160"});
  expect("{\"$schema\": \"http://json-schema.org/draft-07/schema#\", " + sixteen + "}", {"16", "16.0", "-2032.0"},
         {"16.5", "8.0"});
  expect(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 2018.5, "multipleOf": 1009})",
         {"1009", "2018", "1009.0"}, {"0", "-1009", "3027", "1010", "504.5"});
}

TEST(JsonSchemaScalars, DatesHaveTheDaysOfTheirMonths) {
  expect_format("date", {"2024-02-29", "2000-02-29", "1999-12-31"},
                {"2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "24-01-01", "2024-1-1"});
  expect_format("time", {"08:30:06Z", "23:59:60Z", "15:59:60-08:00", "08:30:06.283+00:20"},
                {"22:59:60Z", "24:00:00Z", "08:30:06", "08:30:06+24:00"});
  expect_format("date-time", {"1963-06-19T08:30:06.283185Z", "1963-06-19t08:30:06z"},
                {"1963-06-19", "1990-02-31T15:59:59Z"});
  expect_format("duration", {"P4DT12H30M5S", "P2W", "PT0S"}, {"P", "P1YT", "P2D1Y", "P1Y2D"});
}

TEST(JsonSchemaScalars, AddressesFollowTheirGrammars) {
  expect_format("ipv4", {"127.0.0.1", "255.255.255.255"}, {"256.0.0.1", "1.2.3", "01.2.3.4"});
  expect_format("ipv6", {"::1", "::", "1:2:3:4:5:6:7:8", "1::d6:192.168.0.1"}, {"12345::", "1::2::3", "1:2:3:4:5:6:7"});
  expect_format("hostname", {"www.example.com", "a--b.com"}, {"-a", "a-", "a..b", "host_name", std::string(64, 'a')});
  expect_format("email", {"joe@example.com", R"(\"joe bloggs\"@example.com)", "joe@[127.0.0.1]"},
                {"2962", ".a@b", "a@b@c"});
  expect_format("uri", {"http://foo.bar/?baz=qux#quux", "urn:a:b", "mailto:a@b.c", "ldap://[2001:db8::7]/c=GB?one"},
                {"//foo.bar/", "abc", "http:// x", "bar,baz:foo", "http://a/%6G"});
  expect_format("uri-reference", {"/abc", "#f", "", "http://a"}, {"a b", "1:b"});
  expect_format("iri", {"http://\u0192\u00f8\u00f8.\u00df\u00e5r/?q"}, {"/abc"});
  expect_format("uri-template", {"http://a/{term:1}/{+x,y*}"}, {"{", "{}"});
  expect_format("uuid", {"2eb8aa08-AA98-11ea-b4aa-73b441d16380"}, {"2eb8aa08aa9811eab4aa73b441d16380"});
  expect_format("json-pointer", {"", "/a~0b/~1"}, {"a", "/~2"});
  expect_format("relative-json-pointer", {"0#", "1/a"}, {"/a", "01"});
}

// Readers do not agree about these texts. They are never written: not as the format, and not as something else.
TEST(JsonSchemaScalars, TextsThatMayBeOfAFormatAreNotWrittenWhereItIsExcluded) {
  const std::vector<std::pair<std::string, Texts>> all = {
      {"date", {"0000-01-01", "0000-02-29"}},
      {"time", {"00:06:60+00:07", "23:52:60-00:07"}},
      {"date-time", {"0000-01-01T00:00:00Z", "2024-01-01T00:06:60+00:07"}},
      {"hostname", {"xn--nxasmq6b.com", "ab--c"}},
      {"email", {"joe@[tag:content]"}},
      {"duration", {"p1d"}},
      {"relative-json-pointer", {"0+1/a"}}};
  for (const auto& [format, texts] : all) {
    const std::string schema = fmt::format(R"({{"type": "string", "format": "{}"}})", format);
    const CompiledSchema plain(schema), negated(fmt::format(R"({{"type": "string", "not": {}}})", schema)),
        choice(fmt::format(R"({{"oneOf": [{}, {{"type": "string"}}]}})", schema)),
        condition(fmt::format(R"({{"type": "string", "if": {}, "then": {{"maxLength": 0}}}})", schema));
    ASSERT_EQ(plain.error() + negated.error() + choice.error() + condition.error(), "") << format;
    for (const std::string& text : texts) {
      for (const CompiledSchema* one : {&plain, &negated, &choice, &condition}) {
        EXPECT_FALSE(one->admits("\"" + text + "\"")) << format << " " << text;
      }
    }
    EXPECT_TRUE(choice.admits("\"none of them\"")) << format;
    // No proof may build on what is left out: the branches are not disjoint.
    std::string only;
    for (const char c : texts[0]) only += fmt::format("\\\\u{:04x}", static_cast<unsigned>(c));
    const CompiledSchema overlap(
        fmt::format(R"({{"oneOf": [{}, {{"type": "string", "pattern": "^({}|other)$"}}]}})", schema, only));
    ASSERT_EQ(overlap.error(), "") << format;
    EXPECT_TRUE(overlap.admits("\"other\"") || format == "hostname") << format;
    EXPECT_FALSE(overlap.admits("\"" + texts[0] + "\"")) << format;
    EXPECT_EQ(CompiledSchema(fmt::format(R"({{"enum": ["a b", "{}"], "format": "{}"}})", texts[0], format)).error(),
              fmt::format("#/format: not every reader agrees whether \"{}\" is one", texts[0]));
  }
}

TEST(JsonSchemaScalars, DecimalsAreWhatTheTextSays) {
  const auto text = [](double number) { return to_text(*decimal(boost::json::value(number))); };
  EXPECT_EQ(text(0.01), "0.01");
  EXPECT_EQ(text(-1.5e-7), "-0.00000015");
  EXPECT_EQ(text(1e21), "1000000000000000000000");
  EXPECT_EQ(text(123.456), "123.456");
  EXPECT_EQ(to_text(*decimal(boost::json::value(INT64_MIN))), "-9223372036854775808");
}

}  // namespace
}  // namespace quire::grammar

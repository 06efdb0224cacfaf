// A template is untrusted data. Whatever it does, rendering ends soon, in bounded memory, with an error that says why.
#include <algorithm>
#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/jinja/template.h"
#include "quire/jinja/template_testing.h"

namespace quire::jinja {
namespace {

using testing::failure;
using testing::fixed_options;
using ::testing::HasSubstr;
using testing::render;
using testing::try_render;
using Kind = TemplateError::Kind;

std::string times(int count, std::string_view text) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

void expect_limit(std::string_view source, std::string_view reason) {
  SCOPED_TRACE(source.substr(0, 200));
  const auto start = std::chrono::steady_clock::now();
  const TemplateError error = failure(source);
  EXPECT_EQ(error.kind, Kind::limit) << error.message;
  EXPECT_THAT(error.message, HasSubstr(reason));
  // About a second. The rest is for sanitizers and a busy machine.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(TemplateLimits, LoopsWithoutEndRunOutOfSteps) {
  const std::string nested = times(3, "{% for i in range(100000) %}");
  expect_limit(nested + times(3, "{% endfor %}"), "too many steps");
  expect_limit(nested + "{{ i * 2 }}" + times(3, "{% endfor %}"), "too many steps");
  expect_limit("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
               "too many steps");
}

TEST(TemplateLimits, RangesAreBoundedAsInJinja2) {
  EXPECT_THAT(failure("{% for i in range(10**12) %}{% endfor %}").message, HasSubstr("Range too big"));
  EXPECT_EQ(render("{{ range(100000) | length }}"), "100000");
}

TEST(TemplateLimits, RecursionEnds) {
  expect_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recurses too deeply");
  expect_limit("{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}", "recurses too deeply");
  expect_limit("{{ 'abc' | map(*(['map'] * 2000)) | list }}", "recurses too deeply");
  expect_limit("{% macro f() %}" + times(80, "{% for a in [1] %}") + "{{ f() }}" + times(80, "{% endfor %}") +
                   "{% endmacro %}{{ f() }}",
               "recurses too deeply");
}

TEST(TemplateLimits, TextsDoNotGrowWithoutEnd) {
  expect_limit("{{ 'a' * 10**9 }}", "too long a text");
  expect_limit("{{ 'a' * 10**30 }}", "too long a text");
  expect_limit("{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
               "too long a text");
  expect_limit("{{ ('a' * 1000000) | replace('a', 'b' * 1000) }}", "too long a text");
  expect_limit("{{ '%999999999d' % 1 }}", "too long a text");
  expect_limit("{% for i in range(100000) %}{{ 'a' * 1000 }}{% endfor %}", "too long a text");
}

TEST(TemplateLimits, ListsDoNotGrowWithoutEnd) {
  expect_limit("{{ [0] * 10**9 }}", "too");
  expect_limit(
      "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = ns.l + ['a' * 1000] %}{% endfor %}",
      "too");
}

TEST(TemplateLimits, ValuesDoNotNestWithoutEnd) {
  expect_limit("{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor %}",
               "nested too deeply");
  boost::json::value deep = nullptr;
  for (int i = 0; i < 1000; ++i) deep = boost::json::array({std::move(deep)});
  const auto result = try_render("{{ x }}", {{"x", std::move(deep)}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, Kind::limit);
}

TEST(TemplateLimits, SourcesDoNotNestWithoutEnd) {
  expect_limit("{{ " + times(20000, "(") + "1" + times(20000, ")") + " }}", "nested too deeply");
  expect_limit("{{ " + times(20000, "-") + "1 }}", "nested too deeply");
  expect_limit("{{ " + times(20000, "not ") + "1 }}", "nested too deeply");
  expect_limit("{{ 1" + times(20000, " if 1 else 1") + " }}", "nested too deeply");
  expect_limit(times(20000, "{% if 1 %}"), "nested too deeply");
  expect_limit("{{ 1" + times(20000, "+1") + " }}", "too long");
  expect_limit("{{ x" + times(20000, ".y") + " }}", "too long");
  expect_limit("{{ x" + times(20000, "|upper") + " }}", "too long");
  EXPECT_EQ(render("{{ ''" + times(20000, "~'b'") + " }}").size(), 20000u);  // long, but not deep
}

TEST(TemplateLimits, IntegersDoNotWrap) {
  EXPECT_EQ(render("{{ 2 ** 100 }} {{ 18446744073709551615 + 1 }}"),
            "1267650600228229401496703205376 18446744073709551616");
  expect_limit("{{ 2 ** 200 }}", "an integer is too large");
  expect_limit("{{ 10 ** 38 * 10 }}", "an integer is too large");
}

TEST(TemplateLimits, ANamespaceMayContainItself) {
  expect_limit("{% set ns = namespace() %}{% set ns.self = [ns] %}{{ ns }}", "contains itself");
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self == ns }}"), "True");
  EXPECT_EQ(render("{% set ns = namespace(p=none) %}{% for i in range(50000) %}{% set ns.p = namespace(p=ns.p) %}"
                   "{% endfor %}done"),
            "done");
}

TEST(TemplateLimits, MacrosAndLoopsOutliveTheirScopes) {
  EXPECT_EQ(render("{% set ns = namespace(f=none) %}{% for i in [1, 2] %}{% set p = ns.f %}{% macro f() %}{{ i }}"
                   "{{ p() if p }}{% endmacro %}{% set ns.f = f %}{% endfor %}{{ ns.f() }}"),
            "21");
  EXPECT_EQ(render("{% set ns = namespace(l=none) %}{% for i in 'ab' %}{% set ns.l = loop %}"
                   "{% endfor %}{{ ns.l.index }}{{ ns.l.last }}"),
            "2True");
}

TEST(TemplateLimits, SearchingDoesNotTakeTheProductOfTwoSizes) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(render("{% set s = 'a' * 8000000 %}{{ s.find('a' * 4000000 + 'b') }}"), "-1");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  expect_limit("{% set s = 'a' * 8000000 %}{{ s.rfind('b' + 'a' * 4000000) }}", "too many steps");
}

TEST(TemplateLimits, AreTheCallersToSet) {
  RenderOptions options = fixed_options();
  options.max_output_bytes = 10;
  EXPECT_EQ(*try_render("0123456789", {}, options), "0123456789");
  EXPECT_EQ(failure("0123456789a", "{}", options).kind, Kind::limit);
  options = fixed_options();
  options.max_steps = 100;
  EXPECT_EQ(failure("{% for i in range(200) %}{% endfor %}", "{}", options).kind, Kind::limit);
  options.max_steps = 100'000'000;
  EXPECT_EQ(try_render("{% for i in range(3000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}x", {}, options),
            "x");
  options = fixed_options();
  options.max_memory_bytes = 100'000;
  EXPECT_THAT(failure("{{ range(9999) | list | length }}", "{}", options).message, HasSubstr("memory"));
}

TEST(TemplateLimits, MemoryIsGivenBackAsATemplateLetsGoOfIt) {
  RenderOptions options = fixed_options();
  options.max_memory_bytes = 2'000'000;
  // A hundred texts of 100 kB, but only one at a time.
  EXPECT_EQ(*try_render("{% for i in range(100) %}{% set s = 'a' * 100000 %}{% endfor %}x", {}, options), "x");
}

TEST(TemplateLimits, AMegabyteOfConversationIsFarFromThem) {
  boost::json::array messages;
  for (int i = 0; i < 1000; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(1000, 'x')}});
  }
  RenderOptions options = fixed_options();
  options.max_steps /= 10;
  const auto result = try_render(
      "{% for m in messages %}{% set c = m.content.split('</think>')[-1].strip('\\n') %}"
      "{{ '<|' + m.role + '|>' + c | trim + '\\n' }}{% endfor %}",
      {{"messages", std::move(messages)}}, options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->size(), 1000u * 1000 + 500 * (8 + 1) + 500 * (13 + 1));
}

}  // namespace
}  // namespace quire::jinja

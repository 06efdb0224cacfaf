// Expectations that follow from the documentation of Jinja2 and Python. template_fixtures_test.cpp has many more, which
// Jinja2 itself produced.
#include "quire/jinja/template.h"

#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/jinja/template_testing.h"

namespace quire::jinja {
namespace {

using testing::failure;
using testing::fixed_options;
using ::testing::HasSubstr;
using testing::render;
using ::testing::StartsWith;
using testing::try_render;
using Kind = TemplateError::Kind;

constexpr std::string_view kChat = R"({"messages": [
  {"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}],
  "add_generation_prompt": true})";

TEST(Template, TextPassesThroughButForOneLineEndAtTheEnd) {
  EXPECT_EQ(render("a\nb\n"), "a\nb");
  EXPECT_EQ(render("a\n\n"), "a\n");
  EXPECT_EQ(render("a\r\nb\rc"), "a\nb\nc");
  EXPECT_EQ(render(""), "");
}

TEST(Template, ABlockTakesItsIndentationAndItsLineEnd) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc"), "a\n  b\nc");
  EXPECT_EQ(render("a {% if true %}b{% endif %} c"), "a b c");
}

TEST(Template, AVariableKeepsTheWhiteSpaceAroundIt) { EXPECT_EQ(render("  {{ 1 }}\n  {{ 2 }}\n"), "  1\n  2"); }

TEST(Template, MinusStripsAndPlusKeeps) {
  EXPECT_EQ(render("a \n {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(render("a \n {%- if true -%} \n b {%- endif %}"), "ab");
  EXPECT_EQ(render("  {%+ if true +%}\n b{% endif %}"), "  \n b");
}

TEST(Template, CommentsAndRawBlocksAreNotRead) {
  EXPECT_EQ(render("a{# {{ nonsense #}b"), "ab");
  EXPECT_EQ(render("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
}

TEST(Template, ChatMlOfTheDemoModels) {
  const std::string_view source =
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor "
      "%}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  EXPECT_EQ(render(source, kChat),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(Template, ArithmeticIsPythons) {
  EXPECT_EQ(render("{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}"),
            "-4 2 -2 3.5 2.0 1024 0.5");
  EXPECT_EQ(render("{{ 'ab' * 2 }} {{ [1] + [2] }} {{ 1 ~ 'a' ~ none }} {{ true + 1 }}"), "abab [1, 2] 1aNone 2");
}

TEST(Template, ConcatenationBindsTighterThanAdditionAndAFilterTighterThanAll) {
  EXPECT_EQ(render("{{ '1' ~ 2 + '3' }}"), "123");
  EXPECT_EQ(render("{{ 'a' + 'b' | upper }}"), "aB");
  EXPECT_EQ(render("{{ -5 | abs }}"), "5");  // of minus five
}

TEST(Template, ComparisonsChain) {
  EXPECT_EQ(render("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' in 'abc' }} {{ 3 not in [1, 2] }}"),
            "True False True True True");
}

TEST(Template, ValuesPrintAsPythonPrintsThem) {
  EXPECT_EQ(render("{{ true }} {{ none }} {{ 1.0 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1e-5 }}"),
            "True None 1.0 1e+16 0.30000000000000004 1e-05");
  EXPECT_EQ(render(R"({{ ['a', "it's", 1.5, none, (1,), {'k': true}] }})"),
            R"(['a', "it's", 1.5, None, (1,), {'k': True}])");
}

TEST(Template, TextIsCountedInCodePoints) {
  EXPECT_EQ(render("{{ s | length }} {{ s[1] }} {{ s[-1] }} {{ s[::-1] }}", R"({"s": "Köln😀"})"), "5 ö 😀 😀nlöK");
}

TEST(Template, AnUndefinedValuePrintsNothingAndFailsWhenUsed) {
  EXPECT_EQ(render("[{{ nope }}][{{ d.nope }}][{{ nope is defined }}]", R"({"d": {}})"), "[][][False]");
  EXPECT_THAT(failure("{{ nope.x }}").message, HasSubstr("'nope' is undefined"));
  EXPECT_THAT(failure("{{ d.nope.x }}", R"({"d": {}})").message, HasSubstr("'dict object' has no attribute 'nope'"));
  EXPECT_THAT(failure("{{ nope + 1 }}").message, HasSubstr("'nope' is undefined"));
}

TEST(Template, AnAttributeIsAMethodFirstAndAnItemIsAKeyFirst) {
  EXPECT_EQ(render("{{ d['items'] }} {{ d.items() | list }}", R"({"d": {"items": 1}})"), "1 [('items', 1)]");
}

TEST(Template, LoopsKnowWhereTheyAre) {
  EXPECT_EQ(render("{% for x in 'abc' %}{{ loop.index }}/{{ loop.length }}{{ '!' if loop.last }} {% endfor %}"),
            "1/3 2/3 3/3! ");
  EXPECT_EQ(render("{% for x in [1, 2, 3, 4] if x is even %}{{ loop.index0 }}:{{ x }} {% endfor %}"), "0:2 1:4 ");
  EXPECT_EQ(render("{% for x in [] %}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}"), "a1");
}

TEST(Template, ALoopsConditionSeesWhatTheBodyDid) {
  EXPECT_EQ(render("{% set ns = namespace(seen=false) %}"
                   "{% for x in [1, 2, 3] if not ns.seen %}{{ x }}{% set ns.seen = x == 2 %}{% endfor %}"),
            "12");
}

TEST(Template, WhatALoopSetsEndsWithTheIterationUnlessItIsInANamespace) {
  EXPECT_EQ(render("{% set x = 0 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"), "120");
  EXPECT_EQ(render("{% set ns = namespace(x=0) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}"),
            "3");
}

TEST(Template, LoopsBreakAndContinue) {
  EXPECT_EQ(render("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}"
                   "{% endif %}{{ i }}{% endfor %}"),
            "02");
}

TEST(Template, MacrosHaveDefaultsNamesAndCallers) {
  EXPECT_EQ(render("{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, b=3) }}"), "12 13");
  EXPECT_EQ(render("{% macro f() %}<{{ caller(1) }}>{% endmacro %}{% call(x) f() %}{{ x + 1 }}{% endcall %}"), "<2>");
  EXPECT_EQ(render("{% macro f(n) %}{{ n }}{% if n > 1 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}"), "321");
}

TEST(Template, GenerationBlocksPrintWhatIsInThem) {
  EXPECT_EQ(render("{% generation %}{{ 1 }}{% endgeneration %}"), "1");
}

TEST(Template, JsonKeepsOrderNumbersAndCharacters) {
  EXPECT_EQ(render("{{ x | tojson }}",
                   R"({"x": {"b": 1, "a": 1.0, "é<": "\"\\\n\u0007", "big": 18446744073709551615, "n": null}})"),
            R"({"b": 1, "a": 1.0, "é<": "\"\\\n\u0007", "big": 18446744073709551615, "n": null})");
  EXPECT_EQ(render("{{ {'a': [1, {}], 'b': []} | tojson(indent=2) }}"),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
  EXPECT_EQ(render("{{ {'b': 'é', 'a': 1} | tojson(sort_keys=true, separators=(',', ':'), ensure_ascii=true) }}"),
            R"({"a":1,"b":"\u00e9"})");
}

TEST(Template, ToolsAndToolResultsPassThrough) {
  EXPECT_EQ(
      render("{% for t in tools %}{{ t.function.name }}{% endfor %}"
             "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
             "{{ m.content if m.role == 'tool' }}{% endfor %}",
             R"({"tools": [{"function": {"name": "f"}}],
                       "messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": {"z": [1, 2.50]}}}]},
                                    {"role": "tool", "content": "{\"r\": 1}"}]})"),
      R"(f{"z": [1, 2.5]}{"r": 1})");
}

TEST(Template, FiltersOverListsAreWalkedOnce) {
  EXPECT_EQ(render("{% set g = [1, 2] | map('string') %}{{ g | list }}{{ g | list }}"), "['1', '2'][]");
  EXPECT_EQ(render("{{ 'yes' if [] | select }}"), "yes");  // a lazy sequence is true even if it is empty
}

TEST(Template, MarkedAsSafeEscapesWhatIsAddedToIt) {
  EXPECT_EQ(render("{{ ('<a>' | safe) + '<b>' }} {{ '<b>' ~ ('<a>' | safe) }}"), "<a>&lt;b&gt; <b><a>");
}

TEST(Template, StringsChangeCaseBeyondAscii) {
  EXPECT_EQ(render("{{ 'straße' | upper }} {{ 'ÉCOLE Σ' | lower }} {{ 'élan vital' | title }} {{ 'ǆ' | capitalize }}"),
            "STRASSE école σ Élan Vital ǅ");
}

TEST(Template, TheClockIsTheCallers) {
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y, %A %H:%M:%S %-d %j%%') }}"), "26 Jul 2024, Friday 13:05:09 26 208%");
  RenderOptions options;
  EXPECT_EQ(*try_render("{{ strftime_now('%Y-%m-%d') }}", {}, options), "1970-01-01");
  options.now = std::chrono::local_days(std::chrono::year(2000) / 2 / 29);
  EXPECT_EQ(*try_render("{{ strftime_now('%F %z|%Z') }}", {}, options), "2000-02-29 |");
}

TEST(Template, LocalNowIsTheWallClock) {
  const auto year = std::chrono::year_month_day(std::chrono::floor<std::chrono::days>(local_now())).year();
  EXPECT_GE(year, std::chrono::year(2024));
}

TEST(TemplateErrors, WhatATemplateRaisesIsToldApartAndKeptWordForWord) {
  const TemplateError error = failure("{{ 'a' }}\n{{ raise_exception('No <system> role,\nplease') }}");
  EXPECT_EQ(error.kind, Kind::raised);
  EXPECT_EQ(error.raised, "No <system> role,\nplease");
  EXPECT_EQ(error.line, 2);
  EXPECT_EQ(error.message, "line 2: the template refuses: No <system> role, please");
}

TEST(TemplateErrors, SayTheLine) {
  EXPECT_EQ(failure("a\nb\n{{ 1 + }}").line, 3);
  EXPECT_EQ(failure("a\n\n{% if x %}").kind, Kind::syntax);
  EXPECT_EQ(failure("{% set x = [\n1,\n2] %}\n{{ x.y.z }}").line, 4);
  EXPECT_EQ(failure("{% macro f() %}\n{{ 1 }}\n{% endmacro %}\n{{ f() + 1 }}").line, 4);
  EXPECT_EQ(failure("{% macro f() %}\n{{ 1 // 0 }}\n{% endmacro %}\n{{ f() }}").line, 2);
  EXPECT_THAT(failure("\n{{ 'a' + 1 }}").message, StartsWith("line 2: can only concatenate str (not \"int\") to str"));
}

TEST(TemplateErrors, AreErrorsToWhoeverDoesNotCare) {
  const Result<std::string> result = try_render("{{ 1 // 0 }}");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "line 1: integer division or modulo by zero");
}

TEST(TemplateErrors, NameWhatIsNotThere) {
  EXPECT_THAT(failure("{{ 1 | nope }}").message, HasSubstr("No filter named 'nope'"));
  EXPECT_THAT(failure("{{ 1 is nope }}").message, HasSubstr("No test named 'nope'"));
  EXPECT_THAT(failure("{% nope %}").message, HasSubstr("unknown tag 'nope'"));
  EXPECT_THAT(failure("{% for x in y %}").message, HasSubstr("'endfor'"));
  EXPECT_THAT(failure("{{ [1 }}").message, HasSubstr("unexpected '}', expected ']'"));
}

TEST(TemplateErrors, AFilterThatIsNotThereMattersOnlyWhereItIsUsed) {
  EXPECT_EQ(render("{% if false %}{{ 1 | nope }}{% endif %}x"), "x");
}

TEST(TemplateSandbox, ListsAndDictsCannotBeChanged) {
  EXPECT_THAT(failure("{% set _ = l.append(1) %}", R"({"l": []})").message,
              HasSubstr("access to attribute 'append' of 'list' object is unsafe."));
  EXPECT_THAT(failure("{% set _ = d.update({}) %}", R"({"d": {}})").message, HasSubstr("unsafe"));
  EXPECT_THAT(failure("{% set _ = d.pop('a') %}", R"({"d": {}})").message, HasSubstr("unsafe"));
}

TEST(TemplateSandbox, NothingInternalIsReachable) {
  EXPECT_THAT(failure("{{ ''.__class__.mro() }}").message, HasSubstr("unsafe"));
  EXPECT_THAT(failure("{{ ''['__class__']['x'] }}").message, HasSubstr("unsafe"));
  EXPECT_THAT(failure("{{ '{0.__class__.x}'.format(1) }}").message, HasSubstr("not supported"));
  EXPECT_EQ(render("{{ open is defined }}{{ self is defined }}{{ context is defined }}"), "FalseFalseFalse");
  EXPECT_THAT(failure("{% include 'x' %}").message, HasSubstr("not supported"));
}

TEST(TemplateVariables, ThatAreNotUtf8AreRepaired) {
  boost::json::object variables;
  variables["s"] = "a\xFF\xC3";
  EXPECT_EQ(*try_render("{{ s }}{{ s | length }}", variables), "a\xEF\xBF\xBD\xEF\xBF\xBD\x33");
}

TEST(TemplateVariables, HideTheFunctionsOfTheSameName) { EXPECT_EQ(render("{{ range }}", R"({"range": 5})"), "5"); }

TEST(TemplateSource, MustBeUtf8AndNotEnormous) {
  EXPECT_THAT(Template::parse("a\xFF").error().message, HasSubstr("not UTF-8 at byte 1"));
  const auto parsed = Template::parse(std::string(Template::kMaxSourceBytes + 1, 'x'));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().kind, Kind::limit);
}

TEST(TemplateThreads, RenderOneTemplateAtOnce) {
  const auto parsed = Template::parse(
      "{% macro f(x) %}[{{ x }}]{% endmacro %}{% set ns = namespace(t='') %}"
      "{% for m in messages %}{% set ns.t = ns.t ~ f(m.role) ~ 'constant' %}{% endfor %}{{ ns.t }}");
  ASSERT_TRUE(parsed);
  const boost::json::object variables = boost::json::parse(kChat).as_object();
  const std::string expected = parsed->render(variables)->text;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 200; ++n) wrong[i] += parsed->render(variables)->text == expected ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

}  // namespace
}  // namespace quire::jinja

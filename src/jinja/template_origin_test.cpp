// Text keeps its origin through every operation. Below, text from variables is between « and »; the rest is the
// template's own.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/jinja/origin.h"
#include "quire/jinja/template.h"
#include "quire/jinja/template_testing.h"

namespace quire::jinja {
namespace {

constexpr std::string_view kOwn[] = {"bos", "messages[].role"};
// x, s and similar variables are from outside; bos and the roles of messages are not.
constexpr std::string_view kVariables = R"({
  "x": "User", "s": " a,b ", "p": "<p>", "u": "ß'é", "e": "", "n": 5, "l": ["a", "b"], "lines": "a\nb",
  "d": {"key": "value", "k2": 2}, "bos": "<s>", "key": "key",
  "messages": [{"role": "user", "content": "Hi", "inner": {"role": "evil"}}, {"role": "tool", "content": ["c"]}]})";

std::string marked(const Rendered& rendered) {
  std::string out;
  std::size_t done = 0;
  for (const TextRange& range : rendered.outside) {
    EXPECT_LT(range.begin, range.end);
    EXPECT_LE(range.end, rendered.text.size());
    EXPECT_TRUE(out.empty() || done < range.begin) << "ranges that touch are one";
    out += rendered.text.substr(done, range.begin - done);
    out += "«" + rendered.text.substr(range.begin, range.end - range.begin) + "»";
    done = range.end;
  }
  return out + rendered.text.substr(done);
}

std::string marked(std::string_view source) {
  const auto parsed = Template::parse(source);
  if (!parsed) return parsed.error().message;
  RenderOptions options = testing::fixed_options();
  options.own = kOwn;
  const auto rendered = parsed->render(boost::json::parse(kVariables).as_object(), options);
  return rendered ? marked(*rendered) : rendered.error().message;
}

struct Case {
  std::string_view source;
  std::string_view expected;
};

void expect_all(const std::vector<Case>& cases) {
  for (const Case& one : cases) EXPECT_EQ(marked(one.source), one.expected) << one.source;
}

TEST(Origin, PiecesAndJoinsKeepTheirRanges) {
  Origin origin;
  origin.append(Source::own, 0, 3);
  origin.append(Source::outside, 3, 4);
  origin.append(Source::outside, 7, 2);
  origin.append(Source::own, 9, 1);
  origin.append(Source::outside, 10, 1);
  EXPECT_THAT(origin.outside(), ::testing::ElementsAre(TextRange{3, 9}, TextRange{10, 11}));
  EXPECT_THAT(origin.piece(4, 2).outside(), ::testing::ElementsAre(TextRange{0, 2}));
  EXPECT_THAT(origin.piece(0, 4).outside(), ::testing::ElementsAre(TextRange{3, 4}));
  EXPECT_THAT(origin.piece(8, 3).outside(), ::testing::ElementsAre(TextRange{0, 1}, TextRange{2, 3}));
  EXPECT_THAT(origin.piece(0, 3).outside(), ::testing::IsEmpty());
  EXPECT_THAT(origin.piece(5, 0).outside(), ::testing::IsEmpty());
  EXPECT_EQ(origin.at(2), Source::own);
  EXPECT_EQ(origin.at(3), Source::outside);
  EXPECT_EQ(origin.at(9), Source::own);
  EXPECT_EQ(origin.at(10), Source::outside);
  EXPECT_EQ(origin.at(11), Source::own);
}

TEST(TemplateOrigin, VariablesAreFromOutsideAndTheTemplateIsNot) {
  expect_all({{"a{{ x }}b", "a«User»b"},
              {"{{ 'lit' }}{{ n }}{{ true }}{{ none }}{{ 1.5 }}", "lit5TrueNone1.5"},
              {"{{ e }}", ""},
              {"{{ x }}{{ x }}", "«UserUser»"},
              {"{{ d.key }}{{ d['key'] }}{{ l[0] }}", "«valuevaluea»"},
              {"{{ d.missing }}{{ nothing }}", ""}});
}

TEST(TemplateOrigin, TheCallerSaysWhichVariablesAreTheTemplatesOwn) {
  expect_all({{"{{ bos }}", "<s>"},
              {"{% for m in messages %}<{{ m.role }}>{% endfor %}", "<user><tool>"},
              {"{{ messages[0].content }}", "«Hi»"},
              {"{{ messages[0].inner.role }}", "«evil»"},  // nested deeper than the named member
              {"{{ messages[1].content[0] }}", "«c»"}});
}

TEST(TemplateOrigin, OperatorsKeepIt) {
  expect_all({{"{{ '<' + x + '>' }}", "<«User»>"},
              {"{{ '<' ~ x ~ n ~ '>' }}", "<«User»5>"},
              {"{{ x * 2 }}|{{ ('-' + x) * 2 }}|{{ '-' * 3 }}", "«UserUser»|-«User»-«User»|---"},
              {"{{ ['a'] + l }}", "['a', «'a'», «'b'»]"},
              {"{{ x if true }}{{ 'a' or x }}{{ e or 'b' }}{{ x and 'c' }}", "«User»abc"},
              {"{{ x == 'User' }}{{ 'U' in x }}{{ x < 'a' }}", "TrueTrueTrue"}});
}

TEST(TemplateOrigin, SlicesAndCharactersKeepIt) {
  expect_all({{"{{ x[0] }}{{ 'abc'[0] }}{{ x[-1] }}", "«U»a«r»"},
              {"{{ ('<' + x + '>')[0] }}{{ ('<' + x + '>')[1] }}", "<«U»"},
              {"{{ ('<' + x + '>')[:3] }}|{{ ('<' + x + '>')[3:] }}", "<«Us»|«er»>"},
              {"{{ ('é' + u + 'é')[1:3] }}|{{ ('é' + u)[0] }}", "«ß'»|é"},
              {"{{ ('<' + x + '>')[::-1] }}|{{ ('<' + x + '>')[::2] }}", ">«resU»<|<«sr»"},
              {"{% for c in 'a' + x[:2] %}{{ c }}.{% endfor %}", "a.«U».«s»."},
              {"{{ ('a' + x[:2]) | list }}", "['a', «'U'», «'s'»]"},
              {"{{ ('<' + x) | first }}{{ ('<' + x) | last }}{{ ('<' + x) | reverse }}", "<«rresU»<"}});
}

TEST(TemplateOrigin, CuttingKeepsIt) {
  expect_all(
      {{"{{ s.strip() }}|{{ s | trim }}|{{ (s + '-').strip('- ') }}", "«a,b»|«a,b»|«a,b»"},
       {"{{ ('-' + s).lstrip('-') }}{{ ('-' + x + '-').rstrip('-') }}", "« a,b »-«User»"},
       {"{{ s.split(',')[0] }}|{{ s.rsplit(',', 1)[1] }}|{{ ('a' + s).split(',') }}", "« a»|«b »|[«'a a'», «'b '»]"},
       {"{{ ('own ' + x).split()[0] }}|{{ ('own ' + x).split()[1] }}", "own|«User»"},
       {"{{ ('a,' + x).partition(',') | join('|') }}", "a|,|«User»"},
       {"{{ s.partition(',')[1] }}{{ 'a,b'.partition(',')[1] }}{{ x.partition(',')[2] }}", "«,»,"},
       {"{{ s.rpartition(',')[2] }}", "«b »"},
       {"{{ lines.splitlines() | join('|') }}", "«a»|«b»"},
       {"{{ x.removeprefix('Us') }}|{{ ('<' + x).removeprefix('<') }}|{{ ('<' + x).removesuffix('er') }}",
        "«er»|«User»|<«Us»"}});
}

TEST(TemplateOrigin, ReplacingKeepsIt) {
  expect_all({{"{{ x.replace('se', '-') }}|{{ x | replace('se', '-') }}", "«U»-«r»|«U»-«r»"},
              {"{{ 'a.b'.replace('.', x) }}|{{ 'a.b' | replace('.', x) }}", "a«User»b|a«User»b"},
              {"{{ ('<' + x + '>').replace('<', '[') }}", "[«User»>"},
              {"{{ x.replace('', '-') }}|{{ x.replace('r', '-', 0) }}", "-«U»-«s»-«e»-«r»-|«User»"},
              {"{{ ('a' + x).replace('aU', '!') }}", "!«ser»"}});
}

TEST(TemplateOrigin, OtherLettersKeepIt) {
  expect_all(
      {{"{{ x | upper }}{{ x.lower() }}{{ 'a' | upper }}", "«USERuser»A"},
       {"{{ ('a' + x) | upper }}|{{ ('A' + x + 'B').lower() }}|{{ ('-' + u) | upper }}", "A«USER»|a«user»b|-«SS'É»"},
       {"{{ x | title }}{{ x.capitalize() }}{{ 'own' | title }}{{ 'own'.capitalize() }}", "«UserUser»OwnOwn"},
       // These depend on neighbours: a text of both origins counts as outside as a whole.
       {"{{ ('a-' + x) | title }}|{{ ('a' + x).capitalize() }}|{{ ('a' + x).title() }}", "«A-User»|«Auser»|«Auser»"}});
}

TEST(TemplateOrigin, JoiningKeepsIt) {
  expect_all({{"{{ l | join(', ') }}|{{ ', '.join(l) }}", "«a», «b»|«a», «b»"},
              {"{{ ['a', 'b'] | join(x) }}|{{ x.join('ab') }}", "a«User»b|a«User»b"},
              {"{{ [1, x, 'o'] | join }}", "1«User»o"},
              {"{{ messages | map(attribute='role') | join(',') }}", "user,tool"}});
}

TEST(TemplateOrigin, FormatsKeepIt) {
  expect_all({{"{{ '<%s|%d>' % (x, 3) }}|{{ '%5s|%-5s.' % (x, x) }}", "<«User»|3>| «User»|«User» ."},
              {"{{ (x + '%s') % 'own' }}|{{ '%%' % () }}", "«User»own|%"},
              {"{{ '%(a)s' % {'a': x} }}|{{ '%.2s' % x }}|{{ '%r' % x }}", "«User»|«Us»|«'User'»"},
              {"{{ '<%s>' | format(x) }}", "<«User»>"},
              {"{{ '<{}|{a}|{{}}>'.format(x, a='own') }}|{{ (x + '{}').format('o') }}", "<«User»|own|{}>|«User»o"},
              {"{{ '{:6}|{!r}|{:.2}'.format(x, x, x) }}", "«User»  |«'User'»|«Us»"},
              {"{{ '{x}'.format(**d) }}{{ '{key}'.format(**d) }}", "line 1: 'x'"},
              {"{{ '{key}'.format(**d) }}", "«value»"}});
}

TEST(TemplateOrigin, IndentingKeepsIt) {
  expect_all({{"{{ lines | indent(2) }}|{{ lines | indent(1, true) }}", "«a\n»  «b»| «a\n» «b»"},
              {"{{ 'a\\nb' | indent(x) }}", "a\n«User»b"},
              {"{{ ('o' + lines) | indent }}", "o«a\n»    «b»"}});
}

TEST(TemplateOrigin, ValuesThatArePrintedKeepIt) {
  expect_all({{"{{ d }}", "{«'key'»: «'value'», «'k2'»: 2}"},
              {"{{ ['own', x, 1, none, ('a' + x,)] }}", "['own', «'User'», 1, None, («'aUser'»,)]"},
              {"{{ d | string }}", "{«'key'»: «'value'», «'k2'»: 2}"},
              {"{{ namespace(a=x) }}", "<Namespace {'a': «'User'»}>"},
              {"{{ d | items | list }}", "[(«'key'», «'value'»), («'k2'», 2)]"}});
}

TEST(TemplateOrigin, JsonKeepsIt) {
  expect_all({{"{{ x | tojson }}|{{ 'own' | tojson }}|{{ n | tojson }}", "«\"User\"»|\"own\"|5"},
              {"{{ d | tojson }}", "{«\"key\"»: «\"value\"», «\"k2\"»: 2}"},
              {"{{ {'own': x, 'b': [true, none, 'o' + x]} | tojson }}",
               "{\"own\": «\"User\"», \"b\": [true, null, «\"oUser\"»]}"},
              {"{{ u | tojson(ensure_ascii=true) }}", "«\"\\u00df'\\u00e9\"»"},
              {"{{ l | tojson(indent=1) }}", "[\n «\"a\"»,\n «\"b\"»\n]"},
              {"{{ [1] | tojson(indent=x) }}", "[\n«User»1\n]"},
              {"{{ [1, 2] | tojson(separators=(x, ':')) }}", "[1«User»2]"}});
}

TEST(TemplateOrigin, MarkupKeepsIt) {
  expect_all({{"{{ p | safe }}|{{ p | e }}|{{ ('<' + p) | e }}", "«<p>»|«&lt;p&gt;»|&lt;«&lt;p&gt;»"},
              {"{{ ('<b>' | safe) + p }}|{{ ('<b>' | safe) ~ p }}", "<b>«&lt;p&gt;»|<b>«<p>»"},
              {"{{ (p | safe)[0] }}{{ (p | safe) | string }}", "«<<p>»"},
              {"{{ (('%s' | safe) % p) }}", "«&lt;p&gt;»"}});
}

TEST(TemplateOrigin, BlocksAndMacrosKeepIt) {
  expect_all(
      {{"{% set y %}<{{ x }}>{% endset %}{{ y }}", "<«User»>"},
       {"{% set y | upper %}<a{{ x }}>{% endset %}{{ y }}", "<A«USER»>"},
       {"{% filter trim %}  a{{ x }}  {% endfilter %}", "a«User»"},
       {"{% macro f(a, b='own') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(x) }}{{ f('y', x) }}", "[«User»own][y«User»]"},
       {"{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}{{ x }}{% endcall %}", "<«User»>"},
       {"{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t ~ m.role ~ '=' %}{% endfor %}"
        "{{ ns.t ~ x }}",
        "user=tool=«User»"},
       {"{% with y = x %}{{ y }}{% endwith %}", "«User»"},
       {"{% generation %}{{ x }}{% endgeneration %}", "«User»"}});
}

TEST(TemplateOrigin, NamesThatComeFromADictDoToo) {
  expect_all(
      {{"{% macro f() %}{{ kwargs }}{% endmacro %}{{ f(**d) }}", "{«'key'»: «'value'», «'k2'»: 2}"},
       {"{% macro f() %}{{ kwargs }}{% endmacro %}{{ f(a=x) }}", "{'a': «'User'»}"},
       {"{{ dict(**d) }}", "{«'key'»: «'value'», «'k2'»: 2}"},
       {"{% for k in d %}{{ k }}.{% endfor %}{% for k, v in d.items() %}{{ k }}{% endfor %}", "«key».«k2».«keyk2»"},
       {"{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}", "«k2»=2;«key»=«value»;"}});
}

TEST(TemplateOrigin, ListsThatAreFilteredKeepIt) {
  expect_all({{"{{ (l + ['own']) | sort | join }}|{{ (l + ['own']) | unique | join }}", "«ab»own|«ab»own"},
              {"{{ (['c'] + l) | min }}{{ (['c'] + l) | max }}", "«a»c"},
              {"{{ l | map('upper') | join }}|{{ (l + ['c']) | select('ne', 'a') | join }}", "«AB»|«b»c"},
              {"{{ messages | selectattr('role', 'eq', 'user') | map(attribute='content') | first }}", "«Hi»"},
              {"{{ nothing | default(x) }}{{ nothing | default('own') }}{{ x | default('own') }}", "«User»own«User»"},
              {"{% for a in [1, 2] %}{{ loop.cycle('o', x) }}{% endfor %}", "o«User»"}});
}

TEST(TemplateOrigin, NumbersCarryNone) {
  expect_all({{"{{ '12' | int }}{{ (x | length) }}{{ n + 1 }}{{ x.find('e') }}{{ x | int }}", "124620"}});
}

TEST(TemplateOrigin, TimesInAFormatFromOutsideAreToo) {
  expect_all({{"{{ strftime_now('%Y') }}|{{ strftime_now(x ~ '%Y') }}", "2024|«User2024»"}});
}

TEST(TemplateOrigin, IsCountedAgainstTheLimits) {
  RenderOptions options = testing::fixed_options();
  options.max_memory_bytes = 2'000'000;
  const boost::json::object variables = boost::json::parse(kVariables).as_object();
  const auto own = Template::parse("{{ (['ab'] * 20000) | join('-') | length }}")->render(variables, options);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ(own->text, "59999");
  // 60 kB of text and 20,000 ranges of 16 bytes; both exist twice while the text is built.
  const auto outside = Template::parse("{% set t = ([x] * 20000) | join('-') %}{{ ([t] * 3) | join | length }}")
                           ->render(variables, options);
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().kind, TemplateError::Kind::limit);
  EXPECT_THAT(outside.error().message, ::testing::HasSubstr("memory"));
}

}  // namespace
}  // namespace quire::jinja

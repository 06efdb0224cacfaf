#include "quire/tools/detect.h"

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <gtest/gtest.h>

#include "quire/jinja/template.h"
#include "quire/tools/formats_testing.h"
#include "quire/tools/tool_prompt.h"

namespace quire::tools {
namespace {

Detected detect_in(const std::string& source, const std::vector<std::string_view>& tokens = {}) {
  const auto parsed = jinja::Template::parse(source);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  if (!parsed) return {.format = &fallback_format(), .shape = &fallback_format().shapes.front()};
  return detect(
      [&](boost::json::object variables) -> std::optional<std::string> {
        auto rendered = parsed->render(variables);
        return rendered ? std::optional(std::move(rendered->text)) : std::nullopt;
      },
      [&](std::string_view spelling) { return std::ranges::find(tokens, spelling) != tokens.end(); });
}

// A template of turns with `calls` for messages that call tools.
std::string turns(const std::string& calls, const std::string& prompt = "") {
  return "{% for t in tools or [] %}{{ t|tojson }}\n{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n{% if "
         "m.tool_calls "
         "%}" +
         calls +
         "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt "
         "%}<|im_start|>assistant\n" +
         prompt + "{% endif %}";
}

TEST(Detect, ReadsEveryFormatOffWhatATemplateWrites) {
  for (const testing::Example& example : testing::examples()) {
    if (example.calls.empty()) continue;
    const Detected found = detect_in(turns(example.calls));
    EXPECT_EQ(found.format->name, example.format) << example.calls;
    EXPECT_TRUE(found.reads_back) << example.format;
    EXPECT_EQ(trigger(*found.shape).starts_with('<'),
              example.calls.starts_with('<') || example.calls.find("%}<") != std::string::npos)
        << example.format << " " << trigger(*found.shape);
    EXPECT_TRUE(found.tells_tools);
    EXPECT_TRUE(found.writes_calls && found.writes_results && found.takes_system) << example.format;
    EXPECT_TRUE(found.several) << example.format;
    EXPECT_EQ(found.reasoning, nullptr);
    EXPECT_EQ(found.arguments_as_text, example.format.starts_with("deepseek")) << example.format;
  }
}

TEST(Detect, TheWordsOfTheInstructionsDoNotMatter) {
  const std::string misleading =
      "Write [TOOL_CALLS] [{\"name\": \"x\", \"arguments\": {}}] or <|tool_call|> or <function=x>.\n";
  EXPECT_EQ(detect_in(misleading + turns(testing::examples()[0].calls)).format->name, "hermes");
}

TEST(Detect, TemplatesThatTakeOneCallOnly) {
  const std::string one =
      "{% if m.tool_calls|length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}{% set f = "
      "m.tool_calls[0].function "
      "%}<|python_tag|>{{ '{\"name\": \"' + f.name + '\", \"parameters\": ' + f.arguments|tojson + '}' }}";
  const Detected found = detect_in(turns(one));
  EXPECT_EQ(found.format->name, "llama3");
  EXPECT_FALSE(found.several);
}

TEST(Detect, TemplatesThatWantNoContentAsNull) {
  std::string source = turns(testing::examples()[0].calls);
  source.replace(source.find("{% if m.tool_calls %}"), 21, "{% if m.tool_calls and m.content is none %}");
  const Detected found = detect_in(source);
  EXPECT_EQ(found.format->name, "hermes");
  EXPECT_TRUE(found.null_content);
}

TEST(Detect, WithoutCallsInTheTemplateTheFallbackIsUsed) {
  const Detected found = detect_in("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:");
  EXPECT_EQ(found.format, &fallback_format());
  EXPECT_FALSE(found.reads_back);
  EXPECT_FALSE(found.tells_tools);
  EXPECT_FALSE(found.writes_calls);
  EXPECT_TRUE(found.writes_results);
  EXPECT_TRUE(found.takes_system);
  const Detected refusing = detect_in("{{ raise_exception('no') }}");
  EXPECT_EQ(refusing.format, &fallback_format());
  EXPECT_EQ(refusing.reasoning, nullptr);
  EXPECT_TRUE(refusing.tells_tools) << "nothing is known, so nothing is told twice";
  EXPECT_FALSE(detect_in("{% if tools %}{{ raise_exception('no') }}{% endif %}{{ messages[-1].content }}").tells_tools);
}

TEST(Detect, TemplatesThatTakeUserAndAssistantOnly) {
  const Detected found = detect_in(
      "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no') }}{% endif %}{{ "
      "m.content }}{% endfor %}");
  EXPECT_FALSE(found.writes_results);
  EXPECT_FALSE(found.takes_system);
}

TEST(Detect, WithoutCallsInTheTemplateTokensOfTheVocabularyDecide) {
  const std::string plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";
  EXPECT_EQ(detect_in(plain, {"<|tool_call_start|>", "<|tool_call_end|>"}).format->name, "lfm2");
  EXPECT_EQ(detect_in(plain, {"<|tool_call|>"}).format->name, "granite");
  EXPECT_EQ(detect_in(plain, {"{", "[", "```json"}).format, &fallback_format());
  EXPECT_EQ(detect_in(plain, {"[THINK]"}).reasoning, nullptr);
  EXPECT_EQ(detect_in(plain, {"[THINK]", "[/THINK]"}).reasoning->name, "mistral");
  // What the template writes comes first.
  EXPECT_EQ(detect_in(turns(testing::examples()[0].calls), {"[TOOL_CALLS]"}).format->name, "hermes");
}

// As that of Kimi K2 does: it changes a list, which the sandbox of templates forbids.
TEST(Detect, ATemplateThatFailsOnCallsIsHelpedByTheVocabulary) {
  const Detected found = detect_in(turns("{% set _ = m.tool_calls.append(1) %}"), {"<|tool_calls_section_begin|>"});
  EXPECT_EQ(found.format->name, "kimi");
  EXPECT_FALSE(found.reads_back);
  EXPECT_FALSE(found.writes_calls) << "the server tells them in words";
  EXPECT_TRUE(found.writes_results);
}

// As that of Kimi K2 Thinking does: the name is in the id.
constexpr const char* kWritesIds =
    "{% for m in messages %}{% if m.role == 'tool' %}## Return of {{ m.tool_call_id }}: {% endif %}{{ m.content }}"
    "{% if m.tool_calls %}<|tool_calls_section_begin|>{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}"
    "<|tool_call_argument_begin|>{{ c.function.arguments|tojson }}<|tool_call_end|>{% endfor %}"
    "<|tool_calls_section_end|>{% endif %}{{ '\\n' }}{% endfor %}";

TEST(Detect, TemplatesThatWriteTheIdOfACallAndNotItsName) {
  const Detected found = detect_in(kWritesIds);
  EXPECT_EQ(found.format->name, "kimi");
  EXPECT_TRUE(found.reads_back);
  EXPECT_TRUE(found.writes_calls);
  EXPECT_TRUE(found.writes_results);
  EXPECT_TRUE(found.several);
  EXPECT_FALSE(found.arguments_as_text);
  // Alone, an id with a name in it is no call.
  EXPECT_FALSE(detect_in(turns("{{ m.tool_calls[0].id }}")).writes_calls);
}

TEST(Detect, TheHistoryOfACallWithForeignIdsIsRenderedAsTheModelWroteIt) {
  auto messages = boost::json::parse(R"([{"role": "user", "content": "Rome?"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "call_a", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]},
      {"role": "tool", "tool_call_id": "call_a", "content": "24 degrees"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "call_b", "type": "function",
        "function": {"name": "find_place", "arguments": {}}}]},
      {"role": "tool", "tool_call_id": "call_b", "content": "none"}])")
                      .as_array();
  tell_tools(messages, {}, detect_in(kWritesIds));
  const auto parsed = jinja::Template::parse(kWritesIds);
  ASSERT_TRUE(parsed);
  boost::json::object variables;
  variables["messages"] = messages;
  const auto rendered = parsed->render(variables);
  ASSERT_TRUE(rendered) << rendered.error().message;
  EXPECT_EQ(rendered->text,
            "Rome?\n"
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
            "{\"city\": \"Rome\"}<|tool_call_end|><|tool_calls_section_end|>\n"
            "## Return of functions.get_weather:0: 24 degrees\n"
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.find_place:1<|tool_call_argument_begin|>"
            "{}<|tool_call_end|><|tool_calls_section_end|>\n"
            "## Return of functions.find_place:1: none\n");
}

TEST(Detect, ReasoningOfAMessage) {
  const std::string kept =
      "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>\n{{ m.reasoning_content "
      "}}\n</think>\n\n{% endif "
      "%}{{ m.content }}{% endfor %}";
  Detected found = detect_in(kept);
  ASSERT_NE(found.reasoning, nullptr);
  EXPECT_EQ(found.reasoning->name, "think");
  EXPECT_EQ(found.reasoning_key, "reasoning_content");
  const std::string channels =
      "{% for m in messages %}<|start|>{{ m.role }}{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking "
      "}}<|end|>"
      "<|start|>assistant{% endif %}<|channel|>final<|message|>{{ m.content }}<|end|>{% endfor %}";
  found = detect_in(channels);
  ASSERT_NE(found.reasoning, nullptr);
  EXPECT_EQ(found.reasoning->name, "channels");
  EXPECT_EQ(found.reasoning_key, "thinking");
}

TEST(Detect, ReasoningThatThePromptOpens) {
  for (const char* const prompt : {"<think>\n", "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}",
                                   "{% if thinking %}<think>{% else %}</think>{% endif %}"}) {
    const Detected found = detect_in(turns(testing::examples()[0].calls, prompt));
    ASSERT_NE(found.reasoning, nullptr) << prompt;
    EXPECT_EQ(found.reasoning->name, "think");
    EXPECT_EQ(found.reasoning_key, "");
  }
}

TEST(Detect, ReasoningThatIsTakenOutOfEarlierAnswers) {
  const Detected found =
      detect_in("{% for m in messages %}[{{ m.role }}]{{ m.content.split('</think>')[-1] }}{% endfor %}");
  ASSERT_NE(found.reasoning, nullptr);
  EXPECT_EQ(found.reasoning->name, "think");
}

}  // namespace
}  // namespace quire::tools

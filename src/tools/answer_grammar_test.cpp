#include "quire/tools/answer_grammar.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "quire/grammar/grammar_testing.h"
#include "quire/tools/answer_parser.h"
#include "quire/tools/formats_testing.h"

namespace quire::tools {
namespace {

using grammar::SlowParser;

const Format& format_of(std::string_view name) { return *std::ranges::find(formats(), name, &Format::name); }

bool admits(const AnswerGrammar& asked, std::string_view text) {
  auto grammar = answer_grammar(asked);
  EXPECT_TRUE(grammar) << (grammar ? "" : grammar.error().message);
  return grammar && SlowParser::admits(*grammar, text);
}

// The shape that an example is written in.
const Shape* shape_of(const testing::Example& example) {
  for (const Shape& shape : format_of(example.format).shapes) {
    if (example.one.starts_with(trigger(shape))) return &shape;
  }
  return nullptr;
}

// The examples as a grammar writes them: without ids and without the mark that ends the answer.
std::string as_written(std::string text) {
  for (const char* const id : {"\"tool_call_id\": \"0\", ", "\"tool_call_id\": \"1\", "}) {
    if (const std::size_t at = text.find(id); at != std::string::npos) text.erase(at, 21);
  }
  if (text.ends_with("<|call|>")) text.resize(text.size() - 8);
  return text;
}

TEST(AnswerGrammarTest, AdmitsTheCallsOfEveryFormatAndNoOthers) {
  const ToolList tools = testing::example_tools();
  for (const testing::Example& example : testing::examples()) {
    ASSERT_NE(shape_of(example), nullptr) << example.format;
    const Format& format = format_of(example.format);
    AnswerGrammar asked{.format = &format, .shape = shape_of(example), .tools = &tools, .required = true};
    std::string one = as_written(example.one);
    // The prompt has written the header, unless the example has it.
    if (!one.starts_with(format.header)) asked.primer = format.header;
    EXPECT_TRUE(admits(asked, one)) << one;
    EXPECT_FALSE(admits(asked, example.broken)) << example.broken;
    EXPECT_FALSE(admits(asked, "Hello. " + one)) << one;
    EXPECT_FALSE(admits(asked, one.substr(0, one.size() - 1))) << one;
    EXPECT_FALSE(admits(asked, ""));
    std::string other = one;
    other.replace(other.find("get_weather"), 11, "get_feather");
    EXPECT_FALSE(admits(asked, other)) << other;
    AnswerGrammar named = asked;
    named.only = "find_place";
    EXPECT_FALSE(admits(named, one)) << one;
  }
}

TEST(AnswerGrammarTest, SeveralCallsOnlyIfTheyAreWanted) {
  const ToolList tools = testing::example_tools();
  for (const char* const format : {"hermes", "mistral", "lfm2", "deepseek", "glm"}) {
    const std::vector<testing::Example> all = testing::examples();
    const std::string two = std::ranges::find(all, format, &testing::Example::format)->two;
    AnswerGrammar asked{.format = &format_of(format), .tools = &tools, .required = true};
    EXPECT_TRUE(admits(asked, two) || std::string_view(format) == "lfm2" || std::string_view(format) == "glm") << two;
    asked.several = false;
    EXPECT_FALSE(admits(asked, two)) << two;
  }
}

TEST(AnswerGrammarTest, ArgumentsFitTheSchema) {
  const ToolList tools = testing::example_tools();
  const AnswerGrammar asked{.format = &format_of("hermes"), .tools = &tools, .required = true};
  const auto call = [](std::string_view arguments) {
    return "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " + std::string(arguments) + "}\n</tool_call>";
  };
  EXPECT_TRUE(admits(asked, call(R"({"city": "Rome"})")));
  EXPECT_FALSE(admits(asked, call(R"({"days": 3})")));
  EXPECT_FALSE(admits(asked, call(R"({"city": 3})")));
  EXPECT_FALSE(admits(asked, call(R"({"city": "Rome", "days": "three"})")));
  const AnswerGrammar coder{.format = &format_of("qwen3-coder"), .tools = &tools, .required = true};
  const auto tagged = [](std::string_view days) {
    return "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n" +
           std::string(days) + "\n</parameter>\n</function>\n</tool_call>";
  };
  EXPECT_TRUE(admits(coder, tagged("3")));
  EXPECT_FALSE(admits(coder, tagged("three")));
}

TEST(AnswerGrammarTest, ReasoningMayComeFirstAndIsFree) {
  const ToolList tools = testing::example_tools();
  AnswerGrammar asked{.format = &format_of("hermes"), .reasoning = &reasonings()[0], .tools = &tools, .required = true};
  const std::string call = testing::examples()[0].one;
  EXPECT_TRUE(admits(asked, call));
  EXPECT_TRUE(admits(asked, "<think>\nHm, <tool_call>?\n</think>\n\n" + call));
  EXPECT_FALSE(admits(asked, "<think>\nHm.\n</think>\n\nNo."));
  asked.primer = "<think>";
  EXPECT_TRUE(admits(asked, "\nHm.\n</think>\n\n" + call));
  EXPECT_FALSE(admits(asked, call));
  // An answer that may be anything may also end before it has begun.
  EXPECT_FALSE(admits(asked, "\nHm."));
  asked.required = false;
  EXPECT_TRUE(admits(asked, "\nHm."));
  EXPECT_TRUE(admits(asked, "\nHm.\n</think>\n\n" + call));
  EXPECT_FALSE(admits(asked, "\nHm.\n</think>\n\n<tool_call>{}</tool_call>"));
}

TEST(AnswerGrammarTest, WithoutAnObligationTextIsFreeUntilACallBegins) {
  const ToolList tools = testing::example_tools();
  const AnswerGrammar asked{.format = &format_of("hermes"), .tools = &tools};
  const std::string call = testing::examples()[0].one;
  EXPECT_TRUE(admits(asked, ""));
  EXPECT_TRUE(admits(asked, "Hello, {}."));
  EXPECT_TRUE(admits(asked, "I look. " + call));
  EXPECT_FALSE(admits(asked, "I look. <tool_call>{}</tool_call>"));
  EXPECT_FALSE(admits(asked, "I look. <tool_call>"));
}

class SlowCheck final : public CallCheck {
 public:
  explicit SlowCheck(grammar::Grammar calls) : calls_(std::move(calls)) {}
  bool push(std::string_view text) override {
    text_ += text;
    return true;
  }
  bool complete() const override { return SlowParser::admits(calls_, text_); }

 private:
  mutable grammar::Grammar calls_;
  std::string text_;
};

// Reads an answer as the grammar means it.
struct Read {
  std::string content, reasoning;
  std::vector<Call> calls;
};
Read read(const AnswerGrammar& asked, std::string_view text) {
  Reading how = reading(asked);
  if (needs_check(asked)) how.check = [&asked] { return std::make_unique<SlowCheck>(*calls_grammar(asked)); };
  AnswerParser parser({.format = asked.format, .reasoning = asked.reasoning, .tools = asked.tools, .reading = how});
  std::vector<Delta> deltas;
  parser.push(asked.primer, deltas);
  parser.push(text, deltas);
  parser.finish(false, deltas);
  Read out;
  for (const Delta& delta : deltas) {
    if (delta.kind == Delta::Kind::Content) out.content += delta.text;
    if (delta.kind == Delta::Kind::Reasoning) out.reasoning += delta.text;
    if (delta.kind == Delta::Kind::Call) out.calls.push_back({.name = delta.name, .id = {}, .arguments = {}});
    if (delta.kind == Delta::Kind::Arguments) out.calls.at(delta.call).arguments += delta.text;
  }
  return out;
}

ToolList strict_tools() {
  boost::json::array all;
  const ToolList loose = testing::example_tools();
  for (const Tool& tool : loose.all()) {
    all.push_back(
        {{"type", "function"}, {"function", {{"name", tool.name}, {"parameters", tool.parameters}, {"strict", true}}}});
  }
  return *ToolList::parse(all);
}

TEST(AnswerGrammarTest, EveryFormatEnforcesTheCallsThatAModelBeginsByItself) {
  const ToolList tools = strict_tools();
  for (const testing::Example& example : testing::examples()) {
    const Format& format = format_of(example.format);
    AnswerGrammar asked{.format = &format, .shape = shape_of(example), .tools = &tools};
    if (!example.one.starts_with(format.header)) asked.primer = format.header;
    const std::string one = as_written(example.one);
    EXPECT_TRUE(admits(asked, one)) << one;
    EXPECT_EQ(read(asked, one).calls.size(), 1u) << one;
    EXPECT_FALSE(admits(asked, example.broken)) << example.broken;
    EXPECT_EQ(admits(asked, "Hello, {} and [1]."), asked.primer.empty()) << example.format;
  }
}

TEST(AnswerGrammarTest, WhereCallsHaveNoMarkOnlyTheBeginningOfAnAnswerIsOne) {
  const ToolList tools = strict_tools();
  const Format& llama = format_of("llama3");
  const AnswerGrammar asked{.format = &llama, .shape = &llama.shapes[1], .tools = &tools};
  const std::string wrong = R"({"name": "get_weather", "parameters": {"city": 3}})";
  EXPECT_FALSE(admits(asked, wrong));
  EXPECT_FALSE(admits(asked, "\n " + wrong));
  // Elsewhere it is text, for the grammar and for the parser.
  EXPECT_TRUE(admits(asked, "Look:\n" + wrong));
  EXPECT_EQ(read(asked, "Look:\n" + wrong).content, "Look:\n" + wrong);
  // The other shape has a mark.
  EXPECT_FALSE(admits(asked, "Look:\n<|python_tag|>" + wrong));
  EXPECT_TRUE(admits(asked, R"(Look:<|python_tag|>{"name": "get_weather", "parameters": {"city": "Rome"}})"));
}

TEST(AnswerGrammarTest, TextWithMarksIsFreeBesideStrictCalls) {
  const ToolList tools = strict_tools();
  const std::string final = "<|channel|>final<|message|>It is warm: {}.";
  const std::string thought = "<|channel|>analysis<|message|>Rome?<|end|><|start|>assistant";
  const std::string remark = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant";
  const std::string call = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>";
  const std::string recipient = " to=functions.get_weather<|channel|>commentary json<|message|>";
  const Reasoning& analysis = *std::ranges::find(reasonings(), "channels", &Reasoning::name);
  AnswerGrammar channels{
      .format = &format_of("channels"), .reasoning = &analysis, .tools = &tools, .primer = "<|start|>assistant"};
  for (const std::string& before : {std::string(), thought, thought + remark, thought + thought}) {
    EXPECT_TRUE(admits(channels, before + final));
    for (const std::string& header : {call, recipient}) {
      EXPECT_TRUE(admits(channels, before + header + R"({"city": "Rome"})")) << before << header;
      EXPECT_EQ(read(channels, before + header + R"({"city": "Rome"})").calls.size(), 1u) << before << header;
      EXPECT_FALSE(admits(channels, before + header + R"({"city": 3})")) << before << header;
    }
  }
  EXPECT_FALSE(admits(channels, "It is warm."));
  EXPECT_EQ(read(channels, thought + final).content, "It is warm: {}.");
  // The prompt is a text that the answer continues.
  channels.primer = {};
  EXPECT_TRUE(admits(channels, " and dry."));

  const AnswerGrammar arrows{.format = &format_of("functionary-v3.2"), .tools = &tools, .primer = ">>>"};
  EXPECT_TRUE(admits(arrows, "all\nIt is warm."));
  EXPECT_TRUE(admits(arrows, "all\nI look.\n>>>get_weather\n{\"city\": \"Rome\"}"));
  EXPECT_FALSE(admits(arrows, "all\nI look.\n>>>get_weather\n{\"city\": 3}"));
  EXPECT_FALSE(admits(arrows, "It is warm."));

  const AnswerGrammar command{.format = &format_of("command-r7b"), .tools = &tools};
  EXPECT_TRUE(admits(command, "<|START_RESPONSE|>It is warm.<|END_RESPONSE|>"));
  EXPECT_FALSE(admits(command, "<|START_ACTION|>[{\"tool_name\": \"get_weather\"}]<|END_ACTION|>"));
}

// A list of one number, or what was said.
Result<grammar::SymbolId> list_of_one(grammar::Grammar& grammar) { return grammar.text("[1]"); }

TEST(AnswerGrammarTest, TheTextThatWasAskedForOrCalls) {
  const ToolList tools = strict_tools();
  for (const testing::Example& example : testing::examples()) {
    const Format& format = format_of(example.format);
    const std::string one = as_written(example.one);
    AnswerGrammar asked{
        .format = &format, .shape = shape_of(example), .tools = &tools, .text = list_of_one, .text_is_json = true};
    if (!one.starts_with(format.header)) asked.primer = format.header;
    EXPECT_EQ(needs_check(asked), asked.shape->where == Shape::Where::Line) << example.format;
    EXPECT_TRUE(admits(asked, one)) << one;
    EXPECT_EQ(read(asked, one).calls.size(), 1u) << one;
    EXPECT_FALSE(admits(asked, example.broken)) << example.broken;
    EXPECT_FALSE(admits(asked, "Hello.")) << example.format;
    EXPECT_FALSE(admits(asked, "[1]" + one)) << one;
    const std::string text =
        format.header.empty() ? "[1]"
                              : std::string(format.texts.front().begin) + "[1]" + std::string(format.texts.front().end);
    const std::string header(asked.primer.empty() ? format.header : std::string_view());
    EXPECT_TRUE(admits(asked, header + text)) << text;
    EXPECT_EQ(read(asked, header + text).content, "[1]");
    asked.required = true;
    EXPECT_FALSE(admits(asked, header + text)) << text;
    asked.required = false;
    asked.tools = nullptr;
    EXPECT_TRUE(admits(asked, header + text)) << text;
    EXPECT_FALSE(admits(asked, one)) << one;
  }
}

TEST(AnswerGrammarTest, ATextThatWasAskedForComesBehindTheReasoning) {
  const auto reasoning = [](std::string_view name) {
    return &*std::ranges::find(reasonings(), name, &Reasoning::name);
  };
  const AnswerGrammar think{.reasoning = reasoning("think"), .text = list_of_one};
  EXPECT_TRUE(admits(think, "[1]"));
  EXPECT_TRUE(admits(think, "<think>\n[2]?\n</think>\n\n[1]"));
  EXPECT_FALSE(admits(think, "<think>\n[2]?\n</think>\n\n[2]"));

  const std::string thought = "<|channel|>analysis<|message|>[2]?<|end|><|start|>assistant";
  AnswerGrammar channels{.reasoning = reasoning("channels"), .primer = "<|start|>assistant", .text = list_of_one};
  EXPECT_TRUE(admits(channels, thought + "<|channel|>final<|message|>[1]"));
  EXPECT_TRUE(admits(channels, "<|channel|>final<|message|>[1]"));
  EXPECT_TRUE(admits(channels, thought + "<|channel|>final <|constrain|>json<|message|>[1]"));
  EXPECT_EQ(read(channels, thought + "<|channel|>final <|constrain|>json<|message|>[1]").content, "[1]");
  EXPECT_EQ(read(channels, thought + "<|channel|>final<|message|>[1]").reasoning, "[2]?");
  EXPECT_FALSE(admits(channels, thought + "<|channel|>final<|message|>[2]"));
  EXPECT_FALSE(admits(channels, thought + "<|channel|>commentary<|message|>Look:<|end|><|start|>assistant"
                                          "<|channel|>final<|message|>[1]"));
  EXPECT_FALSE(admits(channels, "[1]"));
  channels.primer = "<|channel|>analysis<|message|>";
  EXPECT_TRUE(admits(channels, "[2]?<|end|><|start|>assistant<|channel|>final<|message|>[1]"));
  EXPECT_FALSE(admits(channels, "[1]"));
  channels.primer = {};
  EXPECT_TRUE(admits(channels, "[1]"));

  const AnswerGrammar command{.reasoning = reasoning("command-r7b"), .text = list_of_one};
  const std::string plan = "<|START_THINKING|>[2]?<|END_THINKING|>";
  EXPECT_TRUE(admits(command, "[1]"));
  EXPECT_TRUE(admits(command, plan + "[1]"));
  EXPECT_TRUE(admits(command, plan + "<|START_RESPONSE|>[1]<|END_RESPONSE|>"));
  EXPECT_TRUE(admits(command, plan + "<|START_TEXT|>[1]<|END_TEXT|>"));
  EXPECT_EQ(read(command, plan + "<|START_RESPONSE|>[1]<|END_RESPONSE|>").content, "[1]");
  EXPECT_FALSE(admits(command, plan + "<|START_RESPONSE|>[2]<|END_RESPONSE|>"));
  EXPECT_FALSE(admits(command, plan));
}

TEST(AnswerGrammarTest, ACallInsideATextThatWasAskedForIsText) {
  const ToolList tools = testing::example_tools();
  const AnswerGrammar asked{
      .format = &format_of("functionary-v3.1"), .tools = &tools, .text = list_of_one, .text_is_json = true};
  const std::string text = R"(["<function=get_weather>{}</function>"])";
  EXPECT_EQ(read(asked, text).content, text);
  EXPECT_EQ(read({.format = asked.format, .tools = &tools}, text).calls.size(), 1u);
}

// The format is not the one of the reasoning: calls stand where text does.
TEST(AnswerGrammarTest, CallsOfAnotherFormatStandInTheTextsOfTheReasoning) {
  const ToolList tools = strict_tools();
  const std::string call = R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Rome"}}</tool_call>)";
  const std::string final = "<|channel|>final<|message|>";
  AnswerGrammar asked{.format = &format_of("hermes"),
                      .reasoning = &*std::ranges::find(reasonings(), "channels", &Reasoning::name),
                      .tools = &tools,
                      .primer = "<|start|>assistant"};
  EXPECT_TRUE(admits(asked, final + "I look. " + call));
  EXPECT_FALSE(admits(asked, final + "<tool_call>{}</tool_call>"));
  asked.required = true;
  EXPECT_TRUE(admits(asked, final + call));
  EXPECT_FALSE(admits(asked, final + "I look."));
  asked.required = false;
  asked.text = list_of_one;
  asked.text_is_json = true;
  EXPECT_TRUE(admits(asked, final + call));
  EXPECT_TRUE(admits(asked, final + "[1]"));
  EXPECT_FALSE(admits(asked, final + "[1]" + call));
}

// A text that was asked for, and that looks like calls.
std::function<Result<grammar::SymbolId>(grammar::Grammar&)> text_like(std::string text) {
  return [text = std::move(text)](grammar::Grammar& grammar) { return Result<grammar::SymbolId>(grammar.text(text)); };
}

TEST(AnswerGrammarTest, ATextThatLooksLikeAStrictCallIsOneIfItFitsTheSchema) {
  const ToolList strict = strict_tools();
  for (const testing::Example& example : testing::examples()) {
    const Format& format = format_of(example.format);
    // The city is no string, or not there. Texts with headers cannot be confused with calls.
    std::string wrong = as_written(example.one);
    if (!format.header.empty() || wrong.find("\"Rome\"") == std::string::npos) continue;
    wrong.replace(wrong.find("\"Rome\""), 6, "[1, 2]");
    AnswerGrammar asked{.format = &format, .shape = shape_of(example), .tools = &strict, .text = text_like(wrong)};
    ASSERT_TRUE(needs_check(asked)) << example.format;
    EXPECT_TRUE(admits(asked, wrong)) << wrong;
    EXPECT_EQ(read(asked, wrong).content, wrong);
    EXPECT_TRUE(read(asked, wrong).calls.empty()) << wrong;
    // Calls are possible as ever.
    const std::string one = as_written(example.one);
    EXPECT_TRUE(admits(asked, one)) << one;
    EXPECT_EQ(read(asked, one).calls.size(), 1u) << one;
    // A text that is a call is read as one.
    asked.text = text_like(one);
    EXPECT_EQ(read(asked, one).calls.size(), 1u) << one;
    // A call with more behind it is no call.
    asked.text = text_like(one + " is a call");
    EXPECT_EQ(read(asked, one + " is a call").content, one + " is a call");
    EXPECT_TRUE(read(asked, one + " is a call").calls.empty()) << one;
  }
}

TEST(AnswerGrammarTest, WithoutStrictToolsNothingIsHeldBack) {
  const ToolList loose = testing::example_tools();
  const AnswerGrammar asked{.format = &format_of("hermes"), .tools = &loose, .text = list_of_one};
  EXPECT_TRUE(admits(asked, "[1]"));
  EXPECT_FALSE(needs_check(asked));
  EXPECT_FALSE(reading(asked).progressive);
}

// The order of a schema would keep a model from writing what it has not written in time.
TEST(AnswerGrammarTest, CallsThatAreNeitherStrictNorRequiredHaveAnyArguments) {
  const ToolList tools = testing::example_tools();
  for (const testing::Example& example : testing::examples()) {
    const Format& format = format_of(example.format);
    if (!leaves_text_free(format)) continue;
    AnswerGrammar asked{.format = &format, .shape = shape_of(example), .tools = &tools};
    std::string one = as_written(example.one);
    if (!one.starts_with(format.header)) asked.primer = format.header;
    EXPECT_TRUE(admits(asked, one)) << one;
    EXPECT_FALSE(admits(asked, example.broken)) << example.broken;
    // Ids are what models write, and clients get their own.
    if (!example.two.ends_with("<|call|>")) {
      EXPECT_TRUE(admits(asked, example.two)) << example.two;
      EXPECT_EQ(read(asked, example.two).calls.size(), 2u) << example.two;
    }
    one.replace(one.find("city"), 4, "town");
    EXPECT_TRUE(admits(asked, one)) << one;
    EXPECT_EQ(read(asked, one).calls.size(), 1u) << one;
    asked.required = true;
    EXPECT_FALSE(admits(asked, one)) << one;
    asked.required = false;
    one.replace(one.find("get_weather"), 11, "get_feather");
    EXPECT_FALSE(admits(asked, one)) << one;
  }
  const AnswerGrammar hermes{.format = &format_of("hermes"), .tools = &tools};
  EXPECT_TRUE(
      admits(hermes, R"(<tool_call>{"name": "get_weather", "arguments": {"days": 3, "city": "Rome"}}</tool_call>)"));
  const AnswerGrammar mistral{.format = &format_of("mistral"), .tools = &tools};
  EXPECT_TRUE(admits(mistral, R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {}, "id": "abcdefghi"}])"));
  const AnswerGrammar coder{.format = &format_of("qwen3-coder"), .tools = &tools};
  EXPECT_TRUE(admits(coder,
                     "<tool_call>\n<function=get_weather>\n<parameter=days>\n3\n</parameter>\n<parameter=city>\n"
                     "Rome\n</parameter>\n</function>\n</tool_call>"));
  for (const char* const bare : {"llama3", "pythonic", "json", "lfm2"}) EXPECT_FALSE(leaves_text_free(format_of(bare)));
}

TEST(AnswerGrammarTest, WhatThePromptHasWrittenIsNotWrittenAgain) {
  const ToolList tools = testing::example_tools();
  const AnswerGrammar asked{
      .format = &format_of("functionary-v3.2"), .tools = &tools, .primer = ">>>", .required = true};
  EXPECT_TRUE(admits(asked, "get_weather\n{\"city\": \"Rome\"}"));
  EXPECT_TRUE(admits(asked, "get_weather\n{\"city\": \"Rome\"}>>>find_place\n{\"query\": \"x\"}"));
  EXPECT_FALSE(admits(asked, ">>>get_weather\n{\"city\": \"Rome\"}"));
}

TEST(AnswerGrammarTest, AStrictSchemaThatCannotBeEnforcedIsRefusedAndAnotherTakesAnyObject) {
  const auto list = [](std::string_view strict) {
    const std::string text = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"a": {"type": "array", "uniqueItems": true}}}, "strict": )" +
                             std::string(strict) + "}}]";
    return *ToolList::parse(boost::json::parse(text).get_array());
  };
  const ToolList strict = list("true"), loose = list("false");
  const auto refused = answer_grammar({.format = &format_of("hermes"), .tools = &strict, .required = true});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.starts_with("the schema of the function 'f' cannot be enforced: "));
  EXPECT_TRUE(admits({.format = &format_of("hermes"), .tools = &loose, .required = true},
                     R"(<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>)"));
}

// One tool "f" with these parameters.
ToolList tool_with(std::string_view parameters, bool strict) {
  boost::json::object function{{"name", "f"}, {"parameters", boost::json::parse(parameters)}, {"strict", strict}};
  return *ToolList::parse({{{"type", "function"}, {"function", function}}});
}

std::string refusal(std::string_view format, std::string_view parameters) {
  const ToolList tools = tool_with(parameters, true);
  const auto grammar = answer_grammar({.format = &format_of(format), .tools = &tools, .required = true});
  return grammar ? "" : grammar.error().message;
}

std::string coder_call(std::string_view parameters) {
  return "<tool_call>\n<function=f>\n" + std::string(parameters) + "</function>\n</tool_call>";
}
std::string coder_parameter(std::string_view key, std::string_view value) {
  return "<parameter=" + std::string(key) + ">\n" + std::string(value) + "\n</parameter>\n";
}

std::string lfm_call(std::string_view keywords) {
  return "<|tool_call_start|>[f(" + std::string(keywords) + ")]<|tool_call_end|>";
}

TEST(AnswerGrammarTest, WhatASchemaAsksBesideItsPropertiesIsRefusedWhereTheyAreWrittenOneByOne) {
  const std::string properties = R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}})";
  const std::string front = "the schema of the function 'f' cannot be enforced in this model's format: ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})", "anyOf"},
      {R"(, "minProperties": 1})", "minProperties"},
      {R"(, "dependentRequired": {"a": ["b"]}})", "dependentRequired"},
      {R"(, "patternProperties": {"^a": {"minimum": 3}}})", "patternProperties"},
      {R"(, "required": ["a", "c"]})", "required 'c'"},
      {R"(, "$ref": "#/$defs/A", "$defs": {"A": {"required": ["a"]}}})", "$ref"},
  };
  for (const char* const format : {"qwen3-coder", "glm", "minimax", "pythonic", "olmo3", "lfm2"}) {
    for (const auto& [more, keyword] : cases) EXPECT_EQ(refusal(format, properties + more), front + keyword) << format;
    EXPECT_EQ(refusal(format, R"({"type": "string"})"), front + "type");
    EXPECT_EQ(refusal(format, R"({"properties": {"a": false}, "required": ["a"]})"), front + "required 'a'");
    EXPECT_EQ(refusal(format, properties + R"(, "title": "t", "$schema": "http://json-schema.org/draft-07/schema#",
        "required": ["a"], "additionalProperties": false, "$defs": {"A": {"anyOf": []}}, "x-y": 1})"),
              "");
  }
  // As JSON everything can be enforced.
  EXPECT_EQ(refusal("hermes", properties + cases[0].first), "");
  // A tool that is not strict takes any parameters then.
  const ToolList loose = tool_with(properties + cases[0].first, false);
  const AnswerGrammar coder{.format = &format_of("qwen3-coder"), .tools = &loose, .required = true};
  EXPECT_TRUE(admits(coder, coder_call(coder_parameter("a", "three"))));
  const AnswerGrammar python{.format = &format_of("lfm2"), .tools = &loose, .required = true};
  EXPECT_TRUE(admits(python, lfm_call(R"(b=[1], x_1="three")")));
  EXPECT_EQ(read(python, lfm_call(R"(b=[1], x_1="three")")).calls.size(), 1u);
  EXPECT_TRUE(admits(python, lfm_call("")));
  EXPECT_FALSE(admits(python, lfm_call("b=")));
}

TEST(AnswerGrammarTest, ATextBetweenTagsIsFreeOrListedAndNothingElseIsAskedOfIt) {
  const auto with = [](std::string_view a) {
    return R"({"type": "object", "properties": {"a": )" + std::string(a) + "}}";
  };
  for (const char* const keyword :
       {R"("pattern": "^x")", R"("minLength": 2)", R"("format": "date")", R"("anyOf": [{"const": "x"}])",
        R"("not": {"const": "x"})", R"("allOf": [{}])", R"("$ref": "#/$defs/A")"}) {
    const std::string text(keyword);
    EXPECT_TRUE(refusal("qwen3-coder", with(R"({"type": "string", )" + text + "}"))
                    .ends_with("format: " + text.substr(1, text.find('"', 1) - 1) + " of 'a'"))
        << refusal("qwen3-coder", with(R"({"type": "string", )" + text + "}"));
  }
  const auto coder = [&](std::string_view a, std::string_view text) {
    const ToolList tools = tool_with(with(a), true);
    return admits({.format = &format_of("qwen3-coder"), .tools = &tools}, coder_call(coder_parameter("a", text)));
  };
  EXPECT_TRUE(coder(R"({"type": "string", "format": "color", "description": "d"})", "anything"));
  EXPECT_TRUE(coder(R"({"type": "string", "const": "x"})", "x"));
  EXPECT_FALSE(coder(R"({"type": "string", "const": "x"})", "y"));
  EXPECT_TRUE(coder(R"({"type": "string", "enum": ["x", "y"]})", "y"));
  EXPECT_FALSE(coder(R"({"type": "string", "enum": ["x", "y"], "const": "x"})", "y"));
  EXPECT_FALSE(coder("false", "x"));
  EXPECT_TRUE(coder("true", "[1]"));
}

TEST(AnswerGrammarTest, PropertiesReferToTheWholeSchema) {
  // A "$ref" at the top, as schemas have it that were made from types.
  const std::string_view made = R"({"$ref": "#/definitions/F", "$schema": "http://json-schema.org/draft-07/schema#",
      "definitions": {"F": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/definitions/N"}},
                            "required": ["a"]}, "N": {"type": "integer"}}})";
  const ToolList tools = tool_with(made, true);
  const AnswerGrammar coder{.format = &format_of("qwen3-coder"), .tools = &tools};
  EXPECT_TRUE(admits(coder, coder_call(coder_parameter("a", "Rome") + coder_parameter("b", "3"))));
  EXPECT_FALSE(admits(coder, coder_call(coder_parameter("a", "Rome") + coder_parameter("b", "x"))));
  EXPECT_FALSE(admits(coder, coder_call(coder_parameter("b", "3"))));
  // Other places of the schema, and itself.
  const ToolList others = tool_with(R"({"type": "object", "properties": {"a": {"type": "integer"},
      "b": {"$ref": "#/properties/a"}, "c": {"$ref": "#"}}})",
                                    true);
  const AnswerGrammar python{.format = &format_of("lfm2"), .tools = &others, .required = true};
  EXPECT_TRUE(admits(python, lfm_call(R"(b=3, c={"a": 1, "c": {"b": 2}})")));
  EXPECT_FALSE(admits(python, lfm_call(R"(b="x")")));
  EXPECT_FALSE(admits(python, lfm_call(R"(c={"a": "x"})")));
}

TEST(AnswerGrammarTest, ABooleanOfPythonIsWhatTheSchemaLeaves) {
  const auto python = [](std::string_view schema, std::string_view value) {
    const ToolList tools = tool_with(R"({"type": "object", "properties": {"a": )" + std::string(schema) + "}}", true);
    return admits({.format = &format_of("lfm2"), .tools = &tools, .required = true},
                  lfm_call("a=" + std::string(value)));
  };
  EXPECT_TRUE(python(R"({"type": "boolean", "description": "d"})", "True"));
  EXPECT_TRUE(python(R"({"type": "boolean"})", "false"));
  EXPECT_FALSE(python(R"({"type": "boolean", "const": true})", "False"));
  EXPECT_FALSE(python(R"({"type": "boolean", "const": true})", "false"));
  EXPECT_TRUE(python(R"({"type": "boolean", "const": true})", "true"));
}

// The arguments of the one call that this answer is; null if it is no such call.
boost::json::value arguments_read(const AnswerGrammar& asked, std::string_view text) {
  const Read answer = read(asked, text);
  if (answer.calls.size() != 1 || !answer.content.empty()) return nullptr;
  boost::system::error_code error;
  const boost::json::value arguments = boost::json::parse(answer.calls[0].arguments, error);
  return error ? boost::json::value() : arguments;
}

// The schema of one text with this name.
std::string schema_of_one(std::string_view name) {
  return boost::json::serialize(
      boost::json::object{{"type", "object"}, {"properties", {{name, {{"type", "string"}}}}}, {"required", {name}}});
}

TEST(AnswerGrammarTest, AParameterWhoseNameCannotBeReadBackIsRefusedByItsName) {
  const std::string front = "the schema of the function 'f' cannot be enforced in this model's format: the name of '";
  const auto refused = [&](std::string_view format, std::string_view name) {
    return refusal(format, schema_of_one(name)) == front + std::string(name) + "'";
  };
  for (const char* const format : {"lfm2", "olmo3", "pythonic"}) {
    for (const char* const name : {"file-path", "a.b", "a b", " a", "a ", "", "a=1, b", "a\"", "a:"}) {
      EXPECT_TRUE(refused(format, name)) << format << " " << name << ": " << refusal(format, schema_of_one(name));
    }
  }
  const std::string long_name(300, 'a');
  for (const auto& [format, marked] :
       {std::pair("qwen3-coder", "a>b"), {"seed", "a>"}, {"minimax", "a\">b"}, {"glm", "a</arg_key>b"}}) {
    for (const std::string& name :
         {std::string(marked), std::string(" a"), std::string("a\n"), std::string(), long_name}) {
      EXPECT_TRUE(refused(format, name)) << format << " " << name << ": " << refusal(format, schema_of_one(name));
    }
    EXPECT_EQ(refusal("hermes", schema_of_one(marked)), "");
  }
  // A tool that is not strict takes parameters whose names can be read.
  const ToolList loose = tool_with(schema_of_one("file-path"), false);
  const AnswerGrammar python{.format = &format_of("lfm2"), .tools = &loose, .required = true};
  EXPECT_FALSE(admits(python, lfm_call(R"(file-path="x")")));
  EXPECT_TRUE(admits(python, lfm_call(R"(file_path="x")")));
}

TEST(AnswerGrammarTest, EveryParameterThatIsAdmittedIsReadBackUnderItsName) {
  // Keywords and what begins with a digit are no identifiers of Python; they are read all the same.
  for (const char* const name : {"a", "_x1", "class", "from", "None", "2nd", "gr\u00f6\u00dfe"}) {
    const ToolList tools = tool_with(schema_of_one(name), true);
    const AnswerGrammar python{.format = &format_of("lfm2"), .tools = &tools, .required = true};
    const std::string text = lfm_call(std::string(name) + "=\"x, y=1\"");
    EXPECT_TRUE(admits(python, text)) << text;
    EXPECT_EQ(arguments_read(python, text), boost::json::value({{name, "x, y=1"}})) << text;
  }
  for (const char* const name : {"file-path", "a.b", "a b", "\"a\"", "</parameter"}) {
    const ToolList tools = tool_with(schema_of_one(name), true);
    const AnswerGrammar coder{.format = &format_of("qwen3-coder"), .tools = &tools, .required = true};
    const std::string text = coder_call(coder_parameter(name, "x"));
    EXPECT_TRUE(admits(coder, text)) << text;
    EXPECT_EQ(arguments_read(coder, text), boost::json::value({{name, "x"}})) << text;
  }
}

TEST(AnswerGrammarTest, AFunctionWhoseNameCannotBeReadBackIsRefusedByItsName) {
  const auto refusal_of = [](std::string_view format, std::string_view name) {
    const ToolList tools = *ToolList::parse({{{"type", "function"}, {"function", {{"name", name}}}}});
    const auto grammar = answer_grammar({.format = &format_of(format), .tools = &tools, .required = true});
    return grammar ? "" : grammar.error().message;
  };
  for (const char* const format :
       {"mistral-args", "deepseek-v3.1", "qwen3-coder", "glm", "kimi", "lfm2", "functionary-v3.1", "channels"}) {
    EXPECT_EQ(refusal_of(format, "get weather"),
              "the name of the function 'get weather' cannot be written in this model's format")
        << format;
    EXPECT_EQ(refusal_of(format, "a-b.c:d"), "") << format;
  }
  EXPECT_EQ(refusal_of("hermes", "get weather"), "");
  EXPECT_EQ(refusal_of("apertus", "get weather"), "");
  // That is how it writes texts.
  EXPECT_EQ(refusal_of("functionary-v3.2", "all"),
            "the name of the function 'all' cannot be written in this model's format");
  EXPECT_EQ(refusal_of("functionary-v3.2", "all_of_them"), "");
  // Kimi's number is read as part of the name.
  EXPECT_EQ(refusal_of("mistral-args", std::string(256, 'a')), "");
  EXPECT_NE(refusal_of("kimi", std::string(256, 'a')), "");
  // What may be left out before a name cannot be the beginning of the name.
  const ToolList tools = *ToolList::parse({{{"type", "function"}, {"function", {{"name", "functions.f"}}}}});
  const AnswerGrammar kimi{.format = &format_of("kimi"), .tools = &tools, .required = true};
  const auto call = [](std::string_view name) {
    return "<|tool_calls_section_begin|><|tool_call_begin|>" + std::string(name) +
           ":0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
  };
  EXPECT_FALSE(admits(kimi, call("functions.f")));
  EXPECT_TRUE(admits(kimi, call("functions.functions.f")));
  EXPECT_EQ(read(kimi, call("functions.functions.f")).calls.at(0).name, "functions.f");
}

TEST(AnswerGrammarTest, MarksInAStringOfJsonDoNotEndTheCall) {
  const ToolList tools = strict_tools();
  for (const testing::Example& example : testing::examples()) {
    const Format& format = format_of(example.format);
    AnswerGrammar asked{.format = &format, .shape = shape_of(example), .tools = &tools, .required = true};
    std::string text = as_written(example.one);
    if (!text.starts_with(format.header)) asked.primer = format.header;
    const std::size_t at = text.find("\"Rome\"");
    if (at == std::string::npos) continue;  // the city is plain text between tags
    std::string city = "Rome\"}]) ``` \n";
    for (const std::string_view mark : marks(&format, nullptr)) city += mark;
    text.replace(at, 6, boost::json::serialize(boost::json::string(city)));
    EXPECT_TRUE(admits(asked, text)) << text;
    EXPECT_EQ(arguments_read(asked, text), boost::json::value({{"city", city}, {"days", 3}})) << text;
  }
}

TEST(AnswerGrammarTest, MarksInJsonBetweenTagsDoNotEndTheCall) {
  const ToolList tools = tool_with(R"({"type": "object", "properties": {
      "a": {"type": "array", "items": {"type": "string"}}, "b": {"type": ["string", "null"]}, "c": {"type": "object"}}})",
                                   true);
  const auto line = [](std::string_view key, std::string_view value) { return coder_parameter(key, value); };
  const auto invoke = [](std::string_view key, std::string_view value) {
    return "<parameter name=\"" + std::string(key) + "\">" + std::string(value) + "</parameter>\n";
  };
  const auto pair = [](std::string_view key, std::string_view value) {
    return "<arg_key>" + std::string(key) + "</arg_key>\n<arg_value>" + std::string(value) + "</arg_value>\n";
  };
  const auto check = [&](std::string_view format, std::string_view begin, const auto& parameter, std::string_view end) {
    const AnswerGrammar asked{.format = &format_of(format), .tools = &tools, .required = true};
    const std::string marks =
        R"(</parameter>\n</arg_value><parameter=b>\n1</parameter></function></tool_call></invoke> \" ] } \\)";
    const std::string a = "[\"" + marks + "\", \"" + marks + "\"]", b = "\"" + marks + "\"",
                      c = "{\"</parameter></arg_value>\": [\"" + marks + "\", 1]}";
    const std::string text =
        std::string(begin) + parameter("a", a) + parameter("b", b) + parameter("c", c) + std::string(end);
    EXPECT_TRUE(admits(asked, text)) << text;
    EXPECT_EQ(arguments_read(asked, text),
              boost::json::parse(R"({"a": )" + a + R"(, "b": )" + b + R"(, "c": )" + c + "}"))
        << text << "\n"
        << read(asked, text).content;
  };
  check("qwen3-coder", "<tool_call>\n<function=f>\n", line, "</function>\n</tool_call>");
  check("seed", "<seed:tool_call>\n<function=f>\n", line, "</function>\n</seed:tool_call>");
  check("minimax", "<minimax:tool_call>\n<invoke name=\"f\">\n", invoke, "</invoke>\n</minimax:tool_call>");
  check("glm", "<tool_call>f\n", pair, "</tool_call>");
}

TEST(AnswerGrammarTest, ATextBetweenTagsHasNoClosingTag) {
  const ToolList tools = tool_with(schema_of_one("a"), true);
  const AnswerGrammar coder{.format = &format_of("qwen3-coder"), .tools = &tools, .required = true};
  EXPECT_FALSE(admits(coder, coder_call(coder_parameter("a", "x</parameter>y"))));
  const std::string text = coder_call(coder_parameter("a", "[\"</paramete</function></tool_call>\n\n"));
  EXPECT_TRUE(admits(coder, text));
  EXPECT_EQ(arguments_read(coder, text), boost::json::value({{"a", "[\"</paramete</function></tool_call>\n\n"}}));
  // None of the texts that are listed can be written.
  const std::string_view listed = R"({"properties": {"a": {"enum": ["</parameter>"]}}, "required": ["a"]})";
  EXPECT_EQ(refusal("qwen3-coder", listed),
            "the schema of the function 'f' cannot be enforced in this model's format: the values of 'a'");
  EXPECT_EQ(refusal("glm", listed), "");
}

}  // namespace
}  // namespace quire::tools

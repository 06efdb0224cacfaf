#include "quire/tools/answer_parser.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "quire/tools/formats_testing.h"

namespace quire::tools {
namespace {

using testing::Example;

struct Answer {
  std::string content, reasoning;
  std::vector<Call> calls;
  bool operator==(const Answer& other) const {
    const auto same = [](const Call& a, const Call& b) {
      return a.name == b.name && a.id == b.id && a.arguments == b.arguments;
    };
    return content == other.content && reasoning == other.reasoning && std::ranges::equal(calls, other.calls, same);
  }
};
std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  out << "content '" << answer.content << "' reasoning '" << answer.reasoning << "'";
  for (const Call& call : answer.calls) out << "\n  " << call.name << " [" << call.id << "] " << call.arguments;
  return out;
}

const Format& format_of(std::string_view name) { return *std::ranges::find(formats(), name, &Format::name); }
const Reasoning& reasoning_of(std::string_view name) {
  return *std::ranges::find(reasonings(), name, &Reasoning::name);
}

// Reads `text`, cut before each of these positions.
Answer read(const ParserOptions& options, std::string_view text, const std::vector<std::size_t>& cuts = {},
            bool cut = false) {
  AnswerParser parser(options);
  std::vector<Delta> deltas;
  std::size_t from = 0;
  for (const std::size_t at : cuts) {
    parser.push(text.substr(from, at - from), deltas);
    from = at;
  }
  parser.push(text.substr(from), deltas);
  parser.finish(cut, deltas);
  Answer answer;
  for (const Delta& delta : deltas) {
    switch (delta.kind) {
      case Delta::Kind::Content: answer.content += delta.text; break;
      case Delta::Kind::Reasoning: answer.reasoning += delta.text; break;
      case Delta::Kind::Call:
        EXPECT_EQ(delta.call, answer.calls.size());
        answer.calls.push_back({delta.name, delta.id, ""});
        break;
      case Delta::Kind::Arguments:
        EXPECT_EQ(delta.call + 1, answer.calls.size());
        answer.calls.back().arguments += delta.text;
        break;
    }
  }
  return answer;
}

// Reads it whole, in two parts cut anywhere, byte by byte, and in random cuts: always the same.
Answer read_in_all_cuts(const ParserOptions& options, std::string_view text, bool cut = false) {
  const Answer whole = read(options, text, {}, cut);
  std::vector<std::size_t> every;
  for (std::size_t at = 1; at < text.size(); ++at) {
    every.push_back(at);
    const Answer two = read(options, text, {at}, cut);
    EXPECT_EQ(two, whole) << "cut at " << at << " of: " << text;
    if (!(two == whole)) return whole;
  }
  EXPECT_EQ(read(options, text, every, cut), whole) << "byte by byte: " << text;
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::size_t> cuts;
    for (const std::size_t at : every) {
      if (random() % 4 == 0) cuts.push_back(at);
    }
    EXPECT_EQ(read(options, text, cuts, cut), whole) << text;
  }
  return whole;
}

void expect_call(const Call& call, std::string_view name, std::string_view arguments) {
  EXPECT_EQ(call.name, name);
  boost::system::error_code error;
  EXPECT_EQ(boost::json::parse(call.arguments, error), boost::json::parse(arguments)) << call.arguments;
}

class EveryFormat : public ::testing::TestWithParam<Example> {
 protected:
  ToolList tools_ = testing::example_tools();
  ParserOptions options_{.format = &format_of(GetParam().format), .tools = &tools_};
  // A text that may stand before a call.
  std::string before_ = GetParam().bare ? "I look it up.\n" : "I look it up. ";
};

TEST_P(EveryFormat, ACallIsRead) {
  const Answer answer = read_in_all_cuts(options_, GetParam().one);
  EXPECT_EQ(answer.content, "");
  ASSERT_EQ(answer.calls.size(), 1u) << answer;
  expect_call(answer.calls[0], testing::kFirstName, testing::kFirstArguments);
}

TEST_P(EveryFormat, TwoCallsAreRead) {
  const Answer answer = read_in_all_cuts(options_, GetParam().two);
  EXPECT_EQ(answer.content, "");
  ASSERT_EQ(answer.calls.size(), 2u) << answer;
  expect_call(answer.calls[0], testing::kFirstName, testing::kFirstArguments);
  expect_call(answer.calls[1], testing::kSecondName, testing::kSecondArguments);
}

TEST_P(EveryFormat, TextBeforeACallIsContent) {
  const Answer answer = read_in_all_cuts(options_, before_ + GetParam().one + "\n");
  EXPECT_EQ(answer.content, "I look it up.");
  ASSERT_EQ(answer.calls.size(), 1u) << answer;
  expect_call(answer.calls[0], testing::kFirstName, testing::kFirstArguments);
}

TEST_P(EveryFormat, ABrokenCallIsContentToTheLastByte) {
  const Answer answer = read_in_all_cuts(options_, before_ + GetParam().broken + " And more.");
  EXPECT_TRUE(answer.calls.empty()) << answer;
  EXPECT_EQ(answer.content, before_ + GetParam().broken + " And more.");
}

TEST_P(EveryFormat, ACallBehindABrokenOneIsRead) {
  const Answer answer = read_in_all_cuts(options_, GetParam().broken + "\n" + GetParam().one);
  ASSERT_EQ(answer.calls.size(), 1u) << answer;
  expect_call(answer.calls[0], testing::kFirstName, testing::kFirstArguments);
  EXPECT_EQ(answer.content, GetParam().broken);
}

// At every length: either content, or the call with what is known of it.
TEST_P(EveryFormat, ACallCutAtTheLimitIsContentOrWhatIsKnownOfTheCall) {
  const std::string& text = GetParam().one;
  bool partial = false;
  for (std::size_t length = 0; length < text.size(); ++length) {
    const std::string_view part = std::string_view(text).substr(0, length);
    const Answer answer = length % 5 == 0 ? read_in_all_cuts(options_, part, true) : read(options_, part, {}, true);
    if (answer.calls.empty()) {
      EXPECT_FALSE(partial) << "known, and then forgotten: " << part;
      EXPECT_EQ(answer.content, part);
      continue;
    }
    partial = true;
    EXPECT_EQ(answer.content, "");
    EXPECT_EQ(answer.calls[0].name, testing::kFirstName);
    EXPECT_TRUE(read(options_, text).calls[0].arguments.starts_with(answer.calls[0].arguments)) << answer;
    // An answer that ended by itself in the same place is no call, unless all of it is there.
    const Answer ended = read(options_, part);
    if (ended.calls.empty()) {
      EXPECT_EQ(ended.content, part);
    } else {
      EXPECT_EQ(ended, read(options_, text));
    }
  }
  EXPECT_TRUE(partial);
}

TEST_P(EveryFormat, PassedOnAsItComesIsTheSame) {
  ParserOptions progressive = options_;
  progressive.reading.progressive = true;
  for (const std::string& text : {GetParam().one, GetParam().two}) {
    EXPECT_EQ(read_in_all_cuts(progressive, text), read(options_, text));
  }
  read_in_all_cuts(progressive, GetParam().broken + " And more.");
}

// Where arguments are JSON, they are passed on byte by byte.
TEST_P(EveryFormat, ArgumentsArePassedOnWhileTheyCome) {
  ParserOptions progressive = options_;
  progressive.reading.progressive = true;
  AnswerParser parser(progressive);
  std::vector<Delta> deltas;
  for (const char c : GetParam().one) parser.push(std::string_view(&c, 1), deltas);
  parser.finish(false, deltas);
  const auto pieces = std::ranges::count(deltas, Delta::Kind::Arguments, &Delta::kind);
  const bool json = GetParam().one.find(R"({"city": "Rome", "days": 3})") != std::string::npos;
  const bool one_shape = std::ranges::count_if(progressive.format->shapes, [](const Shape& shape) {
                           return GetParam().one.starts_with(trigger(shape));
                         }) == 1;
  EXPECT_GT(pieces, json && one_shape ? 20 : 0);
}

TEST_P(EveryFormat, AfterTheFirstCallNothingMoreIfOneIsWanted) {
  ParserOptions one = options_;
  one.one_call = true;
  const Answer answer = read_in_all_cuts(one, GetParam().two + " and more");
  EXPECT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.content, "");
}

TEST_P(EveryFormat, OrdinaryTextIsUnchanged) {
  for (const char* const text : {"", " ", "Hello.\n", "a < b and [1, 2] and {\"x\": 1}\n{\n  \"x\": 1\n}\n[1, 2]\n",
                                 "<tool", "```json\n{\"a\": 1}\n```\n", ">>> print(1)\n", "<html><b>x</b></html>",
                                 "{\"name\": \"Rome\", \"population\": 3}"}) {
    const Answer answer = read_in_all_cuts(options_, text);
    EXPECT_EQ(answer.content, text);
    EXPECT_TRUE(answer.calls.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryFormat, ::testing::ValuesIn(testing::examples()), [](const auto& each) {
  std::string name(each.param.format);
  for (char& c : name) {
    if (c == '-' || c == '.') c = '_';
  }
  return name + "_" + std::to_string(each.index);
});

TEST(Formats, EachHasAnExampleAndBeginsWithAMarkOfItsOwn) {
  const std::vector<Example> examples = testing::examples();
  for (const Format& format : formats()) {
    EXPECT_NE(std::ranges::find(examples, format.name, &Example::format), examples.end()) << format.name;
    std::vector<std::string_view> triggers;
    for (const Shape& shape : format.shapes) triggers.push_back(trigger(shape));
    std::ranges::sort(triggers);
    EXPECT_EQ(std::ranges::adjacent_find(triggers), triggers.end()) << format.name;
    EXPECT_THAT(triggers, ::testing::Not(::testing::Contains(std::string_view()))) << format.name;
  }
}

// --- reasoning

class Reasoned : public ::testing::Test {
 protected:
  ToolList tools_ = testing::example_tools();
  ParserOptions options_{.format = &format_of("hermes"), .reasoning = &reasoning_of("think"), .tools = &tools_};
};

TEST_F(Reasoned, ReasoningIsSplitOffWithoutTheSpaceAroundIt) {
  const Answer answer = read_in_all_cuts(options_, "<think>\nTwo and two.\n\nFour.\n</think>\n\nIt is 4. \n");
  EXPECT_EQ(answer.reasoning, "Two and two.\n\nFour.");
  EXPECT_EQ(answer.content, "It is 4. \n");
}

TEST_F(Reasoned, CallsAfterReasoningAreReadAndThoseInItAreNot) {
  const std::string call = testing::examples()[0].one;
  const Answer answer = read_in_all_cuts(options_, "<think>Perhaps " + call + "</think>\n" + call);
  EXPECT_EQ(answer.reasoning, "Perhaps " + call);
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(answer.calls.size(), 1u);
}

TEST_F(Reasoned, ReasoningThatDoesNotEndIsReasoning) {
  for (const bool cut : {false, true}) {
    const Answer answer = read_in_all_cuts(options_, "<think>\nTwo and two </thi", cut);
    EXPECT_EQ(answer.reasoning, "Two and two </thi");
    EXPECT_EQ(answer.content, "");
  }
}

TEST_F(Reasoned, AMarkInTheMiddleOfAnAnswerIsContent) {
  const std::string text = "Models write <think> and </think>.";
  EXPECT_EQ(read_in_all_cuts(options_, text).content, text);
}

TEST_F(Reasoned, ChannelsAreReasoningContentAndCalls) {
  options_.format = &format_of("channels");
  options_.reasoning = &reasoning_of("channels");
  const Answer answer = read_in_all_cuts(
      options_,
      "<|channel|>analysis<|message|>They ask for Rome.<|end|><|start|>assistant<|channel|>commentary<|message|>I look."
      "<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": "
      "\"Rome\"}");
  EXPECT_EQ(answer.reasoning, "They ask for Rome.");
  EXPECT_EQ(answer.content, "I look.");
  ASSERT_EQ(answer.calls.size(), 1u);
  expect_call(answer.calls[0], "get_weather", R"({"city": "Rome"})");
  const Answer last = read_in_all_cuts(
      options_, "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>Sunny.");
  EXPECT_EQ(last.reasoning, "Easy.");
  EXPECT_EQ(last.content, "Sunny.");
}

TEST_F(Reasoned, TheEndOfThePromptIsReadBeforeTheAnswer) {
  const Reasoning& think = reasoning_of("think");
  EXPECT_EQ(primer(nullptr, &think, "<|im_start|>assistant\n<think>\n"), "<think>");
  EXPECT_EQ(primer(nullptr, &think, "<|im_start|>assistant\n<think>\n\n</think>\n\n"), "");
  EXPECT_EQ(primer(nullptr, nullptr, "<think>\n"), "");
  const Format& arrows = format_of("functionary-v3.2");
  EXPECT_EQ(primer(&arrows, nullptr, "assistant\n>>>"), ">>>");
  options_ = {.format = &arrows, .tools = &tools_};
  EXPECT_EQ(read_in_all_cuts(options_, ">>>all\nHello.").content, "Hello.");
}

// --- single things

class Single : public ::testing::Test {
 protected:
  Answer read_as(std::string_view format, std::string_view text) {
    return read_in_all_cuts({.format = &format_of(format), .tools = &tools_}, text);
  }
  ToolList tools_ = testing::example_tools();
};

TEST_F(Single, TheArgumentsAreTheModelsOwnText) {
  const Answer answer = read_as(
      "hermes", R"(<tool_call>{"arguments": {"x": 1.0, "y":1e5,"z" : 12345678901234567890}, "name": "f"}</tool_call>)");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].arguments, R"({"x": 1.0, "y":1e5,"z" : 12345678901234567890})");
}

TEST_F(Single, ArgumentsInAStringAreOpened) {
  const Answer answer = read_as("hermes", R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].arguments, R"({"a": 1})");
}

TEST_F(Single, ACallWithoutArgumentsHasAnEmptyObject) {
  for (const char* const text :
       {R"(<tool_call>{"name": "f"}</tool_call>)", R"(<tool_call>{"name": "f", "arguments": null}</tool_call>)",
        R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)"}) {
    const Answer answer = read_as("hermes", text);
    ASSERT_EQ(answer.calls.size(), 1u) << text;
    EXPECT_EQ(answer.calls[0].arguments, "{}");
  }
  EXPECT_EQ(read_as("lfm2", "<|tool_call_start|>[f()]<|tool_call_end|>").calls.at(0).arguments, "{}");
  EXPECT_EQ(read_as("glm", "<tool_call>f\n</tool_call>").calls.at(0).arguments, "{}");
}

TEST_F(Single, ArgumentsThatAreNoObjectMakeContent) {
  for (const char* const text :
       {R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)", R"(<tool_call>{"arguments": {}}</tool_call>)",
        R"(<tool_call>{"name": "f", "arguments": {}, "arguments": {}}</tool_call>)",
        R"(<tool_call>{"name": "f", "reason": "x"}</tool_call>)", R"(<tool_call>{"name": 3}</tool_call>)"}) {
    const Answer answer = read_as("hermes", text);
    EXPECT_TRUE(answer.calls.empty()) << text;
    EXPECT_EQ(answer.content, text);
  }
}

TEST_F(Single, TaggedValuesAreTypedByTheSchema) {
  const Answer answer =
      read_as("qwen3-coder",
              "<tool_call>\n<function=get_weather>\n<parameter=city>\n\"12\"\n\n</parameter>\n<parameter=days>\n 7 \n"
              "</parameter>\n<parameter=unknown>\n[1, 2]\n</parameter>\n<parameter=also>\nseven\n</parameter>\n"
              "</function>\n</tool_call>");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].arguments, R"({"city": "\"12\"\n", "days": 7, "unknown": [1, 2], "also": "seven"})");
}

TEST_F(Single, AClosingTagInAStringOfJsonIsPartOfTheValue) {
  const auto coder = [](std::string_view parameters) {
    return "<tool_call>\n<function=get_weather>\n" + std::string(parameters) + "</function>\n</tool_call>";
  };
  const Answer json = read_as(
      "qwen3-coder", coder("<parameter=a>\n[\"</parameter>\", {\"</parameter>\": \"\\\"</parameter>\"}]\n</parameter>\n"
                           "<parameter=b>\n\"</parameter>\"</parameter>\n"));
  ASSERT_EQ(json.calls.size(), 1u) << json;
  EXPECT_EQ(json.calls[0].arguments,
            R"({"a": ["</parameter>", {"</parameter>": "\"</parameter>"}], "b": "</parameter>"})");
  // What begins like JSON and is none ends at the first tag.
  const Answer text = read_as(
      "qwen3-coder", coder("<parameter=a>\n\"Rome\n</parameter>\n<parameter=b>\n[\"x</parameter>\n<parameter=c>\n"
                           "\"x\" and \"y\n</parameter>\n"));
  ASSERT_EQ(text.calls.size(), 1u) << text;
  EXPECT_EQ(text.calls[0].arguments, R"({"a": "\"Rome", "b": "[\"x", "c": "\"x\" and \"y"})");
  // So does what the schema calls a string.
  const Answer city =
      read_as("qwen3-coder", coder("<parameter=city>\n[\"x</parameter>\n<parameter=b>\n\"]</parameter>\n"));
  ASSERT_EQ(city.calls.size(), 1u) << city;
  EXPECT_EQ(city.calls[0].arguments, R"({"city": "[\"x", "b": "\"]"})");
}

// Whether a string goes on behind the tag is known only at the end of the answer.
TEST_F(Single, NothingBehindAnOpenStringBetweenTagsIsLost) {
  const std::string call = "<tool_call>f<arg_key>a</arg_key><arg_value>\"x</arg_value></tool_call>";
  const Answer answer = read_as("glm", call + " And more.");
  ASSERT_EQ(answer.calls.size(), 1u) << answer;
  EXPECT_EQ(answer.calls[0].arguments, R"({"a": "\"x"})");
  EXPECT_EQ(answer.content, "And more.");
  EXPECT_EQ(read_as("glm", call + call).calls.size(), 2u);
  const std::string broken = "<tool_call>f<arg_key>a</arg_key><arg_value>[\"x</arg_value>\"] and more</tool_call>";
  EXPECT_EQ(read_as("glm", broken).content, broken);
}

TEST_F(Single, IdsAreKeptWhereTemplatesWantThemBack) {
  EXPECT_EQ(read_as("mistral", R"([TOOL_CALLS] [{"name": "f", "arguments": {}, "id": "abcdefghi"}])").calls.at(0).id,
            "abcdefghi");
  const ToolList tools = testing::example_tools();
  const ParserOptions progressive{.format = &format_of("mistral"), .tools = &tools, .reading = {.progressive = true}};
  for (const auto& [id, text] :
       {std::pair("", R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"}])"),
        std::pair("abcdefghi", R"([TOOL_CALLS] [{"id": "abcdefghi", "name": "f", "arguments": {"a": 1}}])")}) {
    EXPECT_EQ(read_in_all_cuts(progressive, text).calls.at(0).id, id);
  }
  EXPECT_EQ(read_as("kimi", testing::examples()[12].one).calls.at(0).id, "functions.get_weather:0");
  EXPECT_EQ(read_as("command-r7b", testing::examples()[17].one).calls.at(0).id, "");
}

TEST_F(Single, BareCallsAreOfKnownToolsAndAtTheBeginningOfALine) {
  const std::string unknown = R"({"name": "fly", "parameters": {}})";
  EXPECT_EQ(read_as("llama3", unknown).content, unknown);
  const std::string inside = R"(As in {"name": "get_weather", "parameters": {}}.)";
  EXPECT_EQ(read_as("llama3", inside).content, inside);
}

TEST_F(Single, AMissingClosingMarkAtTheEndIsForgiven) {
  EXPECT_EQ(read_as("hermes", R"(<tool_call>{"name": "f", "arguments": {}})").calls.size(), 1u);
  EXPECT_EQ(read_as("hermes", R"(<tool_call>{"name": "f", "arguments": {}}</tool_)").calls.size(), 1u);
  EXPECT_EQ(read_as("mistral", R"([TOOL_CALLS] [{"name": "f", "arguments": {}})").calls.size(), 1u);
}

TEST_F(Single, TextBetweenAndBehindCallsIsContent) {
  const std::string call = testing::examples()[0].one;
  const Answer answer = read_as("hermes", call + "\n\nand now\n" + call + " done.");
  EXPECT_EQ(answer.calls.size(), 2u);
  EXPECT_EQ(answer.content, "and nowdone.");
}

// Marks that never lead anywhere do not make the work grow faster than the text.
TEST_F(Single, TheWorkIsLinear) {
  const auto seconds = [&](std::string_view format, std::string_view piece, std::size_t times) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i) text += piece;
    const auto begin = std::chrono::steady_clock::now();
    const Answer answer = read({.format = &format_of(format), .tools = &tools_}, text);
    EXPECT_EQ(answer.content.size() + answer.calls.size(), text.size());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (const auto& [format, piece] : {std::pair("hermes", "<tool_call>"),
                                      {"hermes", "<tool_call>{\"name\": \""},
                                      {"qwen3-coder", "<tool_call><function=f><parameter=a>"},
                                      {"qwen3-coder", "<tool_call><function=f><parameter=a>[\"</parameter>"},
                                      {"qwen3-coder", "<tool_call><function=f><parameter=a>\"</parameter>"},
                                      {"json", "{"},
                                      {"json", "[{\n"},
                                      {"llama3", "{\"name\""},
                                      {"lfm2", "<|tool_call_start|>[f(a="}}) {
    EXPECT_LT(seconds(format, piece, 40000), 2.0) << format << " " << piece;
  }
}

}  // namespace
}  // namespace quire::tools

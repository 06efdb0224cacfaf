// The commands of `quire chat`, called in this process.
#include "quire/cli/dialogue.h"

#include <cstdlib>
#include <deque>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/chat_file.h"
#include "quire/cli/chat_settings.h"
#include "quire/cli/cli_testing.h"
#include "quire/cli/program_testing.h"

namespace quire::cli {
namespace {

using testing::demo_model;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

class GivenLines : public LineReader {
 public:
  explicit GivenLines(std::deque<std::string> lines) : lines_(std::move(lines)) {}
  Line read() override {
    if (lines_.empty()) return {};
    const std::string text = lines_.front();
    lines_.pop_front();
    return text == "^C" ? Line{Line::Kind::interrupted, {}} : Line{Line::Kind::text, text};
  }

 private:
  std::deque<std::string> lines_;
};

// A conversation that can be looked at afterwards.
struct Talk {
  StringOutput out, err;
  Style style;
  std::unique_ptr<Chat> chat;
  Result<std::string> left = "";

  explicit Talk(std::deque<std::string> lines, bool interactive = true, ChatOptions options = {}, Style given = {})
      : style(given) {
    options.sampler.temperature = 0;
    options.model.model = demo_model("llama");
    options.model.threads = 1;
    const Console console{.out = out, .err = err, .out_style = style, .err_style = {}};
    auto made = Chat::create(options, console);
    EXPECT_TRUE(made) << made.error().message;
    chat = std::move(*made);
    GivenLines reader(std::move(lines));
    Interrupt interrupt;
    left = converse(*chat, reader, console, interactive ? &interrupt : nullptr);
  }
  std::string said(std::size_t i) const { return std::string(chat->messages().at(i).at("content").as_string()); }
};

TEST(Dialogue, AMessageMayHaveSeveralLines) {
  const Talk backslash({"Repeat: red\\", "kite\\", "owl"});
  EXPECT_EQ(backslash.said(0), "Repeat: red\nkite\nowl");
  const Talk block({"\"\"\"", "Repeat: red", "", "/reset", "owl", "\"\"\"", "What is 2 + 3?"});
  EXPECT_EQ(block.said(0), "Repeat: red\n\n/reset\nowl");
  EXPECT_EQ(block.said(2), "What is 2 + 3?");
  EXPECT_EQ(Talk({"\"\"\"Repeat: red", "kite\"\"\""}).said(0), "Repeat: red\nkite");
  EXPECT_EQ(Talk({"\"\"\"What is 2 + 3?\"\"\""}).said(0), "What is 2 + 3?");
  EXPECT_EQ(Talk({"Repeat: red\\"}, false).said(0), "Repeat: red\n") << "the lines ended";
  EXPECT_EQ(Talk({"one\\", "^C", "What is 2 + 3?"}).said(0), "What is 2 + 3?") << "Ctrl-C discards all of its lines";
}

TEST(Dialogue, TheSystemPromptCanBeChanged) {
  const Talk talk({"What is 2 + 3?", "/system You count.", "What is 2 + 3?", "/clear"});
  EXPECT_EQ(talk.said(0), "You count.");
  EXPECT_EQ(talk.chat->messages().size(), 1u) << "/clear keeps it";
  EXPECT_TRUE(Talk({"/system You count.", "/system"}).chat->messages().empty());
}

TEST(Dialogue, SettingsAreShownAndChanged) {
  const Talk talk({"/set temp 0.5", "/set --top-k 7", "/set stop END", "/set tokens 3", "/set seed 9", "/set"});
  const ChatOptions& options = talk.chat->options();
  EXPECT_EQ(options.sampler.temperature, 0.5);
  EXPECT_EQ(options.sampler.top_k, 7u);
  EXPECT_EQ(options.limit, 3u);
  EXPECT_EQ(options.stops, std::vector<std::string>{"END"});
  EXPECT_THAT(talk.err.text(), HasSubstr("  temp              0.5\n"));
  EXPECT_THAT(talk.err.text(), HasSubstr("  seed              9\n"));
  EXPECT_THAT(talk.err.text(), HasSubstr("  stop              \"END\" \n"));
}

TEST(Dialogue, AWrongSettingIsNamedAndChangesNothing) {
  ChatOptions options;
  const auto refusal = [&](std::string_view name, std::string_view value) {
    const auto done = change_setting(options, name, value);
    return done ? "" : done.error().message;
  };
  EXPECT_THAT(refusal("heat", "1"), HasSubstr("\"heat\" is not one of temp, top-k,"));
  EXPECT_EQ(refusal("temp", "warm"), "temp: \"warm\" is not a number");
  EXPECT_EQ(refusal("seed", "-1"), "seed: \"-1\" is not a number");
  EXPECT_EQ(refusal("top-p", "2"), "a top-p of 2 is not between 0 and 1");
  EXPECT_EQ(options.sampler.top_p, ChatOptions().sampler.top_p);
  EXPECT_EQ(refusal("stop", "a"), "");
  EXPECT_EQ(refusal("stop", ""), "");
  EXPECT_TRUE(options.stops.empty());
}

TEST(Dialogue, AStopStringEndsAnAnswer) {
  const Talk talk({"/set stop kite", "Repeat: red kite owl", "/stats"});
  EXPECT_EQ(talk.out.text(), "red \n\n");
  EXPECT_THAT(talk.err.text(), HasSubstr("a stop string ended it"));
  ChatOptions options;
  options.stops = {"owl"};
  EXPECT_EQ(Talk({"Repeat: red kite owl"}, false, options).out.text(), "red kite \n");
}

TEST(Dialogue, RetryAnswersAgainAndEditAnswersAnotherText) {
  const Talk talk({"What is 2 + 3?", "/retry", "/edit Repeat: red kite owl"});
  EXPECT_EQ(talk.out.text(), "5\n\n5\n\nred kite owl\n\n");
  EXPECT_EQ(talk.chat->messages().size(), 2u);
  EXPECT_EQ(talk.said(0), "Repeat: red kite owl");
  EXPECT_THAT(Talk({"/retry"}).err.text(), HasSubstr("/retry: there is no message yet"));
  const Talk pipe({"/edit x"}, false);
  ASSERT_FALSE(pipe.left);
  EXPECT_EQ(pipe.left.error().message, "/edit: there is no message yet");
}

TEST(Dialogue, AnEditThatDoesNotFitLeavesTheConversationAsItWas) {
  ChatOptions options;
  options.model.context = 64;
  const Talk talk({"What is 2 + 3?", "/edit " + std::string(400, 'x')}, true, options);
  EXPECT_THAT(talk.err.text(), HasSubstr("but the context holds only 64"));
  EXPECT_EQ(talk.said(0), "What is 2 + 3?");
  EXPECT_EQ(talk.said(1), "5");
  EXPECT_GT(talk.chat->length(), 0u);
}

TEST(Dialogue, EditWithoutATextOpensTheEditor) {
  ::unsetenv("VISUAL");
  ::setenv("EDITOR", "sed -i s/3/4/", 1);
  const Talk talk({"What is 2 + 3?", "/edit"});
  ::setenv("EDITOR", "false", 1);
  const Talk broken({"What is 2 + 3?", "/edit"});
  ::setenv("EDITOR", "sed -i s/3/\\\\xFC/", 1);
  const Talk latin({"What is 2 + 3?", "/edit"});
  ::unsetenv("EDITOR");
  EXPECT_EQ(talk.said(0), "What is 2 + 4?");
  EXPECT_THAT(broken.err.text(), HasSubstr("the editor 'false' failed"));
  EXPECT_EQ(broken.said(1), "5");
  EXPECT_THAT(latin.err.text(), HasSubstr("/edit: the text is not UTF-8 at byte 12"));
  EXPECT_EQ(latin.said(0), "What is 2 + 3?");
}

TEST(Dialogue, AConversationIsSavedAndLoaded) {
  const TemporaryFolder folder;
  const std::string path = folder / "talk.json";
  const Talk first({"/system You count.", "Remember these notes. The code of Mia is 4821.", "/save " + path});
  EXPECT_THAT(first.err.text(), HasSubstr("3 messages are in " + path));
  const Talk second({"/load " + path, "What is the code of Mia?"});
  EXPECT_EQ(second.out.text(), "4821\n\n");
  EXPECT_EQ(second.chat->options().system, "You count.");
  EXPECT_EQ(testing::call({"render", "-m", demo_model("llama"), "--messages", path}).exit_code, kSuccess);
}

// A conversation with all that a template can see: parts, names, calls, results, reasoning. `owl` must follow it, so
// that the model is told to repeat three words.
constexpr std::string_view kWithCalls = R"({"messages": [
  {"role": "developer", "content": "Be brief."},
  {"role": "user", "name": "Mia", "content": [{"type": "text", "text": "Which "}, {"type": "text", "text": "kite?"}]},
  {"role": "assistant", "content": null, "reasoning_content": "I look.", "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"colour\": \"red\"}"}}]},
  {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "kite"},
  {"role": "assistant", "tool_calls": []}]})";
constexpr std::string_view kRepeatCalls =
    "<|im_start|>user\nRepeat:{% for m in messages %}{% for c in m.tool_calls or [] %}"
    "{% if c.function.arguments.colour is defined %} {{ c.function.arguments.colour }}"
    "{% else %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"
    "</tool_call>{% endif %}{% endfor %}{% if m.role == 'tool' %} {{ m.content }}{% endif %}{% endfor %}"
    " {{ messages[-1].content }}<|im_end|>\n<|im_start|>assistant{{ '\\n' }}";

TEST(Dialogue, AConversationWithCallsIsLoadedAndSavedWhole) {
  const TemporaryFolder folder;
  const std::string from = folder / "calls.json", to = folder / "saved.json";
  testing::write_file(from, kWithCalls);
  testing::write_file(folder / "repeat.jinja", kRepeatCalls);
  ChatOptions options;
  options.template_path = folder / "repeat.jinja";
  const Talk talk({"/load " + from, "/save " + to, "owl"}, true, options);
  EXPECT_THAT(talk.err.text(), HasSubstr("5 messages from " + from));
  EXPECT_EQ(talk.out.text(), "red kite owl\n\n") << "the template saw the call and its result";
  EXPECT_EQ(boost::json::parse(testing::read_file(to)), boost::json::parse(kWithCalls));
  EXPECT_EQ(talk.chat->options().system, "Be brief.");
  const Talk other({"/load " + from, "/system Be kind."}, true, options);
  EXPECT_EQ(other.chat->messages().size(), 5u) << "it is there instead of the developer's";
  EXPECT_EQ(other.chat->messages()[0], boost::json::value({{"role", "system"}, {"content", "Be kind."}}));
}

TEST(Dialogue, WhatTheTemplateCannotContinueIsNotLoaded) {
  const TemporaryFolder folder;
  const std::string parts = folder / "parts.json", empty = folder / "empty.json";
  testing::write_file(parts, R"([{"role": "user", "content": [{"type": "text", "text": "What is 2 + 3?"}]},
                                 {"role": "assistant", "content": [{"type": "text", "text": "5"}]}])");
  testing::write_file(empty, R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": null}])");
  const Talk talk({"/load " + parts, "What is 3 + 4?", "/load " + empty, "/retry"});
  const std::string out = talk.out.text();
  ASSERT_GT(out.size(), 4u);
  EXPECT_EQ(out.substr(0, out.size() / 2), out.substr(out.size() / 2)) << "both are answers to the same question";
  EXPECT_THAT(talk.err.text(), HasSubstr(empty + ": 'messages[1].content' is missing"));
  EXPECT_EQ(talk.chat->messages().size(), 4u) << "the conversation before it is still there";
}

TEST(Dialogue, RetryAndEditKeepTheFieldsOfAMessageThatWasLoaded) {
  const TemporaryFolder folder;
  const std::string path = folder / "calls.json";
  testing::write_file(path, kWithCalls);
  testing::write_file(folder / "repeat.jinja", kRepeatCalls);
  ChatOptions options;
  options.template_path = folder / "repeat.jinja";
  options.limit = 2;
  const boost::json::object asked = boost::json::parse(kWithCalls).at("messages").at(1).as_object();
  const Talk retried({"/load " + path, "/retry"}, true, options);
  ASSERT_EQ(retried.chat->messages().size(), 3u) << "system, question, answer";
  EXPECT_EQ(retried.chat->messages()[1], asked);
  const Talk edited({"/load " + path, "/edit Which owl?"}, true, options);
  boost::json::object changed = asked;
  changed["content"] = "Which owl?";
  EXPECT_EQ(edited.chat->messages().at(1), changed);
  ::unsetenv("VISUAL");
  ::setenv("EDITOR", "sed -i s/kite/owl/", 1);
  const Talk in_editor({"/load " + path, "/edit"}, true, options);
  ::unsetenv("EDITOR");
  EXPECT_EQ(in_editor.said(1), "Which owl?") << "the texts of the parts were in the editor";
}

TEST(Dialogue, AFileThatIsWrongIsNamedAsRenderNamesIt) {
  const TemporaryFolder folder;
  const std::string path = folder / "talk.json";
  testing::write_file(folder / "all.jinja", "{{ messages | length }}");
  const auto refusal = [&](std::string_view text) {
    testing::write_file(path, text);
    const auto loaded = load_messages(path);
    return loaded ? "" : loaded.error().message;
  };
  for (const char* const wrong : {"", "{", "{}", "3", "[] []", R"({"messages": "hi"})"}) {
    const std::string why = refusal(wrong);
    EXPECT_TRUE(why.starts_with(path + ": ")) << why;
    EXPECT_EQ(testing::call({"render", "--template", folder / "all.jinja", "--messages", path}).err,
              "quire: " + why + "\n");
  }
  // A template may make a control token from a role.
  for (const char* const role : {R"("king")", R"("im_end")", "3", "null"}) {
    EXPECT_EQ(refusal(fmt::format(R"([{{"role": "user", "content": "a"}}, {{"role": {}, "content": ""}}])", role)),
              path + ": messages[1].role is not one of system, developer, user, assistant, tool, function");
  }
  EXPECT_THAT(refusal(R"(["a"])"), HasSubstr("messages[0].role is not one of"));
  EXPECT_THAT(refusal("[{}]"), HasSubstr("messages[0].role is not one of"));
  EXPECT_EQ(refusal(R"([{"role": "user", "content": "a"}])"), "");
  EXPECT_EQ(refusal("\xEF\xBB\xBF"
                    R"({"messages": [{"role": "developer"}], "tools": []})"),
            "");
  EXPECT_THAT(Talk({"/load"}).err.text(), HasSubstr("/load needs the name of a file"));
  EXPECT_THAT(Talk({"/save /no/such/folder/x"}).err.text(), HasSubstr("/no/such/folder/x: cannot be written"));
}

TEST(Dialogue, ControlCTwiceEndsTheConversation) {
  const Talk talk({"^C", "What is 2 + 3?", "^C", "^C", "What is 2 + 4?"});
  ASSERT_TRUE(talk.left);
  EXPECT_EQ(talk.out.text(), "5\n\n") << "a message between them starts the count again";
  EXPECT_THAT(talk.err.text(), HasSubstr("(Ctrl-C again ends the conversation)"));
}

TEST(Dialogue, OneQuestionGetsOneAnswer) {
  EXPECT_EQ(testing::call({"chat", "--temp", "0", "What is 2 + 3?"}).out, "5\n");
  const TemporaryFolder folder;
  testing::write_file(folder / "question", "What is 2 + 3?\n");
  EXPECT_EQ(testing::call({"chat", "--temp", "0", "-f", folder / "question"}).out, "5\n");
}

TEST(Dialogue, AQuestionStandsBeforeItsFile) {
  const TemporaryFolder folder;
  testing::write_file(folder / "file", "kite owl\n");
  testing::write_file(folder / "repeat.jinja",
                      "<|im_start|>user\nRepeat: {{ messages[0].content.split('\\n\\n') | join(' ') }}<|im_end|>\n"
                      "<|im_start|>assistant{{ '\\n' }}");
  const auto both = testing::call({"chat", "--temp", "0", "red", "-f", folder / "file", "--chat-template-file",
                                   folder / "repeat.jinja", "-c", "256", "-t", "1", "-s", "3", "-n", "20"});
  EXPECT_EQ(both.out, "red kite owl\n") << both.err;
  EXPECT_THAT(testing::call({"chat", "-f", "/no/such/file"}).err, HasSubstr("/no/such/file"));
}

TEST(Dialogue, AQuestionThatIsNotUtf8IsRefusedWithItsPlace) {
  const TemporaryFolder folder;
  testing::write_file(folder / "latin1", "gr\xFC\xDF\n");
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"Say it:"}}) {
    std::vector<std::string> arguments = {"chat", "-f", folder / "latin1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto called = testing::call(arguments);
    EXPECT_EQ(called.exit_code, kFailure);
    EXPECT_EQ(called.out, "");
    EXPECT_THAT(called.err, HasSubstr((folder / "latin1") + ": the text is not UTF-8 at byte 2\n"));
  }
}

TEST(Dialogue, AnotherTemplateCanBeUsed) {
  const TemporaryFolder folder;
  testing::write_file(folder / "shout.jinja",
                      "{%- for m in messages -%}<|im_start|>{{ m.role }}\nRepeat: {{ m.content }}<|im_end|>\n"
                      "{% endfor %}<|im_start|>assistant{{ '\\n' }}");
  const auto answered =
      testing::call({"chat", "--temp", "0", "--chat-template-file", folder / "shout.jinja", "red kite owl"});
  EXPECT_EQ(answered.out, "red kite owl\n") << answered.err;
  testing::write_file(folder / "broken.jinja", "{% for %}");
  EXPECT_THAT(testing::call({"chat", "--chat-template-file", folder / "broken.jinja", "x"}).err,
              HasSubstr("broken.jinja"));
}

TEST(Dialogue, ReasoningIsDimOnATerminalWithColours) {
  const TemporaryFolder folder;
  // The template opens the reasoning, as those of models that always reason do. This model never closes it.
  testing::write_file(folder / "think.jinja",
                      "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                      "<|im_start|>assistant\n<think>\n");
  ChatOptions options;
  options.template_path = folder / "think.jinja";
  options.limit = 4;
  const Style colours{.terminal = true, .utf8 = true, .colour = true};
  const Talk dim({"What is 2 + 3?"}, true, options, colours);
  EXPECT_TRUE(dim.out.text().starts_with("\x1b[2m")) << dim.out.text();
  EXPECT_THAT(dim.out.text(), HasSubstr("\x1b[0m\n\n"));
  const Talk plain({"What is 2 + 3?"}, true, options);
  EXPECT_EQ(plain.out.text().find('\x1b'), std::string::npos);
  options.template_path.clear();
  EXPECT_EQ(Talk({"What is 2 + 3?"}, true, options, colours).out.text(), "5\n\n");
}

TEST(Dialogue, AnAnswerInChannelsIsReadWithoutItsMarks) {
  const TemporaryFolder folder;
  // As gpt-oss has them. With a constraint the model must write the marks, although it has never seen them.
  testing::write_file(
      folder / "channels.jinja",
      "{%- for m in messages -%}<|start|>{{ m.role }}"
      "{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|><|start|>assistant{% endif %}"
      "{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>{{ m.content }}<|end|>"
      "{%- endfor -%}<|start|>assistant");
  bool answered = false, reasoned = false;
  for (int seed = 0; seed < 16; ++seed) {
    // Hot, so that it takes either channel.
    const auto outcome = testing::call({"chat",
                                        "--temp",
                                        "3",
                                        "--top-k",
                                        "0",
                                        "--top-p",
                                        "1",
                                        "--min-p",
                                        "0",
                                        "--seed",
                                        std::to_string(seed),
                                        "-n",
                                        "60",
                                        "-t",
                                        "1",
                                        "--regex",
                                        "(red|blue) [a-z]{3,5}",
                                        "--chat-template-file",
                                        folder / "channels.jinja",
                                        "Which kite?"});
    const std::string& out = outcome.out;
    EXPECT_EQ(out.find("<|"), std::string::npos) << out;
    if (out.starts_with("<think>\n")) {
      reasoned = true;
    } else {
      answered = true;
      EXPECT_THAT(out, ::testing::MatchesRegex("(red|blue) [a-z]{3,5}\n")) << outcome.err;
    }
  }
  EXPECT_TRUE(reasoned);
  EXPECT_TRUE(answered);
}

}  // namespace
}  // namespace quire::cli

// Tools and reasoning over HTTP, with models that write given texts.
#include <unistd.h>

#include "quire/server/scripted_model_testing.h"
#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

namespace json = boost::json;
using testing::Reply;
using testing::Running;
using testing::ScriptedModel;

// The last message chooses the script: its role, and of users' messages also the first word.
constexpr std::string_view kTemplate =
    "{% for t in tools or [] %}{{ t|tojson }}\n{% endfor %}{% for m in messages %}[{{ m.role }}]{% if m.tool_calls "
    "%}{% for c in "
    "m.tool_calls %}<tool_call>\n{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": ' + "
    "c.function.arguments|tojson + '}' "
    "}}\n</tool_call>\n{% endfor %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}{{ reasoning_effort }}{% if "
    "add_generation_prompt "
    "%}{% set last = messages[-1] %}{% if last.role == 'tool' %}<|result|>{% elif last.content.startswith('two') "
    "%}<|two|>{% elif "
    "last.content.startswith('broken') %}<|broken|>{% elif last.content.startswith('think') %}<|think|>{% elif "
    "last.content.startswith('json') %}<|json|>{% else %}<|call|>{% endif "
    "%}{% endif %}";

const std::map<std::string, std::string> kScripts = {
    {"<|call|>",
     "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
     "3}}\n</tool_call>"},
    {"<|two|>",
     "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Oslo\"}}</tool_call>\n <tool_call>{ \"name\" : "
     "\"get_weather\" , "
     "\"arguments\" : { \"city\" : \"Cairo\" } } </tool_call>"},
    {"<|broken|>", "<tool_call> {name: get_weather} </tool_call>. Sorry?"},
    {"<|think|>", "<think>Hmm, Rome; it is warm there, surely\n\t</think>\n\nIt will be warm!"},
    {"<|json|>", "{\"city\": \"Oslo\", \"warm\": false}"},
    {"<|result|>", "It is sunny in Rome, 24 degrees."},
};

json::value script(const char* name) { return json::value(kScripts.at(name)); }

constexpr const char* kTools =
    R"("tools": [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": {"type":
       "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}])";

class ServerTools : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = serve(kScripts, std::string(kTemplate) + "{# <think></think> #}", {"<think>", "</think>"});
  }
  static void TearDownTestSuite() { server_.reset(); }

  static std::unique_ptr<Running> serve(const std::map<std::string, std::string>& scripts,
                                        std::string_view chat_template, const std::vector<std::string>& controls = {}) {
    const ScriptedModel model(scripts, chat_template, controls);
    const auto path =
        std::filesystem::temp_directory_path() / fmt::format("quire-scripted-{}-{}.gguf", ::getpid(), count_++);
    const auto written = model.file().write(path.string());
    EXPECT_TRUE(written) << written.error().message;
    auto running = std::make_unique<Running>(ServerOptions{}, engine::HostOptions{},
                                             std::filesystem::relative(path, testing::models_dir()).string());
    std::filesystem::remove(path);
    return running;
  }

  static json::value ask(std::string_view content, std::string_view more = {}, const Running* server = nullptr) {
    const Reply reply =
        (server != nullptr ? server : server_.get())
            ->post("/v1/chat/completions", fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}]{}{}}})",
                                                       content, more.empty() ? "" : ", ", more));
    EXPECT_EQ(reply.status, 200u) << reply.body;
    return reply.status == 200 ? reply.parsed().at("choices").at(0) : json::value();
  }

  static inline std::unique_ptr<Running> server_;
  static inline int count_ = 0;
};

// What the chunks of a stream make together.
struct Gathered {
  std::string content, reasoning, finish;
  std::vector<std::string> names, ids, arguments;
};
Gathered gather(const Reply& reply) {
  Gathered out;
  for (const std::string& event : testing::events(reply.body)) {
    if (event == "[DONE]") continue;
    const json::value chunk = json::parse(event);
    const json::object& choice = chunk.at("choices").at(0).as_object();
    const json::object& delta = choice.at("delta").as_object();
    if (const auto* content = delta.if_contains("content")) out.content += content->as_string();
    if (const auto* reasoning = delta.if_contains("reasoning_content")) out.reasoning += reasoning->as_string();
    if (const auto* calls = delta.if_contains("tool_calls")) {
      for (const json::value& call : calls->as_array()) {
        const auto index = static_cast<std::size_t>(call.at("index").as_int64());
        if (const auto* id = call.as_object().if_contains("id")) {
          EXPECT_EQ(index, out.ids.size());
          EXPECT_EQ(call.at("type"), "function");
          out.ids.emplace_back(id->as_string());
          out.names.emplace_back(call.at("function").at("name").as_string());
          out.arguments.emplace_back();
        }
        out.arguments.at(index) += call.at("function").at("arguments").as_string();
      }
    }
    if (!choice.at("finish_reason").is_null()) out.finish = choice.at("finish_reason").as_string();
  }
  return out;
}

TEST_F(ServerTools, ACallBecomesToolCalls) {
  const json::value choice = ask("weather?", kTools);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  const json::value& message = choice.at("message");
  EXPECT_EQ(message.at("content"), "Let me look.");
  ASSERT_EQ(message.at("tool_calls").as_array().size(), 1u);
  const json::value& call = message.at("tool_calls").at(0);
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_EQ(call.at("id").as_string().size(), 9u);
  EXPECT_EQ(call.at("function").at("name"), "get_weather");
  EXPECT_EQ(call.at("function").at("arguments"), R"({"city": "Rome", "days": 3})");
}

TEST_F(ServerTools, ContentIsNullIfThereAreOnlyCalls) {
  const json::value choice = ask("two", kTools);
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  EXPECT_EQ(choice.at("message").at("tool_calls").as_array().size(), 2u);
  EXPECT_NE(choice.at("message").at("tool_calls").at(0).at("id"), choice.at("message").at("tool_calls").at(1).at("id"));
}

TEST_F(ServerTools, StreamedTheDeltasMakeTheSame) {
  const std::string more = std::string(kTools) + R"(, "seed": 7, "max_tokens": 100)";
  for (const char* const content : {"weather?", "two", "broken", "think"}) {
    const json::value whole = ask(content, more);
    const Gathered streamed = gather(server_->post(
        "/v1/chat/completions",
        fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}], {}, "stream": true}})", content, more)));
    EXPECT_EQ(streamed.finish, whole.at("finish_reason").as_string());
    const json::object& message = whole.at("message").as_object();
    EXPECT_EQ(streamed.content, message.at("content").is_null() ? "" : message.at("content").as_string());
    EXPECT_EQ(streamed.reasoning,
              message.contains("reasoning_content") ? message.at("reasoning_content").as_string() : "");
    const std::size_t calls = message.contains("tool_calls") ? message.at("tool_calls").as_array().size() : 0;
    ASSERT_EQ(streamed.names.size(), calls);
    for (std::size_t i = 0; i < calls; ++i) {
      EXPECT_EQ(streamed.arguments[i], message.at("tool_calls").at(i).at("function").at("arguments").as_string());
    }
  }
}

TEST_F(ServerTools, WithoutToolsOrWithToolChoiceNoneTheTextIsContent) {
  for (const std::string& more :
       {std::string(), std::string(R"("tools": [])"), fmt::format(R"({}, "tool_choice": "none")", kTools)}) {
    const json::value choice = ask("weather?", more);
    EXPECT_EQ(choice.at("finish_reason"), "stop");
    EXPECT_EQ(choice.at("message").at("content"), script("<|call|>"));
    EXPECT_FALSE(choice.at("message").as_object().contains("tool_calls"));
  }
}

// Arguments with few values, so that a model that would write something else soon comes to an end.
std::string few_values(std::string_view more = "") {
  return fmt::format(
      R"("tools": [{{"type": "function", "function": {{"name": "get_weather", "parameters": {{"type": "object",
    "properties": {{"city": {{"enum": ["Rome", "Oslo"]}}, "days": {{"enum": [3, 5]}}}}, "required": ["city", "days"],
    "additionalProperties": false}}{}}}}}, {{"type": "function", "function": {{"name": "get_time", "parameters": {{"type": "object",
    "properties": {{}}, "additionalProperties": false}}{}}}}}], "max_tokens": 2000)",
      more, more);
}
void expect_weather(const json::value& call) {
  EXPECT_EQ(call.at("function").at("name"), "get_weather");
  const json::value arguments = json::parse(call.at("function").at("arguments").as_string());
  EXPECT_TRUE(arguments.at("city") == "Rome" || arguments.at("city") == "Oslo") << arguments;
  EXPECT_TRUE(arguments.at("days") == 3 || arguments.at("days") == 5) << arguments;
}

// What a model writes behind the mark of a call is a call of one of the tools, whatever it would write.
TEST_F(ServerTools, ACallThatTheModelBeginsByItselfIsWellFormed) {
  for (int seed = 0; seed < 4; ++seed) {
    const json::value choice =
        ask("broken", fmt::format(R"({}, "seed": {}, "max_tokens": 60, "parallel_tool_calls": false)", kTools, seed));
    const json::object& message = choice.at("message").as_object();
    EXPECT_TRUE(message.at("content").is_null() || message.at("content") == "") << choice;
    if (!message.contains("tool_calls")) continue;
    EXPECT_EQ(message.at("tool_calls").at(0).at("function").at("name"), "get_weather");
    const std::string_view arguments = message.at("tool_calls").at(0).at("function").at("arguments").as_string();
    EXPECT_TRUE(arguments.empty() || arguments.starts_with('{')) << arguments;
    EXPECT_TRUE(choice.at("finish_reason") == "length" || json::parse(arguments).is_object()) << choice;
  }
}

// A client sees the arguments while they are written.
TEST_F(ServerTools, ArgumentsAreStreamedPieceByPiece) {
  const Reply reply = server_->post(
      "/v1/chat/completions",
      fmt::format(R"({{"messages": [{{"role": "user", "content": "weather?"}}], {}, "stream": true}})", kTools));
  std::vector<std::string> pieces;
  for (const std::string& event : testing::events(reply.body)) {
    if (event == "[DONE]") continue;
    const json::value chunk = json::parse(event);
    const json::value* const calls = chunk.at("choices").at(0).at("delta").as_object().if_contains("tool_calls");
    if (calls == nullptr) continue;
    const std::string_view piece = calls->at(0).at("function").at("arguments").as_string();
    if (!piece.empty()) pieces.emplace_back(piece);
  }
  EXPECT_GT(pieces.size(), 5u) << reply.body;
  EXPECT_LT(pieces.front().size(), 5u) << pieces.front();
}

// Calls without a mark cannot be told from other text before they are complete.
TEST_F(ServerTools, ABrokenCallWithoutAMarkIsContent) {
  const std::string text = R"({"name": "get_weather", "parameters": {city: 3}} Sorry?)";
  const auto server = serve({{"<|go|>", text}},
                            "{{ tools|tojson }}{% for m in messages %}[{{ m.role }}]{% if m.tool_calls %}{% for c in "
                            "m.tool_calls %}{{ '{\"name\": \"' + c.function.name + '\", \"parameters\": ' + "
                            "c.function.arguments|tojson + '}' }}{% endfor %}{% else %}{{ m.content }}{% endif %}{% "
                            "endfor %}<|go|>");
  const json::value choice = ask("weather?", kTools, server.get());
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("message").at("content"), json::value(text));
  // A strict tool is enforced at the beginning of an answer, also beside another shape.
  for (const char* const shape :
       {"", R"(, "response_format": {"type": "json_object"})", R"(, "guided_regex": "[a-z{]{1,9}")"}) {
    const json::value strict =
        ask("weather?", few_values(R"(, "strict": true)") + R"(, "parallel_tool_calls": false, "seed": 3)" + shape,
            server.get());
    if (!strict.at("message").as_object().contains("tool_calls")) continue;
    const json::value& call = strict.at("message").at("tool_calls").at(0);
    if (call.at("function").at("name") == "get_weather") expect_weather(call);
  }
}

TEST_F(ServerTools, ACallCutAtTheLimitIsToldWithWhatIsKnown) {
  bool partial = false;
  for (int limit = 1; limit < 40; ++limit) {
    const json::value choice = ask("weather?", fmt::format(R"({}, "max_tokens": {})", kTools, limit));
    const json::object& message = choice.at("message").as_object();
    if (choice.at("finish_reason") == "tool_calls" || choice.at("finish_reason") == "stop") break;
    EXPECT_EQ(choice.at("finish_reason"), "length");
    if (!message.contains("tool_calls")) continue;
    partial = true;
    const std::string_view arguments = message.at("tool_calls").at(0).at("function").at("arguments").as_string();
    EXPECT_TRUE(std::string_view(R"({"city": "Rome", "days": 3})").starts_with(arguments)) << arguments;
  }
  EXPECT_TRUE(partial);
}

TEST_F(ServerTools, WithoutParallelCallsTheAnswerEndsWithTheFirst) {
  const std::string one = fmt::format(R"({}, "parallel_tool_calls": false)", kTools);
  const json::value choice = ask("two", one);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_EQ(choice.at("message").at("tool_calls").as_array().size(), 1u);
  const Gathered streamed = gather(
      server_->post("/v1/chat/completions",
                    fmt::format(R"({{"messages": [{{"role": "user", "content": "two"}}], {}, "stream": true}})", one)));
  EXPECT_EQ(streamed.finish, "tool_calls");
  EXPECT_EQ(streamed.names.size(), 1u);
  EXPECT_TRUE(server_->comes_to_rest());
}

TEST_F(ServerTools, ReasoningIsSplitOffAndItsControlTokensAreSeen) {
  const json::value choice = ask("think");
  EXPECT_EQ(choice.at("message").at("content"), "It will be warm!");
  EXPECT_EQ(choice.at("message").at("reasoning_content"), "Hmm, Rome; it is warm there, surely");
  // They stay control tokens: in log-probabilities each is one token.
  const json::value with = ask("think", R"("logprobs": true)");
  EXPECT_EQ(with.at("logprobs").at("content").at(0).at("token"), "<think>");
  EXPECT_EQ(with.at("message").at("content"), "It will be warm!");
}

TEST_F(ServerTools, ACallAndItsResultGoBackToTheTemplate) {
  const Reply reply =
      server_->post("/v1/chat/completions", fmt::format(R"({{"messages": [{{"role": "user", "content": "weather?"}},
        {{"role": "assistant", "content": null, "tool_calls": [{{"id": "abcdefghi", "type": "function",
           "function": {{"name": "get_weather", "arguments": "{{\"city\": \"Rome\"}}"}}}}]}},
        {{"role": "tool", "tool_call_id": "abcdefghi", "content": "24 degrees"}}], {}}})",
                                                        kTools));
  ASSERT_EQ(reply.status, 200u) << reply.body;
  EXPECT_EQ(reply.parsed().at("choices").at(0).at("message").at("content"), script("<|result|>"));
}

TEST_F(ServerTools, ReasoningEffortReachesTheTemplate) {
  const auto prompt = [&](std::string_view more) {
    const Reply reply = server_->post("/v1/chat/completions",
                                      fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}]{}}})", more));
    EXPECT_EQ(reply.status, 200u) << reply.body;
    return reply.parsed().at("usage").at("prompt_tokens").as_int64();
  };
  const std::int64_t without = prompt("");
  EXPECT_EQ(prompt(R"(, "reasoning_effort": "high")"), without + 4);
  EXPECT_EQ(prompt(R"(, "reasoning_effort": "high", "chat_template_kwargs": {"reasoning_effort": "medium"})"),
            without + 6);
}

TEST_F(ServerTools, ANamedToolIsCalledWhateverTheModelWouldWrite) {
  const std::string named =
      few_values() +
      R"(, "parallel_tool_calls": false, "tool_choice": {"type": "function", "function": {"name": "get_weather"}})";
  for (const char* const content : {"weather?", "broken", "think"}) {
    const json::value choice = ask(content, named);
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls") << choice;
    EXPECT_TRUE(choice.at("message").at("content").is_null()) << choice;
    ASSERT_EQ(choice.at("message").at("tool_calls").as_array().size(), 1u);
    expect_weather(choice.at("message").at("tool_calls").at(0));
    const Gathered streamed = gather(server_->post(
        "/v1/chat/completions",
        fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}], {}, "stream": true}})", content, named)));
    EXPECT_EQ(streamed.finish, "tool_calls");
    ASSERT_EQ(streamed.names.size(), 1u);
    EXPECT_EQ(streamed.names[0], "get_weather");
    EXPECT_TRUE(json::parse(streamed.arguments[0]).is_object());
  }
}

TEST_F(ServerTools, ReasoningComesBeforeARequiredCall) {
  const json::value choice =
      ask("think", few_values() + R"(, "tool_choice": "required", "parallel_tool_calls": false)");
  EXPECT_EQ(choice.at("message").at("reasoning_content"), "Hmm, Rome; it is warm there, surely");
  EXPECT_EQ(choice.at("message").at("tool_calls").as_array().size(), 1u) << choice;
}

TEST_F(ServerTools, CallsOfStrictToolsFitTheirSchemaAndTextStaysFree) {
  const std::string strict = few_values(R"(, "strict": true)") + R"(, "parallel_tool_calls": false)";
  const json::value call = ask("weather?", strict);
  EXPECT_EQ(call.at("message").at("content"), "Let me look.");
  expect_weather(call.at("message").at("tool_calls").at(0));
  const json::value broken = ask("broken", strict);
  EXPECT_EQ(broken.at("finish_reason"), "tool_calls") << broken;
  const json::value text = ask("think", strict);
  EXPECT_EQ(text.at("finish_reason"), "stop");
  EXPECT_EQ(text.at("message").at("content"), "It will be warm!");
}

TEST_F(ServerTools, WhatCannotBeEnforcedIsRefused) {
  const Reply strict =
      server_->post("/v1/chat/completions",
                    R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function":
          {"name": "f", "strict": true, "parameters": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}}}]})");
  EXPECT_EQ(strict.status, 400u);
  EXPECT_TRUE(strict.error_message().starts_with("'tools': the schema of the function 'f' cannot be enforced: "))
      << strict.body;
  const Reply shape = server_->post(
      "/v1/chat/completions",
      fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}], {}, "guided_regex": "(a)\\1"}})", kTools));
  EXPECT_EQ(shape.status, 400u);
  EXPECT_TRUE(shape.error_message().starts_with("'guided_regex' cannot be enforced: ")) << shape.body;
}

constexpr const char* kShape =
    R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "report", "schema": {"type": "object",
       "properties": {"city": {"enum": ["Rome", "Oslo"]}, "warm": {"type": "boolean"}}, "required": ["city", "warm"],
       "additionalProperties": false}}})";

void expect_report(std::string_view text) {
  json::error_code error;
  const json::value report = json::parse(text, error);
  ASSERT_FALSE(error) << text;
  EXPECT_TRUE(report.at("city") == "Rome" || report.at("city") == "Oslo") << text;
  EXPECT_TRUE(report.at("warm").is_bool()) << text;
}

TEST_F(ServerTools, BesideAShapeCallsGetThroughAndTextHasTheShape) {
  const auto streamed = [&](std::string_view content, std::string_view more) {
    return gather(server_->post(
        "/v1/chat/completions",
        fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}], {}, "stream": true}})", content, more)));
  };
  for (const bool schema : {true, false}) {
    for (const bool strict : {true, false}) {
      const std::string both = (strict ? few_values(R"(, "strict": true)") : kTools) +
                               (schema ? kShape : R"(, "response_format": {"type": "json_object"})") + R"(, "seed": 7)";
      const json::value called = ask("two", both);
      EXPECT_EQ(called.at("finish_reason"), "tool_calls") << called;
      EXPECT_TRUE(called.at("message").at("content").is_null()) << called;
      const json::array& calls = called.at("message").at("tool_calls").as_array();
      // Tokens that are forced lead the model away from its script: there may be more calls than it has.
      EXPECT_TRUE(strict || calls.size() >= 2) << called;
      for (const json::value& call : calls) {
        if (strict && call.at("function").at("name") == "get_weather") expect_weather(call);
      }
      const Gathered calling = streamed("two", both);
      EXPECT_EQ(calling.finish, "tool_calls");
      EXPECT_EQ(calling.content, "");
      ASSERT_EQ(calling.names.size(), calls.size());
      for (std::size_t i = 0; i < calls.size(); ++i) {
        EXPECT_EQ(calling.arguments[i], calls[i].at("function").at("arguments").as_string());
      }

      const json::value text = ask("json", both);
      EXPECT_EQ(text.at("finish_reason"), "stop") << text;
      EXPECT_FALSE(text.at("message").as_object().contains("tool_calls")) << text;
      const std::string content(text.at("message").at("content").as_string());
      EXPECT_TRUE(json::parse(content).is_object()) << content;
      if (schema) expect_report(content);
      const Gathered writing = streamed("json", both);
      EXPECT_EQ(writing.finish, "stop");
      EXPECT_EQ(writing.content, content);
      EXPECT_TRUE(writing.names.empty());
    }
  }
}

TEST_F(ServerTools, AfterReasoningTheShapeOrACallComes) {
  const json::value choice = ask("think", few_values() + kShape + R"(, "parallel_tool_calls": false)");
  EXPECT_EQ(choice.at("message").at("reasoning_content"), "Hmm, Rome; it is warm there, surely");
  if (choice.at("finish_reason") == "stop") {
    expect_report(choice.at("message").at("content").as_string());
  } else {
    EXPECT_EQ(choice.at("message").at("tool_calls").as_array().size(), 1u) << choice;
  }
}

TEST_F(ServerTools, WithToolChoiceNoneOnlyTheShapeAndWithRequiredOnlyCalls) {
  const std::string both = few_values() + kShape + R"(, "parallel_tool_calls": false, "tool_choice": )";
  for (const char* const content : {"two", "json", "broken"}) {
    const json::value none = ask(content, both + R"("none")");
    EXPECT_EQ(none.at("finish_reason"), "stop") << none;
    expect_report(none.at("message").at("content").as_string());
    const json::value required = ask(content, both + R"("required")");
    EXPECT_EQ(required.at("finish_reason"), "tool_calls") << required;
    EXPECT_TRUE(required.at("message").at("content").is_null()) << required;
    EXPECT_EQ(required.at("message").at("tool_calls").as_array().size(), 1u) << required;
  }
}

// gpt-oss: the prompt ends with the header of a message.
TEST_F(ServerTools, InChannelsAShapeIsTheFinalMessage) {
  const std::string_view begin =
      "{% for m in messages %}<|start|>{{ m.role }}{% if m.thinking %}<|channel|>analysis<|message|>{{ "
      "m.thinking }}<|end|><|start|>assistant{% endif %}<|channel|>final<|message|>{{ m.content "
      "}}<|end|>{% endfor %}";
  const auto final = serve({{"assistant", "<|channel|>final<|message|>{\"city\": \"Rome\", \"warm\": true}"}},
                           std::string(begin) + "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
                           {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"});
  const std::string shape = std::string(kShape).substr(2) + R"(, "seed": 7, "max_tokens": 500)";
  const json::value answer = ask("x", shape, final.get());
  expect_report(answer.at("message").at("content").as_string());
  EXPECT_EQ(answer.at("finish_reason"), "stop");

  // The prompt has opened the reasoning.
  for (const char* const warm : {"true", "7"}) {
    const auto thinks = serve(
        {{"analysis<|message|>", fmt::format("Rome. {{}} is warm<|end|><|start|>assistant<|channel|>final<|message|>"
                                             "{{\"city\": \"Oslo\", \"warm\": {}}}",
                                             warm)}},
        std::string(begin) +
            "{% if add_generation_prompt %}<|start|>assistant<|channel|>analysis<|message|>{% endif %}",
        {"<|end|>", "<|return|>", "<|call|>"});
    const json::value thought = ask("x", shape, thinks.get());
    // The model may think several times: tokens that are forced lead it away from its script.
    EXPECT_TRUE(thought.at("message").at("reasoning_content").as_string().starts_with("Rome. {} is warm")) << thought;
    expect_report(thought.at("message").at("content").as_string());
    EXPECT_EQ(thought.at("finish_reason"), "stop");
  }
}

TEST_F(ServerTools, InCommandR7bAShapeIsTheResponse) {
  const auto server =
      serve({{"<|CHATBOT_TOKEN|>",
              "<|START_THINKING|>Rome. {} is warm<|END_THINKING|><|START_RESPONSE|>{\"city\": \"Rome\", "
              "\"warm\": true}<|END_RESPONSE|>"}},
            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}<|CHATBOT_TOKEN|>",
            {"<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"});
  const json::value answer = ask("x", std::string(kShape).substr(2) + R"(, "max_tokens": 500)", server.get());
  EXPECT_EQ(answer.at("message").at("reasoning_content"), "Rome. {} is warm");
  expect_report(answer.at("message").at("content").as_string());
  EXPECT_EQ(answer.at("finish_reason"), "stop");
}

// A format whose marks are control tokens, which the text of an answer usually leaves out.
TEST_F(ServerTools, MarksThatAreControlTokensAreSeenByTheParserOnly) {
  const auto server = serve(
      {{"<|go|>", "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}]"}},
      "{{ tools|tojson }}{% for m in messages %}[INST]{{ m.content }}[/INST]{% if m.tool_calls %}[TOOL_CALLS] [{% for "
      "c in m.tool_calls %}{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": ' + c.function.arguments|tojson "
      "+ "
      "'}' }}{% if not loop.last %}, {% endif %}{% endfor %}]{% endif %}{% endfor %}<|go|>",
      {"[TOOL_CALLS]"});
  const json::value choice = ask("weather?", kTools, server.get());
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_EQ(choice.at("message").at("tool_calls").at(0).at("function").at("arguments"), R"({"city": "Rome"})");
  const json::value plain = ask("weather?", "", server.get());
  EXPECT_EQ(plain.at("message").at("content"), R"([{"name": "get_weather", "arguments": {"city": "Rome"}}])");
}

}  // namespace
}  // namespace quire::server

#include "quire/server/unsupported.h"

#include <memory>
#include <string>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/server/completion_request.h"

namespace quire::server {
namespace {

namespace json = boost::json;

class Unsupported : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    file_ = std::make_unique<gguf::File>(*gguf::File::open(QUIRE_SOURCE_DIR "/models/quire-demo-llama-q8_0.gguf"));
    model_ = std::move(*TextModel::create(*file_, 2048, 1536, {.alias = "demo"}));
  }
  static void TearDownTestSuite() {
    model_.reset();
    file_.reset();
  }
  // The error for a request with this field, or "".
  static std::string completion(std::string_view field) {
    return why(parse_completion(json::parse(fmt::format(R"({{"prompt": "x", {}}})", field)).as_object(), *model_));
  }
  static std::string chat(std::string_view field) {
    return why(parse_chat(
        json::parse(fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}], {}}})", field)).as_object(),
        *model_));
  }
  static std::string why(const CompletionResult& result) { return result ? "" : result.error().message; }

  static std::unique_ptr<gguf::File> file_;
  static std::unique_ptr<TextModel> model_;
};
std::unique_ptr<gguf::File> Unsupported::file_;
std::unique_ptr<TextModel> Unsupported::model_;

TEST_F(Unsupported, FieldsThatWouldChangeTheAnswerAreRefusedByName) {
  const struct {
    const char* field;
    const char* message;
  } cases[] = {
      {R"("structural_tag": {})", "'structural_tag' is not supported"},
      {R"("guided_json": {}, "guided_whitespace_pattern": "[ ]")", "'guided_whitespace_pattern' is not supported"},
      {R"("mirostat": 2)", "'mirostat' is not supported, except as 0"},
      {R"("mirostat": "0")", "'mirostat' is not supported, except as 0"},
      {R"("typical_p": 0.9)", "'typical_p' is not supported, except as 1"},
      {R"("dry_multiplier": 0.8)", "'dry_multiplier' is not supported, except as 0"},
      {R"("top_n_sigma": 2)", "'top_n_sigma' is not supported, except as -1 or 0"},
      {R"("repeat_penalty": 1.1)", "'repeat_penalty' is not supported, except as 1: send 'repetition_penalty'"},
      {R"("functions": [{"name": "f"}])", "'functions' is not supported, except as []: send 'tools'"},
      {R"("modalities": ["text", "audio"])", "'modalities' is not supported, except as [\"text\"]"},
      {R"("enable_thinking": true)",
       "'enable_thinking' is not supported: put it into 'chat_template_kwargs' if the model's template knows it"},
  };
  for (const auto& [field, message] : cases) {
    EXPECT_EQ(completion(field), message);
    EXPECT_EQ(chat(field), message);
  }
  EXPECT_EQ(completion(R"("reasoning_effort": "high")"), "'reasoning_effort' is not supported");
  EXPECT_EQ(chat(R"("echo": true)"), "'echo' is not supported, except as false");
  EXPECT_EQ(chat(R"("add_special_tokens": true)"), "'add_special_tokens' is not supported, except as false");
  EXPECT_EQ(completion(R"("add_special_tokens": false)"), "'add_special_tokens' is not supported, except as true");
}

TEST_F(Unsupported, EveryFieldOfTheTableIsTakenWithItsNeutralValuesAndRefusedWithAnother) {
  for (const UnsupportedField& field : unsupported_fields()) {
    using In = UnsupportedField::In;
    for (const In endpoint : {In::Completions, In::Chats, In::Responses, In::Messages}) {
      if ((field.in & endpoint) == 0) continue;
      const auto refusal = [&](const json::value& value) {
        json::object body = {{std::string(field.name), value}};
        if (!field.only_with.empty()) body[field.only_with] = json::array{json::object{{"type", "function"}}};
        const auto error = refuse_unsupported(body, endpoint);
        return error ? error->param : "";
      };
      EXPECT_EQ(refusal(nullptr), "");
      const json::array all = json::parse(field.neutral).as_array();
      for (const json::value& neutral : all) {
        EXPECT_EQ(refusal(neutral), "") << field.name;
        if (neutral.is_number()) {
          EXPECT_EQ(refusal(neutral.to_number<double>()), "") << field.name;
        }
      }
      EXPECT_EQ(refusal("another value"), field.name);
      EXPECT_EQ(refusal(17.5), field.name);
    }
  }
}

TEST_F(Unsupported, AnEndpointTakesItsOwnFieldsThatOthersRefuse) {
  using In = UnsupportedField::In;
  const auto refused = [](std::string_view field, In endpoint) {
    return refuse_unsupported(json::parse(fmt::format("{{{}}}", field)).as_object(), endpoint).has_value();
  };
  const struct {
    const char* field;
    unsigned in;
  } cases[] = {
      {R"("thinking": {"type": "enabled"})", In::Completions | In::Chats | In::Responses},
      {R"("reasoning": {"effort": "low"})", In::Completions | In::Chats | In::Messages},
      {R"("reasoning_effort": "low")", In::Completions | In::Responses},
      {R"("max_tokens": 5)", In::Responses},
      {R"("stop": ["x"])", In::Messages},
      {R"("mcp_servers": [{"type": "url", "name": "a"}])", In::Messages},
      {R"("response_format": {"type": "json_object"})", In::Responses},
      {R"("n": 2)", In::Responses | In::Messages},
      {R"("guided_whitespace_pattern": " ")", In::All},
      {R"("mirostat": 2)", In::All},
  };
  for (const auto& [field, in] : cases) {
    for (const In endpoint : {In::Completions, In::Chats, In::Responses, In::Messages}) {
      EXPECT_EQ(refused(field, endpoint), (in & endpoint) != 0) << field << " " << endpoint;
    }
  }
}

TEST_F(Unsupported, FieldsWithoutAnEffectAreIgnored) {
  for (const char* field :
       {R"("user": "me")", R"("metadata": {"a": "b"})", R"("store": true)", R"("service_tier": "flex")",
        R"("parallel_tool_calls": false)", R"("parallel_tool_calls": false, "tools": [])", R"("prompt_cache_key": "k")",
        R"("safety_identifier": "s")", R"("mirostat_tau": 5, "mirostat_eta": 0.1, "mirostat": 0)",
        R"("dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "dry_sequence_breakers": ["\n"])",
        R"("xtc_threshold": 0.1)", R"("dynatemp_exponent": 1)", R"("cache_prompt": true)", R"("n_keep": 5)",
        R"("repeat_last_n": 64)", R"("guided_decoding_backend": "outlines")", R"("return_tokens": true)",
        R"("nobody_knows_this": [1, 2])"}) {
    EXPECT_EQ(completion(field), "") << field;
    EXPECT_EQ(chat(field), "") << field;
  }
}

}  // namespace
}  // namespace quire::server

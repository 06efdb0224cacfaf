#include "quire/server/text_endpoints.h"

#include <memory>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/engine/ngram_drafter.h"
#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using testing::Reply;
using testing::Running;
namespace json = boost::json;

TEST(TextEndpoints, ApplyTemplateGivesThePromptOfAChat) {
  Running server;
  const char* body = R"({"messages": [{"role": "user", "content": "What is 2 + 3?"}]})";
  const Reply reply = server.post("/apply-template", body);
  ASSERT_EQ(reply.status, 200u) << reply.body;
  const std::string prompt(reply.parsed().at("prompt").as_string());
  EXPECT_THAT(prompt, HasSubstr("What is 2 + 3?"));
  const json::value begun = server
                                .post("/apply-template", R"({"messages": [{"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": "Well"}], "continue_final_message": true})")
                                .parsed();
  EXPECT_EQ(std::string(begun.at("prompt").as_string()), prompt + "Well");
  EXPECT_EQ(server.post("/apply-template", R"({"messages": []})").error_message(),
            "'messages' must have at least one message");
}

TEST(TextEndpoints, ApplyTemplateWritesTheToolsOfAChat) {
  Running server;
  const auto prompt = [&](std::string_view more) {
    const Reply reply = server.post(
        "/apply-template", fmt::format(R"({{"messages": [{{"role": "user", "content": "What is 2 + 3?"}}]{}}})", more));
    EXPECT_EQ(reply.status, 200u) << reply.body;
    return reply.status == 200 ? std::string(reply.parsed().at("prompt").as_string()) : std::string();
  };
  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "get_weather", "description":
      "The weather in a town", "parameters": {"type": "object", "properties": {"town": {"type": "string"}}}}}])";
  const std::string with = prompt(tools);
  for (const char* const told : {"get_weather", "The weather in a town", "town", "What is 2 + 3?"}) {
    EXPECT_THAT(with, HasSubstr(told));
  }
  EXPECT_EQ(prompt(tools + R"(, "tool_choice": "none")"), prompt(""));
  EXPECT_EQ(server.post("/apply-template", R"({"messages": [{"role": "user", "content": "x"}], "tools": "f"})")
                .error_message(),
            "'tools' must be an array");
}

TEST(TextEndpoints, PropsSayWhatIsServed) {
  Running server({.alias = "demo"}, {.context = 512, .max_sequences = 7});
  const json::value props = server.get("/props").parsed();
  EXPECT_EQ(props.at("total_slots").as_int64(), 7);
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx").as_int64(), 512);
  EXPECT_EQ(props.at("default_generation_settings").at("params").at("temperature").to_number<double>(), 1);
  EXPECT_EQ(props.at("default_generation_settings").at("speculative"), false);
  EXPECT_EQ(props.at("model_path").as_string(), "quire-demo-llama-q8_0.gguf") << "without folders";
  EXPECT_EQ(props.at("model_alias").as_string(), "demo");
  EXPECT_EQ(props.at("modalities").at("vision").as_bool(), false);
  EXPECT_THAT(std::string(props.at("chat_template").as_string()), HasSubstr("messages"));
  EXPECT_THAT(std::string(props.at("build_info").as_string()), ::testing::StartsWith("quire "));
}

TEST(TextEndpoints, PropsSayThatTokensAreGuessed) {
  Running server({}, {.engine = {.drafter = std::make_shared<engine::NgramDrafter>()}});
  EXPECT_EQ(server.get("/props").parsed().at("default_generation_settings").at("speculative"), true);
}

TEST(TextEndpoints, ModelsHaveTheirSizes) {
  Running server;
  const json::value meta = server.get("/v1/models").parsed().at("data").at(0).at("meta");
  EXPECT_EQ(meta.at("n_vocab").as_int64(), 1536);
  EXPECT_EQ(meta.at("n_ctx_train").as_int64(), 2048);
  EXPECT_GT(meta.at("n_params").as_int64(), 1'000'000);
  // 8.5 bits of each, and a little more for vectors.
  EXPECT_NEAR(meta.at("size").to_number<double>() / meta.at("n_params").to_number<double>(), 1.0625, 0.1);
}

// --- /v1/route

std::string key_of(const Reply& reply) {
  EXPECT_EQ(reply.status, 200u) << reply.body;
  return reply.status == 200 ? std::string(reply.parsed().at("key").as_string()) : std::string();
}
// A prompt of so many tokens, all 100 but the last, and that as given.
std::string prompt_of(std::size_t tokens, int last, std::string_view more = {}) {
  std::string out = R"({"prompt": [)";
  for (std::size_t i = 1; i < tokens; ++i) out += "100, ";
  return fmt::format("{}{}]{}}}", out, last, more);
}

TEST(Route, PromptsWithTheSameFirstBlockHaveTheSameKeyOnEveryServer) {
  Running one, other({.alias = "other"}, {.context = 512, .max_sequences = 7});
  const std::string key = key_of(one.post("/v1/route", prompt_of(40, 7)));
  EXPECT_EQ(key.size(), 32u);
  EXPECT_EQ(key_of(one.post("/v1/route", prompt_of(40, 8))), key) << "they differ in the third block";
  EXPECT_EQ(key_of(other.post("/v1/route", prompt_of(30, 8))), key);
  EXPECT_NE(key_of(one.post("/v1/route", prompt_of(16, 8))), key) << "they differ in the first block";
  EXPECT_EQ(one.post("/v1/route", prompt_of(40, 7)).parsed().at("tokens").as_int64(), 16);
  EXPECT_EQ(one.post("/v1/route", prompt_of(5, 7)).parsed().at("tokens").as_int64(), 5);
}

TEST(Route, TheKeyDoesNotChangeFromVersionToVersion) {
  Running server;
  // Servers of two versions may stand behind one proxy. SHA-256 of "quire route 1", the tenant (0, 8 bytes) and the
  // tokens (4 bytes each), the lowest byte first; of the digest the first half.
  EXPECT_EQ(key_of(server.post("/v1/route", R"({"prompt": [1, 2, 300]})")), "876d9ab6f934e264c87bafd962f6cfd4");
}

TEST(Route, MoreBlocksTellMorePromptsApart) {
  Running server;
  const auto key = [&](int last, std::string_view more) {
    return key_of(server.post("/v1/route", prompt_of(40, last, more)));
  };
  EXPECT_EQ(key(7, R"(, "blocks": 2)"), key(8, R"(, "blocks": 2)"));
  EXPECT_NE(key(7, R"(, "blocks": 3)"), key(8, R"(, "blocks": 3)"));
  EXPECT_NE(key(7, R"(, "blocks": 2)"), key(7, ""));
}

TEST(Route, ATextHasTheKeyOfItsTokensAndAChatThatOfItsPrompt) {
  Running server;
  const char* const text = "Once upon a time there was a small house at the edge of a forest, and a dog lived in it";
  const json::value tokens =
      server.post("/tokenize", fmt::format(R"({{"content": "{}", "add_special": true}})", text)).parsed().at("tokens");
  EXPECT_EQ(key_of(server.post("/v1/route", fmt::format(R"({{"prompt": "{}"}})", text))),
            key_of(server.post("/v1/route", fmt::format(R"({{"prompt": {}}})", json::serialize(tokens)))));
  const auto chat = [&](std::string_view behind) {
    return key_of(server.post(
        "/v1/route",
        fmt::format(R"({{"messages": [{{"role": "system", "content": "{}"}}, {{"role": "user", "content": "{}"}}]}})",
                    text, behind)));
  };
  EXPECT_EQ(chat("Hello"), chat("What is a quire?"));
}

TEST(Route, TenantsHaveDifferentKeys) {
  Running server({.keys = {"ann", "bob"}});
  const auto key = [&](std::string_view who, std::string_view body) {
    return key_of(server.post("/v1/route", body, fmt::format("Authorization: Bearer {}\r\n", who)));
  };
  for (const char* body : {R"({"prompt": "Once upon a time"})", R"({"session": "sess-1"})"}) {
    EXPECT_EQ(key("ann", body), key("ann", body));
    EXPECT_NE(key("ann", body), key("bob", body));
  }
  EXPECT_EQ(server.post("/v1/route", R"({"prompt": "x"})").status, 401u);
}

TEST(Route, ASessionHasTheKeyOfItsId) {
  Running server;
  const Reply reply = server.post("/v1/route", R"({"session": "sess-1"})");
  EXPECT_EQ(key_of(reply).size(), 32u);
  EXPECT_EQ(reply.parsed().at("tokens").as_int64(), 0);
  EXPECT_NE(key_of(server.post("/v1/route", R"({"session": "sess-2"})")), key_of(reply));
}

TEST(Route, RefusesWhatHasNoBeginning) {
  Running server;
  const auto refused = [&](std::string_view body) { return server.post("/v1/route", body).error_message(); };
  const char* const one = "'prompt' must be there, or 'messages', or 'session': one of the three";
  EXPECT_EQ(refused("{}"), one);
  EXPECT_EQ(refused(R"({"prompt": "a", "session": "b"})"), one);
  EXPECT_EQ(refused(R"({"prompt": 5})"), "'prompt' must be a string or an array of token ids");
  EXPECT_EQ(refused(R"({"prompt": []})"), "'prompt' must have at least one token");
  EXPECT_EQ(refused(R"({"session": ""})"), "'session' must not be empty");
  EXPECT_EQ(refused(R"({"prompt": "a", "blocks": 0})"), "'blocks' must be from 1 to 1048576");
  EXPECT_EQ(refused(R"({"prompt": [9999]})"), "'prompt[0]' must be a token id from 0 to 1535");
}

}  // namespace
}  // namespace quire::server

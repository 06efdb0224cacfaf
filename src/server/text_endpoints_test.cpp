#include "quire/server/text_endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(TextEndpoints, PropsSayWhatIsServed) {
  Running server({.alias = "demo"}, {.context = 512, .max_sequences = 7});
  const json::value props = server.get("/props").parsed();
  EXPECT_EQ(props.at("total_slots").as_int64(), 7);
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx").as_int64(), 512);
  EXPECT_EQ(props.at("default_generation_settings").at("params").at("temperature").to_number<double>(), 1);
  EXPECT_EQ(props.at("model_path").as_string(), "quire-demo-llama-q8_0.gguf") << "without folders";
  EXPECT_EQ(props.at("model_alias").as_string(), "demo");
  EXPECT_EQ(props.at("modalities").at("vision").as_bool(), false);
  EXPECT_THAT(std::string(props.at("chat_template").as_string()), HasSubstr("messages"));
  EXPECT_THAT(std::string(props.at("build_info").as_string()), ::testing::StartsWith("quire "));
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

}  // namespace
}  // namespace quire::server

// A server with adapters: how requests choose one, what is listed, and that nothing computed with one is used for
// another.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "quire/model/adapter_testing.h"
#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using testing::Reply;
using testing::Running;
using testing::text_of;
namespace json = boost::json;

constexpr const char* kModel = "quire-demo-llama-q8_0";

class ServerAdapters : public ::testing::Test {
 protected:
  ServerAdapters() : folder_(std::filesystem::temp_directory_path() / fmt::format("quire-adapters-{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
    const auto model = gguf::File::open(testing::models_dir() + "/" + kModel + ".gguf");
    EXPECT_TRUE(model.has_value());
    for (const std::uint32_t i : {0u, 1u}) {
      const auto written =
          model::testing::adapter_for(*model, 4, 5 + i, 0, {"attn", "ffn"}, 1.0F).writer().write(path(i));
      EXPECT_TRUE(written.has_value()) << written.error().message;
    }
  }
  ~ServerAdapters() override { std::filesystem::remove_all(folder_); }

  std::string path(std::uint32_t i) const { return (folder_ / fmt::format("{}.gguf", i)).string(); }
  std::vector<model::AdapterOptions> both() const { return {{"pirate", path(0)}, {"sql", path(1)}}; }

  const std::filesystem::path folder_;
};

std::string completion(const std::string& model) {
  return fmt::format(
      R"({{"model": "{}", "prompt": "Once upon a time there was a little bird who lived in a tall tree near the river, and",
          "max_tokens": 12, "temperature": 0}})",
      model);
}
std::string named(const std::string& adapter) { return std::string(kModel) + (adapter.empty() ? "" : ":" + adapter); }
json::value shown(const std::string& adapter) { return json::value(named(adapter)); }
std::int64_t cached(const Reply& reply) {
  return reply.parsed().at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64();
}

TEST_F(ServerAdapters, AreListedAfterTheModel) {
  const Running server({}, {}, std::string(kModel) + ".gguf", both());
  const json::value list = server.get("/v1/models").parsed();
  ASSERT_EQ(list.at("data").as_array().size(), 3u);
  EXPECT_EQ(list.at("data").at(0).at("id"), shown(""));
  EXPECT_TRUE(list.at("data").at(0).at("parent").is_null());
  EXPECT_EQ(list.at("data").at(1).at("id"), shown("pirate"));
  EXPECT_EQ(list.at("data").at(1).at("parent"), shown(""));
  EXPECT_EQ(list.at("data").at(2).at("id"), shown("sql"));
  EXPECT_EQ(server.get("/v1/models/" + named("sql")).parsed().at("id"), shown("sql"));
  const Reply none = server.get("/v1/models/" + named("go"));
  EXPECT_EQ(none.status, 404u);
  EXPECT_EQ(none.parsed().at("error").at("code"), "model_not_found");
}

TEST_F(ServerAdapters, AreChosenByTheModelOfARequestAndShareNoPrefix) {
  const Running server({}, {}, std::string(kModel) + ".gguf", both());
  std::vector<std::string> texts;
  for (const std::string adapter : {"", "pirate", "sql"}) {
    const Reply first = server.post("/v1/completions", completion(named(adapter)));
    texts.push_back(text_of(first));
    EXPECT_EQ(first.parsed().at("model"), shown(adapter));
    EXPECT_EQ(cached(first), 0) << adapter;
    const Reply again = server.post("/v1/completions", completion(named(adapter)));
    EXPECT_EQ(text_of(again), texts.back());
    EXPECT_GE(cached(again), 16) << adapter;
  }
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_NE(texts[1], texts[2]);
  // Any name of the model will do.
  EXPECT_EQ(text_of(server.post("/v1/completions", completion("default:pirate"))), texts[1]);
  // Without an adapter, the answer is that of a server that has none.
  const Running plain;
  EXPECT_EQ(text_of(plain.post("/v1/completions", completion(named("")))), texts[0]);
}

TEST_F(ServerAdapters, AnUnknownOneIsAnUnknownModelEverywhere) {
  const Running server({}, {}, std::string(kModel) + ".gguf", both());
  const std::string model = fmt::format(R"("model": "{}")", named("go"));
  const std::string messages = R"("messages": [{"role": "user", "content": "Hi"}])";
  for (const auto& [path, body] :
       std::vector<std::pair<std::string, std::string>>{{"/v1/completions", R"("prompt": "Hi")"},
                                                        {"/v1/chat/completions", messages},
                                                        {"/v1/messages", messages + R"(, "max_tokens": 4)"},
                                                        {"/v1/responses", R"("input": "Hi")"},
                                                        {"/v1/embeddings", R"("input": "Hi")"},
                                                        {"/v1/route", R"("prompt": "Hi")"},
                                                        {"/v1/sessions", R"("prompt": "Hi")"}}) {
    const Reply reply = server.post(path, fmt::format("{{{}, {}}}", model, body));
    EXPECT_EQ(reply.status, 404u) << path << ": " << reply.body;
    EXPECT_THAT(reply.body, HasSubstr(named("pirate"))) << path;
  }
}

TEST_F(ServerAdapters, AnswerChatsMessagesAndResponses) {
  const Running server({}, {}, std::string(kModel) + ".gguf", both());
  const std::string model = fmt::format(R"("model": "{}")", named("sql"));
  const std::string messages = R"("messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4)";
  const Reply chat = server.post("/v1/chat/completions", fmt::format("{{{}, {}}}", model, messages));
  EXPECT_EQ(chat.parsed().at("model"), shown("sql")) << chat.body;
  const Reply message = server.post("/v1/messages", fmt::format("{{{}, {}}}", model, messages));
  EXPECT_EQ(message.parsed().at("model"), shown("sql")) << message.body;
  const Reply response =
      server.post("/v1/responses", fmt::format(R"({{{}, "input": "Hi", "max_output_tokens": 16}})", model));
  EXPECT_EQ(response.parsed().at("model"), shown("sql")) << response.body;
  const Reply vector = server.post("/v1/embeddings", fmt::format(R"({{{}, "input": "Hi"}})", model));
  EXPECT_EQ(vector.parsed().at("model"), shown("sql")) << vector.body;
  const Reply other = server.post("/v1/embeddings", R"({"input": "Hi"})");
  EXPECT_NE(vector.parsed().at("data").at(0).at("embedding"), other.parsed().at("data").at(0).at("embedding"));
}

TEST_F(ServerAdapters, HaveKeysOfTheirOwnForRouting) {
  const Running server({}, {}, std::string(kModel) + ".gguf", both());
  const auto key = [&](const std::string& model) {
    return server.post("/v1/route", fmt::format(R"({{"model": "{}", "prompt": "Hello there"}})", model))
        .parsed()
        .at("key");
  };
  EXPECT_EQ(key(named("sql")), key(named("sql")));
  EXPECT_NE(key(named("sql")), key(named("pirate")));
  EXPECT_NE(key(named("sql")), key(named("")));
  EXPECT_EQ(key(named("")), server.post("/v1/route", R"({"prompt": "Hello there"})").parsed().at("key"));
}

TEST_F(ServerAdapters, ASessionKeepsItsOwn) {
  ServerOptions options;
  options.session_dir = (folder_ / "sessions").string();
  std::string continued;
  {
    const Running server(options, {}, std::string(kModel) + ".gguf", both());
    const std::string prompt =
        "Once upon a time there was a little bird who lived in a tall tree near the river, and one day it flew away";
    const Reply made =
        server.post("/v1/sessions", fmt::format(R"({{"model": "{}", "prompt": "{}"}})", named("sql"), prompt));
    ASSERT_EQ(made.status, 201u) << made.body;
    EXPECT_EQ(made.parsed().at("adapter"), "sql");
    const std::string id(made.parsed().at("id").as_string());
    const Reply other =
        server.post("/v1/sessions/" + id + "/generate", fmt::format(R"({{"model": "{}"}})", named("pirate")));
    EXPECT_EQ(other.status, 400u);
    EXPECT_EQ(other.error_message(),
              fmt::format("'model' is '{}', and the session was begun with '{}'", named("pirate"), named("sql")));
    const Reply saved = server.post("/v1/sessions/" + id + "/save", R"({"name": "bird"})");
    ASSERT_EQ(saved.status, 200u) << saved.body;
    EXPECT_GE(saved.parsed().at("saved_tokens").as_int64(), 16);
    const Reply answer = server.post("/v1/sessions/" + id + "/generate", R"({"max_tokens": 8, "temperature": 0})");
    continued = text_of(answer);
    EXPECT_EQ(answer.parsed().at("model"), shown("sql"));
  }
  const auto restore = [&](const Running& server) {
    return server.post("/v1/sessions/restore", R"({"name": "bird"})");
  };
  {
    // The adapters in another order: the number is another, the adapter the same.
    const Running server(options, {}, std::string(kModel) + ".gguf", {{"sql", path(1)}, {"pirate", path(0)}});
    const Reply restored = restore(server);
    ASSERT_EQ(restored.status, 201u) << restored.body;
    EXPECT_GE(restored.parsed().at("restored_tokens").as_int64(), 16);
    EXPECT_EQ(restored.parsed().at("adapter"), "sql");
    const std::string id(restored.parsed().at("id").as_string());
    const Reply answer = server.post("/v1/sessions/" + id + "/generate", R"({"max_tokens": 8, "temperature": 0})");
    EXPECT_EQ(text_of(answer), continued);
    EXPECT_GE(cached(answer), 16);
  }
  {
    const Running without(options, {}, std::string(kModel) + ".gguf", {{"pirate", path(0)}});
    const Reply refused = restore(without);
    EXPECT_EQ(refused.status, 400u);
    EXPECT_THAT(refused.error_message(), HasSubstr("was made with adapter 'sql', which this server does not have"));
  }
  const Running different(options, {}, std::string(kModel) + ".gguf", {{"sql", path(0)}});
  const Reply refused = restore(different);
  EXPECT_EQ(refused.status, 400u);
  EXPECT_THAT(refused.error_message(), HasSubstr("was made with another adapter 'sql', or with another scale of it"));
}

}  // namespace
}  // namespace quire::server

// /v1/sessions: answers that are those of one long prompt, forks, files, tenants and limits.
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/key_file.h"
#include "quire/server/server_testing.h"
#include "quire/tiers/running_tier_testing.h"
#include "quire/tiers/tiers.h"

namespace quire::server::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kStory = "Once upon a time there was a grumpy boy named Oscar. Oscar lived near the harbour.";
constexpr const char* kLlama = "quire-demo-llama-q8_0.gguf";
constexpr const char* kHybrid = "quire-demo-hybrid-q8_0.gguf";

json::value post_ok(const Running& server, const std::string& path, const json::object& body, unsigned status = 200,
                    std::string_view headers = {}) {
  const Reply reply = server.post(path, json::serialize(body), headers);
  EXPECT_EQ(reply.status, status) << path << " " << reply.body;
  return reply.parsed();
}
std::string id_of(const json::value& session) { return std::string(session.at("id").as_string()); }
std::string made(const Running& server, const json::object& body, std::string_view headers = {}) {
  return id_of(post_ok(server, "/v1/sessions", body, 201, headers));
}
std::string path_of(const std::string& id, const std::string& what) { return "/v1/sessions/" + id + "/" + what; }
json::array ids_of(const Running& server, const std::string& id) {
  return server.get("/v1/sessions/" + id + "?tokens=1").parsed().at("token_ids").as_array();
}
json::object with(json::object body, const json::object& more) {
  for (const auto& [key, value] : more) body[key] = value;
  return body;
}
std::string code_of(const Reply& reply) { return std::string(reply.parsed().at("error").at("code").as_string()); }

// A folder of the test's own, removed at its end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-sessions-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

// Ways to ask for an answer.
const std::vector<json::object>& ways() {
  static const std::vector<json::object> all = {
      {{"temperature", 0}},
      {{"seed", 7}, {"temperature", 1.3}},
      {{"seed", 8}, {"presence_penalty", 1}, {"frequency_penalty", 0.5}, {"repetition_penalty", 1.2}},
      {{"seed", 9}, {"guided_regex", "[a-z ,.]{5,60}!"}},
  };
  return all;
}

class Sessions : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Sessions, ::testing::Values(kLlama, kHybrid),
                         [](const auto& file) { return std::string(file.param == kLlama ? "Attention" : "Hybrid"); });

TEST_P(Sessions, AnswersAreThoseOfPlainCompletionsOfTheSameTokens) {
  const Running server({}, {.context = 512}, GetParam());
  for (const json::object& way : ways()) {
    const std::string id = made(server, {{"prompt", kStory}});
    post_ok(server, path_of(id, "append"), {{"prompt", " One day"}});
    const json::array before = ids_of(server, id);
    const json::value answer = post_ok(server, path_of(id, "generate"), with(way, {{"max_tokens", 20}}));
    EXPECT_EQ(answer.at("session").as_string(), id);
    const json::value plain = post_ok(server, "/v1/completions", with(way, {{"max_tokens", 20}, {"prompt", before}}));
    EXPECT_EQ(answer.at("choices").at(0), plain.at("choices").at(0));
    const json::array after = ids_of(server, id);
    EXPECT_EQ(json::array(after.begin(), after.begin() + static_cast<long>(before.size())), before);
    // And the next answer behind it.
    const json::value next = post_ok(server, path_of(id, "generate"), with(way, {{"max_tokens", 9}}));
    const json::value next_plain =
        post_ok(server, "/v1/completions", with(way, {{"max_tokens", 9}, {"prompt", after}, {"cache_prompt", false}}));
    EXPECT_EQ(next.at("choices").at(0), next_plain.at("choices").at(0));
  }
  EXPECT_TRUE(server.comes_to_rest());
}

TEST_P(Sessions, AnAnswerInPiecesIsTheAnswer) {
  const Running server({}, {.context = 512}, GetParam());
  for (const json::object& way : ways()) {
    const std::string whole = made(server, {{"prompt", kStory}}), pieces = made(server, {{"prompt", kStory}});
    post_ok(server, path_of(whole, "generate"), with(way, {{"max_tokens", 24}}));
    post_ok(server, path_of(pieces, "generate"), with(way, {{"max_tokens", 5}}));
    for (int left = 19; left > 0; left -= 7) {
      const auto session = server.get("/v1/sessions/" + pieces).parsed();
      if (!session.at("unfinished_answer").as_bool()) break;
      post_ok(server, path_of(pieces, "generate"), {{"continue", true}, {"max_tokens", std::min(left, 7)}});
    }
    EXPECT_EQ(ids_of(server, pieces), ids_of(server, whole)) << json::serialize(way);
  }
}

TEST_P(Sessions, AppendComputesNowAndTheNextCallFindsIt) {
  const Running server({}, {.context = 512}, GetParam());
  const json::value created = post_ok(server, "/v1/sessions", {{"prompt", kStory}}, 201);
  const std::string id = id_of(created);
  const json::value appended = post_ok(server, path_of(id, "append"), {{"prompt", " One day"}});
  const auto tokens = created.at("tokens").as_int64();
  EXPECT_GT(appended.at("tokens").as_int64(), tokens);
  EXPECT_GE(appended.at("usage").at("cached_tokens").as_int64(), tokens / 16 * 16) << "up to the last whole unit";
}

TEST_P(Sessions, ForksAndRewindsAreTheSameTokensUpToThere) {
  const Running server({}, {.context = 512}, GetParam());
  const std::string id = made(server, {{"prompt", kStory}});
  post_ok(server, path_of(id, "generate"), {{"max_tokens", 20}, {"seed", 3}});
  const json::array all = ids_of(server, id);
  const auto first = [&](std::size_t count) {
    return json::array(all.begin(), all.begin() + static_cast<long>(count));
  };
  const std::string fork = id_of(post_ok(server, path_of(id, "fork?at=11"), {}, 201));
  const std::string copy = id_of(post_ok(server, path_of(id, "fork"), {}, 201));
  EXPECT_NE(fork, id);
  EXPECT_EQ(ids_of(server, fork), first(11));
  EXPECT_EQ(ids_of(server, copy), all);
  EXPECT_EQ(post_ok(server, path_of(copy, "rewind?to=17"), {}).at("tokens"), 17);
  EXPECT_EQ(ids_of(server, copy), first(17));
  EXPECT_EQ(ids_of(server, id), all) << "the source stays";
  for (const std::string& each : {fork, copy}) {
    const json::array prompt = ids_of(server, each);
    const auto answer = post_ok(server, path_of(each, "generate"), {{"max_tokens", 8}, {"seed", 5}});
    const auto plain = post_ok(server, "/v1/completions",
                               {{"max_tokens", 8}, {"seed", 5}, {"prompt", prompt}, {"cache_prompt", false}});
    EXPECT_EQ(answer.at("choices"), plain.at("choices"));
  }
  EXPECT_THAT(server.post(path_of(id, "fork?at=9999"), "").error_message(), HasSubstr("'at' is 9999"));
  EXPECT_THAT(server.post(path_of(id, "rewind?to=x"), "").error_message(), HasSubstr("'to' must be a whole number"));
  EXPECT_THAT(server.post(path_of(id, "rewind"), "").error_message(), HasSubstr("'to' is missing"));
}

TEST_P(Sessions, SavedBeforeARestartGoOnExactlyAfterIt) {
  const Folder folder;
  ServerOptions options;
  options.session_dir = folder.path;
  std::vector<std::string> names;
  std::vector<json::array> right;
  {
    const Running server(options, {.context = 512}, GetParam());
    for (const json::object& way : ways()) {
      const std::string id = made(server, {{"prompt", kStory}});
      post_ok(server, path_of(id, "generate"), with(way, {{"max_tokens", 9}}));
      const json::value saved = post_ok(server, path_of(id, "save"), {{"name", "s" + std::to_string(names.size())}});
      EXPECT_GE(saved.at("saved_tokens").as_int64(), saved.at("tokens").as_int64() / 16 * 16);
      names.emplace_back(saved.at("name").as_string());
      post_ok(server, path_of(id, "generate"), {{"continue", true}, {"max_tokens", 12}});
      right.push_back(ids_of(server, id));
    }
  }
  const Running server(options, {.context = 512}, GetParam());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const json::value restored = post_ok(server, "/v1/sessions/restore", {{"name", names[i]}}, 201);
    EXPECT_GE(restored.at("restored_tokens").as_int64(), restored.at("tokens").as_int64() / 16 * 16);
    const std::string id = id_of(restored);
    const json::value answer = post_ok(server, path_of(id, "generate"), {{"continue", true}, {"max_tokens", 12}});
    EXPECT_EQ(ids_of(server, id), right[i]) << i;
    EXPECT_GE(answer.at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64(), 16)
        << "it was not computed";
    // The same into the session that it is now: back to where it was saved.
    EXPECT_EQ(post_ok(server, path_of(id, "restore"), {{"name", names[i]}}).at("tokens"), restored.at("tokens"));
  }
  EXPECT_TRUE(server.comes_to_rest());
}

json::array some_prompt(unsigned seed, std::size_t tokens) {
  std::mt19937 random(seed);
  json::array prompt;
  for (std::size_t i = 0; i < tokens; ++i) prompt.emplace_back(10 + random() % 1490);
  return prompt;
}

// A session is tokens. What was computed of them leaves the pool as any prompt does, and comes back as any prompt does.
TEST_P(Sessions, ThatFellOutOfThePoolAreFoundInATier) {
  constexpr std::size_t kTokens = 409;  // 25 blocks, and some
  const json::object prompt{{"prompt", some_prompt(1, kTokens)}};
  const json::object way{{"temperature", 0}, {"max_tokens", 8}, {"ignore_eos", true}};
  std::string right;
  {
    const Running plain({}, {.context = 512}, GetParam());
    right = text_of(plain.post("/v1/completions", json::serialize(with(prompt, way))));
  }
  tiers::testing::SharedStore store;
  auto all = std::make_shared<tiers::Tiers>(tiers::TiersOptions{.staging_bytes = 16 << 20});
  all->add(std::make_unique<tiers::testing::RunningTier>(TierKind::Disk, store, *all));
  // A pool for two sequences of the whole context, and few recurrent states.
  engine::HostOptions host{.context = 512, .max_sequences = 2, .checkpoints = 2};
  host.tiers = std::move(all);
  const Running server({}, std::move(host), GetParam());
  const std::string id = made(server, prompt);
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(store.mutex);
    return store.objects.size() >= kTokens / 16;
  }));
  // A server on a busy machine may rightly compute instead of waiting. So this is tried more than once.
  std::int64_t from_disk = 0;
  for (unsigned round = 0; round < 10 && from_disk == 0; ++round) {
    for (unsigned other = 0; other < 6; ++other) {
      post_ok(server, "/v1/completions", {{"prompt", some_prompt(100 + 10 * round + other, 400)}, {"max_tokens", 1}});
    }
    const json::value answer = post_ok(server, path_of(id, "generate"), way);
    EXPECT_EQ(answer.at("choices").at(0).at("text").as_string(), right) << "round " << round;
    const json::value& details = answer.at("usage").at("prompt_tokens_details");
    const auto& from = details.at("cached_from").as_object();
    if (const json::value* const disk = from.if_contains("disk")) from_disk = disk->as_int64();
    EXPECT_LE(from_disk, details.at("cached_tokens").as_int64());
    post_ok(server, path_of(id, "rewind?to=" + std::to_string(kTokens)), {});
  }
  EXPECT_GT(from_disk, 0);
  EXPECT_TRUE(server.comes_to_rest());
}

TEST(Sessions, StreamTheSameText) {
  const Running server({}, {.context = 512});
  const std::string a = made(server, {{"prompt", kStory}}), b = made(server, {{"prompt", kStory}});
  const Reply stream = server.post(path_of(a, "generate"), R"({"max_tokens": 20, "seed": 4, "stream": true})");
  const auto heard = streamed(stream.body);
  EXPECT_TRUE(heard.done);
  EXPECT_THAT(stream.body, HasSubstr("\"session\":\"" + a + "\""));
  const json::value whole = post_ok(server, path_of(b, "generate"), {{"max_tokens", 20}, {"seed", 4}});
  EXPECT_EQ(heard.texts.at(0), whole.at("choices").at(0).at("text").as_string());
  EXPECT_EQ(ids_of(server, a), ids_of(server, b));
}

TEST(Sessions, AreConversationsIfTheyBeginWithMessages) {
  const Running server({}, {.context = 1024});
  const json::array hello = {{{"role", "user"}, {"content", "What is 2 + 3?"}}};
  const json::array again = {{{"role", "user"}, {"content", "And 3 + 4?"}}};
  const std::string id = made(server, {});
  const auto ask = [&](const json::object& body) {
    return post_ok(server, "/v1/chat/completions", with(body, {{"temperature", 0}, {"max_tokens", 24}}));
  };
  const json::value first = ask({{"session", id}, {"messages", hello}});
  EXPECT_EQ(first.at("choices"), ask({{"messages", hello}}).at("choices"));
  const json::value second = ask({{"session", id}, {"messages", again}});
  json::array all = hello;
  all.push_back(first.at("choices").at(0).at("message"));
  all.push_back(again.at(0));
  EXPECT_EQ(second.at("choices"), ask({{"messages", all}}).at("choices"));
  const json::value session = server.get("/v1/sessions/" + id).parsed();
  EXPECT_EQ(session.at("message_count"), 4);
  EXPECT_EQ(session.at("messages").at(2), again.at(0));
  EXPECT_EQ(session.at("messages").at(3).at("content"), second.at("choices").at(0).at("message").at("content"));

  // With messages from the beginning, /generate answers them. A rewind to the end of an answer keeps the messages.
  const std::string other = made(server, {{"messages", hello}});
  const json::value text = post_ok(server, path_of(other, "generate"), {{"temperature", 0}, {"max_tokens", 24}});
  EXPECT_EQ(text.at("choices").at(0).at("text").as_string(),
            first.at("choices").at(0).at("message").at("content").as_string());
  const json::value answered = server.get("/v1/sessions/" + other).parsed();
  EXPECT_EQ(answered.at("message_count"), 2);
  post_ok(server, path_of(other, "append"), {{"messages", again}});
  EXPECT_EQ(server.get("/v1/sessions/" + other).parsed().at("message_count"), 3);
  const auto back = "rewind?to=" + std::to_string(answered.at("tokens").as_int64());
  const json::value rewound = post_ok(server, path_of(other, back), {});
  EXPECT_EQ(rewound.at("tokens"), answered.at("tokens"));
  // In the middle of a message it is plain text.
  EXPECT_TRUE(post_ok(server, path_of(other, "rewind?to=5"), {}).at("message_count").is_null());
  EXPECT_THAT(
      server.post("/v1/chat/completions", json::serialize(json::object{{"session", other}, {"messages", again}}))
          .error_message(),
      HasSubstr("the session is plain text"));
  EXPECT_THAT(server.post(path_of(id, "append"), R"({"prompt": "x"})").error_message(), HasSubstr("is a conversation"));
}

TEST(Sessions, OneCallAtATimeWorksOnOneAndAClientThatGoesLeavesWhatWasGenerated) {
  const Running server({}, {.context = 2048});
  const std::string id = made(server, {{"prompt", "Once upon a time"}});
  const auto before = server.get("/v1/sessions/" + id).parsed().at("tokens").as_int64();
  Client client(server.port());
  client.post(path_of(id, "generate"), R"({"max_tokens": 1900, "ignore_eos": true, "stream": true, "seed": 1})");
  while (client.bytes().find("data: ") == std::string::npos && client.receive()) {
  }
  for (const char* what : {"append", "generate", "fork", "rewind?to=1"}) {
    const Reply refused = server.post(path_of(id, what), R"({"prompt": "x"})");
    // A generate with a prompt is refused for that only if it has the session.
    EXPECT_EQ(refused.status, 409u) << what << refused.body;
    EXPECT_EQ(code_of(refused), "session_busy");
  }
  EXPECT_TRUE(server.get("/v1/sessions/" + id).parsed().at("busy").as_bool());
  client.close();
  json::value session;
  EXPECT_TRUE(eventually([&] {
    session = server.get("/v1/sessions/" + id).parsed();
    return !session.at("busy").as_bool();
  }));
  const auto kept = session.at("tokens").as_int64();
  EXPECT_GT(kept, before);
  EXPECT_LT(kept, before + 1900);
  EXPECT_TRUE(session.at("unfinished_answer").as_bool());
  // It goes on as if nothing had happened.
  post_ok(server, path_of(id, "generate"), {{"continue", true}, {"max_tokens", 10}});
  const json::array continued = ids_of(server, id);
  const std::string whole = made(server, {{"prompt", "Once upon a time"}});
  post_ok(server, path_of(whole, "generate"), {{"max_tokens", kept - before + 10}, {"ignore_eos", true}, {"seed", 1}});
  EXPECT_EQ(continued, ids_of(server, whole));
  EXPECT_TRUE(server.comes_to_rest());
}

TEST(Sessions, OfOneKeyAreUnknownToAnotherAndSoAreTheirFiles) {
  const Folder folder;
  ServerOptions options;
  options.session_dir = folder.path;
  options.keys = {"ann", "bob"};
  const Running server(options, {.context = 512});
  const std::string ann = "Authorization: Bearer ann\r\n", bob = "Authorization: Bearer bob\r\n";
  const std::string id = made(server, {{"prompt", kStory}}, ann);
  post_ok(server, path_of(id, "save"), {{"name", "mine"}}, 200, ann);
  for (const char* what : {"append", "generate", "fork", "rewind?to=1", "save", "restore"}) {
    const Reply reply = server.post(path_of(id, what), R"({})", bob);
    EXPECT_EQ(reply.status, 404u) << what;
    EXPECT_EQ(server.post(path_of("sess_none", what), R"({})", bob).status, 404u) << what;
  }
  EXPECT_EQ(server.get("/v1/sessions/" + id, bob).status, 404u);
  EXPECT_TRUE(server.get("/v1/sessions", bob).parsed().at("data").as_array().empty());
  EXPECT_EQ(server.get("/v1/sessions", ann).parsed().at("data").as_array().size(), 1u);
  EXPECT_EQ(server.post("/v1/sessions/restore", R"({"name": "mine"})", bob).status, 404u);
  EXPECT_EQ(server.post("/v1/sessions/restore", R"({"name": "mine"})", ann).status, 201u);
  const Reply chat = server.post(
      "/v1/chat/completions", R"({"session": ")" + id + R"(", "messages": [{"role": "user", "content": "x"}]})", bob);
  EXPECT_EQ(chat.status, 404u);
  // What one has computed is not found for the other.
  const json::value theirs = post_ok(server, "/v1/sessions", {{"prompt", kStory}}, 201, bob);
  EXPECT_EQ(theirs.at("usage").at("cached_tokens"), 0);
}

// Ids are counted from 1 in every file of keys. Servers with other files may have one folder, and a file may be made
// anew.
TEST(Sessions, OfFilesOfKeysWithTheSameIdsAreApartAndThoseOfACopyAreShared) {
  const Folder folder;
  const auto make = [&](const char* file) {
    std::string header;
    const auto done = edit_key_file(folder.path + "/" + file, true, [&](KeyFile& keys) -> Result<void> {
      const auto key = keys.add({.name = "ann"});
      EXPECT_TRUE(key.has_value());
      EXPECT_EQ(keys.keys().at(0).tenant.id, 1u);
      header = fmt::format("Authorization: Bearer {}\r\n", key.value());
      return {};
    });
    EXPECT_TRUE(done.has_value());
    return header;
  };
  const std::string ann = make("first"), stranger = make("second");
  std::filesystem::copy_file(folder.path + "/first", folder.path + "/copy");
  const auto options = [&](const char* file) {
    return ServerOptions{.key_file = folder.path + "/" + file, .session_dir = folder.path + "/sessions"};
  };
  const std::string restore = "/v1/sessions/restore", mine = R"({"name": "mine"})";
  json::array tokens;
  {
    const Running server(options("first"), {.context = 512});
    const std::string id = made(server, {{"prompt", kStory}}, ann);
    post_ok(server, path_of(id, "save"), {{"name", "mine"}}, 200, ann);
    tokens = server.get("/v1/sessions/" + id + "?tokens=1", ann).parsed().at("token_ids").as_array();
  }
  {
    const Running server(options("second"), {.context = 512});
    EXPECT_EQ(server.post(restore, mine, stranger).status, 404u) << "the same id, another file";
    // A file of the same name is another one, and does not replace it.
    const std::string other = made(server, {{"prompt", "Another story"}}, stranger);
    post_ok(server, path_of(other, "save"), {{"name", "mine"}}, 200, stranger);
  }
  const Running server(options("copy"), {.context = 512});
  const Reply restored = server.post(restore, mine, ann);
  ASSERT_EQ(restored.status, 201u) << restored.body;
  const std::string id = id_of(restored.parsed());
  EXPECT_EQ(server.get("/v1/sessions/" + id + "?tokens=1", ann).parsed().at("token_ids").as_array(), tokens);
}

TEST(Sessions, HaveLimitsForEachTenant) {
  const Folder folder;
  ServerOptions options;
  options.max_sessions = 2;
  options.session_tokens = 60;
  options.session_dir = folder.path;
  const Running server(options, {.context = 512});
  const json::array twenty(20, 5);
  const std::string a = made(server, {{"prompt", twenty}}), b = made(server, {{"prompt", twenty}});
  const Reply third = server.post("/v1/sessions", "{}");
  EXPECT_EQ(third.status, 400u);
  EXPECT_EQ(code_of(third), "too_many_sessions");
  EXPECT_EQ(code_of(server.post(path_of(a, "fork"), "")), "too_many_sessions");
  const Reply more = server.post(path_of(a, "append"), json::serialize(json::object{{"prompt", json::array(21, 5)}}));
  EXPECT_EQ(more.status, 400u);
  EXPECT_EQ(code_of(more), "too_many_session_tokens");
  EXPECT_EQ(server.get("/v1/sessions/" + a).parsed().at("tokens"), 20) << "it is as it was";
  post_ok(server, path_of(a, "generate"), {{"max_tokens", 100}, {"ignore_eos", true}});
  EXPECT_EQ(server.get("/v1/sessions/" + a).parsed().at("tokens"), 40) << "as much as there was room for";
  EXPECT_EQ(code_of(server.post(path_of(b, "generate"), "{}")), "too_many_session_tokens");
  post_ok(server, path_of(b, "save"), {{"name", "one"}});
  post_ok(server, path_of(b, "save"), {{"name", "two"}});
  post_ok(server, path_of(b, "save"), {{"name", "two"}});
  EXPECT_EQ(code_of(server.post(path_of(b, "save"), R"({"name": "three"})")), "too_many_sessions");
  Client client(server.port());
  client.send("DELETE /v1/sessions/" + a + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 200u);
  EXPECT_EQ(server.get("/v1/sessions/" + a).status, 404u);
  made(server, {{"prompt", twenty}});
}

TEST(Sessions, RefuseWhatMakesNoSense) {
  const Folder folder;
  ServerOptions options;
  options.session_dir = folder.path;
  const Running server(options, {.context = 512}), plain({}, {.context = 512});
  const std::string id = made(server, {{"prompt", kStory}}), empty = made(server, {}), other = made(plain, {});
  const auto why = [&](const std::string& path, const std::string& body) {
    const Reply reply = server.post(path, body);
    EXPECT_EQ(reply.status, 400u) << reply.body;
    return reply.error_message();
  };
  EXPECT_THAT(why("/v1/sessions", R"({"prompt": "a", "messages": []})"), HasSubstr("cannot be used together"));
  EXPECT_THAT(why("/v1/sessions", R"({"prompt": 5})"), HasSubstr("'prompt' must be a string or an array of token ids"));
  EXPECT_THAT(why("/v1/sessions", R"({"prompt": [99999999]})"), HasSubstr("must be a token id"));
  EXPECT_THAT(why(path_of(id, "append"), "{}"), HasSubstr("'prompt' or 'messages' is missing"));
  EXPECT_THAT(why(path_of(id, "generate"), R"({"n": 2})"), HasSubstr("'n' does not belong"));
  EXPECT_THAT(why(path_of(id, "generate"), R"({"temperature": -1})"), HasSubstr("'temperature'"));
  EXPECT_THAT(why(path_of(id, "generate"), R"({"continue": true})"), HasSubstr("nothing to continue"));
  EXPECT_THAT(why(path_of(empty, "generate"), "{}"), HasSubstr("has no tokens"));
  for (const char* name : {"../x", "a/b", ".hidden", "a b", ""}) {
    EXPECT_THAT(why(path_of(id, "save"), json::serialize(json::object{{"name", name}})), HasSubstr("'name' "));
  }
  EXPECT_THAT(why("/v1/sessions/restore", "{}"), HasSubstr("'name' is missing"));
  EXPECT_EQ(server.post("/v1/sessions/restore", R"({"name": "none"})").status, 404u);
  EXPECT_THAT(plain.post(path_of(other, "save"), "").error_message(), HasSubstr("--session-dir"));
  EXPECT_THAT(plain.post("/v1/sessions/restore", R"({"name": "x"})").error_message(), HasSubstr("--session-dir"));
  EXPECT_EQ(server.get("/v1/sessions").parsed().at("data").as_array().size(), 2u) << "refused ones leave nothing";
  post_ok(server, path_of(id, "append"), {{"prompt", " and"}});  // all is as it was
}

TEST(Sessions, WhoseFileIsDamagedOrOfAnotherModelAreRefused) {
  const Folder folder;
  ServerOptions options;
  options.session_dir = folder.path;
  {
    const Running server(options, {.context = 512});
    post_ok(server, path_of(made(server, {{"prompt", kStory}}), "save"), {{"name", "good"}});
  }
  const std::string good = folder.path + "/good.qsession", bad = folder.path + "/bad.qsession";
  std::filesystem::copy_file(good, bad);
  std::filesystem::resize_file(bad, std::filesystem::file_size(good) - 64);
  const Running server(options, {.context = 512}, kHybrid);
  const Reply cut = server.post("/v1/sessions/restore", R"({"name": "bad"})");
  EXPECT_EQ(cut.status, 400u);
  EXPECT_THAT(cut.error_message(), HasSubstr("the session file 'bad' is cut"));
  const Reply other = server.post("/v1/sessions/restore", R"({"name": "good"})");
  EXPECT_EQ(other.status, 400u);
  EXPECT_THAT(other.error_message(), HasSubstr("another model or another arithmetic: its fingerprint is "));
  EXPECT_TRUE(server.get("/v1/sessions").parsed().at("data").as_array().empty());
  // A folder that cannot be written, as a full disk: the session stays, and so do the files.
  const std::string id = made(server, {{"prompt", kStory}});
  std::filesystem::create_directories(folder.path + "/taken.qsession/x");
  const Reply failed = server.post(path_of(id, "save"), R"({"name": "taken"})");
  EXPECT_EQ(failed.status, 507u);
  EXPECT_THAT(failed.error_message(), HasSubstr("the session file 'taken' cannot be written"));
  EXPECT_EQ(post_ok(server, path_of(id, "save"), {{"name", "fine"}}).at("name"), "fine");
}

TEST(Sessions, HaveDefaultOptions) {
  const Running server({}, {.context = 512});
  const json::object options{{"temperature", 0}, {"max_tokens", 3}, {"stop", "Oscar"}, {"prompt", "not this"}};
  const std::string id = made(server, {{"prompt", kStory}, {"options", options}});
  const std::string twin = made(server, {{"prompt", kStory}});
  const json::value answer = post_ok(server, path_of(id, "generate"), {{"max_tokens", 12}});
  const json::value right =
      post_ok(server, path_of(twin, "generate"), {{"temperature", 0}, {"stop", "Oscar"}, {"max_tokens", 12}});
  EXPECT_EQ(answer.at("choices"), right.at("choices"));
  EXPECT_LE(post_ok(server, path_of(id, "generate"), {}).at("usage").at("completion_tokens").as_int64(), 3);
}

// A session has one answer at a time, behind all that is there.
TEST(Sessions, HaveNoDefaultsThatAnAnswerInASessionCannotHave) {
  const Running server({}, {.context = 512});
  for (const auto& [name, value] :
       json::object{{"n", 2}, {"best_of", 2}, {"suffix", "x"}, {"echo", true}, {"prompt_logprobs", 1}}) {
    const Reply reply = server.post(
        "/v1/sessions", json::serialize(json::object{{"prompt", kStory}, {"options", json::object{{name, value}}}}));
    EXPECT_EQ(reply.status, 400u) << name;
    EXPECT_EQ(reply.error_message(), fmt::format("'options.{}' cannot be a default of a session", std::string(name)));
  }
}

TEST(Sessions, CountTheirMessagesAndTheirOptions) {
  ServerOptions options;
  options.session_tokens = 1000;
  const Running server(options, {.context = 512});
  const std::string junk(8000, 'x');
  const Reply large = server.post("/v1/sessions", json::serialize(json::object{{"options", {{"x", junk}}}}));
  EXPECT_EQ(large.status, 400u);
  EXPECT_EQ(code_of(large), "too_many_session_tokens");
  // What no template writes is kept too.
  const std::string id = made(server, {});
  const json::object message{{"role", "user"}, {"content", "hi"}, {"junk", junk}};
  const Reply chat = server.post(
      "/v1/chat/completions",
      json::serialize(json::object{{"session", id}, {"max_tokens", 0}, {"messages", json::array{message}}}));
  EXPECT_EQ(chat.status, 400u) << chat.body;
  EXPECT_EQ(code_of(chat), "too_many_session_tokens");
  EXPECT_EQ(server.get("/v1/sessions/" + id).parsed().at("message_count"), json::value());
}

}  // namespace
}  // namespace quire::server::testing

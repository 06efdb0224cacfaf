// The server over time: clients that disconnect, keys, watchers of the pool, and shutdown.
#include <future>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/server.h"
#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using testing::Client;
using testing::events;
using testing::eventually;
using ::testing::HasSubstr;
using testing::Reply;
using testing::Running;
namespace json = boost::json;
using testing::kLong;
using testing::Streamed;
using testing::streamed;
using testing::text_of;

// --- clients that disconnect or do not read

TEST(ServerClients, ADisconnectFreesEverythingAtOnce) {
  Running server;
  for (const bool stream : {false, true}) {
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 8; ++i) {
      clients.push_back(std::make_unique<Client>(server.port()));
      clients.back()->post("/v1/completions", fmt::format("{{{}, \"stream\": {}, \"n\": 2}}", kLong, stream));
    }
    EXPECT_TRUE(eventually([&] { return server.stat("running") == 16; }));
    clients.clear();
    EXPECT_TRUE(server.comes_to_rest());
  }
  EXPECT_EQ(server.pool().at("stats").at("cancelled").as_int64(), 16);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("quire_completions_total{outcome=\"gone\"} 16"));
}

TEST(ServerClients, AClientThatDoesNotReadIsCutOffAndOthersAreNotAffected) {
  Running server({.stream_buffer = 32 << 10});
  Client lazy(server.port(), 4096);
  lazy.post("/v1/completions", fmt::format("{{{}, \"stream\": true, \"logprobs\": 20, \"n\": 4}}", kLong));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(server.post("/v1/completions", R"({"prompt": "Hello", "max_tokens": 10})").status, 200u);
  }
  EXPECT_TRUE(server.comes_to_rest());
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("quire_completions_total{outcome=\"too_slow\"} 1"));
  // If it reads after all, it gets the error.
  const Reply reply = lazy.read_reply();
  const Streamed parts = streamed(reply.body);
  EXPECT_THAT(parts.error, HasSubstr("the client reads too slowly: more than 32768 bytes wait for it"));
  EXPECT_TRUE(parts.done && reply.complete);
}

// --- keys and origins

TEST(ServerKeys, ReuseOnlyTheirOwnPrefixesAndCannotTellWhatOthersAsked) {
  Running server({.keys = {"alice", "bob"}});
  const std::string body =
      R"({"prompt": "Once upon a time there was a little bird who lived in a tall tree near the river", "max_tokens": 4})";
  EXPECT_EQ(server.post("/v1/completions", body).status, 401u);
  EXPECT_EQ(server.post("/v1/completions", body, "Authorization: Bearer mallory\r\n").status, 401u);
  EXPECT_EQ(server.get("/pool").status, 401u);
  EXPECT_EQ(server.get("/nothing").status, 401u);
  EXPECT_EQ(server.get("/health").status, 200u);
  EXPECT_EQ(server.get("/").status, 200u);
  const auto details = [&](const char* key) {
    const Reply reply = server.post("/v1/completions", body, fmt::format("Authorization: Bearer {}\r\n", key));
    EXPECT_EQ(reply.status, 200u);
    return reply.parsed().at("usage").at("prompt_tokens_details");
  };
  EXPECT_EQ(details("alice").at("cached_tokens").as_int64(), 0);
  EXPECT_GT(details("alice").at("cached_tokens").as_int64(), 0);
  const json::value other = details("bob");
  EXPECT_EQ(other.at("cached_tokens").as_int64(), 0);
  EXPECT_EQ(other.at("matched_tokens").as_int64(), 0);
  EXPECT_EQ(other.at("miss_reason").as_string(), "never seen");
  EXPECT_GT(details("bob").at("cached_tokens").as_int64(), 0);
  EXPECT_THAT(server.get("/metrics", "Authorization: Bearer bob\r\n").body,
              HasSubstr("quire_prefix_lookup_ends_total{reason=\"other_namespace\"} 0"));
}

TEST(ServerOrigins, OnlyPagesThatAreAllowedMayCall) {
  const std::string body = R"({"prompt": "Hello", "max_tokens": 1})";
  {
    Running server;
    EXPECT_EQ(server.post("/v1/completions", body, "Origin: https://evil.example\r\n").status, 403u);
    EXPECT_EQ(server.post("/v1/completions", body, "Origin: http://localhost\r\n").status, 200u);  // its own
    EXPECT_EQ(server.get("/health", "Origin: https://evil.example\r\n").header("access-control-allow-origin"), "");
  }
  Running server({.origins = {"https://good.example"}});
  const Reply reply = server.post("/v1/completions", body, "Origin: https://good.example\r\n");
  EXPECT_EQ(reply.status, 200u);
  EXPECT_EQ(reply.header("access-control-allow-origin"), "https://good.example");
  EXPECT_EQ(server.post("/v1/completions", body, "Origin: https://evil.example\r\n").status, 403u);
  Client client(server.port());
  client.send(
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: "
      "https://good.example\r\nAccess-Control-Request-Method: "
      "POST\r\n\r\n");
  const Reply preflight = client.read_reply();
  EXPECT_EQ(preflight.status, 204u);
  EXPECT_THAT(preflight.header("access-control-allow-methods"), HasSubstr("POST"));
}

// Every path after `mark` in a text, up to the closing quote.
std::set<std::string> paths_behind(const std::string& text, const std::string& mark, char quote) {
  std::set<std::string> found;
  for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos;) {
    at += mark.size();
    found.insert("/" + text.substr(at, text.find(quote, at) - at));
  }
  return found;
}

TEST(ServerPage, EveryFileItNamesIsServedAndSentAgainOnlyWhenItChanged) {
  Running server;
  std::set<std::string> modules, seen;
  std::vector<std::string> next = {"/"};
  while (!next.empty()) {
    const std::string path = next.back();
    next.pop_back();
    if (!seen.insert(path).second) continue;
    SCOPED_TRACE(path);
    const Reply first = server.get(path);
    ASSERT_EQ(first.status, 200u);
    EXPECT_FALSE(first.body.empty());
    EXPECT_EQ(first.header("content-type"), path.ends_with(".js")    ? "text/javascript; charset=utf-8"
                                            : path.ends_with(".css") ? "text/css; charset=utf-8"
                                                                     : "text/html; charset=utf-8");
    EXPECT_EQ(first.header("cache-control"), "no-cache");
    EXPECT_EQ(first.header("x-content-type-options"), "nosniff");
    EXPECT_THAT(first.header("content-security-policy"), HasSubstr("default-src 'self'"));
    const Reply second = server.get(path, fmt::format("If-None-Match: {}\r\n", first.header("etag")));
    EXPECT_EQ(second.status, 304u);
    EXPECT_TRUE(second.body.empty());
    EXPECT_EQ(server.get(path, "If-None-Match: \"another\"\r\n").body, first.body);
    if (path.ends_with(".js")) modules.insert(path);
    for (const auto& [mark, quote] :
         {std::pair("from './", '\''), {"import './", '\''}, {"src=\"/", '"'}, {"href=\"/", '"'}}) {
      for (const std::string& named : paths_behind(first.body, mark, quote)) next.push_back(named);
    }
  }
  EXPECT_TRUE(modules.contains("/app.js"));
  EXPECT_GT(modules.size(), 10u);
  EXPECT_TRUE(seen.contains("/style.css"));
  // The page preloads exactly the modules that are imported, so that a browser fetches all of them at once.
  std::set<std::string> preloaded = paths_behind(server.get("/").body, "rel=\"modulepreload\" href=\"/", '"');
  preloaded.insert("/app.js");
  EXPECT_EQ(preloaded, modules);
}

TEST(ServerPage, HasNothingBesideItsFiles) {
  Running server;
  for (const char* path : {"/nothing.js", "/web/app.js", "/app.js/", "/App.js", "/words.test.js", "/package.json"}) {
    EXPECT_EQ(server.get(path).status, 404u) << path;
  }
  const Reply posted = server.post("/words.js", "{}");
  EXPECT_EQ(posted.status, 405u);
  EXPECT_EQ(posted.header("allow"), "GET, HEAD");
}

// --- inspection of the pool

TEST(ServerPool, ShowsSequencesUnderTheIdsTheirClientsGot) {
  Running server;
  Client client(server.port());
  client.post("/v1/completions", fmt::format("{{{}, \"stream\": true, \"n\": 2}}", kLong));
  json::value pool;
  ASSERT_TRUE(eventually([&] {
    pool = server.pool();
    const json::array& sequences = pool.at("sequences").as_array();
    return sequences.size() == 2 && sequences[1].at("state") == "decode";
  }));
  const json::value& sequence = pool.at("sequences").at(1);
  while (client.bytes().find("\r\n\r\n") == std::string::npos) ASSERT_TRUE(client.receive());
  EXPECT_THAT(client.bytes(), HasSubstr(fmt::format("x-request-id: {}\r\n", sequence.at("request").as_int64())));
  EXPECT_EQ(sequence.at("choice").as_int64(), 1);
  const auto& group = pool.at("groups").at(0);
  std::set<std::int64_t> listed;
  for (const json::value& page : group.at("pages").as_array()) listed.insert(page.at(0).as_int64());
  EXPECT_EQ(group.at("held").as_int64() + group.at("cached").as_int64(), static_cast<std::int64_t>(listed.size()));
  for (const json::value& page : sequence.at("tables").at(0).as_array()) EXPECT_TRUE(listed.contains(page.as_int64()));
}

TEST(ServerPool, EventsTellTheWholeAndThenEveryChange) {
  Running server;
  Client watcher(server.port());
  watcher.get("/pool/events");
  while (watcher.bytes().find("event: pool\n") == std::string::npos) ASSERT_TRUE(watcher.receive());
  EXPECT_EQ(
      server.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 100, "ignore_eos": true})").status,
      200u);
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  while (watcher.bytes().find("sequence_released") == std::string::npos &&
         std::chrono::steady_clock::now() < deadline) {
    watcher.receive(100ms);
  }
  EXPECT_THAT(watcher.bytes(), HasSubstr("event: change\n"));
  EXPECT_THAT(watcher.bytes(), HasSubstr("[\"sequence_created\","));
  EXPECT_THAT(watcher.bytes(), HasSubstr("[\"page_taken\","));
  EXPECT_THAT(watcher.bytes(), HasSubstr("[\"sequence_released\","));
  // When nothing happens, nothing is sent. The result of the pool's idle check is sent, so wait for that first.
  for (int i = 0; i < 20; ++i) watcher.receive(50ms);
  watcher.bytes().clear();
  EXPECT_FALSE(watcher.receive(300ms));
  server.server().stop();
  while (watcher.receive(2000ms)) {
  }
  EXPECT_THAT(watcher.bytes(),
              HasSubstr("event: error\ndata: {\"error\":{\"message\":\"the server is shutting down\""));
}

// All numbers in the tables of a change.
std::size_t page_numbers(const json::value& value, bool in_tables = false) {
  std::size_t count = in_tables && value.is_int64() ? 1 : 0;
  if (const json::array* const list = value.if_array()) {
    for (const json::value& item : *list) count += page_numbers(item, in_tables);
  } else if (const json::object* const object = value.if_object()) {
    for (const auto& [key, item] : *object) count += page_numbers(item, in_tables || key == "tables");
  }
  return count;
}

TEST(ServerPool, AChangeHasOnlyWhatChanged) {
  Running server;
  Client watcher(server.port());
  watcher.get("/pool/events");
  while (watcher.bytes().find("event: pool\n") == std::string::npos) ASSERT_TRUE(watcher.receive());
  Client client(server.port());
  client.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true, "n": 4})");
  EXPECT_EQ(client.read_reply().status, 200u);
  while (watcher.bytes().find("sequence_released") == std::string::npos || !watcher.bytes().ends_with("\n\n\r\n")) {
    ASSERT_TRUE(watcher.receive());
  }
  // 4 choices of 404 tokens, 16 in a page.
  constexpr std::size_t kPages = 4 * 26;
  std::size_t numbers = 0, changes = 0;
  const std::string& stream = watcher.bytes();
  for (std::size_t at = 0; (at = stream.find("event: change\ndata: ", at)) != std::string::npos;) {
    at += std::string_view("event: change\ndata: ").size();
    // A chunk of the transfer has whole events.
    const json::value change = json::parse(stream.substr(at, stream.find("\n\n", at) - at));
    numbers += page_numbers(change);
    ++changes;
  }
  EXPECT_GT(changes, 2u);
  // A page comes with the number of its group, the table's size and where it begins.
  EXPECT_LT(numbers, 4 * kPages + 12 * changes) << "in " << changes << " changes";
}

TEST(ServerMetrics, CountWhatHappened) {
  Running server;
  EXPECT_EQ(
      server.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 10, "ignore_eos": true})").status,
      200u);
  const std::string text = server.get("/metrics").body;
  for (const char* line :
       {"quire_pages{group=\"0\",state=\"held\"} 0", "quire_completions_total{outcome=\"finished\"} 1",
        "quire_first_token_seconds_count 1", "quire_next_token_seconds_count 9", "quire_queue 0",
        "quire_prefix_lookup_ends_total{reason=\"never_seen\"} 1", "quire_pool_sound 1"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// --- shutdown

TEST(ServerStop, LetsAnswersFinishWithinTheGraceTime) {
  Running server({.grace = 100s});
  Client stream(server.port()), whole(server.port()), idle(server.port());
  stream.post("/v1/completions",
              R"({"prompt": "Once upon a time", "max_tokens": 150, "ignore_eos": true, "stream": true})");
  whole.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 150, "ignore_eos": true})");
  EXPECT_TRUE(eventually([&] { return server.stat("running") + server.stat("finished") >= 2; }));
  server.server().stop();
  const Reply parts = stream.read_reply();
  EXPECT_TRUE(streamed(parts.body).done);
  EXPECT_EQ(streamed(parts.body).error, "");
  EXPECT_EQ(whole.read_reply().status, 200u);
  EXPECT_TRUE(idle.ends());
  stream.close();
  whole.close();
  idle.close();
  server.stop_and_wait();
}

TEST(ServerStop, CutsOffAnswersAfterTheGraceTimeAndSaysSo) {
  Running server({.grace = 100ms});
  Client stream(server.port()), whole(server.port());
  stream.post("/v1/completions", fmt::format("{{{}, \"stream\": true, \"n\": 8}}", kLong));
  whole.post("/v1/completions", fmt::format("{{{}, \"n\": 8}}", kLong));
  EXPECT_TRUE(eventually([&] { return server.stat("running") == 16; }));
  server.server().stop();
  const Reply parts = stream.read_reply();
  const Streamed read = streamed(parts.body);
  EXPECT_EQ(read.error, "the server is shutting down, and the answer was not complete");
  EXPECT_TRUE(read.done && parts.complete);
  const Reply cut = whole.read_reply();
  EXPECT_EQ(cut.status, 503u);
  EXPECT_EQ(cut.parsed().at("error").at("code").as_string(), "stopping");
  server.stop_and_wait();
}

TEST(ServerStop, ASecondTimeDoesNotWait) {
  Running server({.grace = 60s});
  Client client(server.port());
  client.post("/v1/completions", fmt::format("{{{}, \"stream\": true, \"n\": 8}}", kLong));
  EXPECT_TRUE(eventually([&] { return server.stat("running") == 8; }));
  server.server().stop();
  server.server().stop();
  const Reply reply = client.read_reply();
  EXPECT_TRUE(streamed(reply.body).done);
  client.close();
  server.stop_and_wait();
}

}  // namespace
}  // namespace quire::server

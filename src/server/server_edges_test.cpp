// The server's edges: clients that leave early, requests without a key, hosts that are not the server's.
#include <mutex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/server.h"
#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using testing::Client;
using testing::eventually;
using ::testing::HasSubstr;
using testing::Reply;
using testing::Running;

// A request that keeps a worker busy for a while.
std::string slow_to_parse() {
  std::string body = R"({"content": ")";
  for (int i = 0; i < 400'000; ++i) body += "bird tree ";
  return body + "\"}";
}

// --- clients that leave while their request is being parsed

TEST(ServerLeaving, ARequestWhoseClientLeftWhileItWasParsedIsNotComputed) {
  Running server;
  const std::string slow = slow_to_parse();
  std::vector<std::unique_ptr<Client>> busy;
  for (int i = 0; i < 4; ++i) {
    busy.push_back(std::make_unique<Client>(server.port()));
    busy.back()->post("/tokenize", slow);
  }
  std::vector<std::unique_ptr<Client>> leaving;
  for (int i = 0; i < 30; ++i) {
    leaving.push_back(std::make_unique<Client>(server.port()));
    leaving.back()->post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true})");
  }
  // The loop has read all of them when it has answered later ones.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(server.get("/health").status, 200u);
  for (const auto& client : leaving) client->reset();
  for (const auto& client : busy) EXPECT_EQ(client->read_reply().status, 200u);
  EXPECT_TRUE(server.comes_to_rest());
  EXPECT_LT(server.stat("generated_tokens"), 2000) << "of 12,000 for nobody";
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("quire_completions_total{outcome=\"gone\"} 30"));
}

// Keeps the only worker of a server busy until another request is refused.
void expect_busy(ServerOptions options) {
  options.http.workers = 1;
  Running server(std::move(options));
  const std::string slow = slow_to_parse();
  Reply refused;
  // The slow request may arrive late, or be parsed before this thread runs again. Then it is sent again.
  for (int i = 0; i < 50 && refused.status != 503; ++i) {
    Client busy(server.port());
    busy.post("/tokenize", slow);
    while (refused.status != 503 && busy.bytes().empty()) {
      refused = server.post("/v1/completions", R"({"prompt": "Once", "max_tokens": 1})");
      busy.receive(0ms);
    }
    // It is refused itself if it arrives while a small one is parsed.
    const Reply answer = busy.read_reply();
    if (answer.status == 503) {
      refused = answer;
    } else {
      EXPECT_EQ(answer.status, 200u);
    }
  }
  ASSERT_EQ(refused.status, 503u);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_EQ(refused.parsed().at("error").at("code").as_string(), "busy");
  // What has been parsed makes room again.
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt": "Once", "max_tokens": 1})").status, 200u);
}

TEST(ServerLeaving, MoreThanTheParsingQueueHoldsIsRefusedAtOnce) { expect_busy({.parse_queue = 1}); }

TEST(ServerLeaving, MoreBytesThanTheParsingQueueHoldsAreRefusedAtOnce) {
  // One body is always taken, however large.
  expect_busy({.parse_bytes = 1000});
}

// --- keys are checked with the header

constexpr const char* kHead = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n";

TEST(ServerKeysEarly, WithoutAKeyTheBodyIsNotWaitedFor) {
  Running server({.http = {.body_timeout = 1s}, .keys = {"alice"}});
  for (const char* more : {"", "Authorization: Bearer mallory\r\n", "Expect: 100-continue\r\n"}) {
    SCOPED_TRACE(more);
    Client client(server.port());
    client.send(fmt::format("{}{}\r\n", kHead, more));
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 401u) << "and not 100";
    EXPECT_EQ(reply.parsed().at("error").at("code").as_string(), "invalid_api_key");
    EXPECT_EQ(reply.header("connection"), "close") << "what follows would be the body";
  }
  Client client(server.port());
  client.send(fmt::format("{}Expect: 100-continue\r\nAuthorization: Bearer alice\r\n\r\n", kHead));
  EXPECT_EQ(client.read_reply().status, 100u);
}

TEST(ServerKeysEarly, AClientThatSendsItsWholeBodyFirstStillReadsTheAnswer) {
  Running server({.keys = {"alice"}});
  for (int i = 0; i < 5; ++i) {
    Client client(server.port());
    EXPECT_TRUE(client.post("/v1/completions", std::string(8 << 20, ' ')));
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 401u);
    EXPECT_TRUE(reply.complete);
  }
}

TEST(ServerKeysEarly, WhatHasNoRouteIsRefusedWithoutItsBodyToo) {
  Running server({.http = {.body_timeout = 1s}});
  for (const auto& [line, status] : {std::pair("POST /nothing", 404u), {"POST /health", 405u}}) {
    Client client(server.port());
    client.send(fmt::format("{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n", line));
    EXPECT_EQ(client.read_reply().status, status) << line;
  }
  Client client(server.port());
  client.send(fmt::format("{}Origin: https://evil.example\r\n\r\n", kHead));
  EXPECT_EQ(client.read_reply().status, 403u);
}

// --- hosts

Reply with_host(const Running& server, std::string_view host, std::string_view version = "1.1") {
  Client client(server.port());
  client.send(fmt::format("GET /v1/models HTTP/{}\r\nHost: {}\r\n\r\n", version, host));
  return client.read_reply();
}

TEST(ServerHosts, OnLoopbackOnlyTheServersOwnNamesAreAnswered) {
  Running server;
  for (const char* host : {"localhost", "localhost:8080", "LocalHost.", "127.0.0.1", "127.0.0.1:9"}) {
    EXPECT_EQ(with_host(server, host).status, 200u) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example", "xlocalhost",
                           "127.0.0.1.nip.io", "10.0.0.1", "[::1", "", ":8080"}) {
    const Reply reply = with_host(server, host);
    EXPECT_EQ(reply.status, 403u) << host;
    EXPECT_EQ(reply.parsed().at("error").at("code").as_string(), "host_not_allowed");
    EXPECT_THAT(reply.error_message(), HasSubstr("--allowed-host"));
  }
  EXPECT_EQ(with_host(server, "evil.example", "1.0").status, 403u);
}

TEST(ServerHosts, AllowedOnesAreAnsweredToo) {
  Running server({.http = {.allowed_hosts = {"Quire.Example", "[fd00::1]"}}});
  for (const char* host : {"quire.example", "QUIRE.example:443", "[fd00::1]:80", "localhost"}) {
    EXPECT_EQ(with_host(server, host).status, 200u) << host;
  }
  EXPECT_EQ(with_host(server, "other.example").status, 403u);
  // The host in the target wins over the header.
  Client client(server.port());
  client.send("GET http://other.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 403u);
  Client old(server.port());
  old.send("GET /v1/models HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old.read_reply().status, 200u) << "HTTP/1.0 needs no host";
}

TEST(ServerHosts, StarAllowsAll) {
  Running server({.http = {.allowed_hosts = {"*"}}});
  EXPECT_EQ(with_host(server, "other.example").status, 200u);
}

// --- streams that wait

TEST(ServerStreams, ASilentStreamGetsCommentsUntilItsFirstToken) {
  Running server({.stream_keep_alive = 20ms}, {.max_sequences = 1});
  Client first(server.port()), second(server.port());
  first.post("/v1/completions", fmt::format("{{{}, \"stream\": true}}", testing::kLong));
  EXPECT_TRUE(eventually([&] { return server.stat("running") == 1; }));
  second.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 4, "stream": true, "seed": 1})");
  while (second.bytes().find(": waiting\n\n") == std::string::npos) ASSERT_TRUE(second.receive());
  first.close();
  const Reply reply = second.read_reply();
  EXPECT_TRUE(reply.complete);
  EXPECT_TRUE(testing::streamed(reply.body).done);
  EXPECT_EQ(testing::streamed(reply.body).finishes.at(0), "length");
  EXPECT_TRUE(reply.body.starts_with(": waiting\n\n")) << "a comment is an event of its own";
}

TEST(ServerStreams, AStreamWithoutKeepAliveHasNoComments) {
  Running server({.stream_keep_alive = 0ms}, {.max_sequences = 1});
  Client first(server.port()), second(server.port());
  first.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 300, "ignore_eos": true})");
  EXPECT_TRUE(eventually([&] { return server.stat("running") == 1; }));
  second.post("/v1/completions", R"({"prompt": "Once upon a time", "max_tokens": 4, "stream": true})");
  EXPECT_EQ(second.read_reply().body.find(": "), std::string("data").size());
}

// --- the access log

class Logged {
 public:
  explicit Logged(ServerOptions options = {}) {
    options.http.on_request = [this](const AccessRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
    };
    server_ = std::make_unique<Running>(std::move(options));
  }
  Running& server() { return *server_; }
  // The record of the only request for this path, as soon as it has ended.
  AccessRecord of(std::string_view path) {
    AccessRecord found;
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex_);
      for (const AccessRecord& record : records_) {
        if (record.path != path) continue;
        found = record;
        return true;
      }
      return false;
    })) << path;
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<AccessRecord> records_;
  std::unique_ptr<Running> server_;
};

TEST(ServerLog, HasOneRecordForARequestWithItsTokensAndItsEnd) {
  Logged logged({.keys = {"alice", "bob"}});
  const std::string bob = "Authorization: Bearer bob\r\n";
  Client client(logged.server().port());
  client.post("/v1/completions?secret=query",
              R"({"prompt": "Once upon a time", "max_tokens": 6, "ignore_eos": true, "stream": true})", bob);
  EXPECT_EQ(client.read_reply().status, 200u);
  const AccessRecord record = logged.of("/v1/completions");
  EXPECT_EQ(record.method, "POST");
  EXPECT_EQ(record.status, 200u);
  EXPECT_GT(record.bytes, 200u);
  EXPECT_FALSE(record.left);
  EXPECT_TRUE(record.client.starts_with("127.0.0.1:")) << record.client;
  EXPECT_EQ(record.notes.prompt_tokens, 4u);
  EXPECT_EQ(record.notes.completion_tokens, 6u);
  EXPECT_EQ(record.notes.finish, "length");
  EXPECT_EQ(record.notes.tenant, "api-key-2");
  EXPECT_GT(record.notes.request, 0u);
  for (const std::string& line : {text_line(record), json_line(record)}) {
    for (const char* never : {"Once", "secret", "bob", "alice"}) EXPECT_EQ(line.find(never), std::string::npos) << line;
  }
  EXPECT_EQ(boost::json::parse(json_line(record)).at("completion_tokens").as_int64(), 6);

  EXPECT_EQ(logged.server().post("/tokenize", "{}").status, 401u);
  EXPECT_EQ(logged.of("/tokenize").status, 401u);
  EXPECT_EQ(logged.of("/tokenize").notes.tenant, "");
}

TEST(ServerLog, HasWhatIsNotHttpToo) {
  Logged logged;
  Client client(logged.server().port());
  client.send("hello\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 400u);
  const AccessRecord record = logged.of("");
  EXPECT_EQ(record.status, 400u);
  EXPECT_THAT(text_line(record), HasSubstr(" \"-\" 400 "));
}

TEST(ServerLog, ShowsThatAClientLeft) {
  Logged logged;
  {
    Client client(logged.server().port());
    client.post("/v1/completions", fmt::format("{{{}, \"stream\": true}}", testing::kLong));
    while (client.bytes().find("data: ") == std::string::npos) ASSERT_TRUE(client.receive());
  }
  const AccessRecord record = logged.of("/v1/completions");
  EXPECT_TRUE(record.left);
  EXPECT_EQ(record.status, 200u);
  EXPECT_EQ(record.notes.finish, "cancelled");
  EXPECT_GT(record.notes.completion_tokens, 0u);
  EXPECT_LT(record.notes.completion_tokens, 1900u);
  EXPECT_THAT(text_line(record), HasSubstr("client left"));
}

TEST(ServerLog, LinesStayLinesWhateverAClientSends) {
  AccessRecord record{.client = "127.0.0.1:1",
                      .method = "GET",
                      .path = "/a\"\n\r\x1b[31m\xff" + std::string(100'000, 'x'),
                      .status = 404};
  for (const std::string& line : {text_line(record), json_line(record)}) {
    EXPECT_LT(line.size(), 4096u);
    for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << line;
  }
  EXPECT_TRUE(boost::json::parse(json_line(record)).is_object());
  record = {.time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'700'000'000'042)),
            .client = "unix",
            .method = "GET",
            .path = "/health",
            .bytes = 12,
            .seconds = 0.25,
            .left = true};
  EXPECT_EQ(text_line(record), R"(2023-11-14T22:13:20.042Z unix "GET /health" - 12 bytes 0.250 s client left)");
}

}  // namespace
}  // namespace quire::server

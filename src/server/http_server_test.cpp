#include "quire/server/http_server.h"

#include <atomic>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using testing::Client;
using testing::eventually;
using testing::Reply;

// A server whose handler echoes the request. /later answers after a while, /never does not answer.
class Http : public ::testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    options.port = 0;
    if (options.allowed_hosts.empty()) options.allowed_hosts = {"*"};
    auto http = HttpServer::listen(
        options, [this](HttpRequest request, std::shared_ptr<Responder> reply) { handle(request, std::move(reply)); });
    ASSERT_TRUE(http.has_value()) << http.error().message;
    http_ = std::move(*http);
    port_ = http_->port();
    thread_ = std::thread([this] { http_->run(); });
  }
  void TearDown() override {
    if (!http_) return;
    http_->finish(100ms);
    thread_.join();
    // Handlers that never answer still own their exchanges.
    kept_.clear();
    http_.reset();
  }

  void handle(const HttpRequest& request, std::shared_ptr<Responder> reply) {
    ++handled_;
    if (request.path == "/later") {
      http_->after(50ms, [reply] { reply->send({.body = "later"}); });
    } else if (request.path == "/never") {
      reply->on_gone = [this] { ++gone_; };
      kept_.push_back(std::move(reply));
    } else if (request.path == "/forgotten") {
      reply.reset();
    } else if (request.path == "/stream") {
      reply->begin({.content_type = "text/plain"});
      reply->write("one ");
      http_->after(20ms, [reply] {
        reply->write("two");
        reply->end();
      });
    } else if (request.path == "/much") {
      reply->on_gone = [this] { ++gone_; };
      reply->begin({.content_type = "text/plain"});
      reply->write(std::string(32 << 20, 'x'));
      kept_.push_back(std::move(reply));
    } else {
      reply->send({.body = request.method + " " + request.path + " " + request.body});
    }
  }
  HttpCounts counts() {
    std::promise<HttpCounts> promise;
    http_->post([&] { promise.set_value(http_->counts()); });
    return promise.get_future().get();
  }

  std::unique_ptr<HttpServer> http_;
  std::uint16_t port_ = 0;
  std::thread thread_;
  std::vector<std::shared_ptr<Responder>> kept_;
  std::atomic<int> handled_ = 0, gone_ = 0;
};

TEST_F(Http, AnswersRequestAfterRequestOnOneConnection) {
  start();
  Client client(port_);
  for (int i = 0; i < 3; ++i) {
    client.post("/echo", "body");
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 200u);
    EXPECT_EQ(reply.body, "POST /echo body");
    EXPECT_EQ(reply.header("connection"), "keep-alive");
  }
  EXPECT_EQ(counts().accepted, 1u);
}

TEST_F(Http, AnswersPipelinedRequestsInTheirOrder) {
  start();
  Client client(port_);
  std::string all;
  for (const char* path : {"/later", "/a", "/stream", "/b", "/later", "/c"}) {
    all += fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", path);
  }
  client.send(all);
  for (const char* body : {"later", "GET /a ", "one two", "GET /b ", "later", "GET /c "}) {
    EXPECT_EQ(client.read_reply().body, body);
  }
}

TEST_F(Http, ReadsRequestsThatComeByteByByte) {
  start();
  Client client(port_);
  for (const char c : std::string("POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")) {
    client.send(std::string(1, c));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(client.read_reply().body, "POST /slow abc");
}

TEST_F(Http, ClosesWhereTheClientAsksForItAndWhereItsVersionDoes) {
  start();
  {
    Client client(port_);
    client.get("/x", "Connection: close\r\n");
    EXPECT_EQ(client.read_reply().header("connection"), "close");
    EXPECT_TRUE(client.ends());
  }
  {
    Client client(port_);
    client.send("GET /stream HTTP/1.0\r\n\r\n");
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.body, "one two");
    EXPECT_EQ(reply.header("transfer-encoding"), "");
    EXPECT_TRUE(client.ends());
  }
  Client client(port_);
  client.send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client.read_reply().header("connection"), "keep-alive");
  client.send("GET /y HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.read_reply().body, "GET /y ");
}

// The Node.js 18 of Debian 12 keeps a listener on idle sockets. Because of it, node-fetch 2 believes that a stream was
// cut short.
TEST_F(Http, ClosesTheConnectionAfterAStreamForNodeFetch2) {
  start();
  for (const char* agent : {"OpenAI/JS 4.104.0", "AzureOpenAI/JS 4.20.1", "langchainjs-openai/1.0.0 (OpenAI/JS 4.7.0)",
                            "node-fetch/1.0 (+https://github.com/bitinn/node-fetch)"}) {
    Client client(port_);
    const std::string named = fmt::format("User-Agent: {}\r\n", agent);
    client.get("/x", named);
    EXPECT_EQ(client.read_reply().header("connection"), "keep-alive") << agent;
    client.get("/stream", named);
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.header("connection"), "close") << agent;
    EXPECT_EQ(reply.header("transfer-encoding"), "chunked") << "a stream that is cut short must be seen to be";
    EXPECT_EQ(reply.body, "one two");
    EXPECT_TRUE(client.ends()) << agent;
  }
  for (const char* agent :
       {"OpenAI/JS 6.30.1", "OpenAI/JS 40.0.0", "OpenAI/Python 4.0.0", "node-fetch", "curl/7.88.1"}) {
    Client client(port_);
    for (int i = 0; i < 2; ++i) {
      client.get("/stream", fmt::format("User-Agent: {}\r\n", agent));
      const Reply reply = client.read_reply();
      EXPECT_EQ(reply.header("connection"), "keep-alive") << agent;
      EXPECT_EQ(reply.body, "one two");
    }
  }
}

TEST_F(Http, LeavesTheBodyOutOfAnswersToHead) {
  start();
  Client client(port_);
  client.send("HEAD /x HTTP/1.1\r\nHost: x\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_reply(false).header("content-length"), "7");
  EXPECT_EQ(client.read_reply(false).status, 200u);
  client.get("/y");
  EXPECT_EQ(client.read_reply().body, "GET /y ");
}

TEST_F(Http, SaysContinueToClientsThatAskBeforeSendingABody) {
  start();
  Client client(port_);
  client.send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 100u);
  client.send("ab");
  EXPECT_EQ(client.read_reply().body, "POST /x ab");
}

TEST_F(Http, TakesBodiesInChunks) {
  start();
  Client client(port_);
  client.send("POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_reply().body, "POST /x abcde");
}

TEST_F(Http, RefusesMalformedRequestsWithOneLineThatSaysWhy) {
  start();
  const struct {
    std::string bytes;
    unsigned status;
  } cases[] = {
      {"hello\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},                        // no host
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},  // two
      {"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 5\r\n\r\n", 417},
      {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), 400},  // TLS
  };
  for (const auto& [bytes, status] : cases) {
    Client client(port_);
    client.send(bytes);
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, status) << bytes;
    EXPECT_FALSE(reply.error_message().empty());
    EXPECT_EQ(reply.header("connection"), "close");
    EXPECT_TRUE(client.ends());
  }
  EXPECT_EQ(handled_, 0);
}

TEST_F(Http, RefusesHeadersAndBodiesThatAreTooLarge) {
  start({.max_header = 2048, .max_body = 4096});
  {
    Client client(port_);
    client.send("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(10'000, 'a'));
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 431u);
    EXPECT_EQ(reply.error_message(), "the request's header has more than 2048 bytes");
  }
  {
    // The client has sent its whole body before the answer comes, and can still read the answer.
    Client client(port_);
    client.post("/", std::string(1 << 20, 'a'));
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 413u);
    EXPECT_EQ(reply.error_message(), "the request's body has more than 4096 bytes");
  }
  Client client(port_);
  client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 5; ++i) client.send("400\r\n" + std::string(0x400, 'a') + "\r\n");
  EXPECT_EQ(client.read_reply().status, 413u);
  EXPECT_EQ(handled_, 0);
}

TEST_F(Http, GivesUpOnHeadersAndBodiesThatDoNotCome) {
  start({.header_timeout = 200ms, .body_timeout = 300ms});
  Client header(port_), body(port_);
  header.send("GET / HT");
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\nab");
  // Sending a few bytes does not extend the timeout: here they come until the answer does.
  EXPECT_TRUE(eventually([&] {
    for (Client* const client : {&header, &body}) {
      if (!client->bytes().empty()) continue;
      client->send("T");
      client->receive(5ms);
    }
    return !header.bytes().empty() && !body.bytes().empty();
  }));
  EXPECT_EQ(header.read_reply().error_message(), "the request's header did not come within 0.2 seconds");
  const Reply reply = body.read_reply();
  EXPECT_EQ(reply.status, 408u);
  EXPECT_EQ(reply.error_message(), "the request's body did not come within 0.3 seconds");
  EXPECT_EQ(counts().timed_out, 2u);
}

TEST_F(Http, ClosesConnectionsThatWaitTooLongForTheirNextRequest) {
  start({.idle_timeout = 200ms});
  Client silent(port_), done(port_);
  done.get("/x");
  EXPECT_EQ(done.read_reply().status, 200u);
  EXPECT_TRUE(silent.ends());
  EXPECT_TRUE(done.ends());
  silent.close();
  done.close();
  EXPECT_TRUE(eventually([&] { return counts().connections == 0; }));
}

TEST_F(Http, HalfARequestLeavesNothingBehind) {
  start();
  for (const char* half :
       {"", "G", "GET / HTTP/1.1\r\nHo", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"}) {
    Client client(port_);
    client.send(half);
    client.finish_sending();
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, *half == '\0' ? 0u : 400u) << half;
  }
  EXPECT_TRUE(eventually([&] { return counts().connections == 0; }));
  EXPECT_EQ(handled_, 0);
}

TEST_F(Http, AThousandSilentConnectionsDelayNobody) {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 2200) GTEST_SKIP() << "only " << limit.rlim_cur << " descriptors";
  start();
  std::vector<Client> silent;
  for (int i = 0; i < 1000; ++i) {
    silent.emplace_back(port_);
    ASSERT_TRUE(silent.back().connected());
  }
  EXPECT_TRUE(eventually([&] { return counts().connections == 1000; }));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(testing::get(port_, "/x").status, 200u);
  // No answer waited until one of them had been given up.
  EXPECT_EQ(counts().timed_out, 0u);
  // They can still send a request.
  silent[500].get("/y");
  EXPECT_EQ(silent[500].read_reply().body, "GET /y ");
  silent.clear();
  EXPECT_TRUE(eventually([&] { return counts().connections == 0; }));
}

TEST_F(Http, TurnsConnectionsAwayThatAreTooMany) {
  start({.max_connections = 2});
  Client first(port_), second(port_);
  EXPECT_TRUE(eventually([&] { return counts().connections == 2; }));
  Client third(port_);
  third.get("/x");
  const Reply reply = third.read_reply();
  EXPECT_EQ(reply.status, 503u);
  EXPECT_EQ(reply.error_message(), "too many connections; try again later");
  EXPECT_EQ(reply.header("retry-after"), "1");
  third.close();
  first.close();
  EXPECT_TRUE(eventually([&] { return counts().connections == 1; }));
  EXPECT_EQ(testing::get(port_, "/x").status, 200u);
}

TEST_F(Http, TellsTheHandlerAtOnceThatItsClientIsGone) {
  start();
  {
    Client client(port_);
    client.get("/never");
    EXPECT_TRUE(eventually([&] { return handled_ == 1; }));
    EXPECT_EQ(gone_, 0);
  }
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
  {
    // Also if the next request has already arrived.
    Client client(port_);
    client.send("GET /never HTTP/1.1\r\nHost: x\r\n\r\nGET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(eventually([&] { return handled_ == 2; }));
  }
  EXPECT_TRUE(eventually([&] { return gone_ == 2; }));
  EXPECT_TRUE(eventually([&] { return counts().connections == 0; }));
}

TEST_F(Http, GivesUpOnClientsThatDoNotRead) {
  start({.write_timeout = 300ms});
  Client client(port_, 4096);
  client.get("/much");
  EXPECT_TRUE(eventually([&] { return gone_ == 1; }));
  EXPECT_EQ(counts().timed_out, 1u);
  EXPECT_EQ(testing::get(port_, "/x").status, 200u);
}

TEST_F(Http, EndsTheConnectionWhereAHandlerForgetsToAnswer) {
  start();
  Client client(port_);
  client.get("/forgotten");
  EXPECT_TRUE(client.ends());
}

TEST_F(Http, DrainsByClosingIdleConnectionsAndFinishingAnswers) {
  start();
  Client idle(port_), busy(port_);
  EXPECT_TRUE(eventually([&] { return counts().connections == 2; }));
  busy.get("/later");
  EXPECT_TRUE(eventually([&] { return handled_ == 1; }));
  http_->drain();
  EXPECT_TRUE(idle.ends());
  const Reply reply = busy.read_reply();
  EXPECT_EQ(reply.body, "later");
  EXPECT_EQ(reply.header("connection"), "close");
  EXPECT_TRUE(busy.ends());
  EXPECT_FALSE(Client(port_).connected());
}

TEST(HttpListen, NamesTheAddressThatIsNotAvailable) {
  const auto nothing = [](HttpRequest, std::shared_ptr<Responder>) {};
  auto first = HttpServer::listen({.port = 0}, nothing);
  ASSERT_TRUE(first.has_value());
  const auto second = HttpServer::listen({.port = (*first)->port()}, nothing);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().message,
            fmt::format("cannot listen on 127.0.0.1:{}: Address already in use", (*first)->port()));
  EXPECT_FALSE(HttpServer::listen({.host = "no.such.host.invalid"}, nothing).has_value());
}

}  // namespace
}  // namespace quire::server

// Where the server listens: several addresses, Unix sockets, TLS.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "quire/server/http_server.h"
#include "quire/server/server_testing.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using testing::Client;
using ::testing::HasSubstr;
using testing::Reply;

class Listening : public ::testing::Test {
 protected:
  Listening() : folder_(std::filesystem::temp_directory_path() / fmt::format("quire-listening-{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~Listening() override {
    stop();
    std::filesystem::remove_all(folder_);
  }

  Result<void> start(HttpOptions options) {
    options.port = 0;
    options.on_note = [this](const std::string& line) { notes_.push_back(line); };
    options.on_request = [this](const AccessRecord& record) { client_ = record.client; };
    auto http =
        HttpServer::listen(std::move(options), [](const HttpRequest& request, std::shared_ptr<Responder> reply) {
          if (request.path != "/stream") return reply->send({.body = request.path + " " + request.body});
          reply->begin({.content_type = "text/plain"});
          for (int i = 0; i < 100; ++i) reply->write(std::string(10'000, 'x'));
          reply->end();
        });
    if (!http) return std::unexpected(http.error());
    http_ = std::move(*http);
    thread_ = std::thread([this] { http_->run(); });
    return {};
  }
  void stop() {
    if (!thread_.joinable()) return;
    http_->finish(2000ms);
    thread_.join();
    http_.reset();
  }
  std::string path(const char* name) const { return folder_ / name; }
  std::string read(const std::string& file) const {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // What the openssl command says to this input on a connection to the server.
  std::string openssl(const std::string& options, const std::string& input) const {
    std::ofstream(path("input")) << input;
    const std::string command = fmt::format("timeout 20 openssl s_client -quiet -connect 127.0.0.1:{} {} <{} >{} 2>&1",
                                            http_->port(), options, path("input"), path("output"));
    (void)!std::system(command.c_str());
    return read(path("output"));
  }
  // Makes a key and a certificate for it. False: there is no openssl command.
  bool make_certificate(const char* name, const char* subject) const {
    const std::string command = fmt::format(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={} "
        "-addext subjectAltName=DNS:localhost -keyout {}.key -out {}.pem >/dev/null 2>&1",
        subject, path(name), path(name));
    return std::system(command.c_str()) == 0;
  }

  std::filesystem::path folder_;
  std::vector<std::string> notes_;
  std::string client_;
  std::unique_ptr<HttpServer> http_;
  std::thread thread_;
};

constexpr const char* kGet = "GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

Client client_of_v6(std::uint16_t port) {
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = in6addr_loopback;
  return Client(Client::Adopted{fd, ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0});
}

Client client_of_unix(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return Client(Client::Adopted{fd, ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0});
}

// --- addresses

TEST_F(Listening, ListensOnEveryAddressOfAName) {
  ASSERT_TRUE(start({.host = "localhost"}).has_value());
  const auto& addresses = http_->addresses();
  ASSERT_FALSE(addresses.empty());
  EXPECT_EQ(addresses.size() + notes_.size(), 2u)
      << "an address that this machine does not have is skipped, with a note";
  for (const ListenAddress& at : addresses) {
    EXPECT_TRUE(at.loopback);
    EXPECT_THAT(at.url, HasSubstr(fmt::format(":{}/", http_->port())));
    Client client = at.address == "::1" ? client_of_v6(http_->port()) : Client(http_->port());
    ASSERT_TRUE(client.connected()) << at.url;
    client.send(fmt::format("GET /x HTTP/1.1\r\nHost: {}\r\n\r\n", at.url.substr(7, at.url.size() - 8)));
    EXPECT_EQ(client.read_reply().status, 200u) << at.url;
  }
}

TEST_F(Listening, FailsWhereOneOfTheAddressesIsTaken) {
  ASSERT_TRUE(start({.host = "127.0.0.1"}).has_value());
  const auto second = HttpServer::listen({.host = "localhost", .port = http_->port()},
                                         [](const HttpRequest&, const std::shared_ptr<Responder>&) {});
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().message,
            fmt::format("cannot listen on 127.0.0.1:{}: Address already in use", http_->port()));
}

// --- Unix sockets

TEST_F(Listening, AUnixSocketIsPrivateAndRemovedAtTheEnd) {
  const std::string socket = path("quire.sock");
  ASSERT_TRUE(start({.tcp = false, .unix_path = socket}).has_value());
  EXPECT_EQ(http_->addresses().at(0).url, "unix:" + socket);
  EXPECT_EQ(http_->port(), 0);
  struct stat file = {};
  ASSERT_EQ(::stat(socket.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  Client client = client_of_unix(socket);
  ASSERT_TRUE(client.connected());
  // Web pages cannot reach it, so any host will do.
  for (int i = 0; i < 2; ++i) {
    client.send("GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    EXPECT_EQ(client.read_reply().body, "/x ");
  }
  client.close();
  stop();
  EXPECT_EQ(client_, "unix");
  EXPECT_FALSE(std::filesystem::exists(socket));
}

TEST_F(Listening, AUnixSocketBesideTcpHasItsMode) {
  const std::string socket = path("quire.sock");
  ASSERT_TRUE(start({.unix_path = socket, .unix_mode = 0660}).has_value());
  struct stat file = {};
  ASSERT_EQ(::stat(socket.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0660u);
  EXPECT_EQ(http_->addresses().size(), 2u);
  EXPECT_EQ(testing::get(http_->port(), "/x").status, 200u);
  Client client = client_of_unix(socket);
  client.send(kGet);
  EXPECT_EQ(client.read_reply().status, 200u);
}

TEST_F(Listening, AStaleUnixSocketIsReplacedAndNothingElse) {
  const std::string socket = path("quire.sock");
  const auto nothing = [](const HttpRequest&, const std::shared_ptr<Responder>&) {};
  {
    // A server that was killed leaves its socket behind.
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket.data(), socket.size());
    ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ::close(fd);
  }
  ASSERT_TRUE(start({.tcp = false, .unix_path = socket}).has_value());
  const auto second = HttpServer::listen({.tcp = false, .unix_path = socket}, nothing);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().message, fmt::format("cannot listen on {}: another server listens on it", socket));
  EXPECT_TRUE(client_of_unix(socket).connected()) << "the first one still does";

  std::ofstream(path("file")) << "precious";
  const auto third = HttpServer::listen({.tcp = false, .unix_path = path("file")}, nothing);
  ASSERT_FALSE(third.has_value());
  EXPECT_THAT(third.error().message, HasSubstr("it exists and is not a socket"));
  EXPECT_EQ(read(path("file")), "precious");
  EXPECT_FALSE(HttpServer::listen({.tcp = false, .unix_path = std::string(200, 'x')}, nothing).has_value());
}

// --- TLS

TEST_F(Listening, NamesTheTlsFileThatIsWrong) {
  if (!make_certificate("a", "a") || !make_certificate("b", "b")) GTEST_SKIP() << "there is no openssl command";
  const auto error = [&](const char* certificate, const char* key) {
    const auto started = start({.tls_certificate = path(certificate), .tls_key = path(key)});
    return started ? std::string() : started.error().message;
  };
  if (error("a.pem", "a.key").find("has no TLS") != std::string::npos) GTEST_SKIP() << "this build has no TLS";
  stop();
  EXPECT_EQ(error("none.pem", "a.key"), path("none.pem") + ": No such file or directory");
  EXPECT_EQ(error("a.pem", "none.key"), path("none.key") + ": No such file or directory");
  EXPECT_THAT(error("a.key", "a.key"), HasSubstr("a.key: this is not a certificate in PEM format"));
  EXPECT_THAT(error("a.pem", "a.pem"), HasSubstr("a.pem: this is not an unencrypted private key in PEM format"));
  EXPECT_EQ(error("a.pem", "b.key"),
            fmt::format("{}: this key does not belong to the certificate {}", path("b.key"), path("a.pem")));
}

TEST_F(Listening, AnswersOverTls) {
  if (!make_certificate("a", "a")) GTEST_SKIP() << "there is no openssl command";
  const auto started = start({.tls_certificate = path("a.pem"), .tls_key = path("a.key"), .header_timeout = 400ms});
  if (!started) GTEST_SKIP() << started.error().message;
  EXPECT_THAT(http_->addresses().at(0).url, ::testing::StartsWith("https://127.0.0.1:"));
  const std::string trust = fmt::format("-CAfile {} -verify_return_error -servername localhost ", path("a.pem"));
  EXPECT_THAT(openssl(trust, kGet), HasSubstr("HTTP/1.1 200 OK"));
  EXPECT_THAT(openssl(trust + "-tls1_2", kGet), HasSubstr("/x "));
  EXPECT_THAT(openssl(trust + "-alpn http/1.1", kGet), HasSubstr("/x "));
  for (const char* refused : {"-tls1_1 -cipher DEFAULT@SECLEVEL=0", "-alpn h2", "-tls1_2 -cipher AES128-SHA"}) {
    EXPECT_EQ(openssl(trust + refused, kGet).find("HTTP/1.1"), std::string::npos) << refused;
  }
  // Requests one after the other, with a body and with a large answer.
  const std::string several = openssl(trust,
                                      "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi"
                                      "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n" +
                                          std::string(kGet));
  EXPECT_THAT(several, HasSubstr("/a hi"));
  EXPECT_THAT(several, HasSubstr("0\r\n\r\nHTTP/1.1 200 OK"));
  EXPECT_GT(several.size(), 1'000'000u);
}

TEST_F(Listening, AClientThatDoesNotFinishTheHandshakeIsDropped) {
  if (!make_certificate("a", "a")) GTEST_SKIP() << "there is no openssl command";
  const auto started = start({.tls_certificate = path("a.pem"), .tls_key = path("a.key"), .header_timeout = 200ms});
  if (!started) GTEST_SKIP() << started.error().message;
  Client silent(http_->port()), plain(http_->port());
  EXPECT_TRUE(silent.ends());
  plain.send(kGet);
  EXPECT_TRUE(plain.ends()) << "plain HTTP is not answered where TLS is spoken";
  EXPECT_EQ(plain.bytes().find("HTTP/1.1"), std::string::npos);
}

TEST_F(Listening, ReadsItsCertificateAgain) {
  if (!make_certificate("a", "first")) GTEST_SKIP() << "there is no openssl command";
  const auto started = start({.tls_certificate = path("a.pem"), .tls_key = path("a.key")});
  if (!started) GTEST_SKIP() << started.error().message;
  const auto reload = [&] {
    std::promise<Result<void>> promise;
    http_->post([&] { promise.set_value(http_->reload_tls()); });
    return promise.get_future().get();
  };
  const auto subject = [&] { return openssl("-showcerts -no_ign_eof", kGet); };
  EXPECT_THAT(subject(), HasSubstr("CN = first"));
  ASSERT_TRUE(make_certificate("a", "second"));
  EXPECT_THAT(subject(), HasSubstr("CN = first")) << "not before it is told to";
  EXPECT_TRUE(reload().has_value());
  EXPECT_THAT(subject(), HasSubstr("CN = second"));
  std::ofstream(path("a.pem")) << "broken";
  EXPECT_FALSE(reload().has_value());
  EXPECT_THAT(subject(), HasSubstr("CN = second")) << "the old one stays";
}

}  // namespace
}  // namespace quire::server

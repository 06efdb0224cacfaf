// For tests: a client for raw bytes, and a server with the demo model on a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "quire/engine/hosted_model.h"
#include "quire/model/model.h"
#include "quire/server/server.h"

namespace quire::server::testing {

namespace json = boost::json;
using std::chrono::milliseconds;

struct Reply {
  unsigned status = 0;                         // 0: there was no answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool complete = false;  // the body has arrived completely

  json::value parsed() const {
    json::error_code error;
    json::value value = json::parse(body, error);
    EXPECT_FALSE(error) << body;
    return value;
  }
  std::string error_message() const {
    const json::value value = parsed();
    return std::string(value.at("error").at("message").as_string());
  }
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

class Client {
 public:
  explicit Client(std::uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }
  // Takes a socket that is connected already.
  struct Adopted {
    int fd;
    bool connected;
  };
  explicit Client(Adopted socket) : fd_(socket.fd), connected_(socket.connected) {}
  ~Client() { close(); }
  Client(Client&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), in_(std::move(other.in_)) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void finish_sending() const { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Closes with a reset, as a client that is killed does when bytes are still on their way to it.
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close();
  }

  // Waits for more bytes, at most `patience`. False: the connection ended, or nothing came.
  bool receive(milliseconds patience = milliseconds(100'000)) {
    pollfd wait{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, static_cast<int>(patience.count())) <= 0) return false;
    char buffer[16384];
    const ssize_t count = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (count <= 0) {
      ended_ = true;
      return false;
    }
    in_.append(buffer, static_cast<std::size_t>(count));
    return true;
  }
  // Whether the server closes the connection by itself. An idle one it closes only after 75 seconds.
  bool ends() {
    const auto until = std::chrono::steady_clock::now() + milliseconds(30'000);
    while (!ended_) {
      const auto left = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      receive(left);
    }
    return true;
  }
  std::string& bytes() { return in_; }

  // The next answer. `has_body` is false for the answer to HEAD.
  Reply read_reply(bool has_body = true) {
    Reply reply;
    std::size_t end = 0;
    while ((end = in_.find("\r\n\r\n")) == std::string::npos) {
      if (!receive()) return reply;
    }
    std::string head = in_.substr(0, end + 2);
    in_.erase(0, end + 4);
    reply.status = static_cast<unsigned>(std::atoi(head.c_str() + 9));
    for (std::size_t line = head.find("\r\n") + 2; line < head.size();) {
      const std::size_t stop = head.find("\r\n", line);
      const std::size_t colon = head.find(": ", line);
      std::string name = head.substr(line, colon - line);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      reply.headers[name] = head.substr(colon + 2, stop - colon - 2);
      line = stop + 2;
    }
    if (!has_body || reply.status == 204 || reply.status == 304 || reply.status == 100) {
      reply.complete = true;
    } else if (reply.headers.contains("content-length")) {
      const std::size_t length = std::stoul(reply.header("content-length"));
      while (in_.size() < length && receive()) {
      }
      reply.complete = in_.size() >= length;
      reply.body = in_.substr(0, length);
      in_.erase(0, length);
    } else if (reply.header("transfer-encoding") == "chunked") {
      while (auto piece = read_chunk()) {
        if (piece->empty()) {
          reply.complete = true;
          break;
        }
        reply.body += *piece;
      }
    } else {
      while (receive()) {
      }
      reply.complete = ended_;
      reply.body = std::exchange(in_, {});
    }
    return reply;
  }
  std::optional<std::string> read_chunk() {
    std::size_t line = 0;
    while ((line = in_.find("\r\n")) == std::string::npos) {
      if (!receive()) return std::nullopt;
    }
    const std::size_t size = std::stoul(in_.substr(0, line), nullptr, 16);
    while (in_.size() < line + 2 + size + 2) {
      if (!receive()) return std::nullopt;
    }
    std::string piece = in_.substr(line + 2, size);
    in_.erase(0, line + 2 + size + 2);
    return piece;
  }

  bool get(std::string_view path, std::string_view headers = {}) const {
    return send(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, headers));
  }
  bool post(std::string_view path, std::string_view body, std::string_view headers = {}) const {
    return send(
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
                    "{}\r\n{}\r\n{}",
                    path, body.size(), headers, body));
  }

 private:
  int fd_;
  bool connected_ = false;
  bool ended_ = false;
  std::string in_;
};

inline Reply get(std::uint16_t port, std::string_view path, std::string_view headers = {}) {
  Client client(port);
  client.get(path, headers);
  return client.read_reply();
}
inline Reply post(std::uint16_t port, std::string_view path, std::string_view body, std::string_view headers = {}) {
  Client client(port);
  client.post(path, body, headers);
  return client.read_reply();
}

// The data of a stream's events, in order.
inline std::vector<std::string> events(std::string_view stream) {
  std::vector<std::string> out;
  while (!stream.empty()) {
    const std::size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << "an incomplete event: " << stream;
    if (end == std::string_view::npos) break;
    const std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    if (event.starts_with("data: ")) out.emplace_back(event.substr(6));
  }
  return out;
}

inline std::string models_dir() { return QUIRE_SOURCE_DIR "/models"; }

// Waits until the condition holds. The limit is far above what anything here takes: a test must not fail because the
// machine is busy.
template <typename Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

// A server that runs until the test ends.
class Running {
 public:
  explicit Running(ServerOptions options = {}, engine::HostOptions host = {},
                   const std::string& file = "quire-demo-llama-q8_0.gguf",
                   const std::vector<model::AdapterOptions>& adapters = {}) {
    auto model = model::Model::load(models_dir() + "/" + file);
    EXPECT_TRUE(model.has_value());
    for (const model::AdapterOptions& adapter : adapters) {
      const auto added = (*model)->add_adapter(adapter);
      EXPECT_TRUE(added.has_value()) << added.error().message;
    }
    if (host.backend.threads == 0) host.backend.threads = 1;
    auto hosted = engine::HostedModel::create(std::move(*model), host);
    EXPECT_TRUE(hosted.has_value()) << hosted.error().message;
    options.http.port = 0;
    auto server = Server::create(std::move(*hosted), std::move(options));
    EXPECT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
    port_ = server_->port();
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Running() { stop_and_wait(); }

  std::uint16_t port() const { return port_; }
  Server& server() { return *server_; }
  void stop_and_wait() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
  }

  Reply get(std::string_view path, std::string_view headers = {}) const { return testing::get(port_, path, headers); }
  Reply post(std::string_view path, std::string_view body, std::string_view headers = {}) const {
    return testing::post(port_, path, body, headers);
  }
  json::value pool() const { return get("/pool").parsed(); }
  std::int64_t stat(const char* name) const { return pool().at("stats").at(name).as_int64(); }
  // Waits until no page is held and the pool has been checked. Fails if that does not happen in time.
  ::testing::AssertionResult comes_to_rest() const {
    json::value view;
    const bool rests = eventually([&] {
      view = pool();
      std::int64_t held = 0;
      for (const auto& group : view.at("groups").as_array()) held += group.at("held").as_int64();
      if (const auto* states = view.as_object().if_contains("states")) held += states->at("held").as_int64();
      return view.at("sequences").as_array().empty() && held == 0 && view.at("stats").at("integrity") == "sound";
    });
    if (rests) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << json::serialize(view);
  }

 private:
  std::unique_ptr<Server> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

// A request with a long answer: some 1,900 tokens.
inline constexpr const char* kLong =
    R"("prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": true, "seed": 1)";

inline std::string text_of(const Reply& reply) {
  EXPECT_EQ(reply.status, 200u) << reply.body;
  if (reply.status != 200) return {};
  return std::string(reply.parsed().at("choices").at(0).at("text").as_string());
}

// The collected texts of a stream's choices. Expects the stream to be well-formed.
struct Streamed {
  std::map<std::int64_t, std::string> texts;
  std::map<std::int64_t, std::string> finishes;
  std::optional<boost::json::value> usage;
  std::string error;
  bool done = false;
};
inline Streamed streamed(std::string_view body) {
  Streamed out;
  for (const std::string& event : events(body)) {
    EXPECT_FALSE(out.done) << "an event after [DONE]";
    if (event == "[DONE]") {
      out.done = true;
      continue;
    }
    const boost::json::value value = boost::json::parse(event);
    if (const auto* error = value.as_object().if_contains("error")) {
      out.error = error->at("message").as_string();
      continue;
    }
    if (const auto* usage = value.as_object().if_contains("usage"); usage != nullptr && !usage->is_null()) {
      out.usage = *usage;
    }
    for (const boost::json::value& choice : value.at("choices").as_array()) {
      const std::int64_t index = choice.at("index").as_int64();
      if (const auto* text = choice.as_object().if_contains("text")) {
        out.texts[index] += text->as_string();
      } else if (const auto* content = choice.at("delta").as_object().if_contains("content")) {
        out.texts[index] += content->as_string();
      }
      if (!choice.at("finish_reason").is_null()) {
        EXPECT_FALSE(out.finishes.contains(index));
        out.finishes[index] = choice.at("finish_reason").as_string();
      }
    }
  }
  return out;
}

}  // namespace quire::server::testing

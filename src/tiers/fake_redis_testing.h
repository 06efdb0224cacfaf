// A server on loopback that speaks enough of the Redis protocol for the shared tier, and misbehaves on request: a hook
// sees each command first, and may answer with any bytes, be silent, or close the connection.
//
// One thread accepts, and each connection has one. The hook is called on those threads, one call at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace quire::tiers {

class FakeRedis {
 public:
  using Command = std::vector<std::string>;
  struct Answer {
    std::string bytes;
    bool close = false;   // after the bytes
    bool silent = false;  // nothing is said on this connection from now on
    std::chrono::milliseconds pause_per_byte{0};
  };
  // nullopt: as Redis would.
  using Hook = std::function<std::optional<Answer>(FakeRedis&, const Command&)>;

  explicit FakeRedis(Hook hook = {}, std::uint16_t port = 0) : hook_(std::move(hook)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    ok_ = ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && ::listen(listener_, 16) == 0;
    socklen_t length = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }

  ~FakeRedis() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      for (Client& client : clients_) ::shutdown(client.socket, SHUT_RDWR);
    }
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (Client& client : clients_) {
      client.thread.join();
      ::close(client.socket);
    }
    ::close(listener_);
  }

  bool ok() const { return ok_; }
  std::uint16_t port() const { return port_; }
  std::string url(const std::string& options = "timeout=150ms") const {
    return "redis://127.0.0.1:" + std::to_string(port_) + "?" + options;
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  void set_hook(Hook hook) {
    const std::lock_guard lock(hook_mutex_);
    hook_ = std::move(hook);
  }
  std::map<std::string, std::string> values() const {
    const std::lock_guard lock(mutex_);
    return values_;
  }
  void set(const std::string& key, std::string value) {
    const std::lock_guard lock(mutex_);
    values_[key] = std::move(value);
  }
  void erase(const std::string& key) {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }
  std::size_t count(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const Command& command : log_) count += command[0] == name ? 1 : 0;
    return count;
  }
  std::vector<Command> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  std::size_t connections() const {
    const std::lock_guard lock(mutex_);
    return clients_.size();
  }

  static std::string bulk(const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
  }

  // What Redis says. Values longer than this are in the log cut short.
  std::string usual(const Command& command) {
    const std::lock_guard lock(mutex_);
    const std::string& name = command[0];
    if (name == "PING") return "+PONG\r\n";
    if (name == "AUTH" || name == "SELECT" || name == "ASKING") return "+OK\r\n";
    if (name == "CLUSTER") return "-ERR This instance has cluster support disabled\r\n";
    if (name == "ROLE") return "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n";
    if (name == "SET") {
      values_[command.at(1)] = command.at(2);
      return "+OK\r\n";
    }
    const auto found = values_.find(command.at(1));
    if (name == "GET") return found == values_.end() ? "$-1\r\n" : bulk(found->second);
    if (name == "EXISTS" || name == "EXPIRE") return found == values_.end() ? ":0\r\n" : ":1\r\n";
    if (name == "DEL") return values_.erase(command.at(1)) > 0 ? ":1\r\n" : ":0\r\n";
    return "-ERR unknown command\r\n";
  }

 private:
  struct Client {
    int socket = -1;
    std::thread thread;
  };

  void accept_all() {
    while (true) {
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) return;
      const int on = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const std::lock_guard lock(mutex_);
      if (stopping_) {
        ::close(socket);
        return;
      }
      Client& client = clients_.emplace_back();
      client.socket = socket;
      client.thread = std::thread([this, socket] { serve(socket); });
    }
  }

  // One command: *N, then N times $LENGTH and the bytes.
  static bool read_command(int socket, std::string& input, Command& command) {
    const auto more = [&] {
      char chunk[65536];
      const ssize_t got = ::recv(socket, chunk, sizeof chunk, 0);
      if (got > 0) input.append(chunk, static_cast<std::size_t>(got));
      return got > 0;
    };
    std::size_t at = 0;
    const auto line = [&](std::string& text) {
      std::size_t end;
      while ((end = input.find("\r\n", at)) == std::string::npos) {
        if (!more()) return false;
      }
      text = input.substr(at, end - at);
      at = end + 2;
      return true;
    };
    std::string text;
    if (!line(text) || text[0] != '*') return false;
    const std::size_t words = std::stoul(text.substr(1));
    command.clear();
    for (std::size_t i = 0; i < words; ++i) {
      if (!line(text) || text[0] != '$') return false;
      const std::size_t length = std::stoul(text.substr(1));
      while (input.size() < at + length + 2) {
        if (!more()) return false;
      }
      command.push_back(input.substr(at, length));
      at += length + 2;
    }
    input.erase(0, at);
    return true;
  }

  static bool say(int socket, const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t now = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) return false;
      sent += static_cast<std::size_t>(now);
    }
    return true;
  }

  void serve(int socket) {
    std::string input;
    Command command;
    bool silent = false;
    while (read_command(socket, input, command)) {
      {
        const std::lock_guard lock(mutex_);
        log_.push_back(command);
        for (std::string& word : log_.back()) word.resize(std::min<std::size_t>(word.size(), 200));
      }
      if (silent) continue;
      std::optional<Answer> answer;
      {
        const std::lock_guard lock(hook_mutex_);
        if (hook_) answer = hook_(*this, command);
      }
      if (!answer) answer = Answer{usual(command)};
      silent = answer->silent;
      if (answer->pause_per_byte.count() > 0) {
        for (const char c : answer->bytes) {
          std::this_thread::sleep_for(answer->pause_per_byte);
          if (!say(socket, std::string(1, c))) return;
        }
      } else if (!say(socket, answer->bytes)) {
        return;
      }
      if (answer->close) break;
    }
    ::shutdown(socket, SHUT_RDWR);
  }

  std::mutex hook_mutex_;
  Hook hook_;
  bool ok_ = false;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;
  bool stopping_ = false;
  std::list<Client> clients_;
  std::vector<Command> log_;
  std::map<std::string, std::string> values_;
  std::thread accepting_;
};

}  // namespace quire::tiers

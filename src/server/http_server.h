// The HTTP server: accepts connections, reads requests within limits, writes answers, and drops slow clients.
//
//   auto http = HttpServer::listen({.port = 0}, handler);
//   (*http)->run();          // on this thread, until drain() and finish()
//
// Who may call: post(), drain() and finish() from any thread, the rest from the thread that calls run().
// What holds: the requests of a connection are answered one after the other, in their order. An idle connection takes a
//   socket and some hundred bytes. While an answer is computed, the connection reads only a little ahead, to notice
//   when the client goes away. Then the handler is told at once.
//   A request is refused by its header (401, 403, 404) before its body is read.
// How it fails: listen() returns one line that names the address or the file. Mistakes of clients are answered (400,
//   408, 413, 431, 503) as long as the client is there. Nothing is thrown.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/server/access_log.h"
#include "quire/server/http.h"

namespace quire::server {

struct HttpOptions {
  bool tcp = true;
  std::string host = "127.0.0.1";  // the server listens on every address of this name
  std::uint16_t port = 8080;       // 0: a free one
  std::string unix_path;           // a Unix socket; empty: none
  unsigned unix_mode = 0600;
  std::string tls_certificate, tls_key;    // files; empty: no TLS. Unix sockets never have it
  std::vector<std::string> allowed_hosts;  // see HostCheck
  std::size_t max_header = 16 << 10;
  std::size_t max_body = 8 << 20;
  std::size_t max_connections = 4096;
  std::chrono::milliseconds header_timeout{10'000};  // from its first byte to its last byte
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds idle_timeout{75'000};   // between requests, and before the first
  std::chrono::milliseconds write_timeout{30'000};  // without the client receiving a single byte
  std::uint32_t workers = 2;                        // threads for Loop::work
  bool signals = false;  // SIGINT and SIGTERM call `on_signal`; with TLS or `on_reload`, SIGHUP reads files again
  std::function<void()> on_signal;
  std::function<void()> on_reload;  // SIGHUP calls it
  HeadCheck check_head;
  // Both are called on the loop's thread; on_note by listen() too.
  std::function<void(const AccessRecord&)> on_request;   // a request has ended
  std::function<void(const std::string& line)> on_note;  // something that the operator should know
};

struct ListenAddress {
  std::string url;      // http://127.0.0.1:8080/, https://..., or unix:/run/quire.sock
  std::string address;  // 127.0.0.1; empty for a Unix socket
  bool loopback = false;
  bool is_unix = false;
};

struct HttpCounts {
  std::size_t connections = 0;    // now
  std::uint64_t accepted = 0;     // in total
  std::uint64_t turned_away = 0;  // refused because there were too many
  std::uint64_t requests = 0;     // read completely
  std::uint64_t malformed = 0;    // refused before they reached the handler
  std::uint64_t timed_out = 0;    // clients too slow to send, or to receive their answer
};

class HttpServer : public Loop {
 public:
  static Result<std::unique_ptr<HttpServer>> listen(HttpOptions options, Handler handler);
  ~HttpServer() override;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;  // of all TCP addresses
  const std::vector<ListenAddress>& addresses() const;
  void run();

  void post(std::function<void()> task) override;
  void after(std::chrono::milliseconds delay, std::function<void()> task) override;
  void work(std::function<void()> task) override;

  // Reads certificate and key again, for connections from now on. If that fails, the old ones stay.
  Result<void> reload_tls();

  // Accepts no more connections. Closes idle ones at once, and the others after their current answer.
  void drain();
  // Makes run() return when no connection is left, at the latest after `patience`.
  void finish(std::chrono::milliseconds patience);

  HttpCounts counts() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server

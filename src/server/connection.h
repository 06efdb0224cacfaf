// One connection of an HttpServer. It reads requests and writes answers, one after the other. Only http_server.cpp and
// connection.cpp include this header, because it pulls in Asio and Beast.
//
// Who may call: the loop's thread.
// What holds: run() ends when the connection does, after close() at the latest. If a handler has not answered by then,
//   it is told that its client is gone.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "quire/server/access_log.h"
#include "quire/server/api_error.h"
#include "quire/server/host_check.h"
#include "quire/server/http_head.h"
#include "quire/server/http_server.h"
#include "quire/server/stream.h"

namespace quire::server {

using Clock = std::chrono::steady_clock;

// What all connections share. Outlives them.
struct ConnectionContext {
  HttpOptions options;
  Handler handler;
  HostCheck hosts;
  asio::io_context io{1};
  HttpCounts counts;
};

class Exchange;
struct RequestParser;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Start {
    std::shared_ptr<TlsContext> tls;  // null: plain
    std::string client;               // for the access log
    std::string local;                // the address that the client connected to; empty: a Unix socket
    bool turned_away = false;         // there are too many: only say so
  };
  Connection(ConnectionContext& server, Socket socket, Start start)
      : server_(server),
        stream_(std::move(socket), std::move(start.tls)),
        client_(std::move(start.client)),
        local_(std::move(start.local)),
        wake_(server.io),
        turned_away_(start.turned_away) {}

  asio::awaitable<void> run();

  void expire(Clock::time_point now) {
    if (now < deadline_) return;
    deadline_ = Clock::time_point::max();
    expired_ = true;
    cancel();
  }
  // Accept no more requests on this connection.
  void drain() {
    closing_ = true;
    if (phase_ == Phase::Waiting) return cancel();
    if (phase_ == Phase::Reading) deadline_ = std::min(deadline_, Clock::now() + std::chrono::seconds(1));
  }
  void close() {
    closing_ = true;
    error_code ignored;
    stream_.socket().close(ignored);
    leave();
    wake_.cancel();
  }

  // --- called by the exchange
  void answer(const HttpResponse& response) {
    record_.status = response.status;
    framing_ = Framing::Length;
    out_ += make_head(response, {.framing = framing_, .keep_alive = stays()});
    if (!head_only_) out_ += response.body;
    finish();
  }
  void begin(const HttpResponse& head) {
    record_.status = head.status;
    framing_ = version_ >= 11 ? Framing::Chunked : Framing::Close;
    if (framing_ == Framing::Close || last_stream_) keep_alive_ = false;
    out_ += make_head(head, {.framing = framing_, .keep_alive = stays()});
    write(head.body);
  }
  void write(std::string_view piece) {
    if (head_only_) return;
    append_piece(out_, piece, framing_);
    wake_.cancel();
  }
  void end() {
    if (!head_only_) append_end(out_, framing_);
    finish();
  }
  // The handler was destroyed without answering.
  void abandoned() {
    keep_alive_ = false;
    finish();
  }
  std::size_t pending() const { return out_.size() + writing_.size() - written_; }

 private:
  enum class Phase { Waiting, Reading, Answering, Leaving };

  asio::awaitable<bool> shake_hands();
  asio::awaitable<bool> wait_for_request();
  asio::awaitable<void> serve_request();
  asio::awaitable<bool> read_request(RequestParser& parser, HttpRequest& request);
  asio::awaitable<bool> respond(HttpRequest request);
  asio::awaitable<bool> write_out();
  asio::awaitable<void> linger();
  void refuse(error_code why, bool in_body);
  void refuse(unsigned status, std::string message);
  void refuse(const ApiError& error);
  bool take_head(RequestParser& parser, HttpRequest& request);
  bool may_send_body(RequestParser& parser, const HttpRequest& request);
  void log(bool complete);
  void watch();
  void leave();

  bool stays() {
    keep_alive_ = keep_alive_ && !closing_;
    return keep_alive_;
  }
  void finish();
  void cancel() {
    error_code ignored;
    stream_.socket().cancel(ignored);
    wake_.cancel();
  }
  void limit(Phase phase, std::chrono::milliseconds time) {
    phase_ = phase;
    deadline_ = Clock::now() + time;
  }
  void no_limit() { deadline_ = Clock::time_point::max(); }

  ConnectionContext& server_;
  Stream stream_;
  std::string client_, local_;
  asio::steady_timer wake_;  // never expires; cancel() wakes the coroutine that waits on it
  boost::beast::flat_buffer in_;
  std::string out_;      // bytes that wait to be written
  std::string writing_;  // bytes that are being written; the first `written_` of them are done
  std::size_t written_ = 0;
  std::weak_ptr<Exchange> exchange_;  // owned by the handler
  asio::cancellation_signal stop_watching_;
  AccessRecord record_;  // of the current request
  Clock::time_point began_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Phase phase_ = Phase::Waiting;
  Framing framing_ = Framing::Length;
  unsigned version_ = 11;
  bool turned_away_ = false;
  bool keep_alive_ = true;
  bool head_only_ = false;
  bool last_stream_ = false;  // close the connection after a stream: see mistakes_kept_connections()
  bool answered_ = false;     // the whole answer is in `out_`
  bool watching_ = false;
  bool gone_ = false;  // the client has gone away
  bool expired_ = false;
  bool closing_ = false;
};

}  // namespace quire::server

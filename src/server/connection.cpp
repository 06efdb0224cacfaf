#include "quire/server/connection.h"

#include <limits>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/format.h>

#include "quire/server/api_error.h"

namespace quire::server {
namespace {

namespace http = boost::beast::http;

// Before the server closes a connection, the client may still send. It has this long between two pieces, because it may
// read the answer only after it has sent everything.
constexpr std::chrono::milliseconds kLinger{2000};
constexpr std::size_t kLingerBytes = 64 << 20;      // that it may send meanwhile
constexpr std::chrono::milliseconds kGoodbye{250};  // for the client to end TLS
constexpr std::size_t kReadAhead = 64 << 10;        // bytes of later requests that are read during an answer
constexpr std::size_t kPiece = 4 << 10;             // bytes of one such read

// Whether the client uses node-fetch 2, as version 4 of OpenAI's JavaScript client does. When a chunked body has ended,
// node-fetch 2 looks for listeners on the socket. If there is one, it believes that the body was cut short. The Node.js
// 18 of Debian 12 (and others of June 2026; nodejs/node#63989) puts a listener on every socket that it keeps for the
// next request, so each stream would end in "Premature close". Closing the connection after a stream avoids this.
bool mistakes_kept_connections(std::string_view user_agent) {
  for (const std::string_view name : {"OpenAI/JS 4.", "node-fetch/1."}) {
    if (user_agent.find(name) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

struct RequestParser : http::request_parser<http::string_body> {};

// The Responder of one request. The handler owns it, so it may outlive the connection.
class Exchange final : public Responder {
 public:
  explicit Exchange(Connection& connection) : connection_(&connection) {}
  ~Exchange() override;
  void send(HttpResponse response) override;
  void begin(HttpResponse head) override;
  void write(std::string_view piece) override;
  void end() override;
  std::size_t pending() const override;

  void detach() { connection_ = nullptr; }
  void gone() {
    connection_ = nullptr;
    if (const auto tell = std::exchange(on_gone, nullptr)) tell();
  }

 private:
  Connection* connection_;
};

Exchange::~Exchange() {
  if (connection_ != nullptr) connection_->abandoned();
}
void Exchange::send(HttpResponse response) {
  if (connection_ == nullptr) return;
  response.headers.insert(response.headers.end(), headers.begin(), headers.end());
  connection_->answer(response);
}
void Exchange::begin(HttpResponse head) {
  if (connection_ == nullptr) return;
  head.headers.insert(head.headers.end(), headers.begin(), headers.end());
  connection_->begin(head);
}
void Exchange::write(std::string_view piece) {
  if (connection_ != nullptr) connection_->write(piece);
}
void Exchange::end() {
  if (connection_ != nullptr) connection_->end();
}
std::size_t Exchange::pending() const { return connection_ == nullptr ? 0 : connection_->pending(); }

asio::awaitable<void> Connection::run() {
  if (stream_.encrypted()) {
    const bool secure = co_await shake_hands();
    if (!secure) co_return;
  }
  if (turned_away_) {
    refuse(503, "too many connections; try again later");
    co_await write_out();
  }
  while (keep_alive_ && !closing_ && !gone_) {
    if (in_.size() == 0) {
      in_.shrink_to_fit();
      const bool came = co_await wait_for_request();
      if (!came) break;
    }
    co_await serve_request();
  }
  co_await linger();
}

asio::awaitable<bool> Connection::shake_hands() {
  limit(Phase::Reading, server_.options.header_timeout);
  error_code error;
  co_await stream_.async_handshake(asio::redirect_error(asio::use_awaitable, error));
  no_limit();
  if (!error) co_return true;
  ++(std::exchange(expired_, false) ? server_.counts.timed_out : server_.counts.malformed);
  co_return false;
}

// False: the connection is over, and no answer is needed.
asio::awaitable<bool> Connection::wait_for_request() {
  limit(Phase::Waiting, server_.options.idle_timeout);
  error_code error;
  if (stream_.encrypted()) {
    // A request may already be in TLS's buffers, where waiting for the socket would not see it.
    const std::size_t bytes =
        co_await stream_.async_read_some(in_.prepare(kPiece), asio::redirect_error(asio::use_awaitable, error));
    in_.commit(bytes);
  } else {
    co_await stream_.socket().async_wait(Socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
  }
  no_limit();
  co_return !error;
}

// Reads one request and answers it.
asio::awaitable<void> Connection::serve_request() {
  RequestParser parser;
  parser.header_limit(static_cast<std::uint32_t>(
      std::min<std::size_t>(server_.options.max_header, std::numeric_limits<std::uint32_t>::max())));
  parser.body_limit(server_.options.max_body);
  limit(Phase::Reading, server_.options.header_timeout);
  record_ = {.client = client_};
  answered_ = head_only_ = false;
  HttpRequest request;
  const bool whole = co_await read_request(parser, request);
  no_limit();
  bool complete = false;
  if (whole) {
    ++server_.counts.requests;
    complete = co_await respond(std::move(request));
  } else if (answered_) {
    complete = co_await write_out();
  }
  log(complete);
}

void Connection::log(bool complete) {
  // A client that sends half a header and leaves has not asked for anything.
  const bool asked = !record_.method.empty() || record_.status != 0;
  if (!server_.options.on_request || !asked) return;
  record_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  record_.left = !complete;
  server_.options.on_request(record_);
}

// False: the request was refused, and the answer is ready to be written; or the client is gone.
asio::awaitable<bool> Connection::read_request(RequestParser& parser, HttpRequest& request) {
  error_code error;
  co_await http::async_read_header(stream_, in_, parser, asio::redirect_error(asio::use_awaitable, error));
  record_.time = std::chrono::system_clock::now();
  began_ = Clock::now();
  if (error == http::error::end_of_stream) {
    gone_ = true;
    keep_alive_ = false;
    co_return false;
  }
  if (error) {
    refuse(error, false);
    co_return false;
  }
  if (!take_head(parser, request)) co_return false;
  if (parser.is_done()) co_return true;

  limit(Phase::Reading, server_.options.body_timeout);
  if (!may_send_body(parser, request)) co_return false;
  if (!out_.empty()) {
    const bool sent = co_await write_out();
    if (!sent) co_return false;
    limit(Phase::Reading, server_.options.body_timeout);
  }
  co_await http::async_read(stream_, in_, parser, asio::redirect_error(asio::use_awaitable, error));
  if (error) {
    refuse(error, true);
    co_return false;
  }
  request.body = std::move(parser.get().body());
  co_return true;
}

// Whether the body is wanted. If not, the request was refused by its header. The connection ends then, because what
// follows on it is the body.
bool Connection::may_send_body(RequestParser& parser, const HttpRequest& request) {
  if (server_.options.check_head) {
    if (const auto refusal = server_.options.check_head(request)) {
      keep_alive_ = false;
      answer(*refusal);
      return false;
    }
  }
  const auto expectation = parser.get()[http::field::expect];
  if (expectation.empty()) return true;
  if (!boost::beast::iequals(expectation, "100-continue")) {
    refuse(417, "the only supported expectation is 100-continue");
    return false;
  }
  out_ += "HTTP/1.1 100 Continue\r\n\r\n";
  return true;
}

void Connection::refuse(error_code why, bool in_body) {
  const HttpOptions& options = server_.options;
  if (expired_) {
    expired_ = false;
    ++server_.counts.timed_out;
    const auto limit = in_body ? options.body_timeout : options.header_timeout;
    if (closing_) return refuse(503, "the server is shutting down");
    return refuse(408, fmt::format("the request's {} did not come within {:g} seconds", in_body ? "body" : "header",
                                   std::chrono::duration<double>(limit).count()));
  }
  if (why == http::error::header_limit || why == http::error::buffer_overflow) {
    return refuse(431, fmt::format("the request's header has more than {} bytes", options.max_header));
  }
  if (why == http::error::body_limit) {
    return refuse(413, fmt::format("the request's body has more than {} bytes", options.max_body));
  }
  if (why == http::error::bad_version) return refuse(505, "the server speaks HTTP/1.0 and HTTP/1.1");
  if (why == http::error::partial_message) return refuse(400, "the request is incomplete");
  if (why.category() == http::make_error_code(http::error::bad_method).category()) {
    return refuse(400, fmt::format("this is not an HTTP/1.1 request: {}", why.message()));
  }
  gone_ = true;  // reset, or otherwise broken
}

void Connection::refuse(unsigned status, std::string message) {
  refuse({.status = status,
          .type = status >= 500 ? "server_error" : "invalid_request_error",
          .message = std::move(message)});
}

void Connection::refuse(const ApiError& error) {
  keep_alive_ = false;
  ++(turned_away_ ? server_.counts.turned_away : server_.counts.malformed);
  answer(to_response(error));
}

// Takes what the header says. False: the request was refused.
bool Connection::take_head(RequestParser& parser, HttpRequest& request) {
  auto& message = parser.get();
  version_ = message.version();
  keep_alive_ = keep_alive_ && message.keep_alive();
  const auto method = message.method_string();
  head_only_ = method == "HEAD";
  last_stream_ = mistakes_kept_connections(message[http::field::user_agent]);
  const auto field = [&](http::field name) { return std::string(message[name]); };
  std::string target(message.target());
  std::string host = field(http::field::host);
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const std::size_t path = std::min(target.find('/', scheme.size()), target.size());
    host = target.substr(scheme.size(), path - scheme.size());
    target = path == target.size() ? "/" : target.substr(path);
  }
  const std::string whole = target.substr(0, target.find('#'));
  const std::size_t path_end = std::min(whole.find('?'), whole.size());
  request = {.method = head_only_ ? "GET" : std::string(method),
             .path = whole.substr(0, path_end),
             .query = whole.substr(std::min(path_end + 1, whole.size())),
             .authorization = field(http::field::authorization),
             .host = std::move(host),
             .origin = field(http::field::origin),
             .if_none_match = field(http::field::if_none_match)};
  // Clients of Anthropic's API send their key so.
  if (request.authorization.empty()) {
    if (const std::string key = std::string(message["x-api-key"]); !key.empty())
      request.authorization = "Bearer " + key;
  }
  record_.method = method;
  record_.path = request.path;
  const std::size_t hosts = message.count(http::field::host);
  if (version_ == 11 && hosts != 1) {
    refuse(400, "a request must have exactly one Host header");
    return false;
  }
  // HTTP/1.0 has no Host header. Browsers always send one.
  if (!local_.empty() && hosts > 0 && !server_.hosts.allows(request.host, local_)) {
    refuse({.status = 403,
            .type = "permission_error",
            .message = fmt::format("this server does not answer for the host '{}' (see --allowed-host)", request.host),
            .code = "host_not_allowed"});
    return false;
  }
  return true;
}

void Connection::finish() {
  answered_ = true;
  if (const auto exchange = exchange_.lock()) {
    record_.notes = std::move(exchange->notes);
    exchange->detach();
  }
  wake_.cancel();
}

// Passes the request to the handler and writes its answer. False: the client was gone before the answer was complete.
asio::awaitable<bool> Connection::respond(HttpRequest request) {
  phase_ = Phase::Answering;
  answered_ = false;
  auto exchange = std::make_shared<Exchange>(*this);
  exchange_ = exchange;
  server_.handler(std::move(request), std::move(exchange));
  if (!answered_) watch();
  bool complete = false;
  for (;;) {
    if (!out_.empty()) {
      const bool sent = co_await write_out();
      if (!sent) break;
      continue;
    }
    complete = answered_;
    if (answered_ || gone_) break;
    error_code ignored;
    wake_.expires_at(asio::steady_timer::time_point::max());
    co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  leave();
  while (watching_) {
    stop_watching_.emit(asio::cancellation_type::terminal);
    error_code ignored;
    wake_.expires_at(asio::steady_timer::time_point::max());
    co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  co_return complete;
}

// Reads ahead while an answer is computed, to notice when the client goes away.
void Connection::watch() {
  if (in_.size() >= kReadAhead) return;
  watching_ = true;
  stream_.async_read_some(in_.prepare(kPiece),
                          asio::bind_cancellation_slot(
                              stop_watching_.slot(), [self = shared_from_this()](error_code error, std::size_t bytes) {
                                self->watching_ = false;
                                self->in_.commit(bytes);
                                if (!error && self->phase_ == Phase::Answering && !self->answered_) {
                                  self->watch();
                                } else if (error && error != asio::error::operation_aborted) {
                                  self->gone_ = true;
                                  // A complete answer is still written: the client may have closed only its sending
                                  // side.
                                  if (!self->answered_) self->leave();
                                }
                                self->wake_.cancel();
                              }));
}

// Ends the exchange. If the request was not answered, the handler is told that the client is gone.
void Connection::leave() {
  if (phase_ == Phase::Answering) phase_ = Phase::Leaving;
  const auto exchange = exchange_.lock();
  exchange_.reset();
  if (!exchange || answered_) return;
  exchange->gone();
  record_.notes = std::move(exchange->notes);
}

// Writes all bytes that wait. False: it failed.
asio::awaitable<bool> Connection::write_out() {
  while (!out_.empty()) {
    writing_.swap(out_);
    out_.clear();
    written_ = 0;
    while (written_ < writing_.size()) {
      deadline_ = Clock::now() + server_.options.write_timeout;
      error_code error;
      const std::size_t sent =
          co_await stream_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                                            asio::redirect_error(asio::use_awaitable, error));
      written_ += sent;
      record_.bytes += sent;
      if (error) {
        if (expired_) ++server_.counts.timed_out;
        gone_ = true;
        no_limit();
        co_return false;
      }
    }
    writing_.clear();
    written_ = 0;
  }
  no_limit();
  if (writing_.capacity() > kReadAhead) std::string().swap(writing_);
  if (out_.capacity() > kReadAhead) std::string().swap(out_);
  co_return true;
}

// Closes the sending side and waits a little for the client to close. If the socket were closed while the client still
// sends, the client would lose the answer.
asio::awaitable<void> Connection::linger() {
  phase_ = Phase::Leaving;
  Socket& socket = stream_.socket();
  error_code error;
  if (!gone_ && socket.is_open()) {
    if (stream_.encrypted()) {
      deadline_ = Clock::now() + kGoodbye;
      co_await stream_.async_goodbye(asio::redirect_error(asio::use_awaitable, error));
    }
    socket.shutdown(Socket::shutdown_send, error);
    const auto latest = Clock::now() + std::max(server_.options.body_timeout, kLinger);
    expired_ = false;
    char discarded[4096];
    std::size_t total = 0;
    while (!error && !expired_ && total < kLingerBytes) {
      deadline_ = std::min(latest, Clock::now() + kLinger);
      total +=
          co_await socket.async_read_some(asio::buffer(discarded), asio::redirect_error(asio::use_awaitable, error));
    }
  }
  no_limit();
  error_code ignored;
  socket.close(ignored);
}

}  // namespace quire::server

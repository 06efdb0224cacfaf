#include "quire/tiers/redis_connection.h"

#include <algorithm>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>

namespace quire::tiers {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kInputBytes = 16 << 10;
constexpr std::size_t kLeastDirect = 2 << 10;              // fewer bytes are cheaper to copy than to read by themselves
constexpr std::size_t kReadAtOnce = std::size_t{8} << 20;  // then the other connections have their turn
constexpr std::size_t kMostSegments = 64;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::array<std::span<const std::byte>, 4> segments(const RedisRequest& request) {
  return {bytes_of(request.head), request.payload[0], request.payload[1], bytes_of(request.tail)};
}

std::size_t sent_size(const RedisRequest& request) {
  return request.head.size() + request.payload[0].size() + request.payload[1].size() + request.tail.size();
}

Transfer broken(const error_code& error) {
  if (error == asio::error::would_block || error == asio::error::try_again) return {};
  if (error == asio::error::eof || error == asio::error::connection_reset || error == asio::error::broken_pipe) {
    return {.state = Transfer::State::Closed};
  }
  return {.state = Transfer::State::Broken, .problem = error.message()};
}

}  // namespace

std::size_t RedisRequest::bytes() const { return sent_size(*this) + (sink ? sink->size() : 0); }

// What is said first: password, database, and a PING to see that the server answers commands.
class RedisConnection::Greeting : public RedisRequest {
 public:
  Greeting(RedisConnection& connection, std::string what, std::initializer_list<std::string_view> words)
      : connection_(connection), what_(std::move(what)) {
    head = format_command(words);
  }
  void answered(Reply reply) override { connection_.greeted(what_, reply, what_ == "PING"); }
  void lost() override {}

 private:
  RedisConnection& connection_;
  const std::string what_;
};

RedisConnection::RedisConnection(asio::io_context& io, const RedisSettings& settings, RedisAddress address,
                                 Owner& owner)
    : io_(io),
      settings_(settings),
      address_(std::move(address)),
      owner_(owner),
      resolver_(io),
      socket_(io),
      input_(kInputBytes) {}

RedisConnection::~RedisConnection() = default;

void RedisConnection::start() {
  started_ = progress_ = RedisClock::now();
  error_code error;
  const auto numeric = asio::ip::make_address(address_.host, error);
  if (!error) {
    connect({{numeric, address_.port}});
    return;
  }
  resolver_.async_resolve(address_.host, std::to_string(address_.port),
                          [self = shared_from_this()](const error_code& problem, const auto& results) {
                            if (self->state_ == State::Closed) return;
                            if (problem) {
                              self->close(fmt::format("unknown host ({})", problem.message()));
                              return;
                            }
                            Endpoints endpoints;
                            for (const auto& result : results) endpoints.push_back(result.endpoint());
                            self->connect(endpoints);
                          });
}

void RedisConnection::connect(const Endpoints& endpoints) {
  asio::async_connect(socket_, endpoints,
                      [self = shared_from_this()](const error_code& problem, const asio::ip::tcp::endpoint&) {
                        if (self->state_ == State::Closed) return;
                        if (problem) {
                          self->close(problem.message());
                        } else {
                          self->connected();
                        }
                      });
}

void RedisConnection::connected() {
  error_code error;
  socket_.non_blocking(true, error);
  if (!error) socket_.set_option(asio::ip::tcp::no_delay(true), error);
  if (!error) socket_.set_option(asio::socket_base::keep_alive(true), error);
  if (error) {
    close(error.message());
    return;
  }
  if (settings_.tls == nullptr) {
    greet();
    return;
  }
  auto session = settings_.tls->start(socket_.native_handle(), address_.host);
  if (!session) {
    close(session.error().message);
    return;
  }
  tls_ = std::move(*session);
  tls_handshake();
}

void RedisConnection::tls_handshake() {
  const Transfer transfer = tls_->handshake();
  switch (transfer.state) {
    case Transfer::State::Some: greet(); return;
    case Transfer::State::WaitReadable:
    case Transfer::State::WaitWritable:
      socket_.async_wait(transfer.state == Transfer::State::WaitReadable ? socket_.wait_read : socket_.wait_write,
                         [self = shared_from_this()](const error_code& problem) {
                           if (self->state_ == State::Closed || problem) return;
                           self->tls_handshake();
                         });
      return;
    case Transfer::State::Closed: close("closed during the TLS handshake"); return;
    case Transfer::State::Broken: close(transfer.problem); return;
  }
}

void RedisConnection::greet() {
  state_ = State::Handshake;
  const RedisUrl& url = settings_.url;
  const auto add = [&](const char* what, std::initializer_list<std::string_view> words) {
    greetings_.push_back(std::make_unique<Greeting>(*this, what, words));
  };
  if (!url.password.empty() && url.user.empty()) add("AUTH", {"AUTH", url.password});
  if (!url.password.empty() && !url.user.empty()) add("AUTH", {"AUTH", url.user, url.password});
  if (url.db != 0) add("SELECT", {"SELECT", std::to_string(url.db)});
  add("PING", {"PING"});
  for (const auto& greeting : greetings_) queue(*greeting);
  wait_readable();
  flush();
}

void RedisConnection::greeted(const std::string& what, const Reply& reply, bool last) {
  if (state_ != State::Handshake) return;
  if (reply.is_error()) {
    close(fmt::format("{}: {}", what, printable(reply.text)));
  } else if (reply.kind != Reply::Kind::Status || reply.text != (last ? "PONG" : "OK")) {
    close(fmt::format("{}: an answer that is not Redis'", what));
  } else if (last) {
    state_ = State::Ready;
    owner_.ready(*this);
  }
}

bool RedisConnection::has_room() const {
  return state_ == State::Ready && pipeline_.size() < settings_.in_flight_requests &&
         in_flight_bytes_ < settings_.in_flight_bytes;
}

void RedisConnection::queue(RedisRequest& request) {
  if (pipeline_.empty()) progress_ = RedisClock::now();
  pipeline_.push_back(&request);
  in_flight_bytes_ += request.bytes();
  if (pipeline_.size() == 1) expect_next();
}

// --- sending ---

Transfer RedisConnection::write_some() {
  std::vector<asio::const_buffer> buffers;
  std::size_t skip = sent_bytes_;
  for (std::size_t i = sending_; i < pipeline_.size() && buffers.size() < kMostSegments; ++i) {
    for (const auto segment : segments(*pipeline_[i])) {
      const std::size_t skipped = std::min(skip, segment.size());
      skip -= skipped;
      if (skipped == segment.size()) continue;
      if (tls_ != nullptr) return tls_->write(segment.subspan(skipped));
      buffers.emplace_back(segment.data() + skipped, segment.size() - skipped);
    }
  }
  error_code error;
  const std::size_t sent = socket_.write_some(buffers, error);
  if (!error) return {.bytes = sent};
  Transfer transfer = broken(error);
  if (transfer.state == Transfer::State::Some) transfer.state = Transfer::State::WaitWritable;
  return transfer;
}

void RedisConnection::flush() {
  while ((state_ == State::Handshake || state_ == State::Ready) && sending_ < pipeline_.size()) {
    const Transfer transfer = write_some();
    if (transfer.state == Transfer::State::WaitWritable) {
      wait_writable();
      return;
    }
    if (transfer.state == Transfer::State::WaitReadable) return;  // receive() flushes again
    if (transfer.state != Transfer::State::Some) {
      lost_to_server(transfer);
      return;
    }
    progress_ = RedisClock::now();
    sent_bytes_ += transfer.bytes;
    while (sending_ < pipeline_.size() && sent_bytes_ >= sent_size(*pipeline_[sending_])) {
      sent_bytes_ -= sent_size(*pipeline_[sending_]);
      ++sending_;
    }
  }
}

void RedisConnection::wait_writable() {
  if (std::exchange(waiting_writable_, true)) return;
  socket_.async_wait(socket_.wait_write, [self = shared_from_this()](const error_code&) {
    self->waiting_writable_ = false;
    if (self->state_ != State::Closed) self->flush();
  });
}

// --- receiving ---

void RedisConnection::wait_readable() {
  if (std::exchange(waiting_readable_, true)) return;
  socket_.async_wait(socket_.wait_read, [self = shared_from_this()](const error_code&) {
    self->waiting_readable_ = false;
    if (self->state_ != State::Closed) self->receive();
  });
}

Transfer RedisConnection::read_from(std::span<std::byte> into) {
  if (tls_ != nullptr) return tls_->read(into);
  error_code error;
  const std::size_t got = socket_.read_some(asio::buffer(into.data(), into.size()), error);
  if (!error) return {.bytes = got};
  Transfer transfer = broken(error);
  if (transfer.state == Transfer::State::Some) transfer.state = Transfer::State::WaitReadable;
  return transfer;
}

// A large rest of a payload goes straight to its place. Everything else goes to input_, which is empty.
Transfer RedisConnection::read_some() {
  input_begin_ = input_end_ = 0;
  const PayloadSink place = parser_.direct();
  if (place.size() >= kLeastDirect) {
    Transfer transfer = read_from(place.first.empty() ? place.second : place.first);
    if (transfer.state == Transfer::State::Some) parser_.filled(transfer.bytes);
    return transfer;
  }
  Transfer transfer = read_from(input_);
  if (transfer.state == Transfer::State::Some) input_end_ = transfer.bytes;
  return transfer;
}

void RedisConnection::receive() {
  const auto self = shared_from_this();
  std::size_t left = kReadAtOnce;
  while (state_ != State::Closed) {
    const Transfer transfer = read_some();
    if (transfer.state == Transfer::State::Some) {
      progress_ = RedisClock::now();
      const std::size_t before = pipeline_.size();
      if (!parse_input()) return;
      if (pipeline_.size() != before && state_ == State::Ready) owner_.room(*this);
      left -= std::min(left, transfer.bytes);
      if (left == 0) {
        asio::post(io_, [self] {
          if (self->state_ != State::Closed) self->receive();
        });
        return;
      }
    } else if (transfer.state == Transfer::State::WaitReadable) {
      wait_readable();
      flush();
      return;
    } else if (transfer.state == Transfer::State::WaitWritable) {
      socket_.async_wait(socket_.wait_write, [self](const error_code&) {
        if (self->state_ != State::Closed) self->receive();
      });
      return;
    } else {
      lost_to_server(transfer);
    }
  }
}

bool RedisConnection::parse_input() {
  while (input_begin_ < input_end_) {
    if (pipeline_.empty()) {
      close("the server sent something that nobody asked for");
      return false;
    }
    std::span<const std::byte> rest(input_.data() + input_begin_, input_end_ - input_begin_);
    auto reply = parser_.parse(rest);
    if (!reply) {
      close(reply.error().message);
      return false;
    }
    input_begin_ = input_end_ - rest.size();
    if (*reply) take(std::move(**reply));
    if (state_ == State::Closed) return false;
  }
  return true;
}

void RedisConnection::take(Reply reply) {
  RedisRequest& request = *pipeline_.front();
  if (sending_ == 0) {
    close(reply.is_error() ? printable(reply.text) : "the server answered before the request was sent");
    return;
  }
  if (replies_taken_ == request.replies_before) its_reply_ = std::move(reply);
  if (++replies_taken_ <= request.replies_before + request.replies_after) {
    expect_next();
    return;
  }
  in_flight_bytes_ -= request.bytes();
  pipeline_.pop_front();
  --sending_;
  replies_taken_ = 0;
  Reply answer = std::move(*std::exchange(its_reply_, std::nullopt));
  expect_next();
  request.answered(std::move(answer));
}

void RedisConnection::expect_next() {
  if (pipeline_.empty()) return;
  const RedisRequest& request = *pipeline_.front();
  parser_.expect(replies_taken_ == request.replies_before ? request.sink : std::nullopt);
}

// --- the end ---

void RedisConnection::lost_to_server(const Transfer& transfer) {
  const bool clean = transfer.state == Transfer::State::Closed && pipeline_.empty() && state_ == State::Ready;
  if (!clean) {
    close(transfer.state == Transfer::State::Closed ? "the server closed the connection" : transfer.problem);
    return;
  }
  close_alone("the server closed the connection", End::Clean);
}

void RedisConnection::close_alone(const std::string& why, End end) {
  const auto self = shared_from_this();  // the owner lets go of it
  close("", false);
  owner_.closed(*this, why, end);
}

void RedisConnection::tick(RedisClock::time_point now) {
  const auto timeout = settings_.url.timeout;
  if (state_ == State::Connecting || state_ == State::Handshake) {
    if (now - started_ > 2 * timeout) close(fmt::format("no answer within {} ms", (2 * timeout).count()));
    return;
  }
  if (state_ == State::Closed || pipeline_.empty()) return;
  if (now - progress_ > timeout) {
    close(fmt::format("no answer for {} ms", timeout.count()));
    return;
  }
  // The server answers, only too slowly for so much at a time. What else it is asked for need not wait for that.
  const auto late = [&](const RedisRequest* request) { return now > request->deadline; };
  if (std::ranges::any_of(pipeline_, late)) close_alone("too slow", End::Slow);
}

void RedisConnection::close(const std::string& why, bool tell) {
  if (state_ == State::Closed) return;
  const auto self = weak_from_this().lock();  // the owner may let go of it
  state_ = State::Closed;
  error_code ignored;
  resolver_.cancel();
  socket_.close(ignored);
  const auto lost = std::exchange(pipeline_, {});
  sending_ = sent_bytes_ = in_flight_bytes_ = 0;
  its_reply_.reset();
  for (RedisRequest* const request : lost) request->lost();
  if (tell) owner_.closed(*this, why, End::Failed);
}

}  // namespace quire::tiers

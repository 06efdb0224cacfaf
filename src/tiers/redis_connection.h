// One connection to a Redis server: it connects, says the password, and then sends requests and reads their replies in
// order, many of them under way at a time.
//
//   auto connection = std::make_shared<RedisConnection>(io, settings, address, owner);
//   connection->start();                 owner.ready() or owner.closed() follows, within twice the timeout
//   connection->queue(request);          while has_room(); the request ends with answered() or lost()
//   connection->flush();                 after the last of some requests
//
// What always holds
// - A request that was queued ends exactly once, before closed() is called. It belongs to the caller, who keeps it
//   alive until then. Its memory is touched only between queue() and that moment, and only on the thread of `io`.
// - The connection is closed when no byte has moved for the timeout while a request waits, when a request is older than
//   its deadline, and when the server says something that is not the Redis protocol. It is not opened again: make a
//   new one.
//
// Who may call: the thread that runs `io`. tick() is called there every few milliseconds by the owner.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "quire/tiers/redis_tls.h"
#include "quire/tiers/redis_url.h"
#include "quire/tiers/resp.h"

namespace quire::tiers {

using RedisClock = std::chrono::steady_clock;

class RedisRequest {
 public:
  virtual ~RedisRequest() = default;
  virtual void answered(Reply reply) = 0;
  virtual void lost() = 0;  // the connection was closed first

  std::string head, tail;                             // the command; its payload stands between them
  std::array<std::span<const std::byte>, 2> payload;  // sent from where it is
  std::optional<PayloadSink> sink;                    // where the value of the reply goes
  unsigned replies_before = 0, replies_after = 0;     // of commands in `head` and `tail` that nobody waits for
  RedisClock::time_point deadline = RedisClock::time_point::max();

  std::size_t bytes() const;  // that go over the wire, about
};

struct RedisSettings {
  RedisUrl url;
  RedisTls* tls = nullptr;                             // if url.tls
  std::size_t in_flight_bytes = std::size_t{4} << 20;  // of one connection; one request may be larger
  std::size_t in_flight_requests = 128;
};

class RedisConnection : public std::enable_shared_from_this<RedisConnection> {
 public:
  enum class End : std::uint8_t {
    Clean,   // the server closed it while nothing was under way
    Slow,    // a request was past its deadline while bytes still moved: the server is alive
    Failed,  // anything else
  };
  struct Owner {
    virtual ~Owner() = default;
    virtual void ready(RedisConnection& connection) = 0;
    virtual void room(RedisConnection& connection) = 0;  // requests have ended, some more can be queued
    virtual void closed(RedisConnection& connection, const std::string& why, End end) = 0;
  };

  RedisConnection(boost::asio::io_context& io, const RedisSettings& settings, RedisAddress address, Owner& owner);
  ~RedisConnection();

  void start();
  bool is_ready() const { return state_ == State::Ready; }
  bool has_room() const;
  bool idle() const { return pipeline_.empty(); }
  void queue(RedisRequest& request);
  void flush();
  void tick(RedisClock::time_point now);
  // Ends all requests with lost(). The owner is told only if `tell` is true.
  void close(const std::string& why, bool tell = true);

 private:
  enum class State : std::uint8_t { Connecting, Handshake, Ready, Closed };
  class Greeting;
  using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;

  void connect(const Endpoints& endpoints);
  void connected();
  void tls_handshake();
  void greet();
  void greeted(const std::string& what, const Reply& reply, bool last);

  void wait_readable();
  void wait_writable();
  void receive();
  Transfer read_some();
  Transfer read_from(std::span<std::byte> into);
  bool parse_input();
  void take(Reply reply);
  void expect_next();
  Transfer write_some();
  void lost_to_server(const Transfer& transfer);
  void close_alone(const std::string& why, End end);

  boost::asio::io_context& io_;
  const RedisSettings& settings_;
  const RedisAddress address_;
  Owner& owner_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<RedisTlsSession> tls_;
  State state_ = State::Connecting;
  RedisClock::time_point started_, progress_;
  std::vector<std::unique_ptr<Greeting>> greetings_;

  // The front one waits for its reply. Those before sending_ are sent as a whole; of that one, sent_bytes_ are.
  std::deque<RedisRequest*> pipeline_;
  std::size_t sending_ = 0, sent_bytes_ = 0;
  std::size_t in_flight_bytes_ = 0;
  unsigned replies_taken_ = 0;      // of the front one
  std::optional<Reply> its_reply_;  // of the front one, until the replies after it have come

  ReplyParser parser_;
  std::vector<std::byte> input_;
  std::size_t input_begin_ = 0, input_end_ = 0;
  bool waiting_readable_ = false, waiting_writable_ = false;
};

}  // namespace quire::tiers

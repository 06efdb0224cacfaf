// One Redis server: two connections, one for reading and one for writing, so that a page that somebody waits for does
// not queue behind pages that are written. And a circuit breaker: after a failure nothing is sent until a new
// connection has answered. It is tried with growing pauses.
//
// What always holds: a request that send() took ends with answered() or lost(), within the timeouts of the connection.
// Who may call: the thread of `io`.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>

#include "quire/tiers/redis_connection.h"

namespace quire::tiers {

// Closed: requests go through. Open: they fail at once. After each failure in a row the pause is twice as long. Only a
// request that was answered ends the row, not a connection that could be made: a server may accept and then be silent.
class CircuitBreaker {
 public:
  static constexpr std::chrono::milliseconds kFirstPause{100}, kLongestPause{5000};

  void failed(RedisClock::time_point now);
  void connected() { open_ = false; }
  void answered() { failures_ = 0; }
  bool open() const { return open_; }
  bool may_try(RedisClock::time_point now) const { return open_ && now >= retry_at_; }

 private:
  bool open_ = false;
  unsigned failures_ = 0;
  RedisClock::time_point retry_at_{};
};

enum class RedisLane : std::uint8_t { Read, Write };

class RedisNode : public RedisConnection::Owner {
 public:
  struct Listener {
    virtual ~Listener() = default;
    virtual void node_down(RedisNode& node) = 0;  // its requests have ended already
    virtual void node_up(RedisNode& node) = 0;
  };

  RedisNode(boost::asio::io_context& io, const RedisSettings& settings, RedisAddress address, Listener& listener);
  ~RedisNode() override;  // requests that are under way are lost

  const RedisAddress& address() const { return address_; }
  bool down() const { return breaker_.open(); }
  std::string problem() const;  // empty: none

  // False: the node is down, and the request was not taken. It may end before send() returns only with lost().
  // `first`: before all that are queued.
  bool send(RedisRequest& request, RedisLane lane, bool first = false);
  void answered() { breaker_.answered(); }
  // The server said that it cannot work (it is loading, the password is wrong): as if a connection had failed.
  void trip(const std::string& why);
  // A write was refused, for example because the server has no room. The next ones wait for a growing pause.
  void write_refused(const std::string& why);
  void write_accepted();
  // An object was read or written in time. A lane that was too slow is so no longer if that still happens after twice
  // the time that a job may take: before that the jobs of its next connection may all be late again. Nor is it after
  // the node was down.
  void moved(RedisLane lane);
  bool refuses_writes(RedisClock::time_point now) const { return writes_.open() && !writes_.may_try(now); }

  void tick(RedisClock::time_point now);
  void drop_queued();  // those that were not sent yet are lost

 private:
  struct Lane {
    std::shared_ptr<RedisConnection> connection;
    std::deque<RedisRequest*> queue;
    bool slow = false;
    RedisClock::time_point slow_at{};  // when its connection was last closed for that
  };

  void ready(RedisConnection& connection) override;
  void room(RedisConnection& connection) override;
  void closed(RedisConnection& connection, const std::string& why, RedisConnection::End end) override;
  void connect(Lane& lane);
  void pump(Lane& lane);
  void fail(const std::string& why);

  boost::asio::io_context& io_;
  const RedisSettings& settings_;
  const RedisAddress address_;
  Listener& listener_;
  std::array<Lane, 2> lanes_;
  CircuitBreaker breaker_, writes_;
  std::string problem_;
};

}  // namespace quire::tiers

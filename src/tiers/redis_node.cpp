#include "quire/tiers/redis_node.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

namespace quire::tiers {

void CircuitBreaker::failed(RedisClock::time_point now) {
  open_ = true;
  const auto pause = std::min(kLongestPause, kFirstPause * (1 << std::min(failures_, 10u)));
  ++failures_;
  retry_at_ = now + pause;
}

RedisNode::RedisNode(boost::asio::io_context& io, const RedisSettings& settings, RedisAddress address,
                     Listener& listener)
    : io_(io), settings_(settings), address_(std::move(address)), listener_(listener) {}

RedisNode::~RedisNode() {
  for (Lane& lane : lanes_) {
    if (lane.connection != nullptr) lane.connection->close("", false);
  }
  drop_queued();
}

bool RedisNode::send(RedisRequest& request, RedisLane which, bool first) {
  if (breaker_.open()) return false;
  Lane& lane = lanes_[static_cast<std::size_t>(which)];
  if (first) {
    lane.queue.push_front(&request);
  } else {
    lane.queue.push_back(&request);
  }
  if (lane.connection == nullptr) {
    connect(lane);
  } else {
    pump(lane);
  }
  return true;
}

void RedisNode::connect(Lane& lane) {
  lane.connection = std::make_shared<RedisConnection>(io_, settings_, address_, *this);
  lane.connection->start();
}

void RedisNode::pump(Lane& lane) {
  const auto connection = lane.connection;  // a failed write ends it
  bool queued = false;
  while (!lane.queue.empty() && connection->has_room()) {
    connection->queue(*lane.queue.front());
    lane.queue.pop_front();
    queued = true;
  }
  if (queued) connection->flush();
}

void RedisNode::ready(RedisConnection& connection) {
  const bool was_down = breaker_.open();
  breaker_.connected();
  problem_.clear();
  room(connection);
  if (was_down) listener_.node_up(*this);
}

void RedisNode::room(RedisConnection& connection) {
  for (Lane& lane : lanes_) {
    if (lane.connection.get() == &connection) pump(lane);
  }
}

void RedisNode::closed(RedisConnection& connection, const std::string& why, RedisConnection::End end) {
  for (Lane& lane : lanes_) {
    if (lane.connection.get() != &connection) continue;
    lane.connection.reset();
    if (end != RedisConnection::End::Slow) continue;
    lane.slow = true;
    lane.slow_at = RedisClock::now();
  }
  if (end == RedisConnection::End::Failed) {
    fail(why);
    return;
  }
  // Of this lane alone; the next request opens a new one.
  for (Lane& lane : lanes_) {
    if (!lane.queue.empty() && lane.connection == nullptr) connect(lane);
  }
}

void RedisNode::write_refused(const std::string& why) {
  writes_.failed(RedisClock::now());
  if (!breaker_.open()) problem_ = to_text(address_) + ": " + why;
}

void RedisNode::write_accepted() {
  if (writes_.open()) problem_.clear();
  writes_.connected();
  writes_.answered();
}

void RedisNode::moved(RedisLane which) {
  Lane& lane = lanes_[static_cast<std::size_t>(which)];
  if (lane.slow && RedisClock::now() - lane.slow_at > 2 * settings_.url.job_time()) lane.slow = false;
}

std::string RedisNode::problem() const {
  if (!problem_.empty()) return problem_;
  for (const auto which : {RedisLane::Read, RedisLane::Write}) {
    if (!lanes_[static_cast<std::size_t>(which)].slow) continue;
    return fmt::format("{}: too slow to {}: a job took more than {} ms", to_text(address_),
                       which == RedisLane::Read ? "read" : "write", settings_.url.job_time().count());
  }
  return {};
}

void RedisNode::trip(const std::string& why) { fail(why); }

void RedisNode::fail(const std::string& why) {
  breaker_.failed(RedisClock::now());
  problem_ = to_text(address_) + ": " + why;
  for (Lane& lane : lanes_) {
    if (const auto connection = std::exchange(lane.connection, nullptr)) connection->close(why, false);
    lane.slow = false;  // the server that answers next may be another one
  }
  drop_queued();
  listener_.node_down(*this);
}

void RedisNode::drop_queued() {
  for (Lane& lane : lanes_) {
    const auto queued = std::exchange(lane.queue, {});
    for (RedisRequest* const request : queued) request->lost();
  }
}

void RedisNode::tick(RedisClock::time_point now) {
  for (Lane& lane : lanes_) {
    if (const auto connection = lane.connection) connection->tick(now);
  }
  // Those that wait for a connection or for room have deadlines too.
  for (Lane& lane : lanes_) {
    const auto late = [&](const RedisRequest* request) { return now > request->deadline; };
    std::deque<RedisRequest*> lost;
    std::copy_if(lane.queue.begin(), lane.queue.end(), std::back_inserter(lost), late);
    if (lost.empty()) continue;
    std::erase_if(lane.queue, late);
    for (RedisRequest* const request : lost) request->lost();
  }
  Lane& probe = lanes_[static_cast<std::size_t>(RedisLane::Read)];
  if (breaker_.may_try(now) && probe.connection == nullptr) connect(probe);
}

}  // namespace quire::tiers

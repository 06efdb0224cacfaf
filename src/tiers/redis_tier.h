// The shared tier over a RedisStore. See shared_tier.h for what it promises.
//
//   submit() -> two queues, reads and writes -> jobs under way -> one request per part -> RedisStore -> done()
//
// A key is PREFIX:1:HEX with the 33 bytes of the object's key in hex. The value is the object of tier_object.h. An
// object that is larger than url.part lies in keys PREFIX:1:HEX:PART:I with PART bytes each, the last one with fewer.
// So the parts of an object are on different nodes of a cluster, and servers with another PART do not see them.
//
// Put asks for the key first (EXPIRE, which also makes it live longer), and sends the payload only if it is not there.
// Get is a GET with an EXPIRE behind it.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "quire/tiers/queue.h"
#include "quire/tiers/redis_store.h"
#include "quire/tiers/shared_tier.h"

namespace quire::tiers {

Result<std::unique_ptr<Tier>> open_redis_tier(const SharedTierOptions& options, TierListener& listener);

// The keys of an object, and the length of the value of each. `bytes`: without the header.
struct ObjectPart {
  std::string key;
  std::uint64_t begin = 0, length = 0;  // of header and bytes
};
std::vector<ObjectPart> parts_of(const RedisUrl& url, const ObjectKey& key, std::uint64_t bytes);

class RedisTier : public Tier {
 public:
  RedisTier(const SharedTierOptions& options, RedisUrl url, std::unique_ptr<RedisTls> tls, TierListener& listener);
  ~RedisTier() override;

  TierKind kind() const override { return TierKind::Shared; }
  std::string describe() const override;
  std::size_t submit(std::span<const TierJob> jobs) override;
  TierUsage usage() const override;

 private:
  struct Job;
  class PartRequest;

  // Reads and writes have a queue each, so that a page that somebody waits for is not behind those that are written.
  struct Window {
    explicit Window(std::size_t capacity) : queue(capacity) {}

    JobQueue queue;
    std::size_t jobs = 0;     // under way
    std::uint64_t bytes = 0;  // of them
    RedisClock::time_point busy_since;
    double busy_seconds = 0;  // with at least one job under way
  };

  Window& window_of(TierJob::Kind kind) { return kind == TierJob::Kind::Put ? writes_ : reads_; }
  void wake();
  void pump();
  void start(const TierJob& job);
  void part_ended(Job& job);
  void parts_ended(Job& job);
  void finish(Job& job, TierOutcome outcome);
  void tell(const TierJob& job, TierOutcome outcome, bool written, const ObjectFault* fault);
  void tick();
  void publish_state();
  void stop();

  const SharedTierOptions options_;
  TierListener& listener_;
  std::unique_ptr<RedisTls> tls_;
  const RedisUrl url_;
  const std::string expire_;  // seconds; empty: keys do not expire

  boost::asio::io_context io_{1};
  boost::asio::steady_timer timer_{io_};
  Window reads_, writes_;
  std::atomic<bool> awake_ = false;
  std::list<Job> jobs_;
  std::unique_ptr<RedisStore> store_;
  bool stopping_ = false;
  RedisClock::time_point stop_by_;

  mutable std::mutex usage_mutex_;
  TierUsage usage_;
  std::thread thread_;
};

}  // namespace quire::tiers

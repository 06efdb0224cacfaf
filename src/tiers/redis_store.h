// A Redis server, a master with replicas, or a cluster, as one store of keys: finds out what is there, knows which node
// has a slot, follows redirections, and looks again when nodes fail.
//
// - A cluster: the map of CLUSTER SLOTS, corrected by MOVED. A node that dies fails its own slots at once and no
// others. As
//   long as one is down the map is asked for again, so a replica that took over is found.
// - Not a cluster: the master, found with ROLE. From a replica the way leads to its master.
// - At the start, requests wait for the first answer, no longer than a connection may take. If nobody answers they
// fail,
//   and so do all others, at once, until somebody answers. The store tries again by itself.
//
// Who may call: the thread of `io`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "quire/tiers/redis_node.h"
#include "quire/tiers/redis_slots.h"

namespace quire::tiers {

// A request with a key.
class StoreRequest : public RedisRequest {
 public:
  std::uint16_t slot = 0;
  RedisLane lane = RedisLane::Read;
  unsigned redirected = 0;
  bool asking = false;        // `head` begins with ASKING
  RedisNode* node = nullptr;  // where it was sent; may be gone after lost()
};

class RedisStore : public RedisNode::Listener {
 public:
  RedisStore(boost::asio::io_context& io, RedisSettings settings);
  ~RedisStore() override;  // requests that are under way are lost

  void start();
  // False: nobody serves the slot now; the request was not taken.
  bool send(StoreRequest& request, bool first = false);
  // To be called with every reply to a StoreRequest. True: it was sent again, and another end follows.
  bool redirect(StoreRequest& request, const Reply& reply);
  bool refuses_writes(std::uint16_t slot, RedisClock::time_point now) const;

  void tick(RedisClock::time_point now);
  void drop_queued();  // requests that were not sent are lost
  void abandon();      // all requests are lost

  // No master answers.
  bool down() const;
  // One line; empty if all is well.
  std::string problem() const;

 private:
  class Question;
  enum class Kind : std::uint8_t { Unknown, Single, Cluster };

  void node_down(RedisNode& node) override;
  void node_up(RedisNode& node) override;

  RedisNode& node_at(const RedisAddress& address);
  RedisNode* master_of(std::uint16_t slot) const;
  bool send_to(RedisNode& node, StoreRequest& request, bool first);

  // Finding out what is there: one candidate is asked after the other.
  void look_soon() { look_ = true; }
  bool time_to_look(RedisClock::time_point now) const;
  void look();
  void ask_next();
  void ask_slots(RedisNode& node);
  void ask_role(RedisNode& node);
  void slots_told(const RedisAddress& asked, const Reply* reply);
  void role_told(const RedisAddress& asked, const Reply* reply);
  void candidate_failed(const std::string& why);
  void found_nothing();
  void found(SlotMap map);
  void put_question(RedisNode& node, std::initializer_list<std::string_view> words,
                    void (RedisStore::*then)(const RedisAddress&, const Reply*));

  boost::asio::io_context& io_;
  RedisSettings settings_;
  Kind kind_ = Kind::Unknown;
  SlotMap map_;
  std::map<RedisAddress, std::unique_ptr<RedisNode>> nodes_;
  std::vector<std::unique_ptr<RedisNode>> leaving_;  // removed from the map; deleted at the next tick
  std::deque<StoreRequest*> waiting_;                // for the first map

  bool looking_ = false, look_ = false, look_now_ = false;
  bool failed_ = false;  // the last look found nothing
  std::deque<RedisAddress> candidates_;
  std::set<RedisAddress> asked_;
  std::unique_ptr<Question> question_;
  CircuitBreaker pause_;
  RedisClock::time_point last_look_{}, waiting_since_{};
  std::string problem_;    // of the last look
  std::string complaint_;  // the last error reply, until a request succeeds
};

}  // namespace quire::tiers

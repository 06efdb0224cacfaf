// /pool and /pool/events: one look at the pool for all who watch it, some times a second, and only while somebody does.
//
// Who may call: the loop's thread.
// What holds: a watcher first gets the whole pool, then every change in order. One who reads too slowly, or for whom
//   the pool's log was too short, gets the whole again in place of what it missed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quire/engine/service.h"
#include "quire/server/http.h"
#include "quire/server/pool_view.h"

namespace quire::server {

class PoolFeed : public std::enable_shared_from_this<PoolFeed> {
 public:
  // Loop and service outlive it.
  PoolFeed(Loop& loop, engine::Service& service, PoolFacts facts);

  void answer(const std::shared_ptr<Responder>& responder);  // with the pool, once
  void watch(std::shared_ptr<Responder> responder);
  // Ends all streams, saying why, and begins no new ones.
  void stop();

  const PoolFacts& facts() const { return facts_; }

 private:
  struct Watcher {
    std::shared_ptr<Responder> responder;
    bool wants_whole = true;
    std::chrono::steady_clock::time_point spoken;
  };
  void tick();
  void tell(const PoolView& view);

  Loop* loop_;
  engine::Service* service_;
  PoolFacts facts_;
  std::vector<std::shared_ptr<Watcher>> watchers_;
  std::uint64_t cursor_ = 0;  // watchers who do not want the whole have seen all before it
  std::string last_;          // sequences and stats as they were told last
  bool ticking_ = false;
  bool stopped_ = false;
};

}  // namespace quire::server

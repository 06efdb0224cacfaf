// Serves /pool and /pool/events. It inspects the pool some times a second, once for all watchers, and only while there
// are watchers.
//
// Who may call: the loop's thread.
// What holds: a watcher first gets the whole pool, then what changes, in order. If it reads too slowly, or the log of
//   the pool was too short for it, it gets the whole pool again instead of the changes it missed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/engine/service.h"
#include "quire/server/http.h"
#include "quire/server/pool_changes.h"
#include "quire/server/pool_view.h"

namespace quire::server {

class PoolFeed : public std::enable_shared_from_this<PoolFeed> {
 public:
  // Loop and service outlive it.
  PoolFeed(Loop& loop, engine::Service& service, PoolFacts facts);

  // Whose sequences are shown. Empty: those of all tenants.
  using Sight = std::optional<Namespace>;

  void answer(const std::shared_ptr<Responder>& responder, Sight sight);  // sends the pool once
  void watch(std::shared_ptr<Responder> responder, Sight sight);
  // Ends all streams: their clients may see something else now, or nothing. They may come again.
  void restart();
  // Ends all streams with the reason. No new ones begin.
  void stop();

  const PoolFacts& facts() const { return facts_; }

 private:
  struct Watcher {
    std::shared_ptr<Responder> responder;
    Sight sight;
    bool wants_whole = true;
    std::chrono::steady_clock::time_point spoken;
  };
  void tick();
  void tell(const PoolView& view, const PoolChanges& changes);

  Loop* loop_;
  engine::Service* service_;
  PoolFacts facts_;
  std::vector<std::shared_ptr<Watcher>> watchers_;
  std::uint64_t cursor_ = 0;  // watchers with !wants_whole have seen all events before it
  Stats stats_, own_stats_;   // as they were last sent: to those who see all, to the others
  // What the watchers were told. The engine's thread uses it while it looks; the loop only when nobody looks.
  PoolShadow shadow_;
  bool ticking_ = false;
  bool stopped_ = false;
};

}  // namespace quire::server

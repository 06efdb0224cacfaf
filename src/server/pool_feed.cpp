#include "quire/server/pool_feed.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "quire/server/api_error.h"

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{50};
constexpr std::chrono::seconds kKeepAlive{15};
// Bytes. A watcher that is further behind gets the whole pool again when it has caught up.
constexpr std::size_t kMostPending = 256 << 10;

struct Texts {
  std::string change, whole;
};

const ApiError& stopping() {
  static const ApiError error{
      .status = 503, .type = "server_error", .message = "the server is shutting down", .code = "stopping"};
  return error;
}

}  // namespace

PoolFeed::PoolFeed(Loop& loop, engine::Service& service, PoolFacts facts)
    : loop_(&loop), service_(&service), facts_(std::move(facts)) {}

void PoolFeed::answer(const std::shared_ptr<Responder>& responder, Sight sight) {
  const bool asked = service_->inspect([self = shared_from_this(), responder, sight](engine::Engine& engine) {
    const std::uint64_t now = engine.pool().events().written();
    auto view = std::make_shared<PoolView>(look(engine, now, true));
    if (sight) *view = only_of(*view, *sight);
    self->loop_->post([self, responder, view] {
      responder->send({.headers = {{"Cache-Control", "no-store"}},
                       .body = pool_json(*view, self->facts_, self->service_->integrity())});
    });
  });
  if (!asked) responder->send(to_response(stopping()));
}

void PoolFeed::watch(std::shared_ptr<Responder> responder, Sight sight) {
  if (stopped_) return responder->send(to_response(stopping()));
  auto watcher = std::make_shared<Watcher>();
  watcher->responder = std::move(responder);
  watcher->sight = sight;
  watcher->spoken = Clock::now();
  watcher->responder->on_gone = [weak = weak_from_this(), raw = watcher.get()] {
    if (const auto self = weak.lock()) std::erase_if(self->watchers_, [raw](const auto& w) { return w.get() == raw; });
  };
  watcher->responder->begin(
      {.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
  watchers_.push_back(std::move(watcher));
  if (!std::exchange(ticking_, true)) tick();
}

void PoolFeed::tick() {
  if (watchers_.empty() || stopped_) {
    ticking_ = false;
    shadow_.clear();
    return;
  }
  const bool whole = std::ranges::any_of(
      watchers_, [](const auto& watcher) { return watcher->wants_whole && watcher->responder->pending() == 0; });
  const bool asked = service_->inspect([self = shared_from_this(), from = cursor_, whole](engine::Engine& engine) {
    auto view = std::make_shared<PoolView>(look(engine, from, whole));
    auto changes = std::make_shared<PoolChanges>(self->shadow_.look(engine));
    self->loop_->post([self, view, changes] {
      self->tell(*view, *changes);
      self->loop_->after(kTick, [self] { self->tick(); });
    });
  });
  if (!asked) ticking_ = false;
}

void PoolFeed::tell(const PoolView& view, const PoolChanges& changes) {
  const auto integrity = service_->integrity();
  const Clock::time_point now = Clock::now();
  Stats stats = stats_of(view, facts_, integrity);
  Stats own_stats =
      stats_of({.own = true, .engine = view.engine, .pool = view.pool, .tiers = view.tiers}, facts_, integrity);
  const bool changed = !view.events.empty() || view.lost > 0 || !changes.empty() || stats != stats_;
  // Watchers who may see the same are told the same.
  std::map<Sight, Texts> texts;
  std::map<Sight, bool> followed;
  for (const auto& watcher : watchers_) followed[watcher->sight] |= !watcher->wants_whole;
  for (const auto& [sight, follows] : followed) {
    Texts& text = texts[sight];
    const std::optional<PoolView> own = sight ? std::optional(only_of(view, *sight)) : std::nullopt;
    const PoolView& seen = own ? *own : view;
    if (changed && follows && view.lost == 0) {
      const std::string moved = sight ? changes_json(only_of(changes, *sight), facts_) : changes_json(changes, facts_);
      const std::string counters = sight ? stats_json(own_stats, &own_stats_) : stats_json(stats, &stats_);
      text.change = fmt::format("event: change\ndata: {{\"cursor\":{},\"events\":{},{},\"stats\":{}}}\n\n", seen.cursor,
                                events_json(seen), moved, counters);
    }
    if (view.whole) text.whole = fmt::format("event: pool\ndata: {}\n\n", pool_json(seen, facts_, integrity));
  }
  // Writing may find that a watcher is gone, which changes watchers_. So this iterates over a copy.
  const auto watchers = watchers_;
  for (const auto& watcher : watchers) {
    const std::size_t pending = watcher->responder->pending();
    const bool new_here = watcher->wants_whole;
    if (!new_here && (view.lost > 0 || (changed && pending > kMostPending))) watcher->wants_whole = true;
    if (watcher->wants_whole) {
      if (new_here && view.whole && pending == 0) {
        watcher->wants_whole = false;
        watcher->spoken = now;
        watcher->responder->write(texts[watcher->sight].whole);
      }
    } else if (changed) {
      watcher->spoken = now;
      watcher->responder->write(texts[watcher->sight].change);
    }
    if (now - watcher->spoken >= kKeepAlive && pending == 0) {
      watcher->spoken = now;
      watcher->responder->write(": keep-alive\n\n");
    }
  }
  cursor_ = view.cursor;
  stats_ = std::move(stats);
  own_stats_ = std::move(own_stats);
}

void PoolFeed::restart() {
  for (const auto& watcher : std::exchange(watchers_, {})) {
    watcher->responder->on_gone = nullptr;
    watcher->responder->end();
  }
}

void PoolFeed::stop() {
  stopped_ = true;
  for (const auto& watcher : std::exchange(watchers_, {})) {
    watcher->responder->on_gone = nullptr;
    watcher->responder->write(fmt::format("event: error\ndata: {}\n\n", to_json(stopping())));
    watcher->responder->end();
  }
}

}  // namespace quire::server

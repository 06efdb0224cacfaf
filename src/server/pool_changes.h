// What has changed in the pool since the last look, for /pool/events. A sequence of 32,000 tokens has thousands of
// pages in its tables, and a step adds a few. So tables that have another version than at the last look are compared on
// the engine's thread, and only what differs leaves it.
//
// Who may call: PoolShadow::look() on the engine's thread; one call at a time. The rest anywhere.
// What holds: who applies every change in its order to the sequences of an earlier look(engine, ..., true) has the
//   sequences of now.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/engine/engine.h"
#include "quire/server/pool_view.h"

namespace quire::server {

using SequenceKey = std::pair<RequestId, std::uint32_t>;  // request and choice

struct PoolChanges {
  // The pages of a table from `at` on that are new there.
  struct Run {
    std::uint32_t at = 0;
    std::vector<std::uint32_t> pages;  // kNoIndex: the page was released
  };
  struct Table {
    std::uint32_t group = 0;
    std::uint32_t size = 0;  // pages now
    std::vector<Run> runs;
  };
  struct Sequence {
    engine::SequenceInfo before, now;
    std::vector<Table> tables;  // those that differ
    std::optional<std::uint32_t> slot;
    bool slot_changed = false;
  };

  std::vector<PoolView::Sequence> began;
  std::vector<Sequence> changed;
  struct Ended {
    SequenceKey key;
    Namespace name_space = 0;
  };
  std::vector<Ended> ended;

  bool empty() const { return began.empty() && changed.empty() && ended.empty(); }
};

// The sequences as they were at the last look.
class PoolShadow {
 public:
  PoolChanges look(engine::Engine& engine);
  void clear() { known_.clear(); }

 private:
  struct Known {
    engine::SequenceInfo info;
    struct Table {
      std::vector<PageId> pages;
      std::uint64_t version = 0;  // of the pool's table, while the sequence is the same
    };
    std::vector<Table> tables;  // by group
    std::optional<std::uint32_t> slot;
    std::uint64_t seen = 0;  // the look that saw it last
  };
  void begin(const SequencePool& pool, const engine::SequenceInfo& info, Known& known, PoolChanges& changes);
  void compare(const SequencePool& pool, const engine::SequenceInfo& info, Known& known, PoolChanges& changes);

  std::map<SequenceKey, Known> known_;
  std::uint64_t looks_ = 0;
};

// What a tenant may see of it.
PoolChanges only_of(const PoolChanges& changes, Namespace tenant);

// "began":[...],"changed":[...],"ended":[...]; see docs/api.md.
std::string changes_json(const PoolChanges& changes, const PoolFacts& facts);

}  // namespace quire::server

// A snapshot of the pool for people: every page that is not free, every recurrent state, every sequence with its block
// tables, all counters. It is taken on the engine's thread as plain numbers and turned into JSON on another thread.
// What changes between two snapshots is in pool_changes.h.
//
// Who may call: look() on the engine's thread; the rest anywhere.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/engine/engine.h"
#include "quire/engine/service.h"
#include "quire/tiers/tiers.h"

namespace quire::server {

struct PoolView {
  struct Page {
    std::uint32_t index = 0;
    std::uint32_t owners = 0;  // 0: cached
  };
  struct Slot {
    std::uint32_t index = 0;
    bool checkpoint = false;
    RequestId request = 0;
  };
  struct Sequence {
    engine::SequenceInfo info;
    std::vector<std::vector<std::uint32_t>> tables;  // by group; kNoIndex: the page was released
    std::optional<std::uint32_t> slot;
  };

  bool whole = false;                    // it has pages, slots and sequences
  bool own = false;                      // only of one tenant; see only_of()
  std::vector<std::vector<Page>> pages;  // by group
  // By group: all page ids are below this. There can be more ids than pages, because states share the memory.
  std::vector<std::uint32_t> page_ids;
  std::vector<Slot> slots;
  std::vector<Sequence> sequences;
  std::uint64_t cursor = 0;  // of the pool's events
  std::uint64_t lost = 0;    // events that are missing before those in `events`
  std::vector<PoolEvent> events;
  engine::EngineStats engine;
  PoolStats pool;
  std::optional<tiers::TiersStats> tiers;  // empty: there are none
};

// Takes a snapshot with the events since `from`. `whole`: with every page, slot and sequence.
PoolView look(engine::Engine& engine, std::uint64_t from, bool whole);
// What a tenant may see: its own sequences, with the pages and slots that they hold. Of the rest it sees only the sums,
// so there are no events.
PoolView only_of(const PoolView& view, Namespace tenant);

// Facts about the pool that never change.
struct PoolFacts {
  std::string model;
  std::uint32_t block_size = 0;
  std::uint32_t context = 0;
  struct Group {
    std::uint32_t window = 0;
    std::uint64_t page_bytes = 0;
  };
  std::vector<Group> groups;
  std::uint64_t state_bytes = 0;      // 0: no recurrent layers
  std::uint32_t checkpoint_unit = 0;  // tokens; 0: no recurrent layers
  bool has_keys = false;              // see miss_reason()
};
PoolFacts facts_of(const SequencePool& pool, std::string model, bool has_keys);

std::string pool_json(const PoolView& view, const PoolFacts& facts, const engine::Service::Integrity& integrity);
std::string events_json(const PoolView& view);

// A sequence as an object with all its fields.
void put_sequence(std::string& out, const PoolView::Sequence& sequence, const PoolFacts& facts);
// The fields of a sequence that differ from `before`, each with a comma in front; null: all. Without tables and slot.
void put_fields(std::string& out, const engine::SequenceInfo& now, const engine::SequenceInfo* before,
                const PoolFacts& facts);

// The counters: names, and their values as JSON. What is wrong with a tier is said in words only to who may see all:
// the words may name a path or a host.
using Stats = std::vector<std::pair<std::string_view, std::string>>;
Stats stats_of(const PoolView& view, const PoolFacts& facts, const engine::Service::Integrity& integrity);
// As a JSON object. `before` has the same names: then only what differs from it.
std::string stats_json(const Stats& stats, const Stats* before = nullptr);

std::string_view name(PoolEvent::Kind kind);

}  // namespace quire::server

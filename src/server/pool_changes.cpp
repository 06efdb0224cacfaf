#include "quire/server/pool_changes.h"

#include <algorithm>
#include <span>

#include "quire/server/json_text.h"

namespace quire::server {
namespace {

std::span<const PageId> table_of(const SequencePool& pool, const engine::SequenceInfo& info, std::uint32_t group) {
  if (!info.sequence.valid()) return {};
  const auto pages = pool.pages(info.sequence, group);
  return pages ? *pages : std::span<const PageId>();
}

std::uint64_t version_of(const SequencePool& pool, const engine::SequenceInfo& info, std::uint32_t group) {
  return info.sequence.valid() ? pool.pages_version(info.sequence, group).value_or(0) : 0;
}

std::optional<std::uint32_t> slot_of(const SequencePool& pool, const engine::SequenceInfo& info) {
  if (!info.sequence.valid()) return std::nullopt;
  const auto slot = pool.slot(info.sequence);
  return slot ? std::optional(slot->index) : std::nullopt;
}

bool same(const engine::SequenceInfo& a, const engine::SequenceInfo& b) {
  return a.state == b.state && a.prompt_tokens == b.prompt_tokens && a.tokens == b.tokens && a.computed == b.computed &&
         a.max_tokens == b.max_tokens && a.waits_for_prefix == b.waits_for_prefix &&
         a.waits_for_tier == b.waits_for_tier && a.from == b.from && a.hit.tokens == b.hit.tokens &&
         a.hit.matched == b.hit.matched && a.hit.end == b.hit.end && a.priority == b.priority &&
         a.suspensions == b.suspensions;
}

// Appends what differs between two tables, and makes `old` the same as `now`.
void compare_tables(std::uint32_t group, std::vector<PageId>& old, std::span<const PageId> now,
                    std::vector<PoolChanges::Table>& out) {
  const std::size_t common = std::min(old.size(), now.size());
  const auto first = static_cast<std::size_t>(
      std::mismatch(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(common), old.begin()).first - now.begin());
  if (first == common && old.size() == now.size()) return;
  PoolChanges::Table& table =
      out.emplace_back(PoolChanges::Table{.group = group, .size = static_cast<std::uint32_t>(now.size())});
  old.resize(now.size(), PageId());
  bool in_run = false;
  for (std::size_t i = first; i < now.size(); ++i) {
    const bool differs = i >= common || old[i] != now[i];
    if (differs && !in_run) table.runs.push_back({.at = static_cast<std::uint32_t>(i)});
    if (differs) table.runs.back().pages.push_back(now[i].index);
    in_run = differs;
    old[i] = now[i];
  }
}

void put_page(std::string& out, std::uint32_t page) {
  if (page == kNoIndex) {
    out += "null";
  } else {
    put(out, "{}", page);
  }
}

void put_table(std::string& out, const PoolChanges::Table& table) {
  put(out, R"({{"group":{},"size":{},"runs":)", table.group, table.size);
  {
    JsonList runs(out);
    for (const PoolChanges::Run& run : table.runs) {
      put(runs.next(), "[{},", run.at);
      {
        JsonList pages(out);
        for (const std::uint32_t page : run.pages) put_page(pages.next(), page);
      }
      out += ']';
    }
  }
  out += '}';
}

void put_changed(std::string& out, const PoolChanges::Sequence& sequence, const PoolFacts& facts) {
  put(out, R"({{"request":{},"choice":{})", sequence.now.request, sequence.now.choice);
  put_fields(out, sequence.now, &sequence.before, facts);
  if (!sequence.tables.empty()) {
    out += ",\"tables\":";
    JsonList tables(out);
    for (const PoolChanges::Table& table : sequence.tables) put_table(tables.next(), table);
  }
  if (sequence.slot_changed) {
    out += ",\"slot\":";
    put_page(out, sequence.slot.value_or(kNoIndex));
  }
  out += '}';
}

}  // namespace

PoolChanges PoolShadow::look(engine::Engine& engine) {
  const SequencePool& pool = engine.pool();
  PoolChanges changes;
  ++looks_;
  for (const engine::SequenceInfo& info : engine.sequences()) {
    const auto [at, is_new] = known_.try_emplace({info.request, info.choice});
    at->second.seen = looks_;
    if (is_new) {
      begin(pool, info, at->second, changes);
    } else {
      compare(pool, info, at->second, changes);
    }
  }
  std::erase_if(known_, [&](const auto& entry) {
    if (entry.second.seen == looks_) return false;
    changes.ended.push_back({entry.first, entry.second.info.name_space});
    return true;
  });
  return changes;
}

void PoolShadow::begin(const SequencePool& pool, const engine::SequenceInfo& info, Known& known, PoolChanges& changes) {
  PoolView::Sequence& began = changes.began.emplace_back();
  began.info = known.info = info;
  began.slot = known.slot = slot_of(pool, info);
  for (std::uint32_t g = 0; g < pool.layout().groups.size(); ++g) {
    const auto pages = table_of(pool, info, g);
    known.tables.push_back({.pages = {pages.begin(), pages.end()}, .version = version_of(pool, info, g)});
    std::vector<std::uint32_t>& table = began.tables.emplace_back();
    table.reserve(pages.size());
    for (const PageId page : pages) table.push_back(page.index);
  }
}

void PoolShadow::compare(const SequencePool& pool, const engine::SequenceInfo& info, Known& known,
                         PoolChanges& changes) {
  PoolChanges::Sequence change{.before = known.info, .now = info, .slot = slot_of(pool, info)};
  for (std::uint32_t g = 0; g < known.tables.size(); ++g) {
    Known::Table& table = known.tables[g];
    const std::uint64_t version = version_of(pool, info, g);
    if (version == table.version && info.sequence == known.info.sequence) continue;
    table.version = version;
    compare_tables(g, table.pages, table_of(pool, info, g), change.tables);
  }
  change.slot_changed = change.slot != known.slot;
  const bool unchanged = same(info, known.info) && change.tables.empty() && !change.slot_changed;
  known.info = info;  // the id of its sequence may differ
  if (unchanged) return;
  known.slot = change.slot;
  changes.changed.push_back(std::move(change));
}

PoolChanges only_of(const PoolChanges& changes, Namespace tenant) {
  PoolChanges own;
  for (const PoolView::Sequence& one : changes.began) {
    if (one.info.name_space == tenant) own.began.push_back(one);
  }
  for (const PoolChanges::Sequence& one : changes.changed) {
    if (one.now.name_space == tenant) own.changed.push_back(one);
  }
  for (const PoolChanges::Ended& one : changes.ended) {
    if (one.name_space == tenant) own.ended.push_back(one);
  }
  return own;
}

std::string changes_json(const PoolChanges& changes, const PoolFacts& facts) {
  std::string out = "\"began\":";
  {
    JsonList began(out);
    for (const PoolView::Sequence& sequence : changes.began) put_sequence(began.next(), sequence, facts);
  }
  out += ",\"changed\":";
  {
    JsonList changed(out);
    for (const PoolChanges::Sequence& sequence : changes.changed) put_changed(changed.next(), sequence, facts);
  }
  out += ",\"ended\":";
  {
    JsonList ended(out);
    for (const PoolChanges::Ended& one : changes.ended) put(ended.next(), "[{},{}]", one.key.first, one.key.second);
  }
  return out;
}

}  // namespace quire::server

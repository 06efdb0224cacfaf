#include "quire/server/pool_view.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "quire/server/completion_format.h"

namespace quire::server {
namespace {

template <typename... Args>
void put(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

// Writes a JSON array: puts commas between the elements.
class List {
 public:
  explicit List(std::string& out) : out_(out) { out_ += '['; }
  ~List() { out_ += ']'; }
  std::string& next() {
    if (!std::exchange(first_, false)) out_ += ',';
    return out_;
  }

 private:
  std::string& out_;
  bool first_ = true;
};

// Writes a JSON object of numbers.
class Numbers {
 public:
  explicit Numbers(std::string& out) : out_(out) {}
  template <typename T>
  void add(std::string_view name, T value) {
    put(out_, "{}\"{}\":{}", std::exchange(first_, false) ? "" : ",", name, value);
  }

 private:
  std::string& out_;
  bool first_ = true;
};

std::string integrity_text(const engine::Service::Integrity& integrity) {
  if (!integrity.checked) return "unchecked";
  return integrity.sound ? "sound" : integrity.problem;
}

void put_counts(std::string& out, const ObjectCounts& counts) {
  put(out, R"("total":{},"free":{},"held":{},"cached":{})", counts.total, counts.free, counts.held, counts.cached);
}

}  // namespace

std::string_view name(PoolEvent::Kind kind) {
  using Kind = PoolEvent::Kind;
  switch (kind) {
    case Kind::PageTaken: return "page_taken";
    case Kind::PageShared: return "page_shared";
    case Kind::PageCached: return "page_cached";
    case Kind::PageRevived: return "page_revived";
    case Kind::PageFreed: return "page_freed";
    case Kind::PagePublished: return "page_published";
    case Kind::PageEvicted: return "page_evicted";
    case Kind::PageCopied: return "page_copied";
    case Kind::PageMoved: return "page_moved";
    case Kind::SlotTaken: return "slot_taken";
    case Kind::SlotMoved: return "slot_moved";
    case Kind::SlotReleased: return "slot_released";
    case Kind::CheckpointStored: return "checkpoint_stored";
    case Kind::CheckpointDropped: return "checkpoint_dropped";
    case Kind::CheckpointRestored: return "checkpoint_restored";
    case Kind::SlabTaken: return "slab_taken";
    case Kind::SlabGiven: return "slab_given";
    case Kind::SequenceCreated: return "sequence_created";
    case Kind::SequenceForked: return "sequence_forked";
    case Kind::SequenceRewound: return "sequence_rewound";
    case Kind::SequenceReleased: return "sequence_released";
  }
  return "?";
}

PoolView look(engine::Engine& engine, std::uint64_t from, bool whole) {
  const SequencePool& pool = engine.pool();
  const auto groups = static_cast<std::uint32_t>(pool.layout().groups.size());
  PoolView view{.whole = whole, .engine = engine.stats(), .pool = pool.stats()};

  for (const engine::SequenceInfo& info : engine.sequences()) {
    PoolView::Sequence& sequence = view.sequences.emplace_back();
    sequence.info = info;
    sequence.tables.resize(groups);
    if (!info.sequence.valid()) continue;
    for (std::uint32_t g = 0; g < groups; ++g) {
      const auto pages = pool.pages(info.sequence, g);
      if (!pages) continue;
      for (const PageId page : *pages) sequence.tables[g].push_back(page.index);
    }
    if (const auto slot = pool.slot(info.sequence)) sequence.slot = slot->index;
  }
  // The order of the engine's lists changes from step to step. A fixed order is easier to read.
  std::ranges::sort(view.sequences, {},
                    [](const PoolView::Sequence& s) { return std::pair(s.info.request, s.info.choice); });

  if (whole) {
    for (std::uint32_t g = 0; g < groups; ++g) {
      const BlockAllocator& allocator = pool.block_pool(g).allocator();
      std::vector<PoolView::Page>& pages = view.pages.emplace_back();
      view.page_ids.push_back(allocator.index_limit());
      for (std::uint32_t i = 0; i < allocator.index_limit(); ++i) {
        const std::uint32_t owners = allocator.references_at(i);
        if (owners > 0 || allocator.is_kept(i)) pages.push_back({i, owners});
      }
    }
    if (pool.layout().has_recurrent()) {
      for (std::uint32_t i = 0;; ++i) {
        const auto slot = pool.ssm_slot(i);
        if (!slot) break;
        const RequestId request = (*slot)->request();
        // A slot without a request whose position is not 0 is a checkpoint. A free slot has position 0.
        if (request != 0 || (*slot)->position() > 0) view.slots.push_back({i, request == 0, request});
      }
    }
  }

  const EventLog& log = pool.events();
  view.events.resize(
      static_cast<std::size_t>(std::min<std::uint64_t>(log.written() - std::min(from, log.written()), 1 << 16)));
  const EventLog::Read read = log.read(from, view.events);
  view.events.resize(read.count);
  // Events beyond the limit of one read count as lost.
  view.lost = read.lost + (log.written() - read.cursor);
  view.cursor = log.written();
  return view;
}

PoolView only_of(const PoolView& view, Namespace tenant) {
  PoolView own{.whole = view.whole,
               .own = true,
               .page_ids = view.page_ids,
               .cursor = view.cursor,
               .lost = view.lost,
               .engine = view.engine,
               .pool = view.pool};
  std::vector<std::set<std::uint32_t>> held(view.pages.size());
  std::set<std::uint32_t> slots;
  for (const PoolView::Sequence& sequence : view.sequences) {
    if (sequence.info.name_space != tenant) continue;
    own.sequences.push_back(sequence);
    for (std::size_t g = 0; g < held.size(); ++g) held[g].insert(sequence.tables[g].begin(), sequence.tables[g].end());
    if (sequence.slot) slots.insert(*sequence.slot);
  }
  for (std::size_t g = 0; g < view.pages.size(); ++g) {
    std::vector<PoolView::Page>& pages = own.pages.emplace_back();
    std::ranges::copy_if(view.pages[g], std::back_inserter(pages),
                         [&](const PoolView::Page& page) { return held[g].contains(page.index); });
  }
  std::ranges::copy_if(view.slots, std::back_inserter(own.slots),
                       [&](const PoolView::Slot& slot) { return slots.contains(slot.index); });
  return own;
}

PoolFacts facts_of(const SequencePool& pool, std::string model, bool has_keys) {
  PoolFacts facts{.model = std::move(model),
                  .block_size = pool.layout().block_size,
                  .context = pool.config().max_tokens,
                  .has_keys = has_keys};
  for (const PageShape& group : pool.layout().groups) facts.groups.push_back({group.window, group.page_bytes()});
  if (pool.layout().has_recurrent()) facts.state_bytes = pool.layout().recurrent.bytes();
  return facts;
}

std::string sequences_json(const PoolView& view, const PoolFacts& facts) {
  std::string out;
  {
    List list(out);
    for (const PoolView::Sequence& sequence : view.sequences) {
      const engine::SequenceInfo& info = sequence.info;
      put(list.next(),
          R"({{"request":{},"choice":{},"state":"{}","prompt_tokens":{},"tokens":{},"computed":{},"max_tokens":{},)"
          R"("hit":{{"tokens":{},"matched":{},"end":"{}"}},"waits_for_prefix":{},"priority":{},"suspensions":{},"tables":)",
          info.request, info.choice, engine::name(info.state), info.prompt_tokens, info.tokens, info.computed,
          info.max_tokens, info.hit.tokens, info.hit.matched, miss_reason(info.hit.end, facts.has_keys),
          info.waits_for_prefix, info.priority, info.suspensions);
      {
        List tables(out);
        for (const auto& table : sequence.tables) {
          tables.next();
          List pages(out);
          for (const std::uint32_t page : table) {
            if (page == kNoIndex) {
              pages.next() += "null";
            } else {
              put(pages.next(), "{}", page);
            }
          }
        }
      }
      if (sequence.slot) {
        put(out, ",\"slot\":{}}}", *sequence.slot);
      } else {
        out += ",\"slot\":null}";
      }
    }
  }
  return out;
}

std::string stats_json(const PoolView& view, const PoolFacts& facts, const engine::Service::Integrity& integrity) {
  std::string out = "{";
  Numbers n(out);
  const engine::EngineStats& e = view.engine;
  n.add("waiting", e.waiting);
  n.add("running", e.running);
  n.add("suspended", e.suspended);
  n.add("steps", e.steps);
  n.add("submitted", e.submitted);
  n.add("refused", e.refused);
  n.add("finished", e.finished);
  n.add("cancelled", e.cancelled);
  n.add("expired", e.expired);
  n.add("prompt_tokens", e.prompt_tokens);
  n.add("cached_tokens", e.cached_tokens);
  n.add("computed_tokens", e.computed_tokens);
  n.add("generated_tokens", e.generated_tokens);
  n.add("suspensions_by_copy", e.suspensions_by_copy);
  n.add("suspensions_by_recompute", e.suspensions_by_recompute);
  n.add("resumed", e.resumed);
  n.add("bytes_saved", e.bytes_saved);
  n.add("host_bytes", e.host_bytes);
  n.add("host_capacity_bytes", e.host_capacity_bytes);
  n.add("copies_lost", e.copies_lost);
  n.add("prefix_waits", e.prefix_waits);
  n.add("model_seconds", e.model_seconds);
  n.add("total_seconds", e.total_seconds);
  const PoolStats& p = view.pool;
  n.add("slabs", p.slabs);
  n.add("free_slabs", p.free_slabs);
  n.add("arena_bytes", p.arena_bytes);
  n.add("sequences", p.sequences);
  n.add("sequences_high_water", p.sequences_high_water);
  n.add("prefix_blocks", p.prefix_blocks);
  n.add("lookups", p.lookups);
  n.add("lookup_tokens", p.lookup_tokens);
  n.add("hit_tokens", p.hit_tokens);
  n.add("blocks_published", p.blocks_published);
  n.add("blocks_deduplicated", p.blocks_deduplicated);
  n.add("blocks_evicted", p.blocks_evicted);
  n.add("window_pages_evicted", p.window_pages_evicted);
  n.add("checkpoints_stored", p.checkpoints_stored);
  n.add("checkpoints_dropped", p.checkpoints_dropped);
  n.add("checkpoints_restored", p.checkpoints_restored);
  n.add("checkpoints_skipped", p.checkpoints_skipped);
  n.add("pages_copied", p.pages_copied);
  n.add("objects_moved", p.objects_moved);
  n.add("forks", p.forks);
  n.add("rewinds", p.rewinds);
  n.add("refusals", p.refusals);
  n.add("scrub_failures", p.scrub_failures);
  {
    auto ends = p.hit_ends;
    if (facts.has_keys) {
      ends[static_cast<std::size_t>(HitEnd::NeverSeen)] +=
          std::exchange(ends[static_cast<std::size_t>(HitEnd::OtherNamespace)], 0);
    }
    out += ",\"hit_ends\":{";
    Numbers by_end(out);
    for (std::size_t i = 0; i < kHitEnds; ++i) by_end.add(quire::name(static_cast<HitEnd>(i)), ends[i]);
    out += '}';
  }
  // The counts of objects: pages of each group, then states. They are here so that changes contain them too.
  out += ",\"pages\":";
  {
    List groups(out);
    for (const ObjectCounts& counts : p.pages) {
      groups.next() += '{';
      put_counts(out, counts);
      out += '}';
    }
  }
  if (facts.state_bytes != 0) {
    out += ",\"states\":{";
    put_counts(out, p.states);
    out += '}';
  }
  out += ",\"integrity\":";
  append_json_string(out, integrity_text(integrity));
  out += '}';
  return out;
}

std::string events_json(const PoolView& view) {
  std::string out;
  {
    List list(out);
    for (const PoolEvent& event : view.events) {
      put(list.next(), "[\"{}\",{},{},{}]", name(event.kind), event.group, event.object, event.detail);
    }
  }
  return out;
}

std::string pool_json(const PoolView& view, const PoolFacts& facts, const engine::Service::Integrity& integrity) {
  std::string out = "{\"model\":";
  append_json_string(out, facts.model);
  put(out, R"(,"scope":"{}","block_size":{},"context":{},"arena_bytes":{},"slabs":{},"free_slabs":{},"cursor":{},)",
      view.own ? "own" : "all", facts.block_size, facts.context, view.pool.arena_bytes, view.pool.slabs,
      view.pool.free_slabs, view.cursor);
  out += "\"groups\":";
  {
    List groups(out);
    for (std::size_t g = 0; g < facts.groups.size(); ++g) {
      put(groups.next(), R"({{"window":{},"page_bytes":{},)", facts.groups[g].window, facts.groups[g].page_bytes);
      put_counts(out, view.pool.pages[g]);
      put(out, ",\"ids\":{},\"pages\":", view.page_ids[g]);
      {
        List pages(out);
        for (const PoolView::Page& page : view.pages[g]) {
          put(pages.next(), "[{},{},\"{}\"]", page.index, page.owners, page.owners > 0 ? "held" : "cached");
        }
      }
      out += '}';
    }
  }
  if (facts.state_bytes != 0) {
    put(out, R"(,"states":{{"bytes":{},)", facts.state_bytes);
    put_counts(out, view.pool.states);
    out += ",\"slots\":";
    {
      List slots(out);
      for (const PoolView::Slot& slot : view.slots) {
        put(slots.next(), "[{},\"{}\",{}]", slot.index, slot.checkpoint ? "checkpoint" : "held", slot.request);
      }
    }
    out += '}';
  }
  out += ",\"sequences\":";
  out += sequences_json(view, facts);
  out += ",\"stats\":";
  out += stats_json(view, facts, integrity);
  out += '}';
  return out;
}

}  // namespace quire::server

#include "quire/server/pool_view.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "quire/server/completion_format.h"
#include "quire/server/json_text.h"

namespace quire::server {
namespace {

std::string integrity_text(const engine::Service::Integrity& integrity) {
  if (!integrity.checked) return "unchecked";
  return integrity.sound ? "sound" : integrity.problem;
}

std::string tier_json(const tiers::TiersStats::One& tier, bool own) {
  const TierUsage& u = tier.usage;
  std::string out = fmt::format(R"({{"kind":"{}","working":{})", name(tier.kind), u.working);
  if (!u.working && !own) {
    out += ",\"problem\":";
    append_json_string(out, u.problem);
  }
  std::uint64_t damaged = 0;
  for (const std::uint64_t count : u.damaged) damaged += count;
  put(out, R"(,"bytes":{},"capacity_bytes":{},"objects":{},"puts":{},"gets":{},"hits":{},"misses":{},)", u.bytes,
      u.capacity_bytes, u.objects, u.puts, u.gets, u.hits, u.misses);
  put(out, R"("written_bytes":{},"read_bytes":{},"evicted":{},"failed":{},"refused":{},"damaged":{},"tokens":{}}})",
      u.bytes_written, u.bytes_read, u.evicted, u.failed, u.refused, damaged, tier.tokens);
  return out;
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

namespace {

void add_sequences(engine::Engine& engine, PoolView& view) {
  const SequencePool& pool = engine.pool();
  const auto groups = static_cast<std::uint32_t>(pool.layout().groups.size());
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
}

}  // namespace

PoolView look(engine::Engine& engine, std::uint64_t from, bool whole) {
  const SequencePool& pool = engine.pool();
  const auto groups = static_cast<std::uint32_t>(pool.layout().groups.size());
  PoolView view{.whole = whole, .engine = engine.stats(), .pool = pool.stats()};
  if (const tiers::Tiers* const tiers = engine.options().tiers; tiers != nullptr) view.tiers = tiers->stats();

  if (whole) {
    add_sequences(engine, view);
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
               .pool = view.pool,
               .tiers = view.tiers};
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
  if (pool.layout().has_recurrent()) {
    facts.state_bytes = pool.layout().recurrent.bytes();
    facts.checkpoint_unit = pool.config().checkpoint_unit;
  }
  return facts;
}

void put_fields(std::string& out, const engine::SequenceInfo& now, const engine::SequenceInfo* before,
                const PoolFacts& facts) {
  const auto number = [&](std::string_view name, auto engine::SequenceInfo::*field) {
    if (before == nullptr || before->*field != now.*field) put(out, ",\"{}\":{}", name, now.*field);
  };
  using Info = engine::SequenceInfo;
  if (before == nullptr || before->state != now.state) put(out, ",\"state\":\"{}\"", engine::name(now.state));
  number("prompt_tokens", &Info::prompt_tokens);
  number("tokens", &Info::tokens);
  number("computed", &Info::computed);
  number("max_tokens", &Info::max_tokens);
  if (before == nullptr || before->hit.tokens != now.hit.tokens || before->hit.matched != now.hit.matched ||
      before->hit.end != now.hit.end || before->from != now.from) {
    put(out, R"(,"hit":{{"tokens":{},"from":{},"matched":{},"end":"{}"}})", now.hit.tokens,
        from_json(now.hit.tokens, reused_from(now.hit, now.from)), now.hit.matched,
        miss_reason(now.hit.end, facts.has_keys));
  }
  number("waits_for_prefix", &Info::waits_for_prefix);
  number("waits_for_tier", &Info::waits_for_tier);
  number("priority", &Info::priority);
  number("suspensions", &Info::suspensions);
}

void put_sequence(std::string& out, const PoolView::Sequence& sequence, const PoolFacts& facts) {
  put(out, R"({{"request":{},"choice":{})", sequence.info.request, sequence.info.choice);
  put_fields(out, sequence.info, nullptr, facts);
  out += ",\"tables\":";
  {
    JsonList tables(out);
    for (const auto& table : sequence.tables) {
      tables.next();
      JsonList pages(out);
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

Stats stats_of(const PoolView& view, const PoolFacts& facts, const engine::Service::Integrity& integrity) {
  Stats stats;
  const auto add = [&](std::string_view name, auto value) { stats.emplace_back(name, fmt::format("{}", value)); };
  const engine::EngineStats& e = view.engine;
  add("waiting", e.waiting);
  add("running", e.running);
  add("suspended", e.suspended);
  add("steps", e.steps);
  add("submitted", e.submitted);
  add("refused", e.refused);
  add("finished", e.finished);
  add("cancelled", e.cancelled);
  add("expired", e.expired);
  add("prompt_tokens", e.prompt_tokens);
  add("cached_tokens", e.cached_tokens);
  add("computed_tokens", e.computed_tokens);
  add("generated_tokens", e.generated_tokens);
  add("drafted_tokens", e.drafted_tokens);
  add("accepted_tokens", e.accepted_tokens);
  add("suspensions_by_copy", e.suspensions_by_copy);
  add("suspensions_by_recompute", e.suspensions_by_recompute);
  add("resumed", e.resumed);
  add("bytes_saved", e.bytes_saved);
  add("host_bytes", e.host_bytes);
  add("host_capacity_bytes", e.host_capacity_bytes);
  add("copies_lost", e.copies_lost);
  add("prefix_waits", e.prefix_waits);
  add("model_seconds", e.model_seconds);
  add("total_seconds", e.total_seconds);
  const PoolStats& p = view.pool;
  add("slabs", p.slabs);
  add("free_slabs", p.free_slabs);
  add("arena_bytes", p.arena_bytes);
  add("sequences", p.sequences);
  add("sequences_high_water", p.sequences_high_water);
  add("prefix_blocks", p.prefix_blocks);
  add("lookups", p.lookups);
  add("lookup_tokens", p.lookup_tokens);
  add("hit_tokens", p.hit_tokens);
  add("blocks_published", p.blocks_published);
  add("blocks_deduplicated", p.blocks_deduplicated);
  add("blocks_evicted", p.blocks_evicted);
  add("window_pages_evicted", p.window_pages_evicted);
  add("checkpoints_stored", p.checkpoints_stored);
  add("checkpoints_dropped", p.checkpoints_dropped);
  add("checkpoints_restored", p.checkpoints_restored);
  add("checkpoints_skipped", p.checkpoints_skipped);
  add("pages_copied", p.pages_copied);
  add("objects_moved", p.objects_moved);
  add("forks", p.forks);
  add("rewinds", p.rewinds);
  add("refusals", p.refusals);
  add("scrub_failures", p.scrub_failures);
  auto ends = p.hit_ends;
  if (facts.has_keys) {
    ends[static_cast<std::size_t>(HitEnd::NeverSeen)] +=
        std::exchange(ends[static_cast<std::size_t>(HitEnd::OtherNamespace)], 0);
  }
  std::string by_end = "{";
  for (std::size_t i = 0; i < kHitEnds; ++i) {
    put(by_end, "{}\"{}\":{}", i == 0 ? "" : ",", quire::name(static_cast<HitEnd>(i)), ends[i]);
  }
  stats.emplace_back("hit_ends", by_end + "}");
  // The counts of objects: pages of each group, then states. They are here so that changes contain them too.
  std::string pages;
  {
    JsonList groups(pages);
    for (const ObjectCounts& counts : p.pages) {
      groups.next() += '{';
      put_counts(pages, counts);
      pages += '}';
    }
  }
  stats.emplace_back("pages", std::move(pages));
  if (facts.state_bytes != 0) {
    std::string states = "{";
    put_counts(states, p.states);
    stats.emplace_back("states", states + "}");
  }
  if (view.tiers) {
    const tiers::TiersStats& t = *view.tiers;
    add("tier_waits", e.tier_waits);
    add("tier_splits", e.tier_splits);
    add("tiers_staging_bytes", t.staging_used_bytes);
    add("tiers_staging_capacity_bytes", t.staging_bytes);
    add("tiers_pending", t.pending);
    add("tiers_written", t.written);
    add("tiers_lost", t.lost);
    add("tiers_promoted", t.promoted);
    std::string list;
    {
      JsonList all(list);
      for (const tiers::TiersStats::One& tier : t.tiers) all.next() += tier_json(tier, view.own);
    }
    stats.emplace_back("tiers", std::move(list));
  }
  std::string sound;
  append_json_string(sound, integrity_text(integrity));
  stats.emplace_back("integrity", std::move(sound));
  return stats;
}

std::string stats_json(const Stats& stats, const Stats* before) {
  std::string out;
  for (std::size_t i = 0; i < stats.size(); ++i) {
    if (before != nullptr && i < before->size() && (*before)[i] == stats[i]) continue;
    put(out, "{}\"{}\":{}", out.empty() ? "{" : ",", stats[i].first, stats[i].second);
  }
  return out.empty() ? "{}" : out + "}";
}

std::string events_json(const PoolView& view) {
  std::string out;
  {
    JsonList list(out);
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
    JsonList groups(out);
    for (std::size_t g = 0; g < facts.groups.size(); ++g) {
      put(groups.next(), R"({{"window":{},"page_bytes":{},)", facts.groups[g].window, facts.groups[g].page_bytes);
      put_counts(out, view.pool.pages[g]);
      put(out, ",\"ids\":{},\"pages\":", view.page_ids[g]);
      {
        JsonList pages(out);
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
      JsonList slots(out);
      for (const PoolView::Slot& slot : view.slots) {
        put(slots.next(), "[{},\"{}\",{}]", slot.index, slot.checkpoint ? "checkpoint" : "held", slot.request);
      }
    }
    out += '}';
  }
  out += ",\"sequences\":";
  {
    JsonList sequences(out);
    for (const PoolView::Sequence& sequence : view.sequences) put_sequence(sequences.next(), sequence, facts);
  }
  out += ",\"stats\":";
  out += stats_json(stats_of(view, facts, integrity));
  out += '}';
  return out;
}

}  // namespace quire::server

#include "quire/state/sequence_pool.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "quire/base/check.h"
#include "quire/base/machine.h"
#include "quire/state/out_of_memory.h"
#include "quire/state/pool_journal.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {
namespace {

using Kind = PoolEvent::Kind;

// Where nothing else limits it, the metadata of the prefix index may take this share of the memory it describes.
constexpr std::uint64_t kIndexShare = 16;

}  // namespace

const char* name(HitEnd end) {
  switch (end) {
    case HitEnd::Complete: return "complete";
    case HitEnd::NeverSeen: return "never seen";
    case HitEnd::Evicted: return "evicted";
    case HitEnd::OtherNamespace: return "other namespace";
    case HitEnd::NoCheckpoint: return "no checkpoint";
    case HitEnd::WindowGone: return "window gone";
    case HitEnd::NoRoom: return "no room";
    case HitEnd::Disabled: return "disabled";
  }
  return "?";
}

SequencePool::SequencePool(const PoolConfig& config) : config_(config), observer_(config.observer) {}
SequencePool::~SequencePool() = default;

PoolResult<std::unique_ptr<SequencePool>> SequencePool::create(Device& device, const PoolConfig& config) {
  // All bookkeeping is allocated here. The heap may be too small for absurd numbers of sequences or tokens.
  return or_out_of_memory("the bookkeeping of a pool", [&]() -> PoolResult<std::unique_ptr<SequencePool>> {
    std::unique_ptr<SequencePool> pool(new SequencePool(config));
    if (auto ok = pool->build(device); !ok) return std::unexpected(ok.error());
    if (config.journal != nullptr) {
      if (auto ok = config.journal->begin(*pool); !ok) return std::unexpected(ok.error());
    }
    return pool;
  });
}

PoolResult<void> SequencePool::build(Device& device) {
  StateLayout& layout = config_.layout;
  if (layout.groups.size() + 1 > std::tuple_size_v<Need>) {
    return std::unexpected(PoolError::invalid_argument("more layer groups than a pool can have"));
  }
  if (layout.block_size == 0) return std::unexpected(PoolError::invalid_argument("block size out of range"));
  if (config_.max_sequences == 0 || config_.max_tokens == 0) {
    return std::unexpected(PoolError::invalid_argument("a pool for no sequences, or for sequences of no tokens"));
  }
  if (config_.checkpoint_unit == 0 || config_.checkpoint_unit > layout.block_size) {
    config_.checkpoint_unit = layout.block_size;
  }
  if (layout.block_size % config_.checkpoint_unit != 0) {
    return std::unexpected(PoolError::invalid_argument("the checkpoint unit does not divide the block size"));
  }
  std::vector<std::uint64_t> sizes;
  for (const PageShape& shape : layout.groups) {
    if (auto ok = shape.check(); !ok) return ok;
    if (shape.block_size != layout.block_size) {
      return std::unexpected(PoolError::invalid_argument("layer groups with different block sizes"));
    }
    sizes.push_back(shape.page_bytes());
  }
  if (layout.has_recurrent()) {
    if (auto ok = layout.recurrent.check(); !ok) return ok;
    layout.recurrent.capacity = config_.max_tokens;
    sizes.push_back(layout.recurrent.bytes());
  }
  const auto slabs = plan_slabs(config_.budget_bytes, sizes, layout.groups.size());
  if (!slabs) return std::unexpected(slabs.error());
  for (const std::uint64_t bytes : sizes) {
    if (slabs->slab_bytes / bytes >= kNoIndex / slabs->slabs) {
      return std::unexpected(PoolError::invalid_argument("more objects than can be counted in 32 bits"));
    }
  }

  layout_fingerprint_ = fingerprint_of(layout);
  events_ = std::make_unique<EventLog>(config_.event_capacity);
  auto arena = Arena::create(device, slabs->slab_bytes, slabs->slabs, events_.get());
  if (!arena) return std::unexpected(arena.error());
  arena_ = std::make_unique<Arena>(std::move(*arena));

  max_blocks_ = divide_up(config_.max_tokens, layout.block_size);
  std::uint64_t nodes = UINT64_MAX;  // one per page of a group that keeps all its pages
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    pools_.push_back(
        std::make_unique<BlockPool>(*arena_, static_cast<std::uint16_t>(g), layout.groups[g], config_.scrub));
    page_infos_.emplace_back(pools_.back()->allocator().index_limit());
    leaving_.emplace_back(pools_.back()->allocator().index_limit());
    has_windows_ = has_windows_ || layout.groups[g].window != 0;
    if (layout.groups[g].window == 0) {
      nodes = std::min<std::uint64_t>(nodes, pools_.back()->allocator().index_limit());
    }
  }
  if (layout.has_recurrent()) {
    states_ = std::make_unique<SsmStatePool>(*arena_, static_cast<std::uint16_t>(state_class()), layout.recurrent);
    slot_infos_.resize(states_->allocator().index_limit());
    checkpoint_budget_ = std::min(config_.checkpoint_budget_bytes, config_.budget_bytes) / layout.recurrent.bytes();
    interval_units_ = std::max(1u, divide_up(config_.checkpoint_interval, unit()));
    max_gap_units_ = std::max(interval_units_, config_.max_recompute / unit());
  }
  if (nodes == UINT64_MAX) {
    // With its entries in the tables, among the candidates, and what is remembered of evicted blocks.
    const std::uint64_t node_bytes = sizeof(PrefixIndex::Node) + layout.block_size * sizeof(Token) + 224;
    nodes = std::clamp<std::uint64_t>(config_.budget_bytes / kIndexShare / node_bytes, 1024, kNoIndex / 4);
    nodes = std::min(nodes, std::uint64_t{max_blocks_} * config_.max_sequences * 4);
  }
  if (!config_.prefix_cache) nodes = 0;
  const auto seed = config_.hash_seed ? config_.hash_seed : random_seed();
  if (!seed) {
    return std::unexpected(PoolError::invalid_argument("the system provides no random seed for the prefix index"));
  }
  index_ = std::make_unique<PrefixIndex>(static_cast<std::uint32_t>(nodes), layout.block_size, groups(),
                                         states_ != nullptr, config_.hash_bits, *seed, config_.eviction, unit());
  for (const auto& pool : pools_) node_bytes_ += pool->shape().page_bytes();
  index_->set_object_bytes(std::span(sizes).first(layout.groups.size()), layout.recurrent.bytes());

  auto tables = PageTables::create(device, groups() * config_.max_sequences, max_blocks_);
  if (!tables) return std::unexpected(tables.error());
  tables_ = std::make_unique<PageTables>(std::move(*tables));
  build_views();

  sequences_.reserve(config_.max_sequences);
  for (std::uint32_t i = 0; i < config_.max_sequences; ++i) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.groups.reserve(pools_.size());
    for (std::uint32_t g = 0; g < groups(); ++g) {
      sequence.groups.emplace_back(*pools_[g], *tables_, g * config_.max_sequences + i);
    }
    sequence.nodes.resize(max_blocks_);
    sequence.tokens = std::make_unique_for_overwrite<Token[]>(std::size_t{max_blocks_} * layout.block_size);
  }
  for (std::uint32_t i = config_.max_sequences; i-- > 0;) free_sequences_.push_back(i);
  path_.resize(max_blocks_);
  sources_.resize(std::size_t{groups()} * max_blocks_ + 1);
  if (config_.journal != nullptr) not_copied_.reserve(std::size_t{groups()} * max_blocks_);
  growths_.resize(std::size_t{config_.max_sequences} * pools_.size());
  asked_in_.resize(config_.max_sequences);
  return {};
}

// What kernels see of each group and of the states. It does not change during the pool's lifetime.
void SequencePool::build_views() {
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const PageShape& shape = layout().groups[g];
    kv_groups_.push_back({.base = pools_[g]->base(),
                          .tables = tables_->device_row(g * config_.max_sequences),
                          .table_stride = max_blocks_,
                          .block_size = shape.block_size,
                          .num_kv_heads = shape.num_kv_heads,
                          .head_dim = shape.head_dim,
                          .type = shape.type,
                          .page_unit = pools_[g]->unit(),
                          .layer_stride = shape.layer_bytes(),
                          .v_offset = shape.value_offset(),
                          .head_stride = shape.head_bytes(),
                          .token_stride = shape.row_bytes()});
  }
  if (!states_) return;
  const StateShape& shape = layout().recurrent;
  states_view_ = {.base = arena_->base(),
                  .unit = std::gcd(arena_->slab_bytes(), shape.bytes()),
                  .layer_stride = shape.layer_stride(),
                  .ssm_offset = shape.conv_stride(),
                  .num_layers = shape.num_layers,
                  .type = shape.type};
}

const BlockAllocator& SequencePool::allocator(std::uint32_t cls) const {
  return cls < groups() ? pools_[cls]->allocator() : states_->allocator();
}
BlockAllocator& SequencePool::allocator(std::uint32_t cls) {
  return cls < groups() ? pools_[cls]->allocator() : states_->allocator();
}
std::uint64_t SequencePool::object_bytes(std::uint32_t cls) const {
  return cls < groups() ? pools_[cls]->shape().page_bytes() : layout().recurrent.bytes();
}

// The first position that the token at position `length` attends to.
std::uint32_t SequencePool::window_start(std::uint32_t group, std::uint32_t length) const {
  const std::uint32_t window = layout().groups[group].window;
  return window == 0 || length + 1 <= window ? 0 : length + 1 - window;
}

// --- plain operations

PoolResult<PageId> SequencePool::do_alloc_kv(std::uint32_t group) {
  if (group >= groups()) return std::unexpected(PoolError::invalid_slot(group));
  Need need{};
  need[group] = 1;
  if (!feasible(need)) return refuse(refusal(need));
  if (auto ok = make_room(need, Effort::Everything); !ok) return refuse(ok.error());
  const auto page = pools_[group]->allocate();
  QUIRE_CHECK(page.has_value(), "room was made");
  (void)allocator(group).pin(*page);
  page_infos_[group][page->index] = PageInfo{};
  return *page;
}

PoolResult<void> SequencePool::do_free_kv(PageId page, std::uint32_t group) {
  if (group >= groups()) return std::unexpected(PoolError::invalid_slot(group));
  if (const auto held = allocator(group).references(page); !held) return std::unexpected(held.error());
  if (!allocator(group).is_pinned(page.index)) return std::unexpected(PoolError::invalid_slot(page.index));
  return pools_[group]->free(page);
}

PoolResult<SlotId> SequencePool::do_alloc_ssm(RequestId request) {
  if (!states_) return std::unexpected(PoolError::invalid_slot(0));
  if (request == 0) return std::unexpected(PoolError::invalid_argument("request id 0 means none"));
  Need need{};
  need[state_class()] = 1;
  if (!feasible(need)) return refuse(refusal(need));
  if (auto ok = make_room(need, Effort::Everything); !ok) return refuse(ok.error());
  auto slot = states_->alloc(request);
  if (!slot) return refuse(slot.error());
  (void)states_->allocator().pin({slot->index, slot->generation});
  slot_infos_[slot->index] = SlotInfo{};
  events_->record(Kind::SlotTaken, state_class(), slot->index, request);
  return slot;
}

PoolResult<SequenceSlot*> SequencePool::ssm_slot(SlotId id) {
  if (!states_) return std::unexpected(PoolError::invalid_slot(id.index));
  auto slot = states_->slot(id);
  if (slot && !states_->allocator().is_pinned(id.index)) return std::unexpected(PoolError::invalid_slot(id.index));
  return slot;
}

PoolResult<void> SequencePool::do_release_ssm(SlotId id) {
  if (const auto slot = ssm_slot(id); !slot) return std::unexpected(slot.error());
  events_->record(Kind::SlotReleased, state_class(), id.index);
  return states_->release(id);
}

PoolResult<const SequenceSlot*> SequencePool::ssm_slot(std::uint32_t index) const {
  if (!states_) return std::unexpected(PoolError::invalid_slot(index));
  return states_->slot_at(index);
}

// --- sequences

// The objects that become held when a match is attached, including the state of the sequence.
SequencePool::Need SequencePool::need_to_attach(const Match& match, std::span<const std::uint32_t> path) const {
  Need need{};
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const auto count = [&](std::uint32_t node) {
      const PageId page = index_->page(node, g);
      need[g] += references_after_leaving(g, page) == 0;
    };
    for (std::uint32_t b = window_start(g, match.length()) / block_size(); b < match.blocks; ++b) count(path[b]);
    if (match.partial_tokens > 0) count(match.partial_node);
  }
  // The checkpoint is read after room was made, so there must be room for it beside the new state.
  if (states_) need[state_class()] = match.length() > 0 ? 2 : 1;
  return need;
}

PoolResult<SequencePool::Created> SequencePool::do_create(const Request& request) {
  if (request.prompt.size() > config_.max_tokens) {
    return std::unexpected(PoolError::too_long("tokens", request.prompt.size(), config_.max_tokens));
  }
  if (free_sequences_.empty()) return refuse(PoolError::exhausted("sequences", 1, 0));

  Match found;
  found.hit.end = HitEnd::Disabled;
  const bool look = request.reuse && config_.prefix_cache;
  if (look) found = match(request.prompt, request.name_space, path_);
  Need need = need_to_attach(found, path_);
  if (!feasible(need) && found.length() > 0) {
    // There is no room for the state beside the prefix. There may be room without the prefix.
    found = found.without_prefix();
    need = need_to_attach(found, path_);
  }
  if (!feasible(need)) return refuse(refusal(need));
  return create_from(request, found, look);
}

// Creates a sequence on the matched prefix, whose path is in path_. The caller has checked that there is room.
PoolResult<SequencePool::Created> SequencePool::create_from(const Request& request, const Match& found, bool looked) {
  const std::uint32_t index = free_sequences_.back();
  Sequence& sequence = sequences_[index];
  sequence.live = true;
  sequence.publishing = config_.prefix_cache;
  sequence.request = request_or_own(request.request);
  sequence.name_space = request.name_space;
  note_missed_checkpoint(found, request);
  if (auto ok = attach(sequence, found, path_); !ok) {
    detach(sequence);
    return refuse(ok.error());
  }
  free_sequences_.pop_back();
  if (found.length() > 0) std::memcpy(sequence.tokens.get(), request.prompt.data(), found.length() * sizeof(Token));
  if (looked) {
    ++counters_.lookups;
    counters_.lookup_tokens += request.prompt.size();
    counters_.hit_tokens += found.length();
  }
  ++counters_.hit_ends[static_cast<std::size_t>(found.hit.end)];
  ++counters_.sequences;
  counters_.sequences_high_water = std::max(counters_.sequences_high_water, counters_.sequences);
  events_->record(Kind::SequenceCreated, 0, index, found.length());
  return Created{{index, sequence.generation}, found.hit};
}

// Gives an empty sequence the pages of a path and a state. After an error the caller must detach() it.
PoolResult<void> SequencePool::attach(Sequence& sequence, const Match& match, std::span<const std::uint32_t> path) {
  for (std::uint32_t b = 0; b < match.blocks; ++b) {
    index_->hold(path[b]);
    sequence.nodes[b] = path[b];
  }
  sequence.chain = match.blocks;
  // A part stays while room is made for the state. Afterwards it is the last to be evicted.
  const bool part = match.partial_tokens > 0 && index_->is_part(match.partial_node);
  if (part) index_->hold(match.partial_node);
  const auto take = [&](std::uint32_t g, std::uint32_t node) {
    const PageId page = index_->page(node, g);
    const auto ok = pools_[g]->acquire(page);
    QUIRE_CHECK(ok.has_value(), "the index names live pages");
    sequence.groups[g].adopt(page);
  };
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const std::uint32_t first = window_start(g, match.length()) / block_size();
    for (std::uint32_t b = 0; b < match.blocks; ++b) {
      if (b < first) {
        sequence.groups[g].adopt_given_back();
      } else {
        take(g, path[b]);
      }
    }
    if (match.partial_tokens > 0) take(g, match.partial_node);
    sequence.groups[g].set_length(match.length());
  }
  sequence.stand_at(match.length(), stride());
  PoolResult<void> slot;
  if (states_) {
    slot = give_slot(sequence, part ? match.partial_node : match.blocks > 0 ? path[match.blocks - 1] : kNoIndex);
  }
  if (part) index_->let_go(match.partial_node);
  counters_.parts_reused += part && slot ? 1 : 0;
  return slot;
}

// Gives the sequence its own state: a copy of a node's checkpoint, or zeros.
PoolResult<void> SequencePool::give_slot(Sequence& sequence, std::uint32_t from_node) {
  Need need{};
  need[state_class()] = 1;
  const bool protects = index_->by_value() && from_node != kNoIndex;
  protected_node_ = from_node;
  if (protects) index_->protect(from_node);
  const auto room = make_room(need, Effort::Everything);
  if (protects) index_->unprotect(from_node);
  protected_node_ = kNoIndex;
  if (!room) return room;
  auto slot = states_->alloc(sequence.request);
  if (!slot) return std::unexpected(slot.error());
  sequence.slot = *slot;
  slot_infos_[slot->index] = {.node = kNoIndex, .sequence = static_cast<std::uint32_t>(&sequence - sequences_.data())};
  events_->record(Kind::SlotTaken, state_class(), slot->index, sequence.request);
  if (from_node == kNoIndex) return {};
  const SlotId checkpoint = index_->checkpoint(from_node);
  if (auto ok = states_->copy(*slot, checkpoint); !ok) return ok;
  index_->touch_checkpoint(from_node);
  ++counters_.checkpoints_restored;
  events_->record(Kind::CheckpointRestored, state_class(), checkpoint.index, slot->index);
  return {};
}

// Gives back everything the sequence has, the end of its path first.
void SequencePool::detach(Sequence& sequence) {
  for (PagedSeqState& group : sequence.groups) group.release();
  while (sequence.chain > 0) let_go(sequence.nodes[--sequence.chain]);
  drop_scratch(sequence);
  sequence.draft_end = 0;
  if (sequence.slot.valid()) {
    slot_infos_[sequence.slot.index] = SlotInfo{};
    events_->record(Kind::SlotReleased, state_class(), sequence.slot.index);
    const auto ok = states_->release(sequence.slot);
    QUIRE_CHECK(ok.has_value(), "a sequence's slot is live");
    sequence.slot = SlotId{};
  }
  sequence.live = false;
  sequence.missed = {};
  sequence.length = sequence.writable_until = 0;
  sequence.request = 0;
  ++sequence.generation;
}

PoolResult<void> SequencePool::do_release(SequenceId id) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  remove(*sequence);
  return {};
}

void SequencePool::remove(Sequence& sequence) {
  const auto index = static_cast<std::uint32_t>(&sequence - sequences_.data());
  const Namespace tenant = sequence.name_space;
  keep_tail(sequence);
  detach(sequence);
  keep_within_cap(tenant);
  free_sequences_.push_back(index);
  --counters_.sequences;
  events_->record(Kind::SequenceReleased, 0, index);
}

// --- views

PoolResult<void> SequencePool::bind(Batch& batch) {
  for (const BatchEntry& entry : batch.entries()) {
    const Sequence* sequence = find(entry.sequence);
    if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(entry.sequence.index));
    const std::uint64_t target = std::uint64_t{sequence->length} + entry.rows;
    if (target > sequence->writable_until) {
      return std::unexpected(PoolError::not_reserved(target, sequence->writable_until));
    }
    const bool drafts_agree = entry.drafts == 0 ? !sequence->has_drafts()
                                                : sequence->has_drafts() && entry.drafts <= entry.rows &&
                                                      sequence->length + entry.certain_rows() == sequence->draft_begin;
    if (!drafts_agree)
      return std::unexpected(PoolError::invalid_argument("a step with other drafts than draft() was told"));
  }
  if (auto ok = tables_->sync(); !ok) return ok;
  for (BatchEntry& entry : batch.bind(kv_groups_, states_view_)) {
    const Sequence& sequence = *find(entry.sequence);
    entry.position = sequence.length;
    entry.table = entry.sequence.index;
    if (!states_) continue;
    const auto place = [&](SlotId slot) {
      const std::byte* state = states_->at(slot.index).state().data();
      return static_cast<std::uint32_t>(static_cast<std::uint64_t>(state - states_view_.base) / states_view_.unit);
    };
    entry.state = place(sequence.slot);
    if (entry.drafts > 0) entry.scratch = place(sequence.scratch);
  }
  batch.set_positions();
  return {};
}

PoolResult<KvView> SequencePool::kv_view(SequenceId id, std::uint32_t group, std::uint32_t layer) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (group >= groups()) return std::unexpected(PoolError::invalid_slot(group));
  if (layer >= layout().groups[group].num_layers) {
    return std::unexpected(PoolError::invalid_argument("no such layer in the group"));
  }
  PagedSeqState& state = sequence->groups[group];
  if (auto ok = state.sync(); !ok) return std::unexpected(ok.error());
  KvView view = state.view(layer);
  view.capacity = std::min(view.capacity, sequence->writable_until);
  return view;
}

PoolResult<StateView> SequencePool::state_view(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (!states_) return std::unexpected(PoolError::invalid_slot(0));
  return states_->at(sequence->slot.index).state().view();
}

PoolResult<KvCache> SequencePool::kv_cache(SequenceId id, std::uint32_t group, std::uint32_t layer) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (group >= groups()) return std::unexpected(PoolError::invalid_slot(group));
  return KvCache::paged(sequence->groups[group], layer);
}

PoolResult<std::uint32_t> SequencePool::length(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  return sequence->length;
}

PoolResult<std::span<const Token>> SequencePool::tokens(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  return std::span<const Token>(sequence->tokens.get(), sequence->length);
}

PoolResult<std::span<const PageId>> SequencePool::pages(SequenceId id, std::uint32_t group) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (group >= groups()) return std::unexpected(PoolError::invalid_slot(group));
  return sequence->groups[group].table().pages();
}

PoolResult<std::uint64_t> SequencePool::pages_version(SequenceId id, std::uint32_t group) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (group >= groups()) return std::unexpected(PoolError::invalid_slot(group));
  return sequence->groups[group].table().version();
}

PoolResult<SlotId> SequencePool::slot(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (!states_) return std::unexpected(PoolError::invalid_slot(0));
  return sequence->slot;
}

PoolStats SequencePool::stats() const {
  PoolStats stats = counters_;
  const auto count = [&](std::uint32_t cls) {
    const BlockAllocator& a = allocator(cls);
    return ObjectCounts{.total = a.total_count(),
                        .free = a.free_count(),
                        .held = a.held_count(),
                        .cached = a.cached_count(),
                        .high_water = a.high_water(),
                        .object_bytes = object_bytes(cls),
                        .allocations = a.allocations()};
  };
  for (std::uint32_t g = 0; g < groups(); ++g) {
    stats.pages.push_back(count(g));
    stats.scrub_failures += pools_[g]->scrub_failures();
  }
  if (states_) stats.states = count(state_class());
  stats.slabs = arena_->total_slabs();
  stats.free_slabs = arena_->free_slabs();
  stats.arena_bytes = arena_->slab_bytes() * arena_->total_slabs();
  for (const Sequence& sequence : sequences_) {
    if (!sequence.live) continue;
    for (std::uint32_t g = 0; g < groups(); ++g) {
      const std::uint64_t places = std::uint64_t{sequence.groups[g].table().size()} * block_size();
      stats.unfilled_bytes += (places - sequence.length) * layout().groups[g].bytes_per_token();
    }
  }
  stats.prefix_blocks = index_->size();
  if (config_.journal != nullptr) {
    const PoolJournal::Status journal = config_.journal->status();
    stats.has_journal = true;
    stats.journal_failed = journal.failed;
    stats.journal_records = journal.records;
    stats.journal_bytes = journal.bytes;
  }
  return stats;
}

}  // namespace quire

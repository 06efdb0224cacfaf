// Content that leaves the pool for the tiers.
#include <algorithm>
#include <array>
#include <utility>

#include "quire/base/check.h"
#include "quire/tiers/tiers.h"

namespace quire::tiers {
namespace {

// A tier that does not take an object for so long goes without it. Others need the cell.
constexpr std::chrono::seconds kPatience{1};
constexpr std::size_t kOffered = 32;  // objects at a time

// By default a tenant is called by its number.
TenantName name_of_number(Namespace name_space) {
  TenantName name{};
  for (std::size_t i = 0; i < sizeof name_space; ++i) name[i] = static_cast<std::uint8_t>(name_space >> (8 * i));
  return name;
}

}  // namespace

ObjectName Tiers::root(Namespace name_space) const {
  const Namespace id = tenant_of(name_space);
  const auto named = tenants_.find(id);
  TenantName tenant = named != tenants_.end() ? named->second
                      : options_.tenant       ? options_.tenant(id)
                                              : name_of_number(id);
  if (const std::uint32_t adapter = adapter_of(name_space); adapter != 0) {
    QUIRE_CHECK(adapter <= adapters_.size(), "adapters are named before their first prompt");
    tenant = adapted_name(tenant, adapters_[adapter - 1]);
  }
  return root_name(pool_->config().model, pool_->layout_fingerprint(), tenant);
}

// What is known of a node. The name of a block needs the names of all blocks before it, which nearly always are known.
Tiers::NodeInfo& Tiers::info(std::uint32_t node) {
  const PrefixIndex& index = pool_->prefix_index();
  // The first ancestor that is named, and then back down to the node. Ancestors have smaller block numbers.
  std::uint32_t unnamed = node;
  for (;;) {
    std::uint32_t first = kNoIndex;
    for (std::uint32_t n = unnamed; n != kNoIndex; n = index.node(n).parent) {
      if (infos_[n].named && infos_[n].key == index.node(n).key) break;
      first = n;
    }
    if (first == kNoIndex) return infos_[node];
    const std::uint32_t parent = index.node(first).parent;
    const ObjectName before = parent == kNoIndex ? root(index.node(first).name_space) : infos_[parent].name;
    infos_[first] = {.key = index.node(first).key, .name = block_name(before, index.tokens(first)), .named = true};
  }
}

ObjectKey Tiers::key_of(std::uint32_t node, std::uint32_t cls) {
  return {.name = info(node).name, .cls = cls == groups() ? ObjectKey::kCheckpoint : static_cast<std::uint8_t>(cls)};
}

// The tier that an object of the promotion under way was read from. A promotion may have objects of several tiers, and
// of the host.
Tiers::TierSet Tiers::promoted_from(std::uint32_t node, std::uint32_t cls) const {
  const std::uint32_t block = pool_->prefix_index().node(node).block;
  if (promoting_ == nullptr || block >= promoting_->blocks) return 0;
  const Wanted& object = wanted(*promoting_, block, cls);
  if (object.state != Wanted::State::Ready || object.host != UINT32_MAX) return 0;
  return static_cast<TierSet>(1u << object.from);
}

// Tiers that say that they have lost an object which they all had.
Tiers::TierSet Tiers::lost_by(std::uint32_t node, std::uint32_t cls) {
  if ((info(node).kept & (1u << cls)) == 0) return 0;
  const ObjectKey key = key_of(node, cls);
  TierSet lost = 0;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    if (tiers_[tier]->has_lost(key)) lost |= static_cast<TierSet>(1u << tier);
  }
  return lost;
}

// Tiers with much more room than the pool. Another would be written again with each prompt. With write_back content is
// offered when the pool evicts it, and not before.
Tiers::TierSet Tiers::repaired() const {
  if (options_.write_back) return 0;
  const Arena& arena = pool_->arena();
  TierSet set = 0;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    const std::uint64_t limit = tiers_[tier]->usage().capacity_bytes;
    if (limit == 0 || limit / 2 >= arena.total_slabs() * arena.slab_bytes()) set |= static_cast<TierSet>(1u << tier);
  }
  return set;
}

// A prompt uses what the pool has. Those of the tiers that have lost it get it again.
void Tiers::repair(std::uint32_t node, std::uint32_t cls, TierSet tiers) {
  const auto lost = tiers == 0 ? TierSet{0} : static_cast<TierSet>(lost_by(node, cls) & tiers);
  if (lost == 0) return;
  NodeInfo& known = infos_[node];
  known.copied &= static_cast<std::uint16_t>(~(1u << cls));
  known.kept &= static_cast<std::uint16_t>(~(1u << cls));
  add_pending(node, cls, static_cast<TierSet>(all() & ~lost));
}

void Tiers::add_pending(std::uint32_t node, std::uint32_t cls, TierSet skip) {
  if (pending_count_ == pending_.size()) {  // the oldest gives way; it is copied when it is evicted
    pending_first_ = (pending_first_ + 1) % pending_.size();
    --pending_count_;
  }
  pending_[(pending_first_ + pending_count_++) % pending_.size()] = {
      .key = info(node).key, .node = node, .cls = cls, .skip = skip};
}

// Everything that is cached and was not copied, as far as the list has room for it.
void Tiers::add_all_pending() {
  const PrefixIndex& index = pool_->prefix_index();
  for (std::uint32_t node = 0; node < index.max_nodes(); ++node) {
    if (!index.node(node).used() || index.is_part(node)) continue;
    for (std::uint32_t cls = 0; cls < classes(); ++cls) {
      if (pending_count_ == pending_.size()) return;
      const bool there = pool_->cached_object(node, cls).address != nullptr;
      if (there && (info(node).copied & (1u << cls)) == 0) add_pending(node, cls, 0);
    }
  }
}

// All tiers have stored the object.
void Tiers::was_kept(const Leaving& object) {
  NodeInfo& known = infos_[object.node];
  if (known.key == object.node_key) known.kept |= static_cast<std::uint16_t>(known.copied & (1u << object.cls));
}

// Some tier does not have the object. It is offered again when the pool evicts it or publishes it anew, and not at
// once: the tier may be down for long.
void Tiers::went_without(const Leaving& object) {
  NodeInfo& known = infos_[object.node];
  if (known.key == object.node_key) known.copied &= static_cast<std::uint16_t>(~(1u << object.cls));
}

void Tiers::stored(std::uint32_t node, std::uint32_t cls) noexcept {
  if (pool_ == nullptr || tiers_.empty()) return;
  const TierSet from = promoted_from(node, cls);
  NodeInfo& known = info(node);
  const auto bit = static_cast<std::uint16_t>(1u << cls);
  if (from == all()) {  // every tier has it
    known.copied |= bit;
    known.kept |= bit;
  }
  if (options_.write_back || (known.copied & bit) != 0) return;
  add_pending(node, cls, from);
}

void Tiers::dropping(std::uint32_t node, std::uint32_t cls) noexcept {
  if (pool_ == nullptr) return;
  if (host_) {
    const auto object = pool_->cached_object(node, cls);
    (void)host_->put(key_of(node, cls), cls, pool_->prefix_index().node(node).block, object.address, object.bytes);
  }
  if (tiers_.empty()) return;
  TierSet skip = 0;
  if ((info(node).copied & (1u << cls)) != 0) {
    const TierSet lost = lost_by(node, cls);
    if (lost == 0) return;
    skip = static_cast<TierSet>(all() & ~lost);
  }
  // Some cells stay for what is read: a pool that evicts a lot must not keep others from coming back.
  if (!copy_out(node, cls, skip)) ++counters_.lost;
}

void Tiers::distrust() noexcept {
  pending_count_ = 0;
  for (const std::uint32_t place : copying_) {
    staging_->give_back(leaving_[place].cell);
    leaving_[place].to = 0;
    free_leaving_.push_back(place);
  }
  copying_.clear();
  if (host_) {
    // What was copied to the host since the last fence is gone, and nobody may still wait to use it.
    for (const auto& fetch : fetches_) {
      const auto on_host = [](const Wanted& object) {
        return object.state == Wanted::State::Ready && object.host != UINT32_MAX;
      };
      if (std::ranges::any_of(fetch->wanted, on_host)) finish(*fetch);
    }
    host_->distrust();
  }
  for (NodeInfo& known : infos_) known.copied = known.kept = 0;
}

// Submits the download of an object into a cell. False: there is no cell, or the device refuses.
bool Tiers::copy_out(std::uint32_t node, std::uint32_t cls, TierSet skip) {
  const auto object = pool_->cached_object(node, cls);
  if (object.address == nullptr) return false;
  const Staging::Cell cell = staging_->take(cls, staging_->cells(cls) / 4);
  if (!cell.valid()) return false;
  if (!device_->download(staging_->data(cell), object.address, object.bytes)) {
    staging_->give_back(cell);
    return false;
  }
  const std::uint32_t place = free_leaving_.back();  // there are as many as cells
  free_leaving_.pop_back();
  NodeInfo& known = info(node);
  leaving_[place] = {.key = key_of(node, cls),
                     .node_key = known.key,
                     .node = node,
                     .cls = cls,
                     .cell = cell,
                     .to = static_cast<TierSet>(all() & ~skip),
                     .open = 0,
                     .since = Clock::now()};
  copying_.push_back(place);
  known.copied |= static_cast<std::uint16_t>(1u << cls);
  known.kept &= static_cast<std::uint16_t>(~(1u << cls));
  ++counters_.written;
  counters_.written_bytes += object.bytes;
  return true;
}

// Copies what waits, oldest first, while there are cells and the budget of this call lasts.
void Tiers::copy_pending() {
  const PrefixIndex& index = pool_->prefix_index();
  for (std::uint64_t bytes = 0; pending_count_ > 0 && bytes < options_.step_bytes;) {
    const Pending next = pending_[pending_first_];
    const PrefixIndex::Node& node = index.node(next.node);
    const bool there = node.used() && node.key == next.key && !index.is_part(next.node) &&
                       pool_->cached_object(next.node, next.cls).address != nullptr &&
                       (info(next.node).copied & (1u << next.cls)) == 0;
    if (there) {
      if (staging_->free(next.cls) <= staging_->cells(next.cls) / 2) return;
      if (!copy_out(next.node, next.cls, next.skip)) return;
      bytes += pool_->bytes_of_object(next.cls);
    }
    pending_first_ = (pending_first_ + 1) % pending_.size();
    --pending_count_;
  }
}

// After a fence the bytes of the cells are what they should be.
PoolResult<void> Tiers::finish_copies() {
  if (copying_.empty() && (!host_ || !host_->has_copies())) return {};
  if (auto fenced = device_->fence(); !fenced) {
    distrust();
    return fenced;
  }
  to_offer_.insert(to_offer_.end(), copying_.begin(), copying_.end());
  copying_.clear();
  if (host_) host_->fenced();
  return {};
}

// Hands what was copied to the tiers, many objects at a time: each call of submit() takes locks and wakes a thread.
void Tiers::offer_leaving() {
  if (to_offer_.empty()) return;
  const auto now = Clock::now();
  std::array<TierJob, kOffered> jobs;
  std::array<std::uint32_t, kOffered> places;
  const auto tiers = static_cast<std::uint8_t>(tiers_.size());
  for (std::uint8_t tier = 0; tier < tiers; ++tier) {
    bool takes = true;
    for (std::size_t next = 0; takes && next < to_offer_.size();) {
      std::size_t count = 0;
      for (; next < to_offer_.size() && count < kOffered; ++next) {
        const Leaving& object = leaving_[to_offer_[next]];
        if ((object.to >> tier & 1) == 0) continue;
        places[count] = to_offer_[next];
        jobs[count++] = {.kind = TierJob::Kind::Put,
                         .key = object.key,
                         .data = staging_->data(object.cell),
                         .bytes = staging_->bytes(object.cell),
                         .ticket = open_ticket({.leaving = to_offer_[next], .tier = tier, .since = now})};
      }
      const std::size_t taken = count == 0 ? 0 : tiers_[tier]->submit(std::span(jobs).first(count));
      for (std::size_t i = 0; i < count; ++i) {
        Leaving& object = leaving_[places[i]];
        if (i < taken) {
          object.to = static_cast<TierSet>(object.to & ~(1u << tier));
          ++object.open;
        } else {
          close_ticket(jobs[i].ticket);
        }
      }
      takes = taken == count;
    }
    if (takes) continue;
    for (const std::uint32_t place : to_offer_) {
      Leaving& object = leaving_[place];
      if ((object.to >> tier & 1) == 0 || now - object.since < kPatience) continue;
      object.to = static_cast<TierSet>(object.to & ~(1u << tier));
      went_without(object);
    }
  }
  std::erase_if(to_offer_, [&](std::uint32_t place) {
    const Leaving& object = leaving_[place];
    if (object.to == 0 && object.open == 0) {
      staging_->give_back(object.cell);
      free_leaving_.push_back(place);
    }
    return object.to == 0;
  });
}

}  // namespace quire::tiers

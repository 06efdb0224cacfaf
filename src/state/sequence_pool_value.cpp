// Eviction by value per byte: what is cached is worth the seconds that it would take to compute it again, times how
// often it is expected to be wanted, per byte that it occupies. The least worth goes first.
//
// Without recurrent layers the candidates are the leaves of the tree that nobody holds, so a parent always outlives its
// children. In a recurrent model nothing can resume without a state, so the candidates are the checkpoints. The state
// at the end of a path goes with the pages that only it makes useful; a state inside a path goes alone.
//
// Candidates of one kind differ only in age and depth. How often they are wanted first rises with age, if at all, and
// then falls. So the oldest and the newest of each kind are looked at, and no others.
#include <algorithm>
#include <cmath>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {
namespace {

// Something else than the least recently used block must be worth less than this share of it to be evicted before it.
// Smaller differences are noise, and then LRU is the better guess.
constexpr double kClearly = 0.5;
}  // namespace

// The bytes of the pages that are evicted with a checkpoint, which `tokens` would have to be computed for. With one at
// the end of a path go the pages back to the one before it. A part has pages of its own. If it is the end of a path,
// the blocks before it go too.
std::uint64_t SequencePool::pages_that_go_with(std::uint32_t node, std::uint64_t tokens) const {
  const std::uint32_t parent = index_->node(node).parent, count = index_->count(node);
  if (!index_->is_part(node)) {
    const bool leaf = index_->is_leaf(node) && index_->node(node).holders == 0;
    return leaf ? divide_up<std::uint64_t>(tokens, block_size()) * node_bytes_ : 0;
  }
  const bool alone = parent != kNoIndex && index_->node(parent).holders == 0 && index_->only_child(parent) == node;
  const std::uint64_t before = alone && tokens > count ? divide_up<std::uint64_t>(tokens - count, block_size()) : 0;
  return (1 + before) * node_bytes_;
}

double SequencePool::worth(std::uint32_t node) const {
  const std::uint64_t end = index_->end(node);
  if (!states_) {
    return value_per_byte(index_->rate(node), cost_of(costs_, end - index_->count(node), end), node_bytes_);
  }
  const PrefixIndex::Node& n = index_->node(node);
  const std::uint64_t tokens =
      std::uint64_t{units_since_checkpoint(n.name_space, n.parent, index_->tokens(node), kGapLooks)} * unit();
  const std::uint64_t bytes = layout().recurrent.bytes() + pages_that_go_with(node, tokens);
  return value_per_byte(index_->rate(node), cost_of(costs_, end - tokens, end), bytes);
}

// `units`: since the checkpoint before it; `bytes`: what it will take.
double SequencePool::worth_of_new_checkpoint(std::uint32_t end, std::uint32_t units, bool asked,
                                             std::uint64_t bytes) const {
  return value_per_byte(index_->new_checkpoint_rate(asked), cost_of(costs_, end - std::uint64_t{units} * unit(), end),
                        bytes);
}

// Compares the candidates of a share with the best victim so far. `lru`: the least recently used block, whose worth is
// written down when it is met.
void SequencePool::offer(std::uint32_t share, Victim& best, Victim* lru) const {
  const EvictionOrder& candidates = index_->candidates();
  for (std::uint32_t list = index_->first_list(share); list < index_->first_list(share + 1); ++list) {
    const std::uint32_t oldest = candidates.oldest(list), newest = candidates.newest(list);
    if (oldest == kNoIndex) continue;
    const double old_worth = worth(oldest);
    if (best.node == kNoIndex || old_worth < best.worth) best = {oldest, old_worth};
    if (lru != nullptr && oldest == lru->node) lru->worth = old_worth;
    if (newest == oldest) continue;
    if (const double new_worth = worth(newest); new_worth < best.worth) best = {newest, new_worth};
  }
}

// Whether a tenant has no more than its floor, so that others may not evict what it has.
bool SequencePool::at_floor(std::uint32_t share) const {
  return share != 0 && index_->share(share).resident <= index_->share(share).floor;
}

// The least worth of all candidates. Tenants at or below their floor are passed over, unless `below_floors`.
SequencePool::Victim SequencePool::least_worth(bool below_floors) const {
  Victim best, lru;
  // It is the oldest of its list, so offer() meets it, unless a floor protects it.
  if (!states_) lru.node = index_->least_recently_used();
  lru.worth = -1;
  for (std::uint32_t share = 0; share < index_->share_limit(); ++share) {
    if (below_floors || !at_floor(share)) offer(share, best, &lru);
  }
  return lru.worth >= 0 && best.worth >= kClearly * lru.worth ? lru : best;
}

// Gentle: only for a new checkpoint, and nothing that is worth as much as that or lies below a floor.
bool SequencePool::evict_least_worth(Effort effort) {
  Victim victim = least_worth(false);
  if (effort == Effort::Gentle && std::isfinite(arriving_worth_)) {
    if (victim.node == kNoIndex || victim.worth >= arriving_worth_) return false;
  } else if (victim.node == kNoIndex) {
    victim = least_worth(true);
    if (victim.node == kNoIndex) return false;
    ++counters_.floors_yielded;
  }
  evict_candidate(victim.node);
  return true;
}

void SequencePool::evict_candidate(std::uint32_t node) {
  if (index_->is_leaf(node) && index_->node(node).holders == 0) {
    evict_node(node);
  } else {
    drop_checkpoint(node);
  }
}

// Evicts what a tenant has cached beyond its cap.
void SequencePool::keep_within_cap(Namespace tenant) {
  const std::uint32_t share = index_->by_value() ? index_->share_of(tenant) : 0;
  if (share == 0) return;
  while (index_->share(share).resident > index_->share(share).cap) {
    Victim victim;
    offer(share, victim, nullptr);
    if (victim.node == kNoIndex) return;
    evict_candidate(victim.node);
  }
}

PoolResult<void> SequencePool::do_set_share(Namespace tenant, std::uint64_t floor, std::uint64_t cap) {
  if (!index_->by_value()) return std::unexpected(PoolError::invalid_argument("floors and caps need Eviction::Value"));
  if (floor > cap) return std::unexpected(PoolError::invalid_argument("a tenant's floor is above its cap"));
  if (!index_->set_share(tenant, floor, cap)) {
    return std::unexpected(PoolError::exhausted("tenants with a floor or a cap", 1, 0));
  }
  keep_within_cap(tenant);
  return {};
}

std::optional<TenantBytes> SequencePool::tenant_bytes(Namespace tenant) const {
  const std::uint32_t share = index_->share_of(tenant);
  if (share == 0) return std::nullopt;
  return TenantBytes{index_->share(share).resident, index_->share(share).floor, index_->share(share).cap};
}

}  // namespace quire

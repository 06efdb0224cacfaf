// How the nodes of the index are used: their kinds, the candidates for eviction, and the bytes of tenants.
#include <algorithm>

#include "quire/base/check.h"
#include "quire/state/prefix_index.h"

namespace quire {
namespace {

constexpr std::uint32_t kCoverLooks = 256;  // blocks walked back to find the checkpoint that a new one covers

}  // namespace

std::uint8_t PrefixIndex::kind(std::uint32_t node) const {
  const Usage& u = usages_[node];
  return has_states_ ? checkpoint_kind(u.covered, u.asked, u.resumed) : block_kind(u.turn, u.reused);
}

double PrefixIndex::rate(std::uint32_t candidate) const {
  return odds_.rate(kind(candidate), ticks_ - usages_[candidate].last);
}

// Puts a candidate into the list of its share and kind.
void PrefixIndex::list(std::uint32_t node) {
  candidates_.add(node, first_list(usages_[node].share) + kind(node), usages_[node].last);
}

void PrefixIndex::unprotect(std::uint32_t node) {
  if (has_checkpoint(node)) list(node);
}

void PrefixIndex::wanted_after_eviction(const EvictedBlocks::Use& use) {
  if (use.kind != EvictedBlocks::kNoKind) odds_.wanted(use.kind, ticks_ - use.last);
}

void PrefixIndex::forget_uses() {
  evicted_.clear();
  odds_ = first_odds_;  // of the same size: takes nothing from the heap
  ticks_ = 0;
}

// --- blocks

void PrefixIndex::note_new(std::uint32_t node) {
  const Node& n = nodes_[node];
  Usage& u = usages_[node] = Usage{};
  u.share = static_cast<std::uint8_t>(share_of(n.name_space));
  if (has_states_) return;
  if (n.parent != kNoIndex) {
    u.turn = static_cast<std::uint8_t>(turn_below(usages_[n.parent].turn, usages_[n.parent].reused));
  }
  const auto before = evicted_.find(n.content, n.name_space);
  if (!before || before->kind == EvictedBlocks::kNoKind) return;
  wanted_after_eviction(*before);
  u.turn = before->kind / 2;
  u.reused = true;
}

void PrefixIndex::note_held(std::uint32_t node) {
  if (!has_states_) {
    odds_.wanted(kind(node), ticks_ - usages_[node].last);
    candidates_.remove(node);
  }
  usages_[node].reused = true;
}

void PrefixIndex::note_let_go(std::uint32_t node) {
  if (has_states_) return;
  usages_[node].last = ++ticks_;
  odds_.began(kind(node));
  if (is_leaf(node)) list(node);
}

void PrefixIndex::note_removed(std::uint32_t node) {
  const Usage& u = usages_[node];
  const Node& n = nodes_[node];
  const bool counts = !has_states_ || u.had_state;
  evicted_.remember(n.content, n.name_space, {u.last, counts ? kind(node) : EvictedBlocks::kNoKind});
  candidates_.remove(node);
  for (std::uint32_t g = 0; g < groups_; ++g) {
    if (page(node, g).valid()) count_bytes(node, g, false);
  }
}

// The node has lost its last child.
void PrefixIndex::note_leaf(std::uint32_t node) {
  if (has_states_) {
    set_covered(node, false);
  } else if (nodes_[node].holders == 0) {
    list(node);
  }
}

// --- checkpoints

void PrefixIndex::begin_checkpoint(std::uint32_t node, bool asked) {
  Usage& u = usages_[node];
  u.last = ++ticks_;
  u.had_state = true;
  u.covered = u.resumed = false;
  u.asked = asked;
  odds_.began(kind(node));
}

void PrefixIndex::note_skipped_checkpoint(std::uint32_t node, bool asked) { begin_checkpoint(node, asked); }

bool PrefixIndex::note_missed_checkpoint(std::uint32_t node) {
  Usage& u = usages_[node];
  if (!u.had_state || has_checkpoint(node)) return false;
  odds_.wanted(kind(node), ticks_ - u.last);
  u.had_state = false;
  return true;
}

void PrefixIndex::note_checkpoint(std::uint32_t node, bool asked) {
  begin_checkpoint(node, asked);
  count_bytes(node, groups_, true);
  list(node);
  (void)cover_before(nodes_[node].name_space, nodes_[node].parent, tokens(node));
}

std::uint32_t PrefixIndex::cover_before(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) {
  const std::uint32_t before = checkpoint_before(name_space, parent, tokens, kCoverLooks);
  if (before == kNoIndex || usages_[before].covered) return kNoIndex;
  set_covered(before, true);
  return before;
}

void PrefixIndex::note_resumed(std::uint32_t node) {
  Usage& u = usages_[node];
  odds_.wanted(kind(node), ticks_ - u.last);
  const bool listed = candidates_.contains(node);
  candidates_.remove(node);
  u.resumed = true;
  u.last = ++ticks_;
  odds_.began(kind(node));
  if (listed) list(node);
}

void PrefixIndex::set_covered(std::uint32_t node, bool covered) {
  Usage& u = usages_[node];
  if (u.covered == covered) return;
  u.covered = covered;
  if (!has_checkpoint(node)) return;
  odds_.began(kind(node));
  if (!candidates_.contains(node)) return;
  candidates_.remove(node);
  list(node);
}

// --- shares

void PrefixIndex::set_object_bytes(std::span<const std::uint64_t> groups, std::uint64_t state) {
  object_bytes_.assign(groups.begin(), groups.end());
  object_bytes_.push_back(state);
}

void PrefixIndex::count_bytes(std::uint32_t node, std::uint32_t cls, bool more) {
  if (!by_value() || usages_[node].share == 0) return;
  std::uint64_t& resident = shares_[usages_[node].share].resident;
  resident = more ? resident + object_bytes_[cls] : resident - object_bytes_[cls];
}

std::uint64_t PrefixIndex::resident_bytes(std::uint32_t node) const {
  std::uint64_t bytes = has_checkpoint(node) ? object_bytes_[groups_] : 0;
  for (std::uint32_t g = 0; g < groups_; ++g) bytes += page(node, g).valid() ? object_bytes_[g] : 0;
  return bytes;
}

std::uint32_t PrefixIndex::share_of(Namespace name_space) const {
  const Namespace tenant = tenant_of(name_space);
  for (std::uint32_t i = 1; i < share_limit_; ++i) {
    if (shares_[i].used && shares_[i].name_space == tenant) return i;
  }
  return 0;
}

bool PrefixIndex::set_share(Namespace name_space, std::uint64_t floor, std::uint64_t cap) {
  const std::uint32_t old = share_of(name_space);
  const bool bounded = floor > 0 || cap < UINT64_MAX;
  std::uint32_t now = bounded ? old : 0;
  if (bounded && old == 0) {
    for (now = 1; now <= kMaxShares && shares_[now].used;) ++now;
    if (now > kMaxShares) return false;
  }
  if (now != old) {
    shares_[now].resident = 0;
    for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].used() || nodes_[i].name_space != name_space) continue;
      const bool listed = candidates_.contains(i);
      candidates_.remove(i);
      usages_[i].share = static_cast<std::uint8_t>(now);
      shares_[now].resident += now != 0 ? resident_bytes(i) : 0;
      if (listed) list(i);
    }
    if (old != 0) shares_[old] = Share{};
  }
  if (now != 0) {
    shares_[now] = {name_space, floor, cap, shares_[now].resident, true};
    share_limit_ = std::max(share_limit_, now + 1);
  }
  return true;
}

std::expected<void, const char*> PrefixIndex::check_uses() const {
  std::vector<std::uint64_t> resident(shares_.size());
  std::uint32_t candidates = 0;
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    const bool candidate = n.used() && (has_states_ ? has_checkpoint(i) : n.holders == 0 && is_leaf(i));
    if (candidate != candidates_.contains(i))
      return std::unexpected("a node is wrongly a candidate for eviction, or not");
    if (!n.used()) continue;
    if (usages_[i].share != share_of(n.name_space)) return std::unexpected("a node counts for another tenant");
    resident[usages_[i].share] += resident_bytes(i);
    if (!candidate) continue;
    ++candidates;
    if (candidates_.list_of(i) != first_list(usages_[i].share) + kind(i)) {
      return std::unexpected("a candidate is in the list of another kind");
    }
  }
  if (candidates != candidates_.size()) return std::unexpected("candidates are counted wrongly");
  for (std::uint32_t s = 1; s < share_limit_; ++s) {
    if (shares_[s].resident != resident[s]) return std::unexpected("a tenant's bytes are counted wrongly");
  }
  return candidates_.check_integrity();
}

}  // namespace quire

// The lower half of ReferencePool: what a pool keeps, without its sequences. Pages with their references, the tree of
// known blocks, checkpoints, and the order of eviction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "quire/state/sequence_pool.h"

namespace quire {

// What a pool chose for its config. The reference model takes it from there.
struct PoolGeometry {
  std::uint64_t slab_bytes = 0;
  std::uint32_t slabs = 0;
  std::uint32_t max_nodes = 0;  // of the prefix index

  static PoolGeometry of(const SequencePool& pool) {
    return {pool.arena().slab_bytes(), pool.arena().total_slabs(), pool.prefix_index().max_nodes()};
  }
};

class ReferenceCache {
 public:
  using Tokens = std::vector<Token>;

  // --- counts
  std::size_t held(std::size_t group) const { return pages_[group].size() - cached(group); }
  std::size_t cached(std::size_t group) const { return cached_[group].size(); }
  std::size_t held_states() const { return held_states_; }
  std::size_t checkpoints() const { return checkpoints_.size(); }
  std::size_t known_blocks() const { return nodes_.size(); }
  std::uint64_t floors_yielded() const { return floors_yielded_; }

  // --- what is evicted first
  void set_costs(const RecomputeCosts& costs) { costs_ = costs; }
  void set_costs_and_shares_of(const ReferenceCache& other) { costs_ = other.costs_, shares_ = other.shares_; }
  bool set_share(Namespace tenant, std::uint64_t floor, std::uint64_t cap) {
    std::size_t share = share_of(tenant);
    if (!by_value_ || floor > cap) return false;
    if (floor == 0 && cap == UINT64_MAX) {
      if (share == 0) return true;
      shares_[share].reset();
      relist_all(tenant);
      return true;
    }
    if (share == 0) {
      for (share = 1; share < shares_.size() && shares_[share];) ++share;
      if (share > PrefixIndex::kMaxShares) return false;
      shares_.resize(std::max(shares_.size(), share + 1));
    }
    shares_[share] = Share{tenant, floor, cap};
    relist_all(tenant);
    keep_within_cap(tenant);
    return true;
  }
  std::uint64_t resident(Namespace tenant) const {
    std::uint64_t bytes = 0;
    for (const auto& [id, node] : nodes_) {
      if (node.name_space != tenant) continue;
      for (std::size_t g = 0; g < groups_; ++g) bytes += node.pages[g] != 0 ? bytes_[g] : 0;
      bytes += node.touched != 0 ? bytes_[groups_] : 0;
    }
    return bytes;
  }

 protected:
  using Need = std::vector<std::size_t>;  // by class: pages of each group, then states

  struct Page {
    int references = 0;
    int node = 0;  // its node in the index; 0: none
    std::uint64_t cached_since = 0;
  };
  struct Node {
    Namespace name_space = 0;
    int parent = 0;  // 0: none
    std::size_t block = 0;
    Tokens tokens;              // of the block; of a part fewer than a block has
    std::vector<int> children;  // in order of insertion
    std::vector<int> pages;     // by group; 0: none
    int holders = 0;
    std::uint64_t unheld_since = 0;
    std::uint64_t touched = 0;  // last use of its checkpoint; 0: it has none
    // How it was used. In ticks; blocks: when it was let go; checkpoints: when it was kept or resumed from.
    std::uint64_t last = 0, content = 0;
    std::uint32_t turn = 0;
    bool reused = false, had_state = false, covered = false, asked = false, resumed = false;
    std::optional<std::tuple<std::size_t, std::uint8_t, std::uint64_t>> listed;  // share, kind, last: if a candidate
  };
  struct Share {
    Namespace tenant = 0;
    std::uint64_t floor = 0, cap = 0;
  };
  // A model of an empty pool.
  ReferenceCache(const PoolConfig& config, const PoolGeometry& geometry)
      : config_(config),
        slabs_(geometry.slabs),
        by_value_(config.eviction == Eviction::Value),
        odds_(config.layout.has_recurrent() ? ReuseOdds::for_checkpoints() : ReuseOdds::for_blocks()),
        evicted_(geometry.max_nodes) {
    const StateLayout& layout = config_.layout;
    for (const PageShape& shape : layout.groups) bytes_.push_back(shape.page_bytes());
    bytes_.push_back(layout.recurrent.bytes());
    block_ = unit_ = layout.block_size;
    groups_ = layout.groups.size();
    for (const PageShape& shape : layout.groups) {
      windows_.push_back(shape.window);
      cells_.push_back(geometry.slab_bytes / shape.page_bytes());
      has_windows_ = has_windows_ || shape.window != 0;
    }
    pages_.resize(groups_);
    cached_.resize(groups_);
    max_nodes_ = geometry.max_nodes;
    if (!layout.has_recurrent()) {
      if (const std::size_t unit = config_.checkpoint_unit; unit != 0 && unit < block_) least_tail_ = unit;
      return;
    }
    states_ = true;
    cells_.push_back(geometry.slab_bytes / layout.recurrent.bytes());
    checkpoint_budget_ = std::min(config_.checkpoint_budget_bytes, config_.budget_bytes) / layout.recurrent.bytes();
    if (const std::size_t unit = config_.checkpoint_unit; unit != 0 && unit < block_) unit_ = unit;
    interval_ = std::max<std::size_t>(1, (config_.checkpoint_interval + unit_ - 1) / unit_);
    max_gap_ = std::max<std::size_t>(interval_, config_.max_recompute / unit_);
  }

  std::size_t classes() const { return groups_ + (states_ ? 1 : 0); }
  std::size_t up(std::size_t tokens) const { return (tokens + block_ - 1) / block_; }
  std::size_t window_start(std::size_t group, std::size_t length) const {
    return windows_[group] == 0 || length + 1 <= windows_[group] ? 0 : length + 1 - windows_[group];
  }

  // --- room
  static std::size_t packed(std::size_t objects, std::size_t cells) { return (objects + cells - 1) / cells; }
  std::size_t objects(std::size_t cls, bool with_cached) const {
    if (cls < groups_) return with_cached ? pages_[cls].size() : held(cls);
    return held_states_ + (with_cached ? checkpoints() : 0);
  }
  std::size_t slabs_for(const Need& need, bool with_cached) const {
    std::size_t slabs = 0;
    for (std::size_t c = 0; c < classes(); ++c) slabs += packed(objects(c, with_cached) + need[c], cells_[c]);
    return slabs;
  }
  bool feasible(const Need& need) const { return slabs_for(need, false) <= slabs_; }
  bool make_room(const Need& need, bool everything) {
    while (slabs_for(need, true) > slabs_) {
      if (!evict_one(need, everything)) return false;
    }
    return true;
  }
  bool evict_one(const Need& need, bool everything) {
    for (std::size_t g = 0; g < groups_; ++g) {
      const bool grows = packed(objects(g, true) + need[g], cells_[g]) > packed(objects(g, true), cells_[g]);
      const int page = windows_[g] != 0 && grows ? oldest_window_page(g, true) : 0;
      if (page != 0) return evict_window_page(g, page), true;
    }
    if (by_value_) {
      if (evict_least_worth(everything)) return true;
      if (!everything && arriving_worth_) return false;
    } else if (const int oldest = least_recently_used(); oldest != 0) {
      return evict(oldest), true;
    }
    for (std::size_t g = 0; g < groups_; ++g) {
      if (cached(g) > 0) return evict_window_page(g, oldest_window_page(g, false)), true;
    }
    return everything && !by_value_ && thin(true);
  }
  int least_recently_used() const { return unheld_.empty() ? 0 : unheld_.begin()->second; }
  // The page that was cached longest ago. With `floors`: the first of the 64 oldest whose tenant is above its floor.
  int oldest_window_page(std::size_t group, bool floors) {
    int looks = 0;
    for (const auto& [since, id] : cached_[group]) {
      if (!floors || !at_floor(share_of(nodes_[pages_[group][id].node].name_space))) return id;
      if (++looks == 64) break;
    }
    return 0;
  }
  bool at_floor(std::size_t share) const {
    return share != 0 && shares_[share] && resident(shares_[share]->tenant) <= shares_[share]->floor;
  }
  void evict_window_page(std::size_t group, int oldest) {
    int node = pages_[group][oldest].node;
    nodes_[node].pages[group] = 0;
    forget_content(group, oldest);
    while (nodes_[node].children.size() == 1) node = nodes_[node].children[0];
    if (useless(node)) evict(node);
  }
  // Removes an unheld leaf, then its ancestors while they are useless without it.
  void evict(int id) {
    while (id != 0) {
      const Node node = nodes_[id];
      for (std::size_t g = 0; g < groups_; ++g) {
        if (node.pages[g] != 0) forget_content(g, node.pages[g]);
      }
      evicted_.remember(node.content, node.name_space,
                        {node.last, !states_ || node.had_state ? kind(node) : EvictedBlocks::kNoKind});
      std::erase(siblings(node), id);
      set_checkpoint(id, false);
      unlist(id);
      unheld_.erase({node.unheld_since, id});
      by_content_.erase({node.name_space, node.parent, node.tokens});
      nodes_.erase(id);
      if (const int part = longest_part(node.name_space, node.parent, node.tokens, node.tokens.size()); part != 0) {
        set_covered(part, false);  // it was covered by this node
      }
      if (node.parent != 0 && nodes_[node.parent].children.empty()) {
        set_covered(node.parent, false);
        relist(node.parent);
      }
      id = node.parent != 0 && useless(node.parent) ? node.parent : 0;
    }
  }
  bool useless(int id) {
    const Node& node = nodes_[id];
    return node.children.empty() && node.holders == 0 && !resumable(id);
  }
  bool resumable(int id) {
    if (states_ && nodes_[id].touched == 0) return false;
    for (std::size_t g = 0; g < groups_; ++g) {
      if (windows_[g] == 0) continue;
      const std::size_t first = window_start(g, end(id)) / block_;
      for (int n = id; n != 0 && nodes_[n].block >= first; n = nodes_[n].parent) {
        if (nodes_[n].pages[g] == 0) return false;
      }
    }
    return true;
  }
  std::vector<int>& siblings(const Node& node) {
    return node.parent == 0 ? roots_[node.name_space] : nodes_[node.parent].children;
  }

  // --- parts: leaves with fewer tokens than a block, each with a checkpoint
  bool is_part(int id) { return nodes_[id].tokens.size() < block_; }
  std::size_t end(int id) { return nodes_[id].block * block_ + nodes_[id].tokens.size(); }
  // The longest part that begins `tokens` and is shorter than `below`.
  int longest_part(Namespace name_space, int parent, const Tokens& tokens, std::size_t below) const {
    const std::size_t unit = states_ ? unit_ : least_tail_;
    if (unit == 0 || unit == block_) return 0;
    for (std::size_t length = std::min({tokens.size(), below - 1, block_ - 1}) / unit * unit; length > 0;
         length -= unit) {
      const int part = child(name_space, parent, first_of(tokens, length));
      if (part != 0) return part;
    }
    return 0;
  }
  int resumable_part(Namespace name_space, int parent, const Tokens& tokens) {
    int part = longest_part(name_space, parent, tokens, block_);
    while (part != 0 && !resumable(part)) {
      part = longest_part(name_space, parent, tokens, nodes_[part].tokens.size());
    }
    return part;
  }
  static Tokens first_of(const Tokens& tokens, std::size_t count) {
    return {tokens.begin(), tokens.begin() + static_cast<long>(std::min(count, tokens.size()))};
  }
  static Tokens after(const Tokens& tokens, std::size_t begin) {
    return {tokens.begin() + static_cast<long>(begin), tokens.end()};
  }
  // The last checkpoint before the end of a node with these tokens, which need not exist; 0: none.
  int checkpoint_before(Namespace name_space, int parent, const Tokens& tokens, std::size_t looks) {
    const int part = longest_part(name_space, parent, tokens, tokens.size());
    return part != 0 ? part : checkpoint_at_or_before(parent, looks);
  }
  int checkpoint_at_or_before(int id, std::size_t looks) {
    for (; id != 0 && looks > 0; --looks, id = nodes_[id].parent) {
      const Node& node = nodes_[id];
      if (node.touched != 0) return id;
      const int part = longest_part(node.name_space, node.parent, node.tokens, node.tokens.size());
      if (part != 0) return part;
    }
    return 0;
  }
  std::size_t units_since_checkpoint(int id, std::size_t limit) {
    if (id == 0) return 0;
    const int before = checkpoint_at_or_before(id, (limit + block_ / unit_ - 1) / (block_ / unit_));
    return std::min(limit, (end(id) - (before == 0 ? 0 : end(before))) / unit_);
  }
  // The same before the end of a node that need not exist.
  std::size_t units_since_checkpoint(Namespace name_space, int parent, const Tokens& tokens, std::size_t limit) {
    const int part = longest_part(name_space, parent, tokens, tokens.size());
    if (part != 0) return (tokens.size() - nodes_[part].tokens.size()) / unit_;
    return tokens.size() / unit_ + units_since_checkpoint(parent, limit);
  }
  bool thin(bool everything) {
    int end_of_path = 0;
    std::size_t looks = 0;
    for (const auto& [touched, id] : checkpoints_) {
      if (looks++ == kCheckpointLooks) break;
      if (id == protected_) continue;
      int next = id;
      for (std::size_t units = 0; units < max_gap_ && nodes_[next].children.size() == 1; units += block_ / unit_) {
        next = nodes_[next].children[0];
        if (nodes_[next].touched != 0 || next == arriving_) break;
      }
      if (next == id || (nodes_[next].touched == 0 && next != arriving_)) {
        if (end_of_path == 0 && nodes_[next].children.empty()) end_of_path = id;
        continue;
      }
      const Node& node = nodes_[id];
      const std::size_t before = units_since_checkpoint(node.name_space, node.parent, node.tokens, max_gap_);
      if ((end(next) - end(id)) / unit_ + before > max_gap_) continue;
      set_checkpoint(id, false);
      return true;
    }
    if (const int leaf = least_recently_used(); leaf != 0) return evict(leaf), true;
    if (!everything) return false;
    auto oldest = checkpoints_.begin();
    if (oldest != checkpoints_.end() && oldest->second == protected_) ++oldest;
    if (end_of_path == 0 && oldest == checkpoints_.end()) return false;
    const int victim = end_of_path != 0 ? end_of_path : oldest->second;
    if (is_part(victim)) return evict(victim), true;
    set_checkpoint(victim, false);
    return true;
  }

  // Keeps or uses the checkpoint of a node, or drops it.
  void set_checkpoint(int id, bool present) {
    Node& node = nodes_[id];
    if (node.touched != 0) checkpoints_.erase({node.touched, id});
    node.touched = present ? ++clock_ : 0;
    if (present) checkpoints_.insert({node.touched, id});
    relist(id);
  }
  void hold(int id) {
    Node& node = nodes_[id];
    if (node.holders++ == 0) {
      if (!states_) odds_.wanted(kind(node), ticks_ - node.last);
      unheld_.erase({node.unheld_since, id});
    }
    node.reused = true;
    relist(id);
  }
  void let_go(int id) {
    Node& node = nodes_[id];
    if (--node.holders > 0) return;
    node.unheld_since = ++clock_;
    unheld_.insert({node.unheld_since, id});
    if (states_) return;
    node.last = ++ticks_;
    odds_.began(kind(node));
    relist(id);
  }

  // --- value per byte
  std::uint8_t kind(const Node& node) const {
    return states_ ? checkpoint_kind(node.covered, node.asked, node.resumed) : block_kind(node.turn, node.reused);
  }
  std::size_t share_of(Namespace tenant) const {
    for (std::size_t i = 1; i < shares_.size(); ++i) {
      if (shares_[i] && shares_[i]->tenant == tenant) return i;
    }
    return 0;
  }
  double worth(int id) {
    const Node& node = nodes_[id];
    const std::uint64_t end = this->end(id), of_node = node_bytes();
    const double rate = odds_.rate(kind(node), ticks_ - node.last);
    if (!states_) return value_per_byte(rate, cost_of(costs_, end - node.tokens.size(), end), of_node);
    const std::uint64_t tokens = units_since_checkpoint(node.name_space, node.parent, node.tokens, kLooks) * unit_;
    // With the end of a path go the blocks back to the checkpoint before it. A part has pages of its own.
    std::uint64_t pages = 0;
    if (!is_part(id)) {
      pages = node.children.empty() && node.holders == 0 ? up(tokens) : 0;
    } else {
      const bool alone =
          node.parent != 0 && nodes_[node.parent].holders == 0 && nodes_[node.parent].children.size() == 1;
      pages = 1 + (alone && tokens > node.tokens.size() ? up(tokens - node.tokens.size()) : 0);
    }
    return value_per_byte(rate, cost_of(costs_, end - tokens, end), bytes_[groups_] + pages * of_node);
  }
  std::uint64_t node_bytes() const {
    std::uint64_t bytes = 0;
    for (std::size_t g = 0; g < groups_; ++g) bytes += bytes_[g];
    return bytes;
  }
  double worth_of_new_checkpoint(std::uint64_t end, std::size_t units, bool asked, std::uint64_t bytes) {
    return value_per_byte(odds_.rate(checkpoint_kind(false, asked, false), 0),
                          cost_of(costs_, end - units * unit_, end), bytes);
  }
  // Nodes that may be evicted: leaves that nobody holds; with states, nodes with a checkpoint.
  bool is_candidate(const Node& node) const {
    return states_ ? node.touched != 0 : node.holders == 0 && node.children.empty();
  }
  void unlist(int id) {
    Node& node = nodes_[id];
    if (!node.listed) return;
    const auto [in_share, of_kind, last] = *node.listed;
    candidates_[{in_share, of_kind}].erase({last, id});
    node.listed.reset();
  }
  // After every change of what is_candidate(), kind(), share_of() or `last` say of a node.
  void relist(int id) {
    unlist(id);
    Node& node = nodes_[id];
    if (!by_value_ || !is_candidate(node)) return;
    node.listed = {share_of(node.name_space), kind(node), node.last};
    candidates_[{share_of(node.name_space), kind(node)}].insert({node.last, id});
  }
  void relist_all(Namespace tenant) {
    for (const auto& [id, node] : nodes_) {
      if (node.name_space == tenant) relist(id);
    }
  }
  // The least worth of the oldest and the newest of each kind, of one tenant with a share or of all without.
  void offer(std::size_t share, int& best) {
    const auto other = [&](const auto& entry) { return entry.second != protected_; };
    for (std::uint8_t k = 0; k < std::max(kBlockKinds, kCheckpointKinds); ++k) {
      const InOrder& listed = candidates_[{share, k}];
      const auto oldest = std::ranges::find_if(listed, other);
      if (oldest == listed.end()) continue;
      const auto newest = std::find_if(listed.rbegin(), listed.rend(), other);
      for (const int id : {oldest->second, newest->second}) {
        if (best == 0 || worth(id) < worth(best)) best = id;
      }
    }
  }
  int least_worth(bool below_floors) {
    const auto open = [&](std::size_t share) { return below_floors || !at_floor(share); };
    int best = 0;
    for (std::size_t share = 0; share < shares_.size(); ++share) {
      if (open(share)) offer(share, best);
    }
    const int first = states_ ? 0 : least_recently_used();
    if (first == 0 || !open(share_of(nodes_[first].name_space))) return best;
    return worth(best) >= 0.5 * worth(first) ? first : best;
  }
  bool evict_least_worth(bool everything) {
    int victim = least_worth(false);
    if (!everything && arriving_worth_) {
      if (victim == 0 || worth(victim) >= *arriving_worth_) return false;
    } else if (victim == 0) {
      victim = least_worth(true);
      if (victim == 0) return false;
      ++floors_yielded_;
    }
    evict_candidate(victim);
    return true;
  }
  void evict_candidate(int id) {
    if (nodes_[id].children.empty() && nodes_[id].holders == 0) return evict(id);
    set_checkpoint(id, false);
  }
  void keep_within_cap(Namespace tenant) {
    const std::size_t share = share_of(tenant);
    while (share != 0 && resident(tenant) > shares_[share]->cap) {
      int victim = 0;
      offer(share, victim);
      if (victim == 0) return;
      evict_candidate(victim);
    }
  }

  // --- how nodes are used
  void wanted_after_eviction(const EvictedBlocks::Use& use) {
    if (use.kind != EvictedBlocks::kNoKind) odds_.wanted(use.kind, ticks_ - use.last);
  }
  void note_new(int id) {
    Node& node = nodes_[id];
    node.content = PrefixIndex::content_of(node.parent == 0 ? PrefixIndex::kContentRoot : nodes_[node.parent].content,
                                           node.tokens);
    if (states_) return;
    if (node.parent != 0) node.turn = turn_below(nodes_[node.parent].turn, nodes_[node.parent].reused);
    const auto before = evicted_.find(node.content, node.name_space);
    if (!before || before->kind == EvictedBlocks::kNoKind) return;
    wanted_after_eviction(*before);
    node.turn = before->kind / 2;
    node.reused = true;
  }
  void begin_checkpoint(Node& node, bool asked) {
    node.last = ++ticks_;
    node.had_state = true;
    node.covered = node.resumed = false;
    node.asked = asked;
    odds_.began(kind(node));
  }
  void note_checkpoint(int id, bool asked) {
    begin_checkpoint(nodes_[id], asked);
    set_checkpoint(id, true);
    (void)cover_before(nodes_[id].name_space, nodes_[id].parent, nodes_[id].tokens);
  }
  // Returns the checkpoint that is newly covered, or 0.
  int cover_before(Namespace name_space, int parent, const Tokens& tokens) {
    const int before = checkpoint_before(name_space, parent, tokens, kLooks);
    if (before == 0 || nodes_[before].covered) return 0;
    set_covered(before, true);
    return before;
  }
  void uncover(int id) {
    if (nodes_.contains(id)) set_covered(id, false);  // a part may have been evicted meanwhile
  }
  void note_resumed(int id) {
    Node& node = nodes_[id];
    odds_.wanted(kind(node), ticks_ - node.last);
    node.resumed = true;
    node.last = ++ticks_;
    odds_.began(kind(node));
    set_checkpoint(id, true);
  }
  void set_covered(int id, bool covered) {
    Node& node = nodes_[id];
    if (!states_ || node.covered == covered) return;
    node.covered = covered;
    if (node.touched != 0) odds_.began(kind(node));
    relist(id);
  }

  // --- pages
  int take(std::size_t group) {
    pages_[group][++last_id_] = {.references = 1};
    return last_id_;
  }
  void hold_page(std::size_t group, int id) {
    Page& page = pages_[group][id];
    if (page.references++ == 0) cached_[group].erase({page.cached_since, id});
  }
  void give(std::size_t group, int id) {
    Page& page = pages_[group][id];
    if (--page.references > 0) return;
    if (page.node == 0) {
      pages_[group].erase(id);
    } else {
      page.cached_since = ++clock_;
      cached_[group].insert({page.cached_since, id});
    }
  }
  void forget_content(std::size_t group, int id) {
    Page& page = pages_[group][id];
    page.node = 0;
    if (page.references > 0) return;
    cached_[group].erase({page.cached_since, id});
    pages_[group].erase(id);
  }

  // --- the tree
  std::vector<int> walk(const Tokens& tokens, Namespace name_space) {
    std::vector<int> path;
    for (std::size_t end = block_; end <= tokens.size(); end += block_) {
      const int next = child(name_space, path.empty() ? 0 : path.back(), block_of(tokens, path.size()));
      if (next == 0) break;
      path.push_back(next);
    }
    return path;
  }
  Tokens block_of(const Tokens& tokens, std::size_t block) const {
    const auto begin = tokens.begin() + static_cast<long>(block * block_);
    return {begin, begin + block_};
  }
  const std::vector<int>& children(Namespace name_space, int parent) {
    return parent == 0 ? roots_[name_space] : nodes_[parent].children;
  }
  int child(Namespace name_space, int parent, const Tokens& tokens) const {
    const auto found = by_content_.find({name_space, parent, tokens});
    return found == by_content_.end() ? 0 : found->second;
  }
  int add_child(Namespace name_space, int parent, std::size_t block, const Tokens& tokens) {
    Node& node = nodes_[++last_id_];
    node = {.name_space = name_space, .parent = parent, .block = block, .tokens = tokens};
    node.pages.resize(groups_);
    siblings(node).push_back(last_id_);
    by_content_[{name_space, parent, tokens}] = last_id_;
    if (parent != 0) relist(parent);
    node.holders = 1;  // the sequence that has computed it
    note_new(last_id_);
    return last_id_;
  }

  PoolConfig config_;
  std::size_t slabs_, block_ = 0, groups_ = 0, max_nodes_ = 0;
  std::size_t unit_ = 0;                      // a checkpoint may lie at every multiple of it; at most a block
  std::size_t least_tail_ = 0;                // without states: tokens that a tail must have to be kept; 0: none are
  std::vector<std::size_t> windows_, cells_;  // by group; by class
  bool has_windows_ = false, states_ = false;
  std::size_t checkpoint_budget_ = 0, interval_ = 0, max_gap_ = 0;
  std::vector<std::map<int, Page>> pages_;  // by group: held and cached pages
  std::map<int, Node> nodes_;
  // By time, the oldest first: a large pool has too many to look at all of them.
  using InOrder = std::set<std::pair<std::uint64_t, int>>;
  std::vector<InOrder> cached_;                                   // by group: pages, by cached_since
  InOrder unheld_;                                                // nodes, by unheld_since
  InOrder checkpoints_;                                           // nodes with a checkpoint, by touched
  std::map<std::tuple<Namespace, int, Tokens>, int> by_content_;  // by parent and tokens of the block
  std::map<Namespace, std::vector<int>> roots_;
  std::size_t held_states_ = 0;
  static constexpr std::size_t kCheckpointLooks = 64;  // as in sequence_pool_room.cpp: a thinning looks at no more
  int protected_ = 0;                                  // its checkpoint is about to be read
  int arriving_ = 0;                                   // its checkpoint is about to be kept
  int last_id_ = 0;
  std::uint64_t clock_ = 0;

  static constexpr std::size_t kLooks = 256;  // blocks walked back from a checkpoint
  bool by_value_;
  RecomputeCosts costs_;
  ReuseOdds odds_;
  EvictedBlocks evicted_;
  std::vector<std::uint64_t> bytes_;  // by class: pages of each group, then states
  std::vector<std::optional<Share>> shares_ = std::vector<std::optional<Share>>(1);
  // By share and kind: what may be evicted, by `last`.
  std::map<std::pair<std::size_t, std::uint8_t>, InOrder> candidates_;
  std::uint64_t ticks_ = 0, floors_yielded_ = 0;
  std::optional<double> arriving_worth_;  // of the checkpoint that is about to be kept
};

}  // namespace quire

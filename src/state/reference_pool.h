// The reference model of SequencePool, written with maps and vectors as simply as possible. Tests run it beside the
// pool. It predicts every hit, every refusal, every position after a fork or rewind, and every count, for all kinds of
// models: sliding windows, recurrent states with checkpoints, and both beside full attention.
//
// It does not know where objects are. It can predict evictions because they depend on counts alone: objects can be
// moved, so what fits is what fits when packed. Objects of the plain operations cannot be moved and are not modelled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "quire/state/reference_cache.h"

namespace quire {

class ReferencePool : public ReferenceCache {
 public:
  explicit ReferencePool(const SequencePool& pool) : ReferenceCache(pool) {}

  // --- the operations of a pool. The caller chooses names. A refusal is nullopt or false.

  // Returns the reused tokens.
  std::optional<std::uint32_t> create(int name, const Tokens& prompt, Namespace name_space) {
    if (prompt.size() > config_.max_tokens || sequences_.size() == config_.max_sequences) return std::nullopt;
    Match found = match(prompt, name_space);
    if (!feasible(need_to_attach(found)) && found.length > 0) found = Match{};
    if (!feasible(need_to_attach(found))) return std::nullopt;
    Sequence s = empty(name_space);
    note_missed_checkpoint(found);
    attach(s, found);
    s.tokens.assign(prompt.begin(), prompt.begin() + static_cast<long>(found.length));
    sequences_[name] = std::move(s);
    return static_cast<std::uint32_t>(found.length);
  }

  bool reserve(const std::vector<std::pair<int, std::uint32_t>>& demands) {
    Need need(classes()), without(classes());
    for (std::size_t i = 0; i < demands.size(); ++i) {
      const Sequence& s = sequences_[demands[i].first];
      const std::size_t target = s.tokens.size() + demands[i].second;
      if (target > config_.max_tokens) return false;
      for (std::size_t g = 0; g < groups_; ++g) {
        const std::size_t have = s.tables[g].size(), missing = up(target) > have ? up(target) - have : 0;
        need[g] += missing + copies(demands, i, g, true);
        without[g] += missing + copies(demands, i, g, false);
      }
    }
    if (!feasible(need)) {
      if (!feasible(without)) return false;
      need = without;
      for (std::size_t i = 0; i < demands.size(); ++i) {
        for (std::size_t g = 0; g < groups_; ++g) {
          if (copies(demands, i, g, true) && !copies(demands, i, g, false))
            unpublish(g, half_full(demands[i].first, g));
        }
      }
    }
    make_room(need, true);
    for (const auto& [name, tokens] : demands) {
      Sequence& s = sequences_[name];
      for (std::size_t g = 0; g < groups_; ++g) {
        if (tokens > 0 && must_copy(s, g, true)) {
          int& entry = s.tables[g][s.tokens.size() / block_];
          const int replaced = std::exchange(entry, take(g));
          give(g, replaced);
        }
        while (s.tables[g].size() < up(s.tokens.size() + tokens)) s.tables[g].push_back(take(g));
      }
    }
    return true;
  }

  void commit(int name, const Tokens& tokens, bool checkpoint) {
    Sequence& s = sequences_[name];
    s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
    if (s.tokens.size() < s.boundary && !has_windows_ && !checkpoint) return;
    s.boundary = (s.tokens.size() / block_ + 1) * block_;
    if (s.publishing) publish(s);
    for (std::size_t g = 0; g < groups_; ++g) {
      if (windows_[g] == 0) continue;
      for (std::size_t b = 0; (b + 1) * block_ <= window_start(g, s.tokens.size()); ++b) {
        if (s.tables[g][b] != 0) give(g, std::exchange(s.tables[g][b], 0));
      }
    }
    if (states_ && s.tokens.size() % block_ == 0) keep_checkpoint(s, checkpoint);
    keep_within_cap(s.name_space);
  }

  std::optional<std::uint32_t> fork(int name, int child_name, std::size_t position) {  // returns the child's length
    if (sequences_.size() == config_.max_sequences) return std::nullopt;
    Sequence& parent = sequences_[name];
    const ResumePoint point = resume_point(parent, position);
    Match through{.length = point.position};
    through.path.assign(parent.path.begin(), parent.path.begin() + whole_blocks(parent, point.position));
    Need need(classes());
    if (states_) need[groups_] = 1;
    if (!feasible(point.in_place ? need : need_to_attach(through))) return std::nullopt;
    Sequence child = empty(parent.name_space);
    child.publishing = parent.publishing || point.position / block_ <= parent.path.size();
    if (point.in_place) {
      child.path = through.path;
      for (const int node : child.path) hold(node);
      for (std::size_t g = 0; g < groups_; ++g) {
        for (std::size_t b = 0; b < up(point.position); ++b) {
          child.tables[g].push_back(parent.tables[g][b]);
          if (child.tables[g][b] != 0) ++pages_[g][child.tables[g][b]].references;
        }
      }
      child.boundary = (point.position / block_ + 1) * block_;
      give_slot(child, 0);
    } else {
      attach(child, through);
    }
    child.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + static_cast<long>(point.position));
    sequences_[child_name] = std::move(child);
    return static_cast<std::uint32_t>(point.position);
  }

  std::uint32_t rewind(int name, std::size_t position) {  // returns the new length
    Sequence& s = sequences_[name];
    if (position == s.tokens.size()) return static_cast<std::uint32_t>(position);  // reserved pages stay
    const std::size_t to = resume_point(s, position).position, blocks = to / block_;
    if (states_ && to > 0) note_resumed(s.path[blocks - 1]);
    for (std::size_t g = 0; g < groups_; ++g) {
      give_pages_from(s, g, up(to));
      for (std::size_t b = s.tables[g].size(); b-- > window_start(g, to) / block_;) {
        if (s.tables[g][b] != 0) continue;
        s.tables[g][b] = nodes_[s.path[b]].pages[g];
        ++pages_[g][s.tables[g][b]].references;
      }
    }
    while (s.path.size() > blocks) let_go_last(s);
    s.publishing = s.publishing || s.path.size() == blocks;
    s.tokens.resize(to);
    s.boundary = (to / block_ + 1) * block_;
    keep_within_cap(s.name_space);
    return static_cast<std::uint32_t>(to);
  }

  void release(int name) {
    Sequence& s = sequences_[name];
    for (std::size_t g = 0; g < groups_; ++g) give_pages_from(s, g, 0);
    while (!s.path.empty()) let_go_last(s);
    held_states_ -= states_;
    keep_within_cap(s.name_space);
    sequences_.erase(name);
  }

  // A sequence outside the pool. Its blocks before `first` had been given back. A block that is not `copied` must be
  // known when the sequence comes back.
  struct Away {
    Tokens tokens;
    Namespace name_space = 0;
    std::vector<std::uint32_t> first;       // by group
    std::vector<std::vector<bool>> copied;  // by group and block
  };
  enum class Outcome : std::uint8_t { Back, NoRoom, PrefixGone };

  // Copies what no other sequence holds together with its block of the tree, and releases the sequence.
  Away suspend(int name) {
    const Sequence& s = sequences_[name];
    Away away{.tokens = s.tokens, .name_space = s.name_space, .first = {}, .copied = {}};
    for (std::size_t g = 0; g < groups_; ++g) {
      std::uint32_t first = 0;
      while (first < up(s.tokens.size()) && s.tables[g][first] == 0) ++first;
      away.first.push_back(first);
      away.copied.emplace_back();
      for (std::size_t b = 0; b < up(s.tokens.size()); ++b) {
        const bool shared = b >= first && b < s.path.size() && nodes_[s.path[b]].holders > 1 &&
                            pages_[g][s.tables[g][b]].references > 1;
        away.copied[g].push_back(b >= first && !shared);
      }
    }
    release(name);
    return away;
  }

  // Every page that is known is shared, the others come from the copy.
  Outcome resume(int name, const Away& away) {
    if (sequences_.size() == config_.max_sequences) return Outcome::NoRoom;
    Sequence s = empty(away.name_space);
    s.path = walk(away.tokens, away.name_space);
    Need need(classes()), fresh(classes());
    for (std::size_t g = 0; g < groups_; ++g) {
      for (std::size_t b = 0; b < up(away.tokens.size()); ++b) {
        const bool has_page = b >= away.first[g];
        const int page = has_page && b < s.path.size() ? nodes_[s.path[b]].pages[g] : 0;
        s.tables[g].push_back(page);
        if (!has_page) continue;
        if (page == 0 && !away.copied[g][b]) return Outcome::PrefixGone;
        fresh[g] += page == 0;
        need[g] += page == 0 || pages_[g][page].references == 0;
      }
    }
    if (states_) need[groups_] = fresh[groups_] = 1;
    if (!feasible(need)) return Outcome::NoRoom;
    for (const int node : s.path) hold(node);
    for (std::size_t g = 0; g < groups_; ++g) {
      for (const int page : s.tables[g]) {
        if (page != 0) ++pages_[g][page].references;
      }
    }
    make_room(fresh, true);
    for (std::size_t g = 0; g < groups_; ++g) {
      for (std::size_t b = away.first[g]; b < s.tables[g].size(); ++b) {
        if (s.tables[g][b] != 0) continue;
        s.tables[g][b] = take(g);
        if (b >= s.path.size()) continue;
        nodes_[s.path[b]].pages[g] = s.tables[g][b];  // a page of a window that the tree had lost
        pages_[g][s.tables[g][b]].node = s.path[b];
      }
    }
    s.boundary = (away.tokens.size() / block_ + 1) * block_;
    give_slot(s, 0);
    s.tokens = away.tokens;
    publish(s);
    sequences_[name] = std::move(s);
    return Outcome::Back;
  }

  // Restores a saved sequence, which has a copy of every page.
  bool restore(int name, const Tokens& tokens, Namespace name_space, const std::vector<std::uint32_t>& first) {
    Away away{.tokens = tokens, .name_space = name_space, .first = first, .copied = {}};
    away.copied.assign(groups_, std::vector<bool>(up(tokens.size()), true));
    return resume(name, away) == Outcome::Back;
  }

  void drop_cache() {
    arriving_worth_.reset();
    while (evict_one(Need(classes()), false)) {
    }
    for (auto& [id, node] : nodes_) node.touched = 0;
  }

 private:
  struct Sequence {
    Namespace name_space = 0;
    Tokens tokens;
    std::vector<std::vector<int>> tables;  // by group; 0: given back
    std::vector<int> path;                 // nodes
    bool publishing = true;
    std::size_t boundary = 0;   // the next block boundary
    EvictedBlocks::Use missed;  // the last checkpoint on its path that had been evicted
  };
  struct Match {
    std::size_t length = 0;
    std::vector<int> path;
    int partial = 0;
    std::vector<int> known;  // the path, and the nodes after it that cannot be resumed from
    bool no_checkpoint = false;
  };
  struct ResumePoint {
    std::size_t position = 0;
    bool in_place = true;
  };

  long whole_blocks(const Sequence& s, std::size_t position) const {
    return static_cast<long>(std::min(position / block_, s.path.size()));
  }
  Sequence empty(Namespace name_space) const {
    Sequence s{.name_space = name_space};
    s.tables.resize(groups_);
    return s;
  }

  // --- pages of a sequence
  void give_pages_from(Sequence& s, std::size_t group, std::size_t blocks) {  // the last first
    while (s.tables[group].size() > blocks) {
      if (s.tables[group].back() != 0) give(group, s.tables[group].back());
      s.tables[group].pop_back();
    }
  }
  int half_full(int name, std::size_t group) { return half_full(sequences_[name], group); }
  int half_full(const Sequence& s, std::size_t group) const {  // 0: none
    const std::size_t block = s.tokens.size() / block_;
    return s.tokens.size() % block_ == 0 || block >= s.tables[group].size() ? 0 : s.tables[group][block];
  }
  bool must_copy(const Sequence& s, std::size_t group, bool copy_known) const {
    const int page = half_full(s, group);
    if (page == 0) return false;
    const Page& p = pages_[group].at(page);
    return p.references > 1 || (copy_known && p.node != 0);
  }
  // A sequence that has copied a page gives up its reference. So the last holder may write in place.
  bool copies(const std::vector<std::pair<int, std::uint32_t>>& demands, std::size_t index, std::size_t group,
              bool copy_known) {
    const auto& [name, tokens] = demands[index];
    if (tokens == 0 || !must_copy(sequences_[name], group, copy_known)) return false;
    const int page = half_full(name, group);
    if (copy_known && pages_[group][page].node != 0) return true;
    int holders = pages_[group][page].references;
    for (std::size_t i = 0; i < index; ++i) {
      if (demands[i].second > 0 && half_full(demands[i].first, group) == page) --holders;
    }
    return holders > 1;
  }
  // Removes a page from the index with its node and all nodes below. If other sequences are on that path, only the page
  // is removed: their windows begin after it.
  void unpublish(std::size_t group, int page) {
    const int node = pages_[group][page].node;
    if (nodes_[node].holders > 0) {
      nodes_[node].pages[group] = 0;
      forget_content(group, page);
      return;
    }
    while (pages_[group][page].node == node) {
      int leaf = node;
      while (!nodes_[leaf].children.empty()) leaf = nodes_[leaf].children.back();
      evict(leaf);
    }
  }

  // --- prefixes
  Match match(const Tokens& prompt, Namespace name_space) {
    Match result;
    if (prompt.empty()) return result;
    const Tokens usable(prompt.begin(), prompt.end() - 1);  // one token is left to compute
    result.path = walk(usable, name_space);
    const std::size_t known = result.path.size();
    result.known = result.path;
    result.no_checkpoint = known > 0 && states_ && (nodes_[result.path.back()].touched == 0);
    while (!result.path.empty() && !resumable(result.path.back())) result.path.pop_back();
    result.length = result.path.size() * block_;
    if (states_ || result.path.size() < known) return result;
    // Part of the next page: the child that shares the most tokens, the latest of several.
    const std::size_t limit = std::min<std::size_t>(usable.size() - result.length, block_ - 1);
    std::size_t best = 0;
    int partial = 0;
    for (const int id : children(name_space, known == 0 ? 0 : result.path.back())) {
      std::size_t same = 0;
      while (same < limit && nodes_[id].tokens[same] == usable[result.length + same]) ++same;
      if (same > 0 && same >= best) best = same, partial = id;
    }
    if (partial == 0 || std::ranges::count(nodes_[partial].pages, 0) > 0) return result;
    result.partial = partial;
    result.length += best;
    return result;
  }
  Need need_to_attach(const Match& match) {
    Need need(classes());
    for (std::size_t g = 0; g < groups_; ++g) {
      const auto unheld = [&](int node) { return pages_[g][nodes_[node].pages[g]].references == 0; };
      for (std::size_t b = window_start(g, match.length) / block_; b < match.path.size(); ++b) {
        need[g] += unheld(match.path[b]);
      }
      if (match.partial != 0) need[g] += unheld(match.partial);
    }
    if (states_) need[groups_] = match.path.empty() ? 1 : 2;  // the checkpoint too: it is read after making room
    return need;
  }
  void attach(Sequence& s, const Match& match) {
    s.path = match.path;
    for (const int node : s.path) hold(node);
    for (std::size_t g = 0; g < groups_; ++g) {
      const auto hold = [&](int node) {
        s.tables[g].push_back(nodes_[node].pages[g]);
        ++pages_[g][s.tables[g].back()].references;
      };
      for (std::size_t b = 0; b < s.path.size(); ++b) {
        if (b < window_start(g, match.length) / block_) {
          s.tables[g].push_back(0);
        } else {
          hold(s.path[b]);
        }
      }
      if (match.partial != 0) hold(match.partial);
    }
    s.boundary = (match.length / block_ + 1) * block_;
    give_slot(s, s.path.empty() ? 0 : s.path.back());
  }
  void give_slot(const Sequence&, int from) {
    if (!states_) return;
    Need need(classes());
    need[groups_] = 1;
    protected_ = from;
    make_room(need, true);
    protected_ = 0;
    ++held_states_;
    if (from != 0) note_resumed(from);
  }
  void let_go_last(Sequence& s) {
    const int id = s.path.back();
    s.path.pop_back();
    if (--nodes_[id].holders > 0) return;
    note_let_go(nodes_[id]);
    if (useless(id)) evict(id);
  }
  void publish(Sequence& s) {
    while ((s.path.size() + 1) * block_ <= s.tokens.size()) {
      const std::size_t block = s.path.size();
      const int parent = block == 0 ? 0 : s.path.back();
      const Tokens tokens = block_of(s.tokens, block);
      int id = child(s.name_space, parent, tokens);
      if (id == 0) {
        if (nodes_.size() == max_nodes_ && least_recently_used() != 0) evict(least_recently_used());
        if (nodes_.size() == max_nodes_) {
          s.publishing = false;
          return;
        }
        const std::uint64_t above = parent == 0 ? PrefixIndex::kContentRoot : nodes_[parent].content;
        if (by_value_ && states_) note_evicted_before(s, PrefixIndex::content_of(above, tokens));
        id = ++last_id_;
        nodes_[id] = {.name_space = s.name_space, .parent = parent, .block = block, .tokens = tokens};
        nodes_[id].pages.resize(groups_);
        siblings(nodes_[id]).push_back(id);
        nodes_[id].holders = 1;
        note_new(id);
      } else {
        hold(id);
      }
      Node& node = nodes_[id];
      for (std::size_t g = 0; g < groups_; ++g) {
        int& mine = s.tables[g][block];
        if (mine == 0 || mine == node.pages[g]) continue;
        if (node.pages[g] == 0) {
          node.pages[g] = mine;
          pages_[g][mine].node = id;
        } else {
          ++pages_[g][node.pages[g]].references;
          give(g, std::exchange(mine, node.pages[g]));
        }
      }
      s.path.push_back(id);
    }
  }
  // Of the evicted checkpoints on a path that is computed anew, the last one was wanted.
  void note_evicted_before(Sequence& s, std::uint64_t content) {
    if (const auto before = evicted_.find(content, s.name_space)) {
      if (before->kind != EvictedBlocks::kNoKind) s.missed = *before;
      return;
    }
    wanted_after_eviction(s.missed);
    s.missed = {};
  }
  void note_missed_checkpoint(const Match& match) {
    if (!match.no_checkpoint) return;
    for (std::size_t b = match.known.size(); b > match.path.size(); --b) {
      Node& node = nodes_[match.known[b - 1]];
      if (!node.had_state || node.touched != 0) continue;
      odds_.wanted(kind(node), ticks_ - node.last);
      node.had_state = false;
      return;
    }
  }
  void keep_checkpoint(Sequence& s, bool asked) {
    if (s.path.empty() || s.path.size() * block_ != s.tokens.size()) return;
    const int id = s.path.back();
    const std::size_t distance = blocks_since_checkpoint(id, interval_);
    if (distance == 0 || (!asked && distance < interval_)) return;
    arriving_worth_ = worth_of_new_checkpoint(id, asked);
    const int covered = cover_before(id);
    const auto skip = [&] {
      if (covered != 0) set_covered(covered, false);
      begin_checkpoint(nodes_[id], asked);
    };
    while (checkpoints() + 1 > checkpoint_budget_) {
      arriving_ = id;
      const bool thinned = checkpoint_budget_ > 0 && (by_value_ ? evict_least_worth(false) : thin(false));
      arriving_ = 0;
      if (!thinned) return skip();
    }
    Need need(classes());
    need[groups_] = 1;
    if (!feasible(need) || !make_room(need, false)) return skip();
    note_checkpoint(id, asked);
  }
  ResumePoint resume_point(const Sequence& s, std::size_t position) {
    if (position == 0) return {};
    bool in_place = !states_ || position == s.tokens.size();
    for (std::size_t g = 0; g < groups_; ++g) {
      for (std::size_t b = window_start(g, position) / block_; b < s.tables[g].size(); ++b) {
        in_place = in_place && s.tables[g][b] != 0;
      }
    }
    if (in_place) return {position, true};
    for (auto blocks = static_cast<std::size_t>(whole_blocks(s, position)); blocks > 0; --blocks) {
      if (resumable(s.path[blocks - 1])) return {blocks * block_, false};
    }
    return {};
  }

  std::map<int, Sequence> sequences_;
};

}  // namespace quire

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
  // Tokens to make room for, by name.
  using Demands = std::vector<std::pair<int, std::uint32_t>>;

  explicit ReferencePool(const SequencePool& pool) : ReferencePool(pool.config(), PoolGeometry::of(pool)) {}
  ReferencePool(const PoolConfig& config, const PoolGeometry& geometry) : ReferenceCache(config, geometry) {}

  // --- the operations of a pool. The caller chooses names, and uses only names of live sequences. A refusal is nullopt
  // or false.

  // Why a hit ended is predicted as far as the tree shows it. Of a block that is not there, the model does not know
  // whether it was evicted or belongs to another namespace: it says NeverSeen.
  std::optional<Hit> create(int name, const Tokens& prompt, Namespace name_space, bool reuse = true) {
    if (prompt.size() > config_.max_tokens || sequences_.size() == config_.max_sequences) return std::nullopt;
    Match found = match(prompt, name_space, reuse);
    if (!feasible(need_to_attach(found)) && found.length > 0) found = without_prefix(found);
    if (!feasible(need_to_attach(found))) return std::nullopt;
    return create_from(name, prompt, name_space, found);
  }

  // Like create(), with room for `tokens` in all, computed in chunks, and beside what `others` will need.
  std::optional<Hit> admit(int name, const Tokens& prompt, Namespace name_space, bool reuse, std::uint32_t tokens,
                           std::uint32_t chunk, const Demands& others) {
    if (tokens > config_.max_tokens || prompt.size() > tokens) return std::nullopt;
    if (sequences_.size() == config_.max_sequences) return std::nullopt;
    const auto found = best_that_fits(match(prompt, name_space, reuse), tokens, chunk, future_need(others, chunk));
    if (!found) return std::nullopt;
    const Hit hit = create_from(name, prompt, name_space, *found);
    const std::uint32_t missing = tokens - hit.tokens;
    (void)reserve({{name, has_windows_ ? std::min(missing, chunk) : missing}});
    return hit;
  }

  bool reserve(const Demands& demands) {
    const auto planned = plan(demands);
    if (!planned) return false;
    for (std::size_t i = 0; planned->unpublish && i < demands.size(); ++i) {
      for (std::size_t g = 0; g < groups_; ++g) {
        if (copies(demands, i, g, true) && !copies(demands, i, g, false)) unpublish(g, half_full(demands[i].first, g));
      }
    }
    make_room(planned->need, true);
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
      if (tokens > 0) s.writable_until = std::max(s.writable_until, capacity(s, s.tokens.size() + tokens));
    }
    return true;
  }

  bool can_commit(int name, std::size_t tokens) {
    const Sequence& s = sequences_[name];
    const std::size_t end = s.tokens.size() + tokens;
    if (s.has_drafts() && tokens > 0) {
      if (end > s.draft_end) return false;
      // Of a recurrent model: the tokens before the drafts, and then all drafts.
      if (states_ && end != (s.tokens.size() < s.draft_begin ? s.draft_begin : s.draft_end)) return false;
    }
    return end <= s.writable_until;
  }

  bool has_drafts(int name) { return sequences_[name].has_drafts(); }
  bool can_draft(int name, std::size_t certain, std::size_t drafts) {
    const Sequence& s = sequences_[name];
    const std::size_t begin = s.tokens.size() + certain;
    return !s.has_drafts() && certain > 0 && drafts > 0 && begin <= s.writable_until &&
           begin + drafts <= config_.max_tokens;
  }
  bool draft(int name, std::size_t certain, std::size_t drafts) {
    Sequence& s = sequences_[name];
    const std::size_t begin = s.tokens.size() + certain, end = begin + drafts;
    Need need(classes());
    for (std::size_t g = 0; g < groups_; ++g) need[g] = std::max(up(end), s.tables[g].size()) - s.tables[g].size();
    if (states_) need[groups_] = 1;
    if (!feasible(need)) return false;
    make_room(need, true);
    for (std::size_t g = 0; g < groups_; ++g) {
      while (s.tables[g].size() < up(end)) s.tables[g].push_back(take(g));
    }
    held_states_ += states_ ? 1 : 0;
    s.draft_begin = begin;
    s.draft_end = end;
    s.reserved_before = s.writable_until;
    s.writable_until = std::max(s.writable_until, end);
    return true;
  }
  void end_draft(int name) {
    Sequence& s = sequences_[name];
    s.writable_until = std::max(s.tokens.size(), s.reserved_before);
    for (std::size_t g = 0; g < groups_; ++g) give_pages_from(s, g, up(s.writable_until));
    held_states_ -= states_;
    s.draft_end = 0;
  }

  void commit(int name, const Tokens& tokens, bool checkpoint) {
    Sequence& s = sequences_[name];
    s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
    if (s.tokens.size() < s.boundary && !has_windows_ && !checkpoint) return;
    s.boundary = (s.tokens.size() / unit_ + 1) * unit_;
    if (s.publishing) publish(s);
    for (std::size_t g = 0; g < groups_; ++g) {
      if (windows_[g] == 0) continue;
      for (std::size_t b = 0; (b + 1) * block_ <= window_start(g, s.tokens.size()); ++b) {
        if (s.tables[g][b] != 0) give(g, std::exchange(s.tables[g][b], 0));
      }
    }
    if (states_ && s.tokens.size() % unit_ == 0) {
      s.tokens.size() % block_ == 0 ? keep_checkpoint(s, checkpoint) : keep_part(s, checkpoint);
    }
    keep_within_cap(s.name_space);
  }

  std::optional<std::uint32_t> fork(int name, int child_name, std::size_t position) {  // returns the child's length
    if (sequences_.size() == config_.max_sequences) return std::nullopt;
    Sequence& parent = sequences_[name];
    const ResumePoint point = resume_point(parent, position);
    Match through{.length = point.position};
    through.partial = point.part;
    through.partial_tokens = point.part == 0 ? 0 : nodes_[point.part].tokens.size();
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
          if (child.tables[g][b] != 0) hold_page(g, child.tables[g][b]);
        }
      }
      stand_at(child, point.position);
      give_slot(child, 0);
    } else {
      attach(child, through);
    }
    child.tokens.assign(parent.tokens.begin(), parent.tokens.begin() + static_cast<long>(point.position));
    // The half-full page of the parent is in two tables now.
    const std::size_t length = parent.tokens.size();
    if (point.in_place && length % block_ != 0 && point.position > length / block_ * block_)
      parent.writable_until = length;
    sequences_[child_name] = std::move(child);
    return static_cast<std::uint32_t>(point.position);
  }

  std::uint32_t rewind(int name, std::size_t position) {  // returns the new length
    Sequence& s = sequences_[name];
    if (position == s.tokens.size()) return static_cast<std::uint32_t>(position);  // reserved pages stay
    const ResumePoint point = resume_point(s, position);
    const std::size_t to = point.position, blocks = to / block_;
    if (states_ && to > 0) note_resumed(point.part != 0 ? point.part : s.path[blocks - 1]);
    if (point.part != 0) {
      hold(point.part);  // used now
      let_go(point.part);
    }
    for (std::size_t g = 0; g < groups_; ++g) {
      give_pages_from(s, g, up(to));
      for (std::size_t b = s.tables[g].size(); b-- > window_start(g, to) / block_;) {
        if (s.tables[g][b] != 0) continue;
        s.tables[g][b] = nodes_[b == blocks ? point.part : s.path[b]].pages[g];
        hold_page(g, s.tables[g][b]);
      }
    }
    while (s.path.size() > blocks) let_go_last(s);
    s.publishing = s.publishing || s.path.size() == blocks;
    s.tokens.resize(to);
    stand_at(s, to);
    keep_within_cap(s.name_space);
    return static_cast<std::uint32_t>(to);
  }

  void release(int name) {
    Sequence& s = sequences_[name];
    keep_tail(s);
    for (std::size_t g = 0; g < groups_; ++g) give_pages_from(s, g, 0);
    while (!s.path.empty()) let_go_last(s);
    held_states_ -= states_;
    if (s.has_drafts()) held_states_ -= states_;
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

  // What suspend() copies: what no other sequence holds together with its block of the tree.
  Away to_copy(int name) {
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
    return away;
  }
  Away suspend(int name) {
    Away away = to_copy(name);
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
        if (page != 0) hold_page(g, page);
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
    stand_at(s, away.tokens.size());
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
    while (checkpoints() > 0) set_checkpoint(checkpoints_.begin()->second, false);
  }

  // Whether the pool's hit is the predicted one.
  static bool same(const Hit& pool, const Hit& predicted) {
    const auto absent = [](HitEnd end) {
      return end == HitEnd::NeverSeen || end == HitEnd::Evicted || end == HitEnd::OtherNamespace;
    };
    return pool.tokens == predicted.tokens && pool.matched == predicted.matched &&
           (pool.end == predicted.end || (absent(pool.end) && absent(predicted.end)));
  }
  std::size_t length(int name) const { return sequences_.at(name).tokens.size(); }
  std::size_t sequences() const { return sequences_.size(); }

 private:
  struct Sequence {
    Namespace name_space = 0;
    Tokens tokens;
    std::vector<std::vector<int>> tables;  // by group; 0: given back
    std::vector<int> path;                 // nodes
    bool publishing = true;
    std::size_t boundary = 0;        // the next block boundary
    std::size_t writable_until = 0;  // end of what was reserved
    std::size_t draft_begin = 0, draft_end = 0, reserved_before = 0;
    bool has_drafts() const { return draft_end != 0; }
    EvictedBlocks::Use missed;  // the last checkpoint on its path that had been evicted
  };
  struct Match {
    std::size_t length = 0, matched = 0;
    HitEnd end = HitEnd::Complete;
    std::vector<int> path;
    int partial = 0;
    std::size_t partial_tokens = 0;
    std::size_t whole = 0;   // nodes of the path after which a sequence could start without the part
    std::vector<int> known;  // the path, and the nodes after it that cannot be resumed from
  };
  struct Plan {
    Need need;
    bool unpublish = false;
  };
  struct ResumePoint {
    std::size_t position = 0;
    bool in_place = true;
    int part = 0;  // where the state comes from, if it lies inside a block
  };

  long whole_blocks(const Sequence& s, std::size_t position) const {
    return static_cast<long>(std::min(position / block_, s.path.size()));
  }
  Sequence empty(Namespace name_space) const {
    Sequence s{.name_space = name_space};
    s.tables.resize(groups_);
    return s;
  }
  void stand_at(Sequence& s, std::size_t position) const {
    s.boundary = (position / unit_ + 1) * unit_;
    s.writable_until = position;
  }
  // The tokens that the sequence's tables have room for; `target` if it has no tables.
  std::size_t capacity(const Sequence& s, std::size_t target) const {
    std::size_t tokens = groups_ == 0 ? target : config_.max_tokens;
    for (const auto& table : s.tables) tokens = std::min(tokens, table.size() * block_);
    return tokens;
  }

  // --- room for tokens
  std::optional<Plan> plan(const Demands& demands) {
    Need need(classes()), without(classes());
    for (std::size_t i = 0; i < demands.size(); ++i) {
      const Sequence& s = sequences_[demands[i].first];
      const std::size_t target = s.tokens.size() + demands[i].second;
      if (target > config_.max_tokens) return std::nullopt;
      for (std::size_t g = 0; g < groups_; ++g) {
        const std::size_t have = s.tables[g].size(), missing = up(target) > have ? up(target) - have : 0;
        need[g] += missing + copies(demands, i, g, true);
        without[g] += missing + copies(demands, i, g, false);
      }
    }
    if (feasible(need)) return Plan{need, false};
    if (feasible(without)) return Plan{without, true};
    return std::nullopt;
  }
  // The most pages that a sequence of so many tokens holds at once: all of them, or a window and the chunk after it.
  std::size_t most_pages(std::size_t group, std::size_t tokens, std::size_t chunk) const {
    if (windows_[group] == 0) return up(tokens);
    return std::min(up(tokens), up(windows_[group] + std::max<std::size_t>(chunk, 1) + block_ - 2));
  }
  // Pages to grow from `there` blocks, of which `held` have a page, until `tokens`; the next step ends at `next`.
  std::size_t pages_to_grow(std::size_t group, std::size_t there, std::size_t held, std::size_t next,
                            std::size_t tokens, std::size_t chunk) const {
    const auto beyond = [](std::size_t wanted, std::size_t have) { return wanted > have ? wanted - have : 0; };
    const std::size_t all = beyond(up(tokens), there);
    if (windows_[group] == 0) return all;
    return std::max(beyond(up(next), there), std::min(all, beyond(most_pages(group, tokens, chunk), held)));
  }
  // What the others take, beyond what they hold, until each has its tokens.
  Need future_need(const Demands& others, std::size_t chunk) {
    Need need(classes());
    for (std::size_t i = 0; i < others.size(); ++i) {
      const Sequence& s = sequences_[others[i].first];
      const std::size_t length = s.tokens.size(), until = length + others[i].second;
      for (std::size_t g = 0; g < groups_; ++g) {
        const auto held = s.tables[g].size() - static_cast<std::size_t>(std::ranges::count(s.tables[g], 0));
        need[g] += pages_to_grow(g, s.tables[g].size(), held, std::min(until, length + chunk), until, chunk);
        need[g] += copies(others, i, g, false);
      }
    }
    return need;
  }
  Need need_to_admit(const Match& match, std::size_t tokens, std::size_t chunk) {
    Need need = need_to_attach(match);
    const std::size_t there = match.path.size() + (match.partial != 0 ? 1 : 0);
    for (std::size_t g = 0; g < groups_; ++g) {
      const std::size_t held = there - std::min(there, window_start(g, match.length) / block_);
      need[g] += pages_to_grow(g, there, held, std::min(tokens, match.length + chunk), tokens, chunk);
      need[g] += match.partial != 0;  // is copied
    }
    return need;
  }
  // All of the prefix, its whole blocks, or nothing of it.
  std::optional<Match> best_that_fits(const Match& found, std::size_t tokens, std::size_t chunk, const Need& others) {
    for (const Match& match : {found, whole_blocks(found), without_prefix(found)}) {
      Need need = need_to_admit(match, tokens, chunk);
      for (std::size_t c = 0; c < classes(); ++c) need[c] += others[c];
      if (feasible(need)) return match;
      if (found.length == 0) break;
    }
    return std::nullopt;
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
  bool copies(const Demands& demands, std::size_t index, std::size_t group, bool copy_known) {
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
  static Match without_prefix(const Match& match) {
    Match none;
    none.matched = match.matched;
    none.end = HitEnd::NoRoom;
    return none;
  }
  Match whole_blocks(const Match& match) const {  // the same match if it has no part of a page
    if (match.partial == 0) return match;
    Match whole = match;
    whole.path.resize(match.whole);
    whole.length = match.whole * block_;
    whole.end = HitEnd::NoRoom;
    whole.partial = 0;
    return whole;
  }
  Match match(const Tokens& prompt, Namespace name_space, bool reuse) {
    Match result;
    if (!reuse || !config_.prefix_cache) {
      result.end = HitEnd::Disabled;
      return result;
    }
    if (prompt.empty()) return result;
    const Tokens usable(prompt.begin(), prompt.end() - 1);  // one token is left to compute
    result.path = walk(usable, name_space);
    result.known = result.path;
    const std::size_t known = result.path.size();
    const int last = known == 0 ? 0 : result.path.back();
    while (!result.path.empty() && !resumable(result.path.back())) result.path.pop_back();
    result.length = result.path.size() * block_;
    result.matched = known * block_;
    result.whole = result.path.size();
    if (unit_ < block_) {
      match_part(prompt, usable, name_space, result);
      return result;
    }
    if (result.path.size() < known) {
      result.end = states_ && nodes_[last].touched == 0 ? HitEnd::NoCheckpoint : HitEnd::WindowGone;
      return result;
    }
    if (!states_) match_part_of_a_page(usable, name_space, last, result);
    // A recurrent model cannot reuse part of a block, so it has reused all that it could.
    const bool complete = result.length == usable.size() || (states_ && prompt.size() - known * block_ < block_);
    result.end = complete ? HitEnd::Complete : HitEnd::NeverSeen;
    return result;
  }
  // Where checkpoints may lie inside blocks: the last place that has everything, after a whole block or after a part.
  void match_part(const Tokens& prompt, const Tokens& usable, Namespace name_space, Match& result) {
    const std::size_t known = result.known.size();
    for (std::size_t b = known + 1; b-- > result.path.size();) {
      const int part = resumable_part(name_space, b == 0 ? 0 : result.known[b - 1], after(usable, b * block_));
      if (part == 0) continue;
      result.path.assign(result.known.begin(), result.known.begin() + static_cast<long>(b));
      result.partial = part;
      result.partial_tokens = nodes_[part].tokens.size();
      result.length = end(part);
      break;
    }
    const int last = known == 0 ? 0 : result.known.back();
    const Tokens rest = first_of(after(usable, known * block_), block_ - 1);
    const std::size_t more = most_shared(name_space, last, rest).second / unit_ * unit_;
    result.matched = std::max(known * block_ + more, result.length);
    if (result.length < result.matched) {
      const bool has_state = more > 0 ? child(name_space, last, first_of(rest, more)) != 0 : nodes_[last].touched != 0;
      result.end = has_state ? HitEnd::WindowGone : HitEnd::NoCheckpoint;
    } else {
      result.end = prompt.size() - result.length < unit_ ? HitEnd::Complete : HitEnd::NeverSeen;
    }
  }
  // The child that shares the most first tokens, and how many; the latest of several. Only the latest are compared.
  std::pair<int, std::size_t> most_shared(Namespace name_space, int parent, const Tokens& tokens) {
    const auto& candidates = children(name_space, parent);
    std::size_t best = 0;
    int partial = 0;
    const std::size_t skipped =
        candidates.size() - std::min<std::size_t>(candidates.size(), PrefixIndex::kPartialLooks);
    for (std::size_t i = skipped; i < candidates.size(); ++i) {
      const Tokens& theirs = nodes_[candidates[i]].tokens;
      const auto same = static_cast<std::size_t>(std::ranges::mismatch(tokens, theirs).in1 - tokens.begin());
      if (same > 0 && same >= best) best = same, partial = candidates[i];
    }
    return {partial, best};
  }
  void match_part_of_a_page(const Tokens& usable, Namespace name_space, int parent, Match& result) {
    const std::size_t limit = std::min<std::size_t>(usable.size() - result.length, block_ - 1);
    const auto [partial, best] = most_shared(name_space, parent, first_of(after(usable, result.length), limit));
    if (partial == 0 || std::ranges::count(nodes_[partial].pages, 0) > 0) return;
    result.partial = partial;
    result.partial_tokens = best;
    result.length += best;
    result.matched += best;
  }
  Hit create_from(int name, const Tokens& prompt, Namespace name_space, const Match& found) {
    Sequence s = empty(name_space);
    note_missed_checkpoint(found, prompt, name_space);
    attach(s, found);
    s.tokens.assign(prompt.begin(), prompt.begin() + static_cast<long>(found.length));
    sequences_[name] = std::move(s);
    return {static_cast<std::uint32_t>(found.length), static_cast<std::uint32_t>(found.matched), found.end};
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
    if (states_) need[groups_] = match.length == 0 ? 1 : 2;  // the checkpoint too: it is read after making room
    return need;
  }
  void attach(Sequence& s, const Match& match) {
    s.path = match.path;
    for (const int node : s.path) hold(node);
    const int part = match.partial != 0 && is_part(match.partial) ? match.partial : 0;
    if (part != 0) hold(part);
    for (std::size_t g = 0; g < groups_; ++g) {
      const auto take_page = [&](int node) {
        s.tables[g].push_back(nodes_[node].pages[g]);
        hold_page(g, s.tables[g].back());
      };
      for (std::size_t b = 0; b < s.path.size(); ++b) {
        if (b < window_start(g, match.length) / block_) {
          s.tables[g].push_back(0);
        } else {
          take_page(s.path[b]);
        }
      }
      if (match.partial != 0) take_page(match.partial);
    }
    stand_at(s, match.length);
    give_slot(s, part != 0 ? part : s.path.empty() ? 0 : s.path.back());
    if (part != 0) let_go(part);
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
    let_go(id);
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
        const std::uint64_t above = parent == 0 ? PrefixIndex::kContentRoot : nodes_[parent].content;
        if (by_value_ && states_) {
          for (std::size_t part = unit_; part < block_; part += unit_) {
            note_evicted_part(s, parent, first_of(tokens, part));
          }
          note_evicted_before(s, PrefixIndex::content_of(above, tokens));
        }
        if (nodes_.size() == max_nodes_) {
          s.publishing = false;
          return;
        }
        id = add_child(s.name_space, parent, block, tokens);
        if (!states_) evict_shorter_parts(s.name_space, parent, tokens);
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
          hold_page(g, node.pages[g]);
          give(g, std::exchange(mine, node.pages[g]));
        }
      }
      s.path.push_back(id);
    }
  }
  // What a sequence has in its last page becomes a part when it is released, unless the index knows it already.
  void keep_tail(Sequence& s) {
    const std::size_t block = s.tokens.size() / block_, count = s.tokens.size() % block_;
    if (least_tail_ == 0 || count < least_tail_ || !s.publishing || !config_.prefix_cache || s.path.size() != block) {
      return;
    }
    for (std::size_t g = 0; g < groups_; ++g) {
      if (s.tables[g][block] == 0 || pages_[g][s.tables[g][block]].node != 0) return;
    }
    const int parent = s.path.empty() ? 0 : s.path.back();
    const Tokens tokens = after(s.tokens, block * block_);
    if (most_shared(s.name_space, parent, tokens).second == count) return;
    if (child(s.name_space, parent, tokens) != 0) return;
    if (nodes_.size() == max_nodes_ && least_recently_used() != 0) evict(least_recently_used());
    if (nodes_.size() == max_nodes_) return;
    const int id = add_child(s.name_space, parent, block, tokens);
    for (std::size_t g = 0; g < groups_; ++g) {
      nodes_[id].pages[g] = s.tables[g][block];
      pages_[g][s.tables[g][block]].node = id;
    }
    let_go(id);
    evict_shorter_parts(s.name_space, parent, tokens);
  }
  void evict_shorter_parts(Namespace name_space, int parent, const Tokens& tokens) {
    for (bool found = true; found;) {
      found = false;
      const std::vector<int> all = children(name_space, parent);
      const std::size_t looks = std::min<std::size_t>(all.size(), PrefixIndex::kPartialLooks);
      for (std::size_t i = 0; i < looks && !found; ++i) {
        const int id = all[all.size() - 1 - i];
        const Tokens& theirs = nodes_[id].tokens;
        found = is_part(id) && theirs.size() < tokens.size() && theirs == first_of(tokens, theirs.size());
        if (found) evict(id);
      }
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
  std::uint64_t content_of(int parent, const Tokens& tokens) {
    return PrefixIndex::content_of(parent == 0 ? PrefixIndex::kContentRoot : nodes_[parent].content, tokens);
  }
  void note_evicted_part(Sequence& s, int parent, const Tokens& tokens) {
    if (child(s.name_space, parent, tokens) != 0) return;
    const auto before = evicted_.find(content_of(parent, tokens), s.name_space);
    if (before && before->kind != EvictedBlocks::kNoKind) s.missed = *before;
  }
  // Of the checkpoints that are missing between where a sequence starts and what is known, the last one was wanted.
  void note_missed_checkpoint(const Match& match, const Tokens& prompt, Namespace name_space) {
    if (!by_value_ || match.end != HitEnd::NoCheckpoint) return;
    for (std::size_t end = match.matched; end > match.length; end -= unit_) {
      const std::size_t blocks = end / block_;
      const int above = blocks == 0 ? 0 : match.known[blocks - 1];
      if (end % block_ == 0) {
        Node& node = nodes_[above];
        if (!node.had_state || node.touched != 0) continue;
        odds_.wanted(kind(node), ticks_ - node.last);
        node.had_state = false;
        return;
      }
      const Tokens tokens = first_of(after(prompt, blocks * block_), end % block_);
      const std::uint64_t content = content_of(above, tokens);
      const auto use = evicted_.find(content, name_space);
      if (child(name_space, above, tokens) != 0 || !use || use->kind == EvictedBlocks::kNoKind) continue;
      wanted_after_eviction(*use);
      evicted_.remember(content, name_space, {use->last, EvictedBlocks::kNoKind});
      return;
    }
  }
  bool make_room_for_checkpoint(int arriving, const Need& need) {
    while (checkpoints() + 1 > checkpoint_budget_) {
      arriving_ = arriving;
      const bool thinned = checkpoint_budget_ > 0 && (by_value_ ? evict_least_worth(false) : thin(false));
      arriving_ = 0;
      if (!thinned) return false;
    }
    return feasible(need) && make_room(need, false);
  }
  void keep_checkpoint(Sequence& s, bool asked) {
    if (s.path.empty() || s.path.size() * block_ != s.tokens.size()) return;
    const int id = s.path.back();
    const std::size_t distance = units_since_checkpoint(id, interval_);
    if (distance == 0 || (!asked && distance < interval_)) return;
    arriving_worth_ =
        worth_of_new_checkpoint(s.tokens.size(), units_since_checkpoint(id, kLooks), asked, bytes_[groups_]);
    const int covered = cover_before(s.name_space, nodes_[id].parent, nodes_[id].tokens);
    Need need(classes());
    need[groups_] = 1;
    if (make_room_for_checkpoint(id, need)) return note_checkpoint(id, asked);
    uncover(covered);
    begin_checkpoint(nodes_[id], asked);
  }
  // A checkpoint inside a block: a part, with copies of the half-full pages.
  void keep_part(Sequence& s, bool asked) {
    const std::size_t block = s.path.size();
    if (!s.publishing || !config_.prefix_cache || block != s.tokens.size() / block_) return;
    const int parent = s.path.empty() ? 0 : s.path.back();
    const Tokens tokens = after(s.tokens, block * block_);
    if (child(s.name_space, parent, tokens) != 0) return;
    if (!asked && units_since_checkpoint(s.name_space, parent, tokens, interval_) < interval_) return;
    note_evicted_part(s, parent, tokens);
    const std::size_t units = units_since_checkpoint(s.name_space, parent, tokens, kLooks);
    arriving_worth_ = worth_of_new_checkpoint(s.tokens.size(), units, asked, bytes_[groups_] + node_bytes());
    const int covered = cover_before(s.name_space, parent, tokens);
    bool room = make_room_for_checkpoint(0, Need(classes(), 1));
    if (room && nodes_.size() == max_nodes_ && least_recently_used() != 0) evict(least_recently_used());
    room = room && nodes_.size() < max_nodes_;
    if (!room) {
      uncover(covered);
      if (!by_value_) return;
      const std::uint8_t kind = checkpoint_kind(false, asked, false);
      odds_.began(kind);
      evicted_.remember(content_of(parent, tokens), s.name_space, {++ticks_, kind});
      return;
    }
    const int id = add_child(s.name_space, parent, block, tokens);
    for (std::size_t g = 0; g < groups_; ++g) {
      const int page = take(g);
      nodes_[id].pages[g] = page;
      pages_[g][page].node = id;
      give(g, page);
    }
    note_checkpoint(id, asked);
    let_go(id);
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
    for (auto blocks = static_cast<std::size_t>(whole_blocks(s, position));; --blocks) {
      const Tokens rest = after(first_of(s.tokens, position), blocks * block_);
      const int part = resumable_part(s.name_space, blocks == 0 ? 0 : s.path[blocks - 1], rest);
      if (part != 0) return {end(part), false, part};
      if (blocks == 0) return {};
      if (resumable(s.path[blocks - 1])) return {blocks * block_, false};
    }
  }

  std::map<int, Sequence> sequences_;
};

}  // namespace quire

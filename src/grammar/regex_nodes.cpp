// Makes nodes in their normal form.
#include "quire/grammar/regex_nodes.h"

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>
#include <vector>

namespace quire::grammar {

using regex::kItemSteps;
using regex::kMaxDepth;
using regex::kMaxFactoring;
using regex::kNewNodeSteps;
using regex::kNodeSteps;
using regex::kNoSet;
using regex::mix;

RegexSet::Impl::Impl(Budget& owner) : budget(&owner) {
  table.resize(256);
  class_sets.emplace_back();
  class_bytes.push_back({0});
  class_sets_by_hash.emplace(hash_of(class_sets[0]), 0);
  append({.kind = Kind::Nothing});
  append({.kind = Kind::Empty, .nullable = true, .sure = true});
  append({.kind = Kind::Everything, .nullable = true, .sure = true});
}

RegexId RegexSet::Impl::append(const Node& node) {
  nodes.push_back(node);
  emptiness.push_back(node.sure                    ? Emptiness::MatchesSome
                      : node.kind == Kind::Nothing ? Emptiness::MatchesNothing
                                                   : Emptiness::Unknown);
  node_classes.push_back(kNoSet);
  return static_cast<RegexId>(nodes.size() - 1);
}

std::uint64_t RegexSet::Impl::hash_of(const Node& node, std::span<const RegexId> items) const {
  std::uint64_t hash = mix(static_cast<std::uint64_t>(node.kind), 17);
  if (node.kind == Kind::Bytes) {
    for (const std::uint64_t word : sets[node.a].words()) hash = mix(hash, word);
  } else if (node.kind == Kind::Union || node.kind == Kind::Intersection) {
    for (const RegexId item : items) hash = mix(hash, item);
  } else {
    hash = mix(mix(mix(hash, node.a), node.b), node.c);
  }
  return hash;
}

void RegexSet::Impl::grow_table() {
  std::vector<std::uint32_t> larger(table.size() * 2);
  const std::size_t mask = larger.size() - 1;
  for (const std::uint32_t entry : table) {
    if (entry == 0) continue;
    const Node& node = nodes[entry - 1];
    const bool listed = node.kind == Kind::Union || node.kind == Kind::Intersection;
    std::size_t slot = hash_of(node, listed ? list(node) : std::span<const RegexId>()) & mask;
    while (larger[slot] != 0) slot = (slot + 1) & mask;
    larger[slot] = entry;
  }
  table = std::move(larger);
}

// `same` says whether an existing node is the wanted one; `store` completes a new one before it is appended.
template <typename Same, typename Store>
RegexId RegexSet::Impl::intern(Node node, std::uint64_t hash, Same same, Store store) {
  if (node.depth > kMaxDepth) budget->take(~std::uint64_t{0} >> 1);
  if (!budget->take(kNodeSteps)) return kNothing;
  const std::size_t mask = table.size() - 1;
  std::size_t slot = hash & mask;
  for (; table[slot] != 0; slot = (slot + 1) & mask) {
    const Node& found = nodes[table[slot] - 1];
    if (found.kind == node.kind && same(found)) return table[slot] - 1;
  }
  store(node);
  if (!budget->take(kNewNodeSteps, sizeof(Node) + 16)) return kNothing;
  const RegexId id = append(node);
  table[slot] = id + 1;
  if (nodes.size() * 2 > table.size()) grow_table();
  return id;
}

RegexId RegexSet::Impl::intern_plain(const Node& node) {
  return intern(
      node, hash_of(node, {}), [&](const Node& found) { return found == node; }, [](Node&) {});
}

RegexId RegexSet::Impl::intern_list(Node node, std::span<const RegexId> items) {
  return intern(
      node, hash_of(node, items), [&](const Node& found) { return std::ranges::equal(list(found), items); },
      [&](Node& made) {
        made.a = static_cast<std::uint32_t>(lists.size());
        made.b = static_cast<std::uint32_t>(items.size());
        budget->take(kItemSteps * items.size(), items.size() * sizeof(RegexId));
        lists.insert(lists.end(), items.begin(), items.end());
      });
}

RegexId RegexSet::Impl::bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  Node node{.kind = Kind::Bytes, .sure = true};
  std::uint64_t hash = mix(static_cast<std::uint64_t>(node.kind), 17);
  for (const std::uint64_t word : set.words()) hash = mix(hash, word);
  return intern(
      node, hash, [&](const Node& found) { return sets[found.a] == set; },
      [&](Node& made) {
        made.a = static_cast<std::uint32_t>(sets.size());
        sets.push_back(set);
        budget->take(0, sizeof(ByteSet));
      });
}

// `head` is not a concatenation.
RegexId RegexSet::Impl::concat_node(RegexId head, RegexId tail) {
  if (head == kNothing || tail == kNothing) return kNothing;
  if (head == kEmpty) return tail;
  if (tail == kEmpty) return head;
  if (nodes[tail].kind == Kind::Concat) {
    const Node next = nodes[tail];
    const RegexId joined = joined_repeats(head, next.a);
    if (joined != kNothing) return concat_node(joined, next.b);
  } else {
    const RegexId joined = joined_repeats(head, tail);
    if (joined != kNothing) return joined;
  }
  const Node& h = nodes[head];
  const Node& t = nodes[tail];
  return intern_plain({.kind = Kind::Concat,
                       .nullable = h.nullable && t.nullable,
                       .sure = h.sure && t.sure,
                       .positive = h.positive && t.positive,
                       .depth = static_cast<std::uint16_t>(std::max<unsigned>(h.depth + 1U, t.depth)),
                       .a = head,
                       .b = tail,
                       .counter = std::max(h.counter, t.counter)});
}

// x* x* is x*, x+ x* is x+. kNothing: the two cannot be joined.
RegexId RegexSet::Impl::joined_repeats(RegexId left, RegexId right) {
  if (left == kEverything && right == kEverything) return kEverything;
  const Node& l = nodes[left];
  const Node& r = nodes[right];
  if (l.kind != Kind::Repeat || r.kind != Kind::Repeat || l.a != r.a) return kNothing;
  if (l.c != kUnbounded || r.c != kUnbounded) return kNothing;
  if (std::uint64_t{l.b} + r.b >= kUnbounded) return kNothing;
  return repeat(l.a, l.b + r.b, kUnbounded);
}

RegexId RegexSet::Impl::concat2(RegexId left, RegexId right) {
  if (nodes[left].kind != Kind::Concat) return concat_node(left, right);
  std::vector<RegexId> heads;
  while (nodes[left].kind == Kind::Concat) {
    heads.push_back(nodes[left].a);
    left = nodes[left].b;
  }
  heads.push_back(left);
  for (const RegexId head : std::views::reverse(heads)) right = concat_node(head, right);
  return right;
}

void RegexSet::Impl::flatten(Kind kind, std::span<const RegexId> parts, std::vector<RegexId>& out) const {
  for (const RegexId part : parts) {
    if (nodes[part].kind == kind) {
      const auto items = list(nodes[part]);
      out.insert(out.end(), items.begin(), items.end());
    } else {
      out.push_back(part);
    }
  }
  std::ranges::sort(out);
  const auto rest = std::ranges::unique(out);
  out.erase(rest.begin(), rest.end());
}

bool RegexSet::Impl::has_complement_pair(std::span<const RegexId> items) const {
  return std::ranges::any_of(items, [&](RegexId item) {
    return nodes[item].kind == Kind::Complement && std::ranges::binary_search(items, nodes[item].a);
  });
}

// Head and tail; the tail of what is not a concatenation is kEmpty.
std::pair<RegexId, RegexId> RegexSet::Impl::split(RegexId id) const {
  const Node& node = nodes[id];
  if (node.kind == Kind::Concat) return {node.a, node.b};
  return {id, kEmpty};
}

// x{2,5} | x{4,9} is x{2,9}. True: `items` changed and needs sorting.
bool RegexSet::Impl::merge_repeats(std::vector<RegexId>& items) {
  struct Range {
    RegexId of;
    std::uint32_t least, most;
    std::size_t at;
    RegexId item;  // that stands there, as long as no other range has taken it
  };
  std::vector<Range> ranges;
  std::vector<RegexId> repeated;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Node& node = nodes[items[i]];
    if (node.kind != Kind::Repeat) continue;
    ranges.push_back({node.a, node.b, node.c, i, items[i]});
    repeated.push_back(node.a);
  }
  if (ranges.empty()) return false;
  std::ranges::sort(repeated);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (std::ranges::binary_search(repeated, items[i])) ranges.push_back({items[i], 1, 1, i, items[i]});
  }
  std::ranges::sort(ranges, {}, [](const Range& range) { return std::tuple(range.of, range.least, range.most); });
  bool changed = false;
  for (std::size_t i = 0; i + 1 < ranges.size(); ++i) {
    Range& next = ranges[i + 1];
    const Range& range = ranges[i];
    if (range.of != next.of || (range.most != kUnbounded && std::uint64_t{range.most} + 1 < next.least)) continue;
    // x{2,3} may be both a repetition of x and what (x{2,3}){2,4} repeats. It is merged once; the caller comes again.
    if (items[range.at] != range.item || items[next.at] != next.item) continue;
    next.most = std::max(range.most, next.most);
    next.least = range.least;
    items[range.at] = kNothing;
    items[next.at] = next.item = repeat(next.of, next.least, next.most);
    changed = true;
  }
  return changed;
}

// a·b | a·c is a·(b | c).
bool RegexSet::Impl::factor_heads(std::vector<RegexId>& items) {
  if (factoring >= kMaxFactoring) return false;
  std::vector<std::pair<RegexId, std::size_t>> heads;
  for (std::size_t i = 0; i < items.size(); ++i) heads.emplace_back(split(items[i]).first, i);
  std::ranges::sort(heads);
  bool changed = false;
  for (std::size_t i = 0; i < heads.size();) {
    std::size_t end = i + 1;
    while (end < heads.size() && heads[end].first == heads[i].first) ++end;
    if (end - i > 1) {
      std::vector<RegexId> tails;
      for (std::size_t j = i; j < end; ++j) tails.push_back(split(items[heads[j].second]).second);
      ++factoring;
      const RegexId tail = any_of(tails);
      --factoring;
      for (std::size_t j = i; j < end; ++j) items[heads[j].second] = kNothing;
      items[heads[i].second] = concat_node(heads[i].first, tail);
      changed = true;
    }
    i = end;
  }
  return changed;
}

RegexId RegexSet::Impl::any_of(std::span<const RegexId> parts) {
  if (!budget->take(kItemSteps * (1 + parts.size()))) return kNothing;
  std::vector<RegexId> items;
  flatten(Kind::Union, parts, items);
  for (;;) {
    if (!items.empty() && items.front() == kNothing) items.erase(items.begin());
    if (items.size() <= 1) return items.empty() ? kNothing : items.front();
    if (std::ranges::binary_search(items, kEverything) || has_complement_pair(items)) return kEverything;
    // One set of bytes.
    ByteSet all;
    std::size_t count = 0;
    for (const RegexId item : items) {
      if (nodes[item].kind != Kind::Bytes) continue;
      all = all | sets[nodes[item].a];
      ++count;
    }
    bool changed = false;
    if (count > 1) {
      std::erase_if(items, [&](RegexId item) { return nodes[item].kind == Kind::Bytes; });
      items.push_back(bytes(all));
      changed = true;
    }
    changed = merge_repeats(items) || changed;
    changed = factor_heads(items) || changed;
    if (items.front() == kEmpty || std::ranges::find(items, kEmpty) != items.end()) {
      const auto nullable = [&](RegexId item) { return item != kEmpty && nodes[item].nullable; };
      const auto once = [&](RegexId item) { return nodes[item].kind == Kind::Repeat && nodes[item].b == 1; };
      if (std::ranges::any_of(items, nullable)) {
        std::erase(items, kEmpty);
        changed = true;
      } else if (const auto found = std::ranges::find_if(items, once); found != items.end()) {
        *found = repeat(nodes[*found].a, 0, nodes[*found].c);
        std::erase(items, kEmpty);
        changed = true;
      }
    }
    if (!changed) break;
    if (budget->exhausted()) return kNothing;
    std::vector<RegexId> again;
    flatten(Kind::Union, items, again);
    items = std::move(again);
  }
  Node node{.kind = Kind::Union};
  unsigned depth = 0;
  for (const RegexId item : items) {
    const Node& part = nodes[item];
    node.nullable = node.nullable || part.nullable;
    node.sure = node.sure || part.sure;
    node.positive = node.positive && part.positive;
    node.counter = std::max(node.counter, part.counter);
    depth = std::max<unsigned>(depth, part.depth + 1U);
  }
  node.depth = static_cast<std::uint16_t>(depth);
  return intern_list(node, items);
}

RegexId RegexSet::Impl::all_of(std::span<const RegexId> parts) {
  if (!budget->take(kItemSteps * (1 + parts.size()))) return kNothing;
  std::vector<RegexId> items;
  flatten(Kind::Intersection, parts, items);
  std::erase(items, kEverything);
  if (items.empty()) return kEverything;
  if (items.front() == kNothing || has_complement_pair(items)) return kNothing;
  if (items.front() == kEmpty) {
    const bool all = std::ranges::all_of(items, [&](RegexId item) { return nodes[item].nullable; });
    return all ? kEmpty : kNothing;
  }
  ByteSet common = ByteSet::all();
  std::size_t count = 0;
  for (const RegexId item : items) {
    if (nodes[item].kind != Kind::Bytes) continue;
    common = common & sets[nodes[item].a];
    ++count;
  }
  if (count > 1) {
    std::erase_if(items, [&](RegexId item) { return nodes[item].kind == Kind::Bytes; });
    const RegexId set = bytes(common);
    if (set == kNothing) return kNothing;
    items.insert(std::ranges::lower_bound(items, set), set);
  }
  if (items.size() == 1) return items.front();
  Node node{.kind = Kind::Intersection, .nullable = true, .positive = false};
  unsigned depth = 0;
  for (const RegexId item : items) {
    node.nullable = node.nullable && nodes[item].nullable;
    node.counter = std::max(node.counter, nodes[item].counter);
    depth = std::max<unsigned>(depth, nodes[item].depth + 1U);
  }
  node.sure = node.nullable;
  node.depth = static_cast<std::uint16_t>(depth);
  return intern_list(node, items);
}

RegexId RegexSet::Impl::complement(RegexId of) {
  if (of == kNothing) return budget->exhausted() ? kNothing : kEverything;
  if (of == kEverything) return kNothing;
  const Node& node = nodes[of];
  if (node.kind == Kind::Complement) return node.a;
  return intern_plain({.kind = Kind::Complement,
                       .nullable = !node.nullable,
                       .sure = !node.nullable,
                       .positive = false,
                       .depth = static_cast<std::uint16_t>(node.depth + 1U),
                       .a = of,
                       .counter = node.counter});
}

RegexId RegexSet::Impl::repeat(RegexId of, std::uint32_t least, std::uint32_t most) {
  if (least > most || budget->exhausted()) return kNothing;
  if (most == 0 || of == kEmpty) return kEmpty;
  if (of == kNothing) return least == 0 ? kEmpty : kNothing;
  if (of == kEverything) return of;
  if (least == 1 && most == 1) return of;
  const Node node = nodes[of];
  if (node.nullable) {
    least = 0;
    if (most == 1) return of;
  }
  if (node.kind == Kind::Repeat) {
    if (node.b == 0 && node.c == kUnbounded) return of;
    // (x?)* and (x+)* are x*.
    if (node.b <= 1 && least <= 1 && most == kUnbounded) return repeat(node.a, std::min(node.b, least), kUnbounded);
  }
  if (node.kind == Kind::Bytes && sets[node.a] == ByteSet::all() && least == 0 && most == kUnbounded)
    return kEverything;
  const std::uint32_t counter = std::max(least, most == kUnbounded ? 0 : most);
  return intern_plain({.kind = Kind::Repeat,
                       .nullable = least == 0 || node.nullable,
                       .sure = least == 0 || node.sure,
                       .positive = node.positive,
                       .depth = static_cast<std::uint16_t>(node.depth + 1U),
                       .a = of,
                       .b = least,
                       .c = most,
                       .counter = std::max(counter, node.counter)});
}

}  // namespace quire::grammar

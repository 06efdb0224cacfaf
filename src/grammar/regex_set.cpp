#include "quire/grammar/regex_set.h"

#include <algorithm>
#include <ranges>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quire/grammar/interner.h"

namespace quire::grammar {

namespace {

enum class Kind : std::uint8_t { Nothing, Empty, Everything, Bytes, Concat, Union, Intersection, Complement, Repeat };

// Nesting beyond this is refused like an exhausted budget: functions recurse over it. Tails of concatenations do not
// count.
constexpr std::uint32_t kMaxDepth = 500;
// Common heads are factored out of a union to this depth.
constexpr std::uint32_t kMaxFactoring = 100;
// Steps (of about 10 ns, see budget.h) for a node looked up, a node made, a derivative looked up, one computed, and an
// item of a list.
constexpr std::uint64_t kNodeSteps = 3, kNewNodeSteps = 8, kLookupSteps = 3, kDerivativeSteps = 20, kItemSteps = 3;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) { return hash_mix(hash, value); }

struct Node {
  Kind kind = Kind::Nothing;
  bool nullable = false;  // matches the empty text
  bool sure = false;      // certainly matches some text; otherwise unknown
  bool positive = true;   // no intersection or complement inside
  std::uint16_t depth = 0;
  // Concat: head, tail. Repeat: of, least, most. Complement: of. Union, Intersection: where the list is, its size.
  // Bytes: which set.
  std::uint32_t a = 0, b = 0, c = 0;
  std::uint32_t counter = 0;  // the largest finite counter inside
  bool operator==(const Node& other) const {
    return kind == other.kind && a == other.a && b == other.b && c == other.c;
  }
};

enum class Emptiness : std::uint8_t { Unknown, MatchesNothing, MatchesSome };

constexpr std::uint32_t kNoSet = 0xFFFFFFFF;

}  // namespace

struct RegexSet::Impl {
  Budget* budget;
  std::vector<Node> nodes;
  std::vector<RegexId> lists;
  std::vector<ByteSet> sets;
  std::vector<std::uint32_t> table;  // open addressing: node + 1
  std::vector<Emptiness> emptiness;
  std::vector<std::uint32_t> node_classes;  // class set of a node, or kNoSet
  std::vector<Classes> class_sets;
  std::unordered_multimap<std::uint64_t, std::uint32_t> class_sets_by_hash;
  std::vector<std::vector<std::uint8_t>> class_bytes;  // per class set: one byte of each class
  NumberMap combined;
  NumberMap derivatives;               // node << 8 | class
  std::vector<std::uint32_t> visited;  // scratch of matches_nothing(): per node, when
  std::uint32_t visit = 0;
  std::uint32_t factoring = 0;

  explicit Impl(Budget& owner) : budget(&owner) {
    table.resize(256);
    class_sets.emplace_back();
    class_bytes.push_back({0});
    class_sets_by_hash.emplace(hash_of(class_sets[0]), 0);
    append({.kind = Kind::Nothing});
    append({.kind = Kind::Empty, .nullable = true, .sure = true});
    append({.kind = Kind::Everything, .nullable = true, .sure = true});
  }

  RegexId append(const Node& node) {
    nodes.push_back(node);
    emptiness.push_back(node.sure                    ? Emptiness::MatchesSome
                        : node.kind == Kind::Nothing ? Emptiness::MatchesNothing
                                                     : Emptiness::Unknown);
    node_classes.push_back(kNoSet);
    return static_cast<RegexId>(nodes.size() - 1);
  }

  std::span<const RegexId> list(const Node& node) const { return {lists.data() + node.a, node.b}; }

  std::uint64_t hash_of(const Node& node, std::span<const RegexId> items) const {
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

  void grow_table() {
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
  RegexId intern(Node node, std::uint64_t hash, Same same, Store store) {
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

  RegexId intern_plain(const Node& node) {
    return intern(
        node, hash_of(node, {}), [&](const Node& found) { return found == node; }, [](Node&) {});
  }

  RegexId intern_list(Node node, std::span<const RegexId> items) {
    return intern(
        node, hash_of(node, items), [&](const Node& found) { return std::ranges::equal(list(found), items); },
        [&](Node& made) {
          made.a = static_cast<std::uint32_t>(lists.size());
          made.b = static_cast<std::uint32_t>(items.size());
          budget->take(kItemSteps * items.size(), items.size() * sizeof(RegexId));
          lists.insert(lists.end(), items.begin(), items.end());
        });
  }

  RegexId bytes(const ByteSet& set) {
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
  RegexId concat_node(RegexId head, RegexId tail) {
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
  RegexId joined_repeats(RegexId left, RegexId right) {
    if (left == kEverything && right == kEverything) return kEverything;
    const Node& l = nodes[left];
    const Node& r = nodes[right];
    if (l.kind != Kind::Repeat || r.kind != Kind::Repeat || l.a != r.a) return kNothing;
    if (l.c != kUnbounded || r.c != kUnbounded) return kNothing;
    if (std::uint64_t{l.b} + r.b >= kUnbounded) return kNothing;
    return repeat(l.a, l.b + r.b, kUnbounded);
  }

  RegexId concat2(RegexId left, RegexId right) {
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

  void flatten(Kind kind, std::span<const RegexId> parts, std::vector<RegexId>& out) const {
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

  bool has_complement_pair(std::span<const RegexId> items) const {
    return std::ranges::any_of(items, [&](RegexId item) {
      return nodes[item].kind == Kind::Complement && std::ranges::binary_search(items, nodes[item].a);
    });
  }

  // Head and tail; the tail of what is not a concatenation is kEmpty.
  std::pair<RegexId, RegexId> split(RegexId id) const {
    const Node& node = nodes[id];
    if (node.kind == Kind::Concat) return {node.a, node.b};
    return {id, kEmpty};
  }

  // x{2,5} | x{4,9} is x{2,9}. True: `items` changed and needs sorting.
  bool merge_repeats(std::vector<RegexId>& items) {
    struct Range {
      RegexId of;
      std::uint32_t least, most;
      std::size_t at;
    };
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Node& node = nodes[items[i]];
      if (node.kind == Kind::Repeat) ranges.push_back({node.a, node.b, node.c, i});
    }
    if (ranges.empty()) return false;
    for (std::size_t i = 0, repeats = ranges.size(); i < items.size(); ++i) {
      const auto of_it = [&](const Range& range) { return range.of == items[i]; };
      if (std::any_of(ranges.begin(), ranges.begin() + static_cast<std::ptrdiff_t>(repeats), of_it))
        ranges.push_back({items[i], 1, 1, i});
    }
    std::ranges::sort(ranges, {}, [](const Range& range) { return std::tuple(range.of, range.least, range.most); });
    bool changed = false;
    for (std::size_t i = 0; i + 1 < ranges.size(); ++i) {
      Range& next = ranges[i + 1];
      const Range& range = ranges[i];
      if (range.of != next.of || (range.most != kUnbounded && std::uint64_t{range.most} + 1 < next.least)) continue;
      next.most = std::max(range.most, next.most);
      next.least = range.least;
      items[range.at] = kNothing;
      items[next.at] = repeat(next.of, next.least, next.most);
      changed = true;
    }
    return changed;
  }

  // a·b | a·c is a·(b | c).
  bool factor_heads(std::vector<RegexId>& items) {
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

  RegexId any_of(std::span<const RegexId> parts) {
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

  RegexId all_of(std::span<const RegexId> parts) {
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

  RegexId complement(RegexId of) {
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

  RegexId repeat(RegexId of, std::uint32_t least, std::uint32_t most) {
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

  // Class sets.

  static std::uint64_t hash_of(const Classes& classes) {
    std::uint64_t hash = classes.count;
    for (std::size_t i = 0; i < 256; i += 8) {
      std::uint64_t word = 0;
      for (std::size_t j = 0; j < 8; ++j) word = word << 8 | classes.of[i + j];
      hash = mix(hash, word);
    }
    return hash;
  }

  static std::vector<std::uint8_t> one_of_each(const Classes& classes) {
    std::vector<std::uint8_t> bytes;
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (classes.of[byte] == bytes.size()) bytes.push_back(static_cast<std::uint8_t>(byte));
    }
    return bytes;
  }

  // Numbers become those of the first bytes that have them, so that equal partitions are equal.
  template <typename F>
  std::uint32_t intern_classes(F key_of) {
    thread_local std::vector<std::uint16_t> numbers(std::size_t{256} * 256);  // all 0 between calls
    Classes classes;
    classes.count = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::uint16_t& number = numbers[key_of(byte)];
      if (number == 0) number = static_cast<std::uint16_t>(++classes.count);
      classes.of[byte] = static_cast<std::uint8_t>(number - 1);
    }
    for (unsigned byte = 0; byte < 256; ++byte) numbers[key_of(byte)] = 0;
    const std::uint64_t hash = hash_of(classes);
    const auto [begin, end] = class_sets_by_hash.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (class_sets[it->second].of == classes.of) return it->second;
    }
    budget->take(100, sizeof(Classes) + 32);
    class_sets.push_back(classes);
    class_bytes.push_back(one_of_each(classes));
    const auto id = static_cast<std::uint32_t>(class_sets.size() - 1);
    class_sets_by_hash.emplace(hash, id);
    return id;
  }

  std::uint32_t combine(std::uint32_t a, std::uint32_t b) {
    if (a == b || b == 0) return a;
    if (a == 0) return b;
    if (a > b) std::swap(a, b);
    const std::uint64_t key = std::uint64_t{a} << 32 | b;
    if (const std::uint32_t* found = combined.find(key)) return *found;
    budget->take(100, 32);
    const std::uint32_t result = intern_classes(
        [&](unsigned byte) { return std::size_t{class_sets[a].of[byte]} << 8 | class_sets[b].of[byte]; });
    combined.insert(key, result);
    return result;
  }

  std::uint32_t classes_of(RegexId id) {
    if (node_classes[id] != kNoSet) return node_classes[id];
    const Node node = nodes[id];
    std::uint32_t result = 0;
    switch (node.kind) {
      case Kind::Nothing:
      case Kind::Empty:
      case Kind::Everything: break;
      case Kind::Bytes:
        result = intern_classes([&](unsigned byte) { return sets[node.a].has(static_cast<std::uint8_t>(byte)); });
        break;
      case Kind::Concat: {
        RegexId at = id;
        for (; nodes[at].kind == Kind::Concat; at = nodes[at].b) {
          result = combine(result, classes_of(nodes[at].a));
          if (!nodes[nodes[at].a].nullable) break;
        }
        if (nodes[at].kind != Kind::Concat) result = combine(result, classes_of(at));
        break;
      }
      case Kind::Union:
      case Kind::Intersection:
        for (std::uint32_t i = 0; i < node.b; ++i) result = combine(result, classes_of(lists[node.a + i]));
        break;
      case Kind::Complement:
      case Kind::Repeat: result = classes_of(node.a); break;
    }
    node_classes[id] = result;
    return result;
  }

  RegexId derivative(RegexId id, std::uint8_t byte) {
    const Node node = nodes[id];
    switch (node.kind) {
      case Kind::Nothing:
      case Kind::Empty: return kNothing;
      case Kind::Everything: return kEverything;
      case Kind::Bytes: return sets[node.a].has(byte) ? kEmpty : kNothing;
      case Kind::Concat:
        if (nodes[node.a].kind == Kind::Bytes) return sets[nodes[node.a].a].has(byte) ? node.b : kNothing;
        break;
      default: break;
    }
    const std::uint32_t set = classes_of(id);
    const std::uint64_t key = std::uint64_t{id} << 8 | class_sets[set].of[byte];
    if (!budget->take(kLookupSteps)) return kNothing;
    if (const std::uint32_t* found = derivatives.find(key)) return *found;
    if (!budget->take(kDerivativeSteps, 32)) return kNothing;
    const RegexId result = compute_derivative(id, node, byte);
    if (!budget->exhausted()) derivatives.insert(key, result);
    return result;
  }

  RegexId compute_derivative(RegexId id, const Node& node, std::uint8_t byte) {
    switch (node.kind) {
      case Kind::Concat: {
        std::vector<RegexId> parts;
        RegexId at = id;
        for (; nodes[at].kind == Kind::Concat; at = nodes[at].b) {
          const Node here = nodes[at];
          const RegexId head = derivative(here.a, byte);
          if (head != kNothing) parts.push_back(concat2(head, here.b));
          if (!nodes[here.a].nullable) break;
        }
        if (nodes[at].kind != Kind::Concat) parts.push_back(derivative(at, byte));
        return any_of(parts);
      }
      case Kind::Union:
      case Kind::Intersection: {
        std::vector<RegexId> parts(node.b);
        for (std::uint32_t i = 0; i < node.b; ++i) {
          parts[i] = derivative(lists[node.a + i], byte);
          if (parts[i] == kNothing && node.kind == Kind::Intersection) return kNothing;
        }
        return node.kind == Kind::Union ? any_of(parts) : all_of(parts);
      }
      case Kind::Complement: return complement(derivative(node.a, byte));
      case Kind::Repeat: {
        const RegexId first = derivative(node.a, byte);
        if (first == kNothing) return kNothing;
        const std::uint32_t most = node.c == kUnbounded ? kUnbounded : node.c - 1;
        return concat2(first, repeat(node.a, node.b == 0 ? 0 : node.b - 1, most));
      }
      default: return kNothing;
    }
  }

  // Breadth first: a counter's states are many, and the nearest state that surely matches is usually near.
  bool matches_nothing(RegexId of) {
    if (emptiness[of] != Emptiness::Unknown) return emptiness[of] == Emptiness::MatchesNothing;
    std::vector<std::pair<RegexId, std::size_t>> queue{{of, 0}};  // node, where it came from
    ++visit;
    const auto first_visit = [&](RegexId id) {
      if (visited.size() <= id) visited.resize(nodes.size() + nodes.size() / 2);
      return std::exchange(visited[id], visit) != visit;
    };
    first_visit(of);
    for (std::size_t at = 0; at < queue.size(); ++at) {
      const RegexId id = queue[at].first;
      const std::uint32_t set = classes_of(id);
      for (std::size_t i = 0; i < class_bytes[set].size(); ++i) {
        const RegexId next = derivative(id, class_bytes[set][i]);
        if (!budget->take(2)) return true;
        if (emptiness[next] == Emptiness::MatchesNothing) continue;
        if (emptiness[next] == Emptiness::MatchesSome) {
          for (std::size_t back = at;; back = queue[back].second) {
            emptiness[queue[back].first] = Emptiness::MatchesSome;
            if (back == 0) return false;
          }
        }
        if (first_visit(next)) queue.emplace_back(next, at);
      }
    }
    for (const auto& [id, from] : queue) emptiness[id] = Emptiness::MatchesNothing;
    return true;
  }

  RegexId within(RegexId id, std::uint32_t horizon, std::unordered_map<RegexId, RegexId>& done) {
    const Node node = nodes[id];
    if (node.counter <= horizon) return id;
    if (const auto found = done.find(id); found != done.end()) return found->second;
    RegexId result = id;
    if (node.kind == Kind::Concat) {
      std::vector<RegexId> heads;
      RegexId at = id;
      for (; nodes[at].kind == Kind::Concat; at = nodes[at].b) heads.push_back(nodes[at].a);
      result = within(at, horizon, done);
      for (const RegexId head : std::views::reverse(heads)) result = concat2(within(head, horizon, done), result);
    } else if (node.kind == Kind::Union) {
      std::vector<RegexId> parts(node.b);
      for (std::uint32_t i = 0; i < node.b; ++i) parts[i] = within(lists[node.a + i], horizon, done);
      result = any_of(parts);
    } else if (node.kind == Kind::Repeat) {
      result =
          repeat(within(node.a, horizon, done), std::min(node.b, horizon + 1), node.c > horizon ? kUnbounded : node.c);
    }
    done.emplace(id, result);
    return result;
  }

  RegexId import(const Impl& from, RegexId id, std::unordered_map<RegexId, RegexId>& done) {
    if (id <= kEverything) return id;
    if (const auto found = done.find(id); found != done.end()) return found->second;
    const Node& node = from.nodes[id];
    RegexId result = kNothing;
    switch (node.kind) {
      case Kind::Nothing:
      case Kind::Empty:
      case Kind::Everything: break;
      case Kind::Bytes: result = bytes(from.sets[node.a]); break;
      case Kind::Concat: {
        std::vector<RegexId> heads;
        RegexId at = id;
        for (; from.nodes[at].kind == Kind::Concat; at = from.nodes[at].b) heads.push_back(from.nodes[at].a);
        result = import(from, at, done);
        for (const RegexId head : std::views::reverse(heads)) result = concat2(import(from, head, done), result);
        break;
      }
      case Kind::Union:
      case Kind::Intersection: {
        std::vector<RegexId> parts;
        for (const RegexId item : from.list(node)) parts.push_back(import(from, item, done));
        result = node.kind == Kind::Union ? any_of(parts) : all_of(parts);
        break;
      }
      case Kind::Complement: result = complement(import(from, node.a, done)); break;
      case Kind::Repeat: result = repeat(import(from, node.a, done), node.b, node.c); break;
    }
    done.emplace(id, result);
    return result;
  }
};

RegexSet::RegexSet(Budget& budget) : impl_(std::make_unique<Impl>(budget)) {}
RegexSet::~RegexSet() = default;
RegexSet::RegexSet(RegexSet&&) noexcept = default;
RegexSet& RegexSet::operator=(RegexSet&&) noexcept = default;

RegexId RegexSet::bytes(const ByteSet& set) { return impl_->bytes(set); }

RegexId RegexSet::text(std::string_view text) {
  if (!impl_->budget->take(text.size())) return kNothing;
  RegexId result = kEmpty;
  for (const char c : std::views::reverse(text)) {
    const auto byte = static_cast<std::uint8_t>(c);
    result = impl_->concat_node(impl_->bytes(ByteSet::range(byte, byte)), result);
  }
  return result;
}

RegexId RegexSet::concat(std::span<const RegexId> parts) {
  RegexId result = kEmpty;
  for (const RegexId part : std::views::reverse(parts)) result = impl_->concat2(part, result);
  return impl_->budget->exhausted() ? kNothing : result;
}

RegexId RegexSet::any_of(std::span<const RegexId> parts) { return impl_->any_of(parts); }
RegexId RegexSet::all_of(std::span<const RegexId> parts) { return impl_->all_of(parts); }
RegexId RegexSet::complement(RegexId of) { return impl_->complement(of); }
RegexId RegexSet::repeat(RegexId of, std::uint32_t least, std::uint32_t most) { return impl_->repeat(of, least, most); }

RegexId RegexSet::characters(char32_t first, char32_t last) {
  last = std::min<char32_t>(last, 0x10FFFF);
  std::vector<RegexId> parts;
  // The code points that have `extra` continuation bytes, from `low` to `high` in the same.
  const auto add = [&](auto&& self, char32_t low, char32_t high, unsigned extra, std::uint32_t lead) -> void {
    const auto byte = [](std::uint32_t value) { return static_cast<std::uint8_t>(value); };
    if (extra == 0) {
      parts.push_back(bytes(ByteSet::range(byte(lead | low), byte(lead | high))));
      return;
    }
    // Split so that all bytes but the first take their whole range, or the first ones are one byte.
    const char32_t rest = (char32_t{1} << (6 * extra)) - 1;
    if ((low & ~rest) != (high & ~rest)) {
      if ((low & rest) != 0) {
        self(self, low, low | rest, extra, lead);
        self(self, (low | rest) + 1, high, extra, lead);
        return;
      }
      if ((high & rest) != rest) {
        self(self, low, (high & ~rest) - 1, extra, lead);
        self(self, high & ~rest, high, extra, lead);
        return;
      }
    }
    const RegexId head = bytes(ByteSet::range(byte(lead | low >> (6 * extra)), byte(lead | high >> (6 * extra))));
    if ((low & rest) == 0 && (high & rest) == rest) {
      const RegexId more = bytes(ByteSet::range(0x80, 0xBF));
      parts.push_back(concat({head, repeat(more, extra, extra)}));
      return;
    }
    const std::size_t before = parts.size();
    self(self, low & rest, high & rest, extra - 1, 0x80);
    const std::vector<RegexId> tails(parts.begin() + static_cast<std::ptrdiff_t>(before), parts.end());
    parts.resize(before);
    parts.push_back(concat({head, any_of(tails)}));
  };
  struct Length {
    char32_t first, last;
    unsigned extra;
    std::uint32_t lead;
  };
  static constexpr Length kLengths[] = {{0, 0x7F, 0, 0},
                                        {0x80, 0x7FF, 1, 0xC0},
                                        {0x800, 0xD7FF, 2, 0xE0},
                                        {0xE000, 0xFFFF, 2, 0xE0},
                                        {0x10000, 0x10FFFF, 3, 0xF0}};
  for (const Length& length : kLengths) {
    const char32_t low = std::max(first, length.first), high = std::min(last, length.last);
    if (low <= high) add(add, low, high, length.extra, length.lead);
  }
  return any_of(parts);
}

bool RegexSet::matches_empty(RegexId of) const { return impl_->nodes[of].nullable; }
RegexId RegexSet::derivative(RegexId of, std::uint8_t byte) { return impl_->derivative(of, byte); }
bool RegexSet::matches_nothing(RegexId of) { return impl_->matches_nothing(of); }

bool RegexSet::matches(RegexId of, std::string_view text) {
  for (const char c : text) of = derivative(of, static_cast<std::uint8_t>(c));
  return matches_empty(of);
}

Budget& RegexSet::budget() { return *impl_->budget; }

const RegexSet::Classes& RegexSet::classes(RegexId of) { return impl_->class_sets[impl_->classes_of(of)]; }
std::uint32_t RegexSet::class_set(RegexId of) { return impl_->classes_of(of); }
std::uint32_t RegexSet::combined_class_set(std::uint32_t a, std::uint32_t b) { return impl_->combine(a, b); }
const RegexSet::Classes& RegexSet::class_set_at(std::uint32_t set) const { return impl_->class_sets[set]; }

RegexId RegexSet::within(RegexId of, std::uint32_t horizon) {
  const Node& node = impl_->nodes[of];
  if (!node.positive || node.counter <= horizon) return of;
  std::unordered_map<RegexId, RegexId> done;
  const RegexId result = impl_->within(of, horizon, done);
  return impl_->budget->exhausted() ? of : result;
}

bool RegexSet::surely_extends(RegexId of) const {
  const Node& node = impl_->nodes[of];
  return of != kNothing && of != kEmpty && (node.positive || (node.sure && !node.nullable));
}

RegexId RegexSet::import(const RegexSet& from, RegexId of) {
  std::unordered_map<RegexId, RegexId> done;
  return impl_->import(*from.impl_, of, done);
}

void RegexSet::use(Budget& budget) { impl_->budget = &budget; }

std::size_t RegexSet::bytes_used() const {
  const Impl& impl = *impl_;
  return impl.nodes.capacity() * (sizeof(Node) + 5) + impl.lists.capacity() * sizeof(RegexId) +
         impl.sets.capacity() * sizeof(ByteSet) + impl.table.capacity() * 4 +
         impl.class_sets.capacity() * sizeof(Classes) + impl.combined.bytes() + impl.derivatives.bytes() +
         impl.visited.capacity() * 4;
}

std::size_t RegexSet::size() const { return impl_->nodes.size(); }

}  // namespace quire::grammar

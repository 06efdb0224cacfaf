// Byte classes, derivatives, emptiness, and copies of nodes.
#include <algorithm>
#include <ranges>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "quire/grammar/regex_nodes.h"

namespace quire::grammar {

using regex::kDerivativeSteps;
using regex::kLookupSteps;
using regex::kNoSet;
using regex::mix;

namespace {

constexpr std::size_t kKnownTexts = 8, kLongestKnownText = 64;

}  // namespace

std::uint64_t RegexSet::Impl::hash_of(const Classes& classes) {
  std::uint64_t hash = classes.count;
  for (std::size_t i = 0; i < 256; i += 8) {
    std::uint64_t word = 0;
    for (std::size_t j = 0; j < 8; ++j) word = word << 8 | classes.of[i + j];
    hash = mix(hash, word);
  }
  return hash;
}

std::vector<std::uint8_t> RegexSet::Impl::one_of_each(const Classes& classes) {
  std::vector<std::uint8_t> bytes;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (classes.of[byte] == bytes.size()) bytes.push_back(static_cast<std::uint8_t>(byte));
  }
  return bytes;
}

// Numbers become those of the first bytes that have them, so that equal partitions are equal.
template <typename F>
std::uint32_t RegexSet::Impl::intern_classes(F key_of) {
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

std::uint32_t RegexSet::Impl::combine(std::uint32_t a, std::uint32_t b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  if (a > b) std::swap(a, b);
  const std::uint64_t key = std::uint64_t{a} << 32 | b;
  if (const std::uint32_t* found = combined.find(key)) return *found;
  budget->take(100, 32);
  const std::uint32_t result =
      intern_classes([&](unsigned byte) { return std::size_t{class_sets[a].of[byte]} << 8 | class_sets[b].of[byte]; });
  combined.insert(key, result);
  return result;
}

std::uint32_t RegexSet::Impl::classes_of(RegexId id) {
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

RegexId RegexSet::Impl::derivative(RegexId id, std::uint8_t byte) {
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

RegexId RegexSet::Impl::compute_derivative(RegexId id, const Node& node, std::uint8_t byte) {
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

// States that differ in a counter usually match the same text: those that were found last are tried first.
bool RegexSet::Impl::matches_known_text(RegexId of) {
  std::vector<RegexId> path;
  for (std::size_t i = 0; i < known_texts.size(); ++i) {
    path.assign(1, of);
    for (const char c : known_texts[i]) {
      const RegexId next = derivative(path.back(), static_cast<std::uint8_t>(c));
      if (!budget->take(2) || emptiness[next] == Emptiness::MatchesNothing) break;
      if (emptiness[next] == Emptiness::MatchesSome) {
        for (const RegexId id : path) emptiness[id] = Emptiness::MatchesSome;
        std::rotate(known_texts.begin(), known_texts.begin() + static_cast<std::ptrdiff_t>(i),
                    known_texts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        return true;
      }
      path.push_back(next);
    }
  }
  return false;
}

// Breadth first: a counter's states are many, and the nearest state that surely matches is usually near.
bool RegexSet::Impl::matches_nothing(RegexId of) {
  if (emptiness[of] != Emptiness::Unknown) return emptiness[of] == Emptiness::MatchesNothing;
  if (matches_known_text(of)) return false;
  struct Step {
    RegexId id;
    std::size_t from;
    std::uint8_t byte;
  };
  std::vector<Step> queue{{of, 0, 0}};
  ++visit;
  const auto first_visit = [&](RegexId id) {
    if (visited.size() <= id) visited.resize(nodes.size() + nodes.size() / 2);
    return std::exchange(visited[id], visit) != visit;
  };
  first_visit(of);
  for (std::size_t at = 0; at < queue.size(); ++at) {
    const RegexId id = queue[at].id;
    const std::uint32_t set = classes_of(id);
    for (std::size_t i = 0; i < class_bytes[set].size(); ++i) {
      const std::uint8_t byte = class_bytes[set][i];
      const RegexId next = derivative(id, byte);
      if (!budget->take(2)) return true;
      if (emptiness[next] == Emptiness::MatchesNothing) continue;
      if (emptiness[next] == Emptiness::MatchesSome) {
        std::string text(1, static_cast<char>(byte));
        for (std::size_t back = at;; back = queue[back].from) {
          emptiness[queue[back].id] = Emptiness::MatchesSome;
          if (back == 0) break;
          text += static_cast<char>(queue[back].byte);
        }
        if (text.size() > kLongestKnownText) return false;
        std::ranges::reverse(text);
        if (known_texts.size() == kKnownTexts) known_texts.pop_back();
        known_texts.insert(known_texts.begin(), std::move(text));
        return false;
      }
      if (first_visit(next)) queue.push_back({next, at, byte});
    }
  }
  for (const Step& step : queue) emptiness[step.id] = Emptiness::MatchesNothing;
  return true;
}

RegexId RegexSet::Impl::within(RegexId id, std::uint32_t horizon, std::unordered_map<RegexId, RegexId>& done) {
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

RegexId RegexSet::Impl::import(const Impl& from, RegexId id, std::unordered_map<RegexId, RegexId>& done) {
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

}  // namespace quire::grammar

// The nodes of a RegexSet. Only its own files include this: regex_nodes.cpp makes nodes in their normal form,
// regex_derivatives.cpp has byte classes, derivatives and what follows from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quire/grammar/interner.h"
#include "quire/grammar/regex_set.h"

namespace quire::grammar {

namespace regex {

enum class Kind : std::uint8_t { Nothing, Empty, Everything, Bytes, Concat, Union, Intersection, Complement, Repeat };

// Nesting beyond this is refused like an exhausted budget: functions recurse over it. Tails of concatenations do not
// count.
inline constexpr std::uint32_t kMaxDepth = 500;
// Common heads are factored out of a union to this depth.
inline constexpr std::uint32_t kMaxFactoring = 100;
// Steps (of about 10 ns, see budget.h) for a node looked up, a node made, a derivative looked up, one computed, and an
// item of a list.
inline constexpr std::uint64_t kNodeSteps = 3, kNewNodeSteps = 8, kLookupSteps = 3, kDerivativeSteps = 20,
                               kItemSteps = 3;

inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) { return hash_mix(hash, value); }

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

inline constexpr std::uint32_t kNoSet = 0xFFFFFFFF;

}  // namespace regex

struct RegexSet::Impl {
  using Kind = regex::Kind;
  using Node = regex::Node;
  using Emptiness = regex::Emptiness;

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
  std::vector<std::string> known_texts;  // by which matches_nothing() found matches, the last first
  std::uint32_t factoring = 0;

  explicit Impl(Budget& owner);
  RegexId append(const Node& node);
  std::span<const RegexId> list(const Node& node) const { return {lists.data() + node.a, node.b}; }
  std::uint64_t hash_of(const Node& node, std::span<const RegexId> items) const;
  void grow_table();
  template <typename Same, typename Store>
  RegexId intern(Node node, std::uint64_t hash, Same same, Store store);
  RegexId intern_plain(const Node& node);
  RegexId intern_list(Node node, std::span<const RegexId> items);
  RegexId bytes(const ByteSet& set);
  RegexId concat_node(RegexId head, RegexId tail);
  RegexId joined_repeats(RegexId left, RegexId right);
  RegexId concat2(RegexId left, RegexId right);
  void flatten(Kind kind, std::span<const RegexId> parts, std::vector<RegexId>& out) const;
  bool has_complement_pair(std::span<const RegexId> items) const;
  std::pair<RegexId, RegexId> split(RegexId id) const;
  bool merge_repeats(std::vector<RegexId>& items);
  bool factor_heads(std::vector<RegexId>& items);
  RegexId any_of(std::span<const RegexId> parts);
  RegexId all_of(std::span<const RegexId> parts);
  RegexId complement(RegexId of);
  RegexId repeat(RegexId of, std::uint32_t least, std::uint32_t most);
  static std::uint64_t hash_of(const Classes& classes);
  static std::vector<std::uint8_t> one_of_each(const Classes& classes);
  template <typename F>
  std::uint32_t intern_classes(F key_of);
  std::uint32_t combine(std::uint32_t a, std::uint32_t b);
  std::uint32_t classes_of(RegexId id);
  RegexId derivative(RegexId id, std::uint8_t byte);
  RegexId compute_derivative(RegexId id, const Node& node, std::uint8_t byte);
  bool matches_nothing(RegexId of);
  bool matches_known_text(RegexId of);
  RegexId within(RegexId id, std::uint32_t horizon, std::unordered_map<RegexId, RegexId>& done);
  RegexId import(const Impl& from, RegexId id, std::unordered_map<RegexId, RegexId>& done);
};

}  // namespace quire::grammar

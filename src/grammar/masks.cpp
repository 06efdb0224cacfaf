#include "quire/grammar/masks.h"

#include <algorithm>
#include <utility>

namespace quire::grammar {

namespace {

void set_tokens(const Trie& trie, std::uint32_t node, std::span<std::uint32_t> bits) {
  for (std::uint32_t i = trie.first[node]; i < trie.first[node + 1]; ++i) {
    const auto token = static_cast<std::uint32_t>(trie.tokens[i]);
    bits[token / 32] |= 1U << (token % 32);
  }
}

void unite(std::span<std::uint32_t> bits, std::span<const std::uint32_t> more) {
  for (std::size_t i = 0; i < more.size(); ++i) bits[i] |= more[i];
}

// Sets of the lexer's states, while all texts of a kind are followed at once.
constexpr std::size_t kMaxFollowed = 12;

struct Followed {
  std::array<LexState, kMaxFollowed> states;
  std::size_t count = 0;
  bool add(LexState state) {
    for (std::size_t i = 0; i < count; ++i) {
      if (states[i] == state) return true;
    }
    if (count == kMaxFollowed) return false;
    states[count++] = state;
    return true;
  }
  bool operator==(const Followed& other) const {
    return count == other.count &&
           std::equal(states.begin(), states.begin() + static_cast<std::ptrdiff_t>(count), other.states.begin());
  }
};

struct Range {
  std::uint8_t first, last;
};
constexpr Range kWord[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
constexpr Range kPlain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x7E}};
// The characters of several bytes, as ranges of their bytes.
constexpr std::size_t kSequences = 8;
struct Sequence {
  std::size_t length;
  Range bytes[4];
};
constexpr Sequence kCharacters[kSequences] = {
    {2, {{0xC2, 0xDF}, {0x80, 0xBF}}},
    {3, {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}}},
    {3, {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {3, {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}}},
    {3, {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}},
};

// Adds what follows each of the states by a byte of the range. False: some byte is not possible, or too many states.
bool follow(Lexer& lexer, const Followed& from, Range range, Followed& out) {
  for (std::size_t i = 0; i < from.count; ++i) {
    for (unsigned byte = range.first; byte <= range.last; ++byte) {
      const LexState next = lexer.step(from.states[i], static_cast<std::uint8_t>(byte));
      if (next == Lexer::kDead || !out.add(next)) return false;
    }
  }
  return true;
}

bool follow_character(Lexer& lexer, const Followed& from, SliceKind kind, Followed& out) {
  const bool word = kind == SliceKind::Word || kind == SliceKind::SpacedWord;
  for (const Range& range : word ? std::span<const Range>(kWord) : std::span<const Range>(kPlain)) {
    if (!follow(lexer, from, range, out)) return false;
  }
  if (kind != SliceKind::Characters) return true;
  for (const Sequence& sequence : kCharacters) {
    Followed at = from;
    for (std::size_t i = 0; i < sequence.length; ++i) {
      Followed next;
      if (!follow(lexer, at, sequence.bytes[i], i + 1 == sequence.length ? out : next)) return false;
      at = next;
    }
  }
  return true;
}

}  // namespace

// How many characters of the kind can follow, whichever they are; at most kShortToken are looked at.
std::uint32_t Masks::characters(LexState from, SliceKind kind) {
  Lexer& lexer = parser_.lexer();
  Followed at;
  at.add(from);
  std::uint32_t count = 0;
  if (kind == SliceKind::SpacedWord) {
    Followed next;
    if (!follow(lexer, at, {' ', ' '}, next)) return 0;
    at = next;
    count = 1;
  }
  Followed seen = at;
  for (; count < kShortToken; ++count) {
    Followed next;
    if (!follow_character(lexer, at, kind, next)) return count;
    const std::size_t before = seen.count;
    bool all = true;
    for (std::size_t i = 0; i < next.count; ++i) all = seen.add(next.states[i]) && all;
    // Nothing new can follow.
    if (all && seen.count == before) return kShortToken;
    at = next;
  }
  return count;
}

void Masks::walk_inside(const Trie& trie, LexState from, Inside& out) {
  Lexer& lexer = parser_.lexer();
  // Borders whose subtree is not behind us, and how many tokens were allowed before it.
  struct Open {
    std::uint32_t node, accepts, allowed;
  };
  std::vector<Open> open;
  std::uint32_t allowed = 0;
  const auto close = [&](std::uint32_t until) {
    for (; !open.empty() && trie.end[open.back().node] <= until; open.pop_back()) {
      const Open& border = open.back();
      const std::uint32_t tokens = trie.first[trie.end[border.node]] - trie.first[border.node + 1];
      if (allowed - border.allowed < tokens) out.borders.push_back({&trie, border.node, border.accepts});
    }
  };
  path_.resize(trie.longest + 1);
  path_[0] = from;
  const std::uint32_t size = trie.size();
  for (std::uint32_t node = 0; node < size;) {
    ++visited_;
    const LexState next = lexer.step(path_[trie.depth[node]], trie.byte[node]);
    if (next == Lexer::kDead) {
      node = trie.end[node];
      continue;
    }
    path_[trie.depth[node] + 1] = next;
    close(node);
    set_tokens(trie, node, out.bits);
    allowed += trie.first[node + 1] - trie.first[node];
    const std::uint32_t accepts = lexer.accepts(next);
    if (accepts != Lexer::kNoAccept && trie.end[node] > node + 1) open.push_back({node, accepts, allowed});
    ++node;
  }
  close(size);
}

const Masks::Inside& Masks::inside(LexState lex) {
  const auto [found, added] = inside_.try_emplace(lex);
  Inside& out = found->second;
  if (!added) return out;
  out.bits.resize((vocabulary_.vocabulary + 31) / 32);
  std::array<std::uint32_t, 4> most{};
  bool any = false;
  for (const SliceKind kind : {SliceKind::Word, SliceKind::SpacedWord, SliceKind::Plain, SliceKind::Characters}) {
    most[static_cast<std::size_t>(kind)] = characters(lex, kind);
    any = any || most[static_cast<std::size_t>(kind)] >= 2;
    // Later kinds contain the first.
    if (kind == SliceKind::Word && !any) break;
  }
  if (!any) {
    walk_inside(vocabulary_.all, lex, out);
  } else {
    for (const Slice& slice : vocabulary_.slices) {
      if (slice.kind != SliceKind::Other && slice.characters <= most[static_cast<std::size_t>(slice.kind)]) {
        unite(out.bits, slice.mask);
      } else {
        walk_inside(slice.trie, lex, out);
      }
    }
  }
  bytes_ += out.bits.size() * 4 + out.borders.size() * sizeof(Border) + 64;
  return out;
}

bool Masks::walk(const Trie& trie, std::uint32_t begin, std::uint32_t end, StateId from,
                 std::span<std::uint32_t> bits) {
  if (from == Parser::kTooMuch) return false;
  if (begin == end) return true;
  const std::uint32_t top = trie.depth[begin];
  path_.resize(std::max<std::size_t>(path_.size(), trie.longest + 1));
  path_[top] = from;
  for (std::uint32_t node = begin; node < end;) {
    ++visited_;
    const StateId next = parser_.step(path_[trie.depth[node]], trie.byte[node]);
    if (next <= Parser::kTooMuch) {
      if (next == Parser::kTooMuch) return false;
      node = trie.end[node];
      continue;
    }
    path_[trie.depth[node] + 1] = next;
    set_tokens(trie, node, bits);
    ++node;
  }
  return true;
}

bool Masks::add_thread(const Thread& thread, std::span<std::uint32_t> bits) {
  // Tokens up to kShortToken bytes cannot tell larger counters apart.
  const LexState lex = parser_.lexer().within(thread.lex, kShortToken);
  const auto [found, added] = threads_.try_emplace(std::uint64_t{thread.row} << 32 | lex);
  std::vector<std::uint32_t>& mask = found->second;
  if (added) {
    const Inside& in = inside(lex);
    mask = in.bits;
    for (const Border& border : in.borders) {
      const StateId after = parser_.after(thread.row, border.accepts);
      if (!walk(*border.trie, border.node + 1, border.trie->end[border.node], after, mask)) {
        threads_.erase(found);
        return false;
      }
    }
    bytes_ += mask.size() * 4 + 64;
  }
  unite(bits, mask);
  return true;
}

bool Masks::add(StateId state, std::span<std::uint32_t> bits) {
  const std::vector<Thread> threads(parser_.threads(state).begin(), parser_.threads(state).end());
  for (const Thread& thread : threads) {
    if (!add_thread(thread, bits)) return false;
  }
  return walk(vocabulary_.longer, 0, vocabulary_.longer.size(), state, bits);
}

bool Masks::add_slowly(StateId state, std::span<std::uint32_t> bits) {
  return walk(vocabulary_.all, 0, vocabulary_.all.size(), state, bits) &&
         walk(vocabulary_.longer, 0, vocabulary_.longer.size(), state, bits);
}

}  // namespace quire::grammar

#include "quire/grammar/masks.h"

#include <algorithm>
#include <utility>

namespace quire::grammar {

namespace {

// Tokens from `begin` to `end` of the trie's list.
template <bool kSet>
void change_tokens(const Trie& trie, std::uint32_t begin, std::uint32_t end, std::span<std::uint32_t> bits) {
  for (std::uint32_t i = begin; i < end; ++i) {
    const auto token = static_cast<std::uint32_t>(trie.tokens[i]);
    if (kSet) {
      bits[token / 32] |= 1U << (token % 32);
    } else {
      bits[token / 32] &= ~(1U << (token % 32));
    }
  }
}

void unite(std::span<std::uint32_t> bits, std::span<const std::uint32_t> more) {
  for (std::size_t i = 0; i < more.size(); ++i) bits[i] |= more[i];
}

// Sets of the lexer's states, while all texts of a kind are followed at once. So few for each character: otherwise it
// is cheaper to look at the tokens.
constexpr std::size_t kFollowed = 8, kFollowedPerCharacter = 3;

struct Followed {
  std::vector<LexState> states;
  std::size_t limit = kFollowed;
  // False: too many.
  bool add(LexState state) {
    if (std::ranges::find(states, state) != states.end()) return true;
    if (states.size() >= limit) return false;
    states.push_back(state);
    return true;
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
bool follow(Lexer& lexer, std::span<const LexState> from, Range range, Followed& out) {
  for (const LexState state : from) {
    LexState last = Lexer::kDead;
    for (unsigned byte = range.first; byte <= range.last; ++byte) {
      const LexState next = lexer.step(state, static_cast<std::uint8_t>(byte));
      if (next == Lexer::kDead) return false;
      if (next != last && !out.add(next)) return false;
      last = next;
    }
  }
  return true;
}

bool follow_character(Lexer& lexer, std::span<const LexState> from, SliceKind kind, Followed& out) {
  const bool word = kind == SliceKind::Word || kind == SliceKind::SpacedWord;
  for (const Range& range : word ? std::span<const Range>(kWord) : std::span<const Range>(kPlain)) {
    if (!follow(lexer, from, range, out)) return false;
  }
  if (kind != SliceKind::Characters) return true;
  for (const Sequence& sequence : kCharacters) {
    std::vector<LexState> at(from.begin(), from.end());
    for (std::size_t i = 0; i + 1 < sequence.length; ++i) {
      Followed next{.states = {}, .limit = out.limit};
      if (!follow(lexer, at, sequence.bytes[i], next)) return false;
      at = std::move(next.states);
    }
    if (!follow(lexer, at, sequence.bytes[sequence.length - 1], out)) return false;
  }
  return true;
}

}  // namespace

// How many characters of the kind can follow, whichever they are; at most kShortToken are looked at. A smaller number
// where that would take long.
std::uint32_t Masks::characters(LexState from, SliceKind kind) {
  Lexer& lexer = parser_.lexer();
  Followed seen;
  std::uint32_t count = 0;
  if (kind == SliceKind::SpacedWord) {
    if (!follow(lexer, {&from, 1}, {' ', ' '}, seen)) return 0;
    count = 1;
  } else {
    seen.add(from);
  }
  // States that were not there before; from the others the same follows as before.
  std::vector<LexState> fresh = seen.states;
  for (; count < kShortToken; ++count) {
    const std::size_t before = seen.states.size();
    seen.limit = kFollowed + kFollowedPerCharacter * count;
    if (!follow_character(lexer, fresh, kind, seen)) return count;
    if (seen.states.size() == before) return kShortToken;
    fresh.assign(seen.states.begin() + static_cast<std::ptrdiff_t>(before), seen.states.end());
  }
  return count;
}

// Only states that stay the same by a letter are asked for: others change with every character.
bool Masks::takes_all(LexState state, SliceKind kind) {
  if (takes_all_.size() <= state) takes_all_.resize(state + 256);
  std::uint8_t& known = takes_all_[state][static_cast<std::size_t>(kind)];
  if (known == 0) {
    const bool all = parser_.lexer().step(state, 'a') == state && characters(state, kind) == kShortToken;
    takes_all_[state][static_cast<std::size_t>(kind)] = all ? 2 : 1;
    return all;
  }
  return known == 2;
}

void Masks::walk_slice(const Slice& slice, LexState from, Inside& out) {
  const Trie& trie = slice.trie;
  if (slice.kind == SliceKind::Other) {
    walk_inside(trie, from, out);
    return;
  }
  // Behind a space, or at the front.
  const bool spaced = slice.kind == SliceKind::SpacedWord;
  const SliceKind kind = spaced ? SliceKind::Word : slice.kind;
  const LexState first = spaced ? parser_.lexer().step(from, ' ') : from;
  if (first == Lexer::kDead) return;
  std::uint32_t taken = 0;
  for (std::uint32_t node = spaced ? 1 : 0; node < trie.size(); node = trie.end[node]) {
    const LexState next = parser_.lexer().step(first, trie.byte[node]);
    if (next != Lexer::kDead && takes_all(next, kind)) taken += trie.first[trie.end[node]] - trie.first[node];
  }
  const bool most = taken > trie.tokens.size() / 2;
  if (most) unite(out.bits, slice.mask);
  walk_inside(
      trie, from, most, [&](LexState state) { return takes_all(state, kind); }, out);
}

void Masks::walk_inside(const Trie& trie, LexState from, Inside& out) {
  walk_inside(
      trie, from, false, [](LexState) { return false; }, out);
}

// `all_set`: the bits of all tokens are set; otherwise none. `takes(state)`: every token of the trie that comes to this
// state goes on inside the terminal.
template <typename Takes>
void Masks::walk_inside(const Trie& trie, LexState from, bool all_set, Takes takes, Inside& out) {
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
      if (all_set) change_tokens<false>(trie, trie.first[node], trie.first[trie.end[node]], out.bits);
      node = trie.end[node];
      continue;
    }
    close(node);
    if (takes(next)) {
      const std::uint32_t begin = trie.first[node], end = trie.first[trie.end[node]];
      if (!all_set) change_tokens<true>(trie, begin, end, out.bits);
      allowed += end - begin;
      node = trie.end[node];
      continue;
    }
    path_[trie.depth[node] + 1] = next;
    if (!all_set) change_tokens<true>(trie, trie.first[node], trie.first[node + 1], out.bits);
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
  // What can hardly be text needs no slices.
  Lexer& lexer = parser_.lexer();
  unsigned letters = 0;
  for (const char c : {'a', 'e', 'n', 't', ' ', '1'}) {
    if (lexer.step(lex, static_cast<std::uint8_t>(c)) != Lexer::kDead) ++letters;
  }
  if (letters < 3) {
    walk_inside(vocabulary_.all, lex, out);
  } else {
    std::array<std::uint32_t, 4> most{};
    for (const SliceKind kind : {SliceKind::Word, SliceKind::SpacedWord, SliceKind::Plain, SliceKind::Characters}) {
      most[static_cast<std::size_t>(kind)] = characters(lex, kind);
      // Plain text begins with words.
      if (kind == SliceKind::Word && most[0] == 0) break;
    }
    for (const Slice& slice : vocabulary_.slices) {
      if (slice.kind != SliceKind::Other && slice.characters <= most[static_cast<std::size_t>(slice.kind)]) {
        unite(out.bits, slice.mask);
      } else {
        walk_slice(slice, lex, out);
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
    change_tokens<true>(trie, trie.first[node], trie.first[node + 1], bits);
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

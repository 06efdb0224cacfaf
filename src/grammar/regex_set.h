// Regular expressions over bytes, as hash-consed nodes: equal expressions have equal ids. Matching is by derivatives,
// so intersection and complement cost no more than union.
//
// Who may call: one thread at a time.
// What holds: ids stay valid and mean the same for the set's life. Expressions are kept in a normal form (unions and
//   intersections are flat, sorted and without duplicates; what is trivially nothing or everything is folded), so that
//   the derivatives of an expression are finitely many.
// How it fails: when the budget is exhausted every function returns kNothing; budget().exhausted() says so at the end.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "quire/grammar/budget.h"

namespace quire::grammar {

using RegexId = std::uint32_t;

// A set of bytes.
class ByteSet {
 public:
  constexpr ByteSet() = default;
  static constexpr ByteSet range(std::uint8_t first, std::uint8_t last) {
    ByteSet set;
    for (unsigned byte = first; byte <= last; ++byte) set.add(static_cast<std::uint8_t>(byte));
    return set;
  }
  static constexpr ByteSet all() { return range(0, 255); }
  constexpr void add(std::uint8_t byte) { words_[byte >> 6] |= std::uint64_t{1} << (byte & 63); }
  constexpr bool has(std::uint8_t byte) const { return ((words_[byte >> 6] >> (byte & 63)) & 1) != 0; }
  constexpr bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  constexpr bool operator==(const ByteSet&) const = default;
  constexpr ByteSet operator|(const ByteSet& other) const {
    return combined(other, [](auto a, auto b) { return a | b; });
  }
  constexpr ByteSet operator&(const ByteSet& other) const {
    return combined(other, [](auto a, auto b) { return a & b; });
  }
  constexpr ByteSet operator~() const {
    return combined(*this, [](auto a, auto) { return ~a; });
  }
  const std::array<std::uint64_t, 4>& words() const { return words_; }

 private:
  template <typename F>
  constexpr ByteSet combined(const ByteSet& other, F f) const {
    ByteSet set;
    for (std::size_t i = 0; i < 4; ++i) set.words_[i] = f(words_[i], other.words_[i]);
    return set;
  }
  std::array<std::uint64_t, 4> words_{};
};

inline constexpr std::uint32_t kUnbounded = 0xFFFFFFFF;

class RegexSet {
 public:
  static constexpr RegexId kNothing = 0;     // matches no text
  static constexpr RegexId kEmpty = 1;       // matches the empty text
  static constexpr RegexId kEverything = 2;  // matches every text

  explicit RegexSet(Budget& budget);  // the budget outlives the set
  ~RegexSet();
  RegexSet(RegexSet&&) noexcept;
  RegexSet& operator=(RegexSet&&) noexcept;

  RegexId bytes(const ByteSet& set);
  RegexId text(std::string_view text);
  RegexId concat(std::span<const RegexId> parts);
  RegexId any_of(std::span<const RegexId> parts);  // union; of none: kNothing
  RegexId all_of(std::span<const RegexId> parts);  // intersection; of none: kEverything
  RegexId complement(RegexId of);                  // every text that `of` does not match
  RegexId repeat(RegexId of, std::uint32_t least, std::uint32_t most = kUnbounded);  // a counter, not an expansion
  // One character, as UTF-8 writes it, from the code points first..last. Surrogates are left out.
  RegexId characters(char32_t first, char32_t last);

  RegexId concat(std::initializer_list<RegexId> parts) { return concat({parts.begin(), parts.size()}); }
  RegexId any_of(std::initializer_list<RegexId> parts) { return any_of({parts.begin(), parts.size()}); }
  RegexId all_of(std::initializer_list<RegexId> parts) { return all_of({parts.begin(), parts.size()}); }
  RegexId optional(RegexId of) { return repeat(of, 0, 1); }
  RegexId minus(RegexId of, RegexId without) { return all_of({of, complement(without)}); }

  bool matches_empty(RegexId of) const;
  RegexId derivative(RegexId of, std::uint8_t byte);
  // Whether no text at all matches. Explores derivatives; counts steps. If the budget ends first: true.
  bool matches_nothing(RegexId of);
  // Whether the whole text matches.
  bool matches(RegexId of, std::string_view text);
  // Whether no text matches both.
  bool disjoint(RegexId a, RegexId b) { return matches_nothing(all_of({a, b})); }

  Budget& budget();

  // For the lexer. Bytes with equal numbers have equal derivatives; numbers are from 0 up to, not including, `count`.
  struct Classes {
    std::array<std::uint8_t, 256> of{};
    std::uint32_t count = 1;
  };
  const Classes& classes(RegexId of);  // valid until the set changes
  // Expressions with the same classes have equal class sets.
  std::uint32_t class_set(RegexId of);
  std::uint32_t combined_class_set(std::uint32_t a, std::uint32_t b);
  const Classes& class_set_at(std::uint32_t set) const;
  // An expression that cannot be told from `of` by reading at most `horizon` bytes: counters above it are unbounded.
  // `of` itself where an intersection or complement makes that impossible.
  RegexId within(RegexId of, std::uint32_t horizon);
  // Certainly matches some text that is not empty. False: unknown.
  bool surely_extends(RegexId of) const;
  // The same expression of another set.
  RegexId import(const RegexSet& from, RegexId of);
  void use(Budget& budget);        // instead of the one so far
  std::size_t bytes_used() const;  // memory
  std::size_t size() const;        // nodes

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::grammar

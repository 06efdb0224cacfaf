// The tables of unicode.h: sorted, only for characters outside ASCII.
#pragma once

#include <cstdint>
#include <span>

namespace quire::jinja {

struct CharacterRange {
  std::uint32_t first;
  std::uint32_t last;
};

// Every `stride`th character from `first` to `last` becomes itself plus `delta`.
struct CaseRun {
  std::uint32_t first;
  std::uint32_t last;
  std::int32_t stride;
  std::int32_t delta;
};

struct SpecialCase {
  std::uint32_t character;
  const char8_t* upper;
  const char8_t* title;
};

struct UnicodeTables {
  std::span<const CharacterRange> digit;
  std::span<const CharacterRange> unprintable;
  std::span<const CaseRun> upper;
  std::span<const CaseRun> lower;
  std::span<const CaseRun> title;
  std::span<const SpecialCase> special;
};

const UnicodeTables& unicode_tables();

}  // namespace quire::jinja

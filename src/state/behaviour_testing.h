// Helpers for tests: how a call was refused, whether a pool is sound, and tokens and bytes to fill things with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/ids.h"
#include "quire/state/pool_error.h"

namespace quire::testing {

using Code = PoolError::Code;

// Whether a result is an error of this kind; otherwise says what it is.
template <typename T>
::testing::AssertionResult refused(const PoolResult<T>& result, Code code) {
  if (result) return ::testing::AssertionFailure() << "was not refused";
  if (result.error().code != code)
    return ::testing::AssertionFailure() << "was refused with: " << result.error().message();
  return ::testing::AssertionSuccess();
}

// The same, for errors that name a slot, page, sequence or position.
template <typename T>
::testing::AssertionResult refused_at(const PoolResult<T>& result, Code code, std::uint64_t index) {
  if (auto ok = refused(result, code); !ok) return ok;
  if (result.error().index != index) return ::testing::AssertionFailure() << "names " << result.error().index;
  return ::testing::AssertionSuccess();
}

// The same, for errors that say how much was wanted and how much was available.
template <typename T>
::testing::AssertionResult refused_with(const PoolResult<T>& result, Code code, std::uint64_t wanted,
                                        std::uint64_t available) {
  if (auto ok = refused(result, code); !ok) return ok;
  if (result.error().wanted != wanted || result.error().available != available) {
    return ::testing::AssertionFailure() << result.error().message();
  }
  return ::testing::AssertionSuccess();
}

template <typename T>
::testing::AssertionResult done(const PoolResult<T>& result) {
  if (!result) return ::testing::AssertionFailure() << result.error().message();
  return ::testing::AssertionSuccess();
}

// Works for every type with check_integrity().
template <typename Checked>
::testing::AssertionResult sound(const Checked& checked) {
  if (const auto ok = checked.check_integrity(); !ok) return ::testing::AssertionFailure() << ok.error();
  return ::testing::AssertionSuccess();
}

// `count` tokens that count up: first, first + 1, ...
inline std::vector<Token> counting(Token first, std::size_t count) {
  std::vector<Token> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline std::vector<Token> joined(std::vector<Token> a, const std::vector<Token>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Bytes that differ from each other, and from those of another salt.
inline std::vector<std::byte> pattern(std::size_t count, unsigned salt) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(1 + (i * 7 + salt * 31) % 251);
  return bytes;
}

inline bool all_zero(std::span<const std::byte> bytes) {
  for (const std::byte b : bytes) {
    if (b != std::byte{0}) return false;
  }
  return true;
}

inline std::vector<std::byte> bytes_at(const std::byte* from, std::size_t count) { return {from, from + count}; }

}  // namespace quire::testing

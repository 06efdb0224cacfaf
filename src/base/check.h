// Checks for what cannot happen. A failed check is a bug in this program, never bad input. It prints where and why and
// aborts, in every build type. Expected failures are values (std::expected) and are not checked this way.
#pragma once

namespace quire {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* why) noexcept;

}  // namespace quire

#define QUIRE_CHECK(condition, why)                               \
  do {                                                            \
    if (!(condition)) [[unlikely]]                                \
      ::quire::check_failed(__FILE__, __LINE__, #condition, why); \
  } while (false)

// An expected failure as a value: one line for a person that names what is wrong. Modules whose callers must tell
// failures apart have a type of their own (state: PoolError).
#pragma once

#include <expected>
#include <string>
#include <utility>

namespace quire {

struct Error {
  std::string message;  // one line, no trailing newline, no "error:" in front
};

template <typename T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(std::string message) { return std::unexpected(Error{std::move(message)}); }

}  // namespace quire

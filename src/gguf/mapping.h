// A whole file, mapped into memory for reading. Internal to gguf.
//
// What holds: bytes() is the file's content and stays where it is when the Mapping is moved.
// How it fails: whatever is not a regular, readable file with something in it is refused with a reason that begins with
//   the path. open() never waits, not even for a pipe that nobody writes to.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "quire/base/error.h"

namespace quire::gguf {

class Mapping {
 public:
  static Result<Mapping> open(const std::string& path);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::span<const std::byte> bytes() const { return bytes_; }
  // Gives the memory of a part of it back to the system; who looks again reads the file again. A part of something else
  // is left alone.
  void forget(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace quire::gguf

// A whole file, mapped into memory for reading. Internal to gguf.
//
// What holds: bytes() is the content of the file. It does not move when the Mapping is moved.
// How it fails: a file that is empty, not readable or not a regular file is refused with a reason that begins with the
//   path. open() never waits, not even for a pipe without a writer.
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
  // Gives the memory of a part back to the system; the next access reads the file again. Bytes outside the mapping are
  // left alone.
  void forget(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace quire::gguf

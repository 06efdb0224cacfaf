// A session file on a disk.
//
// What holds: write() writes beside the file and renames, so the file is the old one or the new one, also after a crash
//   or on a full disk. A writer that is killed leaves its file; the next write() to the same folder removes it, if it
//   is older than an hour. SessionFile reads the file into memory of its own; its contents are valid as long as it
//   lives. What was checked is what is used: the file may be cut, changed or removed afterwards. A mapped file would
//   end the program when it is cut (SIGBUS), and could change after its checksums were compared.
// Who may call: any thread.
// How it fails: one line that says what is wrong, without the name of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/session/session_format.h"

namespace quire::session {

// Returns the number of bytes. A new file can be read by its owner alone.
Result<std::uint64_t> write(const std::string& path, std::span<const Token> tokens, const Snapshot& snapshot,
                            std::string_view metadata);

class SessionFile {
 public:
  // Reads the file and checks all of it.
  static Result<SessionFile> open(const std::string& path);
  SessionFile(SessionFile&& other) noexcept;
  SessionFile& operator=(SessionFile&& other) noexcept;
  ~SessionFile();

  const Contents& contents() const { return contents_; }
  std::uint64_t bytes() const { return memory_.size(); }

 private:
  explicit SessionFile(std::span<std::byte> memory) : memory_(memory) {}

  std::span<std::byte> memory_;  // whole pages from the system
  Contents contents_;            // refers to the memory
};

}  // namespace quire::session

// A session file on a disk.
//
// What holds: write() writes beside the file and renames, so the file is the old one or the new one, also after a crash
//   or on a full disk. SessionFile maps the file; its contents are valid as long as it lives. Nobody may cut a file
//   that is mapped: whoever replaces one renames, as write() does.
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
  // Maps the file and checks all of it.
  static Result<SessionFile> open(const std::string& path);
  SessionFile(SessionFile&& other) noexcept;
  SessionFile& operator=(SessionFile&& other) noexcept;
  ~SessionFile();

  const Contents& contents() const { return contents_; }
  std::uint64_t bytes() const { return mapped_.size(); }

 private:
  explicit SessionFile(std::span<const std::byte> mapped) : mapped_(mapped) {}

  std::span<const std::byte> mapped_;
  Contents contents_;  // refers to the mapped bytes
};

}  // namespace quire::session

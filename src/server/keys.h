// API keys. Each is a namespace of its own for the reuse of prefixes, so that nobody can find out what others have
// asked by how fast an answer comes.
//
// Who may call: it does not change once made; any number of threads may read it.
// What holds: how long a comparison takes depends on the keys there are and on the length of what was sent, not on how
//   much of it is right.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/state/ids.h"

namespace quire::server {

class Keys {
 public:
  Keys() = default;  // none: everybody is let in, into one namespace
  // How it fails: an empty key, or one with characters that no header can have.
  static Result<Keys> create(std::vector<std::string> keys);

  bool any() const { return !keys_.empty(); }
  // Whose namespace a request is in, by its Authorization header; nothing: the key is missing or wrong.
  std::optional<Namespace> admit(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

// The keys in a text, one on a line; empty lines and such that begin with # are left out.
std::vector<std::string> keys_in(std::string_view text);

}  // namespace quire::server

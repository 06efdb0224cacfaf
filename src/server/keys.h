// API keys. Each key has its own namespace for prefix reuse. So nobody can find out from the response time what other
// keys have asked.
//
// Who may call: any thread; it does not change after creation.
// What holds: the time of a comparison depends on the server's keys and on the length of what was sent, not on how much
//   of it is correct.
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
  Keys() = default;  // no keys: everybody is admitted, into one namespace
  // Fails for an empty key, or a key with characters that a header cannot have.
  static Result<Keys> create(std::vector<std::string> keys);

  bool any() const { return !keys_.empty(); }
  // The namespace of a request, from its Authorization header. Empty: the key is missing or wrong.
  std::optional<Namespace> admit(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

// The keys in a text, one per line. Empty lines and lines that begin with # are skipped.
std::vector<std::string> keys_in(std::string_view text);

}  // namespace quire::server

// API keys: who may use the server, and as which tenant. Each tenant has its own namespace for prefix reuse. So nobody
// can find out from the response time what other keys have asked.
//
// Keys come from a file of keys (key_file.h), or as plain texts from the command line. A plain key's id is a hash of
// the key, so it stays the same when other keys are added or removed.
//
// Who may call: any thread; it does not change after creation. Tenants live as long as somebody holds them.
// What holds: a look-up takes one or two hashes, however many keys there are. Its time does not tell how much of a key
// is
//   correct. It may tell whether an id is in the file, which is no secret.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quire/base/error.h"
#include "quire/server/key_file.h"
#include "quire/server/tenant.h"
#include "quire/state/object_name.h"

namespace quire::server {

using TenantRef = std::shared_ptr<const Tenant>;

// Where the keys are. They can be read again while the server runs.
struct KeySources {
  std::vector<std::string> plain;
  std::string file;  // empty: none. With a file, keys are needed even while it has none
};

class Keys {
 public:
  Keys() = default;  // no keys: everybody is admitted, as one tenant
  // Fails for an empty key, a key with characters that a header cannot have, or a bad file.
  static Result<Keys> create(const KeySources& sources);

  bool any() const { return needed_; }  // whether a key is needed
  // The tenant of a request, from its Authorization header. Null: the key is missing or wrong.
  TenantRef admit(std::string_view authorization) const;
  const std::vector<TenantRef>& tenants() const { return tenants_; }

  // What the tenants are called in every tier (quire/state/object_name.h). It depends on secrets, not on the number: a
  // plain key has the same name on every server, a key of a file wherever there is a copy of the file. So servers with
  // other keys never share content by accident, and with the same keys they do.
  struct TierName {
    Namespace id = 0;
    TenantName name{};
  };
  const std::vector<TierName>& tier_names() const { return tier_names_; }

 private:
  struct Stored {
    StoredKey key;
    TenantRef tenant;
  };
  Sha256Digest digest(std::string_view key) const;

  bool needed_ = false;
  std::vector<TenantRef> tenants_;
  std::vector<TierName> tier_names_;
  std::unordered_map<Namespace, Stored> stored_;
  // Plain keys by their hash with a random salt. Nobody outside knows the salt, so the time that a look-up takes says
  // nothing about the keys.
  std::map<Sha256Digest, TenantRef> plain_;
  std::array<std::uint8_t, 16> salt_{};
};

// The keys in a text, one per line. Empty lines and lines that begin with # are skipped.
std::vector<std::string> keys_in(std::string_view text);

}  // namespace quire::server

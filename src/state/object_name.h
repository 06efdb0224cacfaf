// Names of content that outlives the pool: pages and checkpoints in the tiers (tier.h). A name says everything that the
// bytes depend on, so the same name always means the same bytes, on every machine:
//
//   root   = SHA-256("quire object 1", fingerprint of model and arithmetic, fingerprint of the layout, tenant)
//   block  = SHA-256("quire block", name of the block before it, or the root, the tokens of the block)
//   object = (name of the block, class): the page of one layer group, or the recurrent state at the block's end
//
// With an adapter, a name of its contents stands for the tenant: SHA-256("quire adapter", tenant, fingerprint of the
// adapter). The tenant is its stable id, the same on every server that shares a tier. Nobody can compute the names of
// another tenant's objects without that id, and an object that was stored under one name is never returned for another
// one.
//
// Who may call: any thread. Nothing is allocated.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "quire/base/sha256.h"
#include "quire/state/ids.h"
#include "quire/state/saved_sequence.h"

namespace quire {

using ObjectName = Sha256Digest;
// What a tenant is called in every tier. All zero: the server has no keys, everybody is one tenant.
using TenantName = Sha256Digest;

struct ObjectKey {
  ObjectName name{};
  std::uint8_t cls = 0;  // the layer group of a page; kCheckpoint: the recurrent state

  static constexpr std::uint8_t kCheckpoint = 0xff;
  friend auto operator<=>(const ObjectKey&, const ObjectKey&) = default;
};

// The 33 bytes of a key: the name, then the class.
using ObjectKeyBytes = std::array<std::uint8_t, 33>;
ObjectKeyBytes bytes_of(const ObjectKey& key);
// Names are already random; the first bytes are a hash.
struct ObjectKeyHash {
  std::size_t operator()(const ObjectKey& key) const;
};
std::string to_text(const ObjectKey& key);  // for logs: the first 16 hex digits and the class

TenantName adapted_name(const TenantName& tenant, const Fingerprint& adapter);
ObjectName root_name(const Fingerprint& model, const Hash128& layout, const TenantName& tenant);
ObjectName block_name(const ObjectName& parent, std::span<const Token> tokens);

}  // namespace quire

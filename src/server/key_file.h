// The file of keys: `quire keys` edits it, `quire serve --keys FILE` reads it. One JSON object:
//
//   {"next_id": 8, "keys": [{"id": 7, "name": "ann", "hash": "sha256:SALT:HASH", "weight": 1, ...}]}
//
// A key is quire-ID-SECRET. The id is no secret: it says which hash to compare with. The secret is 256 random bits. So
// one SHA-256 with a salt is enough, and a slow hash for passwords is not needed: nobody can try all secrets.
//
// Who may call: any thread; an object belongs to one caller. edit_key_file() may run in several processes at a time.
// What holds: an id is given once: `next_id` only grows. The file is replaced as a whole, so a reader never sees half
//   of it. It never has a key that could be used.
// How it fails: with one line that names the file, the key and the field. Then the file is as it was.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "quire/base/error.h"
#include "quire/base/sha256.h"
#include "quire/server/tenant.h"

namespace quire::server {

struct StoredKey {
  Tenant tenant;
  std::string created;  // when it was given, in UTC
  std::array<std::uint8_t, 16> salt{};
  Sha256Digest hash{};

  bool is(std::string_view key) const;  // takes the same time whatever is wrong with the key
};

class KeyFile {
 public:
  // `path` is only for messages.
  static Result<KeyFile> parse(std::string_view text, std::string_view path);
  static Result<KeyFile> read(const std::string& path);
  std::string text() const;

  const std::vector<StoredKey>& keys() const { return keys_; }
  // The key, which is nowhere else. The id of `tenant` is ignored.
  Result<std::string> add(Tenant tenant);
  // Changes a tenant; not its id and name.
  Result<Tenant> change(std::string_view name_or_id, const std::function<void(Tenant&)>& edit);
  Result<Tenant> revoke(std::string_view name_or_id);

 private:
  Result<std::size_t> find(std::string_view name_or_id) const;

  Namespace next_id_ = 1;
  std::vector<StoredKey> keys_;
};

// Its fields, as the file and `quire keys --json` have them.
boost::json::object to_json(const Tenant& tenant);

// The id in a key. 0: it is not a key of this kind.
Namespace id_in_key(std::string_view key);

// Reads the file, edits it and replaces it, while no other process does. A new file is readable by its owner only; a
// file that was there keeps its owner. `create`: the file may be missing.
Result<void> edit_key_file(const std::string& path, bool create, const std::function<Result<void>(KeyFile&)>& edit);

}  // namespace quire::server

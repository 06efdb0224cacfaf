#include "quire/server/keys.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "quire/engine/request.h"

namespace quire::server {
namespace {

constexpr std::string_view kScheme = "bearer";

// Ids of plain keys have this bit, ids of a file never have it.
constexpr Namespace kPlain = Namespace{1} << 63;

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The same for the same key, on every server and in every order.
Namespace id_of_plain(std::string_view key) {
  const Sha256Digest hash = Sha256().add("quire namespace ").add(key).finish();
  Namespace id = 0;
  for (std::size_t i = 0; i < sizeof(id); ++i) id = id << 8 | hash[i];
  return tenant_of(id) | kPlain;  // without the bits of adapters
}

TenantName tier_name_of_plain(std::string_view key) { return Sha256().add("quire plain tenant ").add(key).finish(); }

// The salt is random and made once for each key. Ids alone are the same in every file.
Sha256Digest hash_of_stored(std::string_view purpose, const StoredKey& key) {
  std::array<std::uint8_t, sizeof(Namespace)> id{};
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::uint8_t>(key.tenant.id >> (8 * i));
  return Sha256().add(purpose).add(text_of(key.salt)).add(text_of(id)).finish();
}

TenantName tier_name_of(const StoredKey& key) { return hash_of_stored("quire tenant ", key); }

// The id of a plain key is a hash of the key already. The two kinds have different numbers of digits.
std::string folder_of_plain(Namespace id) { return fmt::format("tenant-{:016x}", id); }
std::string folder_of(const StoredKey& key) {
  const Sha256Digest hash = hash_of_stored("quire session folder ", key);
  return "tenant-" + to_hex(std::span(hash).first(hash.size() / 2));
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

}  // namespace

Result<Keys> Keys::create(const KeySources& sources) {
  Keys keys;
  if (!fill_random(keys.salt_)) return fail("the system has no random numbers");
  // A server with one plain key has one user, who may see everything.
  const bool alone = sources.file.empty() && std::set(sources.plain.begin(), sources.plain.end()).size() == 1;
  for (const std::string& key : sources.plain) {
    const bool printable = std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7F; });
    if (key.empty()) return fail("an API key is empty");
    if (!printable) return fail("an API key has characters that a header cannot have (spaces or non-ASCII characters)");
    TenantRef& tenant = keys.plain_[keys.digest(key)];
    if (tenant != nullptr) continue;
    const Namespace id = id_of_plain(key);
    tenant = std::make_shared<Tenant>(Tenant{.id = id,
                                             .name = fmt::format("api-key-{}", keys.tenants_.size() + 1),
                                             .max_priority = engine::kMostPriority,
                                             .admin = alone,
                                             .folder = folder_of_plain(id)});
    keys.tenants_.push_back(tenant);
    keys.tier_names_.push_back({tenant->id, tier_name_of_plain(key)});
  }
  if (!sources.file.empty()) {
    auto file = KeyFile::read(sources.file);
    if (!file) return std::unexpected(file.error());
    for (const StoredKey& key : file->keys()) {
      auto tenant = std::make_shared<Tenant>(key.tenant);
      tenant->folder = folder_of(key);
      keys.stored_.emplace(tenant->id, Stored{key, tenant});
      keys.tier_names_.push_back({tenant->id, tier_name_of(key)});
      keys.tenants_.push_back(std::move(tenant));
    }
  }
  keys.needed_ = !sources.file.empty() || !sources.plain.empty();
  return keys;
}

Sha256Digest Keys::digest(std::string_view key) const { return Sha256().add(text_of(salt_)).add(key).finish(); }

TenantRef Keys::admit(std::string_view authorization) const {
  static const TenantRef everybody =
      std::make_shared<const Tenant>(Tenant{.max_priority = engine::kMostPriority, .admin = true});
  if (!needed_) return everybody;
  const std::size_t space = std::min(authorization.find(' '), authorization.size());
  const bool bearer = std::ranges::equal(authorization.substr(0, space), kScheme, [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  });
  const std::string_view sent = bearer ? trimmed(authorization.substr(space)) : std::string_view();
  if (sent.empty()) return nullptr;
  if (const auto found = stored_.find(id_in_key(sent)); found != stored_.end() && found->second.key.is(sent)) {
    return found->second.tenant;
  }
  const auto found = plain_.find(digest(sent));
  return found == plain_.end() ? nullptr : found->second;
}

std::vector<std::string> keys_in(std::string_view text) {
  std::vector<std::string> keys;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    if (!line.empty() && !line.starts_with('#')) keys.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return keys;
}

}  // namespace quire::server

#include "quire/state/object_name.h"

#include <cstring>
#include <string_view>

namespace quire {
namespace {

// Numbers are hashed as little-endian bytes, so that machines of all kinds compute the same names.
template <typename Number>
void add_number(Sha256& hash, Number number) {
  std::array<char, sizeof number> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i));
  }
  hash.add({bytes.data(), bytes.size()});
}

std::string_view text_of(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

ObjectKeyBytes bytes_of(const ObjectKey& key) {
  ObjectKeyBytes bytes;
  std::memcpy(bytes.data(), key.name.data(), key.name.size());
  bytes.back() = key.cls;
  return bytes;
}

std::size_t ObjectKeyHash::operator()(const ObjectKey& key) const {
  std::uint64_t hash;
  std::memcpy(&hash, key.name.data(), sizeof hash);
  return hash ^ (std::uint64_t{key.cls} * 0x9e3779b97f4a7c15);
}

std::string to_text(const ObjectKey& key) {
  std::string text = to_hex(std::span(key.name).first(8));
  return key.cls == ObjectKey::kCheckpoint ? text + "/state" : text + "/" + std::to_string(key.cls);
}

TenantName adapted_name(const TenantName& tenant, const Fingerprint& adapter) {
  Sha256 hash;
  hash.add("quire adapter");
  hash.add(text_of(tenant));
  for (const std::uint64_t word : adapter.words) add_number(hash, word);
  return hash.finish();
}

ObjectName root_name(const Fingerprint& model, const Hash128& layout, const TenantName& tenant) {
  Sha256 hash;
  hash.add("quire object 1");
  for (const std::uint64_t word : model.words) add_number(hash, word);
  add_number(hash, layout.low);
  add_number(hash, layout.high);
  hash.add(text_of(tenant));
  return hash.finish();
}

ObjectName block_name(const ObjectName& parent, std::span<const Token> tokens) {
  Sha256 hash;
  hash.add("quire block");
  hash.add(text_of(parent));
  for (const Token token : tokens) add_number(hash, token);
  return hash.finish();
}

}  // namespace quire

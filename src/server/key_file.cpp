#include "quire/server/key_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quire/base/utf8.h"
#include "quire/engine/request.h"
#include "quire/engine/tenants.h"

namespace quire::server {
namespace {

namespace json = boost::json;

constexpr std::string_view kKeyPrefix = "quire-";
constexpr std::string_view kHashPrefix = "sha256:";
constexpr std::size_t kMostBytes = std::size_t{16} << 20;  // of the file
constexpr std::size_t kMostNameBytes = 64;
// Ids with the highest bit are those of keys that are in no file; see keys.cpp. JSON readers keep 53 bits, and the bits
// above them are those of adapters (ids.h).
constexpr Namespace kMostId = (Namespace{1} << 53) - 1;
constexpr std::uint64_t kMostInteger = std::uint64_t{1} << 53;

// "" if the name may be used.
std::string wrong_with_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kMostNameBytes) return fmt::format("has more than {} bytes", kMostNameBytes);
  if (utf8_valid_prefix(name) != name.size()) return "is not UTF-8";
  if (std::ranges::any_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7F; })) return "has control characters";
  if (name.front() == ' ' || name.back() == ' ') return "begins or ends with a space";
  // Otherwise `revoke 7` could mean two keys.
  if (std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; })) return "is a number, like an id";
  return "";
}

// "" if the values make sense together.
std::string wrong_with(const Tenant& tenant) {
  if (const std::string wrong = wrong_with_name(tenant.name); !wrong.empty()) return "'name' " + wrong;
  if (!(tenant.weight > 0 && tenant.weight <= engine::kMostWeight)) {
    return fmt::format("'weight' must be more than 0 and at most {}", engine::kMostWeight);
  }
  if (tenant.max_priority < -engine::kMostPriority || tenant.max_priority > engine::kMostPriority) {
    return fmt::format("'max_priority' must be from {} to {}", -engine::kMostPriority, engine::kMostPriority);
  }
  if (tenant.cap_bytes != 0 && tenant.floor_bytes > tenant.cap_bytes) return "'floor_bytes' is more than 'cap_bytes'";
  return "";
}

// Reads the fields of one key. Keeps the first error.
class Reader {
 public:
  StoredKey key;
  std::string wrong;

  void take(std::string_view name, const json::value& value) {
    Tenant& tenant = key.tenant;
    if (name == "id") return integer(name, value, tenant.id, 1, kMostId);
    if (name == "name") return text(name, value, tenant.name);
    if (name == "hash") return hash(value);
    if (name == "created") return text(name, value, key.created);
    if (name == "weight") return number(name, value, tenant.weight);
    if (name == "max_sequences") return integer(name, value, tenant.max_sequences, 0, UINT32_MAX);
    if (name == "tokens_per_minute") return integer(name, value, tenant.tokens_per_minute, 0, UINT32_MAX);
    if (name == "max_priority") {
      return integer(name, value, tenant.max_priority, -engine::kMostPriority, engine::kMostPriority);
    }
    if (name == "floor_bytes") return integer(name, value, tenant.floor_bytes, 0, kMostInteger);
    if (name == "cap_bytes") return integer(name, value, tenant.cap_bytes, 0, kMostInteger);
    if (name == "admin") return boolean(name, value, tenant.admin);
    refuse(fmt::format("there is no field '{}'", std::string_view(name).substr(0, 100)));
  }
  void refuse(std::string why) {
    if (wrong.empty()) wrong = std::move(why);
  }

 private:
  template <typename T>
  void integer(std::string_view name, const json::value& value, T& into, std::int64_t least, std::uint64_t most) {
    const std::optional<std::int64_t> given = whole(value);
    if (!given || *given < least || (*given > 0 && static_cast<std::uint64_t>(*given) > most)) {
      return refuse(fmt::format("'{}' must be a whole number from {} to {}", name, least, most));
    }
    into = static_cast<T>(*given);
  }
  static std::optional<std::int64_t> whole(const json::value& value) {
    if (value.is_int64()) return value.get_int64();
    // Programs write 5.0 for 5.
    if (value.is_double() && std::abs(value.get_double()) <= static_cast<double>(kMostInteger) &&
        std::trunc(value.get_double()) == value.get_double()) {
      return static_cast<std::int64_t>(value.get_double());
    }
    return std::nullopt;
  }
  void number(std::string_view name, const json::value& value, double& into) {
    if (!value.is_number()) return refuse(fmt::format("'{}' must be a number", name));
    into = value.to_number<double>();
  }
  void boolean(std::string_view name, const json::value& value, bool& into) {
    if (!value.is_bool()) return refuse(fmt::format("'{}' must be true or false", name));
    into = value.get_bool();
  }
  void text(std::string_view name, const json::value& value, std::string& into) {
    if (!value.is_string()) return refuse(fmt::format("'{}' must be a text", name));
    into = std::string(value.get_string());
  }
  void hash(const json::value& value) {
    std::string all;
    text("hash", value, all);
    std::string_view rest = all;
    if (rest.starts_with(kHashPrefix)) rest.remove_prefix(kHashPrefix.size());
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    if (rest.size() == all.size() || colon == rest.size() || !from_hex(rest.substr(0, colon), key.salt) ||
        !from_hex(rest.substr(colon + 1), key.hash)) {
      refuse("'hash' must be sha256:SALT:HASH with 32 and 64 hex digits");
    }
  }
};

json::object stored(const StoredKey& key) {
  json::object out = to_json(key.tenant);
  out["created"] = key.created;
  out["hash"] = fmt::format("{}{}:{}", kHashPrefix, to_hex(key.salt), to_hex(key.hash));
  return out;
}

Sha256Digest hash_of(std::span<const std::uint8_t> salt, std::string_view key) {
  return Sha256().add({reinterpret_cast<const char*>(salt.data()), salt.size()}).add(key).finish();
}

std::string now_in_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// A descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::unexpected<Error> failed(std::string_view path, std::string_view what) {
  return fail(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

Result<std::string> contents(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return failed(path, "cannot read the keys");
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed(path, "cannot read the keys");
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kMostBytes) return fail(fmt::format("{}: has more than {} bytes", path, kMostBytes));
  }
}

// The new file has the owner of the old one: root may edit the keys of a server that runs as another user.
bool keep_owner(int fd, const std::string& path) {
  struct stat old = {};
  if (::stat(path.c_str(), &old) != 0) return errno == ENOENT;
  if (::fchmod(fd, old.st_mode & 0640) != 0) return false;
  return (old.st_uid == ::geteuid() && old.st_gid == ::getegid()) || ::fchown(fd, old.st_uid, old.st_gid) == 0;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return ::fsync(fd) == 0;
}

Result<void> replace(const std::string& path, std::string_view text) {
  std::string temporary = path + ".XXXXXX";
  const Descriptor file(::mkostemp(temporary.data(), O_CLOEXEC));  // mode 0600
  if (file.get() < 0) return failed(path, "cannot write the keys");
  if (keep_owner(file.get(), path) && write_all(file.get(), text) && ::rename(temporary.c_str(), path.c_str()) == 0) {
    return {};
  }
  auto error = failed(path, "cannot write the keys");
  (void)::unlink(temporary.c_str());
  return error;
}

}  // namespace

json::object to_json(const Tenant& tenant) {
  // A whole weight is written as 3, not as 3E0.
  const bool whole = std::trunc(tenant.weight) == tenant.weight;
  return {{"id", tenant.id},
          {"name", tenant.name},
          {"weight", whole ? json::value(static_cast<std::int64_t>(tenant.weight)) : json::value(tenant.weight)},
          {"max_sequences", tenant.max_sequences},
          {"tokens_per_minute", tenant.tokens_per_minute},
          {"max_priority", tenant.max_priority},
          {"floor_bytes", tenant.floor_bytes},
          {"cap_bytes", tenant.cap_bytes},
          {"admin", tenant.admin}};
}

bool StoredKey::is(std::string_view key) const { return same_secret(hash_of(salt, key), hash); }

Namespace id_in_key(std::string_view key) {
  if (!key.starts_with(kKeyPrefix)) return 0;
  Namespace id = 0;
  const char* const end = key.data() + key.size();
  const auto [rest, error] = std::from_chars(key.data() + kKeyPrefix.size(), end, id);
  return error == std::errc() && rest != end && *rest == '-' ? id : 0;
}

Result<KeyFile> KeyFile::parse(std::string_view text, std::string_view path) {
  json::error_code error;
  const json::value value = json::parse(text, error);
  if (error) return fail(fmt::format("{}: is not JSON: {}", path, error.message()));
  const json::object* const object = value.if_object();
  const json::array* list = nullptr;
  KeyFile file;
  if (object == nullptr) return fail(fmt::format("{}: is not a JSON object with \"next_id\" and \"keys\"", path));
  for (const auto& [name, field] : *object) {
    if (name == "keys") {
      list = field.if_array();
    } else if (name != "next_id") {
      return fail(fmt::format("{}: there is no field '{}'", path, std::string_view(name).substr(0, 100)));
    } else if (!field.is_int64() || field.get_int64() < 1 || field.get_int64() > static_cast<std::int64_t>(kMostId)) {
      return fail(fmt::format("{}: 'next_id' must be a whole number from 1 to {}", path, kMostId));
    } else {
      file.next_id_ = static_cast<Namespace>(field.get_int64());
    }
  }
  if (list == nullptr || !object->contains("next_id")) {
    return fail(fmt::format("{}: needs 'next_id' and the list 'keys'", path));
  }
  std::set<Namespace> ids;
  std::set<std::string> names;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const json::object* const one = (*list)[i].if_object();
    Reader reader;
    if (one == nullptr) return fail(fmt::format("{}: keys[{}] is not an object", path, i));
    for (const auto& [name, field] : *one) reader.take(name, field);
    for (const char* needed : {"id", "name", "hash"}) {
      if (!one->contains(needed)) reader.refuse(fmt::format("'{}' is missing", needed));
    }
    if (reader.wrong.empty()) reader.wrong = wrong_with(reader.key.tenant);
    const Tenant& tenant = reader.key.tenant;
    if (tenant.id >= file.next_id_) reader.refuse("'id' is not below 'next_id'");
    if (!ids.insert(tenant.id).second) reader.refuse(fmt::format("another key has the id {}", tenant.id));
    if (!names.insert(tenant.name).second) reader.refuse("another key has this name");
    if (!reader.wrong.empty()) {
      return fail(fmt::format("{}: keys[{}]{}: {}", path, i,
                              tenant.name.empty() ? std::string() : fmt::format(" ({})", tenant.name), reader.wrong));
    }
    file.keys_.push_back(std::move(reader.key));
  }
  return file;
}

Result<KeyFile> KeyFile::read(const std::string& path) {
  const auto text = contents(path);
  if (!text) return std::unexpected(text.error());
  return parse(*text, path);
}

std::string KeyFile::text() const {
  // A line for each key, so that people can read and compare files.
  std::string out = fmt::format("{{\n\"next_id\": {},\n\"keys\": [", next_id_);
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    out += i == 0 ? "\n" : ",\n";
    out += json::serialize(stored(keys_[i]));
  }
  return out + "\n]\n}\n";
}

Result<std::string> KeyFile::add(Tenant tenant) {
  if (const std::string wrong = wrong_with(tenant); !wrong.empty()) return fail(wrong);
  if (std::ranges::any_of(keys_, [&](const StoredKey& key) { return key.tenant.name == tenant.name; })) {
    return fail(fmt::format("there is a key with the name '{}' already", tenant.name));
  }
  if (next_id_ >= kMostId) return fail("there are no more ids");
  StoredKey stored{.tenant = std::move(tenant), .created = now_in_utc()};
  std::array<std::uint8_t, 32> secret{};
  if (!fill_random(secret) || !fill_random(stored.salt)) return fail("the system has no random numbers for a key");
  stored.tenant.id = next_id_++;
  std::string key = fmt::format("{}{}-{}", kKeyPrefix, stored.tenant.id, to_hex(secret));
  stored.hash = hash_of(stored.salt, key);
  keys_.push_back(std::move(stored));
  return key;
}

Result<std::size_t> KeyFile::find(std::string_view name_or_id) const {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const Tenant& tenant = keys_[i].tenant;
    if (tenant.name == name_or_id || fmt::format("{}", tenant.id) == name_or_id) return i;
  }
  return fail(fmt::format("there is no key with the name or id '{}'", name_or_id));
}

Result<Tenant> KeyFile::change(std::string_view name_or_id, const std::function<void(Tenant&)>& edit) {
  const auto at = find(name_or_id);
  if (!at) return std::unexpected(at.error());
  Tenant changed = keys_[*at].tenant;
  edit(changed);
  if (const std::string wrong = wrong_with(changed); !wrong.empty()) return fail(wrong);
  changed.id = keys_[*at].tenant.id;
  changed.name = keys_[*at].tenant.name;
  return keys_[*at].tenant = std::move(changed);
}

Result<Tenant> KeyFile::revoke(std::string_view name_or_id) {
  const auto at = find(name_or_id);
  if (!at) return std::unexpected(at.error());
  Tenant gone = std::move(keys_[*at].tenant);
  keys_.erase(keys_.begin() + static_cast<std::ptrdiff_t>(*at));
  return gone;
}

Result<void> edit_key_file(const std::string& path, bool create, const std::function<Result<void>(KeyFile&)>& edit) {
  // A link stays: what it points to is replaced.
  std::error_code unresolved;
  const std::string real = std::filesystem::weakly_canonical(path, unresolved).string();
  const std::string target = unresolved ? path : real;
  // The lock is a file of its own, because the file of keys is replaced. It stays: removing it would let a third
  // process lock a new one while the second still waits for the old one.
  const Descriptor lock(::open((target + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.get() < 0) return failed(target + ".lock", "cannot lock the keys");
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return failed(target + ".lock", "cannot lock the keys");
  }
  KeyFile file;
  if (!create || ::access(target.c_str(), F_OK) == 0) {
    auto read = KeyFile::read(target);
    if (!read) return std::unexpected(read.error());
    file = std::move(*read);
  }
  if (auto edited = edit(file); !edited) return fail(fmt::format("{}: {}", path, edited.error().message));
  return replace(target, file.text());
}

}  // namespace quire::server

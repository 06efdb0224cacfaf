// The file of keys: what is in it, what is refused, and that ids are never given twice.
#include "quire/server/key_file.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quire/server/keys.h"

namespace quire::server {
namespace {

// A folder that is removed with the test.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "quire-keys-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return path_ / name; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

Result<std::string> add(const std::string& path, const Tenant& tenant) {
  std::string key;
  auto done = edit_key_file(path, true, [&](KeyFile& file) -> Result<void> {
    auto added = file.add(tenant);
    if (!added) return std::unexpected(added.error());
    key = *added;
    return {};
  });
  if (!done) return std::unexpected(done.error());
  return key;
}
Result<void> revoke(const std::string& path, const std::string& who) {
  return edit_key_file(path, false, [&](KeyFile& file) -> Result<void> {
    if (auto gone = file.revoke(who); !gone) return std::unexpected(gone.error());
    return {};
  });
}
TenantRef admitted(const std::string& path, const std::string& key) {
  const auto keys = Keys::create({.file = path});
  EXPECT_TRUE(keys.has_value()) << keys.error().message;
  return keys ? keys->admit("Bearer " + key) : nullptr;
}

TEST(KeyFile, AKeyIsGivenOnceAndOnlyItsHashIsKept) {
  const Folder folder;
  const Tenant ann{.name = "ann",
                   .weight = 2.5,
                   .max_sequences = 3,
                   .tokens_per_minute = 1000,
                   .max_priority = 7,
                   .floor_bytes = 64 << 20,
                   .cap_bytes = std::uint64_t{1} << 40,
                   .admin = true};
  const auto key = add(folder / "keys", ann);
  ASSERT_TRUE(key.has_value()) << key.error().message;
  EXPECT_TRUE(key->starts_with("quire-1-"));
  EXPECT_EQ(key->size(), std::string_view("quire-1-").size() + 64);
  EXPECT_EQ(read(folder / "keys").find(key->substr(8)), std::string::npos) << "the secret is in the file";
  const TenantRef found = admitted(folder / "keys", *key);
  ASSERT_NE(found, nullptr);
  Tenant expected = ann;
  expected.id = 1;
  expected.folder = found->folder;  // it comes from the salt
  EXPECT_EQ(*found, expected) << "every field is read back";
}

TEST(KeyFile, OnlyTheWholeKeyOpens) {
  const Folder folder;
  const std::string path = folder / "keys";
  const auto ann = add(path, {.name = "ann"}), bob = add(path, {.name = "bob"});
  ASSERT_TRUE(ann && bob);
  EXPECT_EQ(admitted(path, *ann)->name, "ann");
  EXPECT_EQ(admitted(path, *bob)->name, "bob");
  std::string other_id = *ann;
  other_id[6] = '2';
  std::string last_digit = *ann;
  last_digit.back() = last_digit.back() == '0' ? '1' : '0';
  for (const std::string& wrong : {ann->substr(0, ann->size() - 1), *ann + "0", other_id, last_digit,
                                   std::string("quire-1-"), std::string("quire-"), std::string("quire-9-00")}) {
    EXPECT_EQ(admitted(path, wrong), nullptr) << wrong;
  }
}

TEST(KeyFile, AnIdIsNeverGivenAgain) {
  const Folder folder;
  const std::string path = folder / "keys";
  std::set<Namespace> ids;
  std::string last;
  for (int i = 0; i < 5; ++i) {
    const auto key = add(path, {.name = "ann"});
    ASSERT_TRUE(key.has_value()) << key.error().message;
    ids.insert(admitted(path, *key)->id);
    if (!last.empty()) {
      EXPECT_EQ(admitted(path, last), nullptr) << "a revoked key";
    }
    last = *key;
    // The file is empty in between, and still remembers.
    ASSERT_TRUE(revoke(path, i % 2 == 0 ? "ann" : std::to_string(*ids.rbegin())).has_value());
  }
  EXPECT_EQ(ids.size(), 5u);
}

TEST(KeyFile, WithoutAnyKeyNobodyIsAdmitted) {
  const Folder folder;
  write(folder / "keys", R"({"next_id": 5, "keys": []})");
  const auto keys = Keys::create({.file = folder / "keys"});
  ASSERT_TRUE(keys.has_value());
  EXPECT_TRUE(keys->any());
  EXPECT_EQ(keys->admit(""), nullptr);
  EXPECT_EQ(keys->admit("Bearer "), nullptr);
}

TEST(KeyFile, IsForItsOwnerOnlyAndReplacedAsAWhole) {
  const Folder folder;
  const std::string path = folder / "keys";
  ASSERT_TRUE(add(path, {.name = "ann"}));
  struct stat before = {}, after = {};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  EXPECT_EQ(before.st_mode & 0777, 0600u);
  const std::string link = folder / "link";
  std::filesystem::create_symlink(path, link);
  ASSERT_TRUE(add(link, {.name = "bob"}));
  EXPECT_TRUE(std::filesystem::is_symlink(link)) << "a link stays";
  ASSERT_EQ(::stat(path.c_str(), &after), 0);
  EXPECT_NE(before.st_ino, after.st_ino) << "a reader of the old file keeps it";
  EXPECT_EQ(folder.files(), 3u) << "the file, the link and the lock: nothing else is left";
}

TEST(KeyFile, AFailedEditChangesNothing) {
  const Folder folder;
  const std::string path = folder / "keys";
  ASSERT_TRUE(add(path, {.name = "ann"}));
  const std::string before = read(path);
  for (const auto& error : {add(path, {.name = "ann"}).error(), add(path, {.name = "12"}).error(),
                            add(path, {.name = "bob", .weight = 0}).error(), revoke(path, "carl").error(),
                            add(path, {.name = "bob", .floor_bytes = 2, .cap_bytes = 1}).error()}) {
    EXPECT_TRUE(error.message.starts_with(path + ": ")) << error.message;
  }
  EXPECT_EQ(read(path), before);
  EXPECT_FALSE(revoke(folder / "absent", "ann").has_value());
  EXPECT_FALSE(std::filesystem::exists(folder / "absent"));
}

TEST(KeyFile, SeveralEditorsLoseNothing) {
  const Folder folder;
  const std::string path = folder / "keys";
  std::vector<std::thread> editors;
  for (int i = 0; i < 4; ++i) {
    editors.emplace_back([&, i] {
      for (int j = 0; j < 5; ++j) EXPECT_TRUE(add(path, {.name = fmt::format("k{}-{}", i, j)}).has_value());
    });
  }
  for (std::thread& editor : editors) editor.join();
  const auto file = KeyFile::read(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  std::set<Namespace> ids;
  for (const StoredKey& key : file->keys()) ids.insert(key.tenant.id);
  EXPECT_EQ(ids.size(), 20u);
}

TEST(KeyFile, ChangesATenantAndKeepsItsKey) {
  const Folder folder;
  const std::string path = folder / "keys";
  const auto key = add(path, {.name = "ann"});
  ASSERT_TRUE(key.has_value());
  const auto changed = edit_key_file(path, false, [](KeyFile& file) -> Result<void> {
    EXPECT_TRUE(file.change("1",
                            [](Tenant& tenant) {
                              tenant.weight = 3;
                              tenant.id = 99;
                            })
                    .has_value());
    EXPECT_FALSE(file.change("ann", [](Tenant& tenant) { tenant.weight = -1; }).has_value());
    return {};
  });
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(admitted(path, *key)->weight, 3);
  EXPECT_EQ(admitted(path, *key)->id, 1u);
}

// Ids are the same in every file. What a tenant's session files are found by is not.
TEST(KeyFile, TheFolderOfATenantFollowsFromItsKeyAndStaysWithIt) {
  const Folder folder;
  const std::string first = folder / "first", second = folder / "second", copy = folder / "copy";
  const std::string ann = add(first, {.name = "ann"}).value(), bob = add(first, {.name = "bob"}).value();
  const std::string stranger = add(second, {.name = "ann"}).value();
  std::filesystem::copy_file(first, copy);
  const TenantRef tenant = admitted(first, ann);
  EXPECT_EQ(tenant->folder.size(), std::string("tenant-").size() + 32) << tenant->folder;
  EXPECT_EQ(admitted(copy, ann)->folder, tenant->folder);
  EXPECT_NE(admitted(first, bob)->folder, tenant->folder);
  EXPECT_EQ(admitted(second, stranger)->id, tenant->id);
  EXPECT_NE(admitted(second, stranger)->folder, tenant->folder);
  // With another limit it is still the same key.
  ASSERT_TRUE(edit_key_file(first, false, [](KeyFile& file) -> Result<void> {
                EXPECT_TRUE(file.change("ann", [](Tenant& changed) { changed.weight = 3; }).has_value());
                return {};
              }).has_value());
  EXPECT_EQ(admitted(first, ann)->weight, 3);
  EXPECT_EQ(admitted(first, ann)->folder, tenant->folder);
}

TEST(KeyFile, EachOfThousandsOfKeysIsFound) {
  const Folder folder;
  const std::string path = folder / "keys";
  std::vector<std::string> given;
  ASSERT_TRUE(edit_key_file(path, true, [&](KeyFile& file) -> Result<void> {
                for (int i = 0; i < 3000; ++i) given.push_back(*file.add({.name = fmt::format("tenant {}", i)}));
                return {};
              }).has_value());
  const auto keys = Keys::create({.plain = {"also", "plain"}, .file = path});
  ASSERT_TRUE(keys.has_value());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const TenantRef tenant = keys->admit("Bearer " + given[i]);
    ASSERT_NE(tenant, nullptr);
    EXPECT_EQ(tenant->id, i + 1);
  }
  EXPECT_EQ(keys->admit("Bearer plain")->name, "api-key-2");
  EXPECT_FALSE(keys->admit("Bearer plain")->admin);
}

TEST(KeyFile, WhatIsWrongIsNamed) {
  const std::string hash = "\"hash\": \"sha256:" + std::string(32, 'a') + ":" + std::string(64, 'b') + "\"";
  const auto with = [&](const std::string& fields) {
    return fmt::format(R"({{"next_id": 9, "keys": [{{"id": 7, "name": "ann", {}{}}}]}})", hash, fields);
  };
  ASSERT_TRUE(KeyFile::parse(with(""), "f").has_value()) << KeyFile::parse(with(""), "f").error().message;
  const std::pair<std::string, const char*> cases[] = {
      {"", "is not JSON"},
      {"[]", "JSON object"},
      {"{}", "'next_id'"},
      {R"({"next_id": 1})", "'keys'"},
      {R"({"next_id": 0, "keys": []})", "'next_id'"},
      {R"({"next_id": 1, "keys": {}})", "'keys'"},
      {R"({"next_id": 1, "keys": [], "more": 1})", "'more'"},
      {R"({"next_id": 1, "keys": [3]})", "keys[0]"},
      {R"({"next_id": 9, "keys": [{"id": 7, "name": "ann"}]})", "'hash' is missing"},
      {with(R"(, "wieght": 2)"), "keys[0] (ann): there is no field 'wieght'"},
      {with(R"(, "weight": 0)"), "'weight'"},
      {with(R"(, "weight": "2")"), "'weight'"},
      {with(R"(, "weight": 1e300)"), "'weight'"},
      {with(R"(, "max_sequences": -1)"), "'max_sequences'"},
      {with(R"(, "max_sequences": 1.5)"), "'max_sequences'"},
      {with(R"(, "tokens_per_minute": 4294967296)"), "'tokens_per_minute'"},
      {with(R"(, "max_priority": 1000001)"), "'max_priority'"},
      {with(R"(, "floor_bytes": 18446744073709551615)"), "'floor_bytes'"},
      {with(R"(, "floor_bytes": 5, "cap_bytes": 4)"), "'floor_bytes' is more than 'cap_bytes'"},
      {with(R"(, "admin": 1)"), "'admin'"},
      {with(R"(, "created": 5)"), "'created'"},
      {R"({"next_id": 7, "keys": [{"id": 7, "name": "ann", )" + hash + "}]}", "'next_id'"},
      {R"({"next_id": 9, "keys": [{"id": 0, "name": "ann", )" + hash + "}]}", "'id'"},
      {R"({"next_id": 9, "keys": [{"id": 7, "name": "a\nb", )" + hash + "}]}", "'name'"},
      {R"({"next_id": 9, "keys": [{"id": 7, "name": "ann", "hash": "sha256:00:11"}]})", "'hash'"},
      {R"({"next_id": 9, "keys": [{"id": 7, "name": "ann", "hash": "plain"}]})", "'hash'"},
      {fmt::format(R"({{"next_id": 9, "keys": [{{"id": 7, "name": "a", {0}}}, {{"id": 7, "name": "b", {0}}}]}})", hash),
       "keys[1] (b): another key has the id 7"},
      {fmt::format(R"({{"next_id": 9, "keys": [{{"id": 7, "name": "a", {0}}}, {{"id": 8, "name": "a", {0}}}]}})", hash),
       "keys[1] (a): another key has this name"},
  };
  for (const auto& [text, what] : cases) {
    const auto file = KeyFile::parse(text, "the/file");
    ASSERT_FALSE(file.has_value()) << text;
    EXPECT_TRUE(file.error().message.starts_with("the/file: ")) << file.error().message;
    EXPECT_NE(file.error().message.find(what), std::string::npos) << file.error().message << "\n" << what;
  }
}

}  // namespace
}  // namespace quire::server

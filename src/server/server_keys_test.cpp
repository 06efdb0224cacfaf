// Keys of a file, as the clients of a server meet them: who is admitted, with which rights and limits, and who sees
// what.
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/key_file.h"
#include "quire/server/server_testing.h"
#include "quire/server/tenant_limits.h"

namespace quire::server {
namespace {

using ::testing::AllOf;
using testing::Client;
using ::testing::HasSubstr;
using testing::kLong;
using ::testing::Not;
using testing::Reply;
using testing::Running;
namespace json = boost::json;

constexpr const char* kShort =
    R"({"prompt": "Once upon a time there was a little bird who lived in a tall tree near the river", "max_tokens": 4})";

// A file of keys, and the keys that are in it.
class KeyHouse {
 public:
  KeyHouse() {
    std::string name = std::filesystem::temp_directory_path() / "quire-server-keys-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~KeyHouse() { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ / "keys.json"; }
  KeyHouse& add(const Tenant& tenant) {
    const auto done = edit_key_file(path(), true, [&](KeyFile& file) -> Result<void> {
      auto key = file.add(tenant);
      if (!key) return std::unexpected(key.error());
      headers_[tenant.name] = fmt::format("Authorization: Bearer {}\r\n", *key);
      return {};
    });
    EXPECT_TRUE(done.has_value()) << done.error().message;
    return *this;
  }
  void revoke(const std::string& name) {
    const auto done = edit_key_file(path(), false, [&](KeyFile& file) -> Result<void> {
      EXPECT_TRUE(file.revoke(name).has_value());
      return {};
    });
    EXPECT_TRUE(done.has_value()) << done.error().message;
  }
  std::string operator[](const std::string& name) const { return headers_.at(name); }  // the header of its requests

  ServerOptions options() {
    ServerOptions options{.key_file = path()};
    options.http.on_note = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      notes_ += line + "\n";
    };
    return options;
  }
  std::string notes() const {
    const std::lock_guard lock(mutex_);
    return notes_;
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, std::string> headers_;
  mutable std::mutex mutex_;
  std::string notes_;
};

std::int64_t cached_tokens(const Reply& reply) {
  EXPECT_EQ(reply.status, 200u) << reply.body;
  if (reply.status != 200) return -1;
  return reply.parsed().at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64();
}

TEST(ServerTenants, ARevokedKeyIsRefusedAndNobodyInheritsItsPrompts) {
  KeyHouse keys;
  keys.add({.name = "ann"}).add({.name = "bob"});
  Running server(keys.options());
  EXPECT_EQ(server.post("/v1/completions", kShort).status, 401u);
  EXPECT_EQ(cached_tokens(server.post("/v1/completions", kShort, keys["ann"])), 0);
  EXPECT_GT(cached_tokens(server.post("/v1/completions", kShort, keys["ann"])), 0);
  const std::string old = keys["ann"];
  keys.revoke("ann");
  EXPECT_EQ(server.get("/v1/models", old).status, 200u) << "the file is read when the server is told";
  server.server().reload();
  EXPECT_EQ(server.get("/v1/models", old).status, 401u);
  EXPECT_EQ(cached_tokens(server.post("/v1/completions", kShort, keys["bob"])), 0) << "bob stays bob";
  keys.add({.name = "ann"});
  server.server().reload();
  EXPECT_EQ(server.get("/v1/models", old).status, 401u);
  EXPECT_EQ(cached_tokens(server.post("/v1/completions", kShort, keys["ann"])), 0) << "a new ann is another tenant";
  EXPECT_GT(cached_tokens(server.post("/v1/completions", kShort, keys["bob"])), 0);
}

TEST(ServerTenants, RequestsOfARevokedKeyGoOn) {
  KeyHouse keys;
  keys.add({.name = "ann"}).add({.name = "bob"});
  Running server(keys.options());
  Client stream(server.port());
  stream.post("/v1/completions", fmt::format("{{{}, \"stream\": true}}", kLong), keys["ann"]);
  while (stream.bytes().find("data: ") == std::string::npos) ASSERT_TRUE(stream.receive());
  keys.revoke("ann");
  server.server().reload();
  EXPECT_EQ(server.get("/v1/models", keys["ann"]).status, 401u);
  const Reply reply = stream.read_reply();
  EXPECT_TRUE(reply.complete);
  EXPECT_THAT(reply.body, AllOf(HasSubstr("data: [DONE]"), Not(HasSubstr("\"error\""))));
}

TEST(ServerTenants, ABrokenFileLeavesTheKeysAsTheyWere) {
  KeyHouse keys;
  keys.add({.name = "ann"});
  Running server(keys.options());
  std::ofstream(keys.path()) << R"({"next_id": 2, "keys": [{"id": 1, "name": "ann", "wieght": 1}]})";
  server.server().reload();
  EXPECT_EQ(server.get("/v1/models", keys["ann"]).status, 200u);
  EXPECT_THAT(keys.notes(), AllOf(HasSubstr("the keys stay as they were: "), HasSubstr(keys.path()),
                                  HasSubstr("there is no field 'wieght'")));
  EXPECT_THAT(keys.notes(), Not(HasSubstr("again")));
}

TEST(ServerTenants, APriorityAboveTheKeysIsRefused) {
  KeyHouse keys;
  keys.add({.name = "plain"}).add({.name = "urgent", .max_priority = 5});
  Running server(keys.options());
  const auto ask = [&](const char* who, int priority) {
    return server.post("/v1/completions",
                       fmt::format(R"({{"prompt": "Hi", "max_tokens": 1, "priority": {}}})", priority), keys[who]);
  };
  EXPECT_EQ(ask("plain", 0).status, 200u);
  EXPECT_EQ(ask("plain", -3).status, 200u);
  EXPECT_EQ(ask("urgent", 5).status, 200u);
  for (const Reply& refused : {ask("plain", 1), ask("urgent", 6)}) {
    EXPECT_EQ(refused.status, 403u);
    const json::value error = refused.parsed().at("error");
    EXPECT_EQ(error.at("code").as_string(), "priority_not_allowed");
    EXPECT_EQ(error.at("param").as_string(), "priority");
  }
}

TEST(ServerTenants, WhoHasUsedUpItsTokensIsToldWhenToComeAgain) {
  KeyHouse keys;
  keys.add({.name = "slow", .tokens_per_minute = 12}).add({.name = "other"}).add({.name = "root", .admin = true});
  Running server(keys.options());
  EXPECT_EQ(server.post("/v1/completions", kShort, keys["slow"]).status, 200u);
  const Reply refused = server.post("/v1/completions", kShort, keys["slow"]);
  ASSERT_EQ(refused.status, 429u) << refused.body;
  EXPECT_EQ(refused.parsed().at("error").at("code").as_string(), "rate_limit_exceeded");
  // It has used some 24 tokens, at five seconds each. The machine may be slow, but not that slow.
  const int seconds = std::stoi(refused.header("retry-after"));
  EXPECT_GT(seconds, 1);
  EXPECT_LE(seconds, 120);
  EXPECT_EQ(server.post("/v1/completions", kShort, keys["other"]).status, 200u);
  EXPECT_THAT(server.get("/metrics", keys["root"]).body,
              AllOf(HasSubstr("quire_tenant_rate_limited_total{tenant=\"slow\"} 1\n"),
                    HasSubstr("quire_tenant_rate_limited_total{tenant=\"other\"} 0\n"),
                    HasSubstr("quire_completions_total{outcome=\"rate_limited\"} 1\n")));
  // A new limit counts at once.
  keys.revoke("slow");
  keys.add({.name = "slow"});
  server.server().reload();
  EXPECT_EQ(server.post("/v1/completions", kShort, keys["slow"]).status, 200u);
  EXPECT_EQ(server.post("/v1/completions", kShort, keys["slow"]).status, 200u);
}

TEST(ServerTenants, APlainKeySeesItsOwnSequencesAndSumsOfTheRest) {
  KeyHouse keys;
  keys.add({.name = "ann"}).add({.name = "bob"}).add({.name = "root", .admin = true});
  Running server(keys.options());
  Client watcher(server.port());
  watcher.get("/pool/events", keys["bob"]);
  Client stream(server.port());
  stream.post("/v1/completions", fmt::format("{{{}, \"stream\": true}}", kLong), keys["ann"]);
  while (stream.bytes().find("data: ") == std::string::npos) ASSERT_TRUE(stream.receive());
  const auto pool = [&](const char* who) { return server.get("/pool", keys[who]).parsed(); };
  const json::value all = pool("root"), own = pool("ann"), others = pool("bob");
  EXPECT_EQ(all.at("scope").as_string(), "all");
  EXPECT_EQ(all.at("sequences").as_array().size(), 1u);
  EXPECT_EQ(own.at("scope").as_string(), "own");
  EXPECT_EQ(own.at("sequences").as_array().size(), 1u);
  EXPECT_FALSE(own.at("groups").at(0).at("pages").as_array().empty());
  EXPECT_EQ(others.at("sequences").as_array().size(), 0u);
  EXPECT_TRUE(others.at("groups").at(0).at("pages").as_array().empty());
  EXPECT_GT(others.at("groups").at(0).at("held").as_int64(), 0) << "a sum";
  EXPECT_EQ(others.at("stats").at("running").as_int64(), 1) << "a sum";

  while (watcher.bytes().find("event: change") == std::string::npos) ASSERT_TRUE(watcher.receive());
  EXPECT_THAT(watcher.bytes(), AllOf(HasSubstr("event: pool"), Not(HasSubstr("\"request\":")),
                                     Not(HasSubstr("page_taken")), HasSubstr("\"stats\":")));
  stream.close();
}

TEST(ServerTenants, UsageIsCountedByName) {
  KeyHouse keys;
  keys.add({.name = "ann"}).add({.name = "a \"quoted\" \\ name"}).add({.name = "root", .admin = true});
  Running server(keys.options());
  const Reply reply = server.post("/v1/completions", kShort, keys["ann"]);
  ASSERT_EQ(reply.status, 200u);
  const auto prompt = reply.parsed().at("usage").at("prompt_tokens").as_int64();
  const std::string admin = server.get("/metrics", keys["root"]).body;
  EXPECT_THAT(admin, AllOf(HasSubstr("quire_tenant_requests_total{tenant=\"ann\"} 1\n"),
                           HasSubstr(fmt::format("quire_tenant_prompt_tokens_total{{tenant=\"ann\"}} {}\n", prompt)),
                           HasSubstr("quire_tenant_requests_total{tenant=\"root\"} 0\n"),
                           HasSubstr(R"(quire_tenant_requests_total{tenant="a \"quoted\" \\ name"} 0)"),
                           HasSubstr("quire_tenant_running{tenant=\"ann\"} 0\n"),
                           HasSubstr("quire_tenant_waiting{tenant=\"ann\"} 0\n")));
  const std::string own = server.get("/metrics", keys["ann"]).body;
  EXPECT_THAT(own, AllOf(HasSubstr("quire_tenant_requests_total{tenant=\"ann\"} 1\n"), Not(HasSubstr("root")),
                         Not(HasSubstr("quoted")), HasSubstr("quire_steps_total")));
  // The counts stay when the key goes, and a new key of this name is added to them.
  keys.revoke("ann");
  keys.add({.name = "ann"});
  server.server().reload();
  EXPECT_EQ(server.post("/v1/completions", kShort, keys["ann"]).status, 200u);
  EXPECT_THAT(server.get("/metrics", keys["root"]).body, HasSubstr("quire_tenant_requests_total{tenant=\"ann\"} 2\n"));
  EXPECT_THAT(server.get("/metrics", keys["ann"]).body, HasSubstr("quire_tenant_requests_total{tenant=\"ann\"} 1\n"));
}

TEST(ServerTenants, StreamsOfThePoolEndWhenKeysAreReadAgain) {
  KeyHouse keys;
  keys.add({.name = "ann"});
  Running server(keys.options());
  Client watcher(server.port());
  watcher.get("/pool/events", keys["ann"]);
  while (watcher.bytes().find("event: pool") == std::string::npos) ASSERT_TRUE(watcher.receive());
  keys.revoke("ann");
  server.server().reload();
  EXPECT_TRUE(watcher.read_reply().complete);
  EXPECT_EQ(server.get("/pool/events", keys["ann"]).status, 401u);
}

TEST(ServerTenants, WithoutKeysAreOneAndSeeEverything) {
  Running server;
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt": "Hi", "max_tokens": 1, "priority": 1000})").status, 200u);
  EXPECT_EQ(server.pool().at("scope").as_string(), "all");
  EXPECT_THAT(server.get("/metrics").body, Not(HasSubstr("quire_tenant_")));
}

TEST(ServerTenants, FloorsAndCapsAreInForce) {
  KeyHouse keys;
  keys.add({.name = "ann", .floor_bytes = 1 << 20, .cap_bytes = 2 << 20}).add({.name = "bob", .cap_bytes = 1 << 20});
  Running server(keys.options());
  EXPECT_EQ(server.post("/v1/completions", kShort, keys["ann"]).status, 200u);
  keys.revoke("bob");
  server.server().reload();
  EXPECT_EQ(server.post("/v1/completions", kShort, keys["ann"]).status, 200u);
  EXPECT_THAT(keys.notes(), Not(HasSubstr("not in force")));
}

// --- what the engine and the pool are told

TEST(TenantLimits, OnlyWhatIsNotTheDefaultIsTold) {
  const auto tenant = [](Tenant one) { return std::make_shared<const Tenant>(std::move(one)); };
  const std::vector<TenantRef> all = {tenant({.id = 1}),
                                      tenant({.id = 2, .weight = 3}),
                                      tenant({.id = 3, .max_sequences = 4}),
                                      tenant({.id = 4, .tokens_per_minute = 5}),
                                      tenant({.id = 5, .floor_bytes = 6}),
                                      tenant({.id = 6, .cap_bytes = 7})};
  const auto options = engine_options(all);
  ASSERT_EQ(options.size(), 3u);
  EXPECT_EQ(options[0].weight, 3);
  EXPECT_EQ(options[1].max_sequences, 4u);
  EXPECT_EQ(options[2].tokens_per_minute, 5u);
  EXPECT_EQ(shares_of(all),
            (std::vector<Share>{{.id = 5, .floor = 6, .cap = UINT64_MAX}, {.id = 6, .floor = 0, .cap = 7}}));
}

// A pool that takes down what it is told.
struct ShareBook {
  struct Refusal {
    std::string message() const { return "too many"; }
  };
  std::map<Namespace, Share> shares;
  std::size_t most = 2;
  std::expected<void, Refusal> set_share(Namespace id, std::uint64_t floor, std::uint64_t cap) {
    if (!shares.contains(id) && shares.size() >= most) return std::unexpected(Refusal{});
    shares[id] = {.id = id, .floor = floor, .cap = cap};
    if (shares[id] == Share{.id = id}) shares.erase(id);
    return {};
  }
};

TEST(TenantLimits, SharesOfRevokedKeysAreTakenBackFirst) {
  ShareBook pool;
  const std::vector<Share> before = {{.id = 1, .floor = 5}, {.id = 2, .cap = 6}};
  const std::vector<Share> after = {{.id = 2, .cap = 9}, {.id = 3, .floor = 7}};
  EXPECT_EQ(give_shares(pool, {}, before), "");
  EXPECT_EQ(give_shares(pool, before, after), "") << "there is room, because the old one is taken back first";
  EXPECT_EQ(pool.shares, (std::map<Namespace, Share>{{2, after[0]}, {3, after[1]}}));
  pool.most = 1;
  EXPECT_THAT(give_shares(pool, {}, std::vector<Share>{{.id = 9, .floor = 1}}), HasSubstr("too many"));
}

}  // namespace
}  // namespace quire::server

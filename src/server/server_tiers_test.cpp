// A server whose state outlives it: what clients, /metrics and /pool say about the tiers, and who shares what.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/server/completion_format.h"
#include "quire/server/key_file.h"
#include "quire/server/server_testing.h"
#include "quire/tiers/running_tier_testing.h"
#include "quire/tiers/tiers.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Reply;
using testing::Running;
using testing::text_of;
using tiers::testing::RunningTier;
using tiers::testing::SharedStore;
namespace json = boost::json;

// A hundred and some tokens, and an answer.
std::string ask(int max_tokens = 12) {
  std::string prompt = "Once upon a time";
  for (int i = 0; i < 12; ++i) prompt += " there was a little bird who lived in a tall tree near the river, and";
  return fmt::format(R"({{"prompt": "{}", "max_tokens": {}, "temperature": 0}})", prompt, max_tokens);
}

std::string bearer(const std::string& key) { return fmt::format("Authorization: Bearer {}\r\n", key); }

// A server with one tier on a store that others may use too.
class Tiered {
 public:
  explicit Tiered(SharedStore& store, ServerOptions options = {}, TierKind kind = TierKind::Disk) {
    // The server alone keeps the tiers: the device must outlive them.
    auto all = std::make_shared<tiers::Tiers>(tiers::TiersOptions{.staging_bytes = 16 << 20});
    auto tier = std::make_unique<RunningTier>(kind, store, *all);
    tier_ = tier.get();
    all->add(std::move(tier));
    engine::HostOptions host;
    host.tiers = std::move(all);
    running_ = std::make_unique<Running>(std::move(options), std::move(host));
  }
  Running* operator->() const { return running_.get(); }
  RunningTier& tier() const { return *tier_; }  // while the server runs

 private:
  RunningTier* tier_ = nullptr;
  std::unique_ptr<Running> running_;
};

json::value details(const Reply& reply) {
  EXPECT_EQ(reply.status, 200u) << reply.body;
  return reply.parsed().at("usage").at("prompt_tokens_details");
}
std::int64_t cached(const Reply& reply) { return details(reply).at("cached_tokens").as_int64(); }
std::int64_t from_tier(const Reply& reply, const char* tier) {
  const json::value found = details(reply);
  const json::value* tokens = found.at("cached_from").as_object().if_contains(tier);
  return tokens == nullptr ? 0 : tokens->as_int64();
}

// The value of a metric; -1: there is none.
double metric(const std::string& metrics, const std::string& name) {
  const std::size_t at = ("\n" + metrics).find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(metrics.substr(at + name.size() + 1));
}

TEST(ServerTiers, ClientsAreToldHowManyCanRun) {
  SharedStore store;
  Tiered server(store);
  const std::int64_t places = engine::HostOptions().max_sequences;
  EXPECT_EQ(server->get("/props").parsed().at("total_slots").as_int64(), places)
      << "what tiers bring has a place of its own";
}

TEST(ServerTiers, AServerAnswersFromWhatAnotherHasComputed) {
  SharedStore store;
  std::string text;
  {
    Tiered first(store);
    const Reply reply = first->post("/v1/completions", ask());
    text = text_of(reply);
    EXPECT_EQ(json::serialize(details(reply).at("cached_from")), R"({"pool":0})");
    const Reply again = first->post("/v1/completions", ask());
    EXPECT_EQ(from_tier(again, "pool"), cached(again)) << "it is in the pool still";
  }
  Tiered second(store);
  const Reply reply = second->post("/v1/completions", ask());
  EXPECT_EQ(text_of(reply), text);
  EXPECT_GE(from_tier(reply, "disk"), 96);
  EXPECT_EQ(from_tier(reply, "disk") + from_tier(reply, "pool"), cached(reply));
  const Reply chat =
      second->post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})");
  EXPECT_EQ(from_tier(chat, "pool"), cached(chat)) << "chats say it too";

  const std::string metrics = second->get("/metrics").body;
  EXPECT_EQ(metric(metrics, R"(quire_tier_working{tier="disk"})"), 1);
  EXPECT_GE(metric(metrics, R"(quire_tier_hits_total{tier="disk"})"), 6);
  EXPECT_GE(metric(metrics, R"(quire_tier_objects{tier="disk"})"), 6);
  EXPECT_GE(metric(metrics, R"(quire_tier_read_bytes_total{tier="disk"})"), 6 * 1024);
  EXPECT_GE(metric(metrics, R"(quire_tier_tokens_total{tier="disk"})"), 96);
  EXPECT_EQ(metric(metrics, R"(quire_tier_damaged_total{tier="disk",reason="wrong_checksum"})"), 0);
  EXPECT_EQ(metric(metrics, "quire_tiers_waits_total"), 1);
  EXPECT_GE(metric(metrics, "quire_tiers_promoted_total"), 6);
  EXPECT_EQ(metric(metrics, "quire_tiers_staging_capacity_bytes") > 0, true);

  const json::value stats = second->pool().at("stats");
  const json::value& tier = stats.at("tiers").at(0);
  EXPECT_EQ(tier.at("kind"), "disk");
  EXPECT_EQ(tier.at("working"), true);
  EXPECT_GE(tier.at("hits").as_int64(), 6);
  EXPECT_GE(tier.at("tokens").as_int64(), 96);
  EXPECT_EQ(stats.at("tier_waits").as_int64(), 1);
}

TEST(ServerTiers, AServerWithoutTiersSaysNothingAboutThem) {
  Running server;
  EXPECT_EQ(json::serialize(details(server.post("/v1/completions", ask(1))).at("cached_from")), R"({"pool":0})");
  EXPECT_THAT(server.get("/metrics").body, Not(HasSubstr("quire_tier")));
  EXPECT_FALSE(server.pool().at("stats").as_object().contains("tiers"));
}

TEST(ServerTiers, EveryMetricIsOnThePageOfOperations) {
  SharedStore store;
  Tiered server(store);
  std::ifstream file(QUIRE_SOURCE_DIR "/docs/operations.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::string metrics = server->get("/metrics").body;
  constexpr std::string_view kType = "# TYPE ";
  int seen = 0;
  for (std::size_t at = 0; (at = metrics.find(kType, at)) != std::string::npos;) {
    at += kType.size();
    const std::string name = metrics.substr(at, metrics.find(' ', at) - at);
    if (!name.starts_with("quire_tier")) continue;
    ++seen;
    EXPECT_THAT(page, HasSubstr("`" + name)) << "docs/operations.md";
  }
  EXPECT_GE(seen, 25);
}

TEST(ServerTiers, OneKeyNeverGetsWhatAnotherHasStored) {
  SharedStore store;
  const ServerOptions options{.keys = {"one", "two"}};
  {
    Tiered first(store, options);
    EXPECT_EQ(cached(first->post("/v1/completions", ask(), bearer("one"))), 0);
  }
  Tiered second(store, options);
  const Reply other = second->post("/v1/completions", ask(), bearer("two"));
  EXPECT_EQ(cached(other), 0);
  EXPECT_EQ(details(other).at("miss_reason"), "never seen");
  Tiered third(store, options);  // a server that has not measured yet what computing costs fetches what is there
  EXPECT_GE(from_tier(third->post("/v1/completions", ask(), bearer("one")), "disk"), 96);
}

TEST(ServerTiers, APlainKeyFindsItsPromptsOnEveryServerThatHasIt) {
  SharedStore store;
  {
    Tiered first(store, {.keys = {"one"}});
    EXPECT_EQ(cached(first->post("/v1/completions", ask(), bearer("one"))), 0);
  }
  {
    Tiered open(store);
    EXPECT_EQ(cached(open->post("/v1/completions", ask())), 0) << "a server without keys is another tenant";
  }
  Tiered second(store, {.keys = {"two", "one"}}, TierKind::Shared);
  EXPECT_GE(from_tier(second->post("/v1/completions", ask(), bearer("one")), "shared"), 96);
}

TEST(ServerTiers, FilesOfKeysWithTheSameIdsShareNothingAndACopySharesEverything) {
  std::string name = std::filesystem::temp_directory_path() / "quire-server-tiers-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name.data());
  const auto make = [&](const char* file) {
    std::string key;
    const auto done = edit_key_file(folder / file, true, [&](KeyFile& keys) -> Result<void> {
      key = keys.add({.name = "ann"}).value();
      EXPECT_EQ(keys.keys().at(0).tenant.id, 1u);
      return {};
    });
    EXPECT_TRUE(done.has_value());
    return key;
  };
  const std::string key = make("first"), stranger = make("second");
  std::filesystem::copy_file(folder / "first", folder / "copy");

  SharedStore store;
  std::string text;
  {
    Tiered server(store, {.key_file = folder / "first"});
    text = text_of(server->post("/v1/completions", ask(), bearer(key)));
  }
  {
    Tiered server(store, {.key_file = folder / "second"});
    EXPECT_EQ(cached(server->post("/v1/completions", ask(), bearer(stranger))), 0) << "the same id, another file";
  }
  {
    Tiered server(store, {.key_file = folder / "copy"});
    const Reply reply = server->post("/v1/completions", ask(), bearer(key));
    EXPECT_GE(from_tier(reply, "disk"), 96);
    EXPECT_EQ(text_of(reply), text);
  }
  std::filesystem::remove_all(folder);
}

TEST(ServerTiers, AKeyThatIsAddedWhileTheServerRunsHasItsNameInTheTiers) {
  std::string name = std::filesystem::temp_directory_path() / "quire-server-tiers-XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name.data());
  const std::string file = folder / "keys";
  std::string key;
  const auto add = [&](const char* who) {
    const auto done = edit_key_file(file, true, [&](KeyFile& keys) -> Result<void> {
      key = keys.add({.name = who}).value();
      return {};
    });
    EXPECT_TRUE(done.has_value());
  };
  add("ann");
  SharedStore store;
  {
    Tiered server(store, {.key_file = file});
    add("bob");
    server->server().reload();
    EXPECT_TRUE(testing::eventually([&] { return server->get("/v1/models", bearer(key)).status == 200; }));
    EXPECT_EQ(cached(server->post("/v1/completions", ask(), bearer(key))), 0);
  }
  Tiered server(store, {.key_file = file});
  EXPECT_GE(from_tier(server->post("/v1/completions", ask(), bearer(key)), "disk"), 96);
  std::filesystem::remove_all(folder);
}

TEST(ServerTiers, ATierThatDoesNotWorkSaysWhyToThoseWhoMaySeeAll) {
  SharedStore store;
  {
    Tiered server(store);
    server.tier().set_down(true);
    text_of(server->post("/v1/completions", ask(1)));
    const json::value stats = server->pool().at("stats");
    EXPECT_EQ(stats.at("tiers").at(0).at("working"), false);
    EXPECT_EQ(stats.at("tiers").at(0).at("problem"), "the memory is down");
    EXPECT_EQ(metric(server->get("/metrics").body, R"(quire_tier_working{tier="disk"})"), 0);
  }
  Tiered server(store, {.keys = {"one", "two"}});
  server.tier().set_down(true);
  const json::value tier = server->get("/pool", bearer("one")).parsed().at("stats").at("tiers").at(0);
  EXPECT_EQ(tier.at("working"), false);
  EXPECT_FALSE(tier.as_object().contains("problem")) << "it may name a path or a host";
  testing::Client watcher(server->port());
  watcher.get("/pool/events", bearer("one"));
  text_of(server->post("/v1/completions", ask(1), bearer("one")));
  const auto told = [&] {
    return watcher.bytes().find("\"failed\":") != std::string::npos &&
           watcher.bytes().find("event: change") != std::string::npos;
  };
  while (!told()) ASSERT_TRUE(watcher.receive()) << watcher.bytes();
  EXPECT_THAT(watcher.bytes(), Not(HasSubstr("the memory is down")));
}

TEST(UsageSum, SaysWhereTheReusedTokensCameFrom) {
  UsageSum usage;
  usage.add({.prompt_tokens = 100, .hit = {.tokens = 90}, .from = {0, 64, 16}}, "complete");
  EXPECT_EQ(from_json(usage.cached_tokens, usage.from), R"({"pool":10,"disk":64,"shared":16})");
  // The last block was brought, but its last token is computed.
  usage.add({.prompt_tokens = 32, .hit = {.tokens = 31}, .from = {0, 32, 0}}, "complete");
  EXPECT_EQ(from_json(usage.cached_tokens, usage.from), R"({"pool":10,"disk":95,"shared":16})");
  EXPECT_THAT(to_json(usage), HasSubstr(R"("cached_tokens":121,"cached_from":{"pool":10,"disk":95,"shared":16},)"));
}

}  // namespace
}  // namespace quire::server

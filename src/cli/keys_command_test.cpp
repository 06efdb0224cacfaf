// `quire keys`: the whole life of a key in a file.
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/cli/program_testing.h"
#include "quire/server/keys.h"

namespace quire::cli {
namespace {

using ::testing::AllOf;
using testing::call;
using testing::expect_refusal;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryFolder;

class KeysCommand : public ::testing::Test {
 protected:
  testing::Outcome keys(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "keys");
    arguments.insert(arguments.end(), {"--keys", path_});
    return call(arguments);
  }
  server::TenantRef admitted(std::string key) const {
    while (!key.empty() && key.back() == '\n') key.pop_back();
    const auto all = server::Keys::create({.file = path_});
    EXPECT_TRUE(all.has_value());
    return all ? all->admit("Bearer " + key) : nullptr;
  }
  const TemporaryFolder folder_;
  const std::string path_ = folder_ / "keys.json";
};

TEST_F(KeysCommand, AddPrintsTheKeyAndNothingElse) {
  const auto added = keys({"add", "ann", "--weight", "2.5", "--max-sequences", "3", "--tokens-per-minute", "6000",
                           "--max-priority", "4", "--floor", "64M", "--cap", "1G", "--admin"});
  ASSERT_EQ(added.exit_code, kSuccess) << added.err;
  EXPECT_THAT(added.err, AllOf(HasSubstr("ann has the id 1"), Not(HasSubstr(added.out.substr(0, 20)))));
  const auto tenant = admitted(added.out);
  ASSERT_NE(tenant, nullptr);
  EXPECT_EQ(*tenant, (server::Tenant{.id = 1,
                                     .name = "ann",
                                     .weight = 2.5,
                                     .max_sequences = 3,
                                     .tokens_per_minute = 6000,
                                     .max_priority = 4,
                                     .floor_bytes = 64 << 20,
                                     .cap_bytes = 1 << 30,
                                     .admin = true,
                                     .folder = tenant->folder}));
}

TEST_F(KeysCommand, ListSetAndRevoke) {
  const std::string ann = keys({"add", "ann"}).out, bob = keys({"add", "bob", "--floor", "8M"}).out;
  const auto list = keys({"list"});
  EXPECT_EQ(list.exit_code, kSuccess);
  EXPECT_THAT(list.out, AllOf(HasSubstr("ID  NAME"), HasSubstr("ann"), HasSubstr("8.0 MiB"), Not(HasSubstr("sha256"))));
  EXPECT_EQ(keys({"set", "bob", "--weight", "3", "--floor", "0", "--admin"}).exit_code, kSuccess);
  EXPECT_EQ(admitted(bob)->weight, 3);
  EXPECT_EQ(admitted(bob)->floor_bytes, 0u);
  EXPECT_TRUE(admitted(bob)->admin);
  EXPECT_EQ(keys({"set", "2", "--no-admin"}).exit_code, kSuccess);
  EXPECT_FALSE(admitted(bob)->admin);
  EXPECT_EQ(admitted(bob)->weight, 3) << "what is not given stays";
  const auto revoked = keys({"revoke", "ann"});
  EXPECT_EQ(revoked.exit_code, kSuccess);
  EXPECT_THAT(revoked.out, HasSubstr("ann (id 1) is revoked"));
  EXPECT_EQ(admitted(ann), nullptr);
  EXPECT_NE(admitted(bob), nullptr);
  EXPECT_THAT(keys({"add", "ann"}).out, ::testing::StartsWith("quire-3-"));
}

TEST_F(KeysCommand, JsonHasTheSame) {
  const auto added = boost::json::parse(keys({"add", "ann", "--json"}).out);
  EXPECT_EQ(added.at("id").as_int64(), 1);
  EXPECT_NE(admitted(std::string(added.at("key").as_string())), nullptr);
  const auto list = boost::json::parse(keys({"list", "--json"}).out);
  EXPECT_EQ(list.at("keys").at(0).at("name").as_string(), "ann");
  EXPECT_EQ(list.at("keys").at(0).at("weight").as_int64(), 1);
  EXPECT_FALSE(list.at("keys").at(0).as_object().contains("hash"));
  EXPECT_EQ(boost::json::parse(keys({"revoke", "1", "--json"}).out).at("name").as_string(), "ann");
}

TEST_F(KeysCommand, RefusesWhatCannotBeMeant) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"add"},
                                             {"give", "ann"},
                                             {"list", "ann"},
                                             {"set", "ann"},
                                             {"list", "--admin"},
                                             {"add", "ann", "--admin", "--no-admin"},
                                             {"revoke", "ann", "--weight", "2"},
                                             {"add", "ann", "--weight", "0"},
                                             {"add", "ann", "--weight", "nan"},
                                             {"add", "ann", "--cap", "much"},
                                             {"add", "ann", "--max-priority", "2000000"}}) {
    expect_refusal(keys(wrong), kUsage);
  }
  expect_refusal(call({"keys", "list"}), kUsage);
  expect_refusal(keys({"list"}));
  expect_refusal(keys({"add", "12"}));
  ASSERT_EQ(keys({"add", "ann"}).exit_code, kSuccess);
  expect_refusal(keys({"add", "ann"}));
  expect_refusal(keys({"revoke", "bob"}));
  expect_refusal(keys({"add", "bob", "--floor", "2M", "--cap", "1M"}));
}

TEST_F(KeysCommand, HelpSaysWhatThereIs) {
  const auto help = call({"keys", "--help"});
  EXPECT_EQ(help.exit_code, kSuccess);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Usage: quire keys add|list|set|revoke"), HasSubstr("--tokens-per-minute N"),
                              HasSubstr("SIGHUP")));
}

}  // namespace
}  // namespace quire::cli

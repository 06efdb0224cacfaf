#include "quire/cli/option_sources.h"

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/cli/program_testing.h"

namespace quire::cli {
namespace {

using testing::call;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::vector<OptionText> some_options() {
  const auto option = [](const char* short_name, const char* long_name, const char* value, bool repeats = false) {
    return OptionText{short_name, long_name, "", value, "", repeats};
  };
  return {option("-m", "--model", "FILE"),
          option("", "--port", "N"),
          option("", "--max-body", "SIZE"),
          option("", "--no-prefix-cache", ""),
          option("", "--api-key", "KEY", true),
          option("", "--config", "FILE"),
          option("", "--help", "")};
}

using Variables = std::map<std::string, std::string>;

Result<OptionSources> sources(const std::vector<std::string>& given, const Variables& variables) {
  return other_sources(some_options(), given, [&](const std::string& name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}
std::vector<std::string> added(const std::vector<std::string>& given, const Variables& variables) {
  const auto found = sources(given, variables);
  EXPECT_TRUE(found) << found.error().message;
  return found ? found->arguments : std::vector<std::string>();
}
std::string refusal(const Variables& variables) {
  const auto found = sources({}, variables);
  return found ? "" : found.error().message;
}

TEST(OptionSources, TheCommandLineGoesBeforeVariablesAndVariablesBeforeTheFile) {
  const TemporaryFolder folder;
  testing::write_file(folder / "c.toml", "port = 3\nmax-body = 3M\nmodel = \"three.gguf\"\n");
  const Variables variables = {{"QUIRE_PORT", "2"}, {"QUIRE_MAX_BODY", "2M"}, {"QUIRE_CONFIG", folder / "c.toml"}};
  EXPECT_THAT(added({"--port", "1"}, variables), ElementsAre("--max-body=2M", "--model=three.gguf"));
  EXPECT_THAT(added({"--port=1", "-mone.gguf"}, variables), ElementsAre("--max-body=2M"));
  EXPECT_THAT(added({}, {{"QUIRE_CONFIG", folder / "c.toml"}}),
              ElementsAre("--port=3", "--max-body=3M", "--model=three.gguf"));
  EXPECT_THAT(added({"--config", folder / "c.toml", "-m", "x", "--max-body", "1"}, {{"QUIRE_CONFIG", "/no/such/file"}}),
              ElementsAre("--port=3"))
      << "the flag --config goes before its variable";
  EXPECT_THAT(added({}, {{"QUIRE_PORT", ""}}), ElementsAre()) << "an empty variable is none";
}

TEST(OptionSources, FilesHaveWordsTextsListsAndComments) {
  const TemporaryFolder folder;
  testing::write_file(folder / "c.toml",
                      "# a comment\n\n[serve]  # this one\nport = 8081 # behind\nmodel = 'a # b.gguf'\r\n"
                      "api_key = [\"one, two\", three,]\nno-prefix-cache = true\nmax-body=\"1\\\\\\\"M\"\n");
  const auto found = sources({"--config=" + folder / "c.toml"}, {});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_THAT(found->arguments, ElementsAre("--port=8081", "--model=a # b.gguf", "--api-key=one, two",
                                            "--api-key=three", "--no-prefix-cache", "--max-body=1\\\"M"));
  EXPECT_EQ(found->origins.at("--port"), folder / "c.toml" + ":4: port");
}

TEST(OptionSources, VariablesMayHoldFlagsAndLists) {
  EXPECT_THAT(added({}, {{"QUIRE_API_KEY", "one, two,"}}), ElementsAre("--api-key=one", "--api-key=two"));
  EXPECT_THAT(added({}, {{"QUIRE_NO_PREFIX_CACHE", "On"}}), ElementsAre("--no-prefix-cache"));
  EXPECT_THAT(added({}, {{"QUIRE_NO_PREFIX_CACHE", "0"}}), ElementsAre());
  EXPECT_EQ(refusal({{"QUIRE_NO_PREFIX_CACHE", "maybe"}}),
            "QUIRE_NO_PREFIX_CACHE: \"maybe\" is neither true nor false");
  EXPECT_THAT(added({}, {{"QUIRE_HELP", "1"}}), ElementsAre());
  EXPECT_EQ(variable_of("--max-body"), "QUIRE_MAX_BODY");
}

TEST(OptionSources, TheAddressOfAServiceNamedQuireIsNoPort) {
  const TemporaryFolder folder;
  testing::write_file(folder / "c.toml", "port = 3\n");
  EXPECT_THAT(added({}, {{"QUIRE_PORT", "tcp://10.0.0.1:8080"}}), ElementsAre());
  EXPECT_THAT(added({}, {{"QUIRE_PORT", "tcp://10.0.0.1:8080"}, {"QUIRE_CONFIG", folder / "c.toml"}}),
              ElementsAre("--port=3"))
      << "the file's port holds";
  EXPECT_THAT(added({}, {{"QUIRE_PORT", "http"}, {"QUIRE_MODEL", "tcp://x"}}),
              ElementsAre("--model=tcp://x", "--port=http"))
      << "anything else is read, and checked, as the option";
}

TEST(OptionSources, WhatIsWrongInAFileIsNamedWithItsLineAndKey) {
  const TemporaryFolder folder;
  const std::string path = folder / "c.toml";
  const auto in_file = [&](const std::string& text) {
    testing::write_file(path, text);
    return refusal({{"QUIRE_CONFIG", path}});
  };
  EXPECT_EQ(in_file("\nprot = 3\n"), path + ":2: there is no option \"prot\" (see 'quire serve --help')");
  EXPECT_EQ(in_file("help = true"), path + ":1: there is no option \"help\" (see 'quire serve --help')");
  EXPECT_EQ(in_file("port 3"), path + ":1: \"port 3\" is not 'key = value'");
  EXPECT_EQ(in_file("port ="), path + ":1: port: the value is missing");
  EXPECT_EQ(in_file("port = 1\nport = 2"), path + ":2: port was set in line 1 already");
  EXPECT_EQ(in_file("port = \"3"), path + ":1: port: the text has no closing quote");
  EXPECT_EQ(in_file("port = \"3\" 4"), path + ":1: port: there is more after the value");
  EXPECT_EQ(in_file("api-key = [a, b"), path + ":1: api-key: the list is not closed");
  EXPECT_EQ(in_file("port = [1, 2]"), path + ":1: port: takes one value, not a list");
  EXPECT_EQ(in_file("[chat]"), path + ":1: there is no section \"[chat]\"; only [serve] is known");
  EXPECT_EQ(in_file("no-prefix-cache = 7"), path + ":1: no-prefix-cache: \"7\" is neither true nor false");
  EXPECT_THAT(refusal({{"QUIRE_CONFIG", "/no/such/file"}}), HasSubstr("/no/such/file"));
}

TEST(OptionSources, TheDefaultFileIsReadIfItIsThere) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / ".config/quire");
  std::filesystem::create_directories(folder / "xdg/quire");
  testing::write_file(folder / ".config/quire/config.toml", "port = 1");
  EXPECT_THAT(added({}, {{"HOME", folder / ""}}), ElementsAre("--port=1"));
  EXPECT_THAT(added({}, {{"HOME", folder / ""}, {"XDG_CONFIG_HOME", folder / "xdg"}}), ElementsAre());
  testing::write_file(folder / "xdg/quire/config.toml", "port = 2");
  EXPECT_THAT(added({}, {{"HOME", folder / ""}, {"XDG_CONFIG_HOME", folder / "xdg"}}), ElementsAre("--port=2"));
  EXPECT_THAT(added({}, {}), ElementsAre());
}

// --- the whole command line

TEST(OptionSources, TheHelpOfServeNamesTheVariableOfEveryOption) {
  const std::string help = call({"serve", "--help"}).out;
  for (const char* variable : {"[QUIRE_MODEL]", "[QUIRE_PORT]", "[QUIRE_MAX_BODY]", "[QUIRE_NO_PREFIX_CACHE]",
                               "[QUIRE_API_KEY]", "[QUIRE_KV_TYPE]", "[QUIRE_TLS_CERT]", "[QUIRE_CONFIG]"}) {
    EXPECT_THAT(help, HasSubstr(variable));
  }
  std::size_t options = 0, variables = 0;
  for (std::size_t at = 0; (at = help.find("\n  -", at)) != std::string::npos; ++at) ++options;
  for (std::size_t at = 0; (at = help.find("[QUIRE_", at)) != std::string::npos; ++at) ++variables;
  EXPECT_EQ(variables + 1, options) << "all but --help";
  for (std::size_t from = 0; from < help.size();) {
    const std::size_t end = help.find('\n', from);
    EXPECT_LE(end - from, 100u) << help.substr(from, end - from);
    from = end + 1;
  }
}

TEST(OptionSources, AWrongValueIsReportedWithItsOrigin) {
  const TemporaryFolder folder;
  const std::string path = folder / "c.toml";
  testing::write_file(path, "\nport = many\n");
  const auto file = call({"serve", "--config", path});
  testing::expect_refusal(file, kUsage);
  EXPECT_THAT(file.err, HasSubstr(path + ":2: port: \"many\" is not a whole number from 0 to 65535"));
  ::setenv("QUIRE_KV_TYPE", "f7", 1);
  const auto variable = call({"serve", "--config", "/dev/null"});
  EXPECT_THAT(variable.err, HasSubstr("quire: QUIRE_KV_TYPE: \"f7\" is not one of"));
  EXPECT_EQ(call({"serve", "--help"}).exit_code, kSuccess) << "help needs no valid variables";
  ::unsetenv("QUIRE_KV_TYPE");
  testing::write_file(path, "no-prefix-cache = yes\nmodel = /no/such/model\n");
  EXPECT_THAT(call({"serve", "--config", path}).err, HasSubstr("/no/such/model")) << "a flag in a file is taken";
  testing::write_file(path, "tls-cert = x.pem\n");
  EXPECT_THAT(call({"serve", "--config", path}).err, HasSubstr("(--tls-cert is from " + path + ":1: tls-cert)"));
}

}  // namespace
}  // namespace quire::cli

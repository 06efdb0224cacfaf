// `quire session`, called in this process.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/cli/session.h"
#include "quire/server/server_testing.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using testing::call;
using testing::demo_model;
using testing::expect_refusal;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;
using testing::write_file;

constexpr const char* kText =
    "Once upon a time there was a grumpy boy named Oscar. Oscar lived near the harbour. Oscar wanted to bring plums to "
    "a";

class SessionCommand : public ::testing::Test {
 protected:
  SessionCommand() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-session-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~SessionCommand() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name = "s.qs") const { return folder_ + "/" + name; }
  static std::string text(const std::vector<std::string>& arguments) {
    const Outcome ran = call(arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.out;
  }

  std::string folder_;
};

TEST_F(SessionCommand, LoadGoesOnAsRunDoesAndComputesAlmostNothing) {
  for (const char* model : {"llama", "hybrid", "mamba2"}) {
    const std::string path = demo_model(model);
    const Outcome saved = call({"session", "save", file(), kText, "-m", path, "--ctx", "256"});
    ASSERT_EQ(saved.exit_code, 0) << saved.err;
    for (const std::vector<std::string>& how : {std::vector<std::string>{"--temp", "0"},
                                                {"--seed", "7", "--temp", "1.2"},
                                                {"--regex", "[a-z ]{9}", "-s", "3"}}) {
      std::vector<std::string> run = {"run", "-m", path, "-p", kText, "-n", "24"};
      std::vector<std::string> load = {"session", "load", file(), "-m", path, "-n", "24"};
      run.insert(run.end(), how.begin(), how.end());
      load.insert(load.end(), how.begin(), how.end());
      EXPECT_EQ(text(load), text(run)) << model;
      load.emplace_back("--json");
      const json::value answer = json::parse(text(load));
      EXPECT_LT(answer.at("prefill").at("tokens").to_number<int>(), 17) << model;
    }
  }
}

TEST_F(SessionCommand, InfoShowsTheSectionsAndNeedsNoModel) {
  write_file(file("story.txt"), std::string(kText) + "\n");
  const json::value saved = json::parse(text({"session", "save", file(), "-f", file("story.txt"), "--json"}));
  const std::string shown = text({"session", "info", file()});
  EXPECT_THAT(shown, HasSubstr("version     1\n"));
  EXPECT_THAT(shown, HasSubstr("all checksums right\n"));
  EXPECT_THAT(shown, HasSubstr("pages of group 0"));
  const json::value info = json::parse(text({"session", "info", file(), "--json"}));
  EXPECT_EQ(info.at("tokens"), saved.at("tokens"));
  EXPECT_EQ(info.at("computed"), saved.at("computed"));
  EXPECT_EQ(info.at("bytes").to_number<std::uint64_t>(), std::filesystem::file_size(file()));
  EXPECT_EQ(info.at("sections").at(0).at("what"), "tokens");
}

TEST_F(SessionCommand, OfAServersFileLoadSaysWhatItDoesNotGoOnWith) {
  server::ServerOptions options;
  options.session_dir = folder_;
  const server::testing::Running server(options, {.context = 512});
  const auto post = [&](const std::string& path, const std::string& body) {
    const auto reply = server.post("/v1/sessions" + path, body);
    EXPECT_LT(reply.status, 300u) << reply.body;
    return reply.parsed();
  };
  const auto saved = [&](const std::string& name, const std::string& body, const std::string& generate) {
    const json::value session = post("", body);
    const std::string id = "/" + std::string(session.at("id").as_string());
    if (!generate.empty()) post(id + "/generate", generate);
    post(id + "/save", R"({"name": ")" + name + R"("})");
    return session.at("tokens").as_int64();
  };
  const std::string prompt = fmt::format(R"({{"prompt": "{}"}})", kText);
  const std::vector<std::string> how = {"-m", demo_model("llama"), "-n", "6", "--temp", "0"};
  const auto load = [&](const std::string& name) {
    std::vector<std::string> words = {"session", "load", file(name + ".qsession")};
    words.insert(words.end(), how.begin(), how.end());
    Outcome loaded = call(words);
    EXPECT_EQ(loaded.exit_code, 0) << loaded.err;
    return loaded;
  };
  const auto info = [&](const std::string& name) {
    return json::parse(text({"session", "info", file(name + ".qsession"), "--json"}));
  };

  // Nothing is left out: the text is that of the command line's own file.
  saved("plain", prompt, "");
  ASSERT_EQ(call({"session", "save", file("own.qsession"), kText, "-m", demo_model("llama")}).exit_code, 0);
  const Outcome plain = load("plain");
  EXPECT_EQ(plain.out, load("own").out);
  EXPECT_THAT(plain.err, Not(AnyOf(HasSubstr("of an answer"), HasSubstr("options"))));
  EXPECT_THAT(text({"session", "info", file("plain.qsession")}), Not(AnyOf(HasSubstr("answer"), HasSubstr("options"))));
  EXPECT_TRUE(info("plain").at("answer").is_null());
  EXPECT_TRUE(info("plain").at("options").is_null());

  const std::int64_t begin = saved("middle", prompt,
                                   R"({"max_tokens": 5, "ignore_eos": true, "seed": 8, "presence_penalty": 1,
                                       "guided_regex": "[a-z ]{90}"})");
  const json::value answer = info("middle").at("answer");
  EXPECT_EQ(answer.at("begin"), begin);
  EXPECT_EQ(answer.at("options").at("seed"), 8);
  EXPECT_THAT(text({"session", "info", file("middle.qsession")}),
              AllOf(HasSubstr("answer      not ended after 5 tokens; a server continues it with the options {"),
                    HasSubstr("\"seed\":8"), HasSubstr("}, session load goes on without them\n")));
  const Outcome middle = load("middle");
  EXPECT_THAT(middle.err,
              HasSubstr(file("middle.qsession") + " was saved in the middle of an answer. The text goes on after its"));
  EXPECT_THAT(middle.err, HasSubstr(R"("seed":8)"));
  EXPECT_THAT(middle.err, HasSubstr(R"("presence_penalty":1)"));
  EXPECT_THAT(middle.err, HasSubstr(R"("guided_regex":"[a-z ]{90}")"));

  saved("defaults", fmt::format(R"({{"prompt": "{}", "options": {{"temperature": 0.5}}}})", kText), "");
  EXPECT_THAT(text({"session", "info", file("defaults.qsession")}), HasSubstr("options     {\"temperature\":5E-1}\n"));
  EXPECT_THAT(load("defaults").err,
              HasSubstr(file("defaults.qsession") + " has default options for answers, which load does not use: {"));
}

TEST_F(SessionCommand, AFileThatIsDamagedOrOfAnotherModelIsRefusedByName) {
  ASSERT_EQ(call({"session", "save", file(), kText}).exit_code, 0);
  std::string bytes = read_file(file());
  bytes[bytes.size() / 2] ^= 1;
  write_file(file("bad"), bytes);
  for (const char* action : {"info", "load"}) {
    const Outcome bad = call({"session", action, file("bad")});
    expect_refusal(bad);
    EXPECT_THAT(bad.err, HasSubstr(file("bad") + " is damaged: the checksum of its "));
    const Outcome none = call({"session", action, file("none")});
    expect_refusal(none);
    EXPECT_THAT(none.err, HasSubstr("none cannot be opened: No such file or directory"));
  }
  const Outcome other = call({"session", "load", file(), "--kv-type", "f32"});
  expect_refusal(other);
  EXPECT_THAT(other.err, HasSubstr("was made with another "));
  EXPECT_THAT(other.err, HasSubstr(", and this one's "));
}

TEST_F(SessionCommand, ATextBelongsToSaveOnly) {
  EXPECT_EQ(call({"session", "save", file()}).exit_code, 2);
  EXPECT_EQ(call({"session", "info", file(), "text"}).exit_code, 2);
  EXPECT_EQ(call({"session", "keep", file()}).exit_code, 2);
  const Outcome nowhere = call({"session", "save", file("no/folder/here"), kText});
  expect_refusal(nowhere);
  EXPECT_THAT(nowhere.err, HasSubstr("cannot be written: No such file or directory"));
}

}  // namespace
}  // namespace quire::cli

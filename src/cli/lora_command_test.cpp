// Adapters on the command line: --lora and --adapter, called in this process.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/model/adapter_testing.h"

namespace quire::cli {
namespace {

using testing::call;
using testing::demo_model;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::Outcome;

constexpr const char* kText = "Once upon a time there was a grumpy boy named Oscar. Oscar lived near the harbour";

class LoraCommand : public ::testing::Test {
 protected:
  LoraCommand() {
    std::string name = (std::filesystem::temp_directory_path() / "quire-lora-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    const auto model = gguf::File::open(demo_model("llama"));
    EXPECT_TRUE(model.has_value());
    for (const std::uint32_t i : {0u, 1u}) {
      const auto written = model::testing::adapter_for(*model, 4, 3 + i, 0, {"attn"}, 1.0F).writer().write(file(i));
      EXPECT_TRUE(written.has_value()) << written.error().message;
    }
  }
  ~LoraCommand() override { std::filesystem::remove_all(folder_); }
  std::string file(std::uint32_t i) const { return folder_ + "/" + std::to_string(i) + ".gguf"; }
  std::string session() const { return folder_ + "/s.qs"; }
  static std::vector<std::string> run_of(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"run", "-m", demo_model("llama"), "-p", kText, "-n", "16", "--temp", "0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string text(const std::vector<std::string>& arguments) {
    const Outcome ran = call(arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.out;
  }

  std::string folder_;
};

TEST_F(LoraCommand, RunAnswersWithTheAdapterThatIsChosen) {
  const std::string none = text(run_of({})), a = text(run_of({"--lora", "a=" + file(0)}));
  EXPECT_NE(none, a);
  const std::vector<std::string> both = {"--lora", "a=" + file(0), "--lora", "b=" + file(1)};
  auto choose = [&](const std::string& name) {
    std::vector<std::string> all = both;
    all.insert(all.end(), {"--adapter", name});
    return all;
  };
  EXPECT_EQ(text(run_of(choose("a"))), a);
  EXPECT_NE(text(run_of(choose("b"))), a);
  EXPECT_EQ(text(run_of({"--lora", "a=" + file(0) + ":0"})), none) << "a scale of 0";
  expect_refusal(call(run_of(both)));
  EXPECT_THAT(call(run_of(both)).err, HasSubstr("2 adapters are given: choose one with --adapter NAME"));
  EXPECT_THAT(call(run_of(choose("c"))).err, HasSubstr("--adapter: \"c\" is not the name of a --lora"));
}

TEST_F(LoraCommand, AModelThatDraftsHasNoAdapter) {
  const std::string a = text(run_of({"--lora", "a=" + file(0)}));
  EXPECT_EQ(text(run_of({"--lora", "a=" + file(0), "--draft", demo_model("mamba2")})), a);
  EXPECT_EQ(text(run_of({"--lora", "a=" + file(0), "--speculate", "off"})), a);
}

TEST_F(LoraCommand, BadAdaptersAreRefusedInOneLine) {
  const Outcome model = call(run_of({"--lora", "a=" + demo_model("llama")}));
  expect_refusal(model);
  EXPECT_THAT(model.err, HasSubstr("is a model and not an adapter"));
  const Outcome nothing = call(run_of({"--lora", "a=" + folder_ + "/none.gguf"}));
  expect_refusal(nothing);
  const Outcome other = call({"run", "-m", demo_model("mamba2"), "-p", "x", "--lora", "a=" + file(0)});
  expect_refusal(other);
  EXPECT_THAT(other.err, HasSubstr("is an adapter for models of architecture 'llama', and the model has 'mamba2'"));
  const Outcome adapter = call({"run", "-m", file(0), "-p", "x"});
  expect_refusal(adapter);
  EXPECT_THAT(adapter.err, HasSubstr("is an adapter and not a model"));
  EXPECT_THAT(call({"info", file(0)}).err, HasSubstr("is an adapter and not a model"));
  EXPECT_THAT(call(run_of({"--lora", "a.gguf"})).err, HasSubstr("an adapter is given as NAME=FILE"));
}

TEST_F(LoraCommand, ASessionFileNamesItsAdapter) {
  const std::string model = demo_model("llama"), lora = "a=" + file(0);
  ASSERT_EQ(call({"session", "save", session(), kText, "-m", model, "--lora", lora}).exit_code, 0);
  EXPECT_THAT(text({"session", "info", session()}), HasSubstr("adapter     {\"name\":\"a\""));
  const std::vector<std::string> load = {"session", "load", session(), "-m", model, "-n", "16", "--temp", "0"};
  const auto with = [&](const std::string& given) {
    std::vector<std::string> all = load;
    all.insert(all.end(), {"--lora", given});
    return all;
  };
  EXPECT_EQ(text(with(lora)), text(run_of({"--lora", lora})));
  const Outcome without = call(load);
  expect_refusal(without);
  EXPECT_THAT(without.err, HasSubstr("was made with adapter 'a': give it with --lora a=FILE"));
  const Outcome other = call(with("a=" + file(1)));
  expect_refusal(other);
  EXPECT_THAT(other.err, HasSubstr("was made with another adapter 'a', or with another scale of it"));
}

TEST_F(LoraCommand, AFileWithoutAnAdapterIsLoadedWithoutOne) {
  const std::string model = demo_model("llama");
  ASSERT_EQ(call({"session", "save", session(), kText, "-m", model}).exit_code, 0);
  EXPECT_EQ(text({"session", "load", session(), "-m", model, "-n", "16", "--temp", "0", "--lora", "a=" + file(0)}),
            text(run_of({})));
}

}  // namespace
}  // namespace quire::cli

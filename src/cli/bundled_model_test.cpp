#include "quire/cli/bundled_model.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/gguf/gguf_testing.h"

namespace quire::cli {
namespace {

constexpr const char* kName = "quire-demo-llama-q8_0.gguf";

TEST(BundledModel, IsTheSourceTreesForAProgramOfTheBuildTree) {
  EXPECT_EQ(bundled_model(QUIRE_BUILD_DIR "/src/cli/quire").value_or(""),
            std::string(QUIRE_SOURCE_DIR "/models/") + kName);
  EXPECT_EQ(bundled_model().value_or(""), std::string(QUIRE_SOURCE_DIR "/models/") + kName) << "this test is one";
}

TEST(BundledModel, MovesWithAnInstallation) {
  const gguf::testing::TemporaryFolder folder;
  const auto absent = bundled_model(folder / "bin/quire");
  ASSERT_FALSE(absent) << "or it is installed on this machine";
  EXPECT_THAT(absent.error().message, ::testing::HasSubstr(folder / "share/quire/models"));
  EXPECT_THAT(absent.error().message, ::testing::HasSubstr("give another with -m"));
  std::filesystem::create_directories(folder / "share/quire/models");
  std::ofstream(folder / "share/quire/models/quire-demo-llama-q8_0.gguf") << "x";
  EXPECT_EQ(bundled_model(folder / "bin/quire").value_or(""), folder / (std::string("share/quire/models/") + kName));
}

}  // namespace
}  // namespace quire::cli

#include "quire/bench/synthetic_model.h"

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/bench/bench_testing.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/model/model.h"

namespace quire::bench {
namespace {

using ::testing::HasSubstr;

class Synthetic : public ::testing::Test {
 protected:
  Synthetic() { ::setenv("TMPDIR", folder_.path().c_str(), 1); }
  ~Synthetic() override { ::unsetenv("TMPDIR"); }

  bool nothing_there() const { return std::filesystem::is_empty(folder_.path()); }
  Result<SyntheticModel> make(const synth::Shape& shape, const std::string& type) {
    return SyntheticModel::create(shape, type);
  }

  gguf::testing::TemporaryFolder folder_;
};

TEST_F(Synthetic, CanBeLoadedTwiceAndHasNoNameInAnyFolder) {
  const auto model = make(testing::tiny_llama(), "Q8_0");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_TRUE(nothing_there());
  for (int twice = 0; twice < 2; ++twice) {
    const auto loaded = model::Model::load(model->path());
    ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
    EXPECT_EQ((*loaded)->hyperparameters().layers.size(), 2u);
  }
}

TEST_F(Synthetic, IsGoneWhenItIsNotWantedAnyMore) {
  std::string path;
  {
    const auto model = make(testing::tiny_mamba(), "F16");
    ASSERT_TRUE(model.has_value()) << model.error().message;
    path = model->path();
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(Synthetic, AShapeThatCannotBeLeavesNothingBehind) {
  synth::Shape shape = testing::tiny_llama();
  shape.kv_heads = 3;
  EXPECT_FALSE(make(shape, "Q8_0").has_value());
  EXPECT_FALSE(make(testing::tiny_llama(), "Q9_9").has_value());
  EXPECT_TRUE(nothing_there());
}

TEST_F(Synthetic, AFolderThatIsNotThereIsNamed) {
  ::setenv("TMPDIR", (folder_ / "nowhere").c_str(), 1);
  const auto model = make(testing::tiny_llama(), "Q8_0");
  ASSERT_FALSE(model.has_value());
  EXPECT_THAT(model.error().message, HasSubstr("nowhere: cannot hold a temporary model: No such file or directory"));
}

}  // namespace
}  // namespace quire::bench

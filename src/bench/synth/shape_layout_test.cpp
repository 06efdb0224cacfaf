#include "quire/bench/synth/shape_layout.h"

#include <gtest/gtest.h>

#include "quire/bench/synth/synth_testing.h"
#include "quire/bench/synthetic_model.h"
#include "quire/model/model.h"
#include "quire/model/state_layout.h"

namespace quire::synth {
namespace {

TEST(SynthLayout, IsThatOfTheModelThatIsWritten) {
  for (const std::string& name : shape_names()) {
    SCOPED_TRACE(name);
    const Shape shape = testing::small(name);
    const auto written = bench::SyntheticModel::create(shape, "Q8_0");
    ASSERT_TRUE(written) << written.error().message;
    const auto model = model::Model::load(written->path());
    ASSERT_TRUE(model) << model.error().message;
    const auto expected = (*model)->layout(kDefaultBlockSize, ElementType::F16);
    const auto layout = layout_of(shape);
    ASSERT_TRUE(expected && layout);
    EXPECT_EQ(layout->groups, expected->groups);
    EXPECT_TRUE(layout->recurrent.same_bytes(expected->recurrent));
  }
}

TEST(SynthLayout, AnEightBillionLlamaKeepsAnEighthOfAMebibyteForEachToken) {
  const auto layout = layout_of(*find_shape("llama-8b"));
  ASSERT_TRUE(layout);
  ASSERT_EQ(layout->groups.size(), 1u);
  EXPECT_EQ(layout->groups[0].bytes_per_token(), 131072u);
  EXPECT_FALSE(layout->has_recurrent());
}

TEST(SynthLayout, AnImpossibleShapeIsRefused) {
  Shape shape = *find_shape("llama-8b");
  shape.kv_heads = 5;
  EXPECT_FALSE(layout_of(shape));
}

}  // namespace
}  // namespace quire::synth

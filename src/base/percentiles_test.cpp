#include "quire/base/percentiles.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(PercentilesOf, AreValuesThatWereMeasured) {
  std::vector<float> values;
  for (int i = 100; i > 0; --i) values.push_back(static_cast<float>(i));
  const Percentiles all = percentiles_of(values);
  EXPECT_EQ(all.p50, 50);
  EXPECT_EQ(all.p95, 95);
  EXPECT_EQ(all.p99, 99);
  std::vector<float> one = {3};
  EXPECT_EQ(percentiles_of(one).p99, 3);
  std::vector<float> none;
  EXPECT_EQ(percentiles_of(none).p50, 0);
}

}  // namespace
}  // namespace quire

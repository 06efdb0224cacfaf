#include "quire/model/fingerprint.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "quire/model/model_testing.h"

namespace quire::model {
namespace {

using testing::OpenedModel;
using testing::TestModel;

TestModel small() { return TestModel::attention("llama").with_tensors({false, false}); }

TEST(Fingerprint, IsTheSameForTheSameFileAndArithmetic) {
  const OpenedModel one(small()), two(small());
  EXPECT_EQ(fingerprint(*one.file, "cpu"), fingerprint(*two.file, "cpu"));
  EXPECT_NE(fingerprint(*one.file, "cpu"), fingerprint(*one.file, "cuda"));
}

TEST(Fingerprint, TellsModelsOfTheSameShapeApart) {
  const OpenedModel model(small());
  const Fingerprint before = fingerprint(*model.file, "");
  EXPECT_NE(fingerprint(*OpenedModel(small().set("rope.freq_base", 5000.0F)).file, ""), before);
  EXPECT_NE(fingerprint(*OpenedModel(small().set("context_length", 99U)).file, ""), before);
  // Another weight in the same place.
  std::vector<std::byte> image = small().image();
  image.back() ^= std::byte{1};
  const auto changed = gguf::File::from_memory(image, "changed");
  ASSERT_TRUE(changed);
  EXPECT_NE(fingerprint(*changed, ""), before);
}

}  // namespace
}  // namespace quire::model

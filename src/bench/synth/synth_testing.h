// For tests of synth: small shapes that are written quickly.
#pragma once

#include <string_view>

#include <gtest/gtest.h>

#include "quire/bench/synth/synth.h"

namespace quire::synth::testing {

// A named shape, reduced to two small layers. A hybrid has one layer of each kind.
inline Shape small(std::string_view name) {
  const Shape& base = *find_shape(name);
  Shape changes{.layers = 2, .embedding = 256, .vocabulary = 600, .context = 256};
  if (base.heads != 0) {
    changes.heads = 4;
    changes.kv_heads = 2;
    changes.head_dim = 64;
    changes.feed_forward = 512;
  }
  if (base.inner != 0) changes.state = 32;
  if (!base.attention_layers.empty()) changes.attention_layers = {1};
  const Shape shape = changed(base, changes);
  EXPECT_TRUE(check_shape(shape)) << check_shape(shape).error().message;
  return shape;
}

}  // namespace quire::synth::testing

// For tests of synth: small shapes that are written quickly.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "quire/bench/synth/synth.h"

namespace quire::synth::testing {

// A named shape, reduced to two small layers. A hybrid has one layer of each kind.
inline Shape small(std::string_view name) {
  const Shape& base = *find_shape(name);
  Shape changes{.layers = 2, .embedding = 256, .vocabulary = 600, .context = 256};
  if (base.heads != 0) {
    changes.heads = 4;
    changes.kv_heads = base.kv_heads == 1 ? 1 : 2;
    changes.head_dim = 64;
    if (base.feed_forward != 0) changes.feed_forward = 512;
  }
  if (base.rope_dim != 0) changes.rope_dim = 32;
  if (base.window != 0) changes.window = 32;
  if (base.kv_rank != 0) changes.kv_rank = 256, changes.value_dim = 64;
  if (base.experts != 0) changes.experts = 12, changes.experts_used = 3, changes.expert_feed_forward = 256;
  if (base.shared_feed_forward != 0) changes.shared_feed_forward = 512;
  if (base.dense_layers != 0) changes.dense_layers = 1;
  if (base.inner != 0) changes.state = 32;
  if (base.dt_rank != 0) changes.dt_rank = 32;
  if (base.groups > 1) changes.groups = 2, changes.ssm_heads = 4;
  if (base.attention_interval != 0) changes.attention_interval = 2;
  if (!base.attention_layers.empty()) changes.attention_layers = {1};
  const Shape shape = changed(base, changes);
  EXPECT_TRUE(check_shape(shape)) << check_shape(shape).error().message;
  return shape;
}

}  // namespace quire::synth::testing

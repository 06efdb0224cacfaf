// The choice of a row's experts (backend.h: Router), on the host.
#pragma once

#include "quire/backend/backend.h"

namespace quire::cpu {

// `scores` is scratch memory, [experts]. selection_bias is [experts] or null. Writes [used] numbers and weights.
void choose_experts(const Router& router, const float* logits, const float* selection_bias, float* scores,
                    float* numbers, float* weights);

}  // namespace quire::cpu

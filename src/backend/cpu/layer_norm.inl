// LayerNorm: (x - mean) / sqrt(variance + epsilon) * weight, plus bias if there is one. The mean is subtracted before
// squares are added up: a mean that is large beside the deviations costs no precision.

float sum_of_elements(const float* x, std::uint32_t n) {
  V16 sums[4] = {};
  std::uint32_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int j = 0; j < 4; ++j) sums[j] += load16(x + i + 16 * j);
  }
  by_sixteen(n - i,
             [&](std::uint32_t at, std::uint32_t count) QUIRE_LAMBDA { sums[0] += load_up_to(x + i + at, count); });
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

void layer_norm(float* out, const float* x, const float* weight, const float* bias, float epsilon, std::uint32_t n) {
  const float mean = sum_of_elements(x, n) / static_cast<float>(n);
  for (std::uint32_t i = 0; i < n; ++i) out[i] = x[i] - mean;
  const float variance = sum_of_squares(out, n) / static_cast<float>(n);
  const float factor = 1.0f / __builtin_sqrtf(variance + epsilon);
  if (bias == nullptr) {
    for (std::uint32_t i = 0; i < n; ++i) out[i] = out[i] * factor * weight[i];
  } else {
    for (std::uint32_t i = 0; i < n; ++i) out[i] = out[i] * factor * weight[i] + bias[i];
  }
}

#include "quire/model/key_balance.h"

#include <algorithm>
#include <cmath>

#include "quire/gguf/types.h"

namespace quire::model {
namespace {

constexpr int kMostExponent = 16;  // a factor between 2^-16 and 2^16 takes no float out of its range

// The expected squares of all channels of all heads.
Result<std::vector<double>> squares_of(const KeyWeights& weights) {
  const FileMatrix& matrix = weights.projection;
  std::vector<double> squares(matrix.rows);
  std::vector<float> row(matrix.cols);
  for (std::uint32_t d = 0; d < matrix.rows; ++d) {
    const std::span<const std::byte> bytes(matrix.data + d * matrix.row_bytes, matrix.row_bytes);
    if (auto ok = gguf::dequantize(matrix.type, bytes, row); !ok) return std::unexpected(ok.error());
    double sum = 0;
    for (std::uint32_t j = 0; j < matrix.cols; ++j) {
      const float value = weights.input_norm.empty() ? row[j] : row[j] * weights.input_norm[j];
      sum += double{value} * value;
    }
    if (!weights.bias.empty()) sum += double{weights.bias[d]} * weights.bias[d];
    // The norm divides all channels of a head by the same number, so only its weight matters here.
    if (!weights.head_norm.empty()) {
      const double weight = weights.head_norm[d % weights.head_norm.size()];
      sum *= weight * weight;
    }
    squares[d] = std::isfinite(sum) ? sum : 0;
  }
  return squares;
}

// A rotation mixes the two channels of a pair. Both get the mean of their squares.
void share_in_pairs(std::span<double> head, const KeyChannels& channels) {
  const std::uint32_t pairs = channels.rotary_pairs;
  const bool neighbours = channels.order == RopePairs::Neighbours;
  for (std::uint32_t i = 0; i < pairs; ++i) {
    double& first = head[neighbours ? 2 * i : i];
    double& second = head[neighbours ? 2 * i + 1 : i + pairs];
    first = second = (first + second) / 2;
  }
}

// Of the channels that are not always 0. 0: all are.
double median(std::span<const double> head) {
  std::vector<double> sorted(head.begin(), head.end());
  std::erase(sorted, 0);
  if (sorted.empty()) return 0;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

}  // namespace

Result<std::vector<float>> key_balance(const KeyWeights& weights, const KeyChannels& channels) {
  auto squares = squares_of(weights);
  if (!squares) return std::unexpected(squares.error());
  std::vector<float> factors(squares->size(), 1.0f);
  for (std::size_t at = 0; at < factors.size(); at += channels.head_dim) {
    const auto head = std::span(*squares).subspan(at, channels.head_dim);
    share_in_pairs(head, channels);
    const double usual = median(head);
    for (std::uint32_t d = 0; d < channels.head_dim; ++d) {
      if (head[d] == 0) continue;
      const double exponent = std::round(std::log2(head[d] / usual) / 2);
      factors[at + d] = std::ldexp(1.0f, static_cast<int>(std::clamp<double>(exponent, -kMostExponent, kMostExponent)));
    }
  }
  return factors;
}

}  // namespace quire::model

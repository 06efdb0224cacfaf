#include "quire/bench/synth/outliers.h"

#include <algorithm>

#include "quire/bench/synth/family.h"
#include "quire/bench/synth/random.h"

namespace quire::synth {
namespace {

// Different numbers below `all`. There are many more than are wanted.
std::vector<std::uint32_t> choose(std::uint32_t count, std::uint32_t all, const Stream& stream) {
  std::vector<std::uint32_t> chosen;
  for (std::uint64_t place = 0; chosen.size() < count; ++place) {
    const auto number = static_cast<std::uint32_t>(stream.at(place) % all);
    if (std::ranges::find(chosen, number) == chosen.end()) chosen.push_back(number);
  }
  return chosen;
}

constexpr std::uint64_t kKeys = 7001, kFeedForward = 7002;  // seeds of their own: one choice for all files

}  // namespace

std::vector<std::uint32_t> key_outliers(const Shape& shape, std::uint32_t layer) {
  const std::uint32_t pairs = shape.head_dim / 2;
  const bool neighbours = find_family(shape.architecture)->neighbours;
  std::vector<std::uint32_t> channels;
  for (const std::uint32_t pair : choose(shape.outliers / 2, pairs, Stream(kKeys, layer))) {
    channels.push_back(neighbours ? 2 * pair : pair);
    channels.push_back(neighbours ? 2 * pair + 1 : pair + pairs);
  }
  std::ranges::sort(channels);
  return channels;
}

std::vector<std::uint32_t> feed_forward_outliers(const Shape& shape, std::uint32_t layer) {
  auto channels = choose(shape.outliers, shape.feed_forward, Stream(kFeedForward, layer));
  std::ranges::sort(channels);
  return channels;
}

}  // namespace quire::synth

#include "quire/backend/host_sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "quire/base/check.h"

namespace quire::sampling {
namespace {

// end_of_prefix() divides depths into ranges of 1/32 of a factor of two.
constexpr std::uint32_t kRangeBits = kFractionBits - 5;
constexpr std::size_t kRanges = kDepths >> kRangeBits;
constexpr std::size_t kPart = 1024;  // tokens: draw() sums a row in parts

// Calls take(i) for every logit that keep() accepts, in order. Most rows have few of them among many, so keep() is
// asked for sixteen at a time, which compilers turn into vector comparisons.
template <typename Keep, typename Take>
void each_kept(std::span<const float> logits, const Keep& keep, const Take& take) {
  constexpr std::size_t kWidth = 16;
  std::size_t i = 0;
  for (; i + kWidth <= logits.size(); i += kWidth) {
    unsigned any = 0;
    for (std::size_t j = 0; j < kWidth; ++j) any |= static_cast<unsigned>(keep(logits[i + j]));
    if (any == 0) continue;
    for (std::size_t j = i; j < i + kWidth; ++j) {
      if (keep(logits[j])) take(j);
    }
  }
  for (; i < logits.size(); ++i) {
    if (keep(logits[i])) take(i);
  }
}

std::optional<std::int32_t> first_of(std::span<const float> logits) {
  constexpr std::size_t kWidth = 16;
  std::array<float, kWidth> most;
  most.fill(-std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + kWidth <= logits.size(); i += kWidth) {
    for (std::size_t j = 0; j < kWidth; ++j) most[j] = logits[i + j] > most[j] ? logits[i + j] : most[j];
  }
  for (; i < logits.size(); ++i) most[0] = logits[i] > most[0] ? logits[i] : most[0];
  const auto at = std::ranges::find(logits, *std::ranges::max_element(most));
  if (at == logits.end()) return std::nullopt;
  return static_cast<std::int32_t>(at - logits.begin());
}

// The first k of the sorted order, not sorted themselves.
void take_first(std::span<const float> logits, std::size_t k, std::vector<std::uint64_t>& places) {
  const std::size_t room = std::max<std::size_t>(2 * k, 256);
  float lowest = std::numeric_limits<float>::quiet_NaN();  // of the first k; NaN: not k yet
  const auto cut = [&] {
    const auto last = places.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(places.begin(), last, places.end(), std::greater());
    lowest = logit_at(*last);
    places.resize(k);
  };
  places.clear();
  // Ids ascend here: of equal logits the later one is behind.
  each_kept(
      logits, [&](float logit) { return !(logit <= lowest) && !std::isnan(logit); },
      [&](std::size_t i) {
        places.push_back(place(logits[i], static_cast<std::int32_t>(i)));
        if (places.size() == room) cut();
      });
  if (places.size() > k) cut();
}

// Where the prefix ends that top-p keeps: in which range of depths, and the weight of all tokens before that range.
struct PrefixEnd {
  std::size_t range = 0;
  std::uint64_t before = 0;
  std::uint64_t enough = 0;  // the weight that the prefix has to reach
};

// Tokens are counted by ranges of depth first, so that only those of one range have to be sorted. `each` calls a
// function with the logit of every token that top-k has kept.
template <typename Each>
PrefixEnd end_of_prefix(const Each& each, const Rule& rule, float highest, std::vector<std::uint64_t>& sums) {
  std::uint64_t total = 0;
  sums.assign(kRanges, 0);
  each([&](float logit) {
    const std::uint32_t depth = depth_of(logit, highest, rule.rate);
    if (depth >= kDepths) return;
    const std::uint64_t weight = weight_at(depth);
    sums[depth >> kRangeBits] += weight;
    total += weight;
  });
  PrefixEnd end{.enough = share(total, rule.top_p)};
  while (end.before + sums[end.range] < end.enough) end.before += sums[end.range++];
  return end;
}

// The place of the last token that top-p keeps, of those in the range where the prefix ends.
std::uint64_t last_of_prefix(const PrefixEnd& end, const Rule& rule, float highest,
                             std::vector<std::uint64_t>& places) {
  std::ranges::sort(places, std::greater());
  std::uint64_t sum = end.before;
  for (const std::uint64_t place : places) {
    sum += weight_of(logit_at(place), highest, rule.rate);
    if (sum >= end.enough) return place;
  }
  return places.back();
}

// The place of the last token that top-k and top-p keep; 0: all tokens stay.
std::uint64_t last_kept(std::span<const float> logits, const Rule& rule, float highest,
                        std::vector<std::uint64_t>& sums, std::vector<std::uint64_t>& places) {
  const bool all = rule.top_k == 0 || rule.top_k >= logits.size();
  if (!all) take_first(logits, rule.top_k, places);
  if (rule.top_p >= kAllOfIt) return all ? 0 : *std::ranges::min_element(places);

  const auto range_of = [&](float logit) { return depth_of(logit, highest, rule.rate) >> kRangeBits; };
  PrefixEnd end;
  if (all) {
    end = end_of_prefix([&](const auto& call) { std::ranges::for_each(logits, call); }, rule, highest, sums);
    places.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (range_of(logits[i]) == end.range) places.push_back(place(logits[i], static_cast<std::int32_t>(i)));
    }
  } else {
    const auto each = [&](const auto& call) {
      for (const std::uint64_t place : places) call(logit_at(place));
    };
    end = end_of_prefix(each, rule, highest, sums);
    std::erase_if(places, [&](std::uint64_t place) { return range_of(logit_at(place)) != end.range; });
  }
  return last_of_prefix(end, rule, highest, places);
}

// Draws one of the tokens that are not behind `last` and have at least the least weight.
std::int32_t draw(std::span<const float> logits, const Rule& rule, float highest, std::uint64_t last,
                  std::uint64_t random, std::vector<std::uint64_t>& sums) {
  const float lowest = last == 0 ? -std::numeric_limits<float>::infinity() : logit_at(last);
  // Calls call(i, weight) for the tokens of a part of the row.
  const auto each_weight = [&](std::size_t part, const auto& call) {
    const std::size_t first = part * kPart;
    each_kept(
        logits.subspan(first, std::min(kPart, logits.size() - first)), [&](float logit) { return logit >= lowest; },
        [&](std::size_t i) {
          const auto id = static_cast<std::int32_t>(first + i);
          const float logit = logits[first + i];
          const std::uint64_t weight = weight_of(logit, highest, rule.rate);
          if (weight >= rule.min_weight && place(logit, id) >= last) call(id, weight);
        });
  };
  const std::size_t parts = (logits.size() + kPart - 1) / kPart;
  std::uint64_t total = 0;
  sums.resize(parts);
  for (std::size_t part = 0; part < parts; ++part) {
    std::uint64_t sum = 0;
    each_weight(part, [&](std::int32_t, std::uint64_t weight) { sum += weight; });
    total += sums[part] = sum;
  }
  std::uint64_t rest = drawn_place(random, total);
  std::size_t part = 0;
  while (rest >= sums[part]) rest -= sums[part++];
  std::optional<std::int32_t> token;
  each_weight(part, [&](std::int32_t id, std::uint64_t weight) {
    if (token) return;
    if (rest < weight) {
      token = id;
    } else {
      rest -= weight;
    }
  });
  return *token;
}

RowSum sum_of(std::span<const float> logits) {
  RowSum sum;
  sum.highest = logits[static_cast<std::size_t>(*first_of(logits))];
  for (const float logit : logits) sum.total += weight_of(logit, sum.highest, rate_of(1));
  return sum;
}

// The model's logits after penalties, bias and mask; in `own` if there are any.
std::span<const float> adjusted(std::span<const float> logits, const Job& job, std::vector<float>& own) {
  if (job.seen.empty() && job.biases.empty() && job.mask.empty()) return logits;
  own.assign(logits.begin(), logits.end());
  for (const Seen& seen : job.seen) {
    const auto i = static_cast<std::size_t>(seen.token);
    if (i >= own.size()) break;
    own[i] = penalized(own[i], seen.times, job.penalties);
  }
  for (const auto& [token, bias] : job.biases) {
    if (static_cast<std::size_t>(token) < own.size()) own[static_cast<std::size_t>(token)] += bias;
  }
  if (job.mask.empty()) return own;
  QUIRE_CHECK(job.mask.size() >= (own.size() + 31) / 32, "a mask has a bit for each token");
  for (std::size_t i = 0; i < own.size(); ++i) {
    if ((job.mask[i / 32] >> (i % 32) & 1) == 0) own[i] = std::numeric_limits<float>::quiet_NaN();
  }
  return own;
}

}  // namespace

Scratch::Scratch(std::uint32_t vocabulary) {
  logits_.reserve(vocabulary);
  places_.reserve(vocabulary);
  sums_.reserve(std::max(kRanges, vocabulary / kPart + 1));
}

Picked pick(std::span<const float> logits, const Job& job, Scratch& scratch) {
  QUIRE_CHECK(logits.size() <= scratch.logits_.capacity(), "logits are those of the vocabulary");
  const std::span<const float> own = adjusted(logits, job, scratch.logits_);
  std::optional<std::int32_t> token = first_of(own);
  if (!token) return {};
  const float highest = own[static_cast<std::size_t>(*token)];
  if (job.rule.rate > 0 && std::isfinite(highest)) {
    const std::uint64_t last = last_kept(own, job.rule, highest, scratch.sums_, scratch.places_);
    token = draw(own, job.rule, highest, last, job.random, scratch.sums_);
  }
  Picked picked{.token = *token, .logit = logits[static_cast<std::size_t>(*token)]};
  if (job.logprobs < 0) return picked;
  picked.sum = sum_of(logits);
  if (job.logprobs == 0) return picked;
  take_first(logits, std::min<std::size_t>(static_cast<std::size_t>(job.logprobs), logits.size()), scratch.places_);
  std::ranges::sort(scratch.places_, std::greater());
  picked.places = scratch.places_;
  return picked;
}

}  // namespace quire::sampling

#include "quire/engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "quire/base/check.h"

namespace quire::engine {

namespace {

// end_of_prefix() divides depths into ranges of 1/32 of a factor of two.
constexpr std::uint32_t kRangeBits = sampling::kFractionBits - 5;
constexpr std::size_t kRanges = sampling::kDepths >> kRangeBits;
constexpr std::size_t kPart = 1024;  // tokens: draw() sums a row in parts

using sampling::Rule;

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

std::optional<Token> first_of(std::span<const float> logits) {
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
  return static_cast<Token>(at - logits.begin());
}

// The first k of the sorted order, not sorted themselves.
void take_first(std::span<const float> logits, std::size_t k, std::vector<std::uint64_t>& places) {
  const std::size_t room = std::max<std::size_t>(2 * k, 256);
  float lowest = std::numeric_limits<float>::quiet_NaN();  // of the first k; NaN: not k yet
  const auto cut = [&] {
    const auto last = places.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(places.begin(), last, places.end(), std::greater());
    lowest = sampling::logit_at(*last);
    places.resize(k);
  };
  places.clear();
  // Ids ascend here: of equal logits the later one is behind.
  each_kept(
      logits, [&](float logit) { return !(logit <= lowest) && !std::isnan(logit); },
      [&](std::size_t i) {
        places.push_back(sampling::place(logits[i], static_cast<Token>(i)));
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
    const std::uint32_t depth = sampling::depth_of(logit, highest, rule.rate);
    if (depth >= sampling::kDepths) return;
    const std::uint64_t weight = sampling::weight_at(depth);
    sums[depth >> kRangeBits] += weight;
    total += weight;
  });
  PrefixEnd end{.enough = sampling::share(total, rule.top_p)};
  while (end.before + sums[end.range] < end.enough) end.before += sums[end.range++];
  return end;
}

// The place of the last token that top-p keeps, of those in the range where the prefix ends.
std::uint64_t last_of_prefix(const PrefixEnd& end, const Rule& rule, float highest,
                             std::vector<std::uint64_t>& places) {
  std::ranges::sort(places, std::greater());
  std::uint64_t sum = end.before;
  for (const std::uint64_t place : places) {
    sum += sampling::weight_of(sampling::logit_at(place), highest, rule.rate);
    if (sum >= end.enough) return place;
  }
  return places.back();
}

// The place of the last token that top-k and top-p keep; 0: all tokens stay.
std::uint64_t last_kept(std::span<const float> logits, const Rule& rule, float highest,
                        std::vector<std::uint64_t>& sums, std::vector<std::uint64_t>& places) {
  const bool all = rule.top_k == 0 || rule.top_k >= logits.size();
  if (!all) take_first(logits, rule.top_k, places);
  if (rule.top_p >= sampling::kAllOfIt) return all ? 0 : *std::ranges::min_element(places);

  const auto range_of = [&](float logit) { return sampling::depth_of(logit, highest, rule.rate) >> kRangeBits; };
  PrefixEnd end;
  if (all) {
    end = end_of_prefix([&](const auto& call) { std::ranges::for_each(logits, call); }, rule, highest, sums);
    places.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (range_of(logits[i]) == end.range) places.push_back(sampling::place(logits[i], static_cast<Token>(i)));
    }
  } else {
    const auto each = [&](const auto& call) {
      for (const std::uint64_t place : places) call(sampling::logit_at(place));
    };
    end = end_of_prefix(each, rule, highest, sums);
    std::erase_if(places, [&](std::uint64_t place) { return range_of(sampling::logit_at(place)) != end.range; });
  }
  return last_of_prefix(end, rule, highest, places);
}

// Draws one of the tokens that are not behind `last` and have at least the least weight.
Token draw(std::span<const float> logits, const Rule& rule, float highest, std::uint64_t last, std::uint64_t random,
           std::vector<std::uint64_t>& sums) {
  const float lowest = last == 0 ? -std::numeric_limits<float>::infinity() : sampling::logit_at(last);
  // Calls call(i, weight) for the tokens of a part of the row.
  const auto each_weight = [&](std::size_t part, const auto& call) {
    const std::size_t first = part * kPart;
    each_kept(
        logits.subspan(first, std::min(kPart, logits.size() - first)), [&](float logit) { return logit >= lowest; },
        [&](std::size_t i) {
          const auto id = static_cast<Token>(first + i);
          const float logit = logits[first + i];
          const std::uint64_t weight = sampling::weight_of(logit, highest, rule.rate);
          if (weight >= rule.min_weight && sampling::place(logit, id) >= last) call(id, weight);
        });
  };
  const std::size_t parts = (logits.size() + kPart - 1) / kPart;
  std::uint64_t total = 0;
  sums.resize(parts);
  for (std::size_t part = 0; part < parts; ++part) {
    std::uint64_t sum = 0;
    each_weight(part, [&](Token, std::uint64_t weight) { sum += weight; });
    total += sums[part] = sum;
  }
  std::uint64_t rest = sampling::drawn_place(random, total);
  std::size_t part = 0;
  while (rest >= sums[part]) rest -= sums[part++];
  std::optional<Token> token;
  each_weight(part, [&](Token id, std::uint64_t weight) {
    if (token) return;
    if (rest < weight) {
      token = id;
    } else {
      rest -= weight;
    }
  });
  return *token;
}

sampling::RowSum sum_of(std::span<const float> logits) {
  sampling::RowSum sum;
  sum.highest = logits[static_cast<std::size_t>(*first_of(logits))];
  for (const float logit : logits) sum.total += sampling::weight_of(logit, sum.highest, sampling::rate_of(1));
  return sum;
}

using Biases = SharedList<std::pair<Token, float>>;

// The biases by ascending token, each token once.
Biases one_for_each_token(const Biases& biases) {
  const auto disorder = std::ranges::adjacent_find(biases, std::greater_equal(), &Biases::value_type::first);
  if (disorder == biases.end()) return biases;
  std::vector<Biases::value_type> sorted(biases.begin(), biases.end());
  std::ranges::stable_sort(sorted, {}, &Biases::value_type::first);
  std::size_t count = 0;
  for (const auto& [token, bias] : sorted) {
    if (count > 0 && sorted[count - 1].first == token) {
      sorted[count - 1].second += bias;
    } else {
      sorted[count++] = {token, bias};
    }
  }
  sorted.resize(count);
  return sorted;
}

}  // namespace

Result<void> check(const SamplerOptions& options) {
  // The comparisons are negated so that NaN is refused too.
  if (!(options.temperature >= 0 && options.temperature <= 100)) {
    return fail(fmt::format("a temperature of {} is not between 0 and 100", options.temperature));
  }
  if (!(options.top_p >= 0 && options.top_p <= 1)) {
    return fail(fmt::format("a top-p of {} is not between 0 and 1", options.top_p));
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return fail(fmt::format("a min-p of {} is not between 0 and 1", options.min_p));
  }
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= 100)) {
    return fail(fmt::format("a repetition penalty of {} is not above 0 and at most 100", options.repetition_penalty));
  }
  if (!(std::abs(options.presence_penalty) <= 100)) {
    return fail(fmt::format("a presence penalty of {} is not between -100 and 100", options.presence_penalty));
  }
  if (!(std::abs(options.frequency_penalty) <= 100)) {
    return fail(fmt::format("a frequency penalty of {} is not between -100 and 100", options.frequency_penalty));
  }
  if (options.logit_bias.size() > kMostBiases) {
    return fail(fmt::format("{} logit biases are more than {}", options.logit_bias.size(), kMostBiases));
  }
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0) return fail(fmt::format("a logit bias for token {}, which is not a token id", token));
    if (std::isnan(bias)) return fail(fmt::format("the logit bias for token {} is not a number", token));
  }
  return {};
}

SamplerScratch::SamplerScratch(std::uint32_t vocabulary) {
  logits_.reserve(vocabulary);
  places_.reserve(vocabulary);
  sums_.reserve(std::max(kRanges, vocabulary / kPart + 1));
}

Sampler::Sampler(const SamplerOptions& options, std::uint32_t vocabulary, std::int32_t logprobs,
                 std::uint32_t most_tokens)
    : options_(options), logprobs_(logprobs), vocabulary_(vocabulary) {
  QUIRE_CHECK(check(options).has_value(), "options are checked where they come from");
  penalizes_ = options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0;
  rule_ = sampling::rule_of(options.temperature, options.top_k, options.top_p, options.min_p);
  penalties_ = {static_cast<float>(options.repetition_penalty), static_cast<float>(options.presence_penalty),
                static_cast<float>(options.frequency_penalty)};
  options_.logit_bias = one_for_each_token(options.logit_bias);
  if (penalizes_) seen_.reserve(std::min(vocabulary, most_tokens));
  if (logprobs > 0) alternatives_.reserve(std::min<std::size_t>(static_cast<std::size_t>(logprobs), vocabulary));
}

void Sampler::see_prompt(std::span<const Token> prompt) {
  // The other penalties are for tokens of the answer only.
  if (options_.repetition_penalty == 1) return;
  // A bit for each token sorts them: every choice of a request does this, and a prompt can be long.
  std::vector<std::uint64_t> bits((std::size_t{vocabulary_} + 63) / 64);
  for (const Token token : prompt) {
    bits[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(token) % 64);
  }
  seen_.clear();
  for (std::size_t word = 0; word < bits.size(); ++word) {
    for (std::uint64_t rest = bits[word]; rest != 0; rest &= rest - 1) {
      seen_.push_back({static_cast<Token>(word * 64 + static_cast<std::size_t>(std::countr_zero(rest))), 0});
    }
  }
}

void Sampler::see(Token token) {
  if (!penalizes_) return;
  const auto at = std::ranges::lower_bound(seen_, token, {}, &sampling::Seen::token);
  if (at != seen_.end() && at->token == token) {
    ++at->times;
  } else {
    seen_.insert(at, {token, 1});
  }
}

// The model's logits after penalties, bias and mask.
std::span<const float> Sampler::adjusted(std::span<const float> logits, std::span<const std::uint32_t> mask,
                                         SamplerScratch& scratch) const {
  if (!penalizes_ && options_.logit_bias.empty() && mask.empty()) return logits;
  std::vector<float>& own = scratch.logits_;
  own.assign(logits.begin(), logits.end());
  for (const sampling::Seen& seen : seen_) {
    const auto i = static_cast<std::size_t>(seen.token);
    if (i >= own.size()) break;
    own[i] = sampling::penalized(own[i], seen.times, penalties_);
  }
  for (const auto& [token, bias] : options_.logit_bias) {
    if (static_cast<std::size_t>(token) < own.size()) own[static_cast<std::size_t>(token)] += bias;
  }
  if (mask.empty()) return own;
  QUIRE_CHECK(mask.size() >= (own.size() + 31) / 32, "a mask has a bit for each token");
  for (std::size_t i = 0; i < own.size(); ++i) {
    if ((mask[i / 32] >> (i % 32) & 1) == 0) own[i] = std::numeric_limits<float>::quiet_NaN();
  }
  return own;
}

Sampler::Job Sampler::job(std::uint64_t position) const {
  return {.rule = rule_,
          .penalties = penalties_,
          .random = sampling::random_bits(options_.seed, position),
          .seen = seen_,
          .biases = options_.logit_bias,
          .logprobs = logprobs_};
}

Sampled Sampler::told(std::optional<Token> token, float logit, const sampling::RowSum& sum,
                      std::span<const std::uint64_t> places) {
  Sampled sampled;
  sampled.token = token;
  if (!token || logprobs_ < 0) return sampled;
  const double all = std::log(static_cast<double>(sum.total) / static_cast<double>(sampling::kHighestWeight));
  const auto logprob = [&](float of) {
    const double below = of == sum.highest ? 0 : static_cast<double>(sum.highest) - of;
    return static_cast<float>(-below - all);
  };
  sampled.logprob = logprob(logit);
  alternatives_.clear();
  for (const std::uint64_t place : places) {
    alternatives_.push_back({sampling::id_at(place), logprob(sampling::logit_at(place))});
  }
  sampled.alternatives = alternatives_;
  return sampled;
}

Sampled Sampler::sample(std::span<const float> logits, std::uint64_t position, SamplerScratch& scratch,
                        std::span<const std::uint32_t> mask) {
  QUIRE_CHECK(logits.size() <= scratch.logits_.capacity(), "logits are those of the vocabulary");
  const std::span<const float> own = adjusted(logits, mask, scratch);
  std::optional<Token> token = first_of(own);
  if (!token) return {};
  const float highest = own[static_cast<std::size_t>(*token)];
  if (options_.temperature > 0 && std::isfinite(highest)) {
    const std::uint64_t last = last_kept(own, rule_, highest, scratch.sums_, scratch.places_);
    const std::uint64_t random = sampling::random_bits(options_.seed, position);
    token = draw(own, rule_, highest, last, random, scratch.sums_);
  }
  const float logit = logits[static_cast<std::size_t>(*token)];
  if (logprobs_ < 0) return told(token, logit, {}, {});
  scratch.places_.clear();
  if (logprobs_ > 0) {
    take_first(logits, std::min<std::size_t>(static_cast<std::size_t>(logprobs_), logits.size()), scratch.places_);
    std::ranges::sort(scratch.places_, std::greater());
  }
  return told(token, logit, sum_of(logits), scratch.places_);
}

}  // namespace quire::engine

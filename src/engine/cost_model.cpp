#include "quire/engine/cost_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

#include "quire/base/check.h"

namespace quire::engine {
namespace {

// The spread of measurements around the prediction, as a fraction of it, if nothing else disturbs the machine.
constexpr double kNoise = 0.05;
// A measurement further away than this many standard deviations counts as being that far away.
constexpr double kFar = 3;
// After so many surprises in a row in one direction, the numbers are believed to have changed.
constexpr int kSurprises = 6;
// How fast a number becomes uncertain, as a fraction of its first uncertainty in each step.
constexpr double kDrift = 0.003;
// Before the first measurement: a step costs about as much as so many rows, and a row attends to a context of
// kContextTokens for as much as the rest of it costs.
constexpr double kBaseRows = 8;
constexpr double kContextTokens = 4096;
// A step takes some time, and so does a row: their numbers stay above this fraction of the first guess.
constexpr double kLeast = 1e-3;
// The lateness rises by kLateness after a step that was later, and falls by a 99th of it after one that was not. So it
// stands still where 1 of 100 steps is later.
constexpr double kLateness = 0.05;
constexpr double kMostLateness = 1.5;
constexpr std::string_view kCostsBegin = "quire step costs 1: ";
constexpr double kMostSeconds = 1e4;  // a number beyond this is no cost

std::array<double, 6> features(const StepShape& shape) {
  return {1,
          static_cast<double>(shape.decode_rows),
          static_cast<double>(shape.prefill_rows),
          static_cast<double>(shape.decode_context),
          static_cast<double>(shape.prefill_context),
          static_cast<double>(shape.draft_rows)};
}

std::array<double*, 6> numbers(StepCosts& costs) {
  return {&costs.base,           &costs.decode_row,      &costs.prefill_row,
          &costs.decode_context, &costs.prefill_context, &costs.draft_row};
}

}  // namespace

double StepCosts::seconds(const StepShape& shape) const {
  return base + decode_row * shape.decode_rows + prefill_row * shape.prefill_rows +
         decode_context * static_cast<double>(shape.decode_context) +
         prefill_context * static_cast<double>(shape.prefill_context) + draft_row * shape.draft_rows;
}

double StepCosts::prefill_seconds(std::uint32_t position, std::uint32_t rows) const {
  StepShape shape;
  shape.add_prefill(position, rows);
  return seconds(shape) - base;
}

std::uint32_t StepCosts::prefill_rows_within(double seconds, std::uint32_t position, std::uint32_t at_most) const {
  // rows * (row + context * position) + context * rows * rows / 2 = seconds
  const double linear = prefill_row + prefill_context * position;
  if (linear <= 0) return at_most;
  const double rows =
      prefill_context <= 0
          ? seconds / linear
          : (std::sqrt(linear * linear + 2 * prefill_context * std::max(0.0, seconds)) - linear) / prefill_context;
  return static_cast<std::uint32_t>(std::clamp(rows, 0.0, static_cast<double>(at_most)));
}

double default_target(double decode_seconds) {
  constexpr double kSteps = 2;
  constexpr double kLeast = 0.1;
  return std::max(kSteps * decode_seconds, kLeast);
}

void to_text(const StepCosts& costs, std::string_view of, std::string& text) {
  StepCosts copy = costs;
  text.assign(kCostsBegin);
  text += of;
  for (const double* number : numbers(copy)) fmt::format_to(std::back_inserter(text), " {:.6e}", *number);
}

std::optional<StepCosts> costs_from_text(std::string_view text, std::string_view of) {
  if (!text.starts_with(kCostsBegin) || !text.substr(kCostsBegin.size()).starts_with(of)) return {};
  text.remove_prefix(kCostsBegin.size() + of.size());
  StepCosts costs;
  for (double* number : numbers(costs)) {
    if (!text.starts_with(' ')) return {};
    const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), *number);
    if (error != std::errc() || !(*number >= 0) || *number > kMostSeconds) return {};
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  // A step costs something, and so does a token.
  if (!text.empty() || costs.base <= 0 || costs.prefill_row <= 0) return {};
  return costs;
}

// The first measurement keeps the numbers: see begin().
void CostModel::start_with(const StepCosts& costs) {
  QUIRE_CHECK(measured_ == 0, "what was measured is better than what was told");
  costs_ = costs;
  told_ = true;
}

void CostModel::learn(const StepShape& shape, double seconds) {
  if (!(seconds > 0) || shape.decode_rows + shape.prefill_rows == 0) return;
  if (measured_++ == 0) begin(shape, seconds);
  forget();
  const Vector x = features(shape);
  Vector spread{};  // covariance * x
  double uncertainty = 0;
  for (std::size_t i = 0; i < kNumbers; ++i) {
    for (std::size_t j = 0; j < kNumbers; ++j) spread[i] += covariance_[i][j] * x[j];
    uncertainty += x[i] * spread[i];
  }
  const double noise = kNoise * seconds;
  const double variance = uncertainty + noise * noise;
  const double far = kFar * std::sqrt(variance);
  const double predicted = costs_.seconds(shape);
  const double error = seconds - predicted;
  if (uncertainty < noise * noise) {  // otherwise the prediction was a guess
    const bool late = seconds > lateness_ * predicted;
    lateness_ = std::clamp(lateness_ + (late ? kLateness : -kLateness / 99), 1.0, kMostLateness);
  }
  if (std::abs(error) > far) {
    surprises_ = (error > 0) == (surprises_ > 0) || surprises_ == 0 ? surprises_ + (error > 0 ? 1 : -1) : 0;
    if (std::abs(surprises_) >= kSurprises) {
      surprises_ = 0;
      measured_ = 1;
      begin(shape, seconds);  // the machine has changed: everything is uncertain again
      return;
    }
  } else {
    surprises_ = 0;
  }
  const double believed = std::clamp(error, -far, far);
  const auto all = numbers(costs_);
  for (std::size_t i = 0; i < kNumbers; ++i) *all[i] = std::max(least_[i], *all[i] + spread[i] / variance * believed);
  for (std::size_t i = 0; i < kNumbers; ++i) {
    for (std::size_t j = 0; j < kNumbers; ++j) covariance_[i][j] -= spread[i] * spread[j] / variance;
  }
}

// Takes the scale of all numbers from the first measurement. The numbers known so far are kept as the best guess.
void CostModel::begin(const StepShape& shape, double seconds) {
  const double row = seconds / (kBaseRows + shape.decode_rows + shape.prefill_rows + shape.draft_rows);
  prior_ = {kBaseRows * row, row, row, row / kContextTokens, row / kContextTokens, row};
  least_ = {kLeast * prior_[0], kLeast * prior_[1], kLeast * prior_[2]};
  for (std::size_t i = 0; i < kNumbers; ++i) {
    covariance_[i] = {};
    covariance_[i][i] = prior_[i] * prior_[i];
  }
}

void CostModel::forget() {
  for (std::size_t i = 0; i < kNumbers; ++i) {
    const double most = prior_[i] * prior_[i];
    covariance_[i][i] = std::min(most, covariance_[i][i] + kDrift * kDrift * most);
  }
}

}  // namespace quire::engine

// Predicts how long the model takes for a step, from the steps that were measured:
//
//   seconds = base + a * decoding rows + b * prompt rows + c * tokens that decoding rows attend to
//           + d * tokens that prompt rows attend to + e * further rows of decoding sequences
//
// The base is what every step costs: reading the weights once. The six numbers are learned from every step with a
// Kalman filter. So a mixture of decode and prefill teaches what each of them costs, and nothing has to be measured
// apart. What has not been seen for long becomes uncertain again and is learned faster. A step that something else on
// the machine delayed changes little; several in a row mean that the machine has become slower.
//
// Who may call: one thread. How it fails: it does not. Before the first measurement every prediction is 0, or what
// start_with() was told.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::engine {

// What the cost of a step depends on.
struct StepShape {
  std::uint32_t decode_rows = 0;
  std::uint32_t prefill_rows = 0;
  std::uint64_t decode_context = 0;   // the sum of the lengths of the decoding sequences
  std::uint64_t prefill_context = 0;  // for each row of a prompt the tokens before it, all added
  std::uint32_t draft_rows = 0;       // of decoding sequences, beside the first of each: drafts, and what is redone

  void add_decode(std::uint32_t position) {
    ++decode_rows;
    decode_context += position;
  }
  void add_prefill(std::uint32_t position, std::uint32_t rows) {
    prefill_rows += rows;
    prefill_context += std::uint64_t{rows} * position + std::uint64_t{rows} * (rows - 1) / 2;
  }
};

// The six numbers, in seconds.
struct StepCosts {
  double base = 0;
  double decode_row = 0;
  double prefill_row = 0;
  double decode_context = 0;   // for each token of context
  double prefill_context = 0;  // for each row and token of context
  double draft_row = 0;

  double seconds(const StepShape& shape) const;
  // Of computing `rows` tokens of a prompt at this position, without the base.
  double prefill_seconds(std::uint32_t position, std::uint32_t rows) const;
  // How many rows of a prompt at this position can be computed in so many seconds, without the base.
  std::uint32_t prefill_rows_within(double seconds, std::uint32_t position, std::uint32_t at_most) const;
};

// The numbers as one line of text, for the next server of the same model on the same machine, and back. `of`: what they
// belong to (model, device, threads), without line ends. Nothing if the line is of something else, or is no such line.
// `text` is replaced; if it has room for the line, nothing is allocated.
void to_text(const StepCosts& costs, std::string_view of, std::string& text);
std::optional<StepCosts> costs_from_text(std::string_view text, std::string_view of);

// The longest time of a step with prompts, in seconds, if none was given: twice a step that only decodes, at least 0.1.
double default_target(double decode_seconds);

class CostModel {
 public:
  void learn(const StepShape& shape, double seconds);
  // Before the first measurement: what another server has learned on this machine. It is the best guess until steps are
  // measured, and then as uncertain as any other first guess.
  void start_with(const StepCosts& costs);
  const StepCosts& costs() const { return costs_; }
  bool knows_anything() const { return measured_ > 0 || told_; }
  std::uint64_t measured() const { return measured_; }  // steps
  // 99 of 100 steps take at most this many times the predicted time. From 1 to 1.5.
  double lateness() const { return lateness_; }

 private:
  static constexpr std::size_t kNumbers = 6;
  using Vector = std::array<double, kNumbers>;

  void begin(const StepShape& shape, double seconds);
  void forget();

  StepCosts costs_;
  std::array<Vector, kNumbers> covariance_{};
  Vector prior_{};  // the standard deviation of each number before anything was measured
  Vector least_{};  // what each number is at least
  std::uint64_t measured_ = 0;
  bool told_ = false;  // start_with() was called
  double lateness_ = 1.1;
  int surprises_ = 0;  // steps in a row that took much longer (or, if negative, much less) than predicted
};

}  // namespace quire::engine

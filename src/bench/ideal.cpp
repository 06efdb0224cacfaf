#include "quire/bench/ideal.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace quire::bench {
namespace {

using engine::StepCosts;
using engine::StepShape;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

enum class Order : std::uint8_t { Arrival, Shortest };

// A request that has come and has not ended.
struct Running {
  const OfflineRequest* request = nullptr;
  double last = 0;             // when its last token came; before the first one, when the request came
  std::uint32_t position = 0;  // tokens computed
  std::uint32_t written = 0;   // tokens of the answer
  std::uint32_t rows = 0;      // in this step

  bool decodes() const { return written > 0; }
  std::uint32_t pending() const { return request->prompt - position; }
};

class Schedule {
 public:
  Schedule(const OfflineLoad& load, const StepCosts& costs, Order order, double limit)
      : load_(load), costs_(costs), order_(order), limit_(limit) {}

  LoadTimes run() {
    while (next_ < load_.requests.size() || !running_.empty()) {
      admit();
      if (running_.empty()) {
        time_ = load_.requests[next_].arrival;
        continue;
      }
      step();
    }
    return {.total = time_ - begin(),
            .first_token = percentiles_of(first_token_),
            .between_tokens = percentiles_of(between_tokens_)};
  }

 private:
  double begin() const { return load_.at_once != 0 || load_.requests.empty() ? 0 : load_.requests.front().arrival; }

  void admit() {
    while (next_ < load_.requests.size()) {
      const OfflineRequest& request = load_.requests[next_];
      const bool comes = load_.at_once != 0 ? running_.size() < load_.at_once : request.arrival <= time_;
      if (!comes) return;
      const double came = load_.at_once != 0 ? time_ : request.arrival;
      running_.push_back({.request = &request, .last = came, .position = request.cached});
      ++next_;
    }
  }

  // Whether another request computes the shared prefix of this one. The first in the order of arrival does.
  bool waits(const Running& one) const {
    if (one.position >= one.request->shared || shared_done_) return false;
    const auto first = std::ranges::find_if(running_, [](const Running& r) { return r.position < r.request->shared; });
    return &*first != &one;
  }

  StepShape plan() {
    StepShape shape;
    std::vector<Running*> prompts;
    for (Running& one : running_) {
      one.rows = 0;
      if (one.decodes()) {
        shape.add_decode(one.position);
        one.rows = 1;
      } else {
        if (shared_done_) one.position = std::max(one.position, one.request->shared);
        if (!waits(one)) prompts.push_back(&one);
      }
    }
    if (order_ == Order::Shortest) std::ranges::stable_sort(prompts, {}, [](const Running* r) { return r->pending(); });
    double left = shape.decode_rows == 0 ? kNoLimit : limit_ - costs_.seconds(shape);
    for (Running* one : prompts) {
      std::uint32_t rows = one->pending();
      if (left != kNoLimit) rows = costs_.prefill_rows_within(left, one->position, rows);
      if (shape.prefill_rows == 0) rows = std::max(rows, 1u);  // prompts always get on
      if (rows == 0) break;
      left -= costs_.prefill_seconds(one->position, rows);
      shape.add_prefill(one->position, rows);
      one->rows = rows;
    }
    return shape;
  }

  void step() {
    time_ += costs_.seconds(plan());
    for (Running& one : running_) {
      const bool decoded = one.decodes();
      one.position += one.rows;
      shared_done_ = shared_done_ || (one.request->shared > 0 && one.position >= one.request->shared);
      if (one.rows == 0 || (!decoded && one.pending() > 0)) continue;
      (decoded ? between_tokens_ : first_token_).push_back(static_cast<float>(time_ - one.last));
      one.last = time_;
      ++one.written;
    }
    std::erase_if(running_, [](const Running& one) { return one.written >= std::max(one.request->output, 1u); });
  }

  const OfflineLoad& load_;
  const StepCosts& costs_;
  Order order_;
  double limit_;
  std::size_t next_ = 0;
  double time_ = 0;
  bool shared_done_ = false;
  std::vector<Running> running_;  // in the order of arrival
  std::vector<float> first_token_, between_tokens_;
};

}  // namespace

LoadTimes ideal_of(const OfflineLoad& load, const StepCosts& costs, double target) {
  std::optional<LoadTimes> best;
  const auto smaller = [](Percentiles& a, const Percentiles& b) {
    a = {std::min(a.p50, b.p50), std::min(a.p95, b.p95), std::min(a.p99, b.p99)};
  };
  for (const double limit : {target, kNoLimit}) {
    for (const Order order : {Order::Arrival, Order::Shortest}) {
      const LoadTimes times = Schedule(load, costs, order, limit).run();
      if (limit == kNoLimit && times.between_tokens.p99 > target) continue;
      if (!best) best = times;
      best->total = std::min(best->total, times.total);
      smaller(best->first_token, times.first_token);
      smaller(best->between_tokens, times.between_tokens);
    }
  }
  return *best;
}

}  // namespace quire::bench

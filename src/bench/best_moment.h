// The best of several short measurements (moments), and the speed of the memory around it. On a shared machine the
// memory may be twice as fast in one second as in the next. So its speed is measured before and after each moment. A
// moment in which the speed did not change is preferred to one in which it did, whatever their rates.
//
//   BestMoment moments(look, team);
//   while (more) if (moments.beats([&] { return steps_in_a_second(); })) best = ...;
//   moments.read();
//
// Who may call: the thread that the team belongs to.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "quire/base/thread_team.h"

namespace quire::bench {

class BestMoment {
 public:
  // Measures the current speed of the memory in bytes per second, with the threads that compute. Empty: not measured.
  using Look = std::function<double(ThreadTeam& team)>;
  BestMoment(Look look, ThreadTeam& team) : look_(std::move(look)), team_(team) {}

  // `moment` runs the measurement and returns its rate (higher is better). Returns whether it is the best so far.
  template <typename Moment>
  bool beats(Moment moment) {
    const double before = look();
    const double rate = moment();
    return count(before, rate, look());
  }
  // The speed of the memory around the best moment, if it did not change during the moment.
  std::optional<double> read() const { return read_; }

 private:
  double look() const { return look_ ? look_(team_) : 0; }
  bool count(double before, double rate, double behind);

  Look look_;
  ThreadTeam& team_;
  std::optional<double> rate_, read_;
};

}  // namespace quire::bench

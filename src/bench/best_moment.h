// The best of some short measurements, and how fast the memory was around it. On a shared machine the memory is twice
// as fast in one second as in the next: it is looked at before and behind a moment, and one that began and ended in the
// same state comes before one that did not, whatever their rates.
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
  // Bytes of memory a second, just now, with the threads that compute; empty: nobody looks.
  using Look = std::function<double(ThreadTeam& team)>;
  BestMoment(Look look, ThreadTeam& team) : look_(std::move(look)), team_(team) {}

  // `moment` says how fast it went, in whatever is more if it is better. Whether it is the best so far.
  template <typename Moment>
  bool beats(Moment moment) {
    const double before = look();
    const double rate = moment();
    return count(before, rate, look());
  }
  // Of memory, around the best one, if it began and ended in the same state.
  std::optional<double> read() const { return read_; }

 private:
  double look() const { return look_ ? look_(team_) : 0; }
  bool count(double before, double rate, double behind);

  Look look_;
  ThreadTeam& team_;
  std::optional<double> rate_, read_;
};

}  // namespace quire::bench

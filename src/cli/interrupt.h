// Ctrl-C as a question that a loop asks, in place of the end of the program.
//
// Who may call: one Interrupt at a time, from the thread that made it. While it lives SIGINT is only noted, whichever
// thread the system lets notice it; afterwards it does what it did before. Where an Interrupt cannot be had, SIGINT
// stays as it is.
#pragma once

#include <csignal>

namespace quire::cli {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool asked() const;
  void forget();
  // Can be read from (poll) as long as it was asked for. A signal alone would be lost on who is about to wait.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
  struct sigaction before_ = {};
};

}  // namespace quire::cli

// Makes Ctrl-C a flag that a loop can check, instead of the end of the program.
//
// Who may call: the thread that created it; only one Interrupt may exist at a time.
// What holds: while the object lives, SIGINT only sets the flag, in whatever thread it arrives. A second one before
//   forget() ends the program, so that a long step cannot hold it. The destructor restores the former behaviour. If the
//   object cannot be set up, SIGINT keeps its behaviour.
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
  // Readable (for poll) while asked() is true. A loop that is about to wait would miss the signal alone.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
  struct sigaction before_ = {};
};

}  // namespace quire::cli

// A compiled PCRE2 pattern over UTF-8 with Unicode classes, used to cut text into words. JIT-compiled where the machine
// allows it.
//
// Who may call: a Regex does not change after compile(); any number of threads may use it at once, each with a Scratch
//   of its own.
// What holds: the lengths of the pieces that split() gives add up to the subject's; no piece is empty. \s and \S mean
//   Unicode's White_Space, as in Rust and Oniguruma, with which models' tokenizers are trained; PCRE2's own \s has
//   U+180E besides.
// How it fails: compile() with PCRE2's message; split() where a match takes more steps than a linear one could need.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire::text {

class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);

  // What a match needs to write to.
  class Scratch {
   public:
    Scratch();
    Scratch(Scratch&&) noexcept;
    ~Scratch();

   private:
    friend class Regex;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  // Cuts `subject`, which is well-formed UTF-8, into the pattern's matches and what lies between them, and appends the
  // end of each piece, counted from the subject's beginning plus `base`. The pattern sees nothing outside of `subject`.
  Result<void> split(std::string_view subject, std::uint32_t base, Scratch& scratch,
                     std::vector<std::uint32_t>& ends) const;

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::text

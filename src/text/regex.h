// A compiled PCRE2 pattern over UTF-8 with Unicode classes, used to split text into words. It is JIT-compiled if the
// machine allows it.
//
// Who may call: any number of threads at the same time, each with its own Scratch; nothing changes after compile().
// What holds: the lengths of the pieces of split() add up to the length of the subject; no piece is empty. \s and \S
//   mean Unicode's White_Space, as in Rust and Oniguruma, which tokenizers are trained with. (PCRE2's own \s also has
//   U+180E.)
// How it fails: compile() with PCRE2's message. split() if a match takes more steps than a linear one could need.
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

  // The scratch buffer of a match.
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

  // Splits `subject`, which is valid UTF-8, into the matches of the pattern and the text between them. Appends the end
  // of each piece: its offset in the subject plus `base`. The pattern sees nothing outside of `subject`.
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

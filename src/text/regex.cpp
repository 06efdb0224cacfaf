#include "quire/text/regex.h"

#include <fmt/format.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <pcre2.h>

#include "quire/base/check.h"
#include "quire/base/utf8.h"

namespace quire::text {
namespace {

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return fmt::format("PCRE2 error {}", code);
  return reinterpret_cast<const char*>(buffer);
}

// Replaces \s and \S, outside and inside of classes. An escaped backslash is skipped.
std::string with_unicode_space(std::string_view pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    ++i;
    if (pattern[i] == 's') {
      out += "\\p{White_Space}";
    } else if (pattern[i] == 'S') {
      out += "\\P{White_Space}";
    } else {
      out += '\\';
      out += pattern[i];
    }
  }
  return out;
}

// Enough for patterns that backtrack over a run of characters once, but far less than exponential backtracking takes.
std::uint32_t match_limit_for(std::size_t subject_bytes) {
  constexpr std::uint64_t kAtLeast = 10'000'000;
  const std::uint64_t limit = kAtLeast + 64 * static_cast<std::uint64_t>(subject_bytes);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

struct Regex::Impl {
  pcre2_code* code = nullptr;
  bool jit = false;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { pcre2_code_free(code); }
};

struct Regex::Scratch::Impl {
  // One pair of offsets, for the whole match. Groups are not used.
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);

  Impl() {
    QUIRE_CHECK(data != nullptr && context != nullptr, "out of memory");
    pcre2_set_heap_limit(context, 64 * 1024);  // KiB; only the interpreter uses the heap
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

Regex::Scratch::Scratch() : impl_(std::make_unique<Impl>()) {}
Regex::Scratch::Scratch(Scratch&&) noexcept = default;
Regex::Scratch::~Scratch() = default;

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  const std::string adapted = with_unicode_space(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto impl = std::make_unique<Impl>();
  impl->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(adapted.data()), adapted.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr);
  if (impl->code == nullptr) {
    return fail(fmt::format("the pattern '{}' does not compile: {} at {}", adapted, message_of(error), offset));
  }
  // Without the JIT (a kernel that forbids writable code, a rare processor) matching is slower but otherwise the same.
  impl->jit = pcre2_jit_compile(impl->code, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(impl));
}

Result<void> Regex::split(std::string_view subject, std::uint32_t base, Scratch& scratch,
                          std::vector<std::uint32_t>& ends) const {
  const auto* const bytes = reinterpret_cast<PCRE2_SPTR>(subject.data());
  pcre2_match_data* const data = scratch.impl_->data;
  pcre2_match_context* const context = scratch.impl_->context;
  const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(data);
  pcre2_set_match_limit(context, match_limit_for(subject.size()));

  const auto end_piece = [&](std::size_t end) { ends.push_back(base + static_cast<std::uint32_t>(end)); };
  std::size_t piece = 0;  // begin of the current piece
  std::size_t from = 0;   // where to look for the next match
  while (from < subject.size()) {
    int matched = PCRE2_ERROR_JIT_STACKLIMIT;
    if (impl_->jit) matched = pcre2_jit_match(impl_->code, bytes, subject.size(), from, 0, data, context);
    if (matched == PCRE2_ERROR_JIT_STACKLIMIT) {
      matched = pcre2_match(impl_->code, bytes, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context);
    }
    if (matched == PCRE2_ERROR_NOMATCH) break;
    if (matched < 0) return fail(fmt::format("text cannot be split into words: {}", message_of(matched)));
    const std::size_t begin = found[0];
    const std::size_t end = found[1];
    if (end <= begin) {  // an empty match is not a piece; continue after the next character
      from = begin < subject.size() ? begin + utf8_step(subject.substr(begin)).length : subject.size();
      continue;
    }
    if (begin > piece) end_piece(begin);
    end_piece(end);
    piece = from = end;
  }
  if (piece < subject.size()) end_piece(subject.size());
  return {};
}

}  // namespace quire::text

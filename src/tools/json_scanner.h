// Finds the end of a JSON object in text that comes piece by piece, and checks it on the way (RFC 8259, strict). It
// remembers where the members of the outer object are, and builds no values.
//
// Who may call: one thread at a time.
// What holds: each byte is looked at once. After Done the bytes taken are a well-formed object; after Bad no
//   continuation of the bytes before the last one with that byte is. Escapes of lone surrogates are taken, and text is
//   not checked to be UTF-8. Nesting is at most kMostDepth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace quire::tools {

class JsonScanner {
 public:
  static constexpr std::size_t kMostDepth = 64;
  enum class Status : std::uint8_t { More, Done, Bad };

  // The next byte. The first must be '{'.
  Status push(char c);

  // A member of the outer object, as byte offsets. Its key has its quotes. A member is added when its key has ended.
  struct Member {
    std::size_t key_begin = 0, key_end = 0;
    std::size_t value_begin = 0, value_end = 0;  // 0: not yet
  };
  std::span<const Member> members() const { return members_; }
  // Whether the last byte ended the key or the value of a member of the outer object, or began its value.
  bool changed() const { return changed_; }
  std::size_t size() const { return size_; }  // bytes taken

 private:
  enum class State : std::uint8_t {
    Begin,
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    After,
    String,
    Escape,
    Hex,
    Minus,
    Zero,
    Digits,
    Dot,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    Word,
  };
  Status value(char c);
  Status number(char c);
  Status after(char c);
  Status close(char c);
  void ended();

  State state_ = State::Begin;
  bool key_ = false;            // the string is a key
  std::uint8_t hex_ = 0;        // digits of \u that have come
  std::string_view word_ = {};  // what is left of true, false or null
  std::vector<bool> objects_;   // for each open bracket: whether it is an object
  std::vector<Member> members_;
  std::size_t size_ = 0;
  std::size_t string_begin_ = 0;
  bool changed_ = false;
};

}  // namespace quire::tools

#include "quire/tools/json_scanner.h"

namespace quire::tools {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

JsonScanner::Status JsonScanner::push(char c) {
  changed_ = false;
  ++size_;
  switch (state_) {
    case State::Begin:
      if (c != '{') return Status::Bad;
      objects_.push_back(true);
      state_ = State::KeyOrEnd;
      return Status::More;
    case State::KeyOrEnd:
      if (c == '}') return close(c);
      [[fallthrough]];
    case State::Key:
      if (is_space(c)) return Status::More;
      if (c != '"') return Status::Bad;
      key_ = true;
      string_begin_ = size_ - 1;
      state_ = State::String;
      return Status::More;
    case State::Colon:
      if (is_space(c)) return Status::More;
      if (c != ':') return Status::Bad;
      state_ = State::Value;
      return Status::More;
    case State::ValueOrEnd:
      if (c == ']') return close(c);
      [[fallthrough]];
    case State::Value: return is_space(c) ? Status::More : value(c);
    case State::After: return after(c);
    case State::String:
      if (c == '"') {
        if (!key_) {
          ended();
          state_ = State::After;
          return Status::More;
        }
        if (objects_.size() == 1) {
          members_.push_back({.key_begin = string_begin_, .key_end = size_});
          changed_ = true;
        }
        state_ = State::Colon;
      } else if (c == '\\') {
        state_ = State::Escape;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        return Status::Bad;
      }
      return Status::More;
    case State::Escape:
      state_ = c == 'u' ? State::Hex : State::String;
      hex_ = 0;
      return c == 'u' || std::string_view("\"\\/bfnrt").contains(c) ? Status::More : Status::Bad;
    case State::Hex:
      if (!is_hex(c)) return Status::Bad;
      if (++hex_ == 4) state_ = State::String;
      return Status::More;
    case State::Word:
      if (c != word_.front()) return Status::Bad;
      word_.remove_prefix(1);
      if (word_.empty()) {
        ended();
        state_ = State::After;
      }
      return Status::More;
    default: return number(c);
  }
}

// The first byte of a value.
JsonScanner::Status JsonScanner::value(char c) {
  if (objects_.size() == 1) {
    members_.back().value_begin = size_ - 1;
    changed_ = true;
  }
  switch (c) {
    case '{':
    case '[':
      if (objects_.size() == kMostDepth) return Status::Bad;
      objects_.push_back(c == '{');
      state_ = c == '{' ? State::KeyOrEnd : State::ValueOrEnd;
      return Status::More;
    case '"':
      key_ = false;
      state_ = State::String;
      return Status::More;
    case 't': word_ = "rue"; break;
    case 'f': word_ = "alse"; break;
    case 'n': word_ = "ull"; break;
    case '-': state_ = State::Minus; return Status::More;
    case '0': state_ = State::Zero; return Status::More;
    default: state_ = State::Digits; return is_digit(c) ? Status::More : Status::Bad;
  }
  state_ = State::Word;
  return Status::More;
}

JsonScanner::Status JsonScanner::number(char c) {
  const bool digit = is_digit(c);
  switch (state_) {
    case State::Minus: state_ = c == '0' ? State::Zero : State::Digits; return digit ? Status::More : Status::Bad;
    case State::Dot: state_ = State::Fraction; return digit ? Status::More : Status::Bad;
    case State::Exponent:
      state_ = digit ? State::ExponentDigits : State::ExponentSign;
      return digit || c == '+' || c == '-' ? Status::More : Status::Bad;
    case State::ExponentSign: state_ = State::ExponentDigits; return digit ? Status::More : Status::Bad;
    default: break;
  }
  if (digit && state_ != State::Zero) return Status::More;
  if (c == '.' && (state_ == State::Zero || state_ == State::Digits)) {
    state_ = State::Dot;
    return Status::More;
  }
  if ((c == 'e' || c == 'E') && state_ != State::ExponentDigits) {
    state_ = State::Exponent;
    return Status::More;
  }
  // The number ended before this byte.
  --size_;
  ended();
  ++size_;
  state_ = State::After;
  return after(c);
}

JsonScanner::Status JsonScanner::after(char c) {
  if (is_space(c)) return Status::More;
  if (c == ',') {
    state_ = objects_.back() ? State::Key : State::Value;
    return Status::More;
  }
  return c == (objects_.back() ? '}' : ']') ? close(c) : Status::Bad;
}

JsonScanner::Status JsonScanner::close(char c) {
  if (objects_.back() != (c == '}')) return Status::Bad;
  objects_.pop_back();
  if (objects_.empty()) return Status::Done;
  ended();
  state_ = State::After;
  return Status::More;
}

// A value has ended.
void JsonScanner::ended() {
  if (objects_.size() != 1) return;
  members_.back().value_end = size_;
  changed_ = true;
}

}  // namespace quire::tools

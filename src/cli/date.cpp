#include "quire/cli/date.h"

#include <cstddef>

namespace quire::cli {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads a text from the front and remembers whether everything was as expected.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool at(char c) const { return !rest_.empty() && rest_.front() == c; }
  bool take(char c) {
    if (!at(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) { good_ = take(c) && good_; }

  // Exactly `digits` digits.
  int number(std::size_t digits) {
    int value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      if (rest_.empty() || !is_digit(rest_.front())) {
        good_ = false;
        return 0;
      }
      value = value * 10 + (rest_.front() - '0');
      rest_.remove_prefix(1);
    }
    return value;
  }
  void skip_digits() {
    (void)number(1);
    while (!rest_.empty() && is_digit(rest_.front())) rest_.remove_prefix(1);
  }
  bool done() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace

std::optional<std::chrono::local_seconds> parse_date(std::string_view text) {
  using namespace std::chrono;
  Scanner scan(text);
  const int y = scan.number(4);
  scan.expect('-');
  const int m = scan.number(2);
  scan.expect('-');
  const int d = scan.number(2);
  int hour = 0, minute = 0, second = 0;
  if (scan.take('T') || scan.take(' ')) {
    hour = scan.number(2);
    scan.expect(':');
    minute = scan.number(2);
    if (scan.take(':')) {
      second = scan.number(2);
      if (scan.take('.')) scan.skip_digits();
    }
    if (scan.take('+') || scan.take('-')) {
      (void)scan.number(2);
      (void)scan.take(':');
      (void)scan.number(2);
    } else {
      (void)scan.take('Z');
    }
  }
  const year_month_day date{year{y}, month{static_cast<unsigned>(m)}, day{static_cast<unsigned>(d)}};
  if (!scan.done() || y < 1 || !date.ok() || hour > 23 || minute > 59 || second > 59) return std::nullopt;
  return local_seconds(local_days(date).time_since_epoch() + hours(hour) + minutes(minute) + seconds(second));
}

}  // namespace quire::cli

#include "quire/jinja/globals.h"

#include <algorithm>
#include <clocale>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"

namespace quire::jinja {
namespace {

// Jinja2's sandbox has the same limit.
constexpr Int kMaxRange = 100'000;

Int range_bound(const Value& value) {
  const Int bound = require_index(value);
  constexpr Int kFar = std::numeric_limits<std::int64_t>::max();
  if (bound > kFar || bound < -kFar) fail_limit("an integer is too large");
  return bound;
}

Value make_range(Runtime&, const Value&, const Arguments& arguments) {
  const auto& given = arguments.positional;
  if (!arguments.named.empty()) fail_operation("range() takes no keyword arguments");
  if (given.empty()) fail_operation("range expected at least 1 argument, got 0");
  if (given.size() > 3) fail_operation(fmt::format("range expected at most 3 arguments, got {}", given.size()));
  Range range;
  if (given.size() == 1) {
    range.stop = range_bound(given[0]);
  } else {
    range.start = range_bound(given[0]);
    range.stop = range_bound(given[1]);
    if (given.size() == 3) range.step = range_bound(given[2]);
  }
  if (range.step == 0) fail_operation("range() arg 3 must not be zero");
  if (range.length() > kMaxRange) {
    fail_operation(
        fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", int_to_string(kMaxRange)));
  }
  return std::make_shared<const Range>(range);
}

// The result of dict(...): from a dict or pairs, then from named arguments.
Dict dict_of(Runtime& runtime, std::string_view function, const Arguments& arguments) {
  Dict dict(runtime.meter);
  if (arguments.positional.size() > 1) {
    fail_operation(fmt::format("{} expected at most 1 argument, got {}", function, arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (const Dict* other = source.dict()) {
      runtime.meter.step(other->entries.size());
      for (const auto& [key, value] : other->entries) dict.set(key, value);
    } else {
      Cursor pairs(runtime, source);
      for (Value pair; pairs.next(pair);) {
        std::vector<Value> items = collect(runtime, pair).items;
        if (items.size() != 2) {
          fail_operation(fmt::format("dictionary update sequence element #{} has length {}; 2 is required",
                                     dict.entries.size(), items.size()));
        }
        require_hashable(items[0]);
        dict.set(std::move(items[0]), std::move(items[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(runtime.text(name, arguments.names), value);
  return dict;
}

Value make_dict_of(Runtime& runtime, const Value&, const Arguments& arguments) {
  return make_dict(dict_of(runtime, "dict", arguments));
}

Value make_namespace(Runtime& runtime, const Value&, const Arguments& arguments) {
  return runtime.make_namespace(dict_of(runtime, "namespace", arguments));
}

Value raise_exception(Runtime& runtime, const Value&, const Arguments& arguments) {
  const auto [message] = bind("raise_exception", arguments, {"message"}, 1);
  fail_raised(to_plain_text(runtime.meter, *message).text()->bytes);
}

Value strftime_now(Runtime& runtime, const Value&, const Arguments& arguments) {
  const auto [format] = bind("strftime_now", arguments, {"format"}, 1);
  if (format->text() == nullptr) {
    fail_operation(fmt::format("strftime() argument 1 must be str, not {}", format->type_name()));
  }
  return runtime.text(format_time(runtime.now, format->text()->bytes), format->text()->origin.worst());
}

constexpr Method kGlobals[] = {{"range", make_range},
                               {"dict", make_dict_of},
                               {"namespace", make_namespace},
                               {"raise_exception", raise_exception},
                               {"strftime_now", strftime_now}};

std::tm calendar(std::chrono::local_seconds time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  const std::chrono::local_days new_year(date.year() / std::chrono::January / 1);
  std::tm result{};
  result.tm_year = static_cast<int>(date.year()) - 1900;
  result.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  result.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  result.tm_hour = static_cast<int>(clock.hours().count());
  result.tm_min = static_cast<int>(clock.minutes().count());
  result.tm_sec = static_cast<int>(clock.seconds().count());
  result.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
  result.tm_yday = static_cast<int>((day - new_year).count());
  result.tm_isdst = -1;
  return result;
}

}  // namespace

const Method* find_global(std::string_view name) {
  const auto found = std::ranges::find(kGlobals, name, &Method::name);
  return found != std::end(kGlobals) ? &*found : nullptr;
}

std::string format_time(std::chrono::local_seconds time, const std::string& format) {
  if (format.find('\0') != std::string::npos) fail_operation("embedded null character");
  // This clock has no time zone and no fractions of a second. strftime would take the zone from the environment.
  std::string prepared;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      prepared += format[i];
    } else if (const char letter = format[++i]; letter == 'f') {
      prepared += "000000";
    } else if (letter == 's') {
      prepared += fmt::format("{}", time.time_since_epoch().count());
    } else if (letter != 'z' && letter != 'Z') {
      prepared += '%';
      prepared += letter;
    }
  }
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::tm fields = calendar(time);
  // One more character, so that size 0 means that the result did not fit, not that it is empty.
  prepared += '.';
  std::string out(prepared.size() * 16 + 64, '\0');
  const std::size_t size = strftime_l(out.data(), out.size(), prepared.c_str(), &fields, c_locale);
  if (size == 0) fail_limit("strftime_now: the result is too long");
  out.resize(size - 1);
  return out;
}

}  // namespace quire::jinja

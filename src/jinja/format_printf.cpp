// format_printf(): "..." % values.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/jinja/access.h"
#include "quire/jinja/format.h"
#include "quire/jinja/layout.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

class PrintfFormatter {
 public:
  PrintfFormatter(Runtime& runtime, const Text& format, const Value& values)
      : runtime_(runtime), rest_(format.bytes), values_(values), out_(runtime.meter), markup_(format.markup) {
    const Sequence* sequence = values.sequence();
    if (sequence != nullptr && sequence->is_tuple()) tuple_ = sequence;
  }

  Value run() {
    while (!rest_.empty()) {
      const std::size_t percent = std::min(rest_.find('%'), rest_.size());
      out_.append(rest_.substr(0, percent));
      rest_.remove_prefix(percent);
      if (!rest_.empty()) {
        runtime_.meter.step();
        rest_.remove_prefix(1);
        conversion();
      }
    }
    // What can be asked for an item, other than a tuple, passes for a mapping of which not all need be used.
    const bool mapping = tuple_ == nullptr && values_.text() == nullptr && sized(values_);
    const bool all_used = mapping || (tuple_ != nullptr ? next_ == tuple_->items.size() : next_ == 1);
    if (!all_used) fail_operation("not all arguments converted during string formatting");
    return out_.finish(markup_);
  }

 private:
  char take() {
    if (rest_.empty()) fail_operation("incomplete format");
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  Value next_value() {
    if (tuple_ == nullptr && next_ == 0) {
      ++next_;
      return values_;
    }
    if (tuple_ == nullptr || next_ == tuple_->items.size()) fail_operation("not enough arguments for format string");
    return tuple_->items[next_++];
  }

  Int next_number() {
    const std::optional<Int> number = as_index(next_value());
    if (!number) fail_operation("* wants int");
    return std::clamp<Int>(*number, -1'000'000'000, 1'000'000'000);
  }

  // %[(name)][flags][width][.precision][length]type, behind the percent sign.
  void conversion() {
    const bool is_named = rest_.starts_with('(');
    const Value named = is_named ? named_value() : Value();
    Layout layout;
    const bool zero = read_flags(layout);
    read_width(layout);
    read_precision(layout);
    while (rest_.starts_with('l') || rest_.starts_with('h') || rest_.starts_with('L')) take();
    layout.type = take();
    if (layout.type == '%') return out_.append("%");
    if (layout.align == 0) layout.align = '>';
    convert(layout, zero && layout.align != '<', is_named ? named : next_value());
  }

  // Whether numbers are filled up with zeros.
  bool read_flags(Layout& layout) {
    bool zero = false;
    while (!rest_.empty()) {
      switch (rest_.front()) {
        case '-': layout.align = '<'; break;
        case '+': layout.sign = '+'; break;
        case ' ': layout.sign = layout.sign == '+' ? '+' : ' '; break;
        case '#': layout.alternate = true; break;
        case '0': zero = true; break;
        default: return zero;
      }
      rest_.remove_prefix(1);
    }
    return zero;
  }

  void read_width(Layout& layout) {
    if (!rest_.starts_with('*')) {
      layout.width = read_number(rest_);
      return;
    }
    take();
    const Int width = next_number();
    if (width < 0) layout.align = '<';
    layout.width = static_cast<std::size_t>(width < 0 ? -width : width);
  }

  void read_precision(Layout& layout) {
    if (!rest_.starts_with('.')) return;
    take();
    const bool star = rest_.starts_with('*');
    if (star) take();
    layout.precision = checked_precision(star ? next_number() : static_cast<Int>(read_number(rest_)));
  }

  Value named_value() {
    const std::size_t close = rest_.find(')');
    if (close == std::string_view::npos) fail_operation("incomplete format key");
    const std::string_view name = rest_.substr(1, close - 1);
    rest_.remove_prefix(close + 1);
    if (values_.dict() == nullptr) fail_operation("format requires a mapping");
    const Value* found = values_.dict()->find(name);
    if (found == nullptr) fail_operation(quoted(name));
    return *found;
  }

  void convert(Layout layout, bool zero, const Value& value) {
    switch (layout.type) {
      case 's': return text(layout_text(runtime_, layout, to_plain_text(runtime_.meter, value).text()->bytes));
      case 'r':
      case 'a': return text(layout_text(runtime_, layout, repr(runtime_.meter, value)));
      case 'c': return text(layout_text(runtime_, layout, character(value)));
      default: break;
    }
    if (zero) {
      layout.align = '=';
      layout.fill = "0";
    }
    const std::string_view types = "diouxXeEfFgG";
    if (types.find(layout.type) == std::string_view::npos) {
      fail_operation(fmt::format("unsupported format character '{}'", layout.type));
    }
    const std::optional<Int> integer = as_index(value);
    if (!integer && value.real() == nullptr) {
      fail_operation(fmt::format("%{} format: a real number is required, not {}", layout.type, value.type_name()));
    }
    if (types.find(layout.type) < 6) {
      if (!integer && (layout.type == 'x' || layout.type == 'X' || layout.type == 'o')) {
        fail_operation(fmt::format("%{} format: an integer is required, not {}", layout.type, value.type_name()));
      }
      if (!integer && !(std::abs(*value.real()) < 0x1p126)) fail_operation("cannot convert float to integer");
      return text(layout_integer(runtime_, layout, integer ? *integer : static_cast<Int>(*value.real())));
    }
    text(layout_real(runtime_, layout, integer ? static_cast<double>(*integer) : *value.real()));
  }

  static std::string character(const Value& value) {
    if (const Text* text = value.text(); text != nullptr && text->length == 1) return text->bytes;
    const std::optional<Int> code = as_index(value);
    if (!code) fail_operation("%c requires int or char");
    if (*code < 0 || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) {
      fail_operation("%c arg not in range(0x110000)");
    }
    std::string out;
    append_utf8(out, static_cast<char32_t>(*code));
    return out;
  }

  void text(const Value& value) { out_.append(value.text()->bytes); }

  Runtime& runtime_;
  std::string_view rest_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  std::size_t next_ = 0;
  TextBuilder out_;
  bool markup_;
};

}  // namespace

Value format_printf(Runtime& runtime, const Text& format, const Value& values) {
  return PrintfFormatter(runtime, format, values).run();
}

}  // namespace quire::jinja

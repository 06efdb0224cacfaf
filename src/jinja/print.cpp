#include "quire/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/scope.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

// Namespaces may contain themselves, so the depth of values does not limit this recursion.
constexpr int kMaxPrintDepth = 2 * kMaxDepth;

void append_escape(std::string& out, char32_t c) {
  const auto code = static_cast<std::uint32_t>(c);
  const int digits = code < 0x100 ? 2 : (code < 0x10000 ? 4 : 8);
  out += '\\';
  out += digits == 2 ? 'x' : (digits == 4 ? 'u' : 'U');
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[(code >> (4 * i)) & 15];
}

class Printer {
 public:
  Printer(TextBuilder& out, Meter& meter) : out_(out), meter_(meter) {}

  void repr(const Value& value) {
    if (++depth_ > kMaxPrintDepth) fail_limit("a value that contains itself cannot be printed");
    meter_.step();
    std::visit([this](const auto& data) { print(data); }, value.data());
    --depth_;
  }

 private:
  void print(const None&) { out_.append("None"); }
  void own(std::string_view text) { out_.append(text, Source::own); }
  void print(bool value) { own(value ? "True" : "False"); }
  void print(Int value) { own(int_to_string(value)); }
  void print(double value) { own(float_to_string(value)); }
  void print(const Ref<const Text>& text) {
    meter_.scanned(2 * text->bytes.size());
    const std::string literal = quoted(text->bytes);
    // Escapes do not map to bytes of the text. So if any byte is from outside, the whole literal counts as outside.
    out_.append(text->markup ? fmt::format("Markup({})", literal) : literal, text->origin.worst());
  }
  void print(const Ref<const Sequence>& value) {
    switch (value->kind) {
      case SequenceKind::list: return print_items(*value, "[", "]");
      case SequenceKind::tuple: return print_items(*value, "(", value->items.size() == 1 ? ",)" : ")");
      case SequenceKind::keys: return print_items(*value, "dict_keys([", "])");
      case SequenceKind::values: return print_items(*value, "dict_values([", "])");
      case SequenceKind::items: return print_items(*value, "dict_items([", "])");
    }
  }
  void print(const Ref<const Dict>& dict) { print_dict(*dict); }
  void print(const Ref<const Range>& range) {
    own(fmt::format("range({}, {}", int_to_string(range->start), int_to_string(range->stop)));
    own(range->step != 1 ? fmt::format(", {})", int_to_string(range->step)) : ")");
  }
  // Python shows an address here. No template can depend on it.
  void print(const Ref<Iterator>& iterator) { own(fmt::format("<{} object>", iterator->type)); }
  void print(const Ref<Namespace>& value) {
    out_.append("<Namespace ");
    print_dict(value->attributes);
    out_.append(">");
  }
  void print(const Ref<Loop>& loop) { own(fmt::format("<LoopContext {}/{}>", loop->index0 + 1, loop->length())); }
  void print(const Ref<const Macro>& macro) { own(fmt::format("<Macro {}>", quoted(macro->name))); }
  void print(const Ref<const Function>& function) { own(fmt::format("<function {}>", function->name)); }
  void print(const Ref<const Undefined>&) { out_.append("Undefined"); }

  void print_items(const Sequence& value, std::string_view open, std::string_view close) {
    own(open);
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      if (i > 0) out_.append(", ");
      repr(value.items[i]);
    }
    own(close);
  }

  void print_dict(const Dict& dict) {
    out_.append("{");
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (!first) out_.append(", ");
      first = false;
      repr(key);
      out_.append(": ");
      repr(value);
    }
    out_.append("}");
  }

  TextBuilder& out_;
  Meter& meter_;
  int depth_ = 0;
};

}  // namespace

std::string int_to_string(Int value) { return fmt::format("{}", value); }

std::string float_to_string(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = scientific.find('e');
  std::string digits(scientific.substr(0, e));
  const std::string sign = digits.front() == '-' ? "-" : "";
  std::erase_if(digits, [](char c) { return c == '.' || c == '-'; });
  int exponent = 0;
  const std::size_t first = e + (scientific[e + 1] == '+' ? 2 : 1);
  std::from_chars(scientific.data() + first, scientific.data() + scientific.size(), exponent);

  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = digits.size() > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], fraction, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string quoted(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for_each_character(text, [&](char32_t c) {
    if (c == U'\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == U'\n') {
      out += "\\n";
    } else if (c == U'\r') {
      out += "\\r";
    } else if (c == U'\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_utf8(out, c);
    } else {
      append_escape(out, c);
    }
  });
  out += quote;
  return out;
}

void append_repr(TextBuilder& out, Meter& meter, const Value& value) { Printer(out, meter).repr(value); }

void append_str(TextBuilder& out, Meter& meter, const Value& value) {
  if (const Text* text = value.text()) {
    out.append(*text);
  } else if (value.undefined() == nullptr) {
    append_repr(out, meter, value);
  }
}

Value to_plain_text(Meter& meter, const Value& value) {
  const Text* text = value.text();
  if (text != nullptr && !text->markup) return value;
  TextBuilder out(meter);
  append_str(out, meter, value);
  return out.finish();
}

Value to_text(Meter& meter, const Value& value) {
  return value.text() != nullptr ? value : to_plain_text(meter, value);
}

Value to_repr(Meter& meter, const Value& value) {
  TextBuilder out(meter);
  append_repr(out, meter, value);
  return out.finish();
}

std::string repr(Meter& meter, const Value& value) {
  TextBuilder out(meter);
  append_repr(out, meter, value);
  return out.take();
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

void append_escaped(TextBuilder& out, const Text& text) {
  text.for_each_run([&out](std::string_view run, Source source) { out.append(escape_html(run), source); });
}

}  // namespace quire::jinja

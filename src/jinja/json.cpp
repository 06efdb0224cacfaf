// append_json(): the output of Python's json.dumps().
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(TextBuilder& out, Meter& meter, const JsonStyle& style) : out_(out), meter_(meter), style_(style) {}

  void write(const Value& value) {
    meter_.step();
    if (value.is_none()) {
      out_.append("null");
    } else if (const bool* flag = value.boolean()) {
      own(*flag ? "true" : "false");
    } else if (const Int* integer = value.integer()) {
      own(int_to_string(*integer));
    } else if (const double* real = value.real()) {
      own(number(*real));
    } else if (const Text* text = value.text()) {
      write_string(text->bytes, text->origin.worst());
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict);
    } else if (const Sequence* sequence = value.sequence(); sequence != nullptr && sequence->indexable()) {
      write_list(*sequence);
    } else {
      fail_operation(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    }
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_to_string(value);
  }

  static std::string escaped_unit(std::uint32_t unit) { return fmt::format("\\u{:04x}", unit); }

  void own(std::string_view text) { out_.append(text, Source::own); }

  // If any byte of the text is from outside, the whole string counts as outside, with its quotes.
  void write_string(std::string_view text, Source source) {
    meter_.scanned(text.size() / 4);
    out_.append("\"", source);
    std::size_t done = 0;  // bytes written so far; text without escapes is written in one piece
    for (std::size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      const bool plain = byte < 0x80 ? byte >= 0x20 && byte != '"' && byte != '\\' : !style_.ensure_ascii;
      const std::size_t size = plain ? 1 : character_bytes(text[at]);
      if (!plain) {
        meter_.step();
        out_.append(text.substr(done, at - done), source);
        out_.append(escape_of(text.substr(at, size)), source);
        done = at + size;
      }
      at += size;
    }
    out_.append(text.substr(done), source);
    out_.append("\"", source);
  }

  static std::string escape_of(std::string_view character) {
    switch (character.front()) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      case '\f': return "\\f";
      case '\b': return "\\b";
      default: break;
    }
    const auto code = static_cast<std::uint32_t>(utf8_decode(character));
    if (code < 0x10000) return escaped_unit(code);
    return escaped_unit(0xD800 + ((code - 0x10000) >> 10)) + escaped_unit(0xDC00 + ((code - 0x10000) & 0x3FF));
  }

  void new_line() {
    if (!style_.indent) return;
    out_.append("\n");
    for (int i = 0; i < level_; ++i) out_.append(*style_.indent, style_.source);
  }

  void write_list(const Sequence& list) {
    if (list.items.empty()) return out_.append("[]");
    out_.append("[");
    ++level_;
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator, style_.source);
      new_line();
      write(list.items[i]);
    }
    --level_;
    new_line();
    out_.append("]");
  }

  void write_dict(const Dict& dict) {
    if (dict.entries.empty()) return out_.append("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    entries.reserve(dict.entries.size());
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::ranges::stable_sort(entries,
                               [this](const auto* a, const auto* b) { return less(meter_, a->first, b->first); });
    }
    out_.append("{");
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator, style_.source);
      new_line();
      const Text* name = entries[i]->first.text();
      write_string(key(entries[i]->first), name != nullptr ? name->origin.worst() : Source::own);
      out_.append(style_.key_separator, style_.source);
      write(entries[i]->second);
    }
    --level_;
    new_line();
    out_.append("}");
  }

  static std::string key(const Value& value) {
    if (const Text* text = value.text()) return text->bytes;
    if (value.is_none()) return "null";
    if (const bool* flag = value.boolean()) return *flag ? "true" : "false";
    if (const Int* integer = value.integer()) return int_to_string(*integer);
    if (const double* real = value.real()) return number(*real);
    fail_operation(fmt::format("keys must be str, int, float, bool or None, not {}", value.type_name()));
  }

  TextBuilder& out_;
  Meter& meter_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

void append_json(TextBuilder& out, Meter& meter, const Value& value, const JsonStyle& style) {
  JsonWriter(out, meter, style).write(value);
}

}  // namespace quire::jinja

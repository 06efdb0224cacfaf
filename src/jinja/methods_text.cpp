// Methods of texts that search, split and join.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/jinja/access.h"
#include "quire/jinja/format.h"
#include "quire/jinja/methods.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

// Return the bytes and charge their cost: of searching the text, and of visiting each character.
std::string_view searched(Runtime& runtime, const Value& self) {
  runtime.meter.copied(self.text()->bytes.size());
  return self.text()->bytes;
}

std::string_view scanned(Runtime& runtime, const Value& self) {
  runtime.meter.scanned(self.text()->bytes.size());
  return self.text()->bytes;
}

// In the worst case, searching from the right takes time proportional to the product of both sizes.
std::size_t find_from_right(Runtime& runtime, std::string_view text, std::string_view part) {
  runtime.meter.step((text.size() / 64) * (part.size() / 32));
  return text.rfind(part);
}

std::size_t find_from(Runtime& runtime, bool from_right, std::string_view text, std::string_view part) {
  return from_right ? find_from_right(runtime, text, part) : find_part(text, part);
}

// A piece of `self`. `bytes` must point into its bytes.
Value piece(Runtime& runtime, const Value& self, std::string_view bytes) {
  const Text& text = *self.text();
  const std::size_t begin = bytes.empty() ? 0 : static_cast<std::size_t>(bytes.data() - text.bytes.data());
  return make_piece(runtime.meter, text, begin, bytes.size());
}

enum class Side { left, right, both };

std::string_view strip_characters(Meter& meter, std::string_view text, std::string_view characters, Side side) {
  const auto listed = [&meter, characters](std::string_view character) {
    meter.step(1 + characters.size() / 64);
    return characters.find(character) != kNowhere;
  };
  while (side != Side::right && !text.empty() && listed(first_character(text))) {
    text.remove_prefix(first_character(text).size());
  }
  while (side != Side::left && !text.empty() && listed(last_character(text))) {
    text.remove_suffix(last_character(text).size());
  }
  return text;
}

template <Side side>
Value strip_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [characters] = bind("strip", arguments, {""}, 0);
  std::string_view text = self.text()->bytes;
  if (characters != nullptr && !characters->is_none()) {
    const std::string& listed = require_text("strip", *characters);
    const std::string_view left = strip_characters(runtime.meter, text, listed, side);
    return piece(runtime, self, left);
  }
  if (side != Side::right) text = strip_left(text);
  if (side != Side::left) text = strip_right(text);
  runtime.meter.scanned(self.text()->bytes.size() - text.size());
  return piece(runtime, self, text);
}

// The part of a text between two positions, for methods like find(what, start, stop).
struct Window {
  std::string_view text;
  std::size_t first_byte = 0;
  bool empty_matches = true;  // false if start is after the end: then not even an empty text is found
};

Window window(Runtime& runtime, const Text& text, const Value* start, const Value* stop) {
  if (start == nullptr && stop == nullptr) return {text.bytes, 0, true};
  runtime.meter.scanned(text.bytes.size());
  const auto length = static_cast<Int>(text.length);
  const auto bound = [length](const Value* value, Int otherwise) {
    if (value == nullptr || value->is_none()) return otherwise;
    const Int index = require_index(*value);
    return std::max<Int>(index < 0 ? index + length : index, 0);
  };
  const Int first = bound(start, 0);
  const Int last = std::min(bound(stop, length), length);
  if (first > last) return {{}, 0, false};
  const std::string_view bytes = text.bytes;
  const std::size_t begin = byte_of_character(bytes, static_cast<std::size_t>(first));
  const std::size_t size = byte_of_character(bytes.substr(begin), static_cast<std::size_t>(last - first));
  return {bytes.substr(begin, size), begin, true};
}

template <bool from_right>
Int position_of(Runtime& runtime, std::string_view function, const Value& self, const Arguments& arguments) {
  const auto [what, start, stop] = bind(function, arguments, {"", "", ""}, 1);
  const std::string& wanted = require_text(function, *what);
  searched(runtime, self);
  const Window part = window(runtime, *self.text(), start, stop);
  if (!part.empty_matches) return -1;
  const std::size_t at = find_from(runtime, from_right, part.text, wanted);
  if (at == kNowhere) return -1;
  return static_cast<Int>(count_characters(std::string_view(self.text()->bytes).substr(0, part.first_byte + at)));
}

template <bool from_right>
Value find_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return position_of<from_right>(runtime, from_right ? "rfind" : "find", self, arguments);
}

template <bool from_right>
Value index_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const Int at = position_of<from_right>(runtime, from_right ? "rindex" : "index", self, arguments);
  if (at < 0) fail_operation("substring not found");
  return at;
}

Value count_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [what, start, stop] = bind("count", arguments, {"", "", ""}, 1);
  const std::string& wanted = require_text("count", *what);
  searched(runtime, self);
  const Window part = window(runtime, *self.text(), start, stop);
  if (!part.empty_matches) return 0;
  if (wanted.empty()) return count_characters(part.text) + 1;
  Int count = 0;
  for (std::size_t at = 0; (at = find_part(part.text, wanted, at)) != kNowhere; at += wanted.size()) ++count;
  return count;
}

template <bool at_start>
Value has_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  constexpr std::string_view kName = at_start ? "startswith" : "endswith";
  const auto [affix, start, stop] = bind(kName, arguments, {"", "", ""}, 1);
  const Window part = window(runtime, *self.text(), start, stop);
  const auto matches = [&](const Value& value) {
    const std::string& wanted = require_text(kName, value);
    return part.empty_matches && (at_start ? part.text.starts_with(wanted) : part.text.ends_with(wanted));
  };
  const Sequence* several = affix->sequence();
  if (several == nullptr || !several->is_tuple()) {
    if (affix->text() == nullptr) {
      fail_operation(fmt::format("{} first arg must be str or a tuple of str, not {}", kName, affix->type_name()));
    }
    return matches(*affix);
  }
  runtime.meter.step(several->items.size());
  return std::ranges::any_of(several->items, matches);
}

Value replace_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [old_text, new_text, limit] = bind("replace", arguments, {"", "", ""}, 2);
  require_text("replace", *new_text);
  return replace_all(runtime, *self.text(), require_text("replace", *old_text), *new_text->text(),
                     limit != nullptr ? require_index(*limit) : -1);
}

Value remove_prefix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [prefix] = bind("removeprefix", arguments, {""}, 1);
  std::string_view text = self.text()->bytes;
  const std::string& wanted = require_text("removeprefix", *prefix);
  if (text.starts_with(wanted)) text.remove_prefix(wanted.size());
  return piece(runtime, self, text);
}

Value remove_suffix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [suffix] = bind("removesuffix", arguments, {""}, 1);
  std::string_view text = self.text()->bytes;
  const std::string& wanted = require_text("removesuffix", *suffix);
  if (text.ends_with(wanted)) text.remove_suffix(wanted.size());
  return piece(runtime, self, text);
}

// Splits at white space or at `separator`, at most `limit` times, from one end.
std::vector<std::string_view> split_at_space(Meter& meter, std::string_view text, Int limit, bool from_right) {
  std::vector<std::string_view> parts;
  while (true) {
    meter.step();
    text = from_right ? strip_right(text) : strip_left(text);
    if (text.empty()) return parts;
    if (limit-- == 0) {
      parts.push_back(text);  // with the white space at its other end
      return parts;
    }
    std::size_t size = 0;
    while (size < text.size()) {
      const std::string_view rest = from_right ? text.substr(0, text.size() - size) : text.substr(size);
      const std::string_view character = from_right ? last_character(rest) : first_character(rest);
      if (is_space(utf8_decode(character))) break;
      size += character.size();
    }
    parts.push_back(from_right ? text.substr(text.size() - size) : text.substr(0, size));
    from_right ? text.remove_suffix(size) : text.remove_prefix(size);
  }
}

std::vector<std::string_view> split_at(Runtime& runtime, std::string_view text, std::string_view separator, Int limit,
                                       bool from_right) {
  std::vector<std::string_view> parts;
  while (limit-- != 0) {
    runtime.meter.step();
    const std::size_t at = find_from(runtime, from_right, text, separator);
    if (at == kNowhere) break;
    parts.push_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

Value list_of(Runtime& runtime, const Value& self, const std::vector<std::string_view>& parts) {
  ListBuilder out(runtime.meter);
  for (const std::string_view part : parts) out.push(piece(runtime, self, part));
  return out.finish();
}

template <bool from_right>
Value split_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [separator, maximum] = bind(from_right ? "rsplit" : "split", arguments, {"sep", "maxsplit"}, 0);
  const Int limit = maximum != nullptr ? require_index(*maximum) : -1;
  const std::string_view text = searched(runtime, self);
  std::vector<std::string_view> parts;
  if (separator == nullptr || separator->is_none()) {
    runtime.meter.scanned(text.size());
    parts = split_at_space(runtime.meter, text, limit < 0 ? -1 : limit, from_right);
  } else {
    const std::string& at = require_text("split", *separator);
    if (at.empty()) fail_operation("empty separator");
    parts = split_at(runtime, text, at, limit < 0 ? -1 : limit, from_right);
  }
  if (from_right) std::ranges::reverse(parts);
  return list_of(runtime, self, parts);
}

Value split_lines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [keep] = bind("splitlines", arguments, {"keepends"}, 0);
  return list_of(runtime, self, lines_of(runtime.meter, scanned(runtime, self), keep != nullptr && truthy(*keep)));
}

template <bool from_right>
Value partition_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [separator] = bind(from_right ? "rpartition" : "partition", arguments, {""}, 1);
  const std::string& at = require_text("partition", *separator);
  if (at.empty()) fail_operation("empty separator");
  const std::string_view text = searched(runtime, self);
  const std::size_t found = find_from(runtime, from_right, text, at);
  std::string_view before = text;
  std::string_view middle;
  std::string_view behind;
  if (found != kNowhere) {
    before = text.substr(0, found);
    middle = text.substr(found, at.size());
    behind = text.substr(found + at.size());
  } else if (from_right) {
    std::swap(before, behind);
  }
  return make_tuple(runtime.meter,
                    {piece(runtime, self, before), piece(runtime, self, middle), piece(runtime, self, behind)});
}

Value join_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const auto [items] = bind("join", arguments, {""}, 1);
  if (!iterable(*items)) fail_operation("can only join an iterable");
  TextBuilder out(runtime.meter);
  Cursor cursor(runtime, *items);
  Int index = 0;
  for (Value item; cursor.next(item); ++index) {
    if (item.text() == nullptr) {
      fail_operation(
          fmt::format("sequence item {}: expected str instance, {} found", int_to_string(index), item.type_name()));
    }
    if (index > 0) out.append(*self.text());
    out.append(*item.text());
  }
  return out.finish(self.text()->markup);
}

Value format_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return format_braces(runtime, *self.text(), arguments);
}

constexpr Method kMethods[] = {{"strip", strip_text<Side::both>},
                               {"lstrip", strip_text<Side::left>},
                               {"rstrip", strip_text<Side::right>},
                               {"split", split_text<false>},
                               {"rsplit", split_text<true>},
                               {"splitlines", split_lines},
                               {"partition", partition_text<false>},
                               {"rpartition", partition_text<true>},
                               {"startswith", has_affix<true>},
                               {"endswith", has_affix<false>},
                               {"find", find_text<false>},
                               {"rfind", find_text<true>},
                               {"index", index_text<false>},
                               {"rindex", index_text<true>},
                               {"count", count_text},
                               {"replace", replace_text},
                               {"removeprefix", remove_prefix},
                               {"removesuffix", remove_suffix},
                               {"join", join_text},
                               {"format", format_text}};

}  // namespace

std::span<const Method> text_methods() { return kMethods; }

Value replace_all(Runtime& runtime, const Text& text, std::string_view old_text, const Text& new_text, Int limit) {
  runtime.meter.copied(text.bytes.size());
  const std::string_view bytes = text.bytes;
  std::size_t done = 0;
  TextBuilder out(runtime.meter);
  if (limit < 0) limit = std::numeric_limits<std::int64_t>::max();
  // An empty text is found before every character and at the end.
  while (limit > 0) {
    const std::size_t at = find_part(bytes, old_text, done);
    if (at == kNowhere) break;
    runtime.meter.step();
    out.append(text, done, at - done);
    out.append(new_text);
    done = at + old_text.size();
    --limit;
    if (!old_text.empty()) continue;
    if (done == bytes.size()) break;
    const std::size_t size = character_bytes(bytes[done]);
    out.append(text, done, size);
    done += size;
  }
  out.append(text, done, bytes.size() - done);
  return out.finish(text.markup);
}

std::vector<std::string_view> lines_of(Meter& meter, std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    meter.step();
    std::size_t size = 0;
    std::size_t end = 0;
    while (size < text.size() && end == 0) {
      const std::string_view character = first_character(text.substr(size));
      if (is_line_break(utf8_decode(character))) {
        end = text.substr(size).starts_with("\r\n") ? 2 : character.size();
      } else {
        size += character.size();
      }
    }
    lines.push_back(text.substr(0, keep_ends ? size + end : size));
    text.remove_prefix(size + end);
  }
  return lines;
}

}  // namespace quire::jinja

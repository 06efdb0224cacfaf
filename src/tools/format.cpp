#include "quire/tools/format.h"

#include <algorithm>
#include <array>

namespace quire::tools {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

void add(std::vector<std::string_view>& to, std::string_view mark) {
  if (!mark.empty() && std::ranges::find(to, mark) == to.end()) to.push_back(mark);
}

}  // namespace

std::string numbered_id(std::string_view numbered, std::string_view name, std::size_t number) {
  return std::string(numbered).append(name).append(":").append(std::to_string(number));
}

std::string_view trigger(const Shape& shape) {
  const Part& first = shape.begin.empty() ? shape.call.front() : shape.begin.front();
  return first.kind == Part::Kind::Object ? "{" : first.text;
}

std::vector<std::string_view> marks(const Format* format, const Reasoning* reasoning) {
  std::vector<std::string_view> all;
  if (format != nullptr) {
    for (const Shape& shape : format->shapes) {
      for (const std::span<const Part> parts : std::array{shape.begin, shape.call, shape.between, shape.end}) {
        for (const Part& part : parts) add(all, part.text);
      }
      for (const std::string_view tag : {shape.tags.open, shape.tags.middle, shape.tags.close}) add(all, tag);
    }
    for (const std::string_view text : format->silent) add(all, text);
  }
  if (reasoning != nullptr) {
    add(all, reasoning->begin);
    add(all, reasoning->end);
    for (const std::string_view text : reasoning->silent) add(all, text);
  }
  return all;
}

std::string_view header(const Format* format, const Reasoning* reasoning) {
  if (format != nullptr && !format->header.empty()) return format->header;
  return reasoning != nullptr ? reasoning->header : std::string_view();
}

std::string primer(const Format* format, const Reasoning* reasoning, std::string_view prompt) {
  const std::size_t last = prompt.find_last_not_of(kSpaces);
  const std::string_view trimmed = last == std::string_view::npos ? std::string_view() : prompt.substr(0, last + 1);
  if (reasoning != nullptr && trimmed.ends_with(reasoning->begin)) return std::string(reasoning->begin);
  const std::string_view begun = header(format, reasoning);
  return std::string(prompt.ends_with(begun) ? begun : std::string_view());
}

}  // namespace quire::tools

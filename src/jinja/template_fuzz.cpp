// Renders any bytes as a template, with one conversation and the default limits. Parsing and rendering always end, with
// a text or with one line of error. The origin of text is never lost: every text of the conversation has a mark that no
// template can spell, and no mark may appear in the part that the rendering calls the template's own.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "quire/base/check.h"
#include "quire/jinja/template.h"

namespace {

const boost::json::object& variables() {
  static const boost::json::value kVariables = boost::json::parse(R"({
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "Wetter in Köln? 😀"}, {"type": "image"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "call_0001", "type": "function",
        "function": {"name": "weather", "arguments": {"city": "Köln", "days": 3, "units": ["c", null, true, 1.5]}}}]},
      {"role": "tool", "tool_call_id": "call_0001", "content": "{\"t\": 20}"},
      {"role": "assistant", "content": "<think>\nwarm\n</think>\n\n20 °C"}
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "The weather of a city",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 7, "x": -2.5, "s": "a,b;c"
  })");
  return kVariables.get_object();
}

void check(const quire::jinja::TemplateError& error) {
  QUIRE_CHECK(error.line > 0 && error.message.starts_with("line "), "every failure says where");
  QUIRE_CHECK(error.message.find('\n') == std::string::npos, "a message is one line");
}

// U+E000, in every text of the variables.
constexpr std::string_view kMark = "\xEE\x80\x80";

boost::json::value with_marks(const boost::json::value& value) {
  if (value.is_string()) return boost::json::value(std::string(value.get_string()) + std::string(kMark));
  if (value.is_array()) {
    boost::json::array out;
    for (const boost::json::value& item : value.get_array()) out.push_back(with_marks(item));
    return out;
  }
  if (!value.is_object()) return value;
  boost::json::object out;
  for (const auto& [key, item] : value.get_object()) {
    // Templates branch on these values.
    out[key] = key == "role" || key == "type" ? item : with_marks(item);
  }
  // A key with a mark too. The other keys stay, because templates look them up.
  out[kMark] = kMark;
  return out;
}

void check(const quire::jinja::Rendered& rendered, bool marked) {
  const std::string_view text = rendered.text;
  QUIRE_CHECK(text.size() <= quire::jinja::RenderOptions().max_output_bytes, "the output is within its limit");
  std::size_t done = 0;
  for (const quire::TextRange& range : rendered.outside) {
    QUIRE_CHECK((done == 0 || done < range.begin) && range.begin < range.end && range.end <= text.size(),
                "ranges are sorted, not empty and apart");
    QUIRE_CHECK(!marked || text.substr(done, range.begin - done).find(kMark) == std::string_view::npos,
                "no mark is the template's");
    done = range.end;
  }
  QUIRE_CHECK(!marked || text.substr(done).find(kMark) == std::string_view::npos, "no mark is the template's");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = quire::jinja::Template::parse(source);
  if (!parsed) {
    check(parsed.error());
    return 0;
  }
  // An escape could spell the mark.
  const bool may_spell = source.find('\\') != std::string_view::npos || source.find('\xEE') != std::string_view::npos;
  static const boost::json::value kMarked = with_marks(boost::json::value(variables()));
  const auto rendered = parsed->render(may_spell ? variables() : kMarked.get_object());
  if (!rendered) {
    check(rendered.error());
  } else {
    check(*rendered, !may_spell);
  }
  return 0;
}

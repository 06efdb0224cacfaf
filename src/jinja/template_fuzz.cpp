// Any bytes as a template, rendered over one conversation at the default limits: whatever they are, parsing and
// rendering end, with a text or with one line of reasons.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = quire::jinja::Template::parse(source);
  if (!parsed) {
    check(parsed.error());
    return 0;
  }
  const auto rendered = parsed->render(variables());
  if (!rendered) {
    check(rendered.error());
  } else {
    QUIRE_CHECK(rendered->size() <= quire::jinja::RenderOptions().max_output_bytes, "the output is within its limit");
  }
  return 0;
}

#include "quire/cli/render.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <boost/json/object.hpp>
#include <boost/json/stream_parser.hpp>
#include <boost/system/error_code.hpp>
#include <fmt/format.h>

#include "quire/cli/input.h"
#include "quire/cli/printable.h"
#include "quire/gguf/gguf.h"
#include "quire/jinja/template.h"
#include "quire/text/vocabulary.h"

namespace quire::cli {

namespace {

namespace json = boost::json;

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

std::string place_in(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t break_at = before.rfind('\n');
  const std::size_t column = at - (break_at == std::string_view::npos ? 0 : break_at + 1) + 1;
  return fmt::format("line {}, column {}", line, column);
}

Result<json::value> parse_json(std::string_view text, const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  json::parse_options options;
  options.max_depth = 128;  // schemas of tools are nested
  json::stream_parser parser({}, options);
  boost::system::error_code error;
  const std::size_t parsed = parser.write_some(text, error);
  if (!error && parsed < text.size()) {
    return fail(fmt::format("{}: {}: something follows the JSON value", name, place_in(text, parsed)));
  }
  if (!error) parser.finish(error);
  if (error) return fail(fmt::format("{}: {}: not JSON: {}", name, place_in(text, parsed), error.message()));
  return parser.release();
}

// The variables of the template that are in the messages file.
Result<json::object> read_variables(const std::string& path) {
  const auto text = read_input(path, kMaxMessagesBytes);
  if (!text) return std::unexpected(text.error());
  const std::string name = input_name(path);
  auto value = parse_json(*text, name);
  if (!value) return std::unexpected(value.error());
  json::object variables;
  if (value->is_object()) {
    variables = std::move(value->as_object());
  } else if (value->is_array()) {
    variables["messages"] = std::move(*value);
  } else {
    return fail(fmt::format("{}: is neither an object with \"messages\" nor an array of messages", name));
  }
  const json::value* messages = variables.if_contains("messages");
  if (messages == nullptr) return fail(fmt::format("{}: has no \"messages\"", name));
  if (!messages->is_array()) return fail(fmt::format("{}: \"messages\" is not an array", name));
  return variables;
}

// Adds the model's BOS and EOS, unless the conversation gives its own.
Result<void> add_special_tokens(const gguf::File& file, json::object& variables) {
  constexpr std::pair<std::string_view, text::TokenId text::Vocabulary::*> kTokens[] = {
      {"bos_token", &text::Vocabulary::bos},
      {"eos_token", &text::Vocabulary::eos},
  };
  if (variables.contains("bos_token") && variables.contains("eos_token")) return {};
  const auto vocabulary = text::read_vocabulary(file);
  if (!vocabulary) return std::unexpected(vocabulary.error());
  for (const auto& [name, member] : kTokens) {
    const text::TokenId id = *vocabulary.*member;
    if (id != text::kNoToken && !variables.contains(name)) {
      variables[name] = vocabulary->tokens[static_cast<std::size_t>(id)];
    }
  }
  return {};
}

struct Source {
  std::string name;  // for errors
  std::string text;
};

Result<Source> read_template(const RenderCommandOptions& options, json::object& variables) {
  if (!options.template_path.empty()) {
    auto text = read_input(options.template_path, jinja::Template::kMaxSourceBytes);
    if (!text) return std::unexpected(text.error());
    return Source{input_name(options.template_path), std::move(*text)};
  }
  const auto file = gguf::File::open(options.model);
  if (!file) return std::unexpected(file.error());
  const auto text = file->get<std::string_view>(kTemplateKey);
  if (!text) return std::unexpected(text.error());
  if (auto ok = add_special_tokens(*file, variables); !ok) return std::unexpected(ok.error());
  return Source{fmt::format("{}: metadata '{}'", input_name(options.model), kTemplateKey), std::string(*text)};
}

}  // namespace

Result<std::string> render(const RenderCommandOptions& options, const Style& style) {
  auto variables = read_variables(options.messages);
  if (!variables) return std::unexpected(variables.error());
  const auto source = read_template(options, *variables);
  if (!source) return std::unexpected(source.error());

  if (options.add_generation_prompt) (*variables)["add_generation_prompt"] = true;
  // Hugging Face's transformers always defines these variables.
  variables->emplace("add_generation_prompt", false);
  variables->emplace("tools", nullptr);
  variables->emplace("documents", nullptr);

  const auto parsed = jinja::Template::parse(source->text);
  if (!parsed) return fail(fmt::format("{}: {}", source->name, parsed.error().message));
  auto rendered = parsed->render(*variables, {.now = options.now.value_or(jinja::local_now())});
  if (!rendered) return fail(fmt::format("{}: {}", source->name, rendered.error().message));
  if (options.json) return json_line(json::object{{"text", rendered->text}});
  return style.terminal ? printable(rendered->text, {.lines = true}) : std::move(rendered->text);
}

}  // namespace quire::cli

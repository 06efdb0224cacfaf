#include "quire/cli/render.h"

#include <string_view>
#include <utility>

#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "quire/cli/chat_file.h"
#include "quire/cli/input.h"
#include "quire/cli/printable.h"
#include "quire/gguf/gguf.h"
#include "quire/jinja/template.h"
#include "quire/text/vocabulary.h"

namespace quire::cli {

namespace {

namespace json = boost::json;

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

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

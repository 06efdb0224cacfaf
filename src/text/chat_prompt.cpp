#include "quire/text/chat_prompt.h"

#include <optional>
#include <string_view>
#include <utility>

#include <boost/json/value.hpp>
#include <fmt/format.h>

namespace quire::text {

namespace {

namespace json = boost::json;

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

// The trusted variables. Templates build control tokens from roles ("<|" + role + "|>").
constexpr std::string_view kOwn[] = {"bos_token", "eos_token", "unk_token", "pad_token", "messages[].role"};

}  // namespace

Result<ChatPrompt> ChatPrompt::create(const gguf::File& file, const Tokenizer& tokenizer) {
  if (!file.has(kTemplateKey)) return fail(fmt::format("{}: the model has no chat template", file.path()));
  const auto source = file.get<std::string_view>(kTemplateKey);
  if (!source) return std::unexpected(source.error());
  return create(*source, fmt::format("{}: metadata '{}'", file.path(), kTemplateKey), tokenizer);
}

Result<ChatPrompt> ChatPrompt::create(std::string_view source, const std::string& name, const Tokenizer& tokenizer) {
  auto parsed = jinja::Template::parse(source);
  if (!parsed) return fail(fmt::format("{}: {}", name, parsed.error().message));
  return ChatPrompt(std::move(*parsed), tokenizer);
}

void ChatPrompt::set_defaults(json::object& variables) const {
  const std::pair<std::string_view, std::optional<TokenId>> tokens[] = {{"bos_token", tokenizer_->bos()},
                                                                        {"eos_token", tokenizer_->eos()},
                                                                        {"unk_token", tokenizer_->unk()},
                                                                        {"pad_token", tokenizer_->pad()}};
  for (const auto& [name, id] : tokens) {
    if (id) variables.emplace(name, tokenizer_->spelling(*id));
  }
  // Hugging Face's transformers always defines these variables.
  variables.emplace("add_generation_prompt", false);
  variables.emplace("tools", nullptr);
  variables.emplace("documents", nullptr);
}

Result<ChatPrompt::Rendered> ChatPrompt::render(json::object variables, std::chrono::local_seconds now,
                                                std::uint64_t max_steps) const {
  set_defaults(variables);
  auto rendered = template_.render(variables, {.now = now, .max_steps = max_steps, .own = kOwn});
  if (rendered) return Rendered{std::move(rendered->text), std::move(rendered->outside)};
  const jinja::TemplateError& error = rendered.error();
  return fail(error.kind == jinja::TemplateError::Kind::raised
                  ? fmt::format("the chat template refuses: {}", error.raised)
                  : fmt::format("the chat template fails: {}", error.message));
}

Result<std::vector<TokenId>> ChatPrompt::encode(json::object variables, std::chrono::local_seconds now) const {
  const auto rendered = render(std::move(variables), now);
  if (!rendered) return std::unexpected(rendered.error());
  // The template writes BOS itself if the model wants it.
  return tokenizer_->encode(rendered->text,
                            {.add_special = false, .parse_special = true, .literal = rendered->literal});
}

}  // namespace quire::text

#include "quire/text/chat_prompt.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/base/utf8.h"

namespace quire::text {

namespace {

namespace json = boost::json;

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

// Two characters that Unicode promises never to give a meaning: U+FDD0 and U+FDD1.
constexpr std::string_view kBegin = "\xEF\xB7\x90";
constexpr std::string_view kEnd = "\xEF\xB7\x91";

// What templates trim from a message; the marks stand inside of it, so that trimming works as without them.
constexpr std::string_view kSpace = " \t\n\r\f\v";

// Calls `change` for the text of every message.
void for_each_text(json::object& variables, const std::function<void(json::string&)>& change) {
  json::value* const messages = variables.if_contains("messages");
  if (messages == nullptr || !messages->is_array()) return;
  for (json::value& message : messages->as_array()) {
    if (!message.is_object()) continue;
    json::value* const content = message.as_object().if_contains("content");
    if (content == nullptr) continue;
    if (content->is_string()) change(content->as_string());
    if (!content->is_array()) continue;
    for (json::value& part : content->as_array()) {
      if (!part.is_object()) continue;
      json::value* const text = part.as_object().if_contains("text");
      if (text != nullptr && text->is_string()) change(text->as_string());
    }
  }
}

// Well-formed, and without the marks' characters.
std::string cleaned(std::string_view text) {
  std::string repaired;
  append_repaired(repaired, text);
  for (const std::string_view mark : {kBegin, kEnd}) {
    for (std::size_t at = 0; (at = repaired.find(mark, at)) != std::string::npos; at += kReplacementCharacter.size()) {
      repaired.replace(at, mark.size(), kReplacementCharacter);
    }
  }
  return repaired;
}

std::string marked(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return std::string(text);
  const std::size_t end = text.find_last_not_of(kSpace) + 1;
  std::string out(text.substr(0, begin));
  out.append(kBegin).append(text.substr(begin, end - begin)).append(kEnd).append(text.substr(end));
  return out;
}

// Takes the marks out and says where they stood; nothing if they are not pairs.
std::optional<ChatPrompt::Rendered> unmarked(std::string_view text) {
  ChatPrompt::Rendered out;
  out.text.reserve(text.size());
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find(kBegin, at), text.find(kEnd, at));
    out.text += text.substr(at, mark - at);
    if (mark == std::string_view::npos) break;
    if ((text.substr(mark, kBegin.size()) == kBegin) == inside) return std::nullopt;
    inside = !inside;
    if (inside) {
      out.literal.push_back({out.text.size(), out.text.size()});
    } else {
      out.literal.back().end = out.text.size();
    }
    at = mark + kBegin.size();
  }
  if (inside) return std::nullopt;
  return out;
}

}  // namespace

Result<ChatPrompt> ChatPrompt::create(const gguf::File& file, const Tokenizer& tokenizer) {
  if (!file.has(kTemplateKey)) return fail(fmt::format("{}: the model has no chat template", file.path()));
  const auto source = file.get<std::string_view>(kTemplateKey);
  if (!source) return std::unexpected(source.error());
  return create(*source, fmt::format("{}: metadata '{}'", file.path(), kTemplateKey), tokenizer);
}

Result<ChatPrompt> ChatPrompt::create(std::string_view source, std::string name, const Tokenizer& tokenizer) {
  auto parsed = jinja::Template::parse(source);
  if (!parsed) return fail(fmt::format("{}: {}", name, parsed.error().message));
  return ChatPrompt(std::move(*parsed), std::move(name), tokenizer);
}

void ChatPrompt::set_defaults(json::object& variables) const {
  const std::pair<std::string_view, std::optional<TokenId>> tokens[] = {{"bos_token", tokenizer_->bos()},
                                                                        {"eos_token", tokenizer_->eos()},
                                                                        {"unk_token", tokenizer_->unk()},
                                                                        {"pad_token", tokenizer_->pad()}};
  for (const auto& [name, id] : tokens) {
    if (id) variables.emplace(name, tokenizer_->spelling(*id));
  }
  // As Hugging Face's transformers calls templates: these are always there.
  variables.emplace("add_generation_prompt", false);
  variables.emplace("tools", nullptr);
  variables.emplace("documents", nullptr);
}

bool ChatPrompt::spells_control_token(std::string_view text) const {
  const auto ids = tokenizer_->encode(text, {.add_special = false, .parse_special = true});
  return !ids || std::ranges::any_of(*ids, [this](TokenId id) { return tokenizer_->is_special(id); });
}

Result<ChatPrompt::Rendered> ChatPrompt::render(const json::object& variables, std::chrono::local_seconds now) const {
  json::object plain_variables = variables;
  set_defaults(plain_variables);
  for_each_text(plain_variables, [](json::string& text) { text = cleaned(text); });
  const auto rendering = [&](const json::object& of) -> Result<std::string> {
    auto text = template_.render(of, {.now = now});
    if (text) return std::move(*text);
    const jinja::TemplateError& error = text.error();
    return fail(error.kind == jinja::TemplateError::Kind::raised
                    ? fmt::format("the chat template refuses: {}", error.raised)
                    : fmt::format("{}: {}", name_, error.message));
  };
  auto plain = rendering(plain_variables);
  if (!plain) return std::unexpected(plain.error());

  bool needed = false;
  for (const bool all : {true, false}) {
    json::object marked_variables = plain_variables;
    for_each_text(marked_variables, [&](json::string& text) {
      const bool dangerous = spells_control_token(text);
      needed = needed || dangerous;
      if (all || dangerous) text = marked(text);
    });
    // A template may refuse, or fail on, what it does not know; the plain rendering has shown that it accepts the rest.
    const auto with_marks = rendering(marked_variables);
    if (!with_marks) continue;
    auto found = unmarked(*with_marks);
    if (found && found->text == *plain) return std::move(*found);
  }
  if (needed) {
    return fail(
        fmt::format("{}: a message spells a control token, and the template changes messages so that it cannot "
                    "be told from the template's own",
                    name_));
  }
  return Rendered{std::move(*plain), {}};
}

Result<std::vector<TokenId>> ChatPrompt::encode(const json::object& variables, std::chrono::local_seconds now) const {
  const auto rendered = render(variables, now);
  if (!rendered) return std::unexpected(rendered.error());
  // The template writes BOS itself where the model wants it.
  return tokenizer_->encode(rendered->text,
                            {.add_special = false, .parse_special = true, .literal = rendered->literal});
}

}  // namespace quire::text

#include "quire/cli/chat.h"

#include <algorithm>
#include <span>
#include <utility>

#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "quire/cli/input.h"
#include "quire/cli/progress.h"

namespace quire::cli {

namespace {

namespace json = boost::json;

constexpr std::size_t kMaxTemplateBytes = std::size_t{4} << 20;

json::object message(std::string_view role, std::string_view content) { return {{"role", role}, {"content", content}}; }

bool has_role(const json::value& message, std::string_view role) { return message.at("role").as_string() == role; }

// Templates of models that always reason end their prompt with this.
bool ends_with_think(const text::Tokenizer& tokenizer, std::span<const text::TokenId> ids) {
  constexpr std::size_t kTokens = 8;  // enough for the mark and a line break
  std::string end;
  for (const text::TokenId id : ids.last(std::min(kTokens, ids.size()))) {
    end += tokenizer.is_special(id) ? tokenizer.spelling(id) : tokenizer.piece(id);
  }
  while (!end.empty() && (end.back() == '\n' || end.back() == ' ')) end.pop_back();
  return end.ends_with("<think>");
}

}  // namespace

Chat::Chat(const ChatOptions& options, const Console& console, std::unique_ptr<engine::HostedModel> host,
           text::Tokenizer tokenizer)
    : options_(options),
      console_(console),
      host_(std::move(host)),
      tokenizer_(std::move(tokenizer)),
      now_(jinja::local_now()) {}

Result<std::unique_ptr<Chat>> Chat::create(const ChatOptions& options, const Console& console) {
  engine::HostOptions host_options = one_sequence();
  host_options.prefix_cache = true;
  host_options.checkpoints = 4;
  host_options.checkpoint_interval = kChatCheckpoints;
  auto host = load(options.model, std::move(host_options), console);
  if (!host) return std::unexpected(host.error());
  return create(options, console, std::move(*host));
}

Result<std::unique_ptr<Chat>> Chat::create(const ChatOptions& options, const Console& console,
                                           std::unique_ptr<engine::HostedModel> host) {
  auto tokenizer = text::Tokenizer::from_gguf(host->model().file());
  if (!tokenizer) return std::unexpected(tokenizer.error());
  std::unique_ptr<Chat> chat(new Chat(options, console, std::move(host), std::move(*tokenizer)));
  auto prompt = [&]() -> Result<text::ChatPrompt> {
    if (options.template_path.empty()) return text::ChatPrompt::create(chat->host_->model().file(), chat->tokenizer_);
    const auto source = read_input(options.template_path, kMaxTemplateBytes);
    if (!source) return std::unexpected(source.error());
    return text::ChatPrompt::create(*source, input_name(options.template_path), chat->tokenizer_);
  }();
  if (!prompt) return std::unexpected(prompt.error());
  chat->prompt_ = std::make_unique<text::ChatPrompt>(std::move(*prompt));
  chat->constraints_ =
      std::make_unique<server::GrammarConstraints>(chat->tokenizer_, chat->host_->model().hyperparameters().vocabulary);
  // A constraint that cannot be enforced is said at once, not after the first question.
  if (auto usable = make_constraint(options.constraint, *chat->constraints_); !usable) {
    return std::unexpected(usable.error());
  }
  chat->reset();
  return chat;
}

void Chat::reset() {
  length_ = 0;
  messages_.clear();
  if (!options_.system.empty()) messages_.push_back(message("system", options_.system));
}

void Chat::set_system(std::string_view text) {
  options_.system = text;
  if (!messages_.empty() && has_role(messages_.front(), "system")) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), message("system", text));
}

std::optional<std::string> Chat::last_question() const {
  const auto last =
      std::find_if(messages_.rbegin(), messages_.rend(), [](const auto& m) { return has_role(m, "user"); });
  if (last == messages_.rend()) return std::nullopt;
  return std::string(last->at("content").as_string());
}

void Chat::take_back() {
  while (!messages_.empty()) {
    const bool question = has_role(messages_.back(), "user");
    messages_.pop_back();
    if (question) return;
  }
}

void Chat::replace(json::array messages, std::uint32_t length) {
  messages_ = std::move(messages);
  length_ = length;
  const bool system = !messages_.empty() && has_role(messages_.front(), "system");
  options_.system = system ? std::string(messages_.front().at("content").as_string()) : "";
}

Result<Chat::Turn> Chat::say(std::string_view text, const std::function<bool()>& stop, const TextSink& sink) {
  const std::size_t before = messages_.size();
  const auto take_back = [&] { messages_.resize(before); };
  messages_.push_back(message("user", text));
  const auto ids = prompt_->encode({{"messages", messages_}, {"add_generation_prompt", true}}, now_);
  if (!ids) {
    take_back();
    return std::unexpected(ids.error());
  }
  // There must be room for an answer.
  if (ids->size() >= host_->context()) {
    take_back();
    return fail(fmt::format("the conversation has {} tokens, but the context holds only {}; /reset starts a new one",
                            ids->size(), host_->context()));
  }

  opened_thinking_ = ends_with_think(tokenizer_, *ids);
  auto constraint = make_constraint(options_.constraint, *constraints_,
                                    {.begin = "<think>", .end = opened_thinking_ ? "</think>" : "", .opened = true});
  if (!constraint) {
    take_back();
    return std::unexpected(constraint.error());
  }
  std::string answer;
  const auto turn = [&] {
    Progress progress(console_.err, console_.err_style, "prefill");
    return ask(
        *host_, tokenizer_,
        {.prompt = {ids->begin(), ids->end()},
         .limit = options_.limit,
         .at_start = true,
         .stops = options_.stops,
         .sampling = options_.sampler,
         .constraint = std::move(*constraint)},
        [&](std::uint32_t done, std::uint32_t total) {
          if (done < total) progress.update(done, total);
          return !stop();
        },
        [&](text::TokenId token, std::string_view piece) {
          progress.clear();
          answer += piece;
          return sink(token, piece);
        });
  }();
  if (!turn || !turn->prefill_done) {
    take_back();
    return turn;
  }
  length_ = static_cast<std::uint32_t>(ids->size()) + turn->decode.tokens;
  messages_.push_back(message("assistant", answer));
  return turn;
}

}  // namespace quire::cli

#include "quire/cli/chat.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/cli/chat_file.h"
#include "quire/cli/input.h"
#include "quire/cli/progress.h"
#include "quire/server/chat_answer.h"
#include "quire/server/chat_messages.h"
#include "quire/tools/format.h"

namespace quire::cli {

namespace {

namespace json = boost::json;

constexpr std::size_t kMaxTemplateBytes = std::size_t{4} << 20;
constexpr std::string_view kReasoning = "reasoning_content";  // of an answer

json::object message(std::string_view role, std::string_view content) { return {{"role", role}, {"content", content}}; }

bool has_role(const json::value& message, std::string_view role) { return message.at("role").as_string() == role; }
// "developer" is OpenAI's newer name.
bool is_system(const json::value& message) { return has_role(message, "system") || has_role(message, "developer"); }

}  // namespace

Chat::Chat(const ChatOptions& options, const Console& console, std::unique_ptr<engine::HostedModel> host,
           std::unique_ptr<server::TextModel> model)
    : options_(options),
      console_(console),
      host_(std::move(host)),
      model_(std::move(model)),
      now_(jinja::local_now()) {}

Result<std::unique_ptr<Chat>> Chat::create(const ChatOptions& options, const Console& console) {
  if (const auto adapter = chosen_adapter(options.model); !adapter) return std::unexpected(adapter.error());
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
  server::TextModelOptions model_options;
  if (!options.template_path.empty()) {
    auto source = read_input(options.template_path, kMaxTemplateBytes);
    if (!source) return std::unexpected(source.error());
    model_options.chat_template = {.source = std::move(*source), .name = input_name(options.template_path)};
  }
  const gguf::File& file = host->model().file();
  auto model =
      server::TextModel::create(file, host->context(), host->model().hyperparameters().vocabulary, model_options);
  if (!model) return std::unexpected(model.error());
  if ((*model)->chat() == nullptr) {
    const std::string& why = (*model)->why_no_chat();
    return fail(options.template_path.empty() ? fmt::format("{}: {}", file.path(), why) : why);
  }
  // A constraint that cannot be enforced is said at once, not after the first question.
  if (auto usable = make_constraint(options.constraint, (*model)->constraints()); !usable) {
    return std::unexpected(usable.error());
  }
  std::unique_ptr<Chat> chat(new Chat(options, console, std::move(host), std::move(*model)));
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
  if (!messages_.empty() && is_system(messages_.front())) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), message("system", text));
}

std::optional<json::object> Chat::last_question() const {
  const auto last =
      std::find_if(messages_.rbegin(), messages_.rend(), [](const auto& m) { return has_role(m, "user"); });
  if (last == messages_.rend()) return std::nullopt;
  return last->as_object();
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
  const bool system = !messages_.empty() && is_system(messages_.front());
  options_.system = system ? message_text(messages_.front().as_object()) : "";
}

Result<text::ChatPrompt::Rendered> Chat::rendered(json::array messages) const {
  if (auto ok = server::prepare_messages(messages, model_->style()); !ok) return fail(ok.error().message);
  // The reasoning of earlier answers has only the name that the template knows.
  if (model_->style().reasoning_key != kReasoning) {
    for (json::value& each : messages) each.as_object().erase(kReasoning);
  }
  return model_->chat()->render({{"messages", std::move(messages)}, {"add_generation_prompt", true}}, now_);
}

Result<void> Chat::can_continue(json::array messages) const {
  if (messages.empty() || !has_role(messages.back(), "user")) messages.push_back(message("user", "?"));
  const auto prompt = rendered(std::move(messages));
  if (!prompt) return std::unexpected(prompt.error());
  return {};
}

Result<Chat::Turn> Chat::say(std::string_view text, const std::function<bool()>& stop, const Sink& sink) {
  return say(message("user", text), stop, sink);
}

Result<Chat::Turn> Chat::say(json::object question, const std::function<bool()>& stop, const Sink& sink) {
  const std::size_t before = messages_.size();
  const auto fail_with = [&](Error error) {
    messages_.resize(before);
    return std::unexpected(std::move(error));
  };
  messages_.push_back(std::move(question));
  const auto prompt = rendered(messages_);
  if (!prompt) return fail_with(prompt.error());
  // The template writes BOS itself if the model wants it.
  const auto ids = model_->tokenizer().encode(
      prompt->text, {.add_special = false, .parse_special = true, .literal = prompt->literal});
  if (!ids) return fail_with(ids.error());
  // There must be room for an answer.
  if (ids->size() >= host_->context()) {
    return fail_with(
        {fmt::format("the conversation has {} tokens, but the context holds only {}; /reset starts a new one",
                     ids->size(), host_->context())});
  }

  const tools::Detected& detected = model_->style();
  server::AnswerStyle style{.reasoning = detected.reasoning};
  if (!detected.format->silent.empty()) style.format = detected.format;  // it has marks around texts as well
  style.primer = tools::primer(style.format, style.reasoning, prompt->text);
  auto spec = read_constraint(options_.constraint);
  if (!spec) return fail_with(spec.error());
  std::optional<server::AskedConstraint> asked;
  if (*spec) asked = {.spec = std::move(**spec), .field = "the constraint"};
  engine::Request constrained;
  if (const auto error = server::constrain(style, asked, *model_, constrained)) return fail_with({error->message});

  server::ChatAnswer answer(style);
  const auto tell = [&](text::TokenId token, const std::vector<tools::Delta>& deltas) {
    bool goes_on = true;
    for (const tools::Delta& delta : deltas) {
      goes_on = sink(text::kNoToken, delta.text, delta.kind == tools::Delta::Kind::Reasoning) && goes_on;
    }
    return sink(token, "", false) && goes_on;
  };
  const auto turn = [&] {
    Progress progress(console_.err, console_.err_style, "prefill");
    return ask(
        *host_, model_->tokenizer(),
        {.prompt = {ids->begin(), ids->end()},
         .limit = options_.limit,
         .at_start = true,
         .stops = options_.stops,
         .sampling = options_.sampler,
         .constraint = std::move(constrained.constraint),
         .text = [this, marks = style.marks()] { return model_->text_stream(true, false, marks); },
         .adapter = chosen_adapter(options_.model).value_or(0)},
        [&](std::uint32_t done, std::uint32_t total) {
          if (done < total) progress.update(done, total);
          return !stop();
        },
        [&](text::TokenId token, std::string_view piece) {
          progress.clear();
          return tell(token, answer.push(piece));
        });
  }();
  if (!turn || !turn->prefill_done) {
    messages_.resize(before);
    return turn;
  }
  (void)tell(text::kNoToken, answer.finish(turn->ending != Ending::end_of_text));
  length_ = static_cast<std::uint32_t>(ids->size()) + turn->decode.tokens;
  json::object said = message("assistant", answer.content());
  if (!answer.reasoning().empty()) said[kReasoning] = answer.reasoning();
  messages_.push_back(std::move(said));
  return turn;
}

}  // namespace quire::cli

#include "quire/cli/chat.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/cli/printable.h"
#include "quire/cli/progress.h"
#include "quire/cli/terminal_text.h"

namespace quire::cli {

namespace {

namespace json = boost::json;

constexpr std::string_view kHelp =
    "  /reset   start a new conversation\n"
    "  /stats   show the figures of the last turn and of the pool\n"
    "  /help    show this list\n"
    "  /quit    end the conversation; so does Ctrl-D\n"
    "Ctrl-C stops an answer. Type // to begin a text with a slash.\n";

json::object message(std::string_view role, std::string_view content) { return {{"role", role}, {"content", content}}; }

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
  auto prompt = text::ChatPrompt::create(chat->host_->model().file(), chat->tokenizer_);
  if (!prompt) return std::unexpected(prompt.error());
  chat->prompt_ = std::make_unique<text::ChatPrompt>(std::move(*prompt));
  chat->reset();
  return chat;
}

void Chat::reset() {
  length_ = 0;
  messages_.clear();
  if (!options_.system.empty()) messages_.push_back(message("system", options_.system));
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

  std::string answer;
  const auto turn = [&] {
    Progress progress(console_.err, console_.err_style, "prefill");
    return ask(
        *host_, tokenizer_,
        {.prompt = {ids->begin(), ids->end()}, .limit = options_.limit, .at_start = true, .sampling = options_.sampler},
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

namespace {

// The dialogue around a Chat: the commands and the notes to the user.
class Dialogue {
 public:
  Dialogue(Chat& chat, const Console& console, Interrupt* interrupt)
      : chat_(chat), console_(console), interactive_(interrupt != nullptr), interrupt_(interrupt) {}

  // False: the conversation is over.
  bool take(std::string_view line) {
    std::string text;
    append_repaired(text, line);
    if (text.find_first_not_of(" \t\r") == std::string::npos) return true;
    if (text.starts_with("//")) {
      text.erase(0, 1);
    } else if (text.starts_with('/')) {
      return obey(text.substr(0, text.find_last_not_of(" \t\r") + 1));
    }
    return answer(text);
  }

  std::error_code error() const { return error_; }
  const std::optional<Error>& failure() const { return failure_; }
  void note(std::string_view text) { (void)console_.err.write(text); }

 private:
  bool obey(const std::string& command) {
    if (command == "/quit" || command == "/exit") return false;
    if (command == "/reset") {
      chat_.reset();
      last_.reset();
      if (interactive_) note("A new conversation.\n\n");
    } else if (command == "/help") {
      note(kHelp);
    } else if (command == "/stats") {
      stats();
    } else {
      note(fmt::format("{} is not a command; /help lists them\n", printable(command, {.limit = 40})));
    }
    return true;
  }

  void stats() {
    if (last_) {
      note(fmt::format("  prefill  {}; {} reused\n  decode   {}; {}\n", describe(last_->prefill), last_->reused,
                       describe(last_->decode), reason(last_->ending)));
    }
    note(fmt::format("  context  {} of {} tokens\n  pool     {}\n", chat_.length(), chat_.host().context(),
                     describe(pool_use(chat_.host().pool()))));
  }

  bool answer(std::string_view text) {
    if (interactive_) interrupt_->forget();
    const auto turn = chat_.say(
        text, [this] { return interactive_ && interrupt_->asked(); },
        [this](text::TokenId, std::string_view piece) {
          if (!piece.empty()) error_ = write_text(console_.out, console_.out_style, piece);
          return !error_;
        });
    if (interactive_) interrupt_->forget();
    if (!turn) {
      if (!interactive_ || !chat_.host().engine().device_lost().empty()) {
        failure_ = turn.error();
        return false;
      }
      note(fmt::format("quire: {}\n\n", printable(turn.error().message)));
      return true;
    }
    last_ = *turn;
    if (!error_) error_ = console_.out.write(interactive_ ? "\n\n" : "\n");
    if (error_) return false;
    if (!turn->prefill_done) {
      if (interactive_) note("(stopped before the answer began; your message was dropped)\n\n");
    } else if (turn->ending != Ending::end_of_text && interactive_) {
      note(fmt::format("({})\n\n", reason(turn->ending)));
    }
    return true;
  }

  Chat& chat_;
  const Console& console_;
  const bool interactive_;
  Interrupt* const interrupt_;
  std::optional<Chat::Turn> last_;
  std::error_code error_;         // of standard output
  std::optional<Error> failure_;  // of a turn in a pipe, or of the device
};

}  // namespace

Result<std::string> converse(Chat& chat, LineReader& lines, const Console& console, Interrupt* interrupt) {
  const bool interactive = interrupt != nullptr;
  Dialogue dialogue(chat, console, interrupt);
  if (interactive) {
    const std::string name = std::filesystem::path(chat.host().model().file().path()).filename().string();
    dialogue.note(
        fmt::format("{}, context {} tokens. /help lists commands.\n\n", printable(name), chat.host().context()));
  }
  for (;;) {
    const Line line = lines.read();
    if (line.kind == Line::Kind::end) break;
    if (line.kind == Line::Kind::interrupted) {
      dialogue.note("\n");
      continue;
    }
    if (!dialogue.take(line.text)) {
      if (const auto& failure = dialogue.failure()) return std::unexpected(*failure);
      // Standard output is broken. The caller writes the line break, meets the same error and handles it.
      return dialogue.error() ? "\n" : "";
    }
  }
  if (interactive) dialogue.note("\n");
  return "";
}

}  // namespace quire::cli

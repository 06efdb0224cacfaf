#include "quire/cli/dialogue.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include <boost/json/object.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "quire/base/utf8.h"
#include "quire/cli/chat_file.h"
#include "quire/cli/chat_settings.h"
#include "quire/cli/printable.h"
#include "quire/cli/report.h"
#include "quire/cli/terminal_text.h"

namespace quire::cli {

namespace {

constexpr std::string_view kHelp =
    "  /system TEXT       another system prompt; without a text: none\n"
    "  /set [NAME VALUE]  change a setting (temp, top-k, top-p, min-p, seed, tokens, stop, ...);\n"
    "                     without a name: show all\n"
    "  /retry             answer the last message again, with another seed\n"
    "  /edit [TEXT]       send another text in place of the last message; without a text: in $EDITOR\n"
    "  /save FILE         write the conversation to a file\n"
    "  /load FILE         go on with the conversation of a file\n"
    "  /reset             start a new conversation; /clear is the same\n"
    "  /stats             show the figures of the last turn and of the pool\n"
    "  /help              show this list\n"
    "  /quit              end the conversation; so do /exit, Ctrl-D, and Ctrl-C twice\n"
    "Ctrl-C stops an answer. Type // to begin a text with a slash. A line that ends in \\ goes on in\n"
    "the next one; \"\"\" begins and ends a text of several lines.\n";

constexpr std::string_view kSpace = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t from = text.find_first_not_of(kSpace);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(kSpace) - from + 1);
}

// The text after it was changed in the user's editor.
Result<std::string> in_editor(const std::string& text) {
  const char* editor = std::getenv("VISUAL");
  if (editor == nullptr || *editor == '\0') editor = std::getenv("EDITOR");
  if (editor == nullptr || *editor == '\0') editor = "vi";
  std::string path = (std::filesystem::temp_directory_path() / "quire-XXXXXX").string();
  const int file = ::mkstemp(path.data());
  if (file < 0) return fail("a temporary file cannot be made");
  ::close(file);
  std::ofstream(path, std::ios::binary) << text << '\n';
  const int status = std::system(fmt::format("{} '{}'", editor, path).c_str());
  std::ifstream in(path, std::ios::binary);
  std::string changed{std::istreambuf_iterator<char>(in), {}};
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (status != 0) return fail(fmt::format("the editor '{}' failed", editor));
  while (changed.ends_with('\n')) changed.pop_back();
  return changed;
}

// Writes an answer. Its reasoning comes before it: dim on a terminal with colours, else between marks of its own.
class AnswerWriter {
 public:
  explicit AnswerWriter(const Console& console) : console_(console) {}

  // The text of the model. An empty one only says that the answer goes on.
  std::error_code write(std::string_view text, bool reasoning) {
    if (text.empty()) return error_;
    if (reasoning != reasoning_) turn(reasoning);
    if (!error_) error_ = write_text(console_.out, console_.out_style, text);
    return error_;
  }
  // An answer may end in the middle of its reasoning.
  std::error_code end() {
    if (reasoning_) turn(false);
    return error_;
  }

 private:
  void turn(bool reasoning) {
    reasoning_ = reasoning;
    const bool colour = console_.out_style.colour;
    if (!error_)
      error_ = console_.out.write(reasoning ? (colour ? "\x1b[2m" : "<think>\n")
                                            : (colour ? "\x1b[0m\n\n" : "\n</think>\n\n"));
  }

  const Console& console_;
  bool reasoning_ = false;
  std::error_code error_;
};

std::string figures(const Chat& chat, const std::optional<Chat::Turn>& turn) {
  std::string out;
  if (turn) {
    out = fmt::format("  prefill  {}; {} reused\n  decode   {}; {}\n", describe(turn->prefill), turn->reused,
                      describe(turn->decode), reason(turn->ending));
  }
  return out + fmt::format("  context  {} of {} tokens\n  pool     {}\n", chat.length(), chat.host().context(),
                           describe(pool_use(chat.host().pool())));
}

// The dialogue around a Chat: the commands and the notes to the user.
class Dialogue {
 public:
  Dialogue(Chat& chat, const Console& console, Interrupt* interrupt)
      : chat_(chat), console_(console), interactive_(interrupt != nullptr), interrupt_(interrupt) {}

  // False: the conversation is over.
  bool take(std::string_view line) {
    interrupts_ = 0;
    std::string text;
    append_repaired(text, line);
    if (trimmed(text).find_first_not_of('\n') == std::string::npos) return true;
    if (text.starts_with("//")) {
      text.erase(0, 1);
    } else if (text.starts_with('/')) {
      return obey(std::string(trimmed(text)));
    }
    return answer({{"role", "user"}, {"content", text}});
  }

  // Ctrl-C at the prompt. False: it was the second in a row.
  bool interrupted() {
    if (++interrupts_ > 1) return false;
    note("\n(Ctrl-C again ends the conversation)\n");
    return true;
  }

  std::error_code error() const { return error_; }
  const std::optional<Error>& failure() const { return failure_; }
  void note(std::string_view text) { (void)console_.err.write(text); }

 private:
  bool obey(const std::string& line) {
    const std::size_t space = line.find_first_of(" \t\n");
    const std::string command = line.substr(0, space);
    const std::string rest(space == std::string::npos ? std::string_view()
                                                      : trimmed(std::string_view(line).substr(space)));
    if (command == "/quit" || command == "/exit") return false;
    if (command == "/reset" || command == "/clear") {
      chat_.reset();
      last_.reset();
      if (interactive_) note("A new conversation.\n\n");
    } else if (command == "/help") {
      note(kHelp);
    } else if (command == "/stats") {
      note(figures(chat_, last_));
    } else if (command == "/system") {
      chat_.set_system(rest);
    } else if (command == "/set") {
      set(rest);
    } else if (command == "/retry") {
      return again("/retry", std::nullopt);
    } else if (command == "/edit") {
      return edit(rest);
    } else if (command == "/save" || command == "/load") {
      return rest.empty() ? complain(fmt::format("{} needs the name of a file", command)) : keep(command, rest);
    } else {
      note(fmt::format("{} is not a command; /help lists them\n", printable(command, {.limit = 40})));
    }
    return true;
  }

  // In a pipe, nobody could correct what was wrong. True: the conversation goes on.
  bool complain(const std::string& what) {
    if (!interactive_) {
      failure_ = Error{what};
      return false;
    }
    note(fmt::format("quire: {}\n\n", printable(what)));
    return true;
  }

  void set(const std::string& rest) {
    if (rest.empty()) return note(describe_settings(chat_.options()));
    const std::size_t space = rest.find_first_of(kSpace);
    const std::string value(space == std::string::npos ? std::string_view()
                                                       : trimmed(std::string_view(rest).substr(space)));
    if (const auto ok = change_setting(chat_.options(), rest.substr(0, space), value); !ok) {
      note(fmt::format("quire: {}\n", printable(ok.error().message)));
    }
  }

  bool keep(const std::string& command, const std::string& path) {
    if (command == "/save") {
      const auto saved = save_messages(path, chat_.messages());
      if (!saved) return complain(saved.error().message);
      if (interactive_) note(fmt::format("{} messages are in {}\n\n", chat_.messages().size(), printable(path)));
      return true;
    }
    auto messages = load_messages(path);
    if (!messages) return complain(messages.error().message);
    if (const auto usable = chat_.can_continue(*messages); !usable) {
      return complain(fmt::format("{}: {}", printable(path), usable.error().message));
    }
    if (interactive_) note(fmt::format("{} messages from {}\n\n", messages->size(), printable(path)));
    chat_.replace(std::move(*messages));
    last_.reset();
    return true;
  }

  bool edit(const std::string& given) {
    if (!given.empty()) return again("/edit", given);
    if (!interactive_) return complain("/edit needs a text in a pipe");
    const auto before = chat_.last_question();
    if (!before) return complain("/edit: there is no message yet");
    auto changed = in_editor(message_text(*before));
    if (!changed) return complain(changed.error().message);
    if (const std::size_t valid = utf8_valid_prefix(*changed); valid != changed->size()) {
      return complain(fmt::format("/edit: the text is not UTF-8 at byte {}", valid));
    }
    if (trimmed(*changed).empty()) return true;
    return again("/edit", std::move(*changed));
  }

  // Answers the last message again, or with this text in it. If that fails, the conversation is as it was.
  bool again(std::string_view command, std::optional<std::string> text) {
    auto question = chat_.last_question();
    if (!question) return complain(fmt::format("{}: there is no message yet", command));
    if (text) (*question)["content"] = *text;
    auto messages = chat_.messages();
    const std::uint32_t length = chat_.length();
    chat_.take_back();
    if (!text) ++chat_.options().sampler.seed;
    const bool goes_on = answer(std::move(*question));
    if (!answered_) chat_.replace(std::move(messages), length);
    return goes_on;
  }

  bool answer(boost::json::object question) {
    answered_ = false;
    if (interactive_) interrupt_->forget();
    AnswerWriter writer(console_);
    const auto turn = chat_.say(
        std::move(question), [this] { return interactive_ && interrupt_->asked(); },
        [&](text::TokenId, std::string_view piece, bool reasoning) {
          error_ = writer.write(piece, reasoning);
          return !error_;
        });
    if (!error_) error_ = writer.end();
    const bool stopped = interactive_ && interrupt_->asked();
    if (interactive_) interrupt_->forget();
    if (!turn) {
      if (!interactive_ || !chat_.host().engine().device_lost().empty()) {
        failure_ = turn.error();
        return false;
      }
      note(fmt::format("quire: {}\n\n", printable(turn.error().message)));
      return true;
    }
    answered_ = turn->prefill_done;
    last_ = *turn;
    if (!error_) error_ = console_.out.write(interactive_ ? "\n\n" : "\n");
    if (error_) return false;
    if (!turn->prefill_done) {
      if (interactive_) note("(stopped before the answer began; your message was dropped)\n\n");
    } else if (turn->ending != Ending::end_of_text && turn->ending != Ending::stop_string && interactive_) {
      note(fmt::format("({})\n{}\n", reason(turn->ending), stopped ? figures(chat_, last_) : ""));
    }
    if (stopped) interrupts_ = 1;
    return true;
  }

  Chat& chat_;
  const Console& console_;
  const bool interactive_;
  Interrupt* const interrupt_;
  std::optional<Chat::Turn> last_;
  bool answered_ = false;         // the last turn has an answer
  int interrupts_ = 0;            // in a row
  std::error_code error_;         // of standard output
  std::optional<Error> failure_;  // of a turn in a pipe, or of the device
};

// Reads a message, which may have several lines: they end in a backslash, or stand between """ and """.
Line read_message(LineReader& lines) {
  constexpr std::string_view kBlock = "\"\"\"";
  Line line = lines.read();
  if (line.kind != Line::Kind::text) return line;
  const bool block = trimmed(line.text).starts_with(kBlock);
  const auto ends_block = [&](std::string_view text) { return trimmed(text).ends_with(kBlock); };
  std::string text;
  if (block) {
    line.text = trimmed(line.text).substr(kBlock.size());
    if (!line.text.empty() && ends_block(line.text)) {
      line.text = trimmed(line.text).substr(0, trimmed(line.text).size() - kBlock.size());
      return line;
    }
    text = line.text;
  }
  for (;;) {
    if (!block) {
      if (!line.text.ends_with('\\')) return {Line::Kind::text, text + line.text};
      text += line.text.substr(0, line.text.size() - 1) + '\n';
    }
    line = lines.read_more();
    if (line.kind == Line::Kind::interrupted) return line;
    // What was begun is sent as it is if the lines end.
    if (line.kind == Line::Kind::end) return {Line::Kind::text, text};
    if (!block) continue;
    const bool last = ends_block(line.text);
    if (last) line.text = trimmed(line.text).substr(0, trimmed(line.text).size() - kBlock.size());
    if (!text.empty() && !(last && line.text.empty())) text += '\n';
    text += line.text;
    if (last) return {Line::Kind::text, text};
  }
}

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
    const Line line = read_message(lines);
    if (line.kind == Line::Kind::end) break;
    if (line.kind == Line::Kind::interrupted) {
      if (dialogue.interrupted()) continue;
      break;
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

Result<std::string> answer_once(Chat& chat, std::string_view question, const Console& console, Interrupt& interrupt) {
  AnswerWriter writer(console);
  std::error_code error;
  const auto turn = chat.say(
      question, [&] { return interrupt.asked(); },
      [&](text::TokenId, std::string_view piece, bool reasoning) {
        error = writer.write(piece, reasoning);
        return !error;
      });
  if (!error) error = writer.end();
  if (!turn) return std::unexpected(turn.error());
  // If standard output is broken, the caller writes the line break, meets the same error and handles it.
  if (error || console.out.write("\n")) return "\n";
  if (turn->ending == Ending::stopped) (void)console.err.write(figures(chat, *turn));
  return "";
}

}  // namespace quire::cli

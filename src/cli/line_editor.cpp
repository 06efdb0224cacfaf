// The terminal's lines, through libedit's own interface (histedit.h).
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include "quire/cli/line_reader.h"

namespace quire::cli {

namespace {

constexpr int kHistoryLines = 1000;

class LineEditor : public LineReader {
 public:
  LineEditor(std::string prompt, std::string path, Interrupt& interrupt)
      : prompt_(std::move(prompt)), path_(std::move(path)), interrupt_(interrupt) {
    // The locale decides which bytes form a character; only the editor uses it. Input is UTF-8, like the program's
    // arguments, even if no locale is set.
    std::setlocale(LC_CTYPE, "");
    if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
    editor_ = ::el_init("quire", stdin, stdout, stderr);
    history_ = ::history_init();
    if (history_ != nullptr) {
      HistEvent event = {};
      ::history(history_, &event, H_SETSIZE, kHistoryLines);
      ::history(history_, &event, H_SETUNIQUE, 1);
      if (!path_.empty()) ::history(history_, &event, H_LOAD, path_.c_str());
    }
    if (editor_ == nullptr) return;
    ::el_set(editor_, EL_CLIENTDATA, this);
    ::el_set(editor_, EL_PROMPT, &LineEditor::show_prompt);
    ::el_set(editor_, EL_EDITOR, "emacs");
    ::el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    ::el_set(editor_, EL_SIGNAL, 0);  // the program handles Ctrl-C itself
    ::el_set(editor_, EL_GETCFN, &LineEditor::read_character);
    if (history_ != nullptr) ::el_set(editor_, EL_HIST, ::history, history_);
  }

  ~LineEditor() override {
    save();
    if (history_ != nullptr) ::history_end(history_);
    if (editor_ != nullptr) ::el_end(editor_);
  }

  Line read_more() override {
    const std::string prompt = std::exchange(prompt_, std::string(". "));
    Line line = read();
    prompt_ = prompt;
    return line;
  }

  Line read() override {
    if (editor_ == nullptr) return {};
    ::el_resize(editor_);  // the window may have changed during the answer
    // Before the prompt is shown: otherwise the kernel would edit what is typed until the editor reads its first key,
    // and swallow a Ctrl-D.
    ::el_set(editor_, EL_PREP_TERM, 1);
    int count = 0;
    const char* text = ::el_gets(editor_, &count);
    if (text == nullptr || count <= 0) {
      if (!interrupt_.asked()) return {};
      interrupt_.forget();
      return {Line::Kind::interrupted, {}};
    }
    std::string_view line(text, static_cast<std::size_t>(count));
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
    Line out{Line::Kind::text, std::string(line)};
    if (history_ != nullptr && line.find_first_not_of(" \t") != std::string_view::npos) {
      HistEvent event = {};
      ::history(history_, &event, H_ENTER, out.text.c_str());
    }
    return out;
  }

 private:
  static LineEditor& self(EditLine* editor) {
    void* self = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<LineEditor*>(self);
  }

  static char* show_prompt(EditLine* editor) { return self(editor).prompt_.data(); }

  // libedit's own would wait on when the interrupt comes just before it begins to.
  static int read_character(EditLine* editor, wchar_t* character) {
    std::mbstate_t state = {};
    for (;;) {
      pollfd ready[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                        {.fd = self(editor).interrupt_.descriptor(), .events = POLLIN, .revents = 0}};
      if (::poll(ready, 2, -1) < 0 && errno != EINTR) return -1;
      if (ready[1].revents != 0) return -1;
      if (ready[0].revents == 0) continue;
      char byte = 0;
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count <= 0) return static_cast<int>(count);
      const std::size_t length = std::mbrtowc(character, &byte, 1, &state);
      if (length == static_cast<std::size_t>(-2)) continue;  // the rest of the character has not arrived yet
      if (length != static_cast<std::size_t>(-1)) return 1;
      state = {};  // not a character: skipped
    }
  }

  // Best effort: a chat works without a history. libedit makes the file readable for its owner only.
  void save() {
    if (history_ == nullptr || path_.empty()) return;
    const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    HistEvent event = {};
    ::history(history_, &event, H_SAVE, path_.c_str());
  }

  std::string prompt_;
  std::string path_;
  Interrupt& interrupt_;
  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
};

}  // namespace

std::unique_ptr<LineReader> make_line_editor(std::string prompt, std::string history_path, Interrupt& interrupt) {
  return std::make_unique<LineEditor>(std::move(prompt), std::move(history_path), interrupt);
}

}  // namespace quire::cli

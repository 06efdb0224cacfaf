// Takes the text of an answer as it comes, and splits it into content, reasoning and calls of tools.
//
//   AnswerParser parser({.format = &format, .reasoning = &reasoning, .tools = &tools});
//   for each piece of text: parser.push(text, deltas);
//   parser.finish(cut, deltas);
//
// Who may call: one thread at a time. What the options refer to must outlive it.
// What holds:
// - The deltas of one kind, put together, do not depend on how the text was cut. Content and reasoning are passed on as
//   soon as they cannot be the beginning of a mark.
// - Nothing is lost: every byte that is not a mark of a call is content or reasoning, in its order, except white space
//   beside calls and around reasoning. What begins like a call and is none (broken JSON, an unknown shape, an end in
//   the middle) is content.
// - A call is passed on when it is complete. With `progressive` it is passed on while it comes: for answers that are
//   known to be well-formed, since a call that has begun cannot become content any more. An id behind the arguments is
//   not passed on then.
// - If the answer was cut at its limit inside a call whose name is known, the call is passed on with the arguments so
//   far. They are not whole JSON then.
// - The work is linear in the text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/tools/call_matcher.h"
#include "quire/tools/format.h"
#include "quire/tools/tool_list.h"

namespace quire::tools {

struct Delta {
  enum class Kind : std::uint8_t {
    Content,    // text
    Reasoning,  // text
    Call,       // a call begins: name, and id if the model wrote one
    Arguments,  // text: the next piece of the JSON of the arguments
  };
  Kind kind = Kind::Content;
  std::uint32_t call = 0;  // Call, Arguments: which, from 0 on
  std::string text = {};
  std::string name = {};
  std::string id = {};
};

// Says of a text that comes piece by piece whether it can be calls. One for each answer.
class CallCheck {
 public:
  virtual ~CallCheck() = default;
  // False: calls do not begin like this.
  virtual bool push(std::string_view text) = 0;
  // Whether the text so far is calls, and nothing is missing.
  virtual bool complete() const = 0;
};

// Where calls are looked for, and how they are passed on. Answers that follow a grammar are read as the grammar means
// them: answer_grammar.h says how.
struct Reading {
  enum class Bare : std::uint8_t { Lines, First, Never };
  Bare bare = Bare::Lines;   // calls without a mark: at every line, only before the first text, or not at all
  bool calls_first = false;  // all calls only before the first text
  bool progressive = false;
  // What begins like a call is one only if the rest of the answer passes this check. It is held back until that is
  // known: to the end, if it is calls.
  std::function<std::unique_ptr<CallCheck>()> check = {};
};

struct ParserOptions {
  const Format* format = nullptr;        // null: neither its marks nor its calls are looked for
  const Reasoning* reasoning = nullptr;  // null: reasoning is not looked for
  const ToolList* tools = nullptr;       // null: calls are not looked for
  Reading reading = {};
  bool one_call = false;  // what comes after the first call is ignored
};

class AnswerParser {
 public:
  explicit AnswerParser(const ParserOptions& options);

  void push(std::string_view text, std::vector<Delta>& out);
  // `cut`: the answer ended because of its limit, not by itself.
  void finish(bool cut, std::vector<Delta>& out);

  std::uint32_t calls() const { return calls_; }  // that have begun
  // `one_call`, and it is complete.
  bool over() const { return mode_ == Mode::Over; }

 private:
  enum class Mode : std::uint8_t { Content, Reasoning, Check, Section, Over };
  struct Trigger {
    enum class Kind : std::uint8_t { Reasoning, Silent, Shape };
    std::string_view text;
    Kind kind;
    const Shape* shape = nullptr;
  };

  std::string_view rest() const { return std::string_view(buffer_).substr(at_); }
  void pump(bool last, std::vector<Delta>& out);
  bool read_content(bool last, std::vector<Delta>& out);
  bool read_reasoning(bool last, std::vector<Delta>& out);
  bool read_check(bool last);
  bool read_section(bool last, std::vector<Delta>& out);
  bool may_begin(const Trigger& trigger, std::size_t at) const;
  bool at_line(std::size_t at) const;
  void add_text(Delta::Kind kind, std::string_view text, std::vector<Delta>& out);
  void emit_calls(const CallMatcher& matcher, std::vector<Delta>& out);
  void emit_open(const Call& call, std::vector<Delta>& out);
  void border();
  void fail_section(std::vector<Delta>& out);
  void finish_section(bool cut, std::vector<Delta>& out);

  ParserOptions options_;
  std::vector<Trigger> triggers_;
  bool begins_[256] = {};  // first bytes of triggers
  Mode mode_ = Mode::Content;
  std::string buffer_;
  std::size_t at_ = 0;                // what is before it was passed on
  std::string space_;                 // white space that waits for what follows it
  bool fresh_ = true;                 // no text since the answer, or what follows a call or reasoning, has begun
  bool drops_space_ = false;          // white space is left out until text comes
  bool line_ = true;                  // only white space since the last line break
  bool has_text_ = false;             // there was content
  std::unique_ptr<CallCheck> check_;  // of the text that is held back
  std::size_t checked_ = 0;           // bytes of it that were looked at
  bool passed_ = false;               // it is calls
  bool cut_ = false;                  // the answer has ended because of its limit
  std::vector<CallMatcher> matchers_;
  std::size_t emitted_ = 0;     // calls of the section that were passed on
  bool open_emitted_ = false;   // progressive: the next call has begun
  std::size_t open_bytes_ = 0;  // of its arguments that were passed on
  std::uint32_t calls_ = 0;
};

}  // namespace quire::tools

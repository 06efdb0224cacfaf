// The grammar of a model's answers, in the marks of its format: reasoning first if the model reasons, and then calls of
// tools, text, or an answer in a shape that was asked for. Made from the rows of format_table.cpp.
//
// Who may call: any thread; there is no state.
// What holds: the parser (answer_parser.h), with reading(), reads the calls of every answer that the grammar admits as
//   calls of these tools, and the rest as reasoning and text. The arguments fit the tool's schema if the tool is strict
//   or the answer must be calls. Otherwise they are an object with any members in any order, since a schema has an
//   order of its own, which would make a model leave out what it writes too late. (Keyword arguments follow the schema
//   always.) A tool that is not strict, and whose schema cannot be enforced, takes any object too. Reasoning is free
//   text.
// How it fails: with one line if the schema of a strict tool cannot be enforced, at all or in the format (tags and
//   Python have properties one by one, and nothing that is said about them together), if a name of a function or of a
//   parameter would not be read back, or as `text` fails.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/grammar/grammar.h"
#include "quire/tools/answer_parser.h"
#include "quire/tools/format.h"
#include "quire/tools/tool_list.h"

namespace quire::tools {

struct AnswerGrammar {
  const Format* format = nullptr;        // null: calls are not possible, and text has the marks of `reasoning`
  const Shape* shape = nullptr;          // of the format: the one that the template writes; null: its first
  const Reasoning* reasoning = nullptr;  // null: none
  const ToolList* tools = nullptr;       // null: calls are not possible
  std::string_view primer = {};          // the end of the prompt that belongs to the answer: primer()
  std::string_view only = {};            // the name of the one tool that may be called; empty: any
  bool required = false;                 // the answer is calls, and not text
  bool several = true;                   // more than one call is possible
  // Adds the rules of the text that was asked for and returns their start. The answer is either calls or such a text.
  // Empty: text is free, and calls may follow it.
  std::function<Result<grammar::SymbolId>(grammar::Grammar&)> text = {};
  bool text_is_json = false;                   // so it cannot begin with the mark of a call
  std::span<const std::string> controls = {};  // control tokens of the vocabulary that are spelled in the marks
};

Result<grammar::Grammar> answer_grammar(const AnswerGrammar& asked, const grammar::Limits& limits = {});

// How the answers of this grammar are to be read.
Reading reading(const AnswerGrammar& asked);

// Whether a text that was asked for could be read as a call of a strict tool, whose schema it does not fit. The reading
// must have a check then: of calls_grammar().
bool needs_check(const AnswerGrammar& asked);
// The calls alone, from the mark of the first to the end of the answer.
Result<grammar::Grammar> calls_grammar(const AnswerGrammar& asked, const grammar::Limits& limits = {});

// Whether calls of this format can be enforced while all other text stays as free as it is without a grammar: each
// begins with a mark, and none has keyword arguments (models write their values in more ways than a grammar knows).
bool leaves_text_free(const Format& format);

}  // namespace quire::tools

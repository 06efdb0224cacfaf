// The grammar of answers that call tools: exactly the calls of these tools, as this format writes them. Made from the
// rows of format_table.cpp.
//
// Who may call: any thread; there is no state.
// What holds: the parser (answer_parser.h) reads every answer that the grammar admits as calls of these tools, with
//   arguments that fit their schemas. A tool that is not strict, and whose schema cannot be enforced, takes any object.
// How it fails: with one line if the schema of a strict tool cannot be enforced, or if the format has no mark at which
// a
//   constraint could begin (only without `required`).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/grammar/grammar.h"
#include "quire/tools/format.h"
#include "quire/tools/tool_list.h"

namespace quire::tools {

struct CallGrammar {
  const Format* format = nullptr;
  const Shape* shape = nullptr;          // of the format: the one to write; null: its first
  const Reasoning* reasoning = nullptr;  // null: none. Otherwise it may come before the calls, and is free.
  const ToolList* tools = nullptr;
  std::string_view primer = {};                // the end of the prompt that belongs to the answer: primer()
  std::string_view only = {};                  // the name of the one tool that may be called; empty: any
  bool required = false;                       // the answer is calls; otherwise it is text, which calls may end
  bool several = true;                         // more than one call is possible
  std::span<const std::string> controls = {};  // control tokens of the vocabulary that are spelled in the marks
};

Result<grammar::Grammar> call_grammar(const CallGrammar& asked, const grammar::Limits& limits = {});

}  // namespace quire::tools

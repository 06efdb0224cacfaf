// What an answer must look like, in any of the forms in which it can be asked for; and the grammar that it means. The
// entry point for servers and programs.
//
//   ConstraintSpec spec{.kind = ConstraintSpec::Kind::Regex, .text = "yes|no"};
//   auto grammar = build(spec);
//   if (!grammar) return fail(grammar.error().message);
//
// Who may call: anyone, from any thread; there is no shared state.
// How it fails: build() with one line that names what cannot be enforced: a keyword and its place, a line of a grammar,
//   a byte of an expression, or that the constraint is too large. It takes at most as many steps as the limits say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/json/value.hpp>

#include "quire/base/error.h"
#include "quire/grammar/grammar.h"

namespace quire::grammar {

struct ConstraintSpec {
  enum class Kind {
    JsonSchema,  // `schema`
    JsonObject,  // any JSON object
    Regex,       // `text`: the whole answer matches it
    Choice,      // the answer is one of `choices`
    Grammar,     // `text`: GBNF or Lark, as grammar_kind() says
    Gbnf,        // `text`
    Lark,        // `text`
  };
  Kind kind = Kind::JsonObject;
  boost::json::value schema;
  std::string text;
  std::vector<std::string> choices;
  bool compact = false;  // JSON without white space between its tokens

  // What may come before: reasoning, free text between two marks. The constraint begins behind it. Without an end there
  // is none.
  struct Reasoning {
    std::string begin, end;
    bool opened = false;  // the prompt has written `begin` already
  };
  Reasoning reasoning = {};
};

// Adds the rules of a constraint to a grammar that has others as well, and returns their start. The reasoning is left
// out: it is the caller's.
Result<SymbolId> add_constraint(Grammar& grammar, const ConstraintSpec& spec);

Result<Grammar> build(const ConstraintSpec& spec, const Limits& limits = {});

// Equal for constraints that are written alike: 64 hexadecimal digits. For caches of compiled grammars.
std::string content_key(const ConstraintSpec& spec);

// Gbnf if the text has a definition with "::=", Lark if it has one with ":". Otherwise Grammar: it is neither.
ConstraintSpec::Kind grammar_kind(std::string_view text);

// The text of a JSON Schema. Fails with one line.
Result<boost::json::value> parse_schema(std::string_view text);

}  // namespace quire::grammar

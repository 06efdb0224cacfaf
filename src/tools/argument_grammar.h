// The grammar of a call's arguments: as JSON, between tags, as Python writes them. A part of answer_grammar.cpp, whose
// header says what holds.
//
// Who may call: one thread. The grammar and what the constructor is given must outlive it.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/value.hpp>

#include "quire/base/error.h"
#include "quire/grammar/grammar.h"
#include "quire/tools/format.h"
#include "quire/tools/tool_list.h"

namespace quire::tools {

// Text of a format, as symbols. Its control tokens are tokens.
class FormatText {
 public:
  FormatText(grammar::Grammar& grammar, std::span<const std::string> controls)
      : grammar_(&grammar), controls_(controls) {}
  void add(std::vector<grammar::SymbolId>& to, std::string_view text) const;
  grammar::SymbolId literal(std::string_view text) const;

 private:
  grammar::Grammar* grammar_;
  std::span<const std::string> controls_;
};

class ArgumentGrammar {
 public:
  // `required`: the answer must be calls. `space`: free white space.
  ArgumentGrammar(grammar::Grammar& grammar, const FormatText& text, bool required, grammar::SymbolId space)
      : grammar_(grammar), text_(text), required_(required), space_(space) {}

  // Whether the arguments follow the tool's schema; keyword arguments do always.
  bool has_schema(const Tool& tool) const { return tool.strict || required_; }

  grammar::SymbolId as_json(const Tool& tool);
  grammar::SymbolId tagged(const Tags& tags, const Tool& tool);
  grammar::SymbolId keywords(const Tool& tool);
  // An id, or a key between tags.
  grammar::RegexId short_text();

  // Why the grammar is not to be used. The first counts.
  void refuse(std::string message);
  const std::optional<Error>& error() const { return error_; }

 private:
  using Symbols = std::vector<grammar::SymbolId>;
  struct Property {
    std::string name;
    const boost::json::value* schema;  // in schema_of()
    bool required = false;
  };

  std::optional<grammar::SymbolId> value_of(const boost::json::value& schema, const boost::json::value& part,
                                            const Tool& tool);
  grammar::SymbolId any_value();
  const boost::json::value& schema_of(const Tool& tool);
  Result<std::vector<Property>> properties_of(const Tool& tool);
  std::optional<std::vector<Property>> properties_to_write(const Tool& tool, const auto& is_name);
  void refuse_in_format(const Tool& tool, std::string_view what);
  void add_middle(Symbols& to, const Tags& tags);
  grammar::SymbolId any_tagged(const Tags& tags);
  grammar::SymbolId tagged_value(const Tags& tags, const Tool& tool, const Property& property);
  grammar::RegexId regex_before(std::string_view mark);
  grammar::SymbolId text_before(std::string_view mark);
  grammar::SymbolId any_keywords();

  grammar::Grammar& grammar_;
  FormatText text_;
  bool required_;
  grammar::SymbolId space_;
  std::map<const Tool*, grammar::SymbolId> json_;  // several shapes share them
  std::map<const Tool*, boost::json::value> schemas_;
  std::optional<Error> error_;
};

}  // namespace quire::tools

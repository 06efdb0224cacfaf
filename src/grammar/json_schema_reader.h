// Reads a schema as Facts: resolves references, merges what must hold together, and multiplies out the choices.
//
// Who may call: one thread.
// What holds:
// - not, oneOf and if are exact: the complement of a schema is again a choice of demands. oneOf takes the complement
//   only of those branches that are not proven disjoint.
// - is_empty() is a proof: true only if no value fits. Facts that no value fits are left out.
// - What cannot be enforced stays in the Facts (not_enforced_*, LazyKeyword), so that it is refused only if it matters.
// How it fails: an Expansion has an error. Work is counted in the budget; if that ends, expansions are short and the
//   caller finds the budget exhausted.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <boost/json/value.hpp>

#include "quire/base/error.h"
#include "quire/grammar/budget.h"
#include "quire/grammar/json_schema_document.h"
#include "quire/grammar/json_schema_facts.h"
#include "quire/grammar/json_schema_keyword.h"
#include "quire/grammar/json_schema_texts.h"

namespace quire::grammar {

class SchemaReader {
 public:
  struct Expansion {
    std::vector<Facts> facts;  // a value fits if it fits one of them
    std::optional<Error> error;
    bool done = false;
  };

  SchemaReader(const SchemaDocument& document, SchemaTexts& texts, Budget& budget);

  // The reference stays valid. Not done: it is being computed further up.
  const Expansion& expand(const Conjuncts& conjuncts);
  bool is_empty(const Conjuncts& conjuncts);

  // What the value of this property must fit.
  Result<Conjuncts> property(const Facts& facts, std::string_view name);
  // The content of the keys that a witness may have, and what its value must fit.
  Result<RegexId> witness_keys(const Witness& witness);
  static Conjuncts witness_value(const Witness& witness);
  // The content of keys that propertyNames allows.
  Result<RegexId> key_language(const Conjuncts& property_names);
  // What the item at this position must fit, and from which position on it is the same for all.
  Conjuncts item(const Facts& facts, std::size_t index) const;
  std::size_t prefix_length(const Facts& facts) const;
  // Whether a value of the schema's text (enum, const) fits. `listed`: it is known to be one of the allowed.
  Result<bool> admits(const Facts& facts, const boost::json::value& value, bool listed = false);
  Result<bool> admits(const Conjuncts& conjuncts, const boost::json::value& value);

  // additionalProperties, or what means the same.
  static const boost::json::value* additional(const boost::json::object& schema);
  static void add(Conjuncts& conjuncts, const Conjunct& conjunct);

 private:
  // The schemas in whose place another one is read: a schema that is among them refers to itself.
  struct Chain {
    const boost::json::value* schema;
    const Chain* parent;
    int depth;
  };
  struct Choice {
    std::shared_ptr<const std::vector<Option>> options;  // shared by the branches that have not chosen yet
    const boost::json::array* one_of = nullptr;          // options are made anew for what is known by then
    const Chain* chain = nullptr;
    Order order;
  };
  struct State {
    Facts facts;
    std::vector<Choice> choices;
    Conjuncts absorbed;
    Order order;  // in front of `position`
    std::uint32_t position = 0;

    Order next_order();
  };
  struct Work {
    std::vector<Facts>& out;
    std::optional<Error> error{};
  };
  using Keyword = SchemaKeyword;

  void absorb(State& state, Work& work, const Conjunct& conjunct, const Chain* chain);
  void absorb_keywords(State& state, Work& work, const boost::json::object& schema, const Chain* chain);
  void absorb_keyword(State& state, Work& work, const boost::json::object& schema, Keyword keyword,
                      std::string_view name, const boost::json::value& value, const Chain* chain);
  void absorb_counts(State& state, Work& work, const boost::json::object& schema, Keyword keyword,
                     std::string_view name, const boost::json::value& value);
  void absorb_number(State& state, Work& work, const boost::json::object& schema, Keyword keyword,
                     std::string_view name, const boost::json::value& value);
  void absorb_object(State& state, Work& work, const boost::json::object& schema, Keyword keyword,
                     std::string_view name, const boost::json::value& value, const Chain* chain);
  void absorb_array(State& state, Work& work, const boost::json::object& schema, Keyword keyword, std::string_view name,
                    const boost::json::value& value);
  void absorb_reference(State& state, Work& work, const boost::json::object& schema, std::string_view name,
                        const boost::json::value& value, const Chain* chain);
  // Whether the numbers in a value are: 1e400 in a schema is read as infinity, which JSON cannot write.
  bool is_finite(const boost::json::value& value);
  void absorb_values(State& state, const boost::json::value* const* first, std::size_t count);
  void absorb_negated(State& state, Work& work, const boost::json::object& schema, const Chain* chain);
  void negate_keyword(std::vector<Option>& options, Work& work, const boost::json::object& schema, Keyword keyword,
                      std::string_view name, const boost::json::value& value);
  void negate_object(std::vector<Option>& options, const boost::json::object& schema, Keyword keyword,
                     std::string_view name, const boost::json::value& value);
  void negate_array(std::vector<Option>& options, const boost::json::object& schema, Keyword keyword,
                    std::string_view name, const boost::json::value& value);
  void negate_choice(std::vector<Option>& options, const boost::json::object& schema, Keyword keyword,
                     const boost::json::value& value);

  static void add_choice(State& state, std::vector<Option> options, const Chain* chain, Order order);
  void choose(State state, Work& work);
  void take(State& state, Work& work, const Option& option, const Chain* chain, const Order& order);
  bool viable(const Facts& facts, const Option& option);
  bool implied(const Facts& facts, const Option& option);
  std::vector<Option> one_of_options(const Facts& facts, const boost::json::array& branches);
  Types quick_types(const boost::json::value& schema, int depth);
  const boost::json::value* types_schema(Types types);

  // prefixItems (of 2020-12; an annotation before), or `items` as a list as it was until 2019-09. Null: no such list.
  bool has_prefix_items(const boost::json::object& schema) const;
  const boost::json::array* prefix(const boost::json::object& schema) const;

  // Takes away types that no value can have. False: nothing is left.
  bool narrow(Facts& facts, Work& work);
  bool may_have_string(const Facts& facts);
  bool may_have_number(const Facts& facts);
  bool may_have_array(const Facts& facts);
  bool may_have_object(const Facts& facts);

  const Chain* extend(const Chain* chain, const boost::json::value& schema);
  void fail_at(Work& work, const boost::json::object& schema, std::string_view keyword, std::string_view why);

  const SchemaDocument& document_;
  SchemaTexts& texts_;
  Budget& budget_;
  std::deque<Chain> chains_;
  struct Hash {
    std::size_t operator()(const Conjuncts& conjuncts) const;
  };
  std::unordered_map<Conjuncts, Expansion, Hash> expansions_;
  std::map<Types, boost::json::value> types_schemas_;
  std::unordered_map<const boost::json::value*, Types> quick_types_;
  int nesting_ = 0;
};

}  // namespace quire::grammar

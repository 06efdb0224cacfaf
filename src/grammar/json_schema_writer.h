// Writes the grammar of a schema's values.
//
// A value that is only a scalar is one terminal. An object costs a few rules for every place in its order: "the members
// from here on", "behind a member". Equal lists of conjuncts are one symbol, so that recursion comes to an end.
//
// Who may call: one thread, write() once.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "quire/base/error.h"
#include "quire/grammar/grammar.h"
#include "quire/grammar/json_schema_order.h"
#include "quire/grammar/json_schema_reader.h"

namespace quire::grammar {

class SchemaWriter {
 public:
  SchemaWriter(Grammar& grammar, SchemaReader& reader, SchemaTexts& texts);

  Result<SymbolId> write(const Conjuncts& conjuncts);

 private:
  struct Member {
    std::string name;
    SymbolId key = 0, value = 0;
    std::optional<SymbolId> witness;  // its value, if it is what a witness must be
    bool required = false;
  };
  struct KeyClass {
    RegexId content;  // of the key, without quotation marks
    Conjuncts value;
  };
  struct Object {
    std::vector<Member> members;
    std::optional<SymbolId> others;   // one additional member
    SymbolId list_of_others = 0;      // any number of them; made by last()
    std::optional<SymbolId> witness;  // one that is a witness
    std::uint64_t least = 0, most = UINT64_MAX;
    const Facts* facts = nullptr;
    MemberOrder order;
    bool counted = false;  // or a witness is asked for: additional members come last
    // Symbols by the place, the count of members that were written, and whether a witness is still to be found.
    using Key = std::tuple<MemberOrder::Place, std::uint64_t, bool>;
    std::map<Key, SymbolId> behind;
    std::vector<Key> open;  // rules of `behind` that have no alternatives yet: written one by one, not by recursion
    std::map<std::pair<Key, std::size_t>, SymbolId> named;  // by the list as well
    std::map<std::pair<std::uint64_t, bool>, SymbolId> last;
  };
  struct Array {
    std::vector<Conjuncts> prefix;
    Conjuncts items;
    std::uint64_t least = 0, most = UINT64_MAX;
    std::vector<Contains> contains;
    std::map<std::pair<std::uint64_t, std::uint64_t>, SymbolId> behind;
  };
  struct Job {
    SymbolId rule;
    const SchemaReader::Expansion* expansion;
  };

  SymbolId value(const Conjuncts& conjuncts);
  RegexId scalars(const Facts& facts);
  void write_structured(const Job& job);

  // One of so many alternatives.
  void write_object(SymbolId rule, const Facts& facts, std::size_t alternatives);
  bool add_members(Object& object, const Facts& facts, std::vector<std::string>& names);
  void add_order(Object& object, const Facts& facts, std::uint64_t most_places);
  std::vector<KeyClass> key_classes(const Facts& facts, const std::vector<std::string>& names);
  std::optional<SymbolId> one_of(const std::vector<KeyClass>& classes);
  bool add_witness(Object& object, const Facts& facts, const std::vector<KeyClass>& classes);
  // `before`, at least one more member, and the end of the object, as alternatives of the rule.
  void add_rest(Object& object, SymbolId rule, SymbolId before, MemberOrder::Place place, std::uint64_t count,
                bool missing);
  // A member of this list, and all up to the end. Nothing: there cannot be one.
  std::optional<SymbolId> named(Object& object, MemberOrder::Place place, std::uint64_t count, bool missing,
                                std::size_t list);
  // What may follow a member. The rule is written later.
  SymbolId behind(Object& object, MemberOrder::Place place, std::uint64_t count, bool missing);
  void write_behind(Object& object, MemberOrder::Place place, std::uint64_t count, bool missing);
  // Additional members up to the end of the object.
  std::optional<SymbolId> last(Object& object, std::uint64_t count, bool missing);

  void write_array(SymbolId rule, const Facts& facts);
  // Behind `count` items. `hits`: what `contains` still asks for; how many items if there is one of them, otherwise a
  // bit for each.
  std::optional<SymbolId> behind(Array& array, std::uint64_t count, std::uint64_t hits);
  std::optional<SymbolId> item(Array& array, std::uint64_t count, std::uint64_t hits);
  // What an item may be a hit for, and what is left to find then. The first is none.
  std::vector<std::pair<Conjuncts, std::uint64_t>> hits_of(const Array& array, std::uint64_t count, std::uint64_t hits);
  const Conjuncts& item_at(const Array& array, std::uint64_t index) const;

  void refuse(const Error& error);
  void refuse(const LazyKeyword& keyword, std::string_view why);
  // `part`: of the schema's text, if it is an object, where to look.
  void refuse_at(const boost::json::value* part, std::string_view keyword, std::string_view why);

  Grammar& grammar_;
  SchemaReader& reader_;
  SchemaTexts& texts_;
  RegexSet& regexes_;
  std::optional<Error> error_;
  std::deque<Job> jobs_;
  std::uint64_t places_ = 0;  // of objects whose lists interleave
  struct Hash {
    std::size_t operator()(const Conjuncts& conjuncts) const;
  };
  std::unordered_map<Conjuncts, SymbolId, Hash> values_;
};

}  // namespace quire::grammar

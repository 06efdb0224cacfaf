// Writes the grammar of a schema's values.
//
// A value that is only a scalar is one terminal. An object with n properties costs 2n rules: "the properties from i on"
// and "behind the property i - 1". Equal lists of conjuncts are one symbol, so that recursion comes to an end.
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
    std::optional<SymbolId> witness;  // one that is a witness
    std::uint64_t least = 0, most = UINT64_MAX;
    const Facts* facts = nullptr;
    // Symbols by the next member, the count of those that were written, and whether a witness is still to be found.
    std::map<std::tuple<std::size_t, std::uint64_t, bool>, SymbolId> rest, behind;
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

  void write_object(SymbolId rule, const Facts& facts);
  std::optional<std::vector<Member>> members(const Facts& facts, std::vector<std::string>& names);
  std::vector<KeyClass> key_classes(const Facts& facts, const std::vector<std::string>& names);
  std::optional<SymbolId> one_of(const std::vector<KeyClass>& classes);
  bool add_witness(Object& object, const Facts& facts, const std::vector<KeyClass>& classes);
  void write_others(Object& object, SymbolId rule, std::uint64_t count, bool missing);
  std::optional<SymbolId> rest(Object& object, std::size_t next, std::uint64_t count, bool missing);
  SymbolId behind(Object& object, std::size_t next, std::uint64_t count, bool missing);

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
  struct Hash {
    std::size_t operator()(const Conjuncts& conjuncts) const;
  };
  std::unordered_map<Conjuncts, SymbolId, Hash> values_;
};

}  // namespace quire::grammar

// What a schema asks of a value, keyword by keyword, after $ref, allOf and the choices (anyOf, oneOf, not, if) are
// resolved: a schema is a list of Facts, and a value fits if it fits one of them.
//
// Conjuncts are parts of the schema's text that must hold together (or must not hold: `negated`). What a property or an
// item must fit is such a list again, so that merging of allOf is lazy and recursion comes to an end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/value.hpp>

#include "quire/grammar/budget.h"
#include "quire/grammar/json_schema_numbers.h"

namespace quire::grammar {

using Types = std::uint8_t;
inline constexpr Types kNull = 1, kBoolean = 2, kInteger = 4, kFraction = 8, kString = 16, kArray = 32, kObject = 64;
inline constexpr Types kNumber = kInteger | kFraction;
inline constexpr Types kAllTypes = 127;

struct Conjunct {
  const boost::json::value* schema;
  bool negated = false;
  bool operator==(const Conjunct&) const = default;
};
using Conjuncts = std::vector<Conjunct>;

// A keyword whose expression is made only if it is needed: pattern, format, multipleOf.
struct LazyKeyword {
  const boost::json::object* schema;
  std::string_view keyword;
  bool negated = false;
};

// Where a keyword stands in the order of reading, also if it was reached through a choice: compared as text.
using Order = std::string;

// properties, patternProperties and additionalProperties of one schema; or what one property must fit.
struct ObjectPart {
  const boost::json::object* schema = nullptr;
  // Of the schema: looked up once, and asked for with every name of every combination of choices. Null: not there.
  const boost::json::object *properties = nullptr, *patterns = nullptr;
  const boost::json::value* others = nullptr;  // SchemaReader::additional()
  std::string name;                            // if there is no schema
  Conjunct property{};
  Order order;
};

// prefixItems, items and additionalItems of one schema; or what every item must fit.
struct ArrayPart {
  const boost::json::object* schema = nullptr;
  Conjunct items{};
};

struct Contains {
  Conjunct item;
  std::uint64_t least = 1;
};

// Some member must break a keyword of `schema`: additionalProperties, one of patternProperties, or propertyNames.
struct Witness {
  const boost::json::object* schema = nullptr;
  std::string_view keyword{};
  std::string_view pattern{};                  // patternProperties
  const boost::json::value* broken = nullptr;  // what its value, or for propertyNames its key, does not fit
};

struct Facts {
  Types types = kAllTypes;
  std::optional<std::vector<const boost::json::value*>> allowed;  // enum, const
  std::vector<const boost::json::value*> excluded;                // not enum, not const

  std::uint64_t least_length = 0, most_length = UINT64_MAX;
  std::vector<LazyKeyword> texts;  // pattern, format

  NumberRange range;
  std::vector<LazyKeyword> multiples;

  std::vector<ArrayPart> array_parts;
  std::uint64_t least_items = 0, most_items = UINT64_MAX;
  std::vector<Contains> contains;

  std::vector<ObjectPart> object_parts;
  std::vector<std::string> required;
  Conjuncts property_names;
  std::uint64_t least_properties = 0, most_properties = UINT64_MAX;
  const boost::json::object* properties_counted = nullptr;  // the schema that counts them
  std::vector<Witness> witnesses;

  // Keywords that cannot be enforced. They matter only if a value of their type is possible.
  std::vector<LazyKeyword> not_enforced_array, not_enforced_object;
};

// What must hold beside the conjuncts of a schema if one option of a choice is taken.
struct Demand {
  enum class Kind : std::uint8_t {
    Schema,
    TypeIn,
    Required,
    Property,
    Excluded,
    Least,
    Most,
    Text,
    Multiple,
    LeastLength,
    MostLength,
    LeastItems,
    MostItems,
    LeastProperties,
    MostProperties,
    Containing,
    Items,
    PropertyNames,
    Witness,
    NotEnforced,
  };
  Kind kind = Kind::Schema;
  Conjunct schema{};                          // Schema, Property, Containing, Items, PropertyNames
  Types types = 0;                            // TypeIn
  std::string name{};                         // Required, Property
  std::uint64_t number = 0;                   // LeastLength ... MostProperties
  Decimal bound{};                            // Least, Most
  bool exclusive = false;                     // Least, Most
  LazyKeyword keyword{};                      // Text, Multiple, NotEnforced; Least- and MostProperties
  const boost::json::value* value = nullptr;  // Excluded
  struct Witness witness {};
};
using Option = std::vector<Demand>;

// Adds what one option demands, except for schemas.
void apply(Facts& facts, const Demand& demand);

void narrow_to(Facts& facts, Types types);
// Counts what it compares. If the budget ends first: false.
bool equal_values(const boost::json::value& a, const boost::json::value& b, Budget& budget);
// The types that a value has: an integer is written without a fraction, or with one that is zero.
Types type_of(const boost::json::value& value);
// 0 if there is no such type.
Types type_named(std::string_view name);

}  // namespace quire::grammar

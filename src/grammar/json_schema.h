// JSON Schema (2020-12 and draft 7, as found in the wild) to a grammar of the JSON texts that it admits.
//
// What holds: a text that the grammar admits is valid for the schema. What cannot be enforced is refused with the
//   keyword's name and its place ("#/properties/a/not: ..."), never weakened. Annotations and "x-" keywords are
//   ignored. Properties come in the order in which the schema lists them, then additional ones. White space between
//   tokens of JSON is free but bounded, or none (compact).
// How it fails: with one line that names the keyword and its place, or says that the schema is too large.
#pragma once

#include <boost/json/value.hpp>

#include "quire/base/error.h"
#include "quire/grammar/grammar.h"

namespace quire::grammar {

struct SchemaOptions {
  bool compact = false;  // no white space between tokens
};

// A symbol that matches exactly one JSON value that fits the schema.
Result<SymbolId> add_json_schema(Grammar& grammar, const boost::json::value& schema, const SchemaOptions& options = {});
// The same for a part of a schema. References and the draft are those of the whole.
Result<SymbolId> add_json_schema_part(Grammar& grammar, const boost::json::value& schema,
                                      const boost::json::value& part, const SchemaOptions& options = {});
// Any JSON object: response_format json_object.
SymbolId add_any_json_object(Grammar& grammar, const SchemaOptions& options = {});

}  // namespace quire::grammar

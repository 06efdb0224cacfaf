#include "quire/grammar/json_schema.h"

#include "quire/grammar/json_schema_document.h"
#include "quire/grammar/json_schema_reader.h"
#include "quire/grammar/json_schema_texts.h"
#include "quire/grammar/json_schema_writer.h"

namespace quire::grammar {

namespace json = boost::json;

Result<SymbolId> add_json_schema(Grammar& grammar, const json::value& schema, const SchemaOptions& options) {
  return add_json_schema_part(grammar, schema, schema, options);
}

Result<SymbolId> add_json_schema_part(Grammar& grammar, const json::value& schema, const json::value& part,
                                      const SchemaOptions& options) {
  const SchemaDocument document(schema, grammar.budget());
  SchemaTexts texts(grammar.regexes(), document, options.compact);
  SchemaReader reader(document, texts, grammar.budget());
  return SchemaWriter(grammar, reader, texts).write({{.schema = &part}});
}

SymbolId add_any_json_object(Grammar& grammar, const SchemaOptions& options) {
  const json::value schema = json::object{{"type", "object"}};
  return add_json_schema(grammar, schema, options).value_or(grammar.rule());
}

}  // namespace quire::grammar

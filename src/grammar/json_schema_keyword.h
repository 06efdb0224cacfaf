// The keywords of JSON Schema that say something about a value. Everything else is an annotation.
#pragma once

#include <cstdint>
#include <string_view>

namespace quire::grammar {

enum class SchemaKeyword : std::uint8_t {
  Annotation,
  AdditionalItems,
  AdditionalProperties,
  AllOf,
  AnyOf,
  Const,
  Contains,
  Content,  // contentEncoding, contentMediaType
  Dependencies,
  DependentRequired,
  DependentSchemas,
  DynamicRef,
  Else,
  Enum,
  ExclusiveMaximum,
  ExclusiveMinimum,
  Format,
  If,
  Items,
  MaxContains,
  MaxItems,
  MaxLength,
  MaxProperties,
  Maximum,
  MinContains,
  MinItems,
  MinLength,
  MinProperties,
  Minimum,
  MultipleOf,
  Not,
  OneOf,
  Pattern,
  PatternProperties,
  PrefixItems,
  Properties,
  PropertyNames,
  Ref,
  Required,
  Then,
  Type,
  UnevaluatedItems,
  UnevaluatedProperties,
  UniqueItems,
};

// Annotation as well if the draft (see SchemaDocument::draft) does not have the keyword yet.
SchemaKeyword schema_keyword(std::string_view name, int draft);

}  // namespace quire::grammar

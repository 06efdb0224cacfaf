// The fields of a request that ask for an answer of a certain shape: OpenAI's "response_format", vLLM's "guided_json",
// "guided_regex", "guided_choice", "guided_grammar" and "structured_outputs", llama.cpp's "grammar" and "json_schema".
//
// Who may call: any thread; there is no state.
// How it fails: with the error for the client, which names the field. Two fields that ask for a shape are an error.
#pragma once

#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>

#include "quire/grammar/constraint.h"
#include "quire/server/api_error.h"

namespace quire::server {

struct AskedConstraint {
  grammar::ConstraintSpec spec;
  std::string field;  // for error messages: "response_format.json_schema.schema"
};

// The names of these fields.
std::span<const std::string_view> constraint_fields();

// Nothing: the answer is free.
std::expected<std::optional<AskedConstraint>, ApiError> read_constraint(const boost::json::object& body);

}  // namespace quire::server

// Reads any bytes as a JSON Schema, and walks through its texts with a small vocabulary; see grammar_fuzz.cpp for what
// must hold. Besides, every text that is complete must be JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <boost/json/parse.hpp>

#include "quire/base/check.h"
#include "quire/grammar/constraint.h"
#include "quire/grammar/matcher_walk_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using quire::grammar::ConstraintSpec;
  if (size < 2) return 0;
  const std::size_t steps = size > 9 ? 8 : 0;
  auto schema = quire::grammar::parse_schema({reinterpret_cast<const char*>(data) + 1, size - 1 - steps});
  if (!schema) return 0;
  ConstraintSpec spec;
  spec.kind = ConstraintSpec::Kind::JsonSchema;
  spec.schema = std::move(*schema);
  spec.compact = (data[0] & 1) != 0;
  quire::grammar::testing::walk(spec, {data + size - steps, steps}, [](std::string_view text) {
    boost::system::error_code code;
    boost::json::parse(text, code, {}, {.max_depth = 1000});
    QUIRE_CHECK(!code, "a complete text is JSON");
  });
  return 0;
}

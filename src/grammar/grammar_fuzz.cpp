// Reads any bytes as a regular expression, a GBNF or a Lark grammar, and walks through its texts with a small
// vocabulary. The walk takes the tokens that the input says, from those that the mask allows.
//
// What must hold: nothing crashes; the work is bounded by the limits; accept() takes exactly the tokens of the mask; a
// refused token changes nothing; forced tokens are allowed one after the other; bytes and tokens agree; a copy goes on
// like its original.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/check.h"
#include "quire/grammar/constraint.h"
#include "quire/grammar/matcher.h"
#include "quire/grammar/matcher_walk_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using quire::grammar::ConstraintSpec;
  if (size < 2) return 0;
  // The first byte says what it is, the last eight which way to go.
  constexpr ConstraintSpec::Kind kKinds[] = {ConstraintSpec::Kind::Regex, ConstraintSpec::Kind::Gbnf,
                                             ConstraintSpec::Kind::Lark, ConstraintSpec::Kind::Grammar};
  ConstraintSpec spec;
  spec.kind = kKinds[data[0] % 4];
  const std::size_t steps = size > 9 ? 8 : 0;
  spec.text.assign(reinterpret_cast<const char*>(data) + 1, size - 1 - steps);
  quire::grammar::testing::walk(spec, {data + size - steps, steps});
  return 0;
}

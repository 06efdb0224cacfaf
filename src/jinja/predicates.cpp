#include "quire/jinja/predicates.h"

#include <algorithm>
#include <iterator>

#include "quire/jinja/access.h"
#include "quire/jinja/filters.h"
#include "quire/jinja/methods.h"
#include "quire/jinja/operators.h"
#include "quire/jinja/print.h"

namespace quire::jinja {
namespace {

bool is_integer(const Value& value) { return value.integer() != nullptr; }
bool is_number(const Value& value) {
  return is_integer(value) || value.boolean() != nullptr || value.real() != nullptr;
}

bool is_callable(const Value& value) {
  return value.function() != nullptr || value.macro() != nullptr || value.loop() != nullptr ||
         value.undefined() != nullptr;
}

// Whether len(value) and value[...] both work. Jinja2 says so of an undefined value too.
bool is_sequence(const Value& value) {
  const Sequence* sequence = value.sequence();
  return sequence != nullptr ? sequence->indexable() : sized(value);
}

// Tests without arguments.
template <auto Predicate>
bool plain(Runtime&, const Value& value, const Arguments& arguments) {
  bind_nothing("this test", arguments);
  return Predicate(value);
}

template <Comparison operation>
bool compared(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto [other] = bind("this test", arguments, {""}, 1);
  return compare(runtime, operation, value, *other);
}

bool has_remainder(Runtime& runtime, const Value& value, const Value& divisor, Int remainder) {
  return equal(runtime.meter, calculate(runtime, Arithmetic::modulo, value, divisor), Value(remainder));
}

template <int remainder>
bool modulo_two(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind_nothing("this test", arguments);
  return has_remainder(runtime, value, Value(2), remainder);
}

bool divisible_by(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto [divisor] = bind("divisibleby", arguments, {"num"}, 1);
  return has_remainder(runtime, value, *divisor, 0);
}

bool same_as(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto [other] = bind("sameas", arguments, {"other"}, 1);
  // In Python, equal constants are one object.
  if (value.text() != nullptr && other->text() != nullptr) return equal(runtime.meter, value, *other);
  return same_object(value, *other);
}

template <bool is_upper_case>
bool in_case(Runtime& runtime, const Value& value, const Arguments& arguments) {
  bind_nothing("this test", arguments);
  return has_case(to_plain_text(runtime.meter, value).text()->bytes, is_upper_case);
}

bool is_filter(Runtime&, const Value& value, const Arguments& arguments) {
  bind_nothing("filter", arguments);
  return value.text() != nullptr && find_filter(value.text()->bytes) != nullptr;
}

bool is_test(Runtime&, const Value& value, const Arguments& arguments) {
  bind_nothing("test", arguments);
  return value.text() != nullptr && find_test(value.text()->bytes) != nullptr;
}

constexpr auto kDefined = [](const Value& value) { return value.undefined() == nullptr; };
constexpr auto kUndefined = [](const Value& value) { return value.undefined() != nullptr; };
constexpr auto kNone = [](const Value& value) { return value.is_none(); };
constexpr auto kBoolean = [](const Value& value) { return value.boolean() != nullptr; };
constexpr auto kTrue = [](const Value& value) { return value.boolean() != nullptr && *value.boolean(); };
constexpr auto kFalse = [](const Value& value) { return value.boolean() != nullptr && !*value.boolean(); };
constexpr auto kFloat = [](const Value& value) { return value.real() != nullptr; };
constexpr auto kString = [](const Value& value) { return value.text() != nullptr; };
constexpr auto kMapping = [](const Value& value) { return value.dict() != nullptr; };
constexpr auto kEscaped = [](const Value& value) { return value.text() != nullptr && value.text()->markup; };

constexpr Test kTests[] = {{"defined", plain<kDefined>},
                           {"undefined", plain<kUndefined>},
                           {"none", plain<kNone>},
                           {"boolean", plain<kBoolean>},
                           {"true", plain<kTrue>},
                           {"false", plain<kFalse>},
                           {"integer", plain<is_integer>},
                           {"float", plain<kFloat>},
                           {"number", plain<is_number>},
                           {"string", plain<kString>},
                           {"mapping", plain<kMapping>},
                           {"sequence", plain<is_sequence>},
                           {"iterable", plain<iterable>},
                           {"callable", plain<is_callable>},
                           {"escaped", plain<kEscaped>},
                           {"odd", modulo_two<1>},
                           {"even", modulo_two<0>},
                           {"divisibleby", divisible_by},
                           {"lower", in_case<false>},
                           {"upper", in_case<true>},
                           {"sameas", same_as},
                           {"filter", is_filter},
                           {"test", is_test},
                           {"in", compared<Comparison::in>},
                           {"==", compared<Comparison::equal>},
                           {"eq", compared<Comparison::equal>},
                           {"equalto", compared<Comparison::equal>},
                           {"!=", compared<Comparison::not_equal>},
                           {"ne", compared<Comparison::not_equal>},
                           {"<", compared<Comparison::less>},
                           {"lt", compared<Comparison::less>},
                           {"lessthan", compared<Comparison::less>},
                           {"<=", compared<Comparison::less_equal>},
                           {"le", compared<Comparison::less_equal>},
                           {">", compared<Comparison::greater>},
                           {"gt", compared<Comparison::greater>},
                           {"greaterthan", compared<Comparison::greater>},
                           {">=", compared<Comparison::greater_equal>},
                           {"ge", compared<Comparison::greater_equal>}};

}  // namespace

const Test* find_test(std::string_view name) {
  const auto found = std::ranges::find(kTests, name, &Test::name);
  return found != std::end(kTests) ? &*found : nullptr;
}

}  // namespace quire::jinja

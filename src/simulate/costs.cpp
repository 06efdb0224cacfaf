#include "quire/simulate/costs.h"

#include <cerrno>
#include <cmath>
#include <fstream>
#include <optional>
#include <system_error>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

namespace quire::simulate {
namespace {

namespace json = boost::json;
using engine::StepCosts;

Result<StepCosts> costs_from(const json::object& object) {
  StepCosts costs;
  struct Field {
    const char* name;
    double StepCosts::*value;
  };
  constexpr Field kFields[] = {{"base", &StepCosts::base},
                               {"decode_row", &StepCosts::decode_row},
                               {"prefill_row", &StepCosts::prefill_row},
                               {"decode_context", &StepCosts::decode_context},
                               {"prefill_context", &StepCosts::prefill_context}};
  for (const Field& field : kFields) {
    const json::value* const value = object.if_contains(field.name);
    if (value == nullptr) return fail(fmt::format("has no {}", field.name));
    std::error_code error;
    const auto seconds = value->to_number<double>(error);
    if (error || !(seconds >= 0 && seconds < 1e6))
      return fail(fmt::format("{} is not a number of seconds", field.name));
    costs.*field.value = seconds;
  }
  if (costs.base == 0) return fail("base is 0: a step takes some time");
  return costs;
}

}  // namespace

StepCosts costs_of(const Rates& rates) {
  constexpr double kDecodeRow = 0.6, kDecodeContext = 1.0 / 130'000, kPrefillContext = 1.0 / 32'000;
  const double row = 1 / rates.prefill, base = 1 / rates.decode;
  return {.base = base,
          .decode_row = kDecodeRow * row,
          .prefill_row = row,
          .decode_context = kDecodeContext * base,
          .prefill_context = kPrefillContext * row};
}

Result<StepCosts> read_costs(const std::string& path) {
  std::ifstream in(path);
  if (!in) return fail(fmt::format("{}: {}", path, std::generic_category().message(errno)));
  std::optional<StepCosts> found;
  std::string line;
  for (std::uint64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::error_code error;
    const json::value parsed = json::parse(line, error);
    const json::object* object = error ? nullptr : parsed.if_object();
    if (object == nullptr) return fail(fmt::format("{}:{}: is not a JSON object", path, number));
    if (const json::value* inner = object->if_contains("costs")) {
      object = inner->if_object();
      if (object == nullptr) return fail(fmt::format("{}:{}: costs is not an object", path, number));
    } else if (object->contains("workload")) {
      continue;  // a row of quire bench that measured no costs
    }
    const auto costs = costs_from(*object);
    if (!costs) return fail(fmt::format("{}:{}: {}", path, number, costs.error().message));
    found = *costs;
  }
  if (!found) return fail(fmt::format("{}: has no costs (quire bench -w serve --json prints them)", path));
  return *found;
}

}  // namespace quire::simulate

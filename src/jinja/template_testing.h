// For tests of the template interpreter: renders in one line.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <gtest/gtest.h>

#include "quire/jinja/template.h"

namespace quire::jinja::testing {

// 26 July 2024, 13:05:09, a Friday.
inline RenderOptions fixed_options() {
  using namespace std::chrono;
  RenderOptions options;
  options.now = local_days(year(2024) / July / 26) + hours(13) + minutes(5) + seconds(9);
  return options;
}

inline TemplateResult<std::string> try_render(std::string_view source, const boost::json::object& variables = {},
                                              const RenderOptions& options = fixed_options()) {
  const auto parsed = Template::parse(source);
  if (!parsed) return std::unexpected(parsed.error());
  auto rendered = parsed->render(variables, options);
  if (!rendered) return std::unexpected(rendered.error());
  return std::move(rendered->text);
}

// Variables are JSON text. If rendering fails, the test fails and the message is returned.
inline std::string render(std::string_view source, std::string_view variables = "{}") {
  const auto result = try_render(source, boost::json::parse(variables).as_object());
  if (result) return *result;
  ADD_FAILURE() << source << "\n" << result.error().message;
  return result.error().message;
}

// The error of a rendering. If it succeeds, the test fails.
inline TemplateError failure(std::string_view source, std::string_view variables = "{}",
                             const RenderOptions& options = fixed_options()) {
  auto result = try_render(source, boost::json::parse(variables).as_object(), options);
  if (!result) return std::move(result.error());
  ADD_FAILURE() << source << "\nrenders as: " << result->substr(0, 200);
  return {};
}

}  // namespace quire::jinja::testing

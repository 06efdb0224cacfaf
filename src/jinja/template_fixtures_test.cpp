// Compares with Jinja2's own output: testdata/chat has chat templates with the constructs of published ones,
// testdata/templates has single constructs. generate.py in each folder runs Jinja2.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <boost/json/array.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/jinja/template.h"
#include "quire/jinja/template_testing.h"

namespace quire::jinja {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;
using testing::fixed_options;
using testing::try_render;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

json::object read_json(const fs::path& path) { return json::parse(read_file(path)).as_object(); }

std::string string_at(const json::object& object, std::string_view key) {
  return std::string(object.at(key).as_string());
}

TEST(ChatTemplates, RenderOrRefuseConversationsAsJinja2Does) {
  const fs::path folder = fs::path(QUIRE_SOURCE_DIR) / "testdata/chat";
  int renderings = 0;
  int refusals = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const auto parsed = Template::parse(read_file(entry.path()));
    ASSERT_TRUE(parsed) << parsed.error().message;
    json::object fixture = read_json(fs::path(entry.path()).replace_extension(".json"));
    for (json::value& value : fixture.at("cases").as_array()) {
      json::object variables = value.as_object();
      SCOPED_TRACE(string_at(variables, "name"));
      variables["bos_token"] = fixture.at("bos_token");
      variables["eos_token"] = fixture.at("eos_token");
      const auto result = parsed->render(variables, fixed_options());
      if (const json::value* expected = variables.if_contains("expected")) {
        ASSERT_TRUE(result) << result.error().message;
        EXPECT_EQ(result->text, std::string_view(expected->as_string()));
        ++renderings;
      } else {
        ASSERT_FALSE(result) << result->text;
        // Messages of Python itself are not repeated word for word.
        const bool raised = variables.at("raised").as_bool();
        EXPECT_EQ(result.error().kind == TemplateError::Kind::raised, raised) << result.error().message;
        if (raised) {
          EXPECT_EQ(result.error().raised, string_at(variables, "error"));
        }
        ++refusals;
      }
    }
  }
  EXPECT_EQ(renderings + refusals, 8 * 9);
  EXPECT_GT(refusals, 0);
}

class JinjaFixture : public ::testing::TestWithParam<const char*> {};

TEST_P(JinjaFixture, RendersOrFailsAsJinja2Does) {
  json::object fixture = read_json(fs::path(QUIRE_SOURCE_DIR) / "testdata/templates" / GetParam());
  const json::object& variables = fixture.at("variables").as_object();
  ASSERT_FALSE(fixture.at("cases").as_array().empty());
  for (const json::value& value : fixture.at("cases").as_array()) {
    const json::object& one = value.as_object();
    const std::string source = string_at(one, "template");
    const auto result = try_render(source, variables);
    if (const json::value* expected = one.if_contains("expected")) {
      EXPECT_EQ(result ? *result : result.error().message, std::string_view(expected->as_string())) << source;
    } else {
      EXPECT_FALSE(result) << source << "\nJinja2 fails: " << string_at(one, "error") << "\nhere: " << *result;
    }
  }
}

// Features that no published template uses: see src/jinja/README.md.
TEST(LeftOut, IsNamedWhereATemplateUsesIt) {
  json::object fixture = read_json(fs::path(QUIRE_SOURCE_DIR) / "testdata/templates/left_out.json");
  ASSERT_FALSE(fixture.at("cases").as_array().empty());
  for (const json::value& value : fixture.at("cases").as_array()) {
    const std::string source = string_at(value.as_object(), "template");
    const auto result = try_render(source, fixture.at("variables").as_object());
    ASSERT_FALSE(result) << source << "\n" << *result;
    EXPECT_THAT(result.error().message, ::testing::EndsWith(string_at(value.as_object(), "error"))) << source;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, JinjaFixture,
                         ::testing::Values("conversations.json", "expressions.json", "statements.json",
                                           "whitespace.json"),
                         [](const auto& file) {
                           const std::string name = file.param;
                           return name.substr(0, name.find('.'));
                         });

}  // namespace
}  // namespace quire::jinja

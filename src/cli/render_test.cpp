// `quire render`, called in this process.
#include "quire/cli/render.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/cli/cli_testing.h"
#include "quire/cli/date.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/model/model_testing.h"

namespace quire::cli {
namespace {

using ::testing::AllOf;
using testing::demo_model;
using ::testing::HasSubstr;
using testing::write_file;

class Render : public ::testing::Test {
 protected:
  std::string file(std::string_view name, std::string_view text) {
    write_file(folder_ / name, text);
    return folder_ / name;
  }
  // Renders a conversation with a template of its own.
  RenderCommandOptions with(std::string_view source, std::string_view messages = R"({"messages": []})") {
    return {.template_path = file("t.jinja", source), .messages = file("m.json", messages)};
  }
  static std::string rendered(const RenderCommandOptions& options, const Style& style = {}) {
    const auto out = render(options, style);
    EXPECT_TRUE(out) << out.error().message;
    return out.value_or("");
  }
  static std::string refusal(const RenderCommandOptions& options) {
    const auto out = render(options, {});
    return out ? "(it was rendered)" : out.error().message;
  }

  gguf::testing::TemporaryFolder folder_;
};

TEST_F(Render, UsesTheModelsTemplate) {
  const std::string messages = file("m.json", R"({"messages": [{"role": "user", "content": "Hi"}]})");
  RenderCommandOptions options = {.model = demo_model("llama"), .messages = messages};
  EXPECT_EQ(rendered(options), "<|im_start|>user\nHi<|im_end|>\n");
  options.add_generation_prompt = true;
  EXPECT_EQ(rendered(options), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(Render, TheRenderingIsPrintedAndNotAByteMore) {
  EXPECT_EQ(rendered(with("a")), "a");
  EXPECT_EQ(rendered(with("{{ '' }}")), "");
  EXPECT_EQ(rendered(with("\x1b[1m")), "\x1b[1m");
  EXPECT_EQ(rendered(with("\x1b[1m\nb"), {.terminal = true}), "\\x1b[1m\nb");
}

TEST_F(Render, JsonHasTheText) {
  RenderCommandOptions options = with("a\n\nb");
  options.json = true;
  EXPECT_EQ(rendered(options), "{\"text\":\"a\\n\\nb\"}\n");
}

TEST_F(Render, MessagesMayStandAlone) {
  EXPECT_EQ(rendered(with("{{ messages[0].role }}", R"([{"role": "user"}])")), "user");
  EXPECT_EQ(rendered(with("{{ messages | length }}", "\xEF\xBB\xBF[]")), "0");
}

TEST_F(Render, AnyOtherVariableIsPassedOn) {
  EXPECT_EQ(rendered(with("{{ bos_token }}{{ tools[0].name }}{{ thinking }}",
                          R"({"messages": [], "bos_token": "<s>", "tools": [{"name": "f"}], "thinking": 3})")),
            "<s>f3");
}

TEST_F(Render, ToolsAndDocumentsAreNullWhereThereAreNone) {
  EXPECT_EQ(rendered(with("{{ tools is defined }}{{ tools is none }}{{ documents is none }}{{ other is defined }}")),
            "TrueTrueTrueFalse");
}

TEST_F(Render, TheGenerationPromptIsForTheCommandLineOrTheJsonToAskFor) {
  RenderCommandOptions options = with("{{ add_generation_prompt }}");
  EXPECT_EQ(rendered(options), "False");
  options.add_generation_prompt = true;
  EXPECT_EQ(rendered(options), "True");
  EXPECT_EQ(rendered(with("{{ add_generation_prompt }}", R"({"messages": [], "add_generation_prompt": true})")),
            "True");
}

TEST_F(Render, SpecialTokensComeFromTheModelUnlessTheJsonHasThem) {
  auto model = model::testing::TestModel::attention("llama");
  model.set_key("tokenizer.ggml.model", std::string("gpt2"))
      .set_key("tokenizer.ggml.pre", std::string("qwen2"))
      .set_key("tokenizer.ggml.merges", std::vector<std::string>{})
      .set_key("tokenizer.ggml.bos_token_id", 1U)
      .set_key("tokenizer.ggml.eos_token_id", 2U)
      .set_key("tokenizer.chat_template", std::string("{{ bos_token }}{{ eos_token }}"));
  ASSERT_TRUE(model.writer().write(folder_ / "model.gguf"));
  const auto with_json = [this](std::string_view json) {
    return rendered({.model = folder_ / "model.gguf", .messages = file("m.json", json)});
  };
  EXPECT_EQ(with_json("[]"), "bc");
  EXPECT_EQ(with_json(R"({"messages": [], "bos_token": "<s>"})"), "<s>c");
  EXPECT_EQ(with_json(R"({"messages": [], "bos_token": "", "eos_token": "</s>"})"), "</s>");
}

TEST_F(Render, NowIsWhatTheCommandLineSays) {
  RenderCommandOptions options = with("{{ strftime_now('%d %b %Y %H:%M:%S') }}");
  options.now = parse_date("2024-07-26T09:30:15");
  EXPECT_EQ(rendered(options), "26 Jul 2024 09:30:15");
  options.now.reset();
  EXPECT_EQ(rendered(options).size(), std::string_view("26 Jul 2024 09:30:15").size());
}

TEST_F(Render, WhatIsNotJsonIsNamedWithItsPlace) {
  const auto with_json = [this](std::string_view json) { return refusal(with("x", json)); };
  EXPECT_THAT(with_json("{\n \"messages\": [],\n}"), HasSubstr("m.json: line 3, column 1: not JSON: syntax error"));
  EXPECT_THAT(with_json(""), HasSubstr("m.json: line 1, column 1: not JSON: incomplete"));
  EXPECT_THAT(with_json("[1, 2"), HasSubstr("not JSON: incomplete"));
  EXPECT_THAT(with_json("[] []"), HasSubstr("line 1, column 4: something follows the JSON value"));
  EXPECT_THAT(with_json("[\"\xff\"]"), HasSubstr("not JSON"));
  EXPECT_THAT(with_json("3"), HasSubstr("neither an object"));
  EXPECT_THAT(with_json("{}"), HasSubstr("has no \"messages\""));
  EXPECT_THAT(with_json(R"({"messages": "hi"})"), HasSubstr("\"messages\" is not an array"));
  EXPECT_THAT(with_json(std::string(100000, '[')), HasSubstr("not JSON"));
}

TEST_F(Render, ATemplateThatIsWrongIsNamedWithItsLine) {
  EXPECT_THAT(refusal(with("a\n{% if %}")), HasSubstr("t.jinja: line 2: "));
  EXPECT_THAT(refusal(with("a\n\n{{ raise_exception('not me') }}")),
              AllOf(HasSubstr("t.jinja: line 3: "), HasSubstr("not me")));
  EXPECT_THAT(refusal(with(std::string((1 << 20) + 1, 'x'))), HasSubstr("t.jinja: is larger than 1048576 bytes"));
  EXPECT_THAT(refusal({.template_path = folder_ / "none.jinja", .messages = file("m.json", "[]")}),
              HasSubstr("none.jinja: cannot be opened"));
}

TEST_F(Render, ATemplateThatNeverEndsIsStopped) {
  constexpr std::string_view kForever =
      "{% set ns = namespace(n=0) %}{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) "
      "%}"
      "{% set ns.n = ns.n + 1 %}{% endfor %}{% endfor %}{% endfor %}";
  EXPECT_THAT(refusal(with(kForever)), HasSubstr("t.jinja: line 1: "));
  EXPECT_THAT(refusal(with("{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}")), HasSubstr("t.jinja: line 1: "));
  EXPECT_THAT(refusal(with("{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for a in range(64) %}"
                           "{% set ns.s = ns.s + ns.s %}{% endfor %}")),
              HasSubstr("t.jinja: line 1: "));
}

TEST_F(Render, AModelWithoutATemplateIsRefused) {
  ASSERT_TRUE(model::testing::TestModel::attention("llama").writer().write(folder_ / "model.gguf"));
  EXPECT_THAT(refusal({.model = folder_ / "model.gguf", .messages = file("m.json", "[]")}),
              HasSubstr("has no metadata 'tokenizer.chat_template'"));
}

}  // namespace
}  // namespace quire::cli

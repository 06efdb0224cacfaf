// `quire render`: renders a conversation with a chat template.
//
// How it fails: with one line that names the file: the messages (with line and column if it is not JSON), the template
//   (with the line) or the model.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "quire/base/error.h"
#include "quire/cli/style.h"

namespace quire::cli {

struct RenderCommandOptions {
  // Either `model` or `template_path` is given.
  std::string model;          // a GGUF file: its template, and its BOS and EOS
  std::string template_path;  // a template on its own
  std::string messages;       // a JSON file; "-": standard input
  bool add_generation_prompt = false;
  std::optional<std::chrono::local_seconds> now;  // empty: the clock
  bool json = false;
};

// Returns exactly the rendered text, or JSON. On a terminal, control characters are escaped.
Result<std::string> render(const RenderCommandOptions& options, const Style& style);

}  // namespace quire::cli

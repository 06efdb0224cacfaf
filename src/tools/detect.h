// Finds out how a model writes calls of tools and reasoning, from what its chat template writes when it is given a
// conversation with a call or with reasoning. The names and arguments in it are known, so what the template wrote can
// be read back with each format; the one that reads them is the model's. The template's source and the model's name are
// not looked at.
//
// Who may call: any thread; there is no state.
// How it fails: it does not. If a template shows nothing that a format reads, the vocabulary decides: some models have
//   tokens for their marks, and templates that do not write them. Else the format is the fallback.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json/object.hpp>

#include "quire/tools/format.h"

namespace quire::tools {

// Renders a conversation: `messages`, `tools`, `add_generation_prompt` and others. Nothing: the template refused.
using Render = std::function<std::optional<std::string>(boost::json::object variables)>;

struct Detected {
  const Format* format = nullptr;        // never null
  const Shape* shape = nullptr;          // of the format: the one that the template writes; never null
  const Reasoning* reasoning = nullptr;  // null: none was seen
  bool reads_back = false;               // the template's calls were read
  // What the template writes into the prompt: the tools of the request, the calls of earlier answers, and their
  // results. What it does not is told in words: tool_prompt.h.
  bool tells_tools = false;
  bool writes_calls = false;
  bool writes_results = false;
  bool takes_system = false;  // the template writes a system message
  bool several = false;       // the template takes several calls in one message
  // How the template wants messages with calls.
  bool arguments_as_text = false;  // a string of JSON, not an object
  bool null_content = false;       // no content is null, not ""
  std::string reasoning_key;       // the key of a message's reasoning that the template writes; empty: none
};

// Whether the vocabulary has a token with this spelling.
using HasToken = std::function<bool(std::string_view spelling)>;

Detected detect(const Render& render, const HasToken& has_token);

}  // namespace quire::tools

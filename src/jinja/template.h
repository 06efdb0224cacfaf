// Chat templates: an interpreter for the part of Jinja2 that the templates of published models use. It is configured
// like Jinja2 in Hugging Face transformers (trim_blocks, lstrip_blocks, loop controls, {% generation %}, tojson without
// HTML escapes, the immutable sandbox). Its output is the same as Jinja2's, byte for byte.
//
// Who may call: any number of threads may render a Template at the same time; it does not change after parsing.
//
// What holds:
// - A template sees its variables and `now`, and nothing else: no files, no environment, no clock, no state from an
//   earlier rendering.
// - Rendering ends: every step, every byte of text and every byte held counts against RenderOptions. With the default
//   limits, a template that loops forever stops with an error after a fraction of a second.
// - Text keeps its origin through every operation: the rendering says which bytes came from variables. If an operation
//   cannot track it, its result counts as from outside if any part of its input was. Numbers carry no origin.
// - The order of keys in objects is kept, integers stay integers, and text is counted in code points as in Python.
//   Invalid UTF-8 in variables is repaired with U+FFFD.
//
// How it fails: with a TemplateError, whose message begins "line N: ". Its `kind` tells whether the template is broken
//   or refuses the conversation (raise_exception).
//
// What is left out: README.md beside this header lists what is supported and what is not, and why. Integers have at
// most 127 bits. map, select and similar filters are not lazy, so they fail even if their result is not used.
//
// The caller sets the variables, under the names that templates use: messages, tools, documents, bos_token, eos_token,
// add_generation_prompt and others. A name that is not set is undefined, which is not the same as null: transformers
// always sets `tools` and `documents`, to null if there are none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "quire/base/error.h"
#include "quire/base/text_range.h"

namespace quire::jinja {

struct Program;

// Derived from Error, so that callers who do not need `kind` can treat it as one.
struct TemplateError : Error {
  enum class Kind {
    syntax,   // the template cannot be parsed
    runtime,  // an expression failed, as it would in Jinja2
    raised,   // the template called raise_exception: it does not accept the conversation
    limit,    // the limit of steps, memory, output or nesting was reached
  };

  Kind kind = Kind::runtime;
  int line = 0;        // counted from 1
  std::string raised;  // of Kind::raised: the template's message, which may be shown to the client
};

template <typename T>
using TemplateResult = std::expected<T, TemplateError>;

struct Rendered {
  std::string text;
  // The bytes from outside: from variables that RenderOptions::own does not name. Sorted; no two ranges touch. The rest
  // is the template's own text, as trusted as the template itself. Only there control tokens are parsed.
  std::vector<TextRange> outside;
};

struct RenderOptions {
  // The time of strftime_now().
  std::chrono::local_seconds now{};
  // A step is an operation, a visited element, or about a hundred copied bytes: 20 to 100 ns.
  std::uint64_t max_steps = 4'000'000;
  // The limit of the output, and of any single text during the rendering.
  std::size_t max_output_bytes = std::size_t{16} << 20;
  // The limit of everything that the template creates and still holds. The variables themselves do not count.
  std::size_t max_memory_bytes = std::size_t{128} << 20;
  // Variables whose text counts as the template's own. "bos_token" is a whole variable, "messages[].role" a member of
  // every object in an array. All other text is from outside.
  std::span<const std::string_view> own = {};
};

class Template {
 public:
  static constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

  static TemplateResult<Template> parse(std::string_view source);

  TemplateResult<Rendered> render(const boost::json::object& variables, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

// The wall clock in the machine's time zone, for RenderOptions::now.
std::chrono::local_seconds local_now();

}  // namespace quire::jinja

// Chat templates: an interpreter for the part of Jinja2 that published models' templates use, set up as Hugging Face
// transformers sets up Jinja2 (trim_blocks, lstrip_blocks, loop controls, {% generation %}, tojson without HTML
// escapes, the immutable sandbox). What it prints is what Jinja2 prints, to the byte.
//
// Who may call: a Template is const once parsed; any number of threads may render it at once.
//
// What holds:
// - A template sees its variables and `now`, and nothing else: no files, no environment, no clock, no state kept from
//   one rendering to the next.
// - It ends: every step, every byte of text and every byte held is counted against RenderOptions. A template that loops
//   forever stops with an error, after a fraction of a second at the default limits.
// - Text keeps its origin through every operation: the rendering says which bytes came from variables. Where an
// operation
//   cannot tell, its result counts as from outside if any part of its input was. Numbers carry no origin.
// - The order of keys in objects is kept, integers stay integers, and text is counted in code points as Python does.
//   Variables that are not well-formed UTF-8 are repaired with U+FFFD.
//
// How it fails: with a TemplateError, whose message begins "line N: ". A template that refuses a conversation
// (raise_exception) is told apart from one that is broken by `kind`.
//
// What is left out: README.md beside this header lists what is there and what is not, and why. Integers end at 127
// bits. map, select and their like work at once and not when their result is walked, so a failure in one shows even if
// nobody looks at the result.
//
// Variables are the caller's to set, under the names templates read: messages, tools, documents, bos_token, eos_token,
// add_generation_prompt and whatever else. A name that is not set is undefined, which is not the same as null:
// transformers always sets `tools` and `documents`, to null where there are none.
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

// An Error, so that it passes for one wherever the difference does not matter.
struct TemplateError : Error {
  enum class Kind {
    syntax,   // the template cannot be parsed
    runtime,  // an expression failed, as it would in Jinja2
    raised,   // the template called raise_exception: the conversation is not one it accepts
    limit,    // steps, memory, output or nesting ran out
  };

  Kind kind = Kind::runtime;
  int line = 0;        // counted from 1
  std::string raised;  // of Kind::raised: the template's own words, fit to be shown to whoever sent the conversation
};

template <typename T>
using TemplateResult = std::expected<T, TemplateError>;

struct Rendered {
  std::string text;
  // Which bytes of it came from outside: from a variable that RenderOptions::own does not name. Sorted, and no two
  // touch. The rest is the template's own, and may be trusted as far as the template is: this is where control tokens
  // are.
  std::vector<TextRange> outside;
};

struct RenderOptions {
  // What strftime_now() says.
  std::chrono::local_seconds now{};
  // An operation, an element visited, or some hundred bytes copied are a step: some 20 to 100 ns.
  std::uint64_t max_steps = 4'000'000;
  // Of the rendering, and of any single text on the way to it.
  std::size_t max_output_bytes = std::size_t{16} << 20;
  // Of everything the template makes and still holds; the variables themselves are not counted.
  std::size_t max_memory_bytes = std::size_t{128} << 20;
  // Variables whose text counts as the template's own: "bos_token" is a variable with all that is in it,
  // "messages[].role" a member of every object in an array. Text of any other is from outside.
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

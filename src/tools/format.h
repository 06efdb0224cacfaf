// How models write calls of tools, and their reasoning, into their answers: one description for each format, as data.
// The streaming parser (answer_parser.h), the detection (detect.h) and the grammar of a format are all made from these
// rows. No code knows a format by its name.
//
// A format has one or more shapes. A shape is a section of calls:
//
//   begin  call  (between call)*  end
//
// and each of these is a list of parts, read from left to right. White space between a call and what follows it is
// free. To add a format, add a row to format_table.cpp and an example of it to formats_testing.h.
//
// Who may call: any thread; the tables do not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::tools {

struct Part {
  enum class Kind : std::uint8_t {
    Mark,      // this text
    Maybe,     // this text, or nothing
    Space,     // any white space, or none
    Skip,      // anything up to the next mark, at most kMostSkipped bytes; a grammar writes this text
    Name,      // the name of the function
    MaybeId,   // this text and the id of the call, or nothing
    Object,    // a JSON object with the name and the arguments: Shape::keys
    Json,      // the arguments: a JSON object
    Tagged,    // the arguments: each parameter between tags: Shape::tags
    Keywords,  // the arguments: as Python writes keyword arguments, without the parentheses
  };
  Kind kind = Kind::Mark;
  std::string_view text = {};
};

inline constexpr std::size_t kMostSkipped = 128;
inline constexpr std::size_t kMostNameBytes = 256;
inline constexpr std::size_t kMostNumberBytes = 5;  // of ":N" behind a name, in a grammar: Shape::numbered

// The keys of Part::Kind::Object. Models confuse "arguments" and "parameters", so there may be a second key. Grammars
// use the first.
struct Keys {
  std::string_view name = "name";
  std::string_view arguments = "arguments";
  std::string_view also_arguments = {};
  std::string_view id = "id";
  bool keeps_id = false;  // the id is unique, and the template wants it back
  // The object has one key, which is the name; its value is the arguments.
  bool name_is_key = false;
};

// The tags of Part::Kind::Tagged: open KEY middle VALUE close, for each parameter. Values are plain text where the
// tool's schema says string, else JSON. Plain text ends at the first `close`; JSON may have it in its strings.
struct Tags {
  std::string_view open;
  std::string_view middle;
  std::string_view close;
  bool space_inside = false;  // white space may stand between the pieces of `middle`: at each '\n' in it
  bool trims_line = false;    // a line break after `middle` and one before `close` are not part of the value
};

struct Shape {
  enum class Where : std::uint8_t {
    Anywhere,  // begins with a mark that ordinary text does not have
    Line,      // no mark of its own: only at the beginning of a line, and only with names of the request's tools
  };
  std::span<const Part> begin = {};
  std::span<const Part> call = {};
  std::span<const Part> between = {};
  std::span<const Part> end = {};
  bool several = false;  // the section may have several calls; otherwise the section is repeated
  Where where = Where::Anywhere;
  Keys keys = {};
  Tags tags = {};
  // Not empty: the name is followed by ":N", and the id is this text, the name and ":N". N counts the calls of the
  // conversation from 0.
  std::string_view numbered = {};
};

// The id of a call, for `numbered` of its shape, which is not empty.
std::string numbered_id(std::string_view numbered, std::string_view name, std::size_t number);

// Marks around the text of an answer.
struct TextMarks {
  std::string_view begin;
  std::string_view end = {};
  bool aside = false;  // a remark before the answer itself
};

struct Format {
  std::string_view name;  // for people
  std::span<const Shape> shapes;
  // Marks that have no meaning for clients and are left out of the answer.
  std::span<const std::string_view> silent = {};
  // Not empty: an answer is made of sections, and each begins with this text: calls, texts and reasoning. The prompt
  // has written the first; the answer is then read as if it began with it.
  std::string_view header = {};
  // Where text stands: behind one of these. Empty: it has no marks. Without a header they may be left out.
  std::span<const TextMarks> texts = {};
};

struct Reasoning {
  std::string_view name;
  std::string_view begin;
  std::string_view end;
  bool anywhere = false;  // may begin in the middle of an answer; otherwise only before its first text
  std::span<const std::string_view> silent = {};
  // As in Format, for answers whose calls are not looked for.
  std::string_view header = {};
  std::span<const TextMarks> texts = {};
};

// In the order in which detection prefers them. The last is the fallback for a model whose template shows no format.
std::span<const Format> formats();
const Format& fallback_format();
std::span<const Reasoning> reasonings();

// The text that a shape begins with: its first mark, or "{".
std::string_view trigger(const Shape& shape);

// All marks of a format and of a way to reason. Control tokens that are spelled in one of them must be shown to the
// parser, which reads text. Either may be null.
std::vector<std::string_view> marks(const Format* format, const Reasoning* reasoning);

// The text that begins each section of an answer, or nothing. Either may be null.
std::string_view header(const Format* format, const Reasoning* reasoning);

// The end of the prompt that the answer continues: the opening mark of reasoning, or the header; often empty. The
// parser is given it before the answer.
std::string primer(const Format* format, const Reasoning* reasoning, std::string_view prompt);

}  // namespace quire::tools

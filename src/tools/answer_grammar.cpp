#include "quire/tools/answer_grammar.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "quire/tools/argument_grammar.h"
#include "quire/tools/pythonic.h"

namespace quire::tools {
namespace {

using grammar::RegexId;
using grammar::RegexSet;
using grammar::SymbolId;
using Symbols = std::vector<SymbolId>;

constexpr std::uint32_t kMostSpace = 8;

const Shape& written(const AnswerGrammar& asked) {
  return asked.shape != nullptr ? *asked.shape : asked.format->shapes.front();
}

// The template writes calls without a mark.
bool is_bare(const AnswerGrammar& asked) { return written(asked).where == Shape::Where::Line; }

std::span<const TextMarks> texts_of(const AnswerGrammar& asked) {
  if (asked.format != nullptr && !asked.format->texts.empty()) return asked.format->texts;
  return asked.reasoning != nullptr ? asked.reasoning->texts : std::span<const TextMarks>();
}

SymbolId free_space(grammar::Grammar& grammar) {
  grammar::ByteSet spaces;
  for (const char c : {' ', '\t', '\n', '\r'}) spaces.add(static_cast<std::uint8_t>(c));
  RegexSet& regexes = grammar.regexes();
  return grammar.terminal(regexes.repeat(regexes.bytes(spaces), 0, kMostSpace));
}

class Builder {
 public:
  Builder(const AnswerGrammar& asked, const grammar::Limits& limits)
      : asked_(asked),
        header_(header(asked.format, asked.reasoning)),
        texts_(texts_of(asked)),
        grammar_(limits),
        space_(free_space(grammar_)),
        marked_(grammar_, asked.controls),
        arguments_(grammar_, marked_, asked.required, space_) {}

  Result<grammar::Grammar> build() {
    if (!calls_possible() && !asked_.text) return fail("there is nothing to constrain");
    if (asked_.text && !asked_.required) {
      const auto text = asked_.text(grammar_);
      if (!text) return std::unexpected(text.error());
      text_ = *text;
    }
    return finish(header_.empty() ? flat() : headed());
  }

  Result<grammar::Grammar> build_calls() {
    Symbols ways;
    if (asked_.format->header.empty()) {
      for (const Shape* const shape : shapes_beside_text()) {
        ways.push_back(grammar_.sequence({sections(*shape), space_}));
      }
    } else {
      Symbols calls;
      for (const Shape& shape : asked_.format->shapes) calls.push_back(any_call(shape));
      const SymbolId next = grammar_.sequence({space_, grammar_.optional(marked_.literal(header_))});
      const std::uint32_t most = asked_.several ? grammar::kUnbounded : 1;
      ways.push_back(grammar_.sequence({grammar_.repeat(grammar_.choice(std::move(calls)), 1, most, next), space_}));
    }
    return finish(grammar_.choice(std::move(ways)));
  }

 private:
  Result<grammar::Grammar> finish(SymbolId start) {
    grammar_.set_start(start);
    if (arguments_.error()) return std::unexpected(*arguments_.error());
    if (const auto checked = grammar_.check(); !checked) return std::unexpected(checked.error());
    return std::move(grammar_);
  }

  // --- the parts of an answer

  // An answer whose sections have no headers. Marks of text may be left out.
  SymbolId flat() {
    const SymbolId rest = content();
    if (asked_.reasoning == nullptr) return rest;
    const SymbolId reasoned = thought_and(opened(), grammar_.sequence({space_, rest}));
    return opened() ? reasoned : grammar_.choice({reasoned, rest});
  }

  SymbolId content() {
    if (asked_.required) return grammar_.sequence({sections(written(asked_)), space_});
    return text_ ? calls_or_text() : free_text_and_calls();
  }

  SymbolId calls_or_text() {
    Symbols ways = {*text_};
    for (const TextMarks& marks : texts_) {
      if (header_.empty() && !marks.aside) ways.push_back(between(marks, *text_));
    }
    if (calls_possible()) {
      for (const Shape* const shape : shapes_beside_text()) {
        ways.push_back(grammar_.sequence({sections(*shape), space_}));
      }
    }
    return grammar_.choice(std::move(ways));
  }

  // The shapes of calls that an answer may have instead of a text that was asked for.
  std::vector<const Shape*> shapes_beside_text() const {
    std::vector<const Shape*> out;
    for (const Shape& shape : asked_.format->shapes) {
      if (is_bare(asked_) || shape.where == Shape::Where::Anywhere) out.push_back(&shape);
    }
    return out;
  }

  // Text up to the mark of a call. Where calls have no mark, the answer begins with one, or has none.
  SymbolId free_text_and_calls() {
    std::vector<std::string> marks, first;
    if (!header_.empty()) marks.emplace_back(header_);
    Symbols calls, bare;
    for (const Shape& shape : asked_.format->shapes) {
      if (shape.where == Shape::Where::Anywhere) {
        marks.emplace_back(trigger(shape));
        calls.push_back(sections(shape));
      } else if (is_bare(asked_)) {
        first.emplace_back(trigger(shape));
        bare.push_back(grammar_.sequence({space_, sections(shape), space_}));
      }
    }
    Symbols free = {grammar_.free_text(marks, first)};
    if (!calls.empty()) {
      free.push_back(grammar_.optional(grammar_.sequence({grammar_.choice(std::move(calls)), space_})));
    }
    bare.push_back(grammar_.sequence(std::move(free)));
    return grammar_.choice(std::move(bare));
  }

  // An answer whose sections have headers: thoughts and texts, and then calls, or the text that was asked for. If the
  // calls have none (the format is not the reasoning's), they stand in texts.
  SymbolId headed() {
    const bool calls_too = calls_possible() && !asked_.format->header.empty();
    const bool only_calls = calls_too && asked_.required;
    const SymbolId header = marked_.literal(header_);
    const SymbolId rest = grammar_.rule();  // what may follow a header
    const SymbolId next = grammar_.sequence({space_, header, rest});
    const bool headless = asked_.reasoning != nullptr && asked_.reasoning->header.empty();
    const SymbolId after_thought = headless ? grammar_.sequence({space_, rest}) : next;
    if (asked_.reasoning != nullptr) grammar_.add(rest, {thought_and(false, after_thought)});
    if (calls_too) grammar_.add(rest, {headed_calls(header)});
    const std::string end[] = {std::string(header_)};
    const SymbolId free = grammar_.free_text(end);
    const SymbolId text = text_ && (calls_too || !calls_possible()) ? *text_ : calls_too ? free : content();
    for (const TextMarks& marks : texts_) {
      if (only_calls || (marks.aside && (text_ || asked_.required))) continue;
      const SymbolId section = between(marks, marks.aside ? free : text);
      grammar_.add(rest, {section});
      if (!text_ && !asked_.required) grammar_.add(rest, {section, next});
    }
    if (opened()) return thought_and(true, after_thought);
    if (asked_.primer == header_) return rest;
    // The prompt ends inside a text, which the answer continues.
    if (only_calls) return next;
    if (text_ || asked_.required) return grammar_.choice({text, next});
    return grammar_.sequence({text, grammar_.optional(next)});
  }

  // Calls in any of the shapes, the first without its header.
  SymbolId headed_calls(SymbolId header) {
    Symbols calls;
    for (const Shape& shape : asked_.format->shapes) calls.push_back(any_call(shape, header_));
    const SymbolId call = grammar_.choice(std::move(calls));
    const SymbolId next = grammar_.sequence({space_, header});
    return grammar_.sequence({grammar_.repeat(call, 1, asked_.several ? grammar::kUnbounded : 1, next), space_});
  }

  SymbolId between(const TextMarks& marks, SymbolId text) {
    Symbols parts;
    marked_.add(parts, marks.begin);
    parts.push_back(text);
    marked_.add(parts, marks.end);
    return grammar_.sequence(std::move(parts));
  }

  // Reasoning and what follows it. `open`: the prompt has written its first mark. Where nothing is asked of an answer,
  // it may end inside of its reasoning, as it may without a grammar.
  SymbolId thought_and(bool open, SymbolId rest) {
    const std::string end[] = {std::string(asked_.reasoning->end)};
    const SymbolId after = grammar_.sequence({marked_.literal(asked_.reasoning->end), rest});
    const bool free = !text_ && !asked_.required;
    Symbols parts;
    if (!open) marked_.add(parts, asked_.reasoning->begin);
    parts.push_back(grammar_.free_text(end));
    parts.push_back(free ? grammar_.optional(after) : after);
    return grammar_.sequence(std::move(parts));
  }

  bool opened() const { return asked_.reasoning != nullptr && asked_.primer == asked_.reasoning->begin; }
  bool calls_possible() const { return asked_.format != nullptr && asked_.tools != nullptr; }

  // --- sections of calls

  SymbolId sections(const Shape& shape) {
    const std::uint32_t most = asked_.several ? grammar::kUnbounded : 1;
    const SymbolId call = any_call(shape);
    if (!shape.several) return grammar_.repeat(call, 1, most, space_);
    Symbols between;
    add_marks(between, shape.between);
    between.push_back(space_);
    Symbols parts;
    add_marks(parts, shape.begin);
    parts.push_back(grammar_.repeat(call, 1, most, grammar_.sequence(std::move(between))));
    parts.push_back(space_);
    add_marks(parts, shape.end);
    return grammar_.sequence(std::move(parts));
  }

  // A call of any tool. `header`: what has been written of it.
  SymbolId any_call(const Shape& shape, std::string_view header = {}) {
    Symbols calls;
    for (const Tool& tool : asked_.tools->all()) {
      if (!asked_.only.empty() && tool.name != asked_.only) continue;
      Symbols parts;
      std::span<const Part> rest = shape.call;
      if (!header.empty() && rest.front().text.starts_with(header)) {
        marked_.add(parts, rest.front().text.substr(header.size()));
        rest = rest.subspan(1);
      }
      add_parts(parts, rest, shape, tool);
      calls.push_back(grammar_.sequence(std::move(parts)));
    }
    return grammar_.choice(std::move(calls));
  }

  // What stands around calls. What may be left out there is.
  void add_marks(Symbols& to, std::span<const Part> parts) {
    for (const Part& part : parts) {
      if (part.kind == Part::Kind::Mark) marked_.add(to, part.text);
      if (part.kind == Part::Kind::Space) to.push_back(space_);
    }
  }

  // Whether the name and the marks around it are a mark of another meaning: functionary's text is the function "all".
  bool is_mark(std::span<const Part> parts, const Part& part, std::string_view name) const {
    const auto at = static_cast<std::size_t>(&part - parts.data());
    const auto mark = [&](std::size_t index) {
      return index < parts.size() && parts[index].kind == Part::Kind::Mark ? parts[index].text : std::string_view();
    };
    const std::string whole = fmt::format("{}{}{}", at > 0 ? mark(at - 1) : std::string_view(), name, mark(at + 1));
    return std::ranges::any_of(asked_.format->silent, [&](std::string_view silent) {
      // The header is no part of a section here.
      return silent == whole || (silent.starts_with(header_) && silent.substr(header_.size()) == whole);
    });
  }

  void add_parts(Symbols& to, std::span<const Part> parts, const Shape& shape, const Tool& tool) {
    bool arguments = false;  // they have come
    for (const Part& part : parts) {
      switch (part.kind) {
        case Part::Kind::Mark: marked_.add(to, part.text); break;
        case Part::Kind::Skip:
          if (arguments_.has_schema(tool)) {
            marked_.add(to, part.text);
          } else {
            to.push_back(grammar_.optional(marked_.literal(part.text)));
          }
          break;
        case Part::Kind::Space: to.push_back(space_); break;
        case Part::Kind::Maybe:
          if (arguments) break;
          if (tool.name.starts_with(part.text)) {
            marked_.add(to, part.text);  // otherwise the beginning of the name would be taken for it
          } else {
            to.push_back(grammar_.optional(marked_.literal(part.text)));
          }
          break;
        case Part::Kind::MaybeId:
          if (!arguments_.has_schema(tool)) {
            Symbols id;
            marked_.add(id, part.text);
            id.push_back(grammar_.terminal(arguments_.short_text()));
            to.push_back(grammar_.optional(grammar_.sequence(std::move(id))));
          }
          break;
        case Part::Kind::Name:
          if (!is_function_name(shape, tool.name) || is_mark(parts, part, tool.name)) {
            arguments_.refuse(
                fmt::format("the name of the function '{}' cannot be written in this model's format", tool.name));
          }
          to.push_back(grammar_.text(tool.name));
          if (!shape.numbered.empty()) {
            RegexSet& regexes = grammar_.regexes();
            const RegexId digit = regexes.bytes(grammar::ByteSet::range('0', '9'));
            to.push_back(
                grammar_.terminal(regexes.concat({regexes.text(":"), regexes.repeat(digit, 1, kMostNumberBytes - 1)})));
          }
          break;
        case Part::Kind::Object: add_object(to, shape.keys, tool); break;
        case Part::Kind::Json: to.push_back(arguments_.as_json(tool)); break;
        case Part::Kind::Tagged: to.push_back(arguments_.tagged(shape.tags, tool)); break;
        case Part::Kind::Keywords: to.push_back(arguments_.keywords(tool)); break;
      }
      arguments |= part.kind >= Part::Kind::Object;
    }
  }

  void add_object(Symbols& to, const Keys& keys, const Tool& tool) {
    const auto add_member = [&](Symbols& parts, std::string_view key, SymbolId value) {
      for (const SymbolId part : {grammar_.text(json_string(key)), space_, grammar_.text(":"), space_, value, space_}) {
        parts.push_back(part);
      }
    };
    const auto member = [&](std::string_view key, SymbolId value) { add_member(to, key, value); };
    const SymbolId comma = grammar_.sequence({grammar_.text(","), space_});
    // Some models write an id, before the name or behind the arguments. A call that is only kept well-formed may.
    const auto maybe_id = [&](bool first) {
      if (arguments_.has_schema(tool) || keys.name_is_key) return;
      RegexSet& regexes = grammar_.regexes();
      const RegexId quote = regexes.text("\"");
      Symbols id;
      if (!first) id.push_back(comma);
      add_member(id, keys.id, grammar_.terminal(regexes.concat({quote, arguments_.short_text(), quote})));
      if (first) id.push_back(comma);
      to.push_back(grammar_.optional(grammar_.sequence(std::move(id))));
    };
    to.push_back(grammar_.text("{"));
    to.push_back(space_);
    maybe_id(true);
    if (keys.name_is_key) {
      member(tool.name, arguments_.as_json(tool));
    } else {
      member(keys.name, grammar_.text(json_string(tool.name)));
      to.push_back(comma);
      member(keys.arguments, arguments_.as_json(tool));
    }
    maybe_id(false);
    to.push_back(grammar_.text("}"));
  }

  const AnswerGrammar& asked_;
  const std::string_view header_;
  const std::span<const TextMarks> texts_;
  grammar::Grammar grammar_;
  SymbolId space_;
  FormatText marked_;
  ArgumentGrammar arguments_;
  std::optional<SymbolId> text_;  // that was asked for
};

}  // namespace

Result<grammar::Grammar> answer_grammar(const AnswerGrammar& asked, const grammar::Limits& limits) {
  return Builder(asked, limits).build();
}

Result<grammar::Grammar> calls_grammar(const AnswerGrammar& asked, const grammar::Limits& limits) {
  return Builder(asked, limits).build_calls();
}

bool needs_check(const AnswerGrammar& asked) {
  if (asked.format == nullptr || asked.tools == nullptr || asked.required || !asked.text) return false;
  return std::ranges::any_of(asked.tools->all(), &Tool::strict) && (is_bare(asked) || !asked.text_is_json);
}

bool leaves_text_free(const Format& format) {
  return std::ranges::all_of(format.shapes, [](const Shape& shape) {
    return shape.where == Shape::Where::Anywhere &&
           std::ranges::none_of(shape.call, [](const Part& part) { return part.kind == Part::Kind::Keywords; });
  });
}

Reading reading(const AnswerGrammar& asked) {
  if (asked.format == nullptr || asked.tools == nullptr) return {};
  const bool bare = is_bare(asked);
  const bool has_text = asked.text && !asked.required;
  return {.bare = bare ? Reading::Bare::First : Reading::Bare::Never,
          .calls_first = has_text,
          // A call that has begun is one, unless a text that was asked for may begin in the same way.
          .progressive = !has_text || (asked.text_is_json && !bare)};
}

}  // namespace quire::tools

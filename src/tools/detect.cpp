#include "quire/tools/detect.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "quire/tools/answer_parser.h"

namespace quire::tools {
namespace {

namespace json = boost::json;

// Texts that no template has. Ids have nine letters and digits, since some templates insist on that, or are those of
// Shape::numbered.
constexpr std::string_view kQuestion = "quireprobequestion";
constexpr std::string_view kThought = "quireprobethought";
constexpr std::string_view kReply = "quireprobereply";
constexpr std::string_view kNames[] = {"quireprobefirst", "quireprobesecond"};
constexpr std::string_view kArguments[] = {R"({"quirekey": "quirevalue", "quirenumber": 41})",
                                           R"({"quireother": "quireelse"})"};
constexpr std::string_view kIds[] = {"quire0001", "quire0002"};

json::array probe_tools() {
  return json::parse(R"([{"type": "function", "function": {"name": "quireprobefirst", "description": "first",
      "parameters": {"type": "object", "properties": {"quirekey": {"type": "string", "description": "key"},
      "quirenumber": {"type": "integer", "description": "number"}}, "required": ["quirekey"]}}},
    {"type": "function", "function": {"name": "quireprobesecond", "description": "second", "parameters":
      {"type": "object", "properties": {"quireother": {"type": "string", "description": "other"}}, "required": []}}}])")
      .get_array();
}

json::object user() { return {{"role", "user"}, {"content", kQuestion}}; }

json::object variables(json::array messages, bool with_tools, bool generates = false) {
  json::object out{{"messages", std::move(messages)}, {"add_generation_prompt", generates}};
  if (with_tools) out["tools"] = probe_tools();
  return out;
}

std::string id_of(std::size_t call, std::string_view numbered) {
  return numbered.empty() ? std::string(kIds[call]) : numbered_id(numbered, kNames[call], call);
}

json::object calling(std::size_t count, bool as_text, bool null_content, std::string_view numbered) {
  json::array calls;
  for (std::size_t i = 0; i < count; ++i) {
    json::value arguments = as_text ? json::value(kArguments[i]) : json::parse(kArguments[i]);
    calls.push_back({{"id", id_of(i, numbered)},
                     {"type", "function"},
                     {"function", {{"name", kNames[i]}, {"arguments", std::move(arguments)}}}});
  }
  json::object out{{"role", "assistant"}, {"content", ""}, {"tool_calls", std::move(calls)}};
  if (null_content) out["content"] = nullptr;
  return out;
}

// How much content is left over when `format` reads the calls in `text`. Nothing: it does not read them.
std::optional<std::size_t> left_over(const Format& format, std::string_view text, std::size_t count) {
  static const ToolList tools = *ToolList::parse(probe_tools());
  AnswerParser parser({.format = &format, .tools = &tools});
  std::vector<Delta> deltas;
  parser.push(text, deltas);
  parser.finish(false, deltas);
  std::vector<Call> calls;
  std::size_t content = 0;
  for (const Delta& delta : deltas) {
    if (delta.kind == Delta::Kind::Call) calls.push_back({.name = delta.name});
    if (delta.kind == Delta::Kind::Arguments) calls.back().arguments += delta.text;
    if (delta.kind == Delta::Kind::Content) content += delta.text.size();
  }
  if (calls.size() != count) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    json::error_code error;
    if (calls[i].name != kNames[i] || json::parse(calls[i].arguments, error) != json::parse(kArguments[i])) {
      return std::nullopt;
    }
  }
  return content;
}

// The format that reads the calls and leaves the least over. What it leaves are the template's own marks of a turn.
const Format* reading(std::string_view text, std::size_t count) {
  const Format* best = nullptr;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const Format& format : formats()) {
    const auto left = left_over(format, text, count);
    if (!left || *left >= least) continue;
    least = *left;
    best = &format;
  }
  return best;
}

// The shape that reads the calls alone.
const Shape* written_shape(const Format& format, std::string_view text, std::size_t count) {
  for (const Shape& shape : format.shapes) {
    const Format alone{.name = format.name, .shapes = {&shape, 1}, .silent = format.silent};
    if (left_over(alone, text, count)) return &shape;
  }
  return &format.shapes.front();
}

// What was written after the question.
std::string_view behind_question(std::string_view text) {
  const std::size_t at = text.rfind(kQuestion);
  return at == std::string_view::npos ? text : text.substr(at + kQuestion.size());
}

// Probes with ids of the shape `numbered`. Returns whether a format reads the calls.
bool detect_calls(const Render& render, std::string_view numbered, Detected& found) {
  // The usual first: an object, and two calls.
  for (const std::size_t count : {std::size_t{2}, std::size_t{1}}) {
    for (const bool null_content : {false, true}) {
      for (const bool as_text : {false, true}) {
        const auto text = render(variables({user(), calling(count, as_text, null_content, numbered)}, true));
        if (!text) continue;
        // Numbered ids have the names in them: a name that is there tells nothing if no format reads it.
        if (numbered.empty()) found.writes_calls |= behind_question(*text).find(kNames[0]) != std::string_view::npos;
        const Format* const format = reading(behind_question(*text), count);
        if (format == nullptr) continue;
        found.format = format;
        found.shape = written_shape(*format, behind_question(*text), count);
        found.reads_back = found.writes_calls = true;
        found.several = count == 2;
        found.arguments_as_text = as_text;
        found.null_content = null_content;
        return true;
      }
    }
  }
  return false;
}

void detect_format(const Render& render, Detected& found) {
  if (detect_calls(render, {}, found)) return;
  // The template may write the id of a call and leave the name to it.
  std::vector<std::string_view> tried = {std::string_view()};
  for (const Format& format : formats()) {
    for (const Shape& shape : format.shapes) {
      if (std::ranges::find(tried, shape.numbered) != tried.end()) continue;
      if (detect_calls(render, shape.numbered, found)) return;
      tried.push_back(shape.numbered);
    }
  }
}

// Whether the template writes results, and system messages. Some refuse them.
void detect_roles(const Render& render, Detected& found) {
  const auto writes = [&](json::array messages) {
    const auto text = render(variables(std::move(messages), true, true));
    return text && text->find(kReply) != std::string::npos;
  };
  const std::string_view numbered = found.shape->numbered;
  json::object call = found.writes_calls ? calling(1, found.arguments_as_text, found.null_content, numbered)
                                         : json::object{{"role", "assistant"}, {"content", "-"}};
  found.writes_results =
      writes({user(),
              std::move(call),
              {{"role", "tool"}, {"tool_call_id", id_of(0, numbered)}, {"name", kNames[0]}, {"content", kReply}}});
  found.takes_system = writes({{{"role", "system"}, {"content", kReply}}, user()});
}

// The way to reason whose marks stand around the thought.
const Reasoning* around_thought(std::string_view text) {
  const std::size_t at = text.find(kThought);
  if (at == std::string_view::npos) return nullptr;
  for (const Reasoning& each : reasonings()) {
    const std::size_t begin = text.substr(0, at).rfind(each.begin);
    if (begin == std::string_view::npos || text.find(each.end, at) == std::string_view::npos) continue;
    const std::string_view between = text.substr(begin + each.begin.size(), at - begin - each.begin.size());
    if (between.find_first_not_of(" \t\r\n") == std::string_view::npos) return &each;
  }
  return nullptr;
}

void detect_reasoning(const Render& render, Detected& found) {
  // A message with reasoning, with and without a call: some templates keep the reasoning only before calls.
  for (const char* const key : {"reasoning_content", "reasoning", "thinking"}) {
    for (const bool with_call : {false, true}) {
      json::object message = with_call ? calling(1, found.arguments_as_text, found.null_content, found.shape->numbered)
                                       : json::object{{"role", "assistant"}};
      if (!with_call) message["content"] = kReply;
      message[key] = kThought;
      const auto text = render(variables({user(), std::move(message)}, with_call));
      if (!text) continue;
      const std::string_view written = behind_question(*text);
      if (found.reasoning_key.empty() && written.find(kThought) != std::string_view::npos) found.reasoning_key = key;
      if (found.reasoning == nullptr) found.reasoning = around_thought(written);
    }
  }
  if (found.reasoning != nullptr) return;
  // The prompt for an answer opens the reasoning, or opens and closes it when it is turned off.
  for (const json::value& thinking : {json::value(nullptr), json::value(true), json::value(false)}) {
    json::object asked = variables({user()}, false, true);
    if (!thinking.is_null()) asked["enable_thinking"] = asked["thinking"] = thinking;
    const auto text = render(std::move(asked));
    if (!text) continue;
    const std::string_view written = behind_question(*text);
    for (const Reasoning& each : reasonings()) {
      if (written.find(each.begin) == std::string_view::npos) continue;
      found.reasoning = &each;
      return;
    }
  }
  // The template takes reasoning out of the content of earlier answers.
  for (const Reasoning& each : reasonings()) {
    std::string content(each.begin);
    content.append("\n").append(kThought).append("\n").append(each.end).append("\n\n").append(kReply);
    const auto text = render(variables(
        {user(), {{"role", "assistant"}, {"content", content}}, {{"role", "user"}, {"content", "-"}}}, false));
    if (!text || text->find(kReply) == std::string::npos || text->find(kThought) != std::string::npos) continue;
    found.reasoning = &each;
    return;
  }
}

}  // namespace

Detected detect(const Render& render, const HasToken& has_token) {
  Detected found{.format = &fallback_format(), .shape = &fallback_format().shapes.front()};
  const auto plain = render(variables({user()}, true, true));
  found.tells_tools = plain && plain->find(kNames[0]) != std::string::npos;
  detect_format(render, found);
  detect_roles(render, found);
  if (!plain && !render(variables({user()}, false, true))) {
    // It needs more than a conversation, and shows nothing.
    found.tells_tools = found.writes_calls = found.writes_results = found.takes_system = true;
  }
  detect_reasoning(render, found);
  if (!found.reads_back) {
    const auto known = [&](const Format& format) {
      const Shape& shape = format.shapes.front();
      return shape.where == Shape::Where::Anywhere && has_token(trigger(shape));
    };
    const auto format = std::ranges::find_if(formats(), known);
    if (format != formats().end()) {
      found.format = &*format;
      found.shape = &format->shapes.front();
    }
  }
  if (found.reasoning == nullptr) {
    const auto known = [&](const Reasoning& each) { return has_token(each.begin) && has_token(each.end); };
    const auto reasoning = std::ranges::find_if(reasonings(), known);
    if (reasoning != reasonings().end()) found.reasoning = &*reasoning;
  }
  return found;
}

}  // namespace quire::tools

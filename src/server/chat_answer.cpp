#include "quire/server/chat_answer.h"

#include <algorithm>
#include <random>
#include <utility>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "quire/server/completion_format.h"
#include "quire/server/fields.h"
#include "quire/server/grammar_constraints.h"
#include "quire/server/json_text.h"
#include "quire/tools/answer_grammar.h"

namespace quire::server {
namespace {

namespace json = boost::json;
using Kind = tools::Delta::Kind;

// Nine letters and digits: some templates take no other ids.
std::string new_id() {
  static constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 random{std::random_device()()};
  std::uniform_int_distribution<std::size_t> any(0, kLetters.size() - 1);
  std::string id(9, ' ');
  for (char& c : id) c = kLetters[any(random)];
  return id;
}

void append_call(std::string& out, const tools::Call& call) {
  out += R"("id":)";
  append_json_string(out, call.id);
  out += R"(,"type":"function","function":{"name":)";
  append_json_string(out, call.name);
  out += R"(,"arguments":)";
  append_json_string(out, call.arguments);
  out += '}';
}

class MatcherCheck final : public tools::CallCheck {
 public:
  explicit MatcherCheck(std::shared_ptr<grammar::Compiled> calls) : matcher_(std::move(calls)) {}
  bool push(std::string_view text) override { return matcher_.accept_bytes(text) == text.size(); }
  bool complete() const override { return matcher_.may_end(); }

 private:
  grammar::Matcher matcher_;
};

// A text that could be read as a call is one only if it fits the grammar of calls.
std::optional<Error> add_check(tools::Reading& reading, const std::string& key, tools::AnswerGrammar grammar,
                               const TextModel& model) {
  grammar.controls = {};  // the parser sees text
  auto made = model.constraints().compiled("calls " + key, [&] { return tools::calls_grammar(grammar); });
  if (!made) return made.error();
  reading.check = [calls = std::move(*made)] { return std::make_unique<MatcherCheck>(calls); };
  return std::nullopt;
}

}  // namespace

TextModel::Marks AnswerStyle::marks() const {
  if (format != nullptr) return TextModel::Marks::All;
  return reasoning != nullptr ? TextModel::Marks::Reasoning : TextModel::Marks::None;
}

std::expected<AnswerStyle, ApiError> answer_style(const json::object& body, const TextModel& model) {
  Fields fields(body);
  const json::array* const listed = fields.array("tools");
  const bool parallel = fields.boolean("parallel_tool_calls").value_or(true);
  if (fields.error()) return std::unexpected(*fields.error());
  auto tools = tools::ToolList::parse(listed != nullptr ? *listed : json::array());
  if (!tools) return std::unexpected(invalid(tools.error().message, "tools"));
  const auto choice = read_tool_choice(body);
  if (!choice) return std::unexpected(choice.error());
  if (auto error = check_choice(*choice, *tools)) return std::unexpected(std::move(*error));
  AnswerStyle style;
  if (model.chat() == nullptr) return style;
  style.reasoning = model.style().reasoning;
  const bool calls = !tools->empty() && choice->kind != ToolChoice::Kind::None;
  // Some formats have marks around texts as well.
  if (calls || !model.style().format->silent.empty()) style.format = model.style().format;
  if (!calls) return style;
  style.tools = std::make_shared<const tools::ToolList>(std::move(*tools));
  style.one_call = !parallel;
  style.choice = *choice;
  return style;
}

std::optional<ApiError> constrain(AnswerStyle& style, const std::optional<AskedConstraint>& asked,
                                  const TextModel& model, engine::Request& options) {
  const bool required = style.tools && style.choice.kind != ToolChoice::Kind::Auto;
  const bool strict = style.tools && std::ranges::any_of(style.tools->all(), &tools::Tool::strict);
  // Calls that the model begins by itself are enforced too, so that they are well-formed and can be streamed.
  const bool auto_only = !asked && !required && !strict;
  if (auto_only && (!style.tools || !tools::leaves_text_free(*style.format))) return std::nullopt;
  const std::vector<std::string> controls = model.mark_tokens();
  tools::AnswerGrammar grammar{.format = style.format,
                               .shape = model.style().shape,
                               .reasoning = style.reasoning,
                               .tools = style.tools.get(),
                               .primer = style.primer,
                               .only = style.choice.name,
                               .required = required,
                               .several = !style.one_call,
                               .controls = controls};
  // The format and its marks are the model's, and so is the cache.
  std::string key = fmt::format("answer {} {} {:?} {:?}", required, style.one_call, style.primer, style.choice.name);
  bool shape_fails = false;
  if (asked && !required) {
    using Asked = grammar::ConstraintSpec::Kind;
    grammar.text = [&](grammar::Grammar& to) {
      auto start = grammar::add_constraint(to, asked->spec);
      shape_fails = !start;
      return start;
    };
    grammar.text_is_json = asked->spec.kind == Asked::JsonSchema || asked->spec.kind == Asked::JsonObject;
    key += grammar::content_key(asked->spec);
  }
  if (style.tools) {
    for (const tools::Tool& tool : style.tools->all()) {
      key += fmt::format("\n{:?} {}", tool.name, tool.strict);
      if (!auto_only) key += json::serialize(tool.parameters);
    }
  }
  auto made = model.constraints().make(
      key, [&] { return tools::answer_grammar(grammar); }, !auto_only);
  if (!made && auto_only) return std::nullopt;  // the calls are read all the same
  if (!made) {
    const std::string& why = made.error().message;
    if (shape_fails || !style.tools) {
      return invalid(fmt::format("'{}' cannot be enforced: {}", asked->field, why), asked->field);
    }
    return invalid(fmt::format("'tools': {}", why), required ? "tool_choice" : "tools");
  }
  options.constraint = std::move(*made);
  style.reading = tools::reading(grammar);
  if (tools::needs_check(grammar)) {
    if (const auto error = add_check(style.reading, key, grammar, model)) {
      return invalid(fmt::format("'tools': {}", error->message), "tools");
    }
  }
  return std::nullopt;
}

ChatAnswer::ChatAnswer(const AnswerStyle& style)
    : parser_({.format = style.format,
               .reasoning = style.reasoning,
               .tools = style.tools.get(),
               .reading = style.reading,
               .one_call = style.one_call}) {
  if (!style.primer.empty()) push(style.primer);
}

const std::vector<tools::Delta>& ChatAnswer::push(std::string_view text) {
  deltas_.clear();
  parser_.push(text, deltas_);
  return collect();
}

const std::vector<tools::Delta>& ChatAnswer::finish(bool cut) {
  deltas_.clear();
  parser_.finish(cut, deltas_);
  return collect();
}

const std::vector<tools::Delta>& ChatAnswer::collect() {
  for (tools::Delta& delta : deltas_) {
    switch (delta.kind) {
      case Kind::Content: content_ += delta.text; break;
      case Kind::Reasoning: reasoning_ += delta.text; break;
      case Kind::Call:
        if (delta.id.empty()) delta.id = new_id();
        calls_.push_back({.name = delta.name, .id = delta.id, .arguments = {}});
        break;
      case Kind::Arguments: calls_.back().arguments += delta.text; break;
    }
  }
  return deltas_;
}

std::string delta_json(const tools::Delta& delta) {
  std::string out = "{";
  switch (delta.kind) {
    case Kind::Content:
      out += R"("content":)";
      append_json_string(out, delta.text);
      break;
    case Kind::Reasoning:
      out += R"("reasoning_content":)";
      append_json_string(out, delta.text);
      break;
    case Kind::Call:
      put(out, R"("tool_calls":[{{"index":{},)", delta.call);
      append_call(out, {.name = delta.name, .id = delta.id, .arguments = {}});
      out += "}]";
      break;
    case Kind::Arguments:
      put(out, R"("tool_calls":[{{"index":{},"function":{{"arguments":)", delta.call);
      append_json_string(out, delta.text);
      out += "}}]";
      break;
  }
  return out + '}';
}

std::string message_json(const ChatAnswer& answer) {
  std::string out = R"({"role":"assistant","content":)";
  if (answer.content().empty() && !answer.calls().empty()) {
    out += "null";
  } else {
    append_json_string(out, answer.content());
  }
  out += R"(,"refusal":null)";
  if (!answer.reasoning().empty()) {
    out += R"(,"reasoning_content":)";
    append_json_string(out, answer.reasoning());
  }
  if (!answer.calls().empty()) {
    out += R"(,"tool_calls":)";
    JsonList list(out);
    for (const tools::Call& call : answer.calls()) {
      append_call(list.next() += '{', call);
      out += '}';
    }
  }
  return out + '}';
}

}  // namespace quire::server

// Reads the answer of a chat: splits it into content, reasoning and calls of tools, and formats them as OpenAI's API
// does, whole and as deltas.
//
// Who may call: one thread at a time. The style and the model must outlive a ChatAnswer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>

#include "quire/server/api_error.h"
#include "quire/server/constraint_fields.h"
#include "quire/server/text_model.h"
#include "quire/server/tool_choice.h"
#include "quire/tools/answer_parser.h"

namespace quire::server {

// How the answers of one request are read. The same for all its choices.
struct AnswerStyle {
  std::shared_ptr<const tools::ToolList> tools;  // those that may be called; null: calls are not looked for
  const tools::Format* format = nullptr;         // null: neither are its marks
  const tools::Reasoning* reasoning = nullptr;   // null: reasoning is not split off
  std::string primer;                            // the end of the prompt that belongs to the answer
  bool one_call = false;                         // the answer ends with its first call
  ToolChoice choice;
  tools::Reading reading;  // as the grammar means it, if the answers follow one

  bool reads() const { return format != nullptr || reasoning != nullptr; }
  TextModel::Marks marks() const;
};

// Reads "tools", "tool_choice" and "parallel_tool_calls". Fails with the error for the client.
std::expected<AnswerStyle, ApiError> answer_style(const boost::json::object& body, const TextModel& model);

// Makes the answers follow a grammar if a shape was asked for, a call is required, a tool is strict, or the model may
// call tools and its format leaves other text free (tools::leaves_text_free). Then an answer is calls, or a text of
// that shape, or a free text if none was asked for. Needs the primer. Fails with the error for the client.
std::optional<ApiError> constrain(AnswerStyle& style, const std::optional<AskedConstraint>& asked,
                                  const TextModel& model, engine::Request& options);

class ChatAnswer {
 public:
  explicit ChatAnswer(const AnswerStyle& style);

  // What the next text of the answer adds. Every call has an id. Valid until the next call.
  const std::vector<tools::Delta>& push(std::string_view text);
  // `cut`: the answer ended at its limit.
  const std::vector<tools::Delta>& finish(bool cut);

  // The answer has its one call; what comes afterwards is ignored.
  bool over() const { return parser_.over(); }
  const std::string& content() const { return content_; }
  const std::string& reasoning() const { return reasoning_; }
  const std::vector<tools::Call>& calls() const { return calls_; }

 private:
  const std::vector<tools::Delta>& collect();

  tools::AnswerParser parser_;
  std::vector<tools::Delta> deltas_;
  std::string content_, reasoning_;
  std::vector<tools::Call> calls_;
};

// The object `delta` of a chunk.
std::string delta_json(const tools::Delta& delta);
// The object `message` of a whole answer.
std::string message_json(const ChatAnswer& answer);

}  // namespace quire::server

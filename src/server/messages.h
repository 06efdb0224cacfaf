// /v1/messages: chats in the shape of Anthropic's API.
//
// Who may call: any thread; there is no state. A shape: see answer.h.
// How it fails: with the error for the client, which names the field. messages_error() gives it Anthropic's shape.
#pragma once

#include <expected>
#include <string>

#include <boost/json/object.hpp>

#include "quire/server/answer.h"
#include "quire/server/text_model.h"

namespace quire::server {

std::expected<AnswerRequest, ApiError> parse_messages(boost::json::object&& body, const TextModel& model);
// {"input_tokens": N}
std::expected<std::string, ApiError> counted_messages(const boost::json::object& body, const TextModel& model);

// The body of a chat that says the same.
std::expected<boost::json::object, ApiError> chat_of_messages(const boost::json::object& body);

std::string messages_error_json(const ApiError& error);
HttpResponse messages_error(const ApiError& error);

class MessagesShape final : public AnswerShape {
 public:
  explicit MessagesShape(const TextModel& model, std::uint32_t adapter = 0) : model_(model), adapter_(adapter) {}

  void open(std::string id, std::uint64_t prompt_tokens) override;
  void begin(std::string& out) override;
  void end(const AnswerEnd& end, const UsageSum& usage, std::string& out) override;
  std::string whole(const AnswerEnd& end, const UsageSum& usage) override;
  HttpResponse refusal(const ApiError& error) const override { return messages_error(error); }
  void fail(const ApiError& error, std::string& out) override;
  std::string_view keep_alive() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

 protected:
  void block_begins(std::string& out) override;
  void block_grows(std::string_view text, std::string& out) override;
  void block_ends(std::string& out) override;

 private:
  boost::json::object message(boost::json::array content) const;

  const TextModel& model_;
  std::uint32_t adapter_;
  std::string id_;
  std::uint64_t prompt_tokens_ = 0;
};

}  // namespace quire::server

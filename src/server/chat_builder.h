// Builds the conversation that a chat template sees, from requests of other APIs than OpenAI's chat completions. The
// result is the body of such a chat, which parse_chat() checks and reads.
//
// Who may call: one thread at a time.
// What holds: what one speaker says in a row is one message: the text, the reasoning and the calls of an assistant, or
//   the texts of a user. A result of a tool stands by itself, with the name of the tool that was called.
#pragma once

#include <expected>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "quire/server/api_error.h"

namespace quire::server {

class ChatBuilder {
 public:
  void add_text(std::string_view role, std::string_view text);
  void add_reasoning(std::string_view text);
  // `arguments` is an object, or JSON text that may be anything.
  void add_call(std::string_view id, std::string_view name, boost::json::value arguments);
  void add_result(std::string_view id, std::string_view text);
  // What comes next is a new message, whoever speaks.
  void end_message() { open_ = false; }

  bool empty() const { return messages_.empty(); }
  // The last message is text of the assistant and nothing else.
  bool ends_with_text() const;
  // Every message has content, if only an empty one.
  boost::json::array take();

 private:
  boost::json::object& message(std::string_view role);

  boost::json::array messages_;
  bool open_ = false;
  std::map<std::string, std::string, std::less<>> names_;  // of tools, by the ids of calls
};

// How an API writes a text in parts.
struct TextParts {
  std::string_view name;                    // of the parts, for error messages
  std::span<const std::string_view> types;  // those that are text; the first if a part does not say
  std::string_view between = {};
};
// A string, or an array of parts with text, put together. Fails with the error for the client.
std::expected<std::string, ApiError> joined_text(const boost::json::value& value, const std::string& path,
                                                 const TextParts& parts);

// Copies the fields that chats and the other APIs have under one name: options of sampling, and those that ask for a
// shape.
void copy_chat_fields(const boost::json::object& body, boost::json::object& chat);

// Makes `format`, which the API's own field `field` asks for, response_format of the chat. Fails if another field asks
// for a shape too.
std::expected<void, ApiError> set_response_format(boost::json::object& chat, boost::json::object format,
                                                  std::string_view field);

// A tool as chats have it.
boost::json::object chat_tool(std::string_view name, const boost::json::value* description,
                              const boost::json::value* parameters, const boost::json::value* strict);

}  // namespace quire::server

// /v1/responses: chats in the shape of OpenAI's Responses API, with items instead of messages and a store that lets a
// response continue an earlier one.
//
// Who may call: any thread; there is no state but the store's. A shape: see answer.h.
// How it fails: with the error for the client, which names the field.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "quire/server/answer.h"
#include "quire/server/response_store.h"
#include "quire/server/text_model.h"

namespace quire::server {

// `store` must outlive the request.
std::expected<AnswerRequest, ApiError> parse_response(boost::json::object&& body, const TextModel& model,
                                                      ResponseStore& store, Namespace tenant);

// Items as they are stored, with ids. A text is one message of the user.
std::expected<boost::json::array, ApiError> items_of(const boost::json::value& input);

// The items of its request as a list: the page that the query asks for (limit, after, order).
std::expected<std::string, ApiError> input_items_json(const StoredResponse& response, std::string_view query);

// The id of an item of the request: the client's, or one that names the response and the place.
std::string input_item_id(const StoredResponse& response, std::size_t index);
bool is_input_item(const StoredResponse& response, std::size_t index, std::string_view id);

// What a response says about its request, and where it is kept.
struct ResponseFrame {
  boost::json::object fields;  // of the response: instructions, tools, temperature and so on
  boost::json::array input;
  StoredResponseRef previous;
  ResponseStore* store = nullptr;  // null: it is not kept
  Namespace tenant = 0;
  std::uint32_t adapter = 0;
};

class ResponsesShape final : public AnswerShape {
 public:
  ResponsesShape(const TextModel& model, ResponseFrame frame);

  void open(std::string id, std::uint64_t prompt_tokens) override;
  void begin(std::string& out) override;
  void end(const AnswerEnd& end, const UsageSum& usage, std::string& out) override;
  std::string whole(const AnswerEnd& end, const UsageSum& usage) override;
  void fail(const ApiError& error, std::string& out) override;

 protected:
  void block_begins(std::string& out) override;
  void block_grows(std::string_view text, std::string& out) override;
  void block_ends(std::string& out) override;

 private:
  void event(std::string& out, std::string_view type, const boost::json::object& data);
  boost::json::object response(std::string_view status) const;
  boost::json::object item(std::size_t index, std::string_view status) const;
  boost::json::object part_event(boost::json::object rest) const;
  boost::json::array output(const AnswerEnd& end) const;
  boost::json::object ended(const AnswerEnd& end, const UsageSum& usage);

  const TextModel& model_;
  ResponseFrame frame_;
  std::string id_;  // without "resp_"
  std::int64_t created_ = 0;
  std::uint64_t sequence_ = 0;
};

}  // namespace quire::server

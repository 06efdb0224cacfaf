// Answers of OpenAI's Responses API.
#include <algorithm>
#include <ctime>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/server/fields.h"
#include "quire/server/query.h"
#include "quire/server/responses.h"

namespace quire::server {
namespace {

namespace json = boost::json;
using Kind = tools::Delta::Kind;

// Nobody can guess the ids of others, and they are not the same again after a restart.
std::string random_id() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

json::object text_part(std::string_view text) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", json::array()}, {"logprobs", json::array()}};
}

json::object reasoning_part(std::string_view text) { return {{"type", "reasoning_text"}, {"text", text}}; }

json::object usage_of(const UsageSum& usage, const AnswerEnd& end) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details",
           {{"reasoning_tokens", end.reasoning_tokens},
            {"accepted_prediction_tokens", usage.accepted_tokens},
            {"rejected_prediction_tokens", usage.rejected_tokens()}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

}  // namespace

std::string input_item_id(const StoredResponse& response, std::size_t index) {
  const json::object* const item = response.input[index].if_object();
  const json::value* const id = item != nullptr ? item->if_contains("id") : nullptr;
  return id != nullptr && id->is_string() ? std::string(id->get_string()) : fmt::format("{}_in_{}", response.id, index);
}

bool is_input_item(const StoredResponse& response, std::size_t index, std::string_view id) {
  const json::object* const item = response.input[index].if_object();
  const json::value* const own = item != nullptr ? item->if_contains("id") : nullptr;
  if (own != nullptr && own->is_string()) return own->get_string() == id;
  return id.starts_with(response.id) && input_item_id(response, index) == id;
}

std::expected<std::string, ApiError> input_items_json(const StoredResponse& response, std::string_view query) {
  constexpr std::uint64_t kUsual = 20, kMost = 100;
  const auto limit = number_in_query(query, "limit");
  if (!limit) return std::unexpected(limit.error());
  if (*limit && (**limit < 1 || **limit > kMost)) return wrong("limit", "must be a whole number from 1 to 100");
  const std::string order = text_in_query(query, "order").value_or("desc");
  if (order != "asc" && order != "desc") return wrong("order", "must be \"asc\" or \"desc\"");
  const auto after = text_in_query(query, "after");

  std::vector<std::size_t> places(response.input.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  if (order == "desc") std::ranges::reverse(places);
  auto from = places.begin();
  if (after) {
    from = std::ranges::find(places, *after, [&](std::size_t i) { return input_item_id(response, i); });
    if (from == places.end())
      return wrong("after", fmt::format("is {}, and the response has no such item", in_quotes(*after)));
    ++from;
  }
  json::array data;
  for (; from != places.end() && data.size() < limit->value_or(kUsual); ++from) {
    json::object item = response.input[*from].is_object() ? response.input[*from].get_object() : json::object();
    if (!item.contains("type")) item["type"] = "message";
    item["id"] = input_item_id(response, *from);
    data.push_back(std::move(item));
  }
  const json::value first = data.empty() ? json::value() : data.front().at("id");
  const json::value last = data.empty() ? json::value() : data.back().at("id");
  return json::serialize(json::object{{"object", "list"},
                                      {"data", std::move(data)},
                                      {"first_id", first},
                                      {"last_id", last},
                                      {"has_more", from != places.end()}});
}

ResponsesShape::ResponsesShape(const TextModel& model, ResponseFrame frame)
    : model_(model), frame_(std::move(frame)), id_(random_id()), created_(std::time(nullptr)) {}

void ResponsesShape::open(std::string, std::uint64_t) {
  // The id of the request is for this run of the server; that of a response is its own.
}

json::object ResponsesShape::response(std::string_view status) const {
  json::object out{{"id", "resp_" + id_},
                   {"object", "response"},
                   {"created_at", created_},
                   {"status", status},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", model_.name_of(frame_.adapter)},
                   {"output", json::array()},
                   {"usage", nullptr}};
  for (const auto& [key, value] : frame_.fields) out[key] = value;
  return out;
}

json::object ResponsesShape::item(std::size_t index, std::string_view status) const {
  const AnswerBlock& block = blocks()[index];
  const std::string number = fmt::format("{}_{}", id_, index);
  const bool begun = status == "in_progress";
  switch (block.kind) {
    case Kind::Reasoning:
      return {{"type", "reasoning"},
              {"id", "rs_" + number},
              {"summary", json::array()},
              {"content", begun ? json::array() : json::array{reasoning_part(block.text)}},
              {"status", status}};
    case Kind::Call:
      return {{"type", "function_call"}, {"id", "fc_" + number},    {"call_id", block.id},
              {"name", block.name},      {"arguments", block.text}, {"status", status}};
    default:
      return {{"type", "message"},
              {"id", "msg_" + number},
              {"status", status},
              {"role", "assistant"},
              {"content", begun ? json::array() : json::array{text_part(block.text)}}};
  }
}

void ResponsesShape::event(std::string& out, std::string_view type, const json::object& data) {
  json::object event{{"type", type}, {"sequence_number", sequence_++}};
  for (const auto& [key, value] : data) event[key] = value;
  append_event(out, type, json::serialize(event));
}

void ResponsesShape::begin(std::string& out) {
  event(out, "response.created", {{"response", response("in_progress")}});
  event(out, "response.in_progress", {{"response", response("in_progress")}});
}

// Which item an event is about.
json::object ResponsesShape::part_event(json::object rest) const {
  const std::size_t index = blocks().size() - 1;
  rest["item_id"] = item(index, "in_progress").at("id");
  rest["output_index"] = index;
  if (blocks().back().kind != Kind::Call) rest["content_index"] = 0;
  return rest;
}

void ResponsesShape::block_begins(std::string& out) {
  const std::size_t index = blocks().size() - 1;
  event(out, "response.output_item.added", {{"output_index", index}, {"item", item(index, "in_progress")}});
  if (blocks().back().kind == Kind::Call) return;
  const bool text = blocks().back().kind == Kind::Content;
  event(out, "response.content_part.added", part_event({{"part", text ? text_part("") : reasoning_part("")}}));
}

void ResponsesShape::block_grows(std::string_view text, std::string& out) {
  switch (blocks().back().kind) {
    case Kind::Reasoning: return event(out, "response.reasoning_text.delta", part_event({{"delta", text}}));
    case Kind::Call: return event(out, "response.function_call_arguments.delta", part_event({{"delta", text}}));
    default:
      return event(out, "response.output_text.delta", part_event({{"delta", text}, {"logprobs", json::array()}}));
  }
}

void ResponsesShape::block_ends(std::string& out) {
  const std::size_t index = blocks().size() - 1;
  const AnswerBlock& block = blocks().back();
  if (block.kind == Kind::Call) {
    event(out, "response.function_call_arguments.done", part_event({{"name", block.name}, {"arguments", block.text}}));
  } else {
    const bool text = block.kind == Kind::Content;
    json::object done = part_event({{"text", block.text}});
    if (text) done["logprobs"] = json::array();
    event(out, text ? "response.output_text.done" : "response.reasoning_text.done", done);
    event(out, "response.content_part.done",
          part_event({{"part", text ? text_part(block.text) : reasoning_part(block.text)}}));
  }
  event(out, "response.output_item.done", {{"output_index", index}, {"item", item(index, "completed")}});
}

json::array ResponsesShape::output(const AnswerEnd& end) const {
  json::array items;
  for (std::size_t i = 0; i < blocks().size(); ++i) {
    items.push_back(item(i, end.cut && i + 1 == blocks().size() ? "incomplete" : "completed"));
  }
  return items;
}

// The whole response. It is kept here, so it can be continued as soon as the client has it.
json::object ResponsesShape::ended(const AnswerEnd& end, const UsageSum& usage) {
  json::object out = response(end.cut ? "incomplete" : "completed");
  if (end.cut) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  out["output"] = output(end);
  out["usage"] = usage_of(usage, end);
  if (frame_.store != nullptr) {
    StoredResponse stored;
    stored.id = "resp_" + id_;
    stored.previous = frame_.previous;
    stored.input = frame_.input;
    stored.output = out.at("output").get_array();
    stored.response = json::serialize(out);
    frame_.store->keep(frame_.tenant, std::move(stored));
  }
  return out;
}

void ResponsesShape::end(const AnswerEnd& end, const UsageSum& usage, std::string& out) {
  close_block(out);
  event(out, end.cut ? "response.incomplete" : "response.completed", {{"response", ended(end, usage)}});
}

std::string ResponsesShape::whole(const AnswerEnd& end, const UsageSum& usage) {
  return json::serialize(ended(end, usage));
}

void ResponsesShape::fail(const ApiError& error, std::string& out) {
  std::string message;
  append_repaired(message, error.message);
  json::object failed = response("failed");
  failed["error"] = {{"code", error.code.empty() ? std::string("server_error") : error.code}, {"message", message}};
  event(out, "response.failed", {{"response", std::move(failed)}});
}

}  // namespace quire::server

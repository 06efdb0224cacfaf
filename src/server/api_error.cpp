#include "quire/server/api_error.h"

#include <algorithm>
#include <string>
#include <utility>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "quire/base/utf8.h"

namespace quire::server {

namespace json = boost::json;

ApiError invalid(std::string message, std::string param) {
  return {.status = 400, .message = std::move(message), .param = std::move(param)};
}

ApiError internal_error() {
  return {.status = 500, .type = "server_error", .message = "the server could not do this; it may be out of memory"};
}

ApiError from_refusal(const engine::Refusal& refusal) {
  using Why = engine::Refusal::Why;
  switch (refusal.why) {
    case Why::Invalid: return invalid(refusal.message);
    case Why::TooLong: return {.message = refusal.message, .code = "context_length_exceeded"};
    case Why::NeverFits: return {.message = refusal.message, .code = "context_length_exceeded"};
    case Why::QueueFull:
      return {.status = 429, .type = "rate_limit_error", .message = refusal.message, .code = "queue_full"};
    case Why::RateLimited:
      return {.status = 429,
              .type = "rate_limit_error",
              .message = refusal.message,
              .code = "rate_limit_exceeded",
              .retry_after = std::max<std::int64_t>(1, refusal.retry_after.count())};
    case Why::Stopping: return {.status = 503, .type = "server_error", .message = refusal.message, .code = "stopping"};
    case Why::DeviceLost:
      return {.status = 503, .type = "server_error", .message = refusal.message, .code = "device_lost"};
  }
  return {.status = 500, .type = "server_error", .message = refusal.message};
}

std::string to_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) -> json::value {
    if (text.empty()) return nullptr;
    return json::value(text);
  };
  // The message may quote the client's bytes, which may not be UTF-8.
  std::string message;
  append_repaired(message, error.message);
  return json::serialize(json::object{{"error", json::object{{"message", message},
                                                             {"type", error.type},
                                                             {"param", or_null(error.param)},
                                                             {"code", or_null(error.code)}}}});
}

HttpResponse to_response(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = to_json(error)};
  if (error.status == 429 || error.status == 503) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace quire::server

// Errors for clients, in the format of OpenAI's API.
#pragma once

#include <cstdint>
#include <string>

#include "quire/engine/request.h"
#include "quire/server/http.h"

namespace quire::server {

struct ApiError {
  unsigned status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param = {};        // the wrong field; empty: none
  std::string code = {};         // empty: none
  std::int64_t retry_after = 1;  // seconds; sent with 429 and 503
};

ApiError invalid(std::string message, std::string param = {});
ApiError internal_error();  // an exception
ApiError from_refusal(const engine::Refusal& refusal);

std::string to_json(const ApiError& error);  // {"error":{...}}
HttpResponse to_response(const ApiError& error);

}  // namespace quire::server

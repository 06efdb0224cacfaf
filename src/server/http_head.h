// Formats the head of an answer and the pieces of its body (RFC 9112). No state; any thread may call.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "quire/server/http.h"

namespace quire::server {

// How the client knows where a body ends.
enum class Framing { Length, Chunked, Close };

struct HeadOptions {
  Framing framing = Framing::Length;
  bool keep_alive = true;
};

// Status line and headers, with the empty line after them. With Framing::Length, Content-Length is the body's size.
std::string make_head(const HttpResponse& response, const HeadOptions& options);

// Appends a piece of a body. An empty piece appends nothing.
void append_piece(std::string& out, std::string_view piece, Framing framing);
// Appends the end of the body.
void append_end(std::string& out, Framing framing);

const char* reason_phrase(unsigned status);

}  // namespace quire::server

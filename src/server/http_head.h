// The bytes of an answer's head and of the pieces of its body, as RFC 9112 has them. No state; any thread may call.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "quire/server/http.h"

namespace quire::server {

// How the end of a body is known.
enum class Framing { Length, Chunked, Close };

struct HeadOptions {
  Framing framing = Framing::Length;
  bool keep_alive = true;
};

// Status line and headers, with the empty line behind them. With Framing::Length the length is the body's.
std::string make_head(const HttpResponse& response, const HeadOptions& options);

// Appends a piece of a body; an empty one is no piece.
void append_piece(std::string& out, std::string_view piece, Framing framing);
// Appends what ends the body.
void append_end(std::string& out, Framing framing);

const char* reason_phrase(unsigned status);

}  // namespace quire::server

#include "quire/server/http_head.h"

#include <ctime>
#include <iterator>

#include <fmt/format.h>

namespace quire::server {
namespace {

// "Sun, 06 Nov 1994 08:49:37 GMT", whatever the locale.
std::string http_date(std::time_t time) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc = {};
  gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon],
                     utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace

const char* reason_phrase(unsigned status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Unknown";
  }
}

std::string make_head(const HttpResponse& response, const HeadOptions& options) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nServer: quire\r\n", response.status,
                                 reason_phrase(response.status), http_date(std::time(nullptr)));
  const auto out = std::back_inserter(head);
  if (!response.content_type.empty()) fmt::format_to(out, "Content-Type: {}\r\n", response.content_type);
  for (const auto& [name, value] : response.headers) fmt::format_to(out, "{}: {}\r\n", name, value);
  const bool has_body = response.status != 204 && response.status != 304;
  if (has_body && options.framing == Framing::Length)
    fmt::format_to(out, "Content-Length: {}\r\n", response.body.size());
  if (has_body && options.framing == Framing::Chunked) head += "Transfer-Encoding: chunked\r\n";
  head += options.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

void append_piece(std::string& out, std::string_view piece, Framing framing) {
  if (piece.empty()) return;
  if (framing == Framing::Chunked) fmt::format_to(std::back_inserter(out), "{:x}\r\n", piece.size());
  out += piece;
  if (framing == Framing::Chunked) out += "\r\n";
}

void append_end(std::string& out, Framing framing) {
  if (framing == Framing::Chunked) out += "0\r\n\r\n";
}

}  // namespace quire::server

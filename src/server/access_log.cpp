#include "quire/server/access_log.h"

#include <ctime>
#include <iterator>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/server/completion_format.h"

namespace quire::server {
namespace {

constexpr std::size_t kMostOfField = 256;  // bytes; a path may be as long as a header

// A text from a client, in quotes. Control characters become escapes, invalid UTF-8 is repaired.
void put_quoted(std::string& out, std::string_view text) {
  std::string whole;
  append_repaired(whole, text.substr(0, kMostOfField));
  if (text.size() > kMostOfField) whole += "...";
  append_json_string(out, whole);
}

}  // namespace

std::string timestamp(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count() % 1000;
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, milliseconds);
}

std::string text_line(const AccessRecord& record) {
  std::string out = fmt::format("{} {} ", timestamp(record.time), record.client);
  put_quoted(out, record.method.empty() ? "-" : record.method + " " + record.path);
  const auto into = std::back_inserter(out);
  fmt::format_to(into, " {} {} bytes {:.3f} s", record.status == 0 ? "-" : std::to_string(record.status), record.bytes,
                 record.seconds);
  const RequestNotes& notes = record.notes;
  if (!notes.tenant.empty()) {
    out += " tenant=";
    put_quoted(out, notes.tenant);
  }
  if (notes.request != 0) {
    fmt::format_to(into, " request={} prompt={} completion={}", notes.request, notes.prompt_tokens,
                   notes.completion_tokens);
    if (!notes.finish.empty()) fmt::format_to(into, " finish={}", notes.finish);
  }
  if (record.left) out += " client left";
  return out;
}

std::string json_line(const AccessRecord& record) {
  std::string out = fmt::format(R"({{"time":"{}","client":"{}","method":)", timestamp(record.time), record.client);
  put_quoted(out, record.method);
  out += ",\"path\":";
  put_quoted(out, record.path);
  const auto into = std::back_inserter(out);
  fmt::format_to(into, R"(,"status":{},"bytes":{},"seconds":{:.6f},"left":{})",
                 record.status == 0 ? "null" : std::to_string(record.status), record.bytes, record.seconds,
                 record.left);
  const RequestNotes& notes = record.notes;
  if (!notes.tenant.empty()) {
    out += ",\"tenant\":";
    put_quoted(out, notes.tenant);
  }
  if (notes.request != 0) {
    fmt::format_to(into, R"(,"request":{},"prompt_tokens":{},"completion_tokens":{},"finish":)", notes.request,
                   notes.prompt_tokens, notes.completion_tokens);
    put_quoted(out, notes.finish);
  }
  out += '}';
  return out;
}

}  // namespace quire::server

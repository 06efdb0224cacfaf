// One line for each request: who asked for what, and how it ended. Prompts, answers and keys are never in it.
//
// Who may call: any thread.
// What holds: a line has no line breaks and no control characters, whatever a client sends, and is shorter than 4 KiB.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "quire/server/http.h"

namespace quire::server {

struct AccessRecord {
  std::chrono::system_clock::time_point time;  // when the header had come
  std::string client;                          // address and port, or "unix"
  std::string method;                          // empty: it was not HTTP
  std::string path;                            // without the query
  unsigned status = 0;                         // 0: the client left before there was an answer
  std::uint64_t bytes = 0;                     // of the answer that were sent, with its header
  double seconds = 0;                          // from the header to the end of the answer
  bool left = false;                           // the client went away, or was cut off, before the end of the answer
  RequestNotes notes;
};

// 2026-11-15T22:41:11.123Z 127.0.0.1:50412 "POST /v1/completions" 200 1834 bytes 0.532 s request=7 prompt=3 ...
std::string text_line(const AccessRecord& record);
std::string json_line(const AccessRecord& record);

// "2026-11-15T22:41:11.123Z"
std::string timestamp(std::chrono::system_clock::time_point time);

}  // namespace quire::server

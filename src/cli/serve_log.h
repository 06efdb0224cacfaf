// The log of `quire serve` on standard error: what the operator should know, and a line for each request.
//
// Who may call: one thread at a time.
// What holds: a line is written at once and as a whole. If nobody reads the log (a pipe that is full), lines of
// requests
//   are left out and counted, because the server must not wait for its log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/cli/output.h"
#include "quire/server/access_log.h"
#include "quire/server/http_server.h"

namespace quire::cli {

class ServeLog {
 public:
  enum class Format { Text, Json, None };  // None: no lines for requests

  ServeLog(Output& out, Format format) : out_(out), format_(format) {}

  void note(std::string_view message) { write("info", message); }
  void warn(std::string_view message) { write("warning", message); }
  void request(const server::AccessRecord& record);

 private:
  void write(std::string_view level, std::string_view message);

  Output& out_;
  Format format_;
  std::uint64_t left_out_ = 0;
};

// What is risky about where the server listens and who runs it.
std::vector<std::string> warnings(const std::vector<server::ListenAddress>& addresses, bool has_keys, bool is_root);

}  // namespace quire::cli

#include "quire/cli/serve_log.h"

#include <chrono>
#include <utility>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

namespace quire::cli {

void ServeLog::write(std::string_view level, std::string_view message) {
  if (format_ == Format::Json) {
    const boost::json::object line{
        {"time", server::timestamp(std::chrono::system_clock::now())}, {"level", level}, {"message", message}};
    (void)out_.write(boost::json::serialize(line) + "\n");
  } else {
    (void)out_.write(fmt::format("quire: {}{}\n", level == "warning" ? "warning: " : "", message));
  }
}

void ServeLog::request(const server::AccessRecord& record) {
  if (format_ == Format::None) return;
  if (!out_.ready()) {
    ++left_out_;
    return;
  }
  if (left_out_ > 0) {
    warn(fmt::format("nobody read the log: {} lines are missing here", std::exchange(left_out_, 0)));
  }
  (void)out_.write((format_ == Format::Json ? json_line(record) : text_line(record)) + "\n");
}

std::vector<std::string> warnings(const std::vector<server::ListenAddress>& addresses, bool has_keys, bool is_root) {
  std::vector<std::string> out;
  for (const server::ListenAddress& address : addresses) {
    if (address.loopback || has_keys) continue;
    out.push_back(fmt::format(
        "everyone who can reach {} may use the server, because it has no keys (see --api-key-file)", address.address));
  }
  if (is_root) out.emplace_back("the server runs as root, which it does not need");
  return out;
}

}  // namespace quire::cli

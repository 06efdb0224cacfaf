#include "quire/server/host_check.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

namespace quire::server {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// The name in a Host header: without its port, brackets and the dot at its end, in lower case. Empty: not a host.
std::optional<std::string> name_in(std::string_view host) {
  std::string_view name = host;
  std::string_view rest;
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    name = host.substr(1, end - 1);
    rest = host.substr(end + 1);
  } else if (const std::size_t colon = host.find(':'); colon != std::string_view::npos) {
    name = host.substr(0, colon);
    rest = host.substr(colon);
  }
  const bool port = rest.empty() || (rest.starts_with(':') &&
                                     std::ranges::all_of(rest.substr(1), [](char c) { return c >= '0' && c <= '9'; }));
  if (name.ends_with('.')) name.remove_suffix(1);
  if (!port || name.empty()) return std::nullopt;
  return lower(name);
}

}  // namespace

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1" || address.starts_with("::ffff:127.");
}

HostCheck::HostCheck(const std::vector<std::string>& allowed) {
  for (const std::string& host : allowed) {
    any_ = any_ || host == "*";
    // An IPv6 address may be given with or without brackets.
    const bool bare = std::ranges::count(host, ':') > 1 && !host.starts_with('[');
    if (const auto name = bare ? std::optional(lower(host)) : name_in(host)) allowed_.push_back(*name);
  }
}

bool HostCheck::allows(std::string_view host, std::string_view address) const {
  if (any_ || (allowed_.empty() && !is_loopback(address))) return true;
  const auto name = name_in(host);
  if (!name) return false;
  return *name == "localhost" || *name == address || std::ranges::find(allowed_, *name) != allowed_.end();
}

}  // namespace quire::server

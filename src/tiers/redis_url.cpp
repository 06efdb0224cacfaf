#include "quire/tiers/redis_url.h"

#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

namespace quire::tiers {
namespace {

constexpr std::uint64_t kSmallestPart = 64 << 10;
constexpr std::uint64_t kLargestPart = 256 << 20;  // Redis refuses values over 512 MiB

template <typename Number>
std::optional<Number> whole(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

Result<std::string> decoded(std::string_view what, std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    const auto high = i + 1 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
    const auto low = i + 2 < text.size() ? hex_digit(text[i + 2]) : std::nullopt;
    if (!high || !low) return fail(fmt::format("{}: % is not followed by two hex digits", what));
    result += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return result;
}

// "90", "90s", "0.5s", "500ms", "30m", "12h", "7d" in seconds.
std::optional<double> seconds(std::string_view text) {
  double unit = 1;
  const auto ends_with = [&](std::string_view suffix, double seconds) {
    if (!text.ends_with(suffix)) return false;
    text.remove_suffix(suffix.size());
    unit = seconds;
    return true;
  };
  ends_with("ms", 0.001) || ends_with("s", 1) || ends_with("m", 60) || ends_with("h", 3600) || ends_with("d", 86400);
  const auto number = whole<double>(text);
  if (!number || !std::isfinite(*number) || *number < 0) return std::nullopt;
  return *number * unit;
}

std::optional<std::uint64_t> size(std::string_view text) {
  unsigned shift = 0;
  if (text.ends_with("K")) shift = 10;
  if (text.ends_with("M")) shift = 20;
  if (shift > 0) text.remove_suffix(1);
  const auto number = whole<std::uint64_t>(text);
  if (!number || *number > (~std::uint64_t{0} >> shift)) return std::nullopt;
  return *number << shift;
}

Result<std::uint16_t> parse_port(std::string_view text, std::string_view whole_text) {
  const auto port = whole<std::uint16_t>(text);
  if (!port || *port == 0) return fail(fmt::format("'{}': '{}' is not a port (1 to 65535)", whole_text, text));
  return *port;
}

Result<bool> yes_or_no(std::string_view name, std::string_view value) {
  if (value == "yes") return true;
  if (value == "no") return false;
  return fail(fmt::format("{}={}: yes or no", name, value));
}

Result<void> set_option(RedisUrl& url, std::string_view name, std::string_view value) {
  if (name == "cluster") {
    if (value == "auto") {
      url.cluster = RedisUrl::Cluster::Auto;
    } else if (auto yes = yes_or_no(name, value)) {
      url.cluster = *yes ? RedisUrl::Cluster::Yes : RedisUrl::Cluster::No;
    } else {
      return fail(fmt::format("cluster={}: auto, yes or no", value));
    }
  } else if (name == "prefix") {
    auto prefix = decoded("prefix", value);
    if (!prefix) return std::unexpected(prefix.error());
    // Braces are Redis' hash tags: they would put all keys of a cluster on one node.
    if (prefix->empty() || prefix->size() > 64 || prefix->find_first_of("{}") != std::string::npos) {
      return fail(fmt::format("prefix={}: 1 to 64 characters without braces", value));
    }
    url.prefix = std::move(*prefix);
  } else if (name == "expire") {
    const auto time = seconds(value);
    if (!time || *time > 3.2e9 || (*time > 0 && *time < 1)) {
      return fail(fmt::format("expire={}: a time such as 7d, 12h or 90s; 0 for never", value));
    }
    url.expire = std::chrono::seconds(static_cast<std::int64_t>(*time));
  } else if (name == "timeout") {
    const auto time = seconds(value);
    if (!time || *time < 0.01 || *time > 60) return fail(fmt::format("timeout={}: 10ms to 60s", value));
    url.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(*time * 1000));
  } else if (name == "part") {
    const auto bytes = size(value);
    if (!bytes || *bytes < kSmallestPart || *bytes > kLargestPart) {
      return fail(fmt::format("part={}: a size from 64K to 256M", value));
    }
    url.part = *bytes;
  } else if (name == "ca" || name == "insecure") {
    if (!url.tls) return fail(fmt::format("{} is for TLS: the URL begins with rediss://", name));
    if (name == "ca") {
      auto file = decoded("ca", value);
      if (!file || file->empty()) return fail(file ? "ca= names no file" : file.error().message);
      url.ca = std::move(*file);
    } else {
      auto yes = yes_or_no(name, value);
      if (!yes) return std::unexpected(yes.error());
      url.insecure = *yes;
    }
  } else {
    return fail(fmt::format("unknown option '{}' (cluster, prefix, expire, timeout, part, ca, insecure)", name));
  }
  return {};
}

// The text up to the first `separator`, which is removed with it.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return taken;
}

Result<RedisUrl> parse(std::string_view text) {
  RedisUrl url;
  const std::size_t scheme = text.find("://");
  if (text.starts_with("rediss://")) {
    url.tls = true;
  } else if (!text.starts_with("redis://")) {
    return fail("the URL must begin with redis:// or rediss://");
  }
  text.remove_prefix(scheme + 3);
  std::string_view options = text;
  std::string_view rest = take_until(options, '?');
  std::string_view path = rest;
  std::string_view hosts = take_until(path, '/');
  if (const std::size_t at = hosts.rfind('@'); at != std::string_view::npos) {
    std::string_view password = hosts.substr(0, at);
    const bool has_colon = password.find(':') != std::string_view::npos;
    auto user = decoded("user", take_until(password, ':'));
    auto secret = decoded("password", password);
    if (!user) return std::unexpected(user.error());
    if (!secret) return std::unexpected(secret.error());
    if (!has_colon || secret->empty())
      return fail("no password before '@': write user:password@host or :password@host");
    url.user = std::move(*user);
    url.password = std::move(*secret);
    hosts.remove_prefix(at + 1);
  }
  do {
    auto address = parse_redis_address(take_until(hosts, ','));
    if (!address) return std::unexpected(address.error());
    url.hosts.push_back(std::move(*address));
  } while (!hosts.empty());
  if (!path.empty()) {
    const auto db = whole<std::uint32_t>(path);
    if (!db) return fail(fmt::format("'/{}': the database is a number", path));
    url.db = *db;
  }
  while (!options.empty()) {
    std::string_view value = take_until(options, '&');
    const std::string_view name = take_until(value, '=');
    if (auto set = set_option(url, name, value); !set) return std::unexpected(set.error());
  }
  if (url.db != 0 && url.cluster == RedisUrl::Cluster::Yes) return fail("a cluster has no databases but 0");
  return url;
}

}  // namespace

std::string to_text(const RedisAddress& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port) : fmt::format("{}:{}", address.host, address.port);
}

Result<RedisAddress> parse_redis_address(std::string_view text) {
  RedisAddress address;
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return fail(fmt::format("'{}': no ']'", text));
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && port[0] != ':') return fail(fmt::format("'{}': ':' and a port, or nothing, after ']'", text));
    has_port = !port.empty();
    if (has_port) port.remove_prefix(1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
  }
  if (host.empty()) return fail(text.empty() ? "no host" : fmt::format("'{}': no host", text));
  for (const char c : host) {
    if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f) return fail("a host has a space or a control character");
  }
  address.host = std::string(host);
  if (has_port) {
    auto number = parse_port(port, text);
    if (!number) return std::unexpected(number.error());
    address.port = *number;
  }
  return address;
}

Result<RedisAddress> parse_redirect_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return fail(fmt::format("'{}': no port", text));
  auto port = parse_port(text.substr(colon + 1), text);
  if (!port) return std::unexpected(port.error());
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return RedisAddress{std::string(host), *port};
}

Result<RedisUrl> parse_redis_url(std::string_view text) {
  auto url = parse(text);
  if (!url) return fail(fmt::format("shared store: {}", url.error().message));
  return url;
}

std::string describe(const RedisUrl& url) {
  const RedisUrl usual;
  std::string text = url.tls ? "rediss://" : "redis://";
  for (std::size_t i = 0; i < url.hosts.size(); ++i) text += (i > 0 ? "," : "") + to_text(url.hosts[i]);
  if (url.db != 0) text += fmt::format("/{}", url.db);
  char separator = '?';
  const auto option = [&](std::string_view name, const auto& value) {
    text += fmt::format("{}{}={}", separator, name, value);
    separator = '&';
  };
  if (url.cluster != usual.cluster) option("cluster", url.cluster == RedisUrl::Cluster::Yes ? "yes" : "no");
  if (url.prefix != usual.prefix) option("prefix", url.prefix);
  if (url.expire != usual.expire) option("expire", fmt::format("{}s", url.expire.count()));
  if (url.timeout != usual.timeout) option("timeout", fmt::format("{}ms", url.timeout.count()));
  if (url.part != usual.part) option("part", url.part);
  if (!url.ca.empty()) option("ca", url.ca);
  if (url.insecure) option("insecure", "yes");
  return text;
}

}  // namespace quire::tiers

// Where a shared store is and how to talk to it, as one URL:
//
//   redis://[user:password@]host[:port][,host[:port]...][/db][?option=value&...]
//   rediss://...      the same over TLS
//
//   cluster=auto|yes|no   whether it is a cluster; auto asks the server                          auto
//   prefix=TEXT           what the keys begin with                                               quire
//   expire=7d             keys that nobody reads for so long are gone; 0: never                  7d
//   timeout=1s            without progress a connection is given up; a new one may take twice that   1s
//   part=8M               larger objects are stored in parts of this size                        8M
//   ca=FILE               for TLS: the certificates to trust, in place of the system's
//   insecure=yes          for TLS: do not check the server's certificate
//
// User, password and prefix may have %XX for characters that mean something in a URL.
//
// How it fails: one line that names what is wrong, without the password.
// Who may call: any thread.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"

namespace quire::tiers {

struct RedisAddress {
  std::string host;
  std::uint16_t port = 6379;

  friend auto operator<=>(const RedisAddress&, const RedisAddress&) = default;
};
std::string to_text(const RedisAddress& address);                    // "host:port", "[::1]:6379"
Result<RedisAddress> parse_redis_address(std::string_view text);     // "host", "host:port", "[::1]:6379"
Result<RedisAddress> parse_redirect_address(std::string_view text);  // as in MOVED: "::1:6379" too

struct RedisUrl {
  enum class Cluster : std::uint8_t { No, Auto, Yes };

  bool tls = false;
  std::string user, password;
  std::vector<RedisAddress> hosts;  // at least one
  std::uint32_t db = 0;
  Cluster cluster = Cluster::Auto;
  std::string prefix = "quire";
  std::chrono::seconds expire = std::chrono::hours(24 * 7);  // 0: never
  std::chrono::milliseconds timeout{1000};
  // How long a job may take, from its start to its end.
  std::chrono::milliseconds job_time() const { return 5 * timeout; }
  std::uint64_t part = std::uint64_t{8} << 20;
  std::string ca;
  bool insecure = false;
};

Result<RedisUrl> parse_redis_url(std::string_view text);

// The URL again, for logs: without user and password, and with those options only that are not the usual ones.
std::string describe(const RedisUrl& url);

}  // namespace quire::tiers

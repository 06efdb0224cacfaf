#include "quire/server/listeners.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "quire/server/host_check.h"

namespace quire::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 4096;

std::string with_port(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return fmt::format(fmt::runtime(endpoint.address().is_v6() ? "[{}]:{}" : "{}:{}"), address, endpoint.port());
}

// The addresses of a name, each once.
Result<std::vector<tcp::endpoint>> resolve(asio::io_context& io, const std::string& host, std::uint16_t port) {
  error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(host, std::to_string(port), tcp::resolver::passive | tcp::resolver::numeric_service, error);
  std::vector<tcp::endpoint> endpoints;
  const auto add = [&](const tcp::endpoint& endpoint) {
    if (std::ranges::find(endpoints, endpoint) == endpoints.end()) endpoints.push_back(endpoint);
  };
  for (const auto& entry : found) add(entry.endpoint());
  // Clients try both loopback addresses for this name (RFC 6761), whatever /etc/hosts has.
  if (host == "localhost") {
    add({asio::ip::address_v4::loopback(), port});
    add({asio::ip::address_v6::loopback(), port});
  }
  if (endpoints.empty()) return fail(fmt::format("cannot listen on {}:{}: {}", host, port, error.message()));
  return endpoints;
}

// Whether this machine lacks the address or its whole family. Then the others of the same name may do.
bool not_here(const error_code& error) {
  return error == asio::error::address_family_not_supported || error == boost::system::errc::address_not_available ||
         error == boost::system::errc::protocol_not_supported;
}

// Removes the socket that a killed server has left behind. Fails if a server still listens on it, or if the path is
// something else.
Result<void> remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat file = {};
  if (::lstat(path.c_str(), &file) != 0) return {};
  if (!S_ISSOCK(file.st_mode)) return fail(fmt::format("cannot listen on {}: it exists and is not a socket", path));
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool refused = ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
                       (errno == ECONNREFUSED || errno == ENOENT);
  ::close(probe);
  if (!refused) return fail(fmt::format("cannot listen on {}: another server listens on it", path));
  (void)::unlink(path.c_str());
  return {};
}

std::string text_of(const sockaddr_storage& address, std::uint16_t* port) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    if (port != nullptr) *port = ntohs(v4.sin_port);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    if (port != nullptr) *port = ntohs(v6.sin6_port);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  }
  return text;
}

}  // namespace

Result<void> Listeners::open(const HttpOptions& options) {
  if (options.tcp) {
    if (auto ok = open_tcp(options); !ok) return ok;
  }
  if (!options.unix_path.empty()) return open_unix(options.unix_path, options.unix_mode);
  return {};
}

Result<void> Listeners::open_tcp(const HttpOptions& options) {
  auto endpoints = resolve(io_, options.host, options.port);
  if (!endpoints) return std::unexpected(endpoints.error());
  port_ = options.port;
  error_code missing;
  for (tcp::endpoint endpoint : *endpoints) {
    endpoint.port(port_);  // the first one may have chosen it
    decltype(Listener::acceptor) acceptor(io_);
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    // Beside an IPv4 address, the IPv6 socket must not take the same port for both families.
    if (!error && endpoint.address().is_v6() && endpoints->size() > 1) {
      acceptor.set_option(asio::ip::v6_only(true), error);
    }
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(kBacklog, error);
    if (error && not_here(error) && endpoints->size() > 1) {
      missing = error;
      if (options.on_note) {
        options.on_note(fmt::format("not listening on {}: {}", endpoint.address().to_string(), error.message()));
      }
      continue;
    }
    if (error) return fail(fmt::format("cannot listen on {}: {}", with_port(endpoint), error.message()));
    sockaddr_storage bound = {};
    socklen_t size = sizeof(bound);
    ::getsockname(acceptor.native_handle(), reinterpret_cast<sockaddr*>(&bound), &size);
    (void)text_of(bound, &port_);
    endpoint.port(port_);
    addresses_.push_back(
        {.url = fmt::format("{}://{}/", options.tls_certificate.empty() ? "http" : "https", with_port(endpoint)),
         .address = endpoint.address().to_string(),
         .loopback = endpoint.address().is_loopback()});
    all_.push_back({.acceptor = std::move(acceptor)});
  }
  if (all_.empty()) return fail(fmt::format("cannot listen on {}:{}: {}", options.host, port_, missing.message()));
  return {};
}

Result<void> Listeners::open_unix(const std::string& path, unsigned mode) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return fail(fmt::format("cannot listen on {}: the path of a socket has at most {} bytes", path,
                            sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (auto ok = remove_stale(path, address); !ok) return ok;
  decltype(Listener::acceptor) acceptor(io_);
  error_code error;
  const asio::local::stream_protocol::endpoint endpoint(path);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.bind(endpoint, error);
  if (error) return fail(fmt::format("cannot listen on {}: {}", path, error.message()));
  // Nobody can connect before listen(), so the mode is right from the beginning.
  unix_path_ = path;
  if (::chmod(path.c_str(), mode) != 0 || ::lstat(path.c_str(), &unix_file_) != 0) {
    return fail(fmt::format("cannot set the mode of {}: {}", path, std::strerror(errno)));
  }
  acceptor.listen(kBacklog, error);
  if (error) return fail(fmt::format("cannot listen on {}: {}", path, error.message()));
  addresses_.push_back({.url = "unix:" + path, .loopback = true, .is_unix = true});
  all_.push_back({.acceptor = std::move(acceptor), .is_unix = true});
  return {};
}

void Listeners::close() {
  error_code ignored;
  for (Listener& listener : all_) listener.acceptor.close(ignored);
  const std::string path = std::exchange(unix_path_, {});
  struct stat now = {};
  // Another server may have put its own socket there meanwhile.
  if (!path.empty() && ::lstat(path.c_str(), &now) == 0 && now.st_ino == unix_file_.st_ino &&
      now.st_dev == unix_file_.st_dev) {
    (void)::unlink(path.c_str());
  }
}

Ends ends_of(int socket) {
  Ends ends;
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0) ends.local = text_of(address, nullptr);
  size = sizeof(address);
  address = {};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    ends.remote = text_of(address, &ends.remote_port);
  }
  return ends;
}

}  // namespace quire::server

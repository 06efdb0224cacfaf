// The sockets on which the server waits for connections: every address that a name stands for, and a Unix socket. Only
// http_server.cpp includes this header, because it pulls in Asio.
//
// Who may call: the loop's thread.
// What holds: all TCP addresses have the same port. An address whose family this machine does not have is skipped, as
//   long as another one works. A Unix socket is created with its mode before anybody can connect to it, and removed by
//   close().
// How it fails: open() returns one line that names the address.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <sys/stat.h>

#include "quire/base/error.h"
#include "quire/server/http_server.h"

namespace quire::server {

struct Listener {
  boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol> acceptor;
  bool is_unix = false;
};

class Listeners {
 public:
  explicit Listeners(boost::asio::io_context& io) : io_(io) {}
  ~Listeners() { close(); }
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;

  Result<void> open(const HttpOptions& options);
  void close();

  std::deque<Listener>& all() { return all_; }
  const std::vector<ListenAddress>& addresses() const { return addresses_; }
  std::uint16_t port() const { return port_; }

 private:
  Result<void> open_tcp(const HttpOptions& options);
  Result<void> open_unix(const std::string& path, unsigned mode);

  boost::asio::io_context& io_;
  std::deque<Listener> all_;
  std::vector<ListenAddress> addresses_;
  std::uint16_t port_ = 0;
  std::string unix_path_;       // empty: there is nothing to remove
  struct stat unix_file_ = {};  // the socket's, to remove no other file
};

// Addresses of a socket's two ends, without a port. Empty: a Unix socket, or unknown.
struct Ends {
  std::string local;
  std::string remote;
  std::uint16_t remote_port = 0;
};
Ends ends_of(int socket);

}  // namespace quire::server

// TLS for connections to a Redis server, over a socket that does not block. OpenSSL is used without Asio's stream: so
// bytes are decrypted straight into a job's memory, and nothing touches that memory outside of read() and write().
//
// How it fails: one line. In a build without OpenSSL make_redis_tls() says so.
// Who may call: one thread at a time. SIGPIPE must be blocked in that thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "quire/base/error.h"
#include "quire/tiers/redis_url.h"

namespace quire::tiers {

// What came of a read or a write on a socket.
struct Transfer {
  enum class State : std::uint8_t { Some, WaitReadable, WaitWritable, Closed, Broken };
  State state = State::Some;
  std::size_t bytes = 0;  // Some: at least 1
  std::string problem;    // Broken
};

class RedisTlsSession {
 public:
  virtual ~RedisTlsSession() = default;
  virtual Transfer handshake() = 0;  // Some: it is complete
  virtual Transfer read(std::span<std::byte> into) = 0;
  virtual Transfer write(std::span<const std::byte> from) = 0;
};

class RedisTls {
 public:
  virtual ~RedisTls() = default;
  // A session on a connected socket. `host`: the name that the server's certificate must have.
  virtual Result<std::unique_ptr<RedisTlsSession>> start(int socket, const std::string& host) = 0;
};

Result<std::unique_ptr<RedisTls>> make_redis_tls(const RedisUrl& url);

}  // namespace quire::tiers

// The byte stream of a connection: a TCP or Unix socket, with or without TLS. Only connection.h includes this header.
//
// Who may call: the loop's thread. One read and one write may be under way at the same time.
// What holds: it models Asio's AsyncReadStream and AsyncWriteStream, so that Beast can read from it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/append.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include "quire/server/tls.h"

#if QUIRE_TLS
#include <boost/asio/ssl/stream.hpp>
#endif

namespace quire::server {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;

class Stream {
 public:
  using executor_type = Socket::executor_type;

  // Without `tls` the stream is plain.
  Stream(Socket socket, [[maybe_unused]] std::shared_ptr<TlsContext> tls) : socket_(std::move(socket)) {
#if QUIRE_TLS
    if (tls) tls_.emplace(socket_, *tls);
#endif
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }
  bool encrypted() const {
#if QUIRE_TLS
    return tls_.has_value();
#else
    return false;
#endif
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this](auto handler, const Buffers& into) {
#if QUIRE_TLS
          if (tls_) return tls_->async_read_some(into, std::move(handler));
#endif
          socket_.async_read_some(into, std::move(handler));
        },
        token, buffers);
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this](auto handler, const Buffers& from) {
#if QUIRE_TLS
          if (tls_) return tls_->async_write_some(from, std::move(handler));
#endif
          socket_.async_write_some(from, std::move(handler));
        },
        token, buffers);
  }

  // A plain stream has no handshake and no goodbye: both are done at once.
  template <typename Token>
  auto async_handshake(Token&& token) {
    return asio::async_initiate<Token, void(error_code)>(
        [this](auto handler) {
#if QUIRE_TLS
          if (tls_) return tls_->async_handshake(asio::ssl::stream_base::server, std::move(handler));
#endif
          asio::post(get_executor(), asio::append(std::move(handler), error_code()));
        },
        token);
  }
  // Tells the client that nothing more will come, and waits until it says the same.
  template <typename Token>
  auto async_goodbye(Token&& token) {
    return asio::async_initiate<Token, void(error_code)>(
        [this](auto handler) {
#if QUIRE_TLS
          if (tls_) return tls_->async_shutdown(std::move(handler));
#endif
          asio::post(get_executor(), asio::append(std::move(handler), error_code()));
        },
        token);
  }

 private:
  Socket socket_;
#if QUIRE_TLS
  std::optional<asio::ssl::stream<Socket&>> tls_;
#endif
};

}  // namespace quire::server

#include "quire/tiers/redis_tls.h"

#if QUIRE_REDIS_TLS

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

namespace quire::tiers {
namespace {

std::string last_problem() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "unknown error";
  const char* const reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : fmt::format("error {:x}", code);
}

struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct FreeSession {
  void operator()(SSL* session) const { SSL_free(session); }
};

class Session : public RedisTlsSession {
 public:
  explicit Session(SSL* ssl) : ssl_(ssl) {}

  Transfer handshake() override {
    ERR_clear_error();
    const int result = SSL_connect(ssl_.get());
    if (result == 1) return {};
    Transfer transfer = not_done(result);
    if (const long verified = SSL_get_verify_result(ssl_.get());
        transfer.state == Transfer::State::Broken && verified != X509_V_OK) {
      transfer.problem = fmt::format("the certificate is refused: {}", X509_verify_cert_error_string(verified));
    }
    return transfer;
  }

  Transfer read(std::span<std::byte> into) override {
    ERR_clear_error();
    const int result = SSL_read(ssl_.get(), into.data(), static_cast<int>(std::min<std::size_t>(into.size(), INT_MAX)));
    if (result > 0) return {.bytes = static_cast<std::size_t>(result)};
    return not_done(result);
  }

  Transfer write(std::span<const std::byte> from) override {
    ERR_clear_error();
    const int result =
        SSL_write(ssl_.get(), from.data(), static_cast<int>(std::min<std::size_t>(from.size(), INT_MAX)));
    if (result > 0) return {.bytes = static_cast<std::size_t>(result)};
    return not_done(result);
  }

 private:
  Transfer not_done(int result) {
    const int system_error = errno;
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ: return {.state = Transfer::State::WaitReadable};
      case SSL_ERROR_WANT_WRITE: return {.state = Transfer::State::WaitWritable};
      case SSL_ERROR_ZERO_RETURN: return {.state = Transfer::State::Closed};
      case SSL_ERROR_SYSCALL:
        if (system_error == 0 || system_error == ECONNRESET || system_error == EPIPE) {
          return {.state = Transfer::State::Closed};
        }
        return {.state = Transfer::State::Broken, .problem = std::strerror(system_error)};
      default: return {.state = Transfer::State::Broken, .problem = "TLS: " + last_problem()};
    }
  }

  std::unique_ptr<SSL, FreeSession> ssl_;
};

class Context : public RedisTls {
 public:
  Context(SSL_CTX* context, bool check_names) : context_(context), check_names_(check_names) {}

  Result<std::unique_ptr<RedisTlsSession>> start(int socket, const std::string& host) override {
    SSL* const ssl = SSL_new(context_.get());
    if (ssl == nullptr) return fail("TLS: " + last_problem());
    auto session = std::make_unique<Session>(ssl);
    in6_addr address{};
    const bool numeric =
        inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
    bool ok = SSL_set_fd(ssl, socket) == 1;
    if (ok && !numeric) ok = SSL_set_tlsext_host_name(ssl, host.c_str()) == 1;
    if (ok && check_names_) {
      ok = numeric ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1
                   : SSL_set1_host(ssl, host.c_str()) == 1;
    }
    if (!ok) return fail("TLS: " + last_problem());
    return session;
  }

 private:
  std::unique_ptr<SSL_CTX, FreeContext> context_;
  bool check_names_;
};

}  // namespace

Result<std::unique_ptr<RedisTls>> make_redis_tls(const RedisUrl& url) {
  std::unique_ptr<SSL_CTX, FreeContext> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return fail("TLS: " + last_problem());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (!url.insecure) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    ERR_clear_error();
    if (url.ca.empty()) {
      SSL_CTX_set_default_verify_paths(context.get());
    } else if (SSL_CTX_load_verify_locations(context.get(), url.ca.c_str(), nullptr) != 1) {
      return fail(fmt::format("shared store: {}: no certificates in PEM ({})", url.ca, last_problem()));
    }
  }
  return std::make_unique<Context>(context.release(), !url.insecure);
}

}  // namespace quire::tiers

#else

namespace quire::tiers {

Result<std::unique_ptr<RedisTls>> make_redis_tls(const RedisUrl&) {
  return fail("shared store: this build has no TLS (it was configured without OpenSSL): rediss:// is not supported");
}

}  // namespace quire::tiers

#endif

#include "quire/server/tls.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#if QUIRE_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#endif

namespace quire::server {

#if QUIRE_TLS
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

Result<void> readable(const std::string& file) {
  if (::access(file.c_str(), R_OK) == 0) return {};
  return fail(fmt::format("{}: {}", file, std::strerror(errno)));
}

// Of the protocols that a client offers (ALPN), the server speaks HTTP/1.1.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* length, const unsigned char* offered,
                    unsigned offered_length, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, length, kHttp11, sizeof(kHttp11) - 1, offered, offered_length) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Result<std::shared_ptr<TlsContext>> load_tls(const std::string& certificate, const std::string& key) {
  for (const std::string& file : {certificate, key}) {
    if (auto ok = readable(file); !ok) return std::unexpected(ok.error());
  }
  error_code error;
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  context->set_options(ssl::context::default_workarounds | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION, error);
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  // For TLS 1.2: only ciphers with forward secrecy and authenticated encryption. Those of TLS 1.3 all have both.
  SSL_CTX_set_cipher_list(native, "ECDHE+AESGCM:ECDHE+CHACHA20");
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);  // idle connections keep no buffers
  SSL_CTX_set_alpn_select_cb(native, choose_protocol, nullptr);
  // OpenSSL would ask for the password of an encrypted key on the terminal.
  context->set_password_callback([](std::size_t, ssl::context::password_purpose) { return std::string(); }, error);
  context->use_certificate_chain_file(certificate, error);
  if (error) return fail(fmt::format("{}: this is not a certificate in PEM format ({})", certificate, error.message()));
  ERR_clear_error();
  // This checks that the key belongs to the certificate, too.
  context->use_private_key_file(key, ssl::context::pem, error);
  if (error && ERR_GET_REASON(static_cast<unsigned long>(error.value())) == X509_R_KEY_VALUES_MISMATCH) {
    return fail(fmt::format("{}: this key does not belong to the certificate {}", key, certificate));
  }
  if (error) {
    return fail(fmt::format("{}: this is not an unencrypted private key in PEM format ({})", key, error.message()));
  }
  if (SSL_CTX_check_private_key(native) != 1) {
    ERR_clear_error();
    return fail(fmt::format("{}: this key does not belong to the certificate {}", key, certificate));
  }
  return context;
}

#else

Result<std::shared_ptr<TlsContext>> load_tls(const std::string&, const std::string&) {
  return fail("this build of quire has no TLS: it was configured without OpenSSL (libssl-dev)");
}

#endif

}  // namespace quire::server

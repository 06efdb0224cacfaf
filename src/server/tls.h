// Certificate and key for TLS. Only connection.h and http_server.cpp include this header, because it pulls in Asio.
//
// How it fails: one line that names the file, or says that this build has no TLS (it was configured without OpenSSL).
#pragma once

#include <memory>
#include <string>

#include "quire/base/error.h"

#if QUIRE_TLS
#include <boost/asio/ssl/context.hpp>
#endif

namespace quire::server {

#if QUIRE_TLS
using TlsContext = boost::asio::ssl::context;
#else
struct TlsContext {};
#endif

// Reads a certificate chain and its private key, both in PEM. TLS 1.2 and 1.3, forward secrecy, HTTP/1.1.
Result<std::shared_ptr<TlsContext>> load_tls(const std::string& certificate, const std::string& key);

}  // namespace quire::server

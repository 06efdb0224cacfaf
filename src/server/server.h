// The server: a hosted model behind HTTP.
//
//   auto server = Server::create(std::move(*host), {.http = {.port = 0}});
//   auto ended = (*server)->run();   // until stop(), or a signal if enabled in the options
//
// Who may call: stop() and reload() from any thread, the rest from the thread that created it.
// What holds: stop() refuses new requests. Running requests have the grace time to finish. Then they are cut off, with
//   an error that says so. A second stop() does not wait. After run() no request is left.
// How it fails: create() returns one line: the address is not available, the tokenizer is not supported, or a key, the
//   file of keys, a certificate or a chat template is invalid. run() returns one line if the device is lost:
//   HttpOptions::on_note is told at once, every request gets that error, and the server stops by itself. Only a new
//   process can use the device again.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine/hosted_model.h"
#include "quire/server/http_server.h"

namespace quire::server {

struct ServerOptions {
  HttpOptions http;
  std::vector<std::string> keys;           // plain keys. Neither these nor a file: everybody is admitted
  std::string key_file;                    // see key_file.h; reload() reads it again
  std::vector<std::string> origins;        // other origins whose pages may call; "*": all
  std::string alias;                       // the model's name; empty: its file's
  bool any_model = false;                  // answer whatever model a request names
  std::optional<engine::Pooling> pooling;  // of embeddings; empty: as the model's file says
  struct ChatTemplate {
    std::string source, name;  // the name is for error messages
  };
  std::optional<ChatTemplate> chat_template;  // instead of the model's own
  std::chrono::milliseconds request_timeout{600'000};
  std::chrono::milliseconds grace{10'000};
  std::chrono::milliseconds stream_keep_alive{10'000};  // a comment in a stream that is silent this long; 0: none
  std::size_t stream_buffer = 1 << 20;                  // bytes that may wait for a slow client
  std::uint64_t responses_bytes = 64 << 20;             // of each key: what /v1/responses keeps, ...
  std::chrono::milliseconds responses_age{86'400'000};  // and for how long after its last use
  std::uint32_t max_sessions = 64;                      // of each key, in memory, and as many files
  std::uint64_t session_tokens = 1 << 20;               // of all sessions of a key
  std::chrono::milliseconds session_age{86'400'000};    // a session that was not used for this long is forgotten
  std::string session_dir;                              // where sessions are saved; empty: they cannot be
  std::size_t parse_queue = 256;                        // requests that may wait to be parsed; further ones get 503
  std::size_t parse_bytes = 256 << 20;                  // and the bytes of their bodies
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> create(std::unique_ptr<engine::HostedModel> host, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  const std::vector<ListenAddress>& addresses() const;
  const std::string& model_name() const;
  Result<void> run();
  void stop();
  // Reads the file of keys again; SIGHUP does too. If it is bad, the keys stay as they were. HttpOptions::on_note is
  // told. Requests of a key that is gone go on; new ones are refused.
  void reload();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server

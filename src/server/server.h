// The server: a hosted model behind HTTP.
//
//   auto server = Server::create(std::move(*host), {.http = {.port = 0}});
//   (*server)->run();       // until stop(), or a signal where asked for
//
// Who may call: stop() any thread, the rest the one that made it.
// What holds: when it is told to stop, nothing more is taken; what is running has until the grace time to end, and is
//   then cut off with an error that says so. Told a second time, it does not wait. After run() no request is left.
// How it fails: create() with one line: an address that cannot be had, a tokenizer that is not supported, a bad key.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine/hosted_model.h"
#include "quire/server/http_server.h"

namespace quire::server {

struct ServerOptions {
  HttpOptions http;
  std::vector<std::string> keys;     // none: everybody is let in
  std::vector<std::string> origins;  // of pages elsewhere that may call; "*": all
  std::string alias;                 // the model's name; empty: its file's
  std::chrono::milliseconds request_timeout{600'000};
  std::chrono::milliseconds grace{10'000};
  std::size_t stream_buffer = 1 << 20;  // bytes that may wait for a client that does not read
};

class Server {
 public:
  static Result<std::unique_ptr<Server>> create(std::unique_ptr<engine::HostedModel> host, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  std::string url() const;
  const std::string& model_name() const;
  void run();
  void stop();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server

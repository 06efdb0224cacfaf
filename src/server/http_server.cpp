#include "quire/server/http_server.h"

#include <algorithm>
#include <csignal>
#include <exception>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "quire/server/connection.h"

namespace quire::server {
namespace {

constexpr std::chrono::milliseconds kTick{50};  // how exact timeouts are
constexpr int kSendBuffer = 128 << 10;          // in the kernel, for each connection
constexpr std::size_t kTurnedAwayAtOnce = 64;   // connections above the limit that get a 503 at the same time
constexpr std::chrono::milliseconds kNoSocketPause{100};

}  // namespace

struct HttpServer::Impl : ConnectionContext {
  Impl(HttpOptions given, Handler handle) {
    options = std::move(given);
    handler = std::move(handle);
  }

  asio::awaitable<void> accept();
  asio::awaitable<void> tick();
  void start(tcp::socket socket);
  void drain();
  void end_if_empty();

  asio::executor_work_guard<asio::io_context::executor_type> guard = asio::make_work_guard(io);
  tcp::acceptor acceptor{io};
  asio::steady_timer ticker{io};
  asio::signal_set signals{io};
  std::unordered_set<std::shared_ptr<Connection>> connections;
  bool draining = false;
  bool finishing = false;
  std::optional<asio::thread_pool> workers;
};

asio::awaitable<void> HttpServer::Impl::accept() {
  for (;;) {
    error_code error;
    tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (!acceptor.is_open() || draining) co_return;
    if (error) {
      // There is no descriptor or memory for one more. New connections stay in the kernel's queue until there is.
      if (error == asio::error::connection_aborted) continue;
      asio::steady_timer pause(io, kNoSocketPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    start(std::move(socket));
  }
}

void HttpServer::Impl::start(tcp::socket socket) {
  ++counts.accepted;
  const bool too_many = connections.size() >= options.max_connections;
  if (connections.size() >= options.max_connections + kTurnedAwayAtOnce) {
    ++counts.turned_away;
    return;
  }
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  const auto connection = std::make_shared<Connection>(*this, std::move(socket), too_many);
  connections.insert(connection);
  asio::co_spawn(
      io, [connection] { return connection->run(); },
      [this, connection](std::exception_ptr) {
        // An exception (out of memory) ends only this connection.
        connection->close();
        connections.erase(connection);
        end_if_empty();
      });
}

asio::awaitable<void> HttpServer::Impl::tick() {
  for (;;) {
    ticker.expires_after(kTick);
    error_code error;
    co_await ticker.async_wait(asio::redirect_error(asio::use_awaitable, error));
    const Clock::time_point now = Clock::now();
    for (const auto& connection : connections) connection->expire(now);
  }
}

void HttpServer::Impl::drain() {
  if (draining) return;
  draining = true;
  error_code ignored;
  acceptor.close(ignored);
  for (const auto& connection : connections) connection->drain();
  end_if_empty();
}

void HttpServer::Impl::end_if_empty() {
  if (finishing && connections.empty()) io.stop();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  impl_->workers->stop();
  impl_->workers->join();
  for (const auto& connection : std::vector(impl_->connections.begin(), impl_->connections.end())) connection->close();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options, Handler handler) {
  const std::string where = fmt::format("{}:{}", options.host, options.port);
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  error_code error;
  tcp::resolver resolver(impl->io);
  const auto found = resolver.resolve(impl->options.host, std::to_string(impl->options.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) return fail(fmt::format("cannot listen on {}: {}", where, error.message()));
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor& acceptor = impl->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(4096, error);
  if (error) return fail(fmt::format("cannot listen on {}: {}", where, error.message()));

  impl->workers.emplace(std::max(impl->options.workers, 1u));
  Impl* const raw = impl.get();
  const auto ignore = [](std::exception_ptr) {};
  asio::co_spawn(
      impl->io, [raw] { return raw->accept(); }, ignore);
  asio::co_spawn(
      impl->io, [raw] { return raw->tick(); }, ignore);
  if (impl->options.signals) {
    std::vector<int> wanted = {SIGINT, SIGTERM};
    if (impl->options.on_reload) wanted.push_back(SIGHUP);
    for (const int signal : wanted) {
      impl->signals.add(signal, error);
      if (error) return fail(fmt::format("cannot wait for signals: {}", error.message()));
    }
    // Handle every signal, not only the first.
    const auto wait = [raw](const auto& again) -> void {
      raw->signals.async_wait([raw, again](error_code failed, int signal) {
        if (failed) return;
        const auto& told = signal == SIGHUP ? raw->options.on_reload : raw->options.on_signal;
        if (told) told();
        again(again);
      });
    };
    wait(wait);
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::uint16_t HttpServer::port() const {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

std::string HttpServer::url() const {
  error_code ignored;
  const tcp::endpoint endpoint = impl_->acceptor.local_endpoint(ignored);
  const std::string address = endpoint.address().to_string();
  return endpoint.address().is_v6() ? fmt::format("http://[{}]:{}/", address, endpoint.port())
                                    : fmt::format("http://{}:{}/", address, endpoint.port());
}

void HttpServer::run() {
  // An exception (out of memory) ends only the task that throws it.
  while (!impl_->io.stopped()) {
    try {
      impl_->io.run();
    } catch (const std::exception&) {
      continue;
    }
  }
}

void HttpServer::post(std::function<void()> task) { asio::post(impl_->io, std::move(task)); }

void HttpServer::after(std::chrono::milliseconds delay, std::function<void()> task) {
  auto timer = std::make_shared<asio::steady_timer>(impl_->io, delay);
  timer->async_wait([timer, task = std::move(task)](error_code error) {
    if (!error) task();
  });
}

void HttpServer::work(std::function<void()> task) { asio::post(*impl_->workers, std::move(task)); }

void HttpServer::drain() {
  post([raw = impl_.get()] { raw->drain(); });
}

void HttpServer::finish(std::chrono::milliseconds patience) {
  post([this, patience] {
    impl_->drain();
    impl_->finishing = true;
    impl_->end_if_empty();
    after(patience, [raw = impl_.get()] { raw->io.stop(); });
  });
}

HttpCounts HttpServer::counts() const {
  HttpCounts counts = impl_->counts;
  counts.connections = impl_->connections.size();
  return counts;
}

}  // namespace quire::server
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
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "quire/server/connection.h"
#include "quire/server/listeners.h"

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
    hosts = HostCheck(options.allowed_hosts);
  }

  asio::awaitable<void> accept(Listener& listener);
  asio::awaitable<void> tick();
  void start(Socket socket, bool is_unix);
  Result<void> load_certificate();
  Result<void> wait_for_signals();
  void signalled(int signal);
  void drain();
  void end_if_empty();

  asio::executor_work_guard<asio::io_context::executor_type> guard = asio::make_work_guard(io);
  Listeners listeners{io};
  std::shared_ptr<TlsContext> tls;
  asio::steady_timer ticker{io};
  asio::signal_set signals{io};
  std::unordered_set<std::shared_ptr<Connection>> connections;
  bool draining = false;
  bool finishing = false;
  std::optional<asio::thread_pool> workers;
};

asio::awaitable<void> HttpServer::Impl::accept(Listener& listener) {
  for (;;) {
    error_code error;
    Socket socket(io);
    co_await listener.acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (!listener.acceptor.is_open() || draining) co_return;
    if (error) {
      // There is no descriptor or memory for one more. New connections stay in the kernel's queue until there is.
      if (error == asio::error::connection_aborted) continue;
      asio::steady_timer pause(io, kNoSocketPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    start(std::move(socket), listener.is_unix);
  }
}

void HttpServer::Impl::start(Socket socket, bool is_unix) {
  ++counts.accepted;
  const bool too_many = connections.size() >= options.max_connections;
  if (connections.size() >= options.max_connections + kTurnedAwayAtOnce) {
    ++counts.turned_away;
    return;
  }
  error_code ignored;
  Connection::Start start{.client = "unix", .turned_away = too_many};
  if (!is_unix) {
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    Ends ends = ends_of(socket.native_handle());
    const bool v6 = ends.remote.find(':') != std::string::npos;
    start.client = fmt::format("{}{}{}:{}", v6 ? "[" : "", ends.remote, v6 ? "]" : "", ends.remote_port);
    start.local = std::move(ends.local);
    start.tls = tls;
  }
  socket.set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
  const auto connection = std::make_shared<Connection>(*this, std::move(socket), std::move(start));
  connections.insert(connection);
  asio::co_spawn(
      io, [connection] { return connection->run(); },
      [this, connection](const std::exception_ptr&) {
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
  listeners.close();
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

Result<void> HttpServer::Impl::load_certificate() {
  if (options.tls_certificate.empty()) return {};
  auto loaded = load_tls(options.tls_certificate, options.tls_key);
  if (!loaded) return std::unexpected(loaded.error());
  tls = std::move(*loaded);
  return {};
}

Result<void> HttpServer::Impl::wait_for_signals() {
  std::vector<int> wanted = {SIGINT, SIGTERM};
  if (tls || options.on_reload) wanted.push_back(SIGHUP);
  for (const int signal : wanted) {
    error_code error;
    signals.add(signal, error);
    if (error) return fail(fmt::format("cannot wait for signals: {}", error.message()));
  }
  // Handle every signal, not only the first.
  const auto wait = [this](const auto& again) -> void {
    signals.async_wait([this, again](error_code failed, int signal) {
      if (failed) return;
      signalled(signal);
      again(again);
    });
  };
  wait(wait);
  return {};
}

void HttpServer::Impl::signalled(int signal) {
  if (signal != SIGHUP) {
    if (options.on_signal) options.on_signal();
    return;
  }
  if (options.on_reload) options.on_reload();
  if (!tls) return;
  const auto loaded = load_certificate();
  if (!options.on_note) return;
  options.on_note(loaded ? fmt::format("read the certificate {} again", options.tls_certificate)
                         : fmt::format("the certificate stays as it was: {}", loaded.error().message));
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options, Handler handler) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  if (auto ok = impl->load_certificate(); !ok) return std::unexpected(ok.error());
  if (auto ok = impl->listeners.open(impl->options); !ok) return std::unexpected(ok.error());

  impl->workers.emplace(std::max(impl->options.workers, 1u));
  Impl* const raw = impl.get();
  const auto ignore = [](const std::exception_ptr&) {};
  for (Listener& listener : impl->listeners.all()) {
    asio::co_spawn(
        impl->io, [raw, &listener] { return raw->accept(listener); }, ignore);
  }
  asio::co_spawn(
      impl->io, [raw] { return raw->tick(); }, ignore);
  if (impl->options.signals) {
    if (auto ok = impl->wait_for_signals(); !ok) return std::unexpected(ok.error());
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

std::uint16_t HttpServer::port() const { return impl_->listeners.port(); }
const std::vector<ListenAddress>& HttpServer::addresses() const { return impl_->listeners.addresses(); }
Result<void> HttpServer::reload_tls() { return impl_->load_certificate(); }

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
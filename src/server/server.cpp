#include "quire/server/server.h"

#include <thread>
#include <utility>

#include <fmt/format.h>

#include "quire/engine/service.h"
#include "quire/server/api.h"
#include "quire/server/tenant_limits.h"
#include "quire/server/text_model.h"

namespace quire::server {
namespace {

// Time for clients to receive the end of their answers.
constexpr std::chrono::milliseconds kLastWords{2000};

}  // namespace

struct Server::Impl {
  // Members are destroyed from the last to the first. Connections tell the API that they are gone, and the API tells
  // the service.
  std::unique_ptr<engine::HostedModel> host;
  std::unique_ptr<TextModel> text;
  std::chrono::milliseconds grace{0};
  std::unique_ptr<HttpServer> http;
  std::unique_ptr<engine::Service> service;
  std::unique_ptr<Api> api;
  KeySources sources;
  std::vector<Share> shares;  // as the pool has them
  std::function<void(const std::string&)> note;
  std::thread stopper;
  int stops = 0;
  std::string device_lost;  // why; empty: it works

  ~Impl();
  void stop();
  void lose_device(const std::string& why);
  void reload();
  void tell_engine(const Keys& keys);
};

Server::Impl::~Impl() {
  if (stopper.joinable()) stopper.join();
  // The engine's thread posts to the loop, and the loop's workers use the API. So the engine ends first, then the loop.
  if (service) service->stop(engine::Clock::now());
  http.reset();
  api.reset();
}

// On the loop's thread.
void Server::Impl::stop() {
  ++stops;
  const auto deadline = engine::Clock::now() + (stops == 1 ? grace : std::chrono::milliseconds(0));
  if (stops > 1) {
    // The first stop() no longer waits for the grace time.
    service->hurry(deadline);
    return;
  }
  api->stop();
  http->drain();
  stopper = std::thread([this, deadline] {
    (void)service->stop(deadline);
    http->finish(kLastWords);
  });
}

// On the loop's thread. The engine has ended all requests, and their clients' errors are on the way: they were posted
// before this call.
void Server::Impl::lose_device(const std::string& why) {
  device_lost = why;
  note(fmt::format("{}; the server stops", why));
  if (stops == 0) stop();
}

// On the loop's thread.
void Server::Impl::reload() {
  if (sources.file.empty()) return;
  auto keys = Keys::create(sources);
  if (!keys) return note(fmt::format("the keys stay as they were: {}", keys.error().message));
  note(fmt::format("read the keys {} again: {} in all", sources.file, keys->tenants().size()));
  tell_engine(*keys);
  api->set_keys(std::move(*keys));
}

void Server::Impl::tell_engine(const Keys& keys) {
  const auto before = std::exchange(shares, shares_of(keys.tenants()));
  service->inspect([this, before, now = shares, options = engine_options(keys.tenants()),
                    names = keys.tier_names()](engine::Engine& engine) {
    if (tiers::Tiers* const tiers = engine.options().tiers; tiers != nullptr) {
      for (const auto& [id, name] : names) tiers->name_tenant(id, name);
    }
    std::string problem = give_shares(engine.pool(), before, now);
    if (const auto set = engine.set_tenants(options); !set) problem = set.error();
    if (!problem.empty()) http->post([this, problem] { note(problem); });
  });
}

Result<std::unique_ptr<Server>> Server::create(std::unique_ptr<engine::HostedModel> host, ServerOptions options) {
  auto impl = std::make_unique<Impl>();
  Impl* const raw = impl.get();
  impl->sources = {.plain = std::move(options.keys), .file = std::move(options.key_file)};
  impl->note = options.http.on_note ? options.http.on_note : [](const std::string&) {};
  auto keys = Keys::create(impl->sources);
  if (!keys) return std::unexpected(keys.error());
  impl->grace = options.grace;
  std::vector<AdapterName> adapters;
  for (const auto& adapter : host->model().adapters()) adapters.push_back({adapter.name(), adapter.fingerprint()});
  TextModelOptions text_options{.alias = options.alias,
                                .any_name = options.any_model,
                                .pooling = options.pooling,
                                .adapters = std::move(adapters)};
  if (auto& given = options.chat_template) {
    text_options.chat_template = {.source = std::move(given->source), .name = std::move(given->name)};
  }
  auto text = TextModel::create(host->model().file(), host->context(), host->model().hyperparameters().vocabulary,
                                text_options);
  if (!text) return std::unexpected(text.error());
  // A model without a template is served, but a template that was asked for is used or refused.
  if (text_options.chat_template && (*text)->chat() == nullptr) return fail((*text)->why_no_chat());
  impl->text = std::move(*text);
  impl->host = std::move(host);

  options.http.on_signal = [raw] { raw->stop(); };
  options.http.check_head = [raw](const HttpRequest& request) { return raw->api->check_head(request); };
  if (!impl->sources.file.empty()) options.http.on_reload = [raw] { raw->reload(); };
  auto http =
      HttpServer::listen(std::move(options.http), [raw](HttpRequest request, const std::shared_ptr<Responder>& reply) {
        raw->api->handle(std::move(request), reply);
      });
  if (!http) return std::unexpected(http.error());
  impl->http = std::move(*http);

  PoolFacts facts = facts_of(impl->host->pool(), impl->text->name(), keys->any());
  const bool speculative = impl->host->engine().options().drafter != nullptr;
  impl->service = engine::Service::start(impl->host->release_engine(), [raw](const std::string& why) {
    raw->http->post([raw, why] { raw->lose_device(why); });
  });
  impl->tell_engine(*keys);
  impl->api = std::make_unique<Api>(
      *impl->http, *impl->service, *impl->text, std::move(facts),
      ApiOptions{.keys = std::move(*keys),
                 .origins = std::move(options.origins),
                 .request_timeout = options.request_timeout,
                 .stream_keep_alive = options.stream_keep_alive,
                 .stream_buffer = options.stream_buffer,
                 .parse_queue = options.parse_queue,
                 .parse_bytes = options.parse_bytes,
                 .responses = {.bytes = options.responses_bytes,
                               .age = std::chrono::duration_cast<std::chrono::seconds>(options.responses_age)},
                 .sessions = {.sessions = options.max_sessions,
                              .tokens = options.session_tokens,
                              .age = std::chrono::duration_cast<std::chrono::seconds>(options.session_age)},
                 .session_files = {.folder = std::move(options.session_dir),
                                   .model = impl->host->pool().config().model,
                                   .layout = fingerprint_of(impl->host->pool().layout())},
                 .slots = impl->host->max_sequences(),
                 .speculative = speculative,
                 .block_size = impl->host->pool().layout().block_size},
      [raw] { return raw->http->counts(); });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

std::uint16_t Server::port() const { return impl_->http->port(); }
const std::vector<ListenAddress>& Server::addresses() const { return impl_->http->addresses(); }
const std::string& Server::model_name() const { return impl_->text->name(); }

Result<void> Server::run() {
  impl_->http->run();
  if (!impl_->device_lost.empty()) return fail(impl_->device_lost);
  return {};
}

void Server::reload() {
  impl_->http->post([raw = impl_.get()] { raw->reload(); });
}

void Server::stop() {
  impl_->http->post([raw = impl_.get()] { raw->stop(); });
}

}  // namespace quire::server

#include "quire/server/api.h"

#include <algorithm>
#include <exception>
#include <random>
#include <utility>

#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "quire/server/answer.h"
#include "quire/server/messages.h"
#include "quire/server/responses.h"
#include "quire/server/text_endpoints.h"
#include "quire/server/web_files.h"

namespace quire::server {
namespace {

namespace json = boost::json;

constexpr std::string_view kModelPath = "/v1/models/";
constexpr std::string_view kMessagesPath = "/v1/messages";

ApiError priority_too_high(std::int32_t asked, std::int32_t most) {
  return {.status = 403,
          .type = "permission_error",
          .message = fmt::format("'priority' is {}, and the highest of this key is {}", asked, most),
          .param = "priority",
          .code = "priority_not_allowed"};
}

// "/v1/responses/{id}" matches any name in this place. Names of models may have slashes, ids have none.
bool matches(std::string_view pattern, std::string_view path) {
  const std::size_t open = pattern.find('{');
  if (open == std::string_view::npos) return pattern == path;
  const std::string_view before = pattern.substr(0, open), behind = pattern.substr(pattern.find('}') + 1);
  if (path.size() <= before.size() + behind.size() || !path.starts_with(before) || !path.ends_with(behind))
    return false;
  const std::string_view name = path.substr(before.size(), path.size() - before.size() - behind.size());
  return before == kModelPath || name.find('/') == std::string_view::npos;
}

// Clients of an API expect its errors.
HttpResponse in_shape(std::string_view path, const ApiError& error) {
  return path.starts_with(kMessagesPath) ? messages_error(error) : to_response(error);
}

std::string random_prefix() {
  std::random_device device;
  return fmt::format("{:08x}", device());
}

}  // namespace

Api::Api(Loop& loop, engine::Service& service, const TextModel& model, PoolFacts facts, ApiOptions options,
         std::function<HttpCounts()> counts)
    : loop_(loop),
      service_(service),
      model_(model),
      options_(std::move(options)),
      counts_(std::move(counts)),
      store_(options_.responses),
      sessions_(SessionStore::create(options_.sessions)),
      feed_(std::make_shared<PoolFeed>(loop, service, std::move(facts))),
      completion_{.loop = loop,
                  .service = service,
                  .model = model,
                  .metrics = metrics_,
                  .inbox = std::make_shared<Inbox>(loop),
                  .request_timeout = options_.request_timeout,
                  .stream_keep_alive = options_.stream_keep_alive,
                  .stream_buffer = options_.stream_buffer,
                  .has_keys = options_.keys.any(),
                  .prefix = random_prefix()} {
  for (const TenantRef& tenant : options_.keys.tenants()) names_[tenant->id] = tenant->name;
}

void Api::set_keys(Keys keys) {
  options_.keys = std::move(keys);
  for (const TenantRef& tenant : options_.keys.tenants()) names_[tenant->id] = tenant->name;
  feed_->restart();
}

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> routes = [] {
    std::vector<Route> all = {
        {"GET", "/", true, &Api::page},
        {"GET", "/health", true, &Api::health},
        {"GET", "/v1/models", false, &Api::models},
        {"GET", "/metrics", false, &Api::metrics},
        {"GET", "/pool", false, &Api::pool},
        {"GET", "/pool/events", false, &Api::pool_events},
        {"POST", "/v1/completions", false, &Api::completions},
        {"POST", "/v1/chat/completions", false, &Api::chat_completions},
        {"POST", "/v1/messages", false, &Api::messages},
        {"POST", "/v1/messages/count_tokens", false, &Api::count_tokens},
        {"POST", "/v1/responses", false, &Api::responses},
        {"GET", "/v1/responses/{id}", false, &Api::stored_response},
        {"DELETE", "/v1/responses/{id}", false, &Api::delete_response},
        {"GET", "/v1/responses/{id}/input_items", false, &Api::input_items},
        {"POST", "/v1/sessions", false, &Api::create_session},
        {"GET", "/v1/sessions", false, &Api::list_sessions},
        {"POST", "/v1/sessions/restore", false, &Api::restore_session_file},
        {"GET", "/v1/sessions/{id}", false, &Api::show_session},
        {"DELETE", "/v1/sessions/{id}", false, &Api::delete_session},
        {"POST", "/v1/sessions/{id}/append", false, &Api::append_session},
        {"POST", "/v1/sessions/{id}/generate", false, &Api::generate_session},
        {"POST", "/v1/sessions/{id}/fork", false, &Api::fork_session},
        {"POST", "/v1/sessions/{id}/rewind", false, &Api::rewind_session},
        {"POST", "/v1/sessions/{id}/save", false, &Api::save_session_file},
        {"POST", "/v1/sessions/{id}/restore", false, &Api::restore_session_file},
        {"GET", "/v1/models/{name}", false, &Api::model},
        {"POST", "/v1/embeddings", false, &Api::embeddings},
        {"POST", "/v1/route", false, &Api::route},
        {"GET", "/props", false, &Api::props},
        {"POST", "/apply-template", false, &Api::apply_template},
        {"POST", "/tokenize", false, &Api::tokenize},
        {"POST", "/detokenize", false, &Api::detokenize},
    };
    for (const WebFile& file : web_files()) all.push_back({"GET", file.path, true, &Api::page});
    return all;
  }();
  return routes;
}

std::vector<std::string> Api::endpoints() {
  std::vector<std::string> all;
  for (const Route& route : routes()) {
    const bool file = std::ranges::any_of(web_files(), [&](const WebFile& each) { return each.path == route.path; });
    if (!file) all.push_back(fmt::format("{} {}", route.method, route.path));
  }
  return all;
}

void Api::stop() {
  stopping_ = true;
  feed_->stop();
}

void Api::send(const Reply& reply, HttpResponse response) {
  metrics_.answered(response.status);
  reply->send(std::move(response));
}

void Api::refuse(const Call& call, const ApiError& error) { send(call.reply, in_shape(call.request.path, error)); }

// False: a browser sends this request for a page of an origin that is not allowed.
bool Api::allow_origin(const HttpRequest& request, Headers& headers) const {
  if (request.origin.empty()) return true;
  for (const std::string& origin : options_.origins) {
    if (origin != "*" && origin != request.origin) continue;
    headers.emplace_back("Access-Control-Allow-Origin", origin);
    headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, retry-after");
    if (origin != "*") headers.emplace_back("Vary", "Origin");
    return true;
  }
  const std::size_t host = request.origin.find("://");
  return host != std::string::npos && request.origin.substr(host + 3) == request.host;
}

Api::Decision Api::decide(const HttpRequest& request, bool origin_allowed) const {
  const auto refused = [&](const ApiError& error) { return Decision{.refusal = in_shape(request.path, error)}; };
  const Route* found = nullptr;
  std::string methods;
  for (const Route& route : routes()) {
    if (!matches(route.path, request.path)) continue;
    methods += fmt::format("{}{}", methods.empty() ? "" : ", ", route.method == "GET" ? "GET, HEAD" : route.method);
    if (route.method == request.method) found = &route;
  }
  TenantRef tenant = options_.keys.admit(request.authorization);
  if (tenant == nullptr && (found == nullptr || !found->open)) {
    return refused({.status = 401,
                    .type = "authentication_error",
                    .message = request.authorization.empty()
                                   ? "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY"
                                   : "the API key is not one of this server's",
                    .code = "invalid_api_key"});
  }
  if (found == nullptr && methods.empty()) {
    return refused(
        {.status = 404, .message = fmt::format("there is nothing at {}", request.path), .code = "not_found"});
  }
  if (found == nullptr) {
    Decision decision = refused({.status = 405,
                                 .message = fmt::format("{} takes {}, not {}", request.path, methods, request.method),
                                 .code = "method_not_allowed"});
    decision.refusal->headers.emplace_back("Allow", methods);
    return decision;
  }
  if (!origin_allowed && request.method != "GET") {
    return refused({.status = 403,
                    .type = "permission_error",
                    .message = fmt::format("pages of {} may not use this server (see --cors)", request.origin),
                    .code = "origin_not_allowed"});
  }
  return {.route = found, .tenant = std::move(tenant)};
}

std::optional<HttpResponse> Api::check_head(const HttpRequest& request) {
  Headers headers;
  const bool allowed = allow_origin(request, headers);
  if (request.method == "OPTIONS") return std::nullopt;  // see handle()
  std::optional<HttpResponse> refusal = decide(request, allowed).refusal;
  if (refusal) {
    metrics_.answered(refusal->status);
    refusal->headers.insert(refusal->headers.end(), headers.begin(), headers.end());
  }
  return refusal;
}

void Api::handle(HttpRequest request, const std::shared_ptr<Responder>& responder) {
  // Exceptions of the standard library end here.
  try {
    const bool allowed = allow_origin(request, responder->headers);
    if (request.method == "OPTIONS" && allowed && !options_.origins.empty() && !request.origin.empty()) {
      return send(responder, {.status = 204,
                              .content_type = {},
                              .headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                                          {"Access-Control-Allow-Headers", "*, Authorization, Content-Type, X-Api-Key"},
                                          {"Access-Control-Max-Age", "86400"}}});
    }
    Decision decision = decide(request, allowed);
    if (decision.refusal) return send(responder, std::move(*decision.refusal));
    // The key itself is never logged.
    if (options_.keys.any() && decision.tenant != nullptr) responder->notes.tenant = decision.tenant->name;
    (this->*decision.route->answer)({std::move(request), responder, std::move(decision.tenant)});
  } catch (const std::exception&) {
    send(responder, to_response(internal_error()));
  }
}

// --- bodies that workers parse

std::shared_ptr<Api::Job> Api::enqueue(Call&& call) {
  const std::size_t bytes = call.request.body.size();
  if (parsing_ >= options_.parse_queue || (parsing_ > 0 && parsing_bytes_ + bytes > options_.parse_bytes)) {
    refuse(call, {.status = 503,
                  .type = "server_error",
                  .message = fmt::format("too many requests wait to be parsed ({}); try again later", parsing_),
                  .code = "busy"});
    return nullptr;
  }
  ++parsing_;
  parsing_bytes_ += bytes;
  auto job = std::make_shared<Job>(std::move(call), bytes, std::make_shared<std::atomic<bool>>(false));
  // The responder must not own the job, which owns the responder.
  job->call.reply->on_gone = [gone = job->gone] { *gone = true; };
  return job;
}

void Api::dequeue(const Job& job) {
  --parsing_;
  parsing_bytes_ -= job.bytes;
}

const engine::Request& options_in(const AnswerRequest& request) { return request.chat.options; }
template <typename Request>
const engine::Request& options_in(const Request& request) {
  return request.options;
}

// Parses the body on a worker thread, then continues on the loop's thread.
template <typename Request>
void Api::prepare(Call call, Parse<Request> parse, Start<Request> start) {
  const auto job = enqueue(std::move(call));
  if (!job) return metrics_.completed(Outcome::QueueFull);
  using Result = std::expected<Request, ApiError>;
  loop_.work([this, job, parse, start] {
    auto result = std::make_shared<Result>(std::unexpected(internal_error()));
    try {
      if (!*job->gone) {
        auto body = parse_body(job->call.request.body);
        std::string().swap(job->call.request.body);
        *result = body ? parse(std::move(*body), model_) : Result(std::unexpected(body.error()));
      }
    } catch (const std::exception&) {
      *result = std::unexpected(internal_error());
    }
    loop_.post([this, job, result, start] {
      dequeue(*job);
      if (*job->gone) return metrics_.completed(Outcome::Gone);
      if (!*result) {
        metrics_.completed(Outcome::Invalid);
        return refuse(job->call, result->error());
      }
      const Tenant& tenant = *job->call.tenant;
      if (const auto priority = options_in(**result).priority; priority > tenant.max_priority) {
        metrics_.completed(Outcome::Invalid);
        return refuse(job->call, priority_too_high(priority, tenant.max_priority));
      }
      start(completion_, std::move(**result), tenant.id, job->call.reply);
    });
  });
}

template void Api::prepare<CompletionRequest>(Call, Parse<CompletionRequest>, Start<CompletionRequest>);

void Api::compute(Call call, Answer answer) {
  const auto job = enqueue(std::move(call));
  if (!job) return;
  loop_.work([this, job, answer = std::move(answer)] {
    auto result = std::make_shared<std::expected<std::string, ApiError>>(std::unexpected(internal_error()));
    try {
      if (!*job->gone) {
        const auto body = parse_body(job->call.request.body);
        std::string().swap(job->call.request.body);
        *result = body ? answer(*body, model_) : std::unexpected(body.error());
      }
    } catch (const std::exception&) {
      *result = std::unexpected(internal_error());
    }
    loop_.post([this, job, result] {
      dequeue(*job);
      if (*job->gone) return;
      if (!*result) return refuse(job->call, result->error());
      send(job->call.reply, {.body = std::move(**result)});
    });
  });
}

// --- completions and tokens

void Api::messages(Call&& call) { prepare<AnswerRequest>(std::move(call), parse_messages, server::Answer::start); }
void Api::count_tokens(Call&& call) { compute(std::move(call), counted_messages); }
void Api::responses(Call&& call) {
  const auto parse = [this, tenant = call.tenant->id](json::object&& body, const TextModel& model) {
    return parse_response(std::move(body), model, store_, tenant);
  };
  prepare<AnswerRequest>(std::move(call), parse, server::Answer::start);
}
void Api::completions(Call&& call) { prepare<CompletionRequest>(std::move(call), parse_completion, Completion::start); }
void Api::embeddings(Call&& call) {
  prepare<EmbeddingRequest>(std::move(call), parse_embeddings, EmbeddingCall::start);
}
void Api::apply_template(Call&& call) { compute(std::move(call), templated); }
void Api::route(Call&& call) {
  auto answer = [block_size = options_.block_size, tenant = call.tenant->id](const json::object& body,
                                                                             const TextModel& model) {
    return routed(body, model, tenant, block_size);
  };
  compute(std::move(call), std::move(answer));
}
void Api::tokenize(Call&& call) { compute(std::move(call), tokenized); }
void Api::detokenize(Call&& call) { compute(std::move(call), detokenized); }

}  // namespace quire::server

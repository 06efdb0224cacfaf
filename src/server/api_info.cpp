// The routes that tell what there is: the page, the model, responses that were kept, metrics and the pool.
#include <algorithm>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/api.h"
#include "quire/server/fields.h"
#include "quire/server/responses.h"
#include "quire/server/text_endpoints.h"
#include "quire/server/web_files.h"

namespace quire::server {
namespace {

namespace json = boost::json;

constexpr std::string_view kModelPath = "/v1/models/";
constexpr std::string_view kResponsePath = "/v1/responses/";
constexpr std::string_view kInputItems = "/input_items";

// The page loads nothing from elsewhere: no scripts, no images, no connections.
constexpr const char* kPolicy =
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view content_type(std::string_view file) {
  if (file.ends_with(".html")) return "text/html; charset=utf-8";
  if (file.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (file.ends_with(".css")) return "text/css; charset=utf-8";
  return "application/octet-stream";
}

}  // namespace

// --- the page, and routes that do not need the engine

void Api::page(Call&& call) {
  const std::string_view path = call.request.path == "/" ? "/index.html" : std::string_view(call.request.path);
  const auto files = web_files();
  const auto file = std::ranges::find(files, path, &WebFile::path);
  if (file == files.end()) return refuse(call, {.status = 404, .message = "this server was built without its page"});
  const std::string tag = fmt::format("\"{}\"", file->hash);
  HttpResponse response{.content_type = std::string(content_type(file->path)),
                        .headers = {{"ETag", tag},
                                    {"Cache-Control", "no-cache"},
                                    {"Content-Security-Policy", kPolicy},
                                    {"X-Content-Type-Options", "nosniff"},
                                    {"Referrer-Policy", "no-referrer"}}};
  if (call.request.if_none_match.find(tag) != std::string::npos || call.request.if_none_match == "*") {
    response.status = 304;
    response.content_type.clear();
  } else {
    response.body = file->content;
  }
  send(call.reply, std::move(response));
}

void Api::health(Call&& call) {
  const auto integrity = service_.integrity();
  const char* const status = !integrity.sound ? "unsound" : stopping_ ? "stopping" : "ok";
  json::object body{{"status", status}, {"model", model_.name()}};
  if (!integrity.sound) body["problem"] = integrity.problem;
  send(call.reply, {.status = stopping_         ? 503u
                              : integrity.sound ? 200u
                                                : 500u,
                    .headers = {{"Cache-Control", "no-store"}},
                    .body = json::serialize(body)});
}

void Api::models(Call&& call) {
  json::array data;
  for (std::uint32_t adapter = 0; adapter <= model_.adapters().size(); ++adapter) {
    data.push_back(model_object(model_, adapter));
  }
  send(call.reply, {.body = json::serialize(json::object{{"object", "list"}, {"data", std::move(data)}})});
}

void Api::model(Call&& call) {
  const std::string name = call.request.path.substr(kModelPath.size());
  const auto adapter = model_.find(name);
  // A server that answers to any name has this one, not all others.
  if (!adapter || (*adapter == 0 && !model_.answers_to(name))) return refuse(call, no_model(name, model_));
  send(call.reply, {.body = json::serialize(model_object(model_, *adapter))});
}

void Api::props(Call&& call) {
  send(call.reply, {.body = json::serialize(server::props(model_, options_.slots, options_.speculative))});
}

// --- responses that were kept

StoredResponseRef Api::find_response(const Call& call, std::string_view behind) {
  const std::string_view path = call.request.path;
  const std::string_view id = path.substr(kResponsePath.size(), path.size() - kResponsePath.size() - behind.size());
  StoredResponseRef found = store_.find(call.tenant->id, id);
  if (!found) {
    refuse(call, {.status = 404,
                  .message = fmt::format("there is no response {}", in_quotes(id)),
                  .param = "response_id",
                  .code = "response_not_found"});
  }
  return found;
}

void Api::stored_response(Call&& call) {
  if (const auto found = find_response(call, "")) send(call.reply, {.body = found->response});
}

void Api::delete_response(Call&& call) {
  const auto found = find_response(call, "");
  if (!found) return;
  store_.erase(call.tenant->id, found->id);
  send(call.reply,
       {.body = json::serialize(json::object{{"id", found->id}, {"object", "response"}, {"deleted", true}})});
}

void Api::input_items(Call&& call) {
  const auto found = find_response(call, kInputItems);
  if (!found) return;
  auto items = input_items_json(*found, call.request.query);
  if (!items) return refuse(call, items.error());
  send(call.reply, {.body = std::move(*items)});
}

// --- inspection of the engine

void Api::metrics(Call&& call) {
  const bool asked = service_.inspect([this, reply = call.reply, sight = call.sight()](engine::Engine& engine) {
    auto usage = std::make_shared<std::vector<engine::TenantUsage>>(engine.tenants());
    auto engine_stats = std::make_shared<engine::EngineStats>(engine.stats());
    auto pool_stats = std::make_shared<PoolStats>(engine.pool().stats());
    std::shared_ptr<tiers::TiersStats> tiers_stats;
    if (const tiers::Tiers* const tiers = engine.options().tiers; tiers != nullptr) {
      tiers_stats = std::make_shared<tiers::TiersStats>(tiers->stats());
    }
    loop_.post([this, reply, sight, usage, engine_stats, pool_stats, tiers_stats] {
      auto names = names_;
      if (sight) std::erase_if(names, [&](const auto& one) { return one.first != *sight; });
      send(reply, {.content_type = "text/plain; version=0.0.4; charset=utf-8",
                   .body = metrics_.text(*engine_stats, *pool_stats, tiers_stats.get(), feed_->facts().checkpoint_unit,
                                         service_.integrity(), counts_(), options_.keys.any(),
                                         metrics_.by_name(names, *usage), store_.count())});
    });
  });
  if (!asked) refuse(call, from_refusal({engine::Refusal::Why::Stopping, "the server is shutting down"}));
}

void Api::pool(Call&& call) {
  metrics_.answered(200);
  feed_->answer(call.reply, call.sight());
}

void Api::pool_events(Call&& call) {
  metrics_.answered(200);
  feed_->watch(call.reply, call.sight());
}

}  // namespace quire::server

// The paths of the server and what they do.
//
// Who may call: the loop's thread.
// What holds: every request is answered, whatever is in it. Keys, where there are any, are asked for everywhere but at
//   /health and for the page itself.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quire/engine/service.h"
#include "quire/server/completion.h"
#include "quire/server/http.h"
#include "quire/server/http_server.h"
#include "quire/server/keys.h"
#include "quire/server/metrics.h"
#include "quire/server/pool_feed.h"
#include "quire/server/text_model.h"

namespace quire::server {

struct ApiOptions {
  Keys keys;
  std::vector<std::string> origins;  // of pages that may call, as browsers send them; "*": all
  std::chrono::milliseconds request_timeout{600'000};
  std::size_t stream_buffer = 1 << 20;
};

class Api {
 public:
  // All of them outlive it; `counts` is asked for metrics.
  Api(Loop& loop, engine::Service& service, const TextModel& model, PoolFacts facts, ApiOptions options,
      std::function<HttpCounts()> counts);

  void handle(HttpRequest request, std::shared_ptr<Responder> responder);
  // New work is refused, streams of the pool end.
  void stop();

 private:
  using Reply = std::shared_ptr<Responder>;
  struct Call {
    HttpRequest request;
    Reply reply;
    Namespace name_space = 0;
  };
  struct Route {
    std::string_view method;
    std::string_view path;
    bool open;  // without a key
    void (Api::*answer)(Call);
  };
  static const std::vector<Route>& routes();

  bool allow_origin(const HttpRequest& request, Responder& reply) const;
  void send(const Reply& reply, HttpResponse response);
  void refuse(const Reply& reply, const ApiError& error) { send(reply, to_response(error)); }

  void page(Call call);
  void health(Call call);
  void models(Call call);
  void model(Call call);
  void metrics(Call call);
  void pool(Call call);
  void pool_events(Call call);
  void completions(Call call);
  void chat_completions(Call call);
  void tokenize(Call call);
  void detokenize(Call call);

  // Parses beside the loop, then goes on in it.
  void prepare(Call call, CompletionResult (*parse)(const boost::json::object&, const TextModel&));
  // Makes an answer from a body beside the loop.
  using Answer = std::expected<std::string, ApiError> (*)(const boost::json::object&, const TextModel&);
  void compute(Call call, Answer answer);

  Loop& loop_;
  engine::Service& service_;
  const TextModel& model_;
  ApiOptions options_;
  std::function<HttpCounts()> counts_;
  Metrics metrics_;
  std::shared_ptr<PoolFeed> feed_;
  CompletionContext completion_;
  bool stopping_ = false;
};

}  // namespace quire::server

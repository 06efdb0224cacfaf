// The routes of the server and their handlers.
//
// Who may call: the loop's thread.
// What holds: every request is answered, whatever it contains. A request whose client leaves while it is parsed never
//   reaches the engine. If the server has keys, every route needs one, except
//   /health and the page itself.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quire/engine/service.h"
#include "quire/server/completion.h"
#include "quire/server/embeddings.h"
#include "quire/server/http.h"
#include "quire/server/http_server.h"
#include "quire/server/keys.h"
#include "quire/server/metrics.h"
#include "quire/server/pool_feed.h"
#include "quire/server/response_store.h"
#include "quire/server/session_calls.h"
#include "quire/server/session_store.h"
#include "quire/server/text_model.h"

namespace quire::server {

struct ApiOptions {
  Keys keys;
  std::vector<std::string> origins;  // origins whose pages may call, as browsers send them; "*": all
  std::chrono::milliseconds request_timeout{600'000};
  std::chrono::milliseconds stream_keep_alive{10'000};
  std::size_t stream_buffer = 1 << 20;
  std::size_t parse_queue = 256;         // bodies that may wait for a worker or be parsed, ...
  std::size_t parse_bytes = 256 << 20;   // and their bytes; one body is always taken
  ResponseStore::Limits responses = {};  // what /v1/responses keeps
  SessionStore::Limits sessions = {};    // what /v1/sessions keeps
  SessionFiles session_files = {};
  std::uint32_t slots = 0;        // sequences that can run at once, for /props
  bool speculative = false;       // tokens are guessed, for /props
  std::uint32_t block_size = 16;  // tokens of a block of the pool, for /v1/route
};

class Api {
 public:
  // Loop, service and model outlive it. `counts` is called for the metrics.
  Api(Loop& loop, engine::Service& service, const TextModel& model, PoolFacts facts, ApiOptions options,
      std::function<HttpCounts()> counts);

  void handle(HttpRequest request, const std::shared_ptr<Responder>& responder);
  // Other keys from now on. Requests that were admitted go on. Streams of /pool/events end.
  void set_keys(Keys keys);
  // "GET /health" and so on, without the files of the page. docs/api.md lists them.
  static std::vector<std::string> endpoints();
  // Whether a request is refused by its header alone: see HeadCheck.
  std::optional<HttpResponse> check_head(const HttpRequest& request);
  // The server is stopping: /health says so, and the streams of /pool/events end. The engine refuses new requests.
  void stop();

 private:
  using Reply = std::shared_ptr<Responder>;
  struct Call {
    HttpRequest request;
    Reply reply;
    TenantRef tenant;  // null: the route needs no key, and there was none
    // Whose sequences it may see.
    PoolFeed::Sight sight() const { return tenant->admin ? PoolFeed::Sight() : tenant->id; }
  };
  struct Route {
    std::string_view method;
    std::string_view path;  // may have a name in braces, for anything
    bool open;              // needs no key
    void (Api::*answer)(Call&&);
  };
  static const std::vector<Route>& routes();
  // What a header leads to: a route, or a refusal.
  struct Decision {
    const Route* route = nullptr;
    TenantRef tenant;
    std::optional<HttpResponse> refusal;
  };
  Decision decide(const HttpRequest& request, bool origin_allowed) const;

  // A call whose body waits for a worker, or is being parsed by one.
  struct Job {
    Call call;
    std::size_t bytes = 0;
    std::shared_ptr<std::atomic<bool>> gone;  // the client went away meanwhile; `on_gone` is not called again
  };
  // Takes a call into the queue of the workers. Null: the queue is full, and the call was refused.
  std::shared_ptr<Job> enqueue(Call&& call);
  void dequeue(const Job& job);

  using Headers = std::vector<std::pair<std::string, std::string>>;
  bool allow_origin(const HttpRequest& request, Headers& headers) const;
  void send(const Reply& reply, HttpResponse response);
  void refuse(const Call& call, const ApiError& error);

  void page(Call&& call);
  void health(Call&& call);
  void models(Call&& call);
  void model(Call&& call);
  void metrics(Call&& call);
  void pool(Call&& call);
  void pool_events(Call&& call);
  void props(Call&& call);
  void completions(Call&& call);
  void chat_completions(Call&& call);
  void embeddings(Call&& call);
  void messages(Call&& call);
  void count_tokens(Call&& call);
  void responses(Call&& call);
  void stored_response(Call&& call);
  void delete_response(Call&& call);
  void input_items(Call&& call);
  // The response of the path; `behind`: what follows the id there. Null: there is none, and the call was refused.
  StoredResponseRef find_response(const Call& call, std::string_view behind);
  // api_sessions.cpp
  void create_session(Call&& call);
  void list_sessions(Call&& call);
  void show_session(Call&& call);
  void delete_session(Call&& call);
  void append_session(Call&& call);
  void generate_session(Call&& call);
  void fork_session(Call&& call);
  void rewind_session(Call&& call);
  void save_session_file(Call&& call);
  void restore_session_file(Call&& call);
  // An error is sent to the client. Without one, what was begun answers.
  using SessionWork = std::function<std::optional<ApiError>(boost::json::object&& body, const Job& job)>;
  void session_work(Call call, SessionWork work);
  void compute_session(const Job& job, std::shared_ptr<SessionTurn> turn, unsigned status);
  void answer_session(const Reply& reply, unsigned status, const boost::json::object& body);
  void apply_template(Call&& call);
  void route(Call&& call);
  void tokenize(Call&& call);
  void detokenize(Call&& call);

  // Parses the body on a worker thread, then starts the call on the loop's thread.
  template <typename Request>
  using Parse = std::function<std::expected<Request, ApiError>(boost::json::object&&, const TextModel&)>;
  template <typename Request>
  using Start = void (*)(const CompletionContext&, Request, Namespace, std::shared_ptr<Responder>);
  template <typename Request>
  void prepare(Call call, Parse<Request> parse, Start<Request> start);
  // Computes an answer from the body on a worker thread.
  using Answer = std::function<std::expected<std::string, ApiError>(const boost::json::object&, const TextModel&)>;
  void compute(Call call, Answer answer);

  Loop& loop_;
  engine::Service& service_;
  const TextModel& model_;
  ApiOptions options_;
  std::function<HttpCounts()> counts_;
  ResponseStore store_;
  std::shared_ptr<SessionStore> sessions_;
  Metrics metrics_;
  std::shared_ptr<PoolFeed> feed_;
  CompletionContext completion_;
  std::size_t parsing_ = 0;  // jobs of the workers
  std::size_t parsing_bytes_ = 0;
  std::map<Namespace, std::string> names_;  // of all tenants since the server began
  bool stopping_ = false;
};

}  // namespace quire::server

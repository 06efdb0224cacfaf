// The endpoints of /v1/sessions.
#include <exception>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "quire/server/api.h"
#include "quire/server/fields.h"
#include "quire/server/query.h"
#include "quire/server/session_calls.h"
#include "quire/server/session_requests.h"

namespace quire::server {
namespace {

namespace json = boost::json;

constexpr std::string_view kSessionPath = "/v1/sessions/";

// The id in "/v1/sessions/{id}/append".
std::string id_in(std::string_view path) {
  path.remove_prefix(kSessionPath.size());
  return std::string(path.substr(0, path.find('/')));
}

json::object with_usage(json::object session, const engine::Usage& usage) {
  session["usage"] = {{"prompt_tokens", usage.prompt_tokens}, {"cached_tokens", usage.hit.tokens}};
  return session;
}

ApiError no_folder() { return invalid("this server keeps no session files: it was started without --session-dir"); }

}  // namespace

void Api::answer_session(const Reply& reply, unsigned status, const json::object& body) {
  send(reply, {.status = status, .body = json::serialize(body)});
}

// Parses the body on a worker, where `work` goes on with it. An empty body is an empty object.
void Api::session_work(Call call, SessionWork work) {
  const auto job = enqueue(std::move(call));
  if (!job) return;
  loop_.work([this, job, work = std::move(work)] {
    auto error = std::make_shared<std::optional<ApiError>>();
    try {
      if (!*job->gone) {
        auto body = job->call.request.body.empty() ? json::object() : parse_body(job->call.request.body);
        std::string().swap(job->call.request.body);
        *error = body ? work(std::move(*body), *job) : std::optional(body.error());
      }
    } catch (const std::exception&) {
      *error = internal_error();
    }
    loop_.post([this, job, error] {
      dequeue(*job);
      if (*error && !*job->gone) refuse(job->call, **error);
    });
  });
}

// Computes the tokens of the turn's session, then commits and answers.
void Api::compute_session(const Job& job, std::shared_ptr<SessionTurn> turn, unsigned status) {
  loop_.post(
      [this, gone = job.gone, reply = job.call.reply, tenant = job.call.tenant->id, turn = std::move(turn), status] {
        if (*gone) return metrics_.completed(Outcome::Gone);
        const SessionRecord& record = turn->record;
        SessionCall::start(completion_, record, tenant, reply, [this, reply, turn, status](const engine::Usage& usage) {
          if (const auto error = turn->commit()) return send(reply, to_response(*error));
          answer_session(reply, status, with_usage(session_json(turn->record, false), usage));
        });
      });
}

void Api::create_session(Call&& call) {
  session_work(std::move(call), [this](json::object&& body, const Job& job) -> std::optional<ApiError> {
    auto turn = sessions_->make(job.call.tenant->id);
    if (!turn) return turn.error();
    if (auto ok = extend((*turn)->record, std::move(body), model_, true); !ok) return ok.error();
    compute_session(job, std::move(*turn), 201);
    return std::nullopt;
  });
}

void Api::append_session(Call&& call) {
  session_work(std::move(call), [this](json::object&& body, const Job& job) -> std::optional<ApiError> {
    auto turn = sessions_->begin(job.call.tenant->id, id_in(job.call.request.path));
    if (!turn) return turn.error();
    if (auto ok = extend((*turn)->record, std::move(body), model_, false); !ok) return ok.error();
    compute_session(job, std::move(*turn), 200);
    return std::nullopt;
  });
}

void Api::generate_session(Call&& call) {
  const auto parse = [this, tenant = call.tenant->id, id = id_in(call.request.path)](
                         json::object&& body, const TextModel& model) -> CompletionResult {
    auto turn = sessions_->begin(tenant, id);
    if (!turn) return std::unexpected(turn.error());
    return parse_generate(std::move(*turn), std::move(body), model, sessions_->room(tenant));
  };
  if (call.request.body.empty()) call.request.body = "{}";
  prepare<CompletionRequest>(std::move(call), parse, Completion::start);
}

void Api::chat_completions(Call&& call) {
  const auto parse = [this, tenant = call.tenant->id](json::object&& body, const TextModel& model) -> CompletionResult {
    Fields fields(body);
    const auto id = fields.string("session");
    if (fields.error()) return std::unexpected(*fields.error());
    if (!id) return parse_chat(std::move(body), model);
    auto turn = sessions_->begin(tenant, *id);
    if (!turn) return std::unexpected(turn.error());
    return parse_session_chat(std::move(*turn), std::move(body), model, sessions_->room(tenant));
  };
  prepare<CompletionRequest>(std::move(call), parse, Completion::start);
}

void Api::list_sessions(Call&& call) {
  json::array data;
  sessions_->list(call.tenant->id,
                  [&](const SessionRecord& record, bool busy) { data.push_back(session_json(record, busy)); });
  answer_session(call.reply, 200, {{"object", "list"}, {"data", std::move(data)}});
}

void Api::show_session(Call&& call) {
  const auto found = sessions_->find(call.tenant->id, id_in(call.request.path));
  if (!found) return refuse(call, found.error());
  const auto ids = number_in_query(call.request.query, "tokens");
  if (!ids) return refuse(call, ids.error());
  answer_session(call.reply, 200, whole_session_json(found->record, found->busy, ids->value_or(0) != 0));
}

void Api::delete_session(Call&& call) {
  const std::string id = id_in(call.request.path);
  if (const auto error = sessions_->erase(call.tenant->id, id)) return refuse(call, *error);
  answer_session(call.reply, 200, {{"id", id}, {"object", "session"}, {"deleted", true}});
}

void Api::fork_session(Call&& call) {
  const auto at = number_in_query(call.request.query, "at");
  if (!at) return refuse(call, at.error());
  const auto source = sessions_->begin(call.tenant->id, id_in(call.request.path));
  if (!source) return refuse(call, source.error());
  const std::size_t tokens = (*source)->record.tokens.size();
  if (at->value_or(0) > tokens) {
    return refuse(call, invalid(fmt::format("'at' is {}, and the session has {} tokens", **at, tokens), "at"));
  }
  const auto made = sessions_->make(call.tenant->id);
  if (!made) return refuse(call, made.error());
  SessionRecord record = (*source)->record;
  record.id = (*made)->record.id;
  record.created = (*made)->record.created;
  record.rewind(at->value_or(tokens));
  (*made)->record = std::move(record);
  if (const auto error = (*made)->commit()) return refuse(call, *error);
  answer_session(call.reply, 201, session_json((*made)->record, false));
}

void Api::rewind_session(Call&& call) {
  const auto to = number_in_query(call.request.query, "to");
  if (!to) return refuse(call, to.error());
  if (!*to) return refuse(call, invalid("'to' is missing: the number of tokens to keep", "to"));
  const auto turn = sessions_->begin(call.tenant->id, id_in(call.request.path));
  if (!turn) return refuse(call, turn.error());
  SessionRecord& record = (*turn)->record;
  if (**to > record.tokens.size()) {
    return refuse(call,
                  invalid(fmt::format("'to' is {}, and the session has {} tokens", **to, record.tokens.size()), "to"));
  }
  record.rewind(**to);
  if (const auto error = (*turn)->commit()) return refuse(call, *error);
  answer_session(call.reply, 200, session_json(record, false));
}

void Api::save_session_file(Call&& call) {
  if (options_.session_files.folder.empty()) return refuse(call, no_folder());
  session_work(std::move(call), [this](json::object&& body, const Job& job) -> std::optional<ApiError> {
    const Call& made = job.call;
    const std::string id = id_in(made.request.path);
    const auto name = file_name(body, id);
    if (!name) return name.error();
    auto begun = sessions_->begin(made.tenant->id, id);
    if (!begun) return begun.error();
    const auto path = session_path(options_.session_files, *made.tenant, *name);
    loop_.post([this, gone = job.gone, reply = made.reply, tenant = made.tenant->id, turn = std::move(*begun), path,
                name = *name] {
      if (*gone) return metrics_.completed(Outcome::Gone);
      // Whatever is not cached any more is computed first.
      SessionCall::start(completion_, turn->record, tenant, reply, [=, this](const engine::Usage&) {
        save_session(completion_, turn, tenant, path, sessions_->limits().sessions,
                     [this, reply, turn, name](std::expected<SavedSession, ApiError> saved) {
                       if (const auto error = turn->commit(); error && saved) saved = std::unexpected(*error);
                       if (!saved) return send(reply, to_response(saved.error()));
                       json::object out = session_json(turn->record, false);
                       out["name"] = name;
                       out["bytes"] = saved->bytes;
                       out["saved_tokens"] = saved->computed;
                       answer_session(reply, 200, out);
                     });
      });
    });
    return std::nullopt;
  });
}

void Api::restore_session_file(Call&& call) {
  if (options_.session_files.folder.empty()) return refuse(call, no_folder());
  const bool fresh = call.request.path == "/v1/sessions/restore";
  session_work(std::move(call), [this, fresh](json::object&& body, const Job& job) -> std::optional<ApiError> {
    const Call& made = job.call;
    const std::string id = fresh ? std::string() : id_in(made.request.path);
    const auto name = file_name(body, id);
    if (!name) return name.error();
    auto turn = fresh ? sessions_->make(made.tenant->id) : sessions_->begin(made.tenant->id, id);
    if (!turn) return turn.error();
    const auto path = session_path(options_.session_files, *made.tenant, *name);
    restore_session(
        completion_, *turn, made.tenant->id, options_.session_files, path, *name,
        [this, turn = *turn, reply = made.reply, fresh, gone = job.gone](std::expected<std::uint64_t, ApiError> given) {
          if (*gone) return;  // and the session is as it was
          if (!given) return send(reply, to_response(given.error()));
          if (const auto error = turn->commit()) return send(reply, to_response(*error));
          json::object out = session_json(turn->record, false);
          out["restored_tokens"] = *given;
          answer_session(reply, fresh ? 201 : 200, out);
        });
    return std::nullopt;
  });
}

}  // namespace quire::server

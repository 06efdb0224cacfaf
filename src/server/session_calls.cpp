#include "quire/server/session_calls.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "quire/server/engine_calls.h"
#include "quire/server/fields.h"
#include "quire/session/session_file.h"
#include "quire/session/session_state.h"

namespace quire::server {
namespace {

constexpr std::chrono::milliseconds kRetry{50};  // while the pool has no room for one sequence more
constexpr std::string_view kSuffix = ".qsession";

ApiError stopping() { return from_refusal({engine::Refusal::Why::Stopping, "the server is shutting down"}); }

ApiError file_error(unsigned status, const std::string& name, const std::string& why) {
  return {.status = status,
          .type = status >= 500 ? "server_error" : "invalid_request_error",
          .message = fmt::format("the session file '{}' {}", name, why),
          .param = "name",
          .code = status >= 500 ? "session_file_failed" : "session_file_refused"};
}

// How many sessions a folder has, besides `path`.
std::size_t others_in(const std::filesystem::path& path) {
  std::error_code error;
  std::size_t count = 0;
  for (std::filesystem::directory_iterator at(path.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    count += at->path().extension() == kSuffix && at->path() != path;
  }
  return count;
}

// What one saving needs on its way through the threads.
struct Saving {
  const CompletionContext& context;
  std::shared_ptr<SessionTurn> turn;
  Namespace tenant;
  std::filesystem::path path;
  std::uint32_t most_files;
  std::function<void(std::expected<SavedSession, ApiError>)> done;
  engine::Clock::time_point deadline;
};

std::expected<SavedSession, ApiError> write_file(const Saving& saving, const session::Snapshot& snapshot) {
  const std::string name = saving.path.stem().string();
  std::error_code error;
  // A folder that is new is for the server alone.
  if (std::filesystem::create_directories(saving.path.parent_path(), error)) {
    std::filesystem::permissions(saving.path.parent_path(), std::filesystem::perms::owner_all, error);
  }
  if (const std::size_t others = others_in(saving.path); others >= saving.most_files) {
    return std::unexpected(
        ApiError{.message = fmt::format("there are {} session files already, and that is the most; use the name of one "
                                        "(see --max-sessions)",
                                        others),
                 .param = "name",
                 .code = "too_many_sessions"});
  }
  const SessionRecord& record = saving.turn->record;
  const auto written = session::write(saving.path.string(), record.tokens, snapshot, metadata_of(record));
  if (!written) return std::unexpected(file_error(507, name, written.error().message));
  return SavedSession{*written, snapshot.sequence.tokens.size()};
}

// Of an adapter's contents; null: there is no adapter.
const Fingerprint* fingerprint_of(const TextModel& model, std::uint32_t adapter) {
  return adapter == 0 ? nullptr : &model.adapters()[adapter - 1].fingerprint;
}

void take_and_write(const std::shared_ptr<Saving>& saving) {
  const bool asked = saving->context.service.inspect([saving](engine::Engine& engine) {
    const std::uint32_t adapter = saving->turn->record.adapter.number;
    auto taken = std::make_shared<PoolResult<session::Snapshot>>(
        session::take(engine.pool(), saving->turn->record.tokens, in_adapter(saving->tenant, adapter),
                      fingerprint_of(saving->context.model, adapter)));
    if (!*taken && taken->error().code == PoolError::Code::WorkFailed) engine.device_failed();
    Loop& loop = saving->context.loop;
    if (!*taken && taken->error().code == PoolError::Code::Exhausted && engine::Clock::now() < saving->deadline) {
      return loop.post([saving, &loop] { loop.after(kRetry, [saving] { take_and_write(saving); }); });
    }
    loop.post([saving, taken, &loop] {
      loop.work([saving, taken, &loop] {
        auto result = std::make_shared<std::expected<SavedSession, ApiError>>(std::unexpected(
            ApiError{.status = 503, .type = "server_error", .message = "the state cannot be copied", .code = "busy"}));
        try {
          if (*taken) {
            *result = write_file(*saving, **taken);
          } else {
            result->error().message = fmt::format("the state cannot be copied: {}", taken->error().message());
          }
        } catch (const std::exception&) {
        }
        loop.post([saving, result] { saving->done(std::move(*result)); });
      });
    });
  });
  if (!asked) saving->done(std::unexpected(stopping()));
}

}  // namespace

// --- computing

void SessionCall::start(const CompletionContext& context, const SessionRecord& record, Namespace name_space,
                        std::shared_ptr<Responder> responder, Done done) {
  if (record.tokens.empty()) return done({});
  const auto call = std::make_shared<SessionCall>(context, std::move(responder), std::move(done));
  call->responder_->on_gone = [weak = call->weak_from_this()] {
    const auto self = weak.lock();
    if (!self || !self->done_) return;
    self->done_ = nullptr;  // and with it the turn
    self->context_.metrics.completed(Outcome::Gone);
    self->responder_->notes.finish = "cancelled";
    self->context_.service.cancel(self->id_);
  };
  call->tokens_ = record.tokens.size();
  call->name_space_ = name_space;
  engine::Request asked{
      .prompt = record.tokens, .max_tokens = 0, .name_space = name_space, .adapter = record.adapter.number};
  asked.deadline = engine::Clock::now() + context.request_timeout;
  call->id_ = context.service.submit(std::move(asked), std::make_shared<PromptListener>(context.inbox, call, 0));
}

SessionCall::SessionCall(const CompletionContext& context, std::shared_ptr<Responder> responder, Done done)
    : context_(context), responder_(std::move(responder)), done_(std::move(done)) {}

void SessionCall::receive(const Arrival& arrival) {
  if (!done_) return;
  if (arrival.kind == engine::Event::Kind::Refused) {
    if (arrival.refusal->why == engine::Refusal::Why::RateLimited) context_.metrics.rate_limited(name_space_);
    return fail(from_refusal(*arrival.refusal), outcome_of(*arrival.refusal));
  }
  if (arrival.kind != engine::Event::Kind::Finished) return;
  if (const auto failure = failure_of(arrival, context_.request_timeout)) return fail(failure->error, failure->outcome);
  context_.metrics.completed(Outcome::Finished);
  RequestNotes& notes = responder_->notes;
  notes.request = id_;
  notes.prompt_tokens = tokens_;
  notes.finish = "session";
  responder_->on_gone = nullptr;
  std::exchange(done_, nullptr)(arrival.usage);
}

void SessionCall::broken() {
  if (!done_) return;
  context_.service.cancel(id_);
  fail(internal_error(), Outcome::Failed);
}

void SessionCall::fail(const ApiError& error, Outcome outcome) {
  done_ = nullptr;  // and with it the turn: the session is free before its client hears of the error
  context_.metrics.completed(outcome);
  context_.metrics.answered(error.status);
  responder_->notes.finish = error.code.empty() ? error.type : error.code;
  responder_->send(to_response(error));
}

// --- files

std::string session_path(const SessionFiles& files, const Tenant& tenant, const std::string& name) {
  std::filesystem::path folder = files.folder;
  if (!tenant.folder.empty()) folder /= tenant.folder;
  return (folder / (name + std::string(kSuffix))).string();
}

void save_session(const CompletionContext& context, std::shared_ptr<SessionTurn> turn, Namespace tenant,
                  const std::string& path, std::uint32_t most_files,
                  std::function<void(std::expected<SavedSession, ApiError>)> done) {
  take_and_write(std::make_shared<Saving>(Saving{.context = context,
                                                 .turn = std::move(turn),
                                                 .tenant = tenant,
                                                 .path = path,
                                                 .most_files = most_files,
                                                 .done = std::move(done),
                                                 .deadline = engine::Clock::now() + context.request_timeout}));
}

void restore_session(const CompletionContext& context, const std::shared_ptr<SessionTurn>& turn, Namespace tenant,
                     const SessionFiles& files, const std::string& path, const std::string& name,
                     std::function<void(std::expected<std::uint64_t, ApiError>)> done) {
  const auto refuse = [&](unsigned status, const std::string& why) {
    context.loop.post([done, error = file_error(status, name, why)] { done(std::unexpected(error)); });
  };
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return refuse(404, "does not exist");
  auto opened = session::SessionFile::open(path);
  if (!opened) return refuse(400, opened.error().message);
  const auto file = std::make_shared<session::SessionFile>(std::move(*opened));
  const session::Contents& contents = file->contents();
  auto record = record_from(contents.metadata, contents.tokens);
  if (!record) return refuse(400, "has metadata that makes no sense");
  SessionRecord::Adapter& adapter = record->adapter;
  if (!adapter.name.empty()) {
    const auto& all = context.model.adapters();
    const auto found = std::ranges::find(all, adapter.name, &AdapterName::name);
    if (found == all.end()) {
      return refuse(400,
                    fmt::format("was made with adapter {}, which this server does not have", in_quotes(adapter.name)));
    }
    if (session::short_name(found->fingerprint) != adapter.fingerprint) {
      return refuse(
          400, fmt::format("was made with another adapter {}, or with another scale of it", in_quotes(adapter.name)));
    }
    adapter.number = static_cast<std::uint32_t>(found - all.begin()) + 1;
  }
  const Fingerprint* const print = fingerprint_of(context.model, adapter.number);
  const Fingerprint origin = print == nullptr ? files.model : adapted(files.model, *print);
  if (const auto ok = check_origin(contents, origin, files.layout); !ok) return refuse(400, ok.error().message);
  const bool known = std::ranges::all_of(contents.tokens, [&](Token token) {
    return token >= 0 && static_cast<std::uint32_t>(token) < context.model.vocabulary();
  });
  if (!known) return refuse(400, "has tokens that the model does not have");
  if (contents.tokens.size() > context.model.context()) {
    return refuse(400, fmt::format("has {} tokens, too many for the context of {}", contents.tokens.size(),
                                   context.model.context()));
  }
  record->id = turn->record.id;
  const Namespace name_space = in_adapter(tenant, adapter.number);
  turn->record = std::move(*record);
  const bool asked =
      context.service.inspect([&loop = context.loop, file, name_space, print, done](engine::Engine& engine) {
        // Without room the state is left out. It is computed when it is wanted.
        const auto given = session::give(engine.pool(), file->contents(), name_space, print);
        if (!given && given.error().code == PoolError::Code::WorkFailed) engine.device_failed();
        loop.post([done, tokens = given ? given->tokens : 0u] { done(tokens); });
      });
  if (!asked) context.loop.post([done] { done(std::unexpected(stopping())); });
}

}  // namespace quire::server

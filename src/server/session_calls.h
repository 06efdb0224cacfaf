// What the calls of /v1/sessions do with the engine: compute the tokens of a session, save what the pool has of them to
// a file, put it back from a file.
//
// Who may call: the loop's thread. Files are read and written on workers, and the pool is used on the engine's thread.
// What holds: every call is answered. A session changes when its call has succeeded; if the client goes away before, it
//   stays as it was.
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <string>

#include "quire/server/completion.h"
#include "quire/server/session_store.h"
#include "quire/server/tenant.h"
#include "quire/state/saved_sequence.h"

namespace quire::server {

// Where session files are, and which ones can be used here.
struct SessionFiles {
  std::string folder;  // empty: there is none
  Fingerprint model;
  Hash128 layout;
};

// Computes the tokens of a turn's session and leaves them in the prefix cache. `done` gets the usage.
class SessionCall final : public Receiver, public std::enable_shared_from_this<SessionCall> {
 public:
  using Done = std::function<void(const engine::Usage& usage)>;
  static void start(const CompletionContext& context, const SessionRecord& record, Namespace name_space,
                    std::shared_ptr<Responder> responder, Done done);
  SessionCall(const CompletionContext& context, std::shared_ptr<Responder> responder, Done done);

  void receive(const Arrival& arrival) override;
  void broken() override;

 private:
  void fail(const ApiError& error, Outcome outcome);

  const CompletionContext& context_;
  std::shared_ptr<Responder> responder_;
  Done done_;  // empty: it is over
  RequestId id_ = 0;
  std::size_t tokens_ = 0;
  Namespace name_space_ = 0;
};

// The file of a tenant's session. Each tenant has a folder of its own if the server has keys. Its name follows from the
// key, not from the tenant's number, so several servers with other keys may have one --session-dir.
std::string session_path(const SessionFiles& files, const Tenant& tenant, const std::string& name);

// Writes a session that was computed. `done` gets the file's bytes and how many tokens it has the state of.
struct SavedSession {
  std::uint64_t bytes = 0, computed = 0;
};
void save_session(const CompletionContext& context, std::shared_ptr<SessionTurn> turn, Namespace tenant,
                  const std::string& path, std::uint32_t most_files,
                  std::function<void(std::expected<SavedSession, ApiError>)> done);

// Reads a file and puts its state into the pool. The turn's record becomes that of the file, except for its id. Runs on
// a worker; `done` is called on the loop's thread with the number of tokens that need not be computed.
void restore_session(const CompletionContext& context, const std::shared_ptr<SessionTurn>& turn, Namespace tenant,
                     const SessionFiles& files, const std::string& path, const std::string& name,
                     std::function<void(std::expected<std::uint64_t, ApiError>)> done);

}  // namespace quire::server

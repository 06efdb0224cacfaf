// The sessions of the server's tenants: texts and conversations that live on between calls. A session is a record of
// tokens, not of state: what the model remembers of them is in the pool's prefix cache, as for any prompt. What was
// evicted comes back from a tier if one has it, and otherwise by computing. So a session costs a few bytes for each
// token, and its answers are those of one long prompt.
//
// Who may call: any thread.
// What holds: a tenant sees its own sessions alone. One call at a time works on a session: it has a turn, and others
//   are refused. A session changes when its turn is committed, and not otherwise.
// How it fails: with the error for the client: unknown (404), in use (409), over a limit (400).
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "quire/engine/request.h"
#include "quire/server/api_error.h"
#include "quire/state/ids.h"

namespace quire::server {

struct SessionRecord {
  std::string id;
  std::int64_t created = 0;  // Unix time
  std::vector<Token> tokens;
  // A conversation has messages, and its tokens come from the chat template. Otherwise the session is plain text.
  std::optional<boost::json::array> messages;
  boost::json::array tools;
  // The first `messages` have the first `tokens`.
  struct Mark {
    std::size_t messages = 0, tokens = 0;
  };
  std::vector<Mark> marks;
  boost::json::object options;  // defaults of answers
  // The adapter that all of it is computed with.
  struct Adapter {
    std::uint32_t number = 0;  // in this server; 0: none
    std::string name;
    std::string fingerprint;  // the first digits
  };
  Adapter adapter;
  // An answer that has not ended: where it begins, and the fields that it was asked for with, seed included.
  struct Answer {
    std::size_t begin = 0;
    boost::json::object options;
  };
  std::optional<Answer> answer;

  // What counts against the limit: tokens, and at four bytes a token the JSON that is kept beside them.
  std::uint64_t cost() const;
  // Keeps the first tokens. The messages stay if these tokens are those of some of them; otherwise it becomes plain
  // text.
  void rewind(std::size_t tokens);
  // Other tokens for more messages. Marks stay where the tokens stay.
  void set_conversation(boost::json::array all, std::vector<Token> rendered);
};

// What is kept in a file beside the tokens: a JSON object (docs/state-format.md).
std::string metadata_of(const SessionRecord& record);
// Empty: it makes no sense. The tokens are those of the file.
std::optional<SessionRecord> record_from(std::string_view metadata, std::vector<Token> tokens);

class SessionTurn;

class SessionStore : public std::enable_shared_from_this<SessionStore> {
 public:
  struct Limits {
    std::uint32_t sessions = 64;                    // of one tenant
    std::uint64_t tokens = std::uint64_t{1} << 20;  // of all sessions of one tenant
    std::chrono::seconds age{86'400};               // since it was used
  };
  using Clock = std::chrono::steady_clock;
  static std::shared_ptr<SessionStore> create(Limits limits) {
    return std::shared_ptr<SessionStore>(new SessionStore(limits));
  }

  struct Listed {
    SessionRecord record;
    bool busy = false;
  };
  std::expected<Listed, ApiError> find(Namespace tenant, std::string_view id, Clock::time_point now = Clock::now());
  // Calls `visit` for each, the newest first, while the store is locked.
  using Visit = std::function<void(const SessionRecord& record, bool busy)>;
  void list(Namespace tenant, const Visit& visit, Clock::time_point now = Clock::now());
  std::optional<ApiError> erase(Namespace tenant, std::string_view id, Clock::time_point now = Clock::now());

  using Turn = std::expected<std::shared_ptr<SessionTurn>, ApiError>;
  Turn begin(Namespace tenant, std::string_view id, Clock::time_point now = Clock::now());
  // A turn on a new, empty session, which is gone again if the turn is not committed.
  Turn make(Namespace tenant, Clock::time_point now = Clock::now());
  // Tokens that this tenant may still add.
  std::uint64_t room(Namespace tenant) const;

  struct Count {
    std::uint64_t sessions = 0, tokens = 0;  // of all tenants
  };
  Count count() const;
  const Limits& limits() const { return limits_; }

 private:
  friend class SessionTurn;
  explicit SessionStore(Limits limits) : limits_(limits) {}
  struct Entry {
    SessionRecord record;
    std::uint64_t cost = 0;
    Clock::time_point used;
    bool busy = false, fresh = false;
  };
  using Sessions = std::map<std::string, Entry, std::less<>>;

  std::optional<ApiError> commit(Namespace tenant, const SessionRecord& record, bool within_limit);
  void end(Namespace tenant, const std::string& id);
  Sessions& living(Namespace tenant, Clock::time_point now);
  static std::uint64_t cost_of(const Sessions& sessions);

  Limits limits_;
  mutable std::mutex mutex_;
  std::map<Namespace, Sessions> tenants_;
};

// The only call that works on a session. It has a copy of the record, and ends when it is committed or destroyed.
class SessionTurn {
 public:
  SessionTurn(std::shared_ptr<SessionStore> store, Namespace tenant, SessionRecord of)
      : record(std::move(of)), store_(std::move(store)), tenant_(tenant) {}
  SessionTurn(const SessionTurn&) = delete;
  SessionTurn& operator=(const SessionTurn&) = delete;
  ~SessionTurn();

  SessionRecord record;

  // The session becomes what `record` is, and the turn ends. An error: it is over the limit, and stays as it was.
  std::optional<ApiError> commit();

  // --- an answer, as it comes
  // It begins behind `prompt`. `options`: with which it could go on; a chat's cannot. `continues`: it is the rest of
  // the record's answer.
  void begin_answer(std::vector<Token> prompt, bool chat, boost::json::object options, bool continues);
  void add(Token token, std::string_view text);
  void add_text(std::string_view text) { text_ += text; }
  // The answer has ended, or was cut off: `ended` says whether the model or a stop ended it. `message`: of a chat. The
  // turn ends. An answer that was cut off before its first token changes nothing.
  void end_answer(bool ended, bool cut_off, std::optional<boost::json::object> message);

 private:
  std::shared_ptr<SessionStore> store_;  // a turn may outlive the server's API
  Namespace tenant_;
  bool over_ = false;
  std::size_t begin_ = 0;
  std::size_t came_ = 0;  // tokens
  std::string text_;
  bool chat_ = false, continues_ = false;
  boost::json::object options_;
};

}  // namespace quire::server

// What the calls that answer with text share: /v1/completions, /v1/chat/completions, /v1/messages and /v1/responses.
// Requests of the engine, the stream to the client, and its end.
//
// Who may call: the loop's thread.
// What holds: if the client goes away, its requests are cancelled at once; if it does not read, they are cancelled when
//   the stream's buffer is full. A stream that is silent for a while gets an event that says nothing, so that proxies
//   keep it open. A call ends once, by complete() or fail(); nothing is sent after that.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine/service.h"
#include "quire/server/api_error.h"
#include "quire/server/completion_format.h"
#include "quire/server/inbox.h"
#include "quire/server/metrics.h"

namespace quire::server {

// What all calls share. Outlives them.
struct CompletionContext {
  Loop& loop;
  engine::Service& service;
  const TextModel& model;
  Metrics& metrics;
  std::shared_ptr<Inbox> inbox;
  std::chrono::milliseconds request_timeout;
  std::chrono::milliseconds stream_keep_alive;  // 0: never
  std::size_t stream_buffer;                    // bytes that may wait for a client
  bool has_keys;
  std::string prefix;  // of the ids of answers; a new one each time the server starts
};

class AnsweringCall : public Receiver, public std::enable_shared_from_this<AnsweringCall> {
 protected:
  AnsweringCall(const CompletionContext& context, Namespace name_space, std::shared_ptr<Responder> responder)
      : context_(context), name_space_(name_space), responder_(std::move(responder)) {}

  // Before the first request.
  void watch_client();
  // The answer of the request comes with this index of a prompt.
  void submit(engine::Request asked, std::uint32_t prompt);
  void cancel();

  // The answer is a stream, which begins with these events.
  void begin_stream(std::string events);
  void write(std::string_view events);

  // What the metrics know of a token. `last`: when the one before it in its answer came; it becomes this one's.
  void time_token(const Arrival& arrival, engine::Clock::time_point& last);
  void refuse(const engine::Refusal& refusal);
  // The answer is over, and the usage is known.
  void complete(std::string_view finish);
  void fail(const ApiError& error, Outcome outcome);
  void broken() override;

  // How an API tells that nothing has come, an error before the stream, and one that ends it.
  virtual std::string_view keep_alive_event() const { return ": waiting\n\n"; }
  virtual HttpResponse refusal(const ApiError& error) const { return to_response(error); }
  virtual void append_failure(const ApiError& error, std::string& out) = 0;
  // The call ends before its answer is whole: its client has gone, or it failed. Nothing was told yet.
  virtual void cut_off() {}

  const CompletionContext& context_;
  const Namespace name_space_;
  std::shared_ptr<Responder> responder_;
  std::vector<RequestId> ids_;
  std::uint64_t prompt_tokens_ = 0;
  std::uint64_t tokens_ = 0;  // that have come, of all choices
  UsageSum usage_;
  bool begun_ = false;  // the stream has begun
  bool over_ = false;

 private:
  void keep_alive();
  void note(std::string_view finish);

  engine::Clock::time_point submitted_;
  engine::Clock::time_point spoken_;  // when the stream's last bytes were written
};

}  // namespace quire::server

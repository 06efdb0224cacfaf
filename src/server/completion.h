// One call of /v1/completions or /v1/chat/completions. Submits the prompts to the engine and sends the answers to the
// client, streamed or whole.
//
// Who may call: the loop's thread.
// What holds: if the client goes away, its requests are cancelled at once; if it does not read, they are cancelled when
//   the stream's buffer is full. A stream that is silent for a while gets a comment, so that proxies keep it open. A
//   stream that has begun ends with "data: [DONE]". If the answer is not complete, an error before it says why.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/engine/service.h"
#include "quire/server/completion_format.h"
#include "quire/server/completion_request.h"
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

class Completion final : public Receiver, public std::enable_shared_from_this<Completion> {
 public:
  static void start(const CompletionContext& context, CompletionRequest request, Namespace name_space,
                    std::shared_ptr<Responder> responder);
  Completion(const CompletionContext& context, CompletionRequest request, std::shared_ptr<Responder> responder);

  void receive(const Arrival& arrival) override;

 private:
  struct Choice {
    std::string text;
    LogprobsFormat logprobs;
    const char* finish = "";
    engine::Clock::time_point last_token{};
    bool echoed = false;                 // the prompt with its log-probabilities stands before the answer
    std::unique_ptr<ChatAnswer> answer;  // null: the answer is one text
  };
  // What is to be told of a prompt's tokens.
  struct Prompt {
    LogprobsFormat echo;
    PromptLogprobsFormat scores;
    std::unique_ptr<engine::TextStream> text;
  };

  void submit(Namespace name_space);
  void accepted();
  void prompt_token(const Arrival& arrival);
  void echo_scores(std::uint32_t index);
  void token(const Arrival& arrival, std::uint32_t index);
  void finished(const Arrival& arrival, std::uint32_t index);
  void complete();
  void add(const std::vector<tools::Delta>& deltas, std::uint32_t index);
  bool one_call_came(std::uint32_t index);
  void fail(const ApiError& error, Outcome outcome);
  void end_session(bool ended, bool cut_off);
  void cancel();
  void stream(std::string_view events);
  void keep_alive();
  void note(std::string_view finish);

  const CompletionContext& context_;
  CompletionRequest request_;
  std::shared_ptr<Responder> responder_;
  std::vector<RequestId> ids_;
  std::vector<Choice> choices_;  // all choices of the first prompt, then those of the next
  std::vector<Prompt> prompts_;  // empty if nothing is to be told of their tokens
  std::unique_ptr<CompletionFormat> format_;
  engine::Clock::time_point submitted_;
  engine::Clock::time_point spoken_;  // when the stream's last bytes were written
  std::uint64_t prompt_tokens_ = 0;
  std::uint64_t tokens_ = 0;  // that have come, of all choices
  UsageSum usage_;
  std::size_t open_ = 0;  // prompts whose last event has not come
  std::string early_;     // stream events that wait until the engine has accepted all prompts
  std::string scratch_;
  std::size_t accepted_ = 0;  // prompts that the engine has accepted
  bool begun_ = false;        // the stream has begun
  bool over_ = false;
};

}  // namespace quire::server

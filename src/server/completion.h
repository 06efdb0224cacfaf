// One call of /v1/completions or /v1/chat/completions. Submits the prompts to the engine and sends the answers to the
// client, streamed or whole.
//
// Who may call: the loop's thread.
// What holds: see AnsweringCall. A stream that has begun ends with "data: [DONE]". If the answer is not complete, an
//   error before it says why.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quire/server/answering_call.h"
#include "quire/server/completion_format.h"
#include "quire/server/completion_request.h"

namespace quire::server {

class Completion final : public AnsweringCall {
 public:
  static void start(const CompletionContext& context, CompletionRequest request, Namespace name_space,
                    std::shared_ptr<Responder> responder);
  Completion(const CompletionContext& context, CompletionRequest request, Namespace name_space,
             std::shared_ptr<Responder> responder);

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

  void begin();
  void accepted();
  void prompt_token(const Arrival& arrival);
  void echo_scores(std::uint32_t index);
  void token(const Arrival& arrival, std::uint32_t index);
  void finished(const Arrival& arrival, std::uint32_t index);
  void end();
  void add(const std::vector<tools::Delta>& deltas, std::uint32_t index);
  bool one_call_came(std::uint32_t index);
  void cut_off() override { end_session(false, true); }
  void end_session(bool ended, bool was_cut_off);
  void stream(std::string_view events);
  void append_failure(const ApiError& error, std::string& out) override;

  CompletionRequest request_;
  std::vector<Choice> choices_;  // all choices of the first prompt, then those of the next
  std::vector<Prompt> prompts_;  // empty if nothing is to be told of their tokens
  std::unique_ptr<CompletionFormat> format_;
  std::size_t open_ = 0;  // prompts whose last event has not come
  std::string early_;     // stream events that wait until the engine has accepted all prompts
  std::string scratch_;
  std::size_t accepted_ = 0;  // prompts that the engine has accepted
};

}  // namespace quire::server

// `quire chat`: a conversation, through the model's chat template.
//
// What holds: a turn renders and tokenizes the whole conversation, and computes only what the pool does not hold yet:
//   the new message, and for a recurrent model at most kChatCheckpoints tokens before it. What people and the model
//   wrote is text, and never a control token.
//   Lines that begin with a slash are commands (/help); // begins a text with a slash.
//   Ctrl-C ends the answer being written, which stays in the conversation as far as it came.
// How it fails: a turn that cannot be answered (the context is full, the template refuses) is said on standard error
//   and taken back; in a pipe it ends the program, since nobody is there to say it differently.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/json/array.hpp>

#include "quire/base/error.h"
#include "quire/cli/ask.h"
#include "quire/cli/console.h"
#include "quire/cli/interrupt.h"
#include "quire/cli/line_reader.h"
#include "quire/cli/load.h"
#include "quire/cli/report.h"
#include "quire/engine/sampler.h"
#include "quire/text/chat_prompt.h"

namespace quire::cli {

struct ChatOptions {
  ModelOptions model;
  std::string system;       // empty: no such message
  std::uint32_t limit = 0;  // tokens of an answer; 0: none
  engine::SamplerOptions sampler;
};

// Tokens between two recurrent states that are kept while an answer is written.
constexpr std::uint32_t kChatCheckpoints = 32;

// A conversation and the engine that answers it.
class Chat {
 public:
  static Result<std::unique_ptr<Chat>> create(const ChatOptions& options, const Console& console);

  using Turn = Answered;
  // Says this to the model and hands its answer on as it is written. Where it fails, or was stopped before the answer
  // began, the conversation is as before. `stop` is asked between tokens.
  Result<Turn> say(std::string_view text, const std::function<bool()>& stop, const TextSink& sink);
  // Begins anew, with the system message alone.
  void reset();

  const engine::HostedModel& host() const { return *host_; }
  std::uint32_t length() const { return length_; }  // tokens of the conversation
  const boost::json::array& messages() const { return messages_; }

 private:
  Chat(const ChatOptions& options, const Console& console, std::unique_ptr<engine::HostedModel> host,
       text::Tokenizer tokenizer);

  ChatOptions options_;
  Console console_;
  std::unique_ptr<engine::HostedModel> host_;
  text::Tokenizer tokenizer_;
  std::unique_ptr<text::ChatPrompt> prompt_;  // refers to the tokenizer
  std::uint32_t length_ = 0;
  boost::json::array messages_;
  std::chrono::local_seconds now_;  // one time for the whole conversation, so that its beginning stays what it was
};

// Talks until the lines end. Where a person is at the other end, `interrupt` is how to stop an answer; null: a pipe.
// What is left to print comes back.
Result<std::string> converse(Chat& chat, LineReader& lines, const Console& console, Interrupt* interrupt);

}  // namespace quire::cli

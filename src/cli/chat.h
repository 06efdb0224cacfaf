// `quire chat`: a conversation through the model's chat template.
//
// What holds: a turn renders and tokenizes the whole conversation, but computes only what the pool does not hold yet:
//   the new message, and for a recurrent model at most kChatCheckpoints tokens before it. Messages and answers are
//   always text: "<|im_end|>" in them is never the special token.
//   Lines that begin with a slash are commands (/help); // begins a text with a slash.
//   Ctrl-C stops the answer. The part that was written stays in the conversation.
// How it fails: if a turn cannot be answered (the context is full, the template refuses), standard error says why and
//   the message is removed from the conversation. In a pipe it ends the program, because nobody can change the message.
//   If the device is lost, the program ends in any case.
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
  std::uint32_t limit = 0;  // tokens of an answer; 0: no limit
  engine::SamplerOptions sampler;
};

// Tokens between two checkpoints of the recurrent state during decode.
constexpr std::uint32_t kChatCheckpoints = 32;

// A conversation and the engine that answers it.
class Chat {
 public:
  static Result<std::unique_ptr<Chat>> create(const ChatOptions& options, const Console& console);
  // With a model that is loaded; the options of the model are not used.
  static Result<std::unique_ptr<Chat>> create(const ChatOptions& options, const Console& console,
                                              std::unique_ptr<engine::HostedModel> host);

  using Turn = Answered;
  // Sends this message and streams the answer to `sink`. If it fails, or is stopped before the answer began, the
  // conversation is unchanged. `stop` is called between steps; true stops the answer.
  Result<Turn> say(std::string_view text, const std::function<bool()>& stop, const TextSink& sink);
  // Starts a new conversation with only the system message.
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
  std::chrono::local_seconds now_;  // fixed, so that the beginning of the prompt does not change between turns
};

// Runs the conversation until the lines end. `interrupt` stops an answer; it is null if the lines come from a pipe.
// Returns what is left to print.
Result<std::string> converse(Chat& chat, LineReader& lines, const Console& console, Interrupt* interrupt);

}  // namespace quire::cli

// `quire chat`: a conversation through the model's chat template.
//
// What holds: a turn renders and tokenizes the whole conversation, but computes only what the pool does not hold yet:
//   the new message, and for a recurrent model at most kChatCheckpoints tokens before it. Messages and answers are
//   always text: "<|im_end|>" in them is never the special token.
//   dialogue.h has the commands and what the user sees.
// How it fails: a turn that cannot be answered (the context is full, the template refuses) leaves the conversation
//   unchanged.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "quire/base/error.h"
#include "quire/cli/ask.h"
#include "quire/cli/console.h"
#include "quire/cli/constraint_options.h"
#include "quire/cli/load.h"
#include "quire/engine/sampler.h"
#include "quire/server/text_model.h"

namespace quire::cli {

struct ChatOptions {
  ModelOptions model;
  std::string system;       // empty: no such message
  std::uint32_t limit = 0;  // tokens of an answer; 0: no limit
  engine::SamplerOptions sampler;
  std::vector<std::string> stops;  // end an answer and are not part of it
  ConstraintOptions constraint;    // what every answer must look like
  std::string template_path;       // a file with another chat template; empty: the model's
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
  // Called with texts as they become known. `reasoning`: it is the model's reasoning, without the marks around it.
  // After the texts of a token it is called with the token and no text. Returning false ends the answer.
  using Sink = std::function<bool(text::TokenId token, std::string_view text, bool reasoning)>;
  // Sends this message and streams the answer to `sink`. If it fails, or is stopped before the answer began, the
  // conversation is unchanged. `stop` is called between steps; true stops the answer.
  Result<Turn> say(std::string_view text, const std::function<bool()>& stop, const Sink& sink);
  // The same with a message of the user that may have other fields too.
  Result<Turn> say(boost::json::object question, const std::function<bool()>& stop, const Sink& sink);
  // Starts a new conversation with only the system message.
  void reset();
  // Another system message, from the next turn on; empty: none.
  void set_system(std::string_view text);
  // The last message of the user, if there is one.
  std::optional<boost::json::object> last_question() const;
  // Removes that message and what follows it.
  void take_back();
  // Whether the template can go on with this conversation, or why not.
  Result<void> can_continue(boost::json::array messages) const;
  // Replaces the conversation. The caller has checked the messages (chat_file.h). `length` is known if they were there
  // before.
  void replace(boost::json::array messages, std::uint32_t length = 0);

  // Sampler, limit and stops hold from the next turn on.
  ChatOptions& options() { return options_; }
  const engine::HostedModel& host() const { return *host_; }
  std::uint32_t length() const { return length_; }  // tokens of the conversation
  const boost::json::array& messages() const { return messages_; }

 private:
  Chat(const ChatOptions& options, const Console& console, std::unique_ptr<engine::HostedModel> host,
       std::unique_ptr<server::TextModel> model);
  // The prompt of this conversation. Messages come to the template as the server gives them to it.
  Result<text::ChatPrompt::Rendered> rendered(boost::json::array messages) const;

  ChatOptions options_;
  Console console_;
  std::unique_ptr<engine::HostedModel> host_;
  std::unique_ptr<server::TextModel> model_;
  std::uint32_t length_ = 0;
  boost::json::array messages_;
  std::chrono::local_seconds now_;  // fixed, so that the beginning of the prompt does not change between turns
};

}  // namespace quire::cli

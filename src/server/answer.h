// An answer as deltas: pieces of text, of reasoning and of calls of tools, in their order. And a call that has one such
// answer: one prompt, one choice. /v1/messages and /v1/responses are shapes of it.
//
// Who may call: the loop's thread. A shape is made on a worker thread, before its call begins.
// What holds: see AnsweringCall.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/server/answering_call.h"
#include "quire/server/chat_answer.h"
#include "quire/server/completion_request.h"
#include "quire/tools/answer_parser.h"

namespace quire::server {

// Deltas of one kind that follow each other, put together.
struct AnswerBlock {
  tools::Delta::Kind kind = tools::Delta::Kind::Content;  // never Arguments: they belong to their call
  std::string text;                                       // of a call: its arguments
  std::string name = {};
  std::string id = {};
};

struct AnswerEnd {
  bool cut = false;                    // at its limit of tokens
  std::string stop;                    // the stop string that ended it; empty: none
  std::uint64_t reasoning_tokens = 0;  // whose text was reasoning
};

// How one API tells an answer. begin() to end() are for streams, where each appends events; whole() is for the rest.
// The blocks are the same in both.
class AnswerShape {
 public:
  virtual ~AnswerShape() = default;

  // The answer has an id from now on, and so many tokens of prompt.
  virtual void open(std::string id, std::uint64_t prompt_tokens) = 0;
  virtual void begin(std::string& out) = 0;
  void add(const tools::Delta& delta, std::string& out);
  virtual void end(const AnswerEnd& end, const UsageSum& usage, std::string& out) = 0;
  virtual std::string whole(const AnswerEnd& end, const UsageSum& usage) = 0;

  // An error before the stream, and one that ends it.
  virtual HttpResponse refusal(const ApiError& error) const { return to_response(error); }
  virtual void fail(const ApiError& error, std::string& out) = 0;
  virtual std::string_view keep_alive() const { return ": waiting\n\n"; }

  const std::vector<AnswerBlock>& blocks() const { return blocks_; }

 protected:
  // A block begins; more of it comes; it is complete. The block is the last one.
  virtual void block_begins(std::string& out) = 0;
  virtual void block_grows(std::string_view text, std::string& out) = 0;
  virtual void block_ends(std::string& out) = 0;
  // For end(): the last block, if there is one, is complete.
  void close_block(std::string& out);

 private:
  std::vector<AnswerBlock> blocks_;
  bool block_open_ = false;
};

// A server-sent event with a name.
void append_event(std::string& out, std::string_view name, std::string_view data);

struct AnswerRequest {
  CompletionRequest chat;  // one prompt, n of 1
  std::shared_ptr<AnswerShape> shape;
};

class Answer final : public AnsweringCall {
 public:
  static void start(const CompletionContext& context, AnswerRequest request, Namespace name_space,
                    std::shared_ptr<Responder> responder);
  Answer(const CompletionContext& context, AnswerRequest request, Namespace name_space,
         std::shared_ptr<Responder> responder);

  void receive(const Arrival& arrival) override;

 private:
  void begin();
  void add(const std::vector<tools::Delta>& deltas);
  void add_text(const std::string& text);
  void token(const Arrival& arrival);
  void finished(const Arrival& arrival);
  std::string_view keep_alive_event() const override { return shape_->keep_alive(); }
  HttpResponse refusal(const ApiError& error) const override { return shape_->refusal(error); }
  void append_failure(const ApiError& error, std::string& out) override { shape_->fail(error, out); }

  CompletionRequest request_;
  std::unique_ptr<ChatAnswer> reader_;  // null: the answer is one text
  std::shared_ptr<AnswerShape> shape_;
  engine::Clock::time_point last_token_{};
  std::uint64_t reasoning_tokens_ = 0;
  std::string scratch_;
};

}  // namespace quire::server

// /v1/embeddings: one vector for each text. The texts go through the same scheduler as completions do.
//
// Who may call: parse_embeddings() any thread; there is no state. EmbeddingCall: the loop's thread.
// What holds: a vector depends on the model, the text and the pooling, and on nothing else. However many texts a call
//   has, only some of them wait in the engine at a time, so a call does not fill the queue. If the client goes away,
//   its requests are cancelled at once.
// How it fails: with the error for the client, which names the field.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "quire/engine/request.h"
#include "quire/server/completion.h"
#include "quire/server/text_model.h"

namespace quire::server {

// Limits of one call; docs/api.md has them.
inline constexpr std::size_t kMostInputs = 2048;
inline constexpr std::size_t kMostNumbers = std::size_t{1} << 22;  // inputs times dimensions

struct EmbeddingRequest {
  std::vector<std::vector<Token>> inputs;
  engine::Request options;  // everything but the prompt
  std::uint32_t dimensions = 0;
  bool base64 = false;
  bool normalize = true;
};
using EmbeddingResult = std::expected<EmbeddingRequest, ApiError>;
EmbeddingResult parse_embeddings(boost::json::object&& body, const TextModel& model);

// Cuts a vector to its first elements and, if wanted, makes it as long as 1.
void shorten(std::vector<float>& vector, std::uint32_t dimensions, bool normalize);
std::string base64_of(std::span<const float> vector);  // little-endian floats

class EmbeddingCall final : public Receiver, public std::enable_shared_from_this<EmbeddingCall> {
 public:
  static void start(const CompletionContext& context, EmbeddingRequest request, Namespace name_space,
                    std::shared_ptr<Responder> responder);
  EmbeddingCall(const CompletionContext& context, EmbeddingRequest request, std::shared_ptr<Responder> responder);

  void receive(const Arrival& arrival) override;
  void broken() override;

 private:
  void submit_next();
  void finished(const Arrival& arrival);
  void complete();
  void fail(const ApiError& error, Outcome outcome);
  void note(std::string_view finish);
  void cancel();

  const CompletionContext& context_;
  EmbeddingRequest request_;
  std::shared_ptr<Responder> responder_;
  engine::Clock::time_point submitted_;
  std::vector<std::vector<float>> vectors_;  // by input
  std::vector<RequestId> ids_;               // of the inputs that were submitted
  std::size_t open_ = 0;                     // of them, those that have not ended
  UsageSum usage_;
  bool over_ = false;
};

}  // namespace quire::server

// What the server knows of the model besides running it: its names, its tokenizer, its chat template.
//
// Who may call: it does not change once made; any number of threads may read it.
// How it fails: create() with one line where the file's tokenizer cannot be used. A model without a chat template, or
//   with one that cannot be read, is served all the same; chats are then refused with that line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine/request.h"
#include "quire/gguf/gguf.h"
#include "quire/text/chat_prompt.h"
#include "quire/text/tokenizer.h"

namespace quire::server {

class TextModel {
 public:
  // `alias`: what the model is called; empty: as its file is.
  static Result<std::unique_ptr<TextModel>> create(const gguf::File& file, std::uint32_t context,
                                                   std::uint32_t vocabulary, std::string alias);

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  const text::ChatPrompt* chat() const { return chat_ ? &*chat_ : nullptr; }
  const std::string& why_no_chat() const { return why_no_chat_; }
  const std::string& name() const { return names_.front(); }
  bool answers_to(std::string_view name) const;
  std::uint32_t context() const { return context_; }
  std::uint32_t vocabulary() const { return vocabulary_; }
  std::int64_t created() const { return created_; }  // when the server began, in Unix time

  // Whether a template that printed this would print a control token.
  bool spells_control_token(std::string_view text) const;
  // The text of a token as JSON can have it.
  std::string token_text(Token token) const;

  // For a Request: this model's tokens as well-formed text, as they come. `at_start`: the answer is a text of its own,
  // not the middle of one.
  std::unique_ptr<engine::TextStream> text_stream(bool at_start, bool render_special) const;

 private:
  TextModel(text::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  text::Tokenizer tokenizer_;
  std::optional<text::ChatPrompt> chat_;  // refers to the tokenizer
  std::string why_no_chat_;
  std::vector<std::string> names_;
  std::uint32_t context_ = 0;
  std::uint32_t vocabulary_ = 0;
  std::int64_t created_ = 0;
};

}  // namespace quire::server

// A conversation as tokens: through the model's chat template and its tokenizer, with a border between what the
// template wrote and what people (and models) wrote. A template's "<|im_end|>" is the control token; the same
// characters in a message are characters.
//
//   auto prompt = ChatPrompt::create(*file, tokenizer);
//   auto ids = prompt->encode({{"messages", messages}, {"add_generation_prompt", true}});
//
// How the border is found: the conversation is rendered twice, once as it is and once with a mark at either end of each
// message's text. Where the second rendering without its marks is the first, the marks say which characters are a
// message's. A template that takes messages apart (some cut an answer's thoughts away) loses marks; then those messages
// are marked that contain the spelling of a control token, and if not even that gives the same text, the conversation
// is refused rather than guessed at.
//
// Who may call: it does not change once made; any number of threads may encode. The Tokenizer outlives it.
// How it fails: create() where the file has no template or a broken one; encode() where the template refuses the
//   conversation, with its own words, or where the border cannot be found.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "quire/base/error.h"
#include "quire/gguf/gguf.h"
#include "quire/jinja/template.h"
#include "quire/text/tokenizer.h"

namespace quire::text {

class ChatPrompt {
 public:
  static Result<ChatPrompt> create(const gguf::File& file, const Tokenizer& tokenizer);
  // Of a template on its own; `name` stands for it in messages.
  static Result<ChatPrompt> create(std::string_view source, std::string name, const Tokenizer& tokenizer);

  // Variables are as for jinja::Template; the names of special tokens, `tools` and `documents` are set where they are
  // not. A message's text is the string "content", or each string "text" in an array of parts. What stands elsewhere
  // (roles, names, tools) counts as the template's own and is for the caller to check.
  Result<std::vector<TokenId>> encode(const boost::json::object& variables, std::chrono::local_seconds now) const;

  struct Rendered {
    std::string text;
    std::vector<TextRange> literal;  // what messages said
  };
  Result<Rendered> render(const boost::json::object& variables, std::chrono::local_seconds now) const;

 private:
  ChatPrompt(jinja::Template parsed, std::string name, const Tokenizer& tokenizer)
      : template_(std::move(parsed)), name_(std::move(name)), tokenizer_(&tokenizer) {}
  void set_defaults(boost::json::object& variables) const;
  bool spells_control_token(std::string_view text) const;

  jinja::Template template_;
  std::string name_;
  const Tokenizer* tokenizer_;
};

}  // namespace quire::text

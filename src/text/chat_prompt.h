// Converts a conversation to tokens, with the model's chat template and tokenizer. It separates the template's text
// from the text of messages: "<|im_end|>" is a control token in the template, but plain characters in a message.
//
//   auto prompt = ChatPrompt::create(*file, tokenizer);
//   auto ids = prompt->encode({{"messages", messages}, {"add_generation_prompt", true}}, now);
//
// The interpreter tracks the origin of every text (quire/jinja/origin.h), so one rendering tells which bytes came from
// the variables. They are always plain text, also after the template has cut, joined or changed them.
//
// Who may call: any number of threads may encode; nothing changes after create(). The Tokenizer must outlive it.
// How it fails: create() if the file has no template or a broken one; the message begins with the file's path. encode()
//   and render() if the template fails, or refuses the conversation; then the error has the template's words. These
//   messages may be shown to clients: they name no file.
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
  // With a template from elsewhere. `name` is its name in the error message.
  static Result<ChatPrompt> create(std::string_view source, const std::string& name, const Tokenizer& tokenizer);

  // Variables are those of jinja::Template. Special token names, `tools` and `documents` get defaults if they are not
  // set. All text in variables is untrusted, except the names of special tokens and the roles of messages: templates
  // build control tokens from them, so the caller must check them.
  Result<std::vector<TokenId>> encode(boost::json::object variables, std::chrono::local_seconds now) const;

  struct Rendered {
    std::string text;
    std::vector<TextRange> literal;  // from variables: no control token is parsed there
  };
  // `max_steps`: less than a rendering may take, for who only tries something.
  Result<Rendered> render(boost::json::object variables, std::chrono::local_seconds now,
                          std::uint64_t max_steps = jinja::RenderOptions().max_steps) const;

 private:
  ChatPrompt(jinja::Template parsed, const Tokenizer& tokenizer)
      : template_(std::move(parsed)), tokenizer_(&tokenizer) {}
  void set_defaults(boost::json::object& variables) const;

  jinja::Template template_;
  const Tokenizer* tokenizer_;
};

}  // namespace quire::text

// A conversation as tokens: through the model's chat template and its tokenizer, with a border between what the
// template wrote and what people (and models) wrote. A template's "<|im_end|>" is the control token; the same
// characters in a message are characters.
//
//   auto prompt = ChatPrompt::create(*file, tokenizer);
//   auto ids = prompt->encode({{"messages", messages}, {"add_generation_prompt", true}});
//
// How the border is found: the interpreter carries the origin of every text through the template
// (quire/jinja/origin.h), so one rendering says which bytes came from the variables. They are text, whatever they
// spell; so is what a template makes of them by cutting, joining or changing them.
//
// Who may call: it does not change once made; any number of threads may encode. The Tokenizer outlives it.
// How it fails: create() where the file has no template or a broken one; encode() where the template refuses the
//   conversation, with its own words, or fails.
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
  // not. All text in them is from outside but for the special tokens' names and the messages' roles, of which templates
  // make control tokens: those are for the caller to check.
  Result<std::vector<TokenId>> encode(const boost::json::object& variables, std::chrono::local_seconds now) const;

  struct Rendered {
    std::string text;
    std::vector<TextRange> literal;  // what came from outside: no control token is parsed there
  };
  Result<Rendered> render(const boost::json::object& variables, std::chrono::local_seconds now) const;

 private:
  ChatPrompt(jinja::Template parsed, std::string name, const Tokenizer& tokenizer)
      : template_(std::move(parsed)), name_(std::move(name)), tokenizer_(&tokenizer) {}
  void set_defaults(boost::json::object& variables) const;

  jinja::Template template_;
  std::string name_;
  const Tokenizer* tokenizer_;
};

}  // namespace quire::text

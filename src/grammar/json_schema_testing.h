// A schema and the texts that it admits, for tests.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/json/parse.hpp>

#include "quire/grammar/json_schema.h"
#include "quire/grammar/matcher.h"
#include "quire/text/tokenizer_testing.h"

namespace quire::grammar::testing {

// Every byte is a token, and one more ends an answer.
struct ByteModel {
  text::Tokenizer tokenizer;
  std::shared_ptr<const TokenTrie> trie;

  ByteModel() : tokenizer(text::testing::make(vocabulary())) {
    trie = TokenTrie::create(tokenizer, static_cast<std::uint32_t>(tokenizer.size()));
  }
  static text::Vocabulary vocabulary() {
    auto result = text::testing::byte_level_vocabulary({}, {{"<|end|>", text::TokenType::control}});
    result.eos = static_cast<TokenId>(result.tokens.size() - 1);
    return result;
  }
  static const ByteModel& shared() {
    static const ByteModel model;
    return model;
  }
};

class CompiledSchema {
 public:
  explicit CompiledSchema(const std::string& schema, const SchemaOptions& options = {})
      : CompiledSchema(boost::json::parse(schema), options) {}
  explicit CompiledSchema(const char* schema, const SchemaOptions& options = {})
      : CompiledSchema(boost::json::parse(schema), options) {}
  explicit CompiledSchema(const boost::json::value& schema, const SchemaOptions& options = {}) {
    Grammar grammar;
    const auto start = add_json_schema(grammar, schema, options);
    if (!start) {
      error_ = start.error().message;
      return;
    }
    grammar.set_start(*start);
    auto compiled = compile(std::move(grammar), ByteModel::shared().trie);
    if (compiled) {
      compiled_ = *compiled;
    } else {
      error_ = compiled.error().message;
    }
  }

  // Empty: it was compiled.
  const std::string& error() const { return error_; }
  Matcher matcher() const { return Matcher(compiled_); }
  bool admits(std::string_view text) const {
    if (compiled_ == nullptr) return false;
    Matcher one(compiled_);
    return one.accept_bytes(text) == text.size() && one.may_end();
  }

 private:
  std::shared_ptr<Compiled> compiled_;
  std::string error_;
};

}  // namespace quire::grammar::testing

// Which tokens may come next so that an answer fits a grammar.
//
//   auto vocabulary = TokenTrie::create(tokenizer);            // once for a model
//   auto compiled = compile(std::move(grammar), vocabulary);   // once for a grammar; shared by answers
//   Matcher matcher(*compiled);                                // one for an answer
//   matcher.mask(bits);                                        // tokens that may come
//   matcher.accept(token);
//   matcher.forced(tokens);                                    // where there is only one way to go on
//
// Who may call: a TokenTrie any number of threads. Matchers of one Compiled from different threads: what they share
//   (states made lazily) is behind a mutex that a call holds; one Matcher from one thread at a time.
// What holds:
// - mask() allows a token exactly if the text so far, followed by the token's bytes, can be continued to a text of the
//   grammar (by bytes: not every such text may be spelled by the vocabulary). A token may cross any number of borders
//   of terminals. Tokens that end an answer are allowed exactly where the text so far is a text of the grammar. Other
//   special tokens are allowed only where the grammar names them or has free text; tokens without bytes never.
// - The result depends on the grammar, the vocabulary and the accepted tokens, not on what was computed before: a cache
//   of states that is full is emptied and filled again.
// - A copy of a Matcher goes on independently (fork, suspension and resume).
// How it fails: compile() with one line. accept() returns false for a token that mask() would not have allowed; then
//   nothing changed. A matcher whose grammar is too ambiguous for the limits (rows of the parser) fails: see failed().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/grammar/grammar.h"
#include "quire/text/tokenizer.h"

namespace quire::grammar {

using text::TokenId;

// The vocabulary's tokens as a trie of their bytes.
class TokenTrie {
 public:
  // The tokenizer outlives it. `vocabulary`: rows of the model's logits, at least the tokenizer's size.
  static std::shared_ptr<const TokenTrie> create(const text::Tokenizer& tokenizer, std::uint32_t vocabulary);
  ~TokenTrie();

  std::uint32_t vocabulary() const;
  std::uint32_t mask_words() const { return (vocabulary() + 31) / 32; }
  const text::Tokenizer& tokenizer() const;
  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit TokenTrie(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

class Compiled;  // a grammar made ready for a vocabulary

struct CompileOptions {
  // What matchers have computed is dropped when it takes more than this; see "What holds".
  std::size_t cache_bytes = std::size_t{32} << 20;
};

Result<std::shared_ptr<Compiled>> compile(Grammar grammar, std::shared_ptr<const TokenTrie> vocabulary,
                                          const CompileOptions& options = {});
std::size_t compiled_bytes(const Compiled& compiled);  // memory that it takes now, as an estimate

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<Compiled> compiled);
  Matcher(const Matcher&);
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(const Matcher&);
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher();

  // Sets the bits of the tokens that may come, of mask_words() words, and clears the others. Returns how many there
  // are. 0: the text can only end here and the vocabulary has no token that ends an answer, or failed().
  std::uint32_t mask(std::span<std::uint32_t> bits);
  bool accept(TokenId token);
  // Bytes without tokens, for checking files. How many at the front are admitted.
  std::size_t accept_bytes(std::string_view bytes);
  // Whether the text so far is complete.
  bool may_end() const;
  // Whether it is complete and nothing can follow.
  bool must_end() const;

  // The bytes that must come next, if there is only one way to go on; at most 4,096.
  std::string forced_bytes();
  // The tokens that must come next, in the tokenizer's own spelling of forced_bytes(), without those at the end that
  // could be part of a longer token together with what may follow. They are not accepted yet. Empty: there is a choice.
  // Depends only on the accepted tokens.
  std::vector<TokenId> forced();

  // The grammar needed more rows or items than the limits. Every mask is empty then.
  bool failed() const;
  std::size_t bytes() const;  // memory that this matcher holds, besides what it shares

  // For tests and --stats: the same as mask(), by looking at every token; and work done so far, in items of the parser
  // and nodes of the trie, by all matchers of the grammar since the cache was last emptied.
  std::uint32_t mask_slowly(std::span<std::uint32_t> bits);
  std::uint64_t work() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::grammar

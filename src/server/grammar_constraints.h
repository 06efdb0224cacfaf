// Grammars as constraints of answers. One object for a model: it has the vocabulary's trie and the grammars that were
// compiled for it.
//
// Who may call: any number of threads at the same time.
// What holds: constraints that are written alike share their compiled grammar. The tokenizer outlives it; a factory and
//   its constraints may outlive it.
// How it fails: make() and compiled() with one line that names what cannot be enforced.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "quire/base/error.h"
#include "quire/engine/constraint.h"
#include "quire/grammar/compiled_cache.h"
#include "quire/grammar/constraint.h"
#include "quire/grammar/matcher.h"

namespace quire::server {

using ConstraintFactory = std::function<std::unique_ptr<engine::Constraint>()>;

class GrammarConstraints {
 public:
  GrammarConstraints(const text::Tokenizer& tokenizer, std::uint32_t vocabulary);

  Result<ConstraintFactory> make(const grammar::ConstraintSpec& spec);
  // A grammar that is built in another way. `key`: equal for grammars that are the same. Without `forces` every token
  // is sampled, also where there is only one text to go on with: an answer that fits has the tokens that it has without
  // the constraint.
  Result<ConstraintFactory> make(const std::string& key, const std::function<Result<grammar::Grammar>()>& build,
                                 bool forces = true);
  Result<std::shared_ptr<grammar::Compiled>> compiled(const std::string& key,
                                                      const std::function<Result<grammar::Grammar>()>& build);

 private:
  std::shared_ptr<const grammar::TokenTrie> trie();

  const text::Tokenizer* tokenizer_;
  std::uint32_t vocabulary_;
  std::once_flag made_;  // most servers never need the trie
  std::shared_ptr<const grammar::TokenTrie> trie_;
  grammar::CompiledCache cache_;
};

}  // namespace quire::server

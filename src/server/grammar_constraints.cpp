#include "quire/server/grammar_constraints.h"

#include <utility>

namespace quire::server {
namespace {

class GrammarConstraint final : public engine::Constraint {
 public:
  GrammarConstraint(std::shared_ptr<grammar::Compiled> compiled, bool forces)
      : matcher_(std::move(compiled)), forces_(forces) {}

  void mask(std::span<std::uint32_t> bits) override { matcher_.mask(bits); }
  bool accept(Token token) override { return matcher_.accept(token); }
  void forced(std::vector<Token>& out) override {
    if (!forces_) return;
    const std::vector<grammar::TokenId> tokens = matcher_.forced();
    out.insert(out.end(), tokens.begin(), tokens.end());
  }
  bool complete() const override { return matcher_.must_end(); }
  std::string error() const override {
    return matcher_.failed() ? "the constraint is too ambiguous: its parser reached its limit"
                             : "the constraint allows no token of the vocabulary here";
  }

 private:
  grammar::Matcher matcher_;
  bool forces_;
};

}  // namespace

GrammarConstraints::GrammarConstraints(const text::Tokenizer& tokenizer, std::uint32_t vocabulary)
    : tokenizer_(&tokenizer), vocabulary_(vocabulary) {}

std::shared_ptr<const grammar::TokenTrie> GrammarConstraints::trie() {
  std::call_once(made_, [this] { trie_ = grammar::TokenTrie::create(*tokenizer_, vocabulary_); });
  return trie_;
}

Result<ConstraintFactory> GrammarConstraints::make(const grammar::ConstraintSpec& spec) {
  return make(grammar::content_key(spec), [&] { return grammar::build(spec); });
}

Result<ConstraintFactory> GrammarConstraints::make(const std::string& key,
                                                   const std::function<Result<grammar::Grammar>()>& build,
                                                   bool forces) {
  auto made = compiled(key, build);
  if (!made) return std::unexpected(made.error());
  return [shared = std::move(*made), forces]() -> std::unique_ptr<engine::Constraint> {
    return std::make_unique<GrammarConstraint>(shared, forces);
  };
}

Result<std::shared_ptr<grammar::Compiled>> GrammarConstraints::compiled(
    const std::string& key, const std::function<Result<grammar::Grammar>()>& build) {
  return cache_.get(key, [&]() -> Result<std::shared_ptr<grammar::Compiled>> {
    auto grammar = build();
    if (!grammar) return std::unexpected(grammar.error());
    return grammar::compile(std::move(*grammar), trie());
  });
}

}  // namespace quire::server

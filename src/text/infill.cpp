#include "quire/text/infill.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace quire::text {
namespace {

using Names = std::initializer_list<std::string_view>;

std::optional<TokenId> named(const gguf::File& file, const Tokenizer& tokenizer, Names keys, Names spellings) {
  for (const std::string_view key : keys) {
    const auto id = file.get<TokenId>(key);
    if (id && *id >= 0 && static_cast<std::size_t>(*id) < tokenizer.size()) return *id;
  }
  for (const std::string_view spelling : spellings) {
    // A word that happens to be spelled like this does not count.
    const auto id = tokenizer.find(spelling);
    if (id && (tokenizer.is_special(*id) || tokenizer.type(*id) == TokenType::user_defined)) return *id;
  }
  return std::nullopt;
}

}  // namespace

std::optional<InfillTokens> find_infill_tokens(const gguf::File& file, const Tokenizer& tokenizer) {
  const auto prefix = named(
      file, tokenizer, {"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
      {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>"});
  const auto suffix =
      named(file, tokenizer, {"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
            {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>"});
  const auto middle =
      named(file, tokenizer, {"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
            {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>"});
  if (!prefix || !suffix || !middle) return std::nullopt;
  InfillTokens tokens{.prefix = *prefix, .suffix = *suffix, .middle = *middle, .ends = {}};
  // Behind the gap a model writes padding, or begins another file.
  const auto pad = named(file, tokenizer, {"tokenizer.ggml.fim_pad_token_id"},
                         {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<EOT>", "▁<EOT>"});
  const auto repository = named(file, tokenizer, {"tokenizer.ggml.fim_rep_token_id"},
                                {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>"});
  const auto separator =
      named(file, tokenizer, {"tokenizer.ggml.fim_sep_token_id"}, {"<|file_sep|>", "<|file_separator|>"});
  for (const auto& end : {pad, repository, separator}) {
    if (end) tokens.ends.push_back(*end);
  }
  std::ranges::sort(tokens.ends);
  return tokens;
}

}  // namespace quire::text

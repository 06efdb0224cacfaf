// Fill in the middle: the control tokens around what stands before and behind a gap, where a model has them.
//
// Who may call: any thread; there is no state.
#pragma once

#include <optional>
#include <vector>

#include "quire/gguf/gguf.h"
#include "quire/text/tokenizer.h"

namespace quire::text {

// The text for the model is: prefix, what stands before, suffix, what stands behind, middle. It continues with the gap.
struct InfillTokens {
  TokenId prefix = kNoToken;
  TokenId suffix = kNoToken;
  TokenId middle = kNoToken;
  std::vector<TokenId> ends;  // tokens that end what fills a gap, beside those that end every generation; sorted
};

// As the file's metadata name them, or else by the spellings that models have. Empty: one of the three is missing.
std::optional<InfillTokens> find_infill_tokens(const gguf::File& file, const Tokenizer& tokenizer);

}  // namespace quire::text

// Token ids as users write them: numbers separated by spaces, commas or line breaks, with or without brackets.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/text/vocabulary.h"

namespace quire::cli {

// Ids must be below `count`. An error names the invalid id.
Result<std::vector<text::TokenId>> parse_token_ids(std::string_view text, std::size_t count);

}  // namespace quire::cli

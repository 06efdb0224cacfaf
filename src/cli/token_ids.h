// Token ids as users write them: numbers with spaces, commas or line breaks between them, in brackets or not.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/text/vocabulary.h"

namespace quire::cli {

// Ids are below `count`. An error names the word that is no such id.
Result<std::vector<text::TokenId>> parse_token_ids(std::string_view text, std::size_t count);

}  // namespace quire::cli

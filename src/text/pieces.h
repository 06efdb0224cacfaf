// The bytes of each token, in one block of memory.
//
// Who may call: any number of threads may read; nothing changes after build_pieces().
// What holds: views stay valid while the Pieces lives, even if it is moved.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/text/vocabulary.h"

namespace quire::text {

class Pieces {
 public:
  std::size_t size() const { return ends_.size(); }

  // `id` is in [0, size()).
  std::string_view operator[](TokenId id) const {
    const auto index = static_cast<std::size_t>(id);
    const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
    return {bytes_.data() + begin, ends_[index] - begin};
  }

  void add(std::string_view piece) {
    bytes_.insert(bytes_.end(), piece.begin(), piece.end());
    ends_.push_back(bytes_.size());
  }

 private:
  std::vector<char> bytes_;
  std::vector<std::size_t> ends_;
};

// The pieces of a vocabulary that has passed check_vocabulary() and has a type for each token. Fails if a byte token is
// not spelled like "<0x41>"; the error names it.
Result<Pieces> build_pieces(const Vocabulary& vocabulary);

// The byte of "<0x41>", or -1 for any other text.
int byte_token_value(std::string_view text);

// Whether merging can produce this token. Other tokens are matched by their spelling, or never found in text.
constexpr bool is_mergeable(TokenType type) { return type == TokenType::normal || type == TokenType::undefined; }

}  // namespace quire::text

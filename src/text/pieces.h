// The bytes that each token stands for, all in one run of memory.
//
// Who may call: a Pieces does not change after build_pieces(); any number of threads may read it.
// What holds: views stay valid while the Pieces lives, also when it is moved.
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

// Of a vocabulary that passed check_vocabulary() and has a type for each token. A byte token that is not spelled
// "<0x41>" is an error that names it.
Result<Pieces> build_pieces(const Vocabulary& vocabulary);

// The byte of "<0x41>", or -1 for any other text.
int byte_token_value(std::string_view text);

// Whether text can become this token by merging. The others are found in text as they stand, or not at all.
constexpr bool is_mergeable(TokenType type) { return type == TokenType::normal || type == TokenType::undefined; }

}  // namespace quire::text

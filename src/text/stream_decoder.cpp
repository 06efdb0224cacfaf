#include "quire/text/stream_decoder.h"

#include <algorithm>
#include <string_view>

#include "quire/base/utf8.h"

namespace quire::text {
namespace {

bool strips_space(const Tokenizer& tokenizer, const DecodeOptions& options) {
  return options.at_start && tokenizer.adds_space_prefix();
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options)
    : tokenizer_(&tokenizer), options_(options), strip_space_(strips_space(tokenizer, options)) {}

void StreamDecoder::push(TokenId id, std::string& out) {
  if (!options_.render_special && tokenizer_->is_special(id) && !std::ranges::binary_search(options_.shown, id)) return;
  std::string_view piece = tokenizer_->piece(id);
  if (piece.empty()) return;
  if (strip_space_ && piece[0] == ' ') piece.remove_prefix(1);
  strip_space_ = false;

  waiting_ += piece;
  const std::size_t ready = waiting_.size() - utf8_incomplete_tail(waiting_);
  const std::string_view complete = std::string_view(waiting_).substr(0, ready);
  if (options_.repair_utf8) {
    append_repaired(out, complete);
  } else {
    out += complete;
  }
  waiting_.erase(0, ready);
}

void StreamDecoder::flush(std::string& out) {
  if (options_.repair_utf8) {
    append_repaired(out, waiting_);
  } else {
    out += waiting_;
  }
  waiting_.clear();
  strip_space_ = strips_space(*tokenizer_, options_);
}

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  push(id, out);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out;
  flush(out);
  return out;
}

}  // namespace quire::text

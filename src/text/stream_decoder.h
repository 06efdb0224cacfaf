// Converts token ids to text as they arrive. A token may end in the middle of a character. Then its bytes wait for the
// rest, so that the output is always whole characters.
//
//   StreamDecoder decoder(tokenizer, {.repair_utf8 = true});
//   send(decoder.push(id));   // for each token; may be empty
//   send(decoder.flush());    // at the end: an incomplete character, if any
//
// Who may call: one thread at a time. The Tokenizer must outlive it and must not move.
// What holds: the outputs of push() and flush() together equal Tokenizer::decode() for the same ids and options. At
//   most three bytes wait. With repair_utf8 every single output is valid UTF-8.
// How it fails: it does not. Ids that are out of range are ignored.
#pragma once

#include <string>

#include "quire/text/tokenizer.h"

namespace quire::text {

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options = {});

  // The text that this token completes.
  std::string push(TokenId id);
  // The rest of the text. Afterwards the decoder is as new.
  std::string flush();

  // The same, appended to `out`.
  void push(TokenId id, std::string& out);
  void flush(std::string& out);

  // Whether an incomplete character is waiting.
  bool pending() const { return !waiting_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  bool strip_space_;  // the next text is the first; drop its leading space
  std::string waiting_;
};

}  // namespace quire::text

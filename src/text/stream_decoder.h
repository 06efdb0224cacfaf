// Turns token ids into text as they arrive. A token may end in the middle of a character: its bytes wait for the other
// half, so that what comes out is cut only between characters.
//
//   StreamDecoder decoder(tokenizer, {.repair_utf8 = true});
//   send(decoder.push(id));   // for each token; often empty
//   send(decoder.flush());    // at the end; half a character that nothing completed
//
// Who may call: one thread at a time. The Tokenizer outlives it and stays where it is.
// What holds: what push() and flush() give, put together, is what Tokenizer::decode() gives for the same ids and
//   options. At most three bytes wait. With repair_utf8 every single output is well-formed UTF-8.
// How it fails: it does not; ids that are out of range are passed over.
#pragma once

#include <string>

#include "quire/text/tokenizer.h"

namespace quire::text {

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options = {});

  // The text that is complete with this token.
  std::string push(TokenId id);
  // What is left. Afterwards the decoder is as new.
  std::string flush();

  // The same, appended to `out`.
  void push(TokenId id, std::string& out);
  void flush(std::string& out);

  // Whether half a character is waiting.
  bool pending() const { return !waiting_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  bool strip_space_;  // the next text is the first, and loses a leading space
  std::string waiting_;
};

}  // namespace quire::text

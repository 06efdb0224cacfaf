// The origin of the bytes of a text: the template itself, or outside (a message, a tool, a document). Control tokens
// are parsed only in the template's own text, so every operation must preserve the origin.
//
// Who may call: anyone; an Origin is a value and belongs to one text.
// What holds: the ranges are sorted, not empty, and neither overlap nor touch. An operation that cannot track
//   single bytes uses worst() for its whole result.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "quire/base/text_range.h"

namespace quire::jinja {

enum class Source {
  own,      // from the template, or from the interpreter (numbers, punctuation)
  outside,  // from a variable
};

inline Source worst(Source a, Source b) { return a == Source::outside ? a : b; }

class Origin {
 public:
  Origin() = default;  // all own
  Origin(Source source, std::size_t size) { append(source, 0, size); }

  // The ranges from outside.
  const std::vector<TextRange>& outside() const { return outside_; }
  std::vector<TextRange> take() { return std::move(outside_); }

  Source worst() const { return outside_.empty() ? Source::own : Source::outside; }
  Source at(std::size_t byte) const;
  Origin piece(std::size_t begin, std::size_t size) const;

  // Bytes of one source were appended to a text that had `size` bytes.
  void append(Source source, std::size_t size, std::size_t more);
  // A piece of another text was appended.
  void append(const Origin& other, std::size_t begin, std::size_t more, std::size_t size);

 private:
  // The first range that ends after `byte`.
  std::vector<TextRange>::const_iterator behind(std::size_t byte) const;
  void add(std::size_t begin, std::size_t end);

  std::vector<TextRange> outside_;
};

}  // namespace quire::jinja

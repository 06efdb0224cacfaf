// Where the bytes of a text came from: the template itself, or outside (a message, a tool, a document). Control tokens
// are parsed in what the template wrote and nowhere else, so this must not get lost on the way through an operation.
//
// Who may call: anyone; an Origin is a value and belongs to one text.
// What holds: the ranges are sorted, not empty, and neither overlap nor touch. An operation that cannot say where a
//   byte came from takes worst() for all of its result.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "quire/base/text_range.h"

namespace quire::jinja {

enum class Source {
  own,      // the template wrote it, or the interpreter did (numbers, punctuation)
  outside,  // it came with a variable
};

inline Source worst(Source a, Source b) { return a == Source::outside ? a : b; }

class Origin {
 public:
  Origin() = default;  // all own
  Origin(Source source, std::size_t size) { append(source, 0, size); }

  // What came from outside.
  const std::vector<TextRange>& outside() const { return outside_; }
  std::vector<TextRange> take() { return std::move(outside_); }

  Source worst() const { return outside_.empty() ? Source::own : Source::outside; }
  Source at(std::size_t byte) const;
  Origin piece(std::size_t begin, std::size_t size) const;

  // The text had `size` bytes; now it has so many more.
  void append(Source source, std::size_t size, std::size_t more);
  // And now a piece of another text is behind it.
  void append(const Origin& other, std::size_t begin, std::size_t more, std::size_t size);

 private:
  // The first range that ends behind `byte`.
  std::vector<TextRange>::const_iterator behind(std::size_t byte) const;
  void add(std::size_t begin, std::size_t end);

  std::vector<TextRange> outside_;
};

}  // namespace quire::jinja

#include "quire/jinja/origin.h"

#include <algorithm>

namespace quire::jinja {

std::vector<TextRange>::const_iterator Origin::behind(std::size_t byte) const {
  return std::ranges::upper_bound(outside_, byte, {}, &TextRange::end);
}

Source Origin::at(std::size_t byte) const {
  const auto range = behind(byte);
  return range != outside_.end() && range->begin <= byte ? Source::outside : Source::own;
}

void Origin::add(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!outside_.empty() && outside_.back().end == begin) {
    outside_.back().end = end;
  } else {
    outside_.push_back({begin, end});
  }
}

void Origin::append(Source source, std::size_t size, std::size_t more) {
  if (source == Source::outside) add(size, size + more);
}

void Origin::append(const Origin& other, std::size_t begin, std::size_t more, std::size_t size) {
  const std::size_t end = begin + more;
  for (auto range = other.behind(begin); range != other.outside_.end() && range->begin < end; ++range) {
    add(size + std::max(range->begin, begin) - begin, size + std::min(range->end, end) - begin);
  }
}

Origin Origin::piece(std::size_t begin, std::size_t size) const {
  Origin result;
  result.append(*this, begin, size, 0);
  return result;
}

}  // namespace quire::jinja

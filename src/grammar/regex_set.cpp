#include "quire/grammar/regex_set.h"

#include <algorithm>
#include <ranges>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quire/grammar/regex_nodes.h"

namespace quire::grammar {

using regex::Node;

RegexSet::RegexSet(Budget& budget) : impl_(std::make_unique<Impl>(budget)) {}
RegexSet::~RegexSet() = default;
RegexSet::RegexSet(RegexSet&&) noexcept = default;
RegexSet& RegexSet::operator=(RegexSet&&) noexcept = default;

RegexId RegexSet::bytes(const ByteSet& set) { return impl_->bytes(set); }

RegexId RegexSet::text(std::string_view text) {
  if (!impl_->budget->take(text.size())) return kNothing;
  RegexId result = kEmpty;
  for (const char c : std::views::reverse(text)) {
    const auto byte = static_cast<std::uint8_t>(c);
    result = impl_->concat_node(impl_->bytes(ByteSet::range(byte, byte)), result);
  }
  return result;
}

RegexId RegexSet::concat(std::span<const RegexId> parts) {
  RegexId result = kEmpty;
  for (const RegexId part : std::views::reverse(parts)) result = impl_->concat2(part, result);
  return impl_->budget->exhausted() ? kNothing : result;
}

RegexId RegexSet::any_of(std::span<const RegexId> parts) { return impl_->any_of(parts); }
RegexId RegexSet::all_of(std::span<const RegexId> parts) { return impl_->all_of(parts); }
RegexId RegexSet::complement(RegexId of) { return impl_->complement(of); }
RegexId RegexSet::repeat(RegexId of, std::uint32_t least, std::uint32_t most) { return impl_->repeat(of, least, most); }

RegexId RegexSet::characters(char32_t first, char32_t last) {
  last = std::min<char32_t>(last, 0x10FFFF);
  std::vector<RegexId> parts;
  // The code points that have `extra` continuation bytes, from `low` to `high` in the same.
  const auto add = [&](auto&& self, char32_t low, char32_t high, unsigned extra, std::uint32_t lead) -> void {
    const auto byte = [](std::uint32_t value) { return static_cast<std::uint8_t>(value); };
    if (extra == 0) {
      parts.push_back(bytes(ByteSet::range(byte(lead | low), byte(lead | high))));
      return;
    }
    // Split so that all bytes but the first take their whole range, or the first ones are one byte.
    const char32_t rest = (char32_t{1} << (6 * extra)) - 1;
    if ((low & ~rest) != (high & ~rest)) {
      if ((low & rest) != 0) {
        self(self, low, low | rest, extra, lead);
        self(self, (low | rest) + 1, high, extra, lead);
        return;
      }
      if ((high & rest) != rest) {
        self(self, low, (high & ~rest) - 1, extra, lead);
        self(self, high & ~rest, high, extra, lead);
        return;
      }
    }
    const RegexId head = bytes(ByteSet::range(byte(lead | low >> (6 * extra)), byte(lead | high >> (6 * extra))));
    if ((low & rest) == 0 && (high & rest) == rest) {
      const RegexId more = bytes(ByteSet::range(0x80, 0xBF));
      parts.push_back(concat({head, repeat(more, extra, extra)}));
      return;
    }
    const std::size_t before = parts.size();
    self(self, low & rest, high & rest, extra - 1, 0x80);
    const std::vector<RegexId> tails(parts.begin() + static_cast<std::ptrdiff_t>(before), parts.end());
    parts.resize(before);
    parts.push_back(concat({head, any_of(tails)}));
  };
  struct Length {
    char32_t first, last;
    unsigned extra;
    std::uint32_t lead;
  };
  static constexpr Length kLengths[] = {{0, 0x7F, 0, 0},
                                        {0x80, 0x7FF, 1, 0xC0},
                                        {0x800, 0xD7FF, 2, 0xE0},
                                        {0xE000, 0xFFFF, 2, 0xE0},
                                        {0x10000, 0x10FFFF, 3, 0xF0}};
  for (const Length& length : kLengths) {
    const char32_t low = std::max(first, length.first), high = std::min(last, length.last);
    if (low <= high) add(add, low, high, length.extra, length.lead);
  }
  return any_of(parts);
}

bool RegexSet::matches_empty(RegexId of) const { return impl_->nodes[of].nullable; }
RegexId RegexSet::derivative(RegexId of, std::uint8_t byte) { return impl_->derivative(of, byte); }
bool RegexSet::matches_nothing(RegexId of) { return impl_->matches_nothing(of); }

bool RegexSet::matches(RegexId of, std::string_view text) {
  for (const char c : text) of = derivative(of, static_cast<std::uint8_t>(c));
  return matches_empty(of);
}

Budget& RegexSet::budget() { return *impl_->budget; }

const RegexSet::Classes& RegexSet::classes(RegexId of) { return impl_->class_sets[impl_->classes_of(of)]; }
std::uint32_t RegexSet::class_set(RegexId of) { return impl_->classes_of(of); }
std::uint32_t RegexSet::combined_class_set(std::uint32_t a, std::uint32_t b) { return impl_->combine(a, b); }
const RegexSet::Classes& RegexSet::class_set_at(std::uint32_t set) const { return impl_->class_sets[set]; }

RegexId RegexSet::within(RegexId of, std::uint32_t horizon) {
  const Node& node = impl_->nodes[of];
  if (!node.positive || node.counter <= horizon) return of;
  std::unordered_map<RegexId, RegexId> done;
  const RegexId result = impl_->within(of, horizon, done);
  return impl_->budget->exhausted() ? of : result;
}

bool RegexSet::surely_extends(RegexId of) const {
  const Node& node = impl_->nodes[of];
  return of != kNothing && of != kEmpty && (node.positive || (node.sure && !node.nullable));
}

RegexId RegexSet::import(const RegexSet& from, RegexId of) {
  std::unordered_map<RegexId, RegexId> done;
  return impl_->import(*from.impl_, of, done);
}

void RegexSet::use(Budget& budget) { impl_->budget = &budget; }

std::size_t RegexSet::bytes_used() const {
  const Impl& impl = *impl_;
  return impl.nodes.capacity() * (sizeof(Node) + 5) + impl.lists.capacity() * sizeof(RegexId) +
         impl.sets.capacity() * sizeof(ByteSet) + impl.table.capacity() * 4 +
         impl.class_sets.capacity() * sizeof(Classes) + impl.combined.bytes() + impl.derivatives.bytes() +
         impl.visited.capacity() * 4;
}

std::size_t RegexSet::size() const { return impl_->nodes.size(); }

}  // namespace quire::grammar

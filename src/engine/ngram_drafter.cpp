#include "quire/engine/ngram_drafter.h"

#include <algorithm>
#include <bit>
#include <new>

namespace quire::engine {
namespace {

constexpr std::uint32_t kLooks = 16;    // places of a chain that are compared
constexpr std::uint32_t kLongest = 32;  // tokens of a match; longer ones are no better
constexpr std::uint32_t kLeast = 1024;  // entries of a table of hashes

// Matches of at least so many tokens are of a kind.
constexpr std::uint32_t kKindLengths[kDraftKinds] = {2, 3, 4, 6, 10, 20};
constexpr double kExpected[kDraftKinds] = {0.25, 0.4, 0.5, 0.6, 0.75, 0.85};

std::uint32_t hash_of(std::span<const Token> tokens) {
  std::uint64_t hash = 0;
  for (const Token token : tokens) hash = (hash + static_cast<std::uint32_t>(token) + 1) * 0x9E3779B97F4A7C15;
  return static_cast<std::uint32_t>(hash >> 32);
}

std::uint32_t common_end(std::span<const Token> text, std::uint32_t end) {
  std::uint32_t length = 0;
  while (length < kLongest && length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
  return length;
}

std::uint32_t kind_of(std::uint32_t length) {
  std::uint32_t kind = 0;
  while (kind + 1 < kDraftKinds && length >= kKindLengths[kind + 1]) ++kind;
  return kind;
}

}  // namespace

NgramIndex::NgramIndex(std::uint32_t longest)
    : mask_(std::bit_ceil(std::max(longest, kLeast)) / 2 - 1),
      threes_(std::size_t{mask_} + 1),
      twos_(std::size_t{mask_} + 1),
      earlier_(longest) {}

// The last position is not in the index while it is the end of the text: it would match itself.
void NgramIndex::add(std::span<const Token> text) {
  for (; known_ + 1 < text.size() && known_ < earlier_.size(); ++known_) {
    if (known_ >= 1) twos_[hash_of(text.subspan(known_ - 1, 2)) & mask_] = known_ + 1;
    if (known_ < 2) continue;
    std::uint32_t& last = threes_[hash_of(text.subspan(known_ - 2, 3)) & mask_];
    earlier_[known_] = last;
    last = known_ + 1;
  }
}

NgramIndex::Match NgramIndex::find(std::span<const Token> text) {
  add(text);
  Match best;
  if (text.size() < 3) return best;
  std::uint32_t end = threes_[hash_of(text.last(3)) & mask_];
  for (std::uint32_t looks = 0; end != 0 && looks < kLooks && best.length < kLongest; ++looks) {
    if (const std::uint32_t length = common_end(text, end); length > best.length) best = {end, length};
    end = earlier_[end - 1];
  }
  if (best.length >= 3) return best;
  end = twos_[hash_of(text.last(2)) & mask_];
  const std::uint32_t length = end == 0 ? 0 : common_end(text, end);
  return length >= 2 ? Match{end, length} : Match{};
}

void NgramDrafter::propose(Drafts& drafts) {
  drafts.count = 0;
  if (drafts.most == 0) return;
  if (!drafts.memory) {
    try {
      drafts.memory = std::make_unique<NgramIndex>(drafts.longest);
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  const NgramIndex::Match match = static_cast<NgramIndex&>(*drafts.memory).find(drafts.text);
  if (match.length == 0) return;
  drafts.kind = kind_of(match.length);
  const std::uint32_t most = std::min(drafts.most, kMostDrafts);
  for (std::uint32_t i = 0; i < most; ++i) {
    // What repeats with a short period goes on beyond the end of the text.
    const std::size_t from = match.end + i;
    drafts.tokens[i] = from < drafts.text.size() ? drafts.text[from] : drafts.tokens[from - drafts.text.size()];
  }
  drafts.count = most;
}

void NgramDrafter::propose(std::span<Drafts* const> wanted) {
  for (Drafts* drafts : wanted) propose(*drafts);
}

double NgramDrafter::expected(std::uint32_t kind) const { return kExpected[kind]; }

}  // namespace quire::engine

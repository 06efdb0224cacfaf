// Admission: a sequence and the room for all its tokens, beside what running sequences will need.
#include <algorithm>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {

// The most pages that a sequence of so many tokens holds at once: all of them, or a window and the chunk after it. The
// window may begin in the middle of a page.
std::uint32_t SequencePool::most_pages(std::uint32_t group, std::uint32_t tokens, std::uint32_t chunk) const {
  const std::uint32_t window = layout().groups[group].window;
  const std::uint32_t all = divide_up(tokens, block_size());
  if (window == 0) return all;
  const std::uint64_t span = std::uint64_t{window} + std::max(chunk, 1u) + block_size() - 2;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(all, divide_up<std::uint64_t>(span, block_size())));
}

// What the running sequences take, beyond what they hold, until each has its rows. Half-full pages that only the index
// shares are not copied: if there is no room for the copy, they are removed from the index instead.
PoolResult<SequencePool::Need> SequencePool::future_need(std::span<const BatchEntry> others,
                                                         std::uint32_t chunk) const {
  Need need{};
  for (std::size_t i = 0; i < others.size(); ++i) {
    const Sequence* sequence = find(others[i].sequence);
    if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(others[i].sequence.index));
    const std::uint64_t target = std::uint64_t{sequence->length} + others[i].rows;
    if (target > config_.max_tokens) return std::unexpected(PoolError::too_long("tokens", target, config_.max_tokens));
    const auto until = static_cast<std::uint32_t>(target);
    for (std::uint32_t g = 0; g < groups(); ++g) {
      const PagedSeqState& group = sequence->groups[g];
      std::uint32_t missing = group.pages_missing(until);
      if (layout().groups[g].window != 0) {
        const std::uint32_t held = group.table().size() - group.table().first();
        const std::uint32_t most = most_pages(g, until, chunk);
        missing = std::max(group.pages_missing(std::min(until, sequence->length + chunk)),
                           std::min(missing, most - std::min(most, held)));
      }
      need[g] += missing + (copies(others, i, g, false) ? 1 : 0);
    }
  }
  return need;
}

// Counts, for every page, how many of these sequences hold it, and returns how many objects nobody would hold without
// them.
SequencePool::Need SequencePool::count_leaving(std::span<const SequenceId> leaving) const {
  Need freed{};
  for (const SequenceId id : leaving) {
    const Sequence* sequence = find(id);
    if (sequence == nullptr) continue;
    for (std::uint32_t g = 0; g < groups(); ++g) {
      const BlockTable& table = sequence->groups[g].table();
      for (std::uint32_t b = table.first(); b < table.size(); ++b) {
        const std::uint32_t page = table.page(b).index;
        freed[g] += ++leaving_[g][page] == allocator(g).references_at(page);
      }
    }
    if (states_) ++freed[state_class()];
  }
  return freed;
}

void SequencePool::forget_leaving(std::span<const SequenceId> leaving) const {
  for (const SequenceId id : leaving) {
    const Sequence* sequence = find(id);
    if (sequence == nullptr) continue;
    for (std::uint32_t g = 0; g < groups(); ++g) {
      const BlockTable& table = sequence->groups[g].table();
      for (std::uint32_t b = table.first(); b < table.size(); ++b) leaving_[g][table.page(b).index] = 0;
    }
  }
}

// The objects for a sequence on a matched prefix, with room for all its tokens.
SequencePool::Need SequencePool::need_to_admit(const Match& match, std::uint32_t tokens, std::uint32_t chunk) const {
  Need need = need_to_attach(match, path_);
  const bool partial = match.partial_tokens > 0;
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const std::uint32_t there = match.blocks + (partial ? 1 : 0);
    const std::uint32_t blocks = divide_up(tokens, block_size());
    std::uint32_t missing = blocks - std::min(blocks, there);
    if (layout().groups[g].window != 0) {
      const std::uint32_t held = there - std::min(there, window_start(g, match.length()) / block_size());
      const std::uint32_t first = divide_up(std::min(tokens, match.length() + chunk), block_size());
      const std::uint32_t most = most_pages(g, tokens, chunk);
      missing = std::max(first - std::min(first, there), std::min(missing, most - std::min(most, held)));
    }
    need[g] += missing + (partial ? 1 : 0);  // a page that is shared in part is copied
  }
  return need;
}

// The most of the prefix with which everything fits: all, its whole blocks, or nothing. Counts alone decide, so nothing
// is evicted before it is certain that there is room.
std::optional<SequencePool::Match> SequencePool::best_that_fits(const Match& found, std::uint32_t tokens,
                                                                std::uint32_t chunk, const Need& others,
                                                                const Need& freed) const {
  const auto fits = [&](const Match& match) {
    Need need = need_to_admit(match, tokens, chunk);
    for (std::size_t c = 0; c < need.size(); ++c) need[c] += others[c];
    return feasible(need, freed);
  };
  if (fits(found)) return found;
  const Match whole = found.whole_blocks(block_size());
  if (found.partial_tokens > 0 && fits(whole)) return whole;
  if (found.length() > 0 && fits(found.without_prefix())) return found.without_prefix();
  return std::nullopt;
}

PoolResult<void> SequencePool::can_admit(const Request& request, std::uint32_t tokens, std::uint32_t chunk,
                                         std::span<const BatchEntry> others,
                                         std::span<const SequenceId> leaving) const {
  if (tokens > config_.max_tokens) return std::unexpected(PoolError::too_long("tokens", tokens, config_.max_tokens));
  if (free_sequences_.empty() && leaving.empty()) return std::unexpected(PoolError::exhausted("sequences", 1, 0));
  Match found;
  if (request.reuse && config_.prefix_cache) found = match(request.prompt, request.name_space, path_);
  const auto planned = future_need(others, chunk);
  if (!planned) return std::unexpected(planned.error());
  const Need freed = count_leaving(leaving);
  const bool fits = best_that_fits(found, tokens, chunk, *planned, freed).has_value();
  forget_leaving(leaving);
  if (!fits) return std::unexpected(refusal(need_to_admit(found, tokens, chunk)));
  return {};
}

PoolResult<SequencePool::Created> SequencePool::do_admit(const Request& request, std::uint32_t tokens,
                                                         std::uint32_t chunk, std::span<const BatchEntry> others) {
  if (tokens > config_.max_tokens || request.prompt.size() > tokens) {
    return std::unexpected(PoolError::too_long("tokens", std::max<std::uint64_t>(tokens, request.prompt.size()),
                                               std::min(tokens, config_.max_tokens)));
  }
  if (free_sequences_.empty()) return refuse(PoolError::exhausted("sequences", 1, 0));
  Match found;
  found.hit.end = HitEnd::Disabled;
  const bool look = request.reuse && config_.prefix_cache;
  if (look) found = match(request.prompt, request.name_space, path_);
  const auto planned = future_need(others, chunk);
  if (!planned) return std::unexpected(planned.error());
  const auto best = best_that_fits(found, tokens, chunk, *planned, {});
  if (!best) return refuse(refusal(need_to_admit(found, tokens, chunk)));
  return create_and_reserve(request, *best, look, tokens, chunk);
}

// Creates the sequence and reserves its room: both or nothing. The caller has counted that there is room.
PoolResult<SequencePool::Created> SequencePool::create_and_reserve(const Request& request, const Match& found,
                                                                   bool looked, std::uint32_t tokens,
                                                                   std::uint32_t chunk) {
  const auto created = create_from(request, found, looked);
  if (!created) return created;
  const std::uint32_t missing = tokens - created->hit.tokens;
  const BatchEntry entry{.sequence = created->id, .rows = has_windows_ ? std::min(missing, chunk) : missing};
  const auto room = do_reserve(std::span(&entry, 1));
  if (room) return created;
  const auto ok = do_release(created->id);
  QUIRE_CHECK(ok.has_value(), "the sequence was just created");
  return std::unexpected(room.error());
}

}  // namespace quire

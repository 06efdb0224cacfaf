// Admission: a sequence and the room for all its tokens, beside what running sequences will need.
#include <algorithm>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {

PoolResult<void> SequencePool::fits_beside(Need need, std::span<const BatchEntry> others) const {
  if (!others.empty()) {
    const auto planned = plan(others);
    if (!planned) return std::unexpected(planned.error());
    for (std::size_t c = 0; c < need.size(); ++c) need[c] += planned->need[c];
  }
  if (!feasible(need)) return std::unexpected(refusal(need));
  return {};
}

PoolResult<void> SequencePool::can_admit(const Request& request, std::uint32_t tokens, std::uint32_t chunk,
                                         std::span<const BatchEntry> others) const {
  if (tokens > config_.max_tokens) return std::unexpected(PoolError::too_long("tokens", tokens, config_.max_tokens));
  if (free_sequences_.empty()) return std::unexpected(PoolError::exhausted("sequences", 1, 0));
  Match found;
  if (request.reuse && config_.prefix_cache) found = match(request.prompt, request.name_space, path_);
  auto fits = fits_beside(need_to_admit(found, tokens, chunk), others);
  if (fits || found.length() == 0) return fits;
  return fits_beside(need_to_admit(Match{}, tokens, chunk), others);
}

// The objects for a sequence on a matched prefix, with room for all its tokens.
SequencePool::Need SequencePool::need_to_admit(const Match& match, std::uint32_t tokens, std::uint32_t chunk) const {
  Need need = need_to_attach(match, path_);
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const std::uint32_t window = layout().groups[g].window;
    const std::uint32_t until = window == 0 ? tokens : std::min(tokens, match.length() + chunk);
    const bool partial = match.partial_tokens > 0;
    const std::uint32_t there = match.blocks + (partial ? 1 : 0);
    const std::uint32_t blocks = divide_up(until, block_size());
    need[g] += blocks - std::min(blocks, there);
    // A page that another sequence holds must be copied. One that only the index knows need not be.
    if (partial) {
      need[g] += allocator(g).references_at(index_->page(match.partial_node, g).index) > 0;
    }
  }
  return need;
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
  // The count overestimates what a prefix takes. If there is room without the prefix, reuse is still tried first.
  auto fits = fits_beside(need_to_admit(found, tokens, chunk), others);
  if (!fits && found.length() > 0) fits = fits_beside(need_to_admit(found.without_prefix(), tokens, chunk), others);
  if (!fits) return refuse(fits.error());
  if (!feasible(need_to_attach(found, path_))) found = found.without_prefix();
  auto created = create_and_reserve(request, found, look, tokens, chunk, others);
  // The prefix itself may take the room that is missing.
  if (!created && created.error().code == PoolError::Code::Exhausted && found.length() > 0 && others.empty()) {
    created = create_and_reserve(request, found.without_prefix(), look, tokens, chunk, others);
  }
  return created;
}

// Creates the sequence and reserves its room: both or nothing.
PoolResult<SequencePool::Created> SequencePool::create_and_reserve(const Request& request, const Match& found,
                                                                   bool looked, std::uint32_t tokens,
                                                                   std::uint32_t chunk,
                                                                   std::span<const BatchEntry> others) {
  const auto created = create_from(request, found, looked);
  if (!created) return created;
  const std::uint32_t missing = tokens - created->hit.tokens;
  const BatchEntry entry{.sequence = created->id, .rows = has_windows_ ? std::min(missing, chunk) : missing};
  auto room = do_reserve(std::span(&entry, 1));
  if (room) room = can_reserve(others);
  if (room) return created;
  const auto ok = do_release(created->id);
  QUIRE_CHECK(ok.has_value(), "the sequence was just created");
  return std::unexpected(room.error());
}

}  // namespace quire

// Suspend and resume: a sequence leaves this pool to make room and comes back to it.
#include <algorithm>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {

PoolResult<std::unique_ptr<HostArena>> SequencePool::create_host_arena(std::uint64_t bytes) const {
  // The smallest object fills a cell, and each larger one wastes less than a cell.
  std::uint64_t cell = object_bytes(0);
  for (std::uint32_t c = 1; c < classes(); ++c) cell = std::min(cell, object_bytes(c));
  return HostArena::create(arena_->device(), bytes, cell);
}

// Whether suspend() leaves this page in the pool. Another sequence must hold the page, and also its block in the index:
// otherwise the block could be evicted while the page is held (by a sequence that shares only part of the page), and
// nobody would find it again.
bool SequencePool::stays(const Sequence& sequence, std::uint32_t group, std::uint32_t block) const {
  return block < sequence.chain && index_->node(sequence.nodes[block]).holders > 1 &&
         allocator(group).references_at(sequence.groups[group].table().page(block).index) > 1;
}

// Calls visit(object, address) for everything that suspend() copies, until it returns an error.
template <typename Visit>
PoolResult<void> SequencePool::for_each_copied(const Sequence& sequence, Visit visit) const {
  const std::uint32_t blocks = divide_up(sequence.length, block_size());
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const BlockTable& table = sequence.groups[g].table();
    for (std::uint32_t b = table.first(); b < blocks; ++b) {
      if (stays(sequence, g, b)) continue;
      if (auto ok = visit(HostArena::Object{g, b}, pools_[g]->address(table.page(b).index)); !ok) return ok;
    }
  }
  if (!states_) return {};
  return visit(HostArena::Object{state_class(), 0}, states_->at(sequence.slot.index).state().view().base);
}

PoolResult<SequencePool::Holding> SequencePool::holding(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  Holding holding;
  (void)for_each_copied(*sequence, [&](HostArena::Object object, const std::byte*) -> PoolResult<void> {
    holding.saved_bytes += object_bytes(object.cls);
    return {};
  });
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const BlockTable& table = sequence->groups[g].table();
    for (std::uint32_t b = table.first(); b < table.size(); ++b) {
      holding.own_bytes += allocator(g).references_at(table.page(b).index) == 1 ? object_bytes(g) : 0;
    }
  }
  if (states_) holding.own_bytes += object_bytes(state_class());
  // Whoever holds a node also holds its ancestors, so the shared part is a prefix.
  std::uint32_t shared = 0;
  for (; shared < sequence->chain && index_->node(sequence->nodes[shared]).holders > 1; ++shared) {
    if (!states_ || index_->has_checkpoint(sequence->nodes[shared]))
      holding.shared_tokens = (shared + 1) * block_size();
  }
  // A part below a block that others hold, if no block after it can be resumed from.
  for (std::uint32_t b = shared; index_->has_parts() && b > 0 && b * block_size() >= holding.shared_tokens; --b) {
    const auto after = std::span(sequence->tokens.get(), sequence->length).subspan(std::size_t{b} * block_size());
    const std::uint32_t part = resumable_part(sequence->name_space, sequence->nodes[b - 1], after);
    if (part == kNoIndex) continue;
    holding.shared_tokens = index_->end(part);
    break;
  }
  return holding;
}

PoolResult<SuspendedSequence> SequencePool::do_suspend(SequenceId id, HostArena& arena) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (sequence->has_drafts()) return std::unexpected(PoolError::invalid_argument(kHasDrafts));
  SuspendedSequence suspended{.model = config_.model,
                              .layout = layout_fingerprint_,
                              .name_space = sequence->name_space,
                              .length = sequence->length,
                              .tokens = hash_of({sequence->tokens.get(), sequence->length}),
                              .cells = HostArena::List(arena)};
  const std::uint32_t blocks = divide_up(sequence->length, block_size());
  for (std::uint32_t g = 0; g < groups(); ++g) {
    suspended.first_blocks[g] = std::min(blocks, sequence->groups[g].table().first());
  }
  std::uint64_t cells = 0;
  (void)for_each_copied(*sequence, [&](HostArena::Object object, const std::byte*) -> PoolResult<void> {
    cells += arena.cells_for(object_bytes(object.cls));
    suspended.bytes += object_bytes(object.cls);
    return {};
  });
  if (cells > arena.free_cells()) {
    return refuse(PoolError::exhausted("cells of the host arena", cells, arena.free_cells()));
  }
  const auto copied = for_each_copied(*sequence, [&](HostArena::Object object, const std::byte* from) {
    return suspended.cells.store(object, from, object_bytes(object.cls));
  });
  const auto fenced = arena_->device().fence();         // also after a refusal: the cells are freed when this returns
  if (!fenced) return std::unexpected(fenced.error());  // reported first: it affects more than this sequence
  if (!copied) return std::unexpected(copied.error());
  remove(*sequence);
  return suspended;
}

PoolResult<void> SequencePool::acceptable(const SuspendedSequence& suspended, std::span<const Token> tokens) const {
  if (suspended.model != config_.model) return std::unexpected(PoolError::incompatible("model"));
  if (suspended.layout != layout_fingerprint_) return std::unexpected(PoolError::incompatible("layout"));
  if (suspended.length > config_.max_tokens) {
    return std::unexpected(PoolError::too_long("tokens", suspended.length, config_.max_tokens));
  }
  if (tokens.size() != suspended.length || hash_of(tokens) != suspended.tokens) {
    return std::unexpected(PoolError::invalid_argument("other tokens than those of the suspended sequence"));
  }
  return {};
}

PoolResult<void> SequencePool::can_resume(const SuspendedSequence& suspended, std::span<const Token> tokens,
                                          std::uint32_t more, std::uint32_t chunk, std::span<const BatchEntry> others,
                                          std::span<const SequenceId> leaving) const {
  if (auto ok = acceptable(suspended, tokens); !ok) return ok;
  return can_return(copy_in(suspended, tokens), more, chunk, others, leaving);
}

PoolResult<SequenceId> SequencePool::do_resume(const SuspendedSequence& suspended, std::span<const Token> tokens,
                                               RequestId request) {
  if (auto ok = acceptable(suspended, tokens); !ok) return std::unexpected(ok.error());
  const Copy copy = copy_in(suspended, tokens);
  const auto plan = plan_return(copy);
  if (!plan) return refuse(plan.error());
  return bring_back(copy, *plan, request);
}

}  // namespace quire

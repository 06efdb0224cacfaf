// The public operations of a pool: each does its work (do_...) and tells the journal, if there is one.
#include "quire/state/pool_journal.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {
namespace {

using Op = PoolOperation::Kind;

// Whether a refusal is told: those that depend on what the pool holds or on the device. They may have side effects
// (cached content was evicted). All other refusals come before any change.
bool is_told(const PoolError& error) {
  using Code = PoolError::Code;
  return error.code == Code::Exhausted || error.code == Code::PrefixGone || error.code == Code::DeviceFailure ||
         error.code == Code::WorkFailed;
}

}  // namespace

const char* name(PoolOperation::Kind kind) {
  switch (kind) {
    case Op::Create: return "create";
    case Op::Admit: return "admit";
    case Op::Reserve: return "reserve";
    case Op::Commit: return "commit";
    case Op::Fork: return "fork";
    case Op::Rewind: return "rewind";
    case Op::Release: return "release";
    case Op::Save: return "save";
    case Op::Restore: return "restore";
    case Op::Suspend: return "suspend";
    case Op::Resume: return "resume";
    case Op::SetCosts: return "set_costs";
    case Op::SetShare: return "set_share";
    case Op::DropCache: return "drop_cache";
    case Op::Recover: return "recover";
    case Op::AllocPage: return "alloc_kv";
    case Op::FreePage: return "free_kv";
    case Op::AllocSlot: return "alloc_ssm";
    case Op::FreeSlot: return "release_ssm";
    case Op::Draft: return "draft";
    case Op::EndDraft: return "end_draft";
  }
  return "?";
}

PoolCounts SequencePool::counts() const {
  PoolCounts counts{.classes = classes(), .known_blocks = index_->size()};
  for (std::uint32_t c = 0; c < classes(); ++c) {
    counts.objects[c] = {allocator(c).held_count(), allocator(c).cached_count()};
  }
  return counts;
}

// Completes the operation with its answer and tells the journal. `answer` copies the value of a success.
template <typename T, typename Answer>
void SequencePool::tell(PoolOperation operation, const PoolResult<T>& result, Answer answer) const {
  if (!result && !is_told(result.error())) return;
  if (result) {
    answer(operation);
  } else {
    operation.error = result.error().code;
  }
  operation.counts = counts();
  config_.journal->record(operation);
}
template <typename T>
void SequencePool::tell(const PoolOperation& operation, const PoolResult<T>& result) const {
  tell(operation, result, [](PoolOperation&) {});
}

PoolResult<SequencePool::Created> SequencePool::create(const Request& request) {
  const auto created = do_create(request);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::Create, .name_space = request.name_space, .reuse = request.reuse, .tokens = request.prompt},
         created, [&](PoolOperation& o) { o.made = created->id, o.hit = created->hit; });
  }
  return created;
}

PoolResult<SequencePool::Created> SequencePool::admit(const Request& request, std::uint32_t tokens, std::uint32_t chunk,
                                                      std::span<const BatchEntry> others) {
  const auto created = do_admit(request, tokens, chunk, others);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::Admit,
          .name_space = request.name_space,
          .reuse = request.reuse,
          .total = tokens,
          .chunk = chunk,
          .tokens = request.prompt,
          .entries = others},
         created, [&](PoolOperation& o) { o.made = created->id, o.hit = created->hit; });
  }
  return created;
}

PoolResult<void> SequencePool::reserve(SequenceId id, std::uint32_t tokens) {
  if (is_reserved(id, tokens)) return {};
  const BatchEntry entry{.sequence = id, .rows = tokens};
  return reserve(std::span(&entry, 1));
}

PoolResult<void> SequencePool::reserve(std::span<const BatchEntry> entries) {
  if (config_.journal == nullptr) [[likely]]
    return do_reserve(entries);
  const auto ok = do_reserve(entries);
  tell({.kind = Op::Reserve, .entries = entries}, ok);
  return ok;
}

PoolResult<void> SequencePool::commit(SequenceId id, std::span<const Token> tokens, bool checkpoint) {
  if (config_.journal == nullptr) [[likely]]
    return do_commit(id, tokens, checkpoint);
  const auto ok = do_commit(id, tokens, checkpoint);
  tell({.kind = Op::Commit, .sequence = id, .checkpoint = checkpoint, .tokens = tokens}, ok);
  return ok;
}

PoolResult<void> SequencePool::commit(const Batch& batch) {
  for (const BatchEntry& entry : batch.entries()) {
    if (auto ok = commit(entry.sequence, batch.tokens(entry), entry.checkpoint); !ok) return ok;
  }
  return {};
}

PoolResult<void> SequencePool::draft(SequenceId id, std::uint32_t certain, std::uint32_t drafts) {
  const auto ok = do_draft(id, certain, drafts);
  if (config_.journal != nullptr) [[unlikely]]
    tell({.kind = Op::Draft, .sequence = id, .total = certain, .chunk = drafts}, ok);
  return ok;
}

PoolResult<void> SequencePool::end_draft(SequenceId id) {
  const auto ok = do_end_draft(id);
  if (config_.journal != nullptr) [[unlikely]]
    tell({.kind = Op::EndDraft, .sequence = id}, ok);
  return ok;
}

PoolResult<SequencePool::Forked> SequencePool::fork(SequenceId id, std::uint32_t position, RequestId request) {
  const auto forked = do_fork(id, position, request);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::Fork, .sequence = id, .position = position}, forked,
         [&](PoolOperation& o) { o.made = forked->id, o.reached = forked->position; });
  }
  return forked;
}

PoolResult<std::uint32_t> SequencePool::rewind(SequenceId id, std::uint32_t position) {
  const auto reached = do_rewind(id, position);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::Rewind, .sequence = id, .position = position}, reached,
         [&](PoolOperation& o) { o.reached = *reached; });
  }
  return reached;
}

PoolResult<void> SequencePool::release(SequenceId id) {
  const auto ok = do_release(id);
  if (config_.journal != nullptr) [[unlikely]]
    tell({.kind = Op::Release, .sequence = id}, ok);
  return ok;
}

PoolResult<SavedSequence> SequencePool::save(SequenceId id) const {
  auto saved = do_save(id);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::Save, .sequence = id}, saved, [&](PoolOperation& o) { o.bytes = saved->bytes; });
  }
  return saved;
}

PoolResult<SequenceId> SequencePool::restore(const SavedSequence& saved, RequestId request) {
  const auto id = do_restore(saved, request);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::Restore,
          .name_space = saved.name_space,
          .tokens = saved.tokens,
          .first_blocks = saved.first_blocks},
         id, [&](PoolOperation& o) { o.made = *id; });
  }
  return id;
}

PoolResult<SequenceId> SequencePool::restore(const SavedView& view, RequestId request) {
  const auto id = do_restore(view, request);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::Restore, .name_space = view.name_space, .tokens = view.tokens, .first_blocks = view.first_blocks},
         id, [&](PoolOperation& o) { o.made = *id; });
  }
  return id;
}

PoolResult<SuspendedSequence> SequencePool::suspend(SequenceId id, HostArena& arena) {
  const std::uint64_t free_cells = arena.free_cells();
  auto suspended = do_suspend(id, arena);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::Suspend, .sequence = id, .cell_bytes = arena.cell_bytes(), .free_cells = free_cells}, suspended,
         [&](PoolOperation& o) { o.bytes = suspended->bytes; });
  }
  return suspended;
}

PoolResult<SequenceId> SequencePool::resume(const SuspendedSequence& suspended, std::span<const Token> tokens,
                                            RequestId request) {
  const auto id = do_resume(suspended, tokens, request);
  if (config_.journal != nullptr && (id || is_told(id.error()))) [[unlikely]] {
    tell({.kind = Op::Resume,
          .name_space = suspended.name_space,
          .tokens = tokens,
          .first_blocks = std::span(suspended.first_blocks).first(groups()),
          .not_copied = not_copied(copy_in(suspended, tokens))},
         id, [&](PoolOperation& o) { o.made = *id; });
  }
  return id;
}

// For the journal it is a sequence that comes back: what was fetched is what was copied.
PoolResult<SequenceId> SequencePool::promote(std::span<const Token> tokens, Namespace name_space,
                                             std::span<const FetchedObject> fetched, RequestId request) {
  const auto id = do_promote(tokens, name_space, fetched, request);
  if (config_.journal != nullptr && (id || is_told(id.error()))) [[unlikely]] {
    const Copy copy = copy_in(tokens, name_space, fetched);
    tell({.kind = Op::Resume,
          .name_space = name_space,
          .tokens = tokens,
          .first_blocks = copy.first_blocks,
          .not_copied = not_copied(copy)},
         id, [&](PoolOperation& o) { o.made = *id; });
  }
  return id;
}

void SequencePool::set_costs(const RecomputeCosts& costs) {
  if (costs == costs_) return;
  costs_ = costs;
  if (config_.journal != nullptr) [[unlikely]]
    tell({.kind = Op::SetCosts, .costs = costs}, PoolResult<void>());
}

PoolResult<void> SequencePool::set_share(Namespace tenant, std::uint64_t floor, std::uint64_t cap) {
  const auto ok = do_set_share(tenant, floor, cap);
  if (config_.journal != nullptr) [[unlikely]]
    tell({.kind = Op::SetShare, .name_space = tenant, .floor = floor, .cap = cap}, ok);
  return ok;
}

void SequencePool::drop_cache() {
  do_drop_cache();
  if (config_.journal != nullptr) [[unlikely]]
    tell({.kind = Op::DropCache}, PoolResult<void>());
}

PoolResult<void> SequencePool::recover() {
  const auto ok = do_recover();
  if (config_.journal != nullptr) [[unlikely]]
    tell({.kind = Op::Recover}, ok);
  return ok;
}

PoolResult<PageId> SequencePool::alloc_kv(std::uint32_t group) {
  const auto page = do_alloc_kv(group);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::AllocPage, .group = group}, page, [&](PoolOperation& o) { o.object = *page; });
  }
  return page;
}

PoolResult<void> SequencePool::free_kv(PageId page, std::uint32_t group) {
  const auto ok = do_free_kv(page, group);
  if (config_.journal != nullptr) [[unlikely]]
    tell({.kind = Op::FreePage, .group = group, .object = page}, ok);
  return ok;
}

PoolResult<SlotId> SequencePool::alloc_ssm(RequestId request) {
  const auto slot = do_alloc_ssm(request);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::AllocSlot}, slot, [&](PoolOperation& o) { o.object = {slot->index, slot->generation}; });
  }
  return slot;
}

PoolResult<void> SequencePool::release_ssm(SlotId id) {
  const auto ok = do_release_ssm(id);
  if (config_.journal != nullptr) [[unlikely]] {
    tell({.kind = Op::FreeSlot, .object = {id.index, id.generation}}, ok);
  }
  return ok;
}

}  // namespace quire

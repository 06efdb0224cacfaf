// Content that comes from elsewhere, and who is told of content that leaves.
#include "quire/base/check.h"
#include "quire/state/content_observer.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {

// Parts of blocks are told to nobody: only full blocks and the states at their ends are kept elsewhere.
void SequencePool::note_stored(std::uint32_t node, std::uint32_t cls) {
  if (observer_ != nullptr && !index_->is_part(node)) [[unlikely]]
    observer_->stored(node, cls);
}
void SequencePool::note_dropping(std::uint32_t node, std::uint32_t cls) {
  if (observer_ != nullptr && !index_->is_part(node)) [[unlikely]]
    observer_->dropping(node, cls);
}

std::uint32_t SequencePool::known_blocks(std::span<const Token> tokens, Namespace name_space,
                                         std::span<std::uint32_t> path) const {
  return config_.prefix_cache ? index_->match(name_space, tokens, path) : 0;
}

SequencePool::CachedObject SequencePool::cached_object(std::uint32_t node, std::uint32_t cls) const {
  if (cls < groups()) {
    const PageId page = index_->page(node, cls);
    return page.valid() ? CachedObject{pools_[cls]->address(page.index), object_bytes(cls)} : CachedObject{};
  }
  const SlotId slot = index_->checkpoint(node);
  return slot.valid() ? CachedObject{states_->at(slot.index).state().view().base, object_bytes(cls)} : CachedObject{};
}

PoolResult<void> SequencePool::acceptable(std::span<const Token> tokens, std::span<const FetchedObject> fetched) const {
  if (tokens.size() > config_.max_tokens) {
    return std::unexpected(PoolError::too_long("tokens", tokens.size(), config_.max_tokens));
  }
  const auto no = [](const char* what) { return std::unexpected(PoolError::invalid_argument(what)); };
  if (tokens.empty() || tokens.size() % block_size() != 0) return no("promote() needs whole blocks of tokens");
  bool has_state = false;
  for (const FetchedObject& object : fetched) {
    if ((object.bytes == nullptr) == (object.cells == nullptr) || object.cls >= classes())
      return no("a fetched object of no class of this pool");
    if (object.cls == groups()) {
      has_state = true;
    } else if (object.block >= tokens.size() / block_size()) {
      return no("a fetched page after the end of the tokens");
    }
  }
  if (states_ && !has_state) return no("promote() needs the recurrent state at the end of the tokens");
  return {};
}

SequencePool::Copy SequencePool::copy_in(std::span<const Token> tokens, Namespace name_space,
                                         std::span<const FetchedObject> fetched) const {
  for (std::uint32_t g = 0; g < groups(); ++g) {
    first_blocks_[g] = first_block_needed(g, static_cast<std::uint32_t>(tokens.size()));
  }
  return {.tokens = tokens,
          .name_space = name_space,
          .first_blocks = std::span<const std::uint32_t>(first_blocks_).first(groups()),
          .saved = nullptr,
          .suspended = nullptr,
          .fetched = fetched};
}

PoolResult<SequenceId> SequencePool::do_promote(std::span<const Token> tokens, Namespace name_space,
                                                std::span<const FetchedObject> fetched, RequestId request) {
  if (auto ok = acceptable(tokens, fetched); !ok) return std::unexpected(ok.error());
  const Copy copy = copy_in(tokens, name_space, fetched);
  const auto plan = plan_return(copy);
  if (!plan) return refuse(plan.error());
  return bring_back(copy, *plan, request);
}

}  // namespace quire

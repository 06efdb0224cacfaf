// Save and restore: complete copies of sequences and their checkpoints, for files and other pools.
#include <algorithm>

#include "quire/state/out_of_memory.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {

// The size of a complete copy.
std::uint64_t SequencePool::bytes_of(const Sequence& sequence) const {
  const std::uint32_t blocks = divide_up(sequence.length, block_size());
  std::uint64_t bytes = states_ ? object_bytes(state_class()) : 0;
  for (std::uint32_t g = 0; g < groups(); ++g) {
    bytes += std::uint64_t{blocks - std::min(blocks, sequence.groups[g].table().first())} * object_bytes(g);
  }
  return bytes;
}

PoolResult<SavedSequence> SequencePool::do_save(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (sequence->has_drafts()) return std::unexpected(PoolError::invalid_argument(kHasDrafts));
  SavedSequence saved{.model = config_.model,
                      .layout = layout_fingerprint_,
                      .name_space = sequence->name_space,
                      .bytes = bytes_of(*sequence)};
  const auto room = or_out_of_memory("a saved sequence", [&]() -> PoolResult<void> {
    saved.tokens.assign(sequence->tokens.get(), sequence->tokens.get() + sequence->length);
    saved.first_blocks.reserve(groups());
    return {};
  });
  if (!room) return std::unexpected(room.error());
  auto data = HostBytes::create(saved.bytes);
  if (!data) return std::unexpected(data.error());
  saved.data = std::move(*data);
  const auto downloaded = download(*sequence, saved);
  const auto fenced = arena_->device().fence();         // also after a refusal: the buffer is freed when this returns
  if (!fenced) return std::unexpected(fenced.error());  // reported first: it affects more than this sequence
  if (!downloaded) return std::unexpected(downloaded.error());
  saved.checksum = saved.compute_checksum();
  return saved;
}

// Submits the download of everything the sequence has into `saved`. The bytes are there after the next fence.
PoolResult<void> SequencePool::download(const Sequence& sequence, SavedSequence& saved) const {
  Device& device = arena_->device();
  std::byte* to = saved.data.data();
  const std::uint32_t blocks = divide_up(sequence.length, block_size());
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const BlockTable& table = sequence.groups[g].table();
    saved.first_blocks.push_back(std::min(blocks, table.first()));
    for (std::uint32_t b = saved.first_blocks[g]; b < blocks; ++b, to += object_bytes(g)) {
      if (auto ok = device.download(to, pools_[g]->address(table.page(b).index), object_bytes(g)); !ok) return ok;
    }
  }
  if (!states_) return {};
  const std::byte* from = states_->at(sequence.slot.index).state().view().base;
  return device.download(to, from, object_bytes(state_class()));
}

// Checks whether this pool can restore `saved`, by its fields. Afterwards every index and size in it is valid. The
// bytes themselves are covered by the checksum.
PoolResult<void> SequencePool::acceptable(const SavedSequence& saved) const {
  if (saved.version != SavedSequence::kVersion) {
    return std::unexpected(PoolError::incompatible("format version", SavedSequence::kVersion, saved.version));
  }
  if (auto ok = fits_this_pool(saved.model, saved.layout, saved.tokens.size(), saved.first_blocks); !ok) return ok;
  const std::uint32_t blocks = divide_up(static_cast<std::uint32_t>(saved.tokens.size()), block_size());
  std::uint64_t bytes = states_ ? object_bytes(state_class()) : 0;
  for (std::uint32_t g = 0; g < groups(); ++g) bytes += std::uint64_t{blocks - saved.first_blocks[g]} * object_bytes(g);
  if (saved.bytes != bytes) return std::unexpected(PoolError::damaged("length in bytes", bytes, saved.bytes));
  if (saved.data.size() != bytes) return std::unexpected(PoolError::damaged("bytes", bytes, saved.data.size()));
  return {};
}

// Model, layout and tables. Afterwards no first block is behind the last one.
PoolResult<void> SequencePool::fits_this_pool(const Fingerprint& model, const Hash128& layout, std::size_t tokens,
                                              std::span<const std::uint32_t> first_blocks) const {
  if (model != config_.model) return std::unexpected(PoolError::incompatible("model"));
  if (layout != layout_fingerprint_) return std::unexpected(PoolError::incompatible("layout"));
  if (tokens > config_.max_tokens) return std::unexpected(PoolError::too_long("tokens", tokens, config_.max_tokens));
  if (first_blocks.size() != groups()) {
    return std::unexpected(PoolError::damaged("layer groups", groups(), first_blocks.size()));
  }
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const std::uint32_t first = window_start(g, static_cast<std::uint32_t>(tokens)) / block_size();
    if (first_blocks[g] > first) {
      return std::unexpected(PoolError::damaged("first block of a group", first, first_blocks[g]));
    }
  }
  return {};
}

PoolResult<void> SequencePool::acceptable(const SavedView& view) const {
  if (auto ok = fits_this_pool(view.model, view.layout, view.tokens.size(), view.first_blocks); !ok) return ok;
  if (view.pages.size() != groups()) {
    return std::unexpected(PoolError::damaged("layer groups", groups(), view.pages.size()));
  }
  const std::uint32_t blocks = divide_up(static_cast<std::uint32_t>(view.tokens.size()), block_size());
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const std::uint64_t bytes = std::uint64_t{blocks - view.first_blocks[g]} * object_bytes(g);
    if (view.pages[g].size() != bytes) {
      return std::unexpected(PoolError::damaged("bytes of pages", bytes, view.pages[g].size()));
    }
  }
  const std::uint64_t state = states_ ? object_bytes(state_class()) : 0;
  if (view.state.size() != state) {
    return std::unexpected(PoolError::damaged("bytes of the state", state, view.state.size()));
  }
  return {};
}

PoolResult<void> SequencePool::can_restore(const SavedSequence& saved, std::uint32_t more, std::uint32_t chunk,
                                           std::span<const BatchEntry> others,
                                           std::span<const SequenceId> leaving) const {
  if (auto ok = acceptable(saved); !ok) return ok;
  return can_return(copy_in(saved), more, chunk, others, leaving);
}

PoolResult<SequenceId> SequencePool::do_restore(const SavedSequence& saved, RequestId request) {
  if (auto ok = acceptable(saved); !ok) return std::unexpected(ok.error());
  const Copy copy = copy_in(saved);
  const auto plan = plan_return(copy);
  if (!plan) return refuse(plan.error());
  // The last check, because it reads all bytes.
  if (saved.compute_checksum() != saved.checksum) return std::unexpected(PoolError::damaged("checksum"));
  return bring_back(copy, *plan, request);
}

PoolResult<SequenceId> SequencePool::do_restore(const SavedView& view, RequestId request) {
  if (auto ok = acceptable(view); !ok) return std::unexpected(ok.error());
  const Copy copy = copy_in(view);
  const auto plan = plan_return(copy);
  if (!plan) return refuse(plan.error());
  return bring_back(copy, *plan, request);
}

PoolResult<std::vector<SavedCheckpoint>> SequencePool::save_checkpoints(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  if (!states_) return std::vector<SavedCheckpoint>();
  const auto resumable_at = [&](std::uint32_t position) {
    for (std::uint32_t g = 0; g < groups(); ++g) {
      if (window_start(g, position) / block_size() < sequence->groups[g].table().first()) return false;
    }
    return true;
  };
  const auto node_at = [&](std::uint32_t position) {
    const std::uint32_t block = (position - 1) / block_size();
    if (position % block_size() == 0) return block < sequence->chain ? sequence->nodes[block] : kNoIndex;
    if (block > sequence->chain || !index_->has_parts()) return kNoIndex;
    const std::span tokens(sequence->tokens.get() + std::size_t{block} * block_size(), position % block_size());
    return index_->find_child(sequence->name_space, sequence->parent_of(block), tokens).node;
  };
  const std::uint64_t bytes = object_bytes(state_class());
  auto saved = or_out_of_memory("saved checkpoints", [&]() -> PoolResult<std::vector<SavedCheckpoint>> {
    std::vector<SavedCheckpoint> all;
    for (std::uint32_t position = unit(); position < sequence->length; position += unit()) {
      const std::uint32_t node = node_at(position);
      if (node == kNoIndex || !index_->has_checkpoint(node) || !resumable_at(position)) continue;
      auto state = HostBytes::create(bytes);
      if (!state) return std::unexpected(state.error());
      all.push_back({position, std::move(*state)});
    }
    return all;
  });
  if (!saved) return saved;
  PoolResult<void> downloaded;
  for (SavedCheckpoint& each : *saved) {
    const SlotId slot = index_->checkpoint(node_at(each.position));
    downloaded = arena_->device().download(each.state.data(), states_->at(slot.index).state().view().base, bytes);
    if (!downloaded) break;
  }
  const auto fenced = arena_->device().fence();  // also after a refusal: the buffers are freed when this returns
  if (!fenced) return std::unexpected(fenced.error());
  if (!downloaded) return std::unexpected(downloaded.error());
  return saved;
}

}  // namespace quire

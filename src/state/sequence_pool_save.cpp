// Suspend and resume: saving and restoring sequences.
#include <algorithm>
#include <cstring>

#include "quire/base/check.h"
#include "quire/state/out_of_memory.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {
namespace {

using Kind = PoolEvent::Kind;

}  // namespace

PoolResult<SequencePool::Holding> SequencePool::holding(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  Holding holding;
  const std::uint32_t blocks = divide_up(sequence->length, block_size());
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const BlockTable& table = sequence->groups[g].table();
    holding.saved_bytes += std::uint64_t{blocks - std::min(blocks, table.first())} * object_bytes(g);
    for (std::uint32_t b = table.first(); b < table.size(); ++b) {
      holding.own_bytes += allocator(g).references_at(table.page(b).index) == 1 ? object_bytes(g) : 0;
    }
  }
  if (states_) {
    holding.saved_bytes += object_bytes(state_class());
    holding.own_bytes += object_bytes(state_class());
  }
  // Whoever holds a node also holds its ancestors, so the shared part is a prefix.
  for (std::uint32_t b = 0; b < sequence->chain && index_->node(sequence->nodes[b]).holders > 1; ++b) {
    if (!states_ || index_->has_checkpoint(sequence->nodes[b])) holding.shared_tokens = (b + 1) * block_size();
  }
  return holding;
}

PoolResult<SavedSequence> SequencePool::do_save(SequenceId id) const {
  const Sequence* sequence = find(id);
  if (sequence == nullptr) return std::unexpected(PoolError::invalid_sequence(id.index));
  SavedSequence saved{.model = config_.model,
                      .layout = layout_fingerprint_,
                      .name_space = sequence->name_space,
                      .bytes = holding(id)->saved_bytes};
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
  if (saved.model != config_.model) return std::unexpected(PoolError::incompatible("model"));
  if (saved.layout != layout_fingerprint_) return std::unexpected(PoolError::incompatible("layout"));
  if (saved.tokens.size() > config_.max_tokens) {
    return std::unexpected(PoolError::too_long("tokens", saved.tokens.size(), config_.max_tokens));
  }
  if (saved.first_blocks.size() != groups()) {
    return std::unexpected(PoolError::damaged("layer groups", groups(), saved.first_blocks.size()));
  }
  const auto length = static_cast<std::uint32_t>(saved.tokens.size());
  const std::uint32_t blocks = divide_up(length, block_size());
  std::uint64_t bytes = states_ ? object_bytes(state_class()) : 0;
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const std::uint32_t first = window_start(g, length) / block_size();
    if (saved.first_blocks[g] > first) {
      return std::unexpected(PoolError::damaged("first block of a group", first, saved.first_blocks[g]));
    }
    bytes += std::uint64_t{blocks - saved.first_blocks[g]} * object_bytes(g);
  }
  if (saved.bytes != bytes) return std::unexpected(PoolError::damaged("length in bytes", bytes, saved.bytes));
  if (saved.data.size() != bytes) return std::unexpected(PoolError::damaged("bytes", bytes, saved.data.size()));
  return {};
}

// The blocks of a saved sequence that the index still knows. Their cached pages are used instead of the saved bytes.
std::uint32_t SequencePool::match_saved(const SavedSequence& saved, std::span<std::uint32_t> path) const {
  if (!config_.prefix_cache) return 0;
  const std::uint32_t known = index_->match(saved.name_space, saved.tokens, path);
  for (std::uint32_t b = 0; b < known; ++b) {
    for (std::uint32_t g = 0; g < groups(); ++g) {
      if (b >= saved.first_blocks[g] && !index_->page(path[b], g).valid()) return b;
    }
  }
  return known;
}

SequencePool::Need SequencePool::need_to_restore(const SavedSequence& saved, std::span<const std::uint32_t> path,
                                                 std::uint32_t known) const {
  Need need{};
  const auto blocks = static_cast<std::uint32_t>(divide_up(saved.tokens.size(), std::size_t{block_size()}));
  for (std::uint32_t g = 0; g < groups(); ++g) {
    for (std::uint32_t b = saved.first_blocks[g]; b < blocks; ++b) {
      need[g] += b >= known || allocator(g).references_at(index_->page(path[b], g).index) == 0;
    }
  }
  if (states_) need[state_class()] = 1;
  return need;
}

PoolResult<void> SequencePool::can_restore(const SavedSequence& saved, std::uint32_t more,
                                           std::span<const BatchEntry> others) const {
  if (auto ok = acceptable(saved); !ok) return ok;
  const std::size_t length = saved.tokens.size();
  if (length + more > config_.max_tokens) {
    return std::unexpected(PoolError::too_long("tokens", length + more, config_.max_tokens));
  }
  if (free_sequences_.empty()) return std::unexpected(PoolError::exhausted("sequences", 1, 0));
  Need need = need_to_restore(saved, path_, match_saved(saved, path_));
  const std::size_t grown =
      divide_up(length + more, std::size_t{block_size()}) - divide_up(length, std::size_t{block_size()});
  for (std::uint32_t g = 0; g < groups(); ++g) need[g] += static_cast<std::uint32_t>(grown);
  return fits_beside(need, others);
}

PoolResult<SequenceId> SequencePool::do_restore(const SavedSequence& saved, RequestId request) {
  if (auto ok = acceptable(saved); !ok) return std::unexpected(ok.error());
  if (free_sequences_.empty()) return refuse(PoolError::exhausted("sequences", 1, 0));
  const std::uint32_t known = match_saved(saved, path_);
  const Need need = need_to_restore(saved, path_, known);
  if (!feasible(need)) return refuse(refusal(need));
  // The last check, because it reads all bytes.
  if (saved.compute_checksum() != saved.checksum) return std::unexpected(PoolError::damaged("checksum"));

  const auto length = static_cast<std::uint32_t>(saved.tokens.size());
  const std::uint32_t index = free_sequences_.back();
  Sequence& sequence = sequences_[index];
  sequence.live = true;
  sequence.publishing = config_.prefix_cache;
  sequence.request = request_or_own(request);
  sequence.name_space = saved.name_space;
  const auto filled = fill(sequence, saved, known);
  const auto fenced = arena_->device().fence();  // also after a refusal: the caller may free the saved bytes
  if (!filled || !fenced) {
    detach(sequence);
    return refuse(!fenced ? fenced.error() : filled.error());
  }
  free_sequences_.pop_back();
  std::ranges::copy(saved.tokens, sequence.tokens.get());
  if (sequence.publishing) publish(sequence);
  ++counters_.sequences;
  counters_.sequences_high_water = std::max(counters_.sequences_high_water, counters_.sequences);
  events_->record(Kind::SequenceCreated, 0, index, length);
  return SequenceId{index, sequence.generation};
}

// Gives an empty sequence the pages that the index knows, new pages with the saved bytes for the others, and the state.
// After an error the caller must detach() it.
PoolResult<void> SequencePool::fill(Sequence& sequence, const SavedSequence& saved, std::uint32_t known) {
  const auto length = static_cast<std::uint32_t>(saved.tokens.size());
  const std::uint32_t blocks = divide_up(length, block_size());
  for (std::uint32_t b = 0; b < known; ++b) {
    index_->hold(path_[b]);
    sequence.nodes[b] = path_[b];
  }
  sequence.chain = known;
  Need fresh{};
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const std::uint32_t first = saved.first_blocks[g];
    for (std::uint32_t b = 0; b < std::max(known, first); ++b) {
      if (b < first) {
        sequence.groups[g].adopt_given_back();
        continue;
      }
      const PageId page = index_->page(path_[b], g);
      const auto ok = pools_[g]->acquire(page);
      QUIRE_CHECK(ok.has_value(), "the index names live pages");
      sequence.groups[g].adopt(page);
    }
    fresh[g] = blocks - std::max(known, first);
  }
  if (states_) fresh[state_class()] = 1;
  if (auto ok = make_room(fresh, Effort::Everything); !ok) return ok;

  const std::byte* from = saved.data.data();
  for (std::uint32_t g = 0; g < groups(); ++g) {
    PagedSeqState& group = sequence.groups[g];
    const auto growth = group.grow(length);
    if (!growth) return std::unexpected(growth.error());
    group.finish(*growth);
    note_pages(sequence, g, *growth);
    for (std::uint32_t b = saved.first_blocks[g]; b < blocks; ++b, from += object_bytes(g)) {
      if (b < growth->old_blocks) continue;
      std::byte* to = pools_[g]->address(group.table().page(b).index);
      if (auto ok = arena_->device().upload(to, from, object_bytes(g)); !ok) return ok;
    }
    group.set_length(length);
  }
  sequence.stand_at(length, block_size());
  if (!states_) return {};
  if (auto ok = give_slot(sequence, kNoIndex); !ok) return ok;
  SequenceSlot& slot = states_->at(sequence.slot.index);
  if (auto ok = arena_->device().upload(slot.state().view().base, from, object_bytes(state_class())); !ok) return ok;
  const auto ok = slot.step(length);
  QUIRE_CHECK(ok.has_value(), "the capacity of a state is the longest sequence");
  return {};
}

}  // namespace quire

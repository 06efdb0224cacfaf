// How a saved or suspended sequence comes back, or one that was fetched from a tier. Each of its pages is taken from
// the prefix index if it is known there, and otherwise filled from the copy. A saved sequence has a copy of every page.
// A suspended one has copies of those that nobody else held, a fetched one of those that were missing; the others must
// still be in the index.
#include <algorithm>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {
namespace {

using Kind = PoolEvent::Kind;

constexpr std::uint64_t kNotCopied = UINT64_MAX;

}  // namespace

// Notes in sources_ where the copy has the bytes of each page: an offset (saved; in a view, into the bytes of its
// group), a cell (suspended) or an index (fetched).
void SequencePool::note_sources(const Copy& copy) const {
  std::ranges::fill(sources_, kNotCopied);
  if (copy.suspended != nullptr) {
    copy.suspended->cells.for_each([&](HostArena::Object object, std::uint32_t cell) {
      sources_[std::size_t{object.cls} * max_blocks_ + object.block] = cell;
    });
    return;
  }
  if (copy.saved == nullptr && copy.view == nullptr) {
    for (std::size_t i = 0; i < copy.fetched.size(); ++i) {
      const FetchedObject& object = copy.fetched[i];
      sources_[object.cls == groups() ? sources_.size() - 1 : std::size_t{object.cls} * max_blocks_ + object.block] = i;
    }
    return;
  }
  const auto blocks = divide_up(static_cast<std::uint32_t>(copy.tokens.size()), block_size());
  std::uint64_t offset = 0;
  for (std::uint32_t g = 0; g < groups(); ++g) {
    if (copy.view != nullptr) offset = 0;
    for (std::uint32_t b = copy.first_blocks[g]; b < blocks; ++b, offset += object_bytes(g)) {
      sources_[std::size_t{g} * max_blocks_ + b] = offset;
    }
  }
  sources_.back() = copy.view != nullptr ? 0 : offset;
}

// For the journal: the pages that the copy does not have, although the sequence had them.
std::span<const HostArena::Object> SequencePool::not_copied(const Copy& copy) const {
  note_sources(copy);
  not_copied_.clear();
  const auto blocks = divide_up(static_cast<std::uint32_t>(copy.tokens.size()), block_size());
  for (std::uint32_t g = 0; g < groups(); ++g) {
    for (std::uint32_t b = copy.first_blocks[g]; b < blocks; ++b) {
      if (sources_[std::size_t{g} * max_blocks_ + b] == kNotCopied) not_copied_.push_back({g, b});
    }
  }
  return not_copied_;
}

// The page that the index has for a block of path_, if any.
PageId SequencePool::indexed(std::uint32_t group, std::uint32_t block, std::uint32_t known) const {
  return block < known ? index_->page(path_[block], group) : PageId{};
}

// Finds where each page comes from, and whether there is room. Fills path_ and sources_.
PoolResult<SequencePool::Return> SequencePool::plan_return(const Copy& copy, const Need& freed,
                                                           bool somebody_leaves) const {
  if (free_sequences_.empty() && !somebody_leaves) return std::unexpected(PoolError::exhausted("sequences", 1, 0));
  note_sources(copy);
  Return plan;
  if (config_.prefix_cache) plan.known = index_->match(copy.name_space, copy.tokens, path_);
  const auto blocks = divide_up(static_cast<std::uint32_t>(copy.tokens.size()), block_size());
  for (std::uint32_t g = 0; g < groups(); ++g) {
    for (std::uint32_t b = copy.first_blocks[g]; b < blocks; ++b) {
      if (const PageId page = indexed(g, b, plan.known); page.valid()) {
        plan.need[g] += references_after_leaving(g, page) == 0;
      } else if (sources_[std::size_t{g} * max_blocks_ + b] == kNotCopied) {
        return std::unexpected(PoolError::prefix_gone(std::uint64_t{b} * block_size()));
      } else {
        ++plan.need[g];
        ++plan.fresh[g];
      }
    }
  }
  if (states_) plan.need[state_class()] = plan.fresh[state_class()] = 1;
  if (!feasible(plan.need, freed)) return std::unexpected(refusal(plan.need));
  return plan;
}

PoolResult<void> SequencePool::can_return(const Copy& copy, std::uint32_t more, std::uint32_t chunk,
                                          std::span<const BatchEntry> others,
                                          std::span<const SequenceId> leaving) const {
  const std::uint64_t all = copy.tokens.size() + std::uint64_t{more};
  if (all > config_.max_tokens) return std::unexpected(PoolError::too_long("tokens", all, config_.max_tokens));
  const auto planned = future_need(others, chunk);
  if (!planned) return std::unexpected(planned.error());
  const Need freed = count_leaving(leaving);
  auto plan = plan_return(copy, freed, !leaving.empty());
  forget_leaving(leaving);
  if (!plan) return std::unexpected(plan.error());
  const auto length = static_cast<std::uint32_t>(copy.tokens.size());
  const std::uint32_t blocks = divide_up(length, block_size());
  for (std::uint32_t g = 0; g < groups(); ++g) {
    std::uint32_t grown = divide_up(length + more, block_size()) - blocks;
    if (layout().groups[g].window != 0) {
      const std::uint32_t held = blocks - std::min(blocks, copy.first_blocks[g]);
      const std::uint32_t most = most_pages(g, length + more, chunk);
      const std::uint32_t next = divide_up(length + std::min(more, chunk), block_size()) - blocks;
      grown = std::max(next, std::min(grown, most - std::min(most, held)));
    }
    plan->need[g] += grown + (*planned)[g];
  }
  if (!feasible(plan->need, freed)) return std::unexpected(refusal(plan->need));
  return {};
}

// Creates the sequence. path_ and sources_ must be as plan_return() has left them.
PoolResult<SequenceId> SequencePool::bring_back(const Copy& copy, const Return& plan, RequestId request) {
  const std::uint32_t index = free_sequences_.back();
  Sequence& sequence = sequences_[index];
  sequence.live = true;
  sequence.publishing = config_.prefix_cache;
  sequence.request = request_or_own(request);
  sequence.name_space = copy.name_space;
  const auto filled = fill(sequence, copy, plan);
  const auto fenced = arena_->device().fence();  // also after a refusal: the caller may free the copy
  if (!filled || !fenced) {
    detach(sequence);
    return refuse(!fenced ? fenced.error() : filled.error());
  }
  free_sequences_.pop_back();
  std::ranges::copy(copy.tokens, sequence.tokens.get());
  // Known blocks whose page the index had lost (of a window) get it back. Then the other blocks are published.
  for (std::uint32_t g = 0; g < groups(); ++g) {
    for (std::uint32_t b = copy.first_blocks[g]; b < plan.known; ++b) {
      if (!indexed(g, b, plan.known).valid()) publish_page(path_[b], g, sequence.groups[g].table().page(b), b);
    }
  }
  if (sequence.publishing) publish(sequence);
  ++counters_.sequences;
  counters_.sequences_high_water = std::max(counters_.sequences_high_water, counters_.sequences);
  events_->record(Kind::SequenceCreated, 0, index, copy.tokens.size());
  return SequenceId{index, sequence.generation};
}

// Gives an empty sequence its path, pages and state. After an error the caller must detach() it.
PoolResult<void> SequencePool::fill(Sequence& sequence, const Copy& copy, const Return& plan) {
  const auto length = static_cast<std::uint32_t>(copy.tokens.size());
  const std::uint32_t blocks = divide_up(length, block_size());
  for (std::uint32_t b = 0; b < plan.known; ++b) {
    index_->hold(path_[b]);
    sequence.nodes[b] = path_[b];
  }
  sequence.chain = plan.known;
  // The known pages are taken before room is made, because that evicts and moves pages. They enter the tables later,
  // in order.
  const auto for_each_known = [&](auto use) {
    for (std::uint32_t g = 0; g < groups(); ++g) {
      for (std::uint32_t b = copy.first_blocks[g]; b < std::min(blocks, plan.known); ++b) {
        if (const PageId page = indexed(g, b, plan.known); page.valid()) {
          const auto ok = use(*pools_[g], page);
          QUIRE_CHECK(ok.has_value(), "the index names live pages");
        }
      }
    }
  };
  for_each_known([](BlockPool& pool, PageId page) { return pool.acquire(page); });
  if (auto ok = make_room(plan.fresh, Effort::Everything); !ok) {
    for_each_known([](BlockPool& pool, PageId page) { return pool.free(page); });
    return ok;
  }
  for (std::uint32_t g = 0; g < groups(); ++g) {
    PagedSeqState& group = sequence.groups[g];
    for (std::uint32_t b = 0; b < blocks; ++b) {
      if (b < copy.first_blocks[g]) {
        group.adopt_given_back();
        continue;
      }
      PageId page = indexed(g, b, plan.known);
      if (!page.valid()) {
        page = pools_[g]->allocate().value_or(PageId{});
        QUIRE_CHECK(page.valid(), "room was made");
        page_infos_[g][page.index] = {kNoIndex, b};
      }
      group.adopt(page);
    }
    group.set_length(length);
  }
  sequence.stand_at(length, stride());
  return upload(sequence, copy, plan.known);
}

// Submits the upload of the pages that the index does not have, and of the state.
PoolResult<void> SequencePool::upload(Sequence& sequence, const Copy& copy, std::uint32_t known) {
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const BlockTable& table = sequence.groups[g].table();
    for (std::uint32_t b = table.first(); b < table.size(); ++b) {
      if (indexed(g, b, known).valid()) continue;
      const std::uint64_t source = sources_[std::size_t{g} * max_blocks_ + b];
      if (auto ok = upload(copy, source, g, pools_[g]->address(table.page(b).index)); !ok) return ok;
    }
  }
  if (!states_) return {};
  if (auto ok = give_slot(sequence, kNoIndex); !ok) return ok;
  SequenceSlot& slot = states_->at(sequence.slot.index);
  if (auto ok = upload(copy, sources_.back(), state_class(), slot.state().view().base); !ok) return ok;
  const auto ok = slot.step(sequence.length);
  QUIRE_CHECK(ok.has_value(), "the capacity of a state is the longest sequence");
  return {};
}

PoolResult<void> SequencePool::upload(const Copy& copy, std::uint64_t source, std::uint32_t cls, std::byte* to) {
  if (copy.suspended != nullptr) {
    return copy.suspended->cells.load(static_cast<std::uint32_t>(source), to, object_bytes(cls));
  }
  if (copy.saved != nullptr) return arena_->device().upload(to, copy.saved->data.data() + source, object_bytes(cls));
  if (copy.view != nullptr) {
    const auto bytes = cls == state_class() ? copy.view->state : copy.view->pages[cls];
    return arena_->device().upload(to, bytes.data() + source, object_bytes(cls));
  }
  const FetchedObject& fetched = copy.fetched[source];
  if (fetched.cells != nullptr) return fetched.cells->load(fetched.cell, to, object_bytes(cls));
  return arena_->device().upload(to, fetched.bytes, object_bytes(cls));
}

}  // namespace quire

// Recounts the whole pool from its tables and compares the result with every number it keeps.
#include <algorithm>
#include <new>
#include <string>

#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {

std::expected<void, std::string> SequencePool::check_integrity() const {
  try {
    return recount();
  } catch (const std::bad_alloc&) {
    return std::unexpected("out of memory");  // short enough for std::string's own buffer
  }
}

std::expected<void, std::string> SequencePool::recount() const {
  const auto wrong = [](std::string what) { return std::unexpected(std::move(what)); };
  for (std::uint32_t c = 0; c < classes(); ++c) {
    if (const auto ok = allocator(c).check_integrity(); !ok) {
      return wrong((c < groups() ? "pages of group " + std::to_string(c) : std::string("states")) + ": " + ok.error());
    }
  }
  if (const auto ok = index_->check_integrity(); !ok) return wrong(std::string("prefix index: ") + ok.error());

  std::uint32_t live = 0;
  std::vector<std::uint32_t> holders(index_->max_nodes());
  std::vector<std::vector<std::uint32_t>> references;
  for (std::uint32_t g = 0; g < groups(); ++g) references.emplace_back(allocator(g).index_limit());
  std::vector<std::uint32_t> slots(slot_infos_.size());

  for (std::uint32_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& s = sequences_[i];
    const std::string who = "sequence " + std::to_string(i) + ": ";
    if (!s.live) {
      for (const PagedSeqState& group : s.groups) {
        if (group.table().size() != 0) return wrong(who + "is released but has pages");
      }
      if (s.slot.valid() || s.scratch.valid() || s.chain != 0)
        return wrong(who + "is released but has a slot or a path");
      continue;
    }
    ++live;
    if (s.length > s.writable_until || s.writable_until > config_.max_tokens)
      return wrong(who + "room and length disagree");
    for (std::uint32_t g = 0; g < groups(); ++g) {
      const BlockTable& table = s.groups[g].table();
      if (s.groups[g].length() != s.length) return wrong(who + "a group has another length");
      if (s.groups[g].capacity() < s.writable_until)
        return wrong(who + "more positions are reserved than it has pages for");
      if (window_start(g, s.length) / block_size() < table.first()) return wrong(who + "part of its window is gone");
      for (std::uint32_t b = 0; b < table.size(); ++b) {
        const PageId page = table.page(b);
        if (page.valid() != (b >= table.first())) return wrong(who + "a hole in its table");
        if (!page.valid()) continue;
        if (!allocator(g).is_live(page)) return wrong(who + "its table names a page that is not live");
        if (s.groups[g].locations()[b] != pools_[g]->location(page.index))
          return wrong(who + "the location of a page is wrong");
        if (page_infos_[g][page.index].block != b) return wrong(who + "a page has another block number");
        ++references[g][page.index];
        // Nobody else may see a page that can be written now.
        const bool writable = std::max(b * block_size(), s.length) < std::min((b + 1) * block_size(), s.writable_until);
        if (writable && (allocator(g).references_at(page.index) > 1 || allocator(g).is_kept(page.index))) {
          return wrong(who + "a page that may be written is shared");
        }
        if (b < s.chain && index_->page(s.nodes[b], g) != page)
          return wrong(who + "index and table name different pages");
      }
    }
    if (s.chain * block_size() > s.length) return wrong(who + "more is published than written");
    if (s.publishing && (s.chain + 1) * block_size() <= s.length) return wrong(who + "a full block is not published");
    for (std::uint32_t b = 0; b < s.chain; ++b) {
      const PrefixIndex::Node& node = index_->node(s.nodes[b]);
      if (!node.used() || node.parent != (b == 0 ? kNoIndex : s.nodes[b - 1])) return wrong(who + "its path is broken");
      if (node.name_space != s.name_space) return wrong(who + "its path lies in another namespace");
      const auto ours = s.block(b, block_size());
      if (!std::equal(ours.begin(), ours.end(), index_->tokens(s.nodes[b]).begin())) {
        return wrong(who + "its path has other tokens");
      }
      ++holders[s.nodes[b]];
    }
    if (states_) {
      if (!s.slot.valid() || s.slot.index >= slots.size() || slot_infos_[s.slot.index].sequence != i) {
        return wrong(who + "its slot is not its own");
      }
      if (states_->handle(s.slot.index) != s.slot) return wrong(who + "its slot is stale");
      const SequenceSlot& slot = states_->at(s.slot.index);
      if (slot.position() != s.length) return wrong(who + "slot and length disagree");
      if (slot.request() != s.request) return wrong(who + "its slot belongs to another request");
      ++slots[s.slot.index];
      if (s.scratch.valid() != s.has_drafts()) return wrong(who + "has a scratch state or drafts, and not both");
      if (s.scratch.valid()) {
        const SlotInfo& info = slot_infos_[s.scratch.index];
        if (info.sequence != i || !info.scratch || states_->handle(s.scratch.index) != s.scratch) {
          return wrong(who + "its scratch state is not its own");
        }
        ++slots[s.scratch.index];
      }
    }
  }
  if (live != counters_.sequences || live + free_sequences_.size() != sequences_.size()) {
    return wrong("sequences are counted wrongly");
  }

  for (std::uint32_t n = 0; n < index_->max_nodes(); ++n) {
    const PrefixIndex::Node& node = index_->node(n);
    if (node.holders != holders[n]) return wrong("node " + std::to_string(n) + " counts its holders wrongly");
    if (!node.used()) continue;
    for (std::uint32_t g = 0; g < groups(); ++g) {
      const PageId page = index_->page(n, g);
      if (!page.valid()) {
        if (layout().groups[g].window == 0) return wrong("node " + std::to_string(n) + " has lost its page");
        continue;
      }
      if (!allocator(g).is_live(page) || !allocator(g).is_kept(page.index) || page_infos_[g][page.index].node != n) {
        return wrong("node " + std::to_string(n) + " names a page that is not its own");
      }
    }
    const SlotId checkpoint = index_->checkpoint(n);
    if (checkpoint.valid()) {
      if (!states_ || slot_infos_[checkpoint.index].node != n || states_->handle(checkpoint.index) != checkpoint) {
        return wrong("node " + std::to_string(n) + " names a checkpoint that is not its own");
      }
      if (states_->at(checkpoint.index).position() != index_->end(n)) {
        return wrong("node " + std::to_string(n) + " has a checkpoint of another position");
      }
    } else if (states_ && node.holders == 0 && index_->is_leaf(n)) {
      return wrong("node " + std::to_string(n) + " is useless: nobody holds it and no sequence can resume from it");
    }
  }
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const BlockAllocator& a = allocator(g);
    for (std::uint32_t p = 0; p < a.index_limit(); ++p) {
      const std::uint32_t explained = references[g][p] + (a.is_pinned(p) ? 1 : 0);
      if (a.references_at(p) != explained) {
        return wrong("page " + std::to_string(p) + " of group " + std::to_string(g) + " has " +
                     std::to_string(a.references_at(p)) + " references, " + std::to_string(explained) +
                     " are accounted for");
      }
      if (a.is_kept(p) != (page_infos_[g][p].node != kNoIndex && a.is_live(a.id_of(p)))) {
        return wrong("page " + std::to_string(p) + " of group " + std::to_string(g) + " is kept for no node");
      }
    }
  }
  if (states_) {
    const BlockAllocator& a = states_->allocator();
    for (std::uint32_t i = 0; i < a.index_limit(); ++i) {
      const std::uint32_t explained = slots[i] + (a.is_pinned(i) ? 1 : 0);
      if (a.references_at(i) != explained) return wrong("slot " + std::to_string(i) + " is held by nobody");
      const bool is_checkpoint = slot_infos_[i].node != kNoIndex;
      if (a.is_kept(i) != is_checkpoint) return wrong("slot " + std::to_string(i) + " is kept for no node");
      if (explained == 0 && !is_checkpoint && (states_->at(i).request() != 0 || states_->at(i).position() != 0)) {
        return wrong("slot " + std::to_string(i) + " is free and shows a request or a position");
      }
    }
    if (a.cached_count() != index_->checkpoint_count()) return wrong("checkpoints are counted wrongly");
  }
  return {};
}

}  // namespace quire

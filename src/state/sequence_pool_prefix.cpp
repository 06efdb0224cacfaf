// Prefixes: matching what can be reused, publishing what was computed, keeping checkpoints to resume from.
#include <algorithm>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"
#include "quire/state/sequence_pool_internal.h"

namespace quire {

using Kind = PoolEvent::Kind;

namespace {

HitEnd end_of(PrefixIndex::Absence absence) {
  switch (absence) {
    case PrefixIndex::Absence::NeverSeen: return HitEnd::NeverSeen;
    case PrefixIndex::Absence::Evicted: return HitEnd::Evicted;
    case PrefixIndex::Absence::OtherNamespace: return HitEnd::OtherNamespace;
  }
  return HitEnd::NeverSeen;
}

}  // namespace

// Whether a sequence could resume at the end of this node: its recurrent state is cached, and so is every page that the
// next token attends to. (Pages of groups without a window exist as long as the node does.)
bool SequencePool::resumable(std::uint32_t node) const {
  if (states_ && !index_->has_checkpoint(node)) return false;
  const std::uint32_t length = index_->end(node);
  for (std::uint32_t g = 0; g < groups(); ++g) {
    if (layout().groups[g].window == 0) continue;
    const std::uint32_t first = window_start(g, length) / block_size();
    for (std::uint32_t n = node; n != kNoIndex && index_->node(n).block >= first; n = index_->node(n).parent) {
      if (!index_->page(n, g).valid()) return false;
    }
  }
  return true;
}

SequencePool::Match SequencePool::match(std::span<const Token> prompt, Namespace name_space,
                                        std::span<std::uint32_t> path) const {
  Match match;
  if (prompt.empty()) return match;
  // The last token is always left to compute: the caller needs its logits.
  const auto usable = static_cast<std::uint32_t>(prompt.size() - 1);
  const std::uint32_t known = index_->match(name_space, prompt.first(usable), path);
  match.hit.matched = known * block_size();

  // One pass over the path, with the last missing page of each window group. Checking each node on
  // its own would walk back from every node.
  std::array<std::uint32_t, std::tuple_size_v<Need>> holes;  // by group: blocks before this one may have no page
  holes.fill(0);
  bool window_gone = false;
  for (std::uint32_t b = 0; b < known; ++b) {
    const std::uint32_t length = (b + 1) * block_size();
    bool can = !states_ || index_->has_checkpoint(path[b]);
    window_gone = false;
    for (std::uint32_t g = 0; g < groups(); ++g) {
      if (layout().groups[g].window == 0) continue;
      if (!index_->page(path[b], g).valid()) holes[g] = b + 1;
      if (window_start(g, length) / block_size() < holes[g]) {
        window_gone = window_gone || can;  // nothing but the window is missing
        can = false;
      }
    }
    if (can) match.blocks = b + 1;
  }
  match.whole = match.blocks;
  match.hit.tokens = match.blocks * block_size();
  if (states_ && index_->has_parts()) {
    match_part(prompt, name_space, path, known, window_gone, match);
    return match;
  }
  if (match.blocks < known) {
    match.hit.end = window_gone ? HitEnd::WindowGone : HitEnd::NoCheckpoint;
    return match;
  }

  // After the last whole block, part of a page can be shared if no recurrent state is needed.
  const std::uint32_t parent = known > 0 ? path[known - 1] : kNoIndex;
  const auto rest = prompt.subspan(match.hit.tokens);
  const std::uint32_t limit = std::min(usable - match.hit.tokens, block_size() - 1);
  if (!states_ && limit > 0) {
    const auto partial = index_->find_partial(name_space, parent, rest.first(limit));
    bool whole = partial.tokens > 0;
    for (std::uint32_t g = 0; g < groups(); ++g) whole = whole && index_->page(partial.node, g).valid();
    if (whole) {
      match.partial_node = partial.node;
      match.partial_tokens = partial.tokens;
      match.hit.tokens += partial.tokens;
      match.hit.matched += partial.tokens;
    }
  }
  if (match.hit.tokens == usable) return match;  // complete
  if (rest.size() < block_size()) {
    // Less than a block is left. What was there inside a block is not remembered after it was evicted.
    match.hit.end = states_ ? HitEnd::Complete : HitEnd::NeverSeen;
    return match;
  }
  match.hit.end = end_of(index_->why_absent(name_space, parent, rest.first(block_size())));
  return match;
}

// The longest part below `parent` that begins these tokens and can be resumed from, or kNoIndex.
std::uint32_t SequencePool::resumable_part(Namespace name_space, std::uint32_t parent,
                                           std::span<const Token> tokens) const {
  std::uint32_t part = index_->longest_part(name_space, parent, tokens, block_size());
  while (part != kNoIndex && !resumable(part)) {
    part = index_->longest_part(name_space, parent, tokens, index_->count(part));
  }
  return part;
}

// The rest of a match where checkpoints may lie inside blocks. The sequence starts at the last place that has
// everything: after a whole block (match.blocks, as far as is known yet) or after a part.
void SequencePool::match_part(std::span<const Token> prompt, Namespace name_space, std::span<const std::uint32_t> path,
                              std::uint32_t known, bool window_gone, Match& match) const {
  const auto parent_of = [&](std::uint32_t block) { return block == 0 ? kNoIndex : path[block - 1]; };
  const auto usable = prompt.first(prompt.size() - 1);
  for (std::uint32_t b = known;; --b) {
    const auto after = usable.subspan(std::size_t{b} * block_size());
    const std::uint32_t part = resumable_part(name_space, parent_of(b), after);
    if (part != kNoIndex) {
      match.blocks = b;
      match.partial_node = part;
      match.partial_tokens = index_->count(part);
      match.hit.tokens = index_->end(part);
      break;
    }
    if (b == match.blocks) break;
  }
  // What is known ends inside a block, perhaps of a longer prompt.
  const auto after = usable.subspan(std::size_t{known} * block_size());
  const auto begins = after.first(std::min<std::size_t>(after.size(), block_size() - 1));
  const std::uint32_t known_part = index_->find_partial(name_space, parent_of(known), begins).tokens / unit() * unit();
  match.hit.matched = std::max(known * block_size() + known_part, match.hit.tokens);

  if (match.hit.tokens < match.hit.matched) {
    if (known_part > 0) {
      const auto part = index_->find_child(name_space, parent_of(known), begins.first(known_part)).node;
      window_gone = part != kNoIndex;  // it has a state, so it is the window that is missing
    }
    match.hit.end = window_gone ? HitEnd::WindowGone : HitEnd::NoCheckpoint;
    return;
  }
  if (prompt.size() - match.hit.tokens < unit()) return;  // complete
  const auto rest = prompt.subspan(std::size_t{known} * block_size());
  const std::uint32_t next = match.hit.tokens - known * block_size() + unit();
  auto absence = PrefixIndex::Absence::NeverSeen;
  for (const std::uint32_t tokens : {block_size(), next}) {
    if (rest.size() < tokens || absence != PrefixIndex::Absence::NeverSeen) continue;
    absence = index_->why_absent(name_space, parent_of(known), rest.first(tokens));
  }
  match.hit.end = end_of(absence);
}

Hit SequencePool::lookup(std::span<const Token> prompt, Namespace name_space) const {
  if (!config_.prefix_cache || prompt.size() > config_.max_tokens) return {.end = HitEnd::Disabled};
  const Match found = match(prompt, name_space, path_);
  if (found.length() > 0 && !feasible(need_to_attach(found, path_))) {
    return {.tokens = 0, .matched = found.hit.matched, .end = HitEnd::NoRoom};
  }
  return found.hit;
}

// Removes one holder. A path is let go from its end. A node that is unheld and
// cannot be resumed from is removed at once.
void SequencePool::let_go(std::uint32_t node) {
  index_->let_go(node);
  if (index_->node(node).holders == 0 && index_->is_leaf(node) && !resumable(node)) evict_node(node);
}

void SequencePool::publish_page(std::uint32_t node, std::uint32_t group, PageId page, std::uint32_t block) {
  const auto ok = allocator(group).keep(page);
  QUIRE_CHECK(ok.has_value(), "a table names live pages");
  index_->set_page(node, group, page);
  page_infos_[group][page.index] = {node, block};
  events_->record(Kind::PagePublished, group, page.index, block);
  note_stored(node, group);
}

// Publishes every full block of the sequence. If another sequence has published the same block already, this one takes
// over those pages and gives its own back. The bytes are the same, and so all sequences on a path hold the same nodes.
void SequencePool::publish(Sequence& sequence) {
  while ((sequence.chain + 1) * block_size() <= sequence.length) {
    const std::uint32_t block = sequence.chain;
    const std::uint32_t parent = block == 0 ? kNoIndex : sequence.nodes[block - 1];
    const auto tokens = sequence.block(block, block_size());
    const PrefixIndex::Found found = index_->find_child(sequence.name_space, parent, tokens);
    std::uint32_t node = found.node;
    if (node == kNoIndex) {
      if (index_->full() && index_->least_recently_used() != kNoIndex) evict_node(index_->least_recently_used());
      if (states_ && index_->by_value()) {
        for (std::uint32_t part = unit(); part < block_size(); part += unit()) {
          note_evicted_part(sequence, index_->find_child(sequence.name_space, parent, tokens.first(part)));
        }
        note_evicted_before(sequence, found);
      }
      if (index_->full()) {
        sequence.publishing = false;  // every node is held: this sequence continues without publishing
        return;
      }
      node = index_->insert(sequence.name_space, parent, tokens, found);
      for (std::uint32_t g = 0; g < groups(); ++g) {
        const PageId page = sequence.groups[g].table().page(block);
        if (page.valid()) publish_page(node, g, page, block);
      }
      if (!states_) evict_shorter_parts(sequence.name_space, parent, tokens);
      ++counters_.blocks_published;
    } else {
      index_->hold(node);
      for (std::uint32_t g = 0; g < groups(); ++g) {
        const PageId mine = sequence.groups[g].table().page(block);
        const PageId theirs = index_->page(node, g);
        if (!mine.valid() || mine == theirs) continue;
        if (!theirs.valid()) {
          publish_page(node, g, mine, block);
          continue;
        }
        const auto ok = pools_[g]->acquire(theirs);
        QUIRE_CHECK(ok.has_value(), "the index names live pages");
        sequence.groups[g].replace(block, theirs);
        (void)pools_[g]->free(mine);
      }
      ++counters_.blocks_deduplicated;
    }
    sequence.nodes[block] = node;
    ++sequence.chain;
  }
}

// A sequence without a recurrent state is about to be released. What it has in its last page becomes a part, so that a
// later prompt finds all of its tokens, not only whole blocks. The page is handed over, not copied.
void SequencePool::keep_tail(Sequence& sequence) {
  const std::uint32_t block = sequence.length / block_size(), count = sequence.length % block_size();
  if (states_ || !index_->has_parts() || count < unit() || !sequence.publishing || sequence.chain != block) return;
  for (std::uint32_t g = 0; g < groups(); ++g) {
    const PageId page = sequence.groups[g].table().page(block);
    if (!page.valid() || allocator(g).is_kept(page.index)) return;  // shared with a block that the index knows
  }
  const std::uint32_t parent = sequence.parent_of(block);
  const auto tokens = sequence.tail(block_size(), sequence.length);
  if (index_->find_partial(sequence.name_space, parent, tokens).tokens == count) return;  // something longer is known
  const PrefixIndex::Found found = index_->find_child(sequence.name_space, parent, tokens);
  if (found.node != kNoIndex) return;
  if (index_->full() && index_->least_recently_used() != kNoIndex) evict_node(index_->least_recently_used());
  if (index_->full()) return;
  const std::uint32_t node = index_->insert(sequence.name_space, parent, tokens, found);
  for (std::uint32_t g = 0; g < groups(); ++g) publish_page(node, g, sequence.groups[g].table().page(block), block);
  index_->let_go(node);
  ++counters_.parts_stored;
  evict_shorter_parts(sequence.name_space, parent, tokens);
}

// A node with these tokens was added. The parts with which it begins are of no more use.
void SequencePool::evict_shorter_parts(Namespace name_space, std::uint32_t parent, std::span<const Token> tokens) {
  for (;;) {
    const std::uint32_t part = index_->find_shorter_part(name_space, parent, tokens);
    if (part == kNoIndex) return;
    evict_node(part);
  }
}

// A sequence computes a block anew. If checkpoints on its path had been evicted, it would have resumed from the last of
// them: that one was wanted. It is known to be the last when the first block comes that was never evicted.
void SequencePool::note_evicted_before(Sequence& sequence, const PrefixIndex::Found& found) {
  const auto before = index_->evicted_use(found.content, sequence.name_space);
  if (before) {
    if (before->kind != EvictedBlocks::kNoKind) sequence.missed = *before;
    return;
  }
  index_->wanted_after_eviction(sequence.missed);
  sequence.missed = {};
}

// The same inside a block, where only checkpoints are remembered.
void SequencePool::note_evicted_part(Sequence& sequence, const PrefixIndex::Found& found) {
  if (found.node != kNoIndex) return;
  const auto before = index_->evicted_use(found.content, sequence.name_space);
  if (before && before->kind != EvictedBlocks::kNoKind) sequence.missed = *before;
}

// A sequence begins before the end of what the index knows of its prompt, because states are missing. The last state
// that was there was wanted.
void SequencePool::note_missed_checkpoint(const Match& match, const Request& request) {
  if (!index_->by_value() || match.hit.end != HitEnd::NoCheckpoint) return;
  for (std::uint32_t end = match.hit.matched; end > match.hit.tokens; end -= unit()) {
    const std::uint32_t blocks = end / block_size(), part = end % block_size();
    const auto after = request.prompt.subspan(std::size_t{blocks} * block_size());
    const bool missed = part == 0
                            ? index_->note_missed_checkpoint(path_[blocks - 1])
                            : index_->note_missed_part(request.name_space, blocks == 0 ? kNoIndex : path_[blocks - 1],
                                                       after.first(part));
    if (missed) return;
  }
}

}  // namespace quire

#include "quire/journal/replay.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace quire::journal {
namespace {

using Kind = PoolOperation::Kind;
using Tokens = ReferencePool::Tokens;

constexpr const char* kDrafts = "the sequence has drafts";

std::string text(SequenceId id) { return fmt::format("{}.{}", id.index, id.generation); }
std::string text(const Hit& hit) {
  return fmt::format("{} of {} known tokens reused ({})", hit.tokens, hit.matched, name(hit.end));
}
std::string text(std::span<const BatchEntry> entries) {
  constexpr std::size_t kShown = 8;
  std::string out;
  for (const BatchEntry& entry : entries.first(std::min(entries.size(), kShown))) {
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", text(entry.sequence), entry.rows);
  }
  return entries.size() > kShown ? fmt::format("{}, ... {} in all", out, entries.size()) : out;
}

std::string described(const PoolOperation& o) {
  switch (o.kind) {
    case Kind::Create:
      return fmt::format("create({} tokens, namespace {}{})", o.tokens.size(), o.name_space,
                         o.reuse ? "" : ", no reuse");
    case Kind::Admit:
      return fmt::format("admit({} tokens, namespace {}{}; {} in all, chunk {}; others {})", o.tokens.size(),
                         o.name_space, o.reuse ? "" : ", no reuse", o.total, o.chunk, text(o.entries));
    case Kind::Reserve: return fmt::format("reserve({})", text(o.entries));
    case Kind::Commit:
      return fmt::format("commit(sequence {}, {} tokens{})", text(o.sequence), o.tokens.size(),
                         o.checkpoint ? ", checkpoint" : "");
    case Kind::Fork: return fmt::format("fork(sequence {} at {})", text(o.sequence), o.position);
    case Kind::Rewind: return fmt::format("rewind(sequence {} to {})", text(o.sequence), o.position);
    case Kind::Release: return fmt::format("release(sequence {})", text(o.sequence));
    case Kind::Save: return fmt::format("save(sequence {})", text(o.sequence));
    case Kind::Restore: return fmt::format("restore({} tokens, namespace {})", o.tokens.size(), o.name_space);
    case Kind::Suspend:
      return fmt::format("suspend(sequence {}; {} free cells of {} bytes)", text(o.sequence), o.free_cells,
                         o.cell_bytes);
    case Kind::Resume:
      return fmt::format("resume({} tokens, namespace {}; {} pages were not copied)", o.tokens.size(), o.name_space,
                         o.not_copied.size());
    case Kind::SetCosts:
      return fmt::format("set_costs({} s a token, {} s per token of context)", o.costs.token,
                         o.costs.token_per_context);
    case Kind::Draft:
      return fmt::format("draft(sequence {}: {} drafts after {} tokens)", text(o.sequence), o.chunk, o.total);
    case Kind::EndDraft: return fmt::format("end_draft(sequence {})", text(o.sequence));
    case Kind::SetShare: return fmt::format("set_share(tenant {}: {} to {} bytes)", o.name_space, o.floor, o.cap);
    case Kind::DropCache:
    case Kind::Recover:
    case Kind::AllocPage:
    case Kind::FreePage:
    case Kind::AllocSlot:
    case Kind::FreeSlot: break;
  }
  return fmt::format("{}()", name(o.kind));
}

// What the pool answered.
std::string answered(const PoolOperation& o) {
  if (o.error) return fmt::format("refused ({})", name(*o.error));
  if (o.kind == Kind::Create || o.kind == Kind::Admit) return text(o.hit);
  if (o.kind == Kind::Fork || o.kind == Kind::Rewind) return fmt::format("stands at {}", o.reached);
  if (o.kind == Kind::Suspend) return fmt::format("copied {} bytes", o.bytes);
  return "done";
}

bool is_device_error(const PoolOperation& o) {
  return o.error == PoolError::Code::DeviceFailure || o.error == PoolError::Code::WorkFailed;
}

class Replayer {
 public:
  explicit Replayer(const JournalHeader& header)
      : header_(header), pool_(std::make_unique<ReferencePool>(header.config, header.geometry)) {}

  // Runs one operation. Returns false if it differs; then pool() and reference() say how.
  bool run(const PoolOperation& o) {
    if (is_device_error(o)) blind_ = true;
    if (o.kind == Kind::AllocPage || o.kind == Kind::AllocSlot) blind_ = true, plain_ += !o.error;
    if (o.kind == Kind::FreePage || o.kind == Kind::FreeSlot) blind_ = true, plain_ -= !o.error && plain_ > 0;
    if (blind_) return look_on(o);
    if (const std::string why = senseless(o); !why.empty()) return differ(answered(o), "refused: " + why);
    return compare(o) && counts_agree(o);
  }
  bool blind() const { return blind_; }
  const std::string& pool() const { return said_; }
  const std::string& reference() const { return predicted_; }

 private:
  struct Place {
    std::uint32_t generation = 0;
    int name = 0;  // 0: no live sequence
    bool used = false;
  };

  bool differ(std::string pool, std::string reference) {
    said_ = std::move(pool);
    predicted_ = std::move(reference);
    return false;
  }

  // --- sequences by id
  int name_of(SequenceId id) const {
    const auto found = places_.find(id.index);
    return found == places_.end() || found->second.generation != id.generation ? 0 : found->second.name;
  }
  // Notes the id of a new sequence. Its place must be empty, and its id new.
  bool note(SequenceId id) {
    Place& place = places_[id.index];
    if (id.index >= header_.config.max_sequences || place.name != 0 ||
        (place.used && id.generation <= place.generation)) {
      return differ(fmt::format("made sequence {}", text(id)), "this id is, or was, another sequence's");
    }
    place = {id.generation, next_name_++, true};
    ++live_;
    return true;
  }
  void forget(SequenceId id) {
    places_[id.index].name = 0;
    --live_;
  }
  ReferencePool::Demands demands(std::span<const BatchEntry> entries) const {
    ReferencePool::Demands demands;
    for (const BatchEntry& entry : entries) demands.emplace_back(name_of(entry.sequence), entry.rows);
    return demands;
  }

  // --- what a pool refuses before it does anything. Such calls are not in a journal.
  std::string senseless(const PoolOperation& o) const {
    const std::uint32_t most = header_.config.max_tokens;
    const auto too_long = [&](std::uint64_t tokens) { return fmt::format("{} tokens, of at most {}", tokens, most); };
    const auto no_sequence = [](SequenceId id) { return fmt::format("there is no sequence {}", text(id)); };
    const bool may_be_gone = o.kind == Kind::Resume && o.error == PoolError::Code::PrefixGone;
    if (o.error && o.error != PoolError::Code::Exhausted && !may_be_gone) return "not like this";
    switch (o.kind) {
      case Kind::Create: return o.tokens.size() > most ? too_long(o.tokens.size()) : "";
      case Kind::Admit:
        if (o.total > most || o.tokens.size() > o.total)
          return too_long(std::max<std::uint64_t>(o.total, o.tokens.size()));
        return senseless_entries(o.entries, true);
      case Kind::Reserve: return senseless_entries(o.entries, false);
      case Kind::Commit:
        if (name_of(o.sequence) == 0) return no_sequence(o.sequence);
        return pool_->can_commit(name_of(o.sequence), o.tokens.size()) ? "" : "these tokens were not reserved";
      case Kind::Fork:
      case Kind::Rewind:
        if (name_of(o.sequence) == 0) return no_sequence(o.sequence);
        if (pool_->has_drafts(name_of(o.sequence))) return kDrafts;
        return o.position <= pool_->length(name_of(o.sequence)) ? "" : "beyond the end of the sequence";
      case Kind::Release: return name_of(o.sequence) == 0 ? no_sequence(o.sequence) : "";
      case Kind::Save:
        if (name_of(o.sequence) == 0) return no_sequence(o.sequence);
        return pool_->has_drafts(name_of(o.sequence)) ? kDrafts : "";
      case Kind::Suspend:
        if (name_of(o.sequence) == 0) return no_sequence(o.sequence);
        if (pool_->has_drafts(name_of(o.sequence))) return kDrafts;
        return o.cell_bytes == 0 ? "a host arena with cells of 0 bytes" : "";
      case Kind::Restore: return senseless_copy(o);
      case Kind::Resume: return senseless_copy(o);
      case Kind::SetShare:
        if (header_.config.eviction != Eviction::Value) return "floors and caps need eviction by value";
        return o.floor > o.cap ? "the floor is above the cap" : "";
      case Kind::Recover: return live_ > 0 ? "there are live sequences" : "";
      case Kind::SetCosts:
      case Kind::DropCache:
      case Kind::AllocPage:
      case Kind::FreePage:
      case Kind::AllocSlot:
      case Kind::FreeSlot: break;
      case Kind::Draft:
        if (name_of(o.sequence) == 0) return no_sequence(o.sequence);
        return pool_->can_draft(name_of(o.sequence), o.total, o.chunk) ? "" : "no drafts can follow these tokens";
      case Kind::EndDraft:
        if (name_of(o.sequence) == 0) return no_sequence(o.sequence);
        return pool_->has_drafts(name_of(o.sequence)) ? "" : "there are no drafts";
    }
    return "";
  }
  std::string senseless_entries(std::span<const BatchEntry> entries, bool may_repeat) const {
    std::vector<std::uint32_t> seen;
    for (const BatchEntry& entry : entries) {
      const int name = name_of(entry.sequence);
      if (name == 0) return fmt::format("there is no sequence {}", text(entry.sequence));
      if (!may_repeat && pool_->has_drafts(name)) return kDrafts;
      if (pool_->length(name) + entry.rows > header_.config.max_tokens) {
        return fmt::format("sequence {} would be too long", text(entry.sequence));
      }
      seen.push_back(entry.sequence.index);
    }
    std::ranges::sort(seen);
    return may_repeat || std::ranges::adjacent_find(seen) == seen.end() ? "" : "a sequence is listed twice";
  }
  std::string senseless_copy(const PoolOperation& o) const {
    const StateLayout& layout = header_.config.layout;
    if (o.tokens.size() > header_.config.max_tokens) return "too many tokens";
    if (o.first_blocks.size() != layout.groups.size()) return "a first block for each layer group is needed";
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      const std::uint64_t window = layout.groups[g].window, length = o.tokens.size();
      const std::uint64_t start = window == 0 || length + 1 <= window ? 0 : length + 1 - window;
      if (o.first_blocks[g] > start / layout.block_size) return "pages of a window are missing";
    }
    const std::uint64_t blocks = (o.tokens.size() + layout.block_size - 1) / layout.block_size;
    for (const HostArena::Object& page : o.not_copied) {
      if (page.cls >= layout.groups.size() || page.block >= blocks || page.block < o.first_blocks[page.cls]) {
        return "a page that the sequence does not have";
      }
    }
    return "";
  }

  // --- the comparison
  bool compare(const PoolOperation& o) {
    const bool done = !o.error;
    const Tokens tokens(o.tokens.begin(), o.tokens.end());
    switch (o.kind) {
      case Kind::Create: return compare(o, pool_->create(next_name_, tokens, o.name_space, o.reuse));
      case Kind::Admit:
        return compare(o,
                       pool_->admit(next_name_, tokens, o.name_space, o.reuse, o.total, o.chunk, demands(o.entries)));
      case Kind::Reserve: return compare(o, pool_->reserve(demands(o.entries)));
      case Kind::Commit:
        if (!done) return differ(answered(o), "done: a commit is never refused for lack of memory");
        pool_->commit(name_of(o.sequence), tokens, o.checkpoint);
        return true;
      case Kind::Fork: {
        const auto position = pool_->fork(name_of(o.sequence), next_name_, o.position);
        return compare(o, position.has_value()) && (!done || (compare(o, *position) && note(o.made)));
      }
      case Kind::Rewind:
        if (!done) return differ(answered(o), "done: a rewind needs no memory");
        return compare(o, pool_->rewind(name_of(o.sequence), o.position));
      case Kind::Release:
        if (!done) return differ(answered(o), "done: a release needs no memory");
        pool_->release(name_of(o.sequence));
        forget(o.sequence);
        return true;
      case Kind::Restore: {
        const std::vector<std::uint32_t> first(o.first_blocks.begin(), o.first_blocks.end());
        return compare(o, pool_->restore(next_name_, tokens, o.name_space, first)) && (!done || note(o.made));
      }
      case Kind::Suspend: return compare_suspended(o);
      case Kind::Resume: return compare_resumed(o, tokens);
      case Kind::SetCosts: pool_->set_costs(o.costs); return true;
      case Kind::SetShare: return compare(o, pool_->set_share(o.name_space, o.floor, o.cap));
      case Kind::DropCache: pool_->drop_cache(); return true;
      case Kind::Recover: begin_again(); return true;
      case Kind::Save:  // changes nothing
      case Kind::AllocPage:
      case Kind::FreePage:
      case Kind::AllocSlot:
      case Kind::FreeSlot: break;
      case Kind::Draft: return compare(o, pool_->draft(name_of(o.sequence), o.total, o.chunk));
      case Kind::EndDraft: pool_->end_draft(name_of(o.sequence)); return true;
    }
    return true;
  }
  bool compare(const PoolOperation& o, bool fits) {
    if (fits == !o.error) return true;
    return differ(answered(o), fits ? "there is room for it" : "there is no room for it");
  }
  bool compare_suspended(const PoolOperation& o) {
    const StateLayout& layout = header_.config.layout;
    const int name = name_of(o.sequence);
    const auto pages = pool_->to_copy(name);
    std::uint64_t bytes = layout.has_recurrent() ? layout.recurrent.bytes() : 0;
    std::uint64_t cells = (bytes + o.cell_bytes - 1) / o.cell_bytes;
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      const auto copied = static_cast<std::uint64_t>(std::ranges::count(pages.copied[g], true));
      const std::uint64_t page_bytes = layout.groups[g].page_bytes();
      bytes += copied * page_bytes;
      cells += copied * ((page_bytes + o.cell_bytes - 1) / o.cell_bytes);
    }
    if (!compare(o, cells <= o.free_cells)) return false;
    if (o.error) return true;
    if (bytes != o.bytes) return differ(answered(o), fmt::format("copied {} bytes", bytes));
    pool_->release(name);
    forget(o.sequence);
    return true;
  }
  bool compare_resumed(const PoolOperation& o, const Tokens& tokens) {
    using Outcome = ReferencePool::Outcome;
    ReferencePool::Away away{.tokens = tokens, .name_space = o.name_space, .first = {}, .copied = {}};
    away.first.assign(o.first_blocks.begin(), o.first_blocks.end());
    const std::uint64_t block = header_.config.layout.block_size, blocks = (tokens.size() + block - 1) / block;
    away.copied.assign(away.first.size(), std::vector<bool>(blocks, true));
    for (const HostArena::Object& page : o.not_copied) away.copied[page.cls][page.block] = false;
    const Outcome outcome = pool_->resume(next_name_, away);
    const bool gone = o.error == PoolError::Code::PrefixGone;
    if (gone != (outcome == Outcome::PrefixGone)) {
      return differ(answered(o), gone ? "its prefix is there" : "a page that was not copied is gone");
    }
    return gone || (compare(o, outcome == Outcome::Back) && (o.error || note(o.made)));
  }
  bool compare(const PoolOperation& o, std::uint32_t position) {
    return o.reached == position || differ(answered(o), fmt::format("stands at {}", position));
  }
  bool compare(const PoolOperation& o, const std::optional<Hit>& hit) {
    if (hit.has_value() != !o.error) return differ(answered(o), hit ? text(*hit) : "there is no room for it");
    if (!hit) return true;
    if (!ReferencePool::same(o.hit, *hit)) return differ(text(o.hit), text(*hit));
    return note(o.made);
  }
  bool counts_agree(const PoolOperation& o) {
    const auto same = [&](std::uint64_t counted, std::uint64_t predicted, const std::string& what) {
      return counted == predicted ||
             differ(fmt::format("{} {} afterwards", counted, what), fmt::format("{}", predicted));
    };
    const StateLayout& layout = header_.config.layout;
    const std::size_t groups = layout.groups.size();
    if (!same(o.counts.classes, groups + layout.has_recurrent(), "classes of objects")) return false;
    for (std::size_t g = 0; g < groups; ++g) {
      if (!same(o.counts.objects[g].held, pool_->held(g), fmt::format("pages of group {} held", g))) return false;
      if (!same(o.counts.objects[g].cached, pool_->cached(g), fmt::format("pages of group {} cached", g))) return false;
    }
    if (layout.has_recurrent()) {
      if (!same(o.counts.objects[groups].held, pool_->held_states(), "states held")) return false;
      if (!same(o.counts.objects[groups].cached, pool_->checkpoints(), "checkpoints")) return false;
    }
    return same(o.counts.known_blocks, pool_->known_blocks(), "blocks known");
  }

  // --- without comparison, until the pool is empty
  bool look_on(const PoolOperation& o) {
    if (o.error) return true;
    const bool makes = o.kind == Kind::Create || o.kind == Kind::Admit || o.kind == Kind::Fork ||
                       o.kind == Kind::Restore || o.kind == Kind::Resume;
    if (makes && !note(o.made)) return false;
    if (o.kind == Kind::Release || o.kind == Kind::Suspend) {
      if (name_of(o.sequence) == 0) return differ("done", fmt::format("there is no sequence {}", text(o.sequence)));
      forget(o.sequence);
    }
    if (o.kind == Kind::SetCosts) pool_->set_costs(o.costs);
    if (o.kind == Kind::SetShare) (void)pool_->set_share(o.name_space, o.floor, o.cap);
    // With eviction by value, drop_cache() keeps what the pool has learned meanwhile, which is not known here.
    const bool as_new =
        o.kind == Kind::Recover || (o.kind == Kind::DropCache && header_.config.eviction == Eviction::Lru);
    if (!as_new || live_ > 0 || plain_ > 0) return true;
    blind_ = false;
    begin_again();
    return counts_agree(o);
  }
  void begin_again() {
    auto empty = std::make_unique<ReferencePool>(header_.config, header_.geometry);
    empty->set_costs_and_shares_of(*pool_);
    pool_ = std::move(empty);
  }

  const JournalHeader& header_;
  std::unique_ptr<ReferencePool> pool_;
  std::map<std::uint32_t, Place> places_;  // by index of the id
  int next_name_ = 1;
  std::uint64_t live_ = 0, plain_ = 0;
  bool blind_ = false;
  std::string said_, predicted_;
};

void count(const PoolOperation& o, ReplayReport& report) {
  ++report.records;
  ++report.operations[static_cast<std::size_t>(o.kind)];
  report.refusals += o.error == PoolError::Code::Exhausted;
  report.device_errors += is_device_error(o);
  if (o.error) return;
  report.sequences += o.made.valid();
  if (o.kind == Kind::Commit) report.committed_tokens += o.tokens.size();
  if (o.kind != Kind::Create && o.kind != Kind::Admit) return;
  report.prompt_tokens += o.tokens.size();
  report.hit_tokens += o.hit.tokens;
}

}  // namespace

ReplayReport replay(std::istream& in) {
  ReplayReport report;
  auto reader = JournalReader::open(in);
  if (!reader) {
    report.damage = reader.error();
    return report;
  }
  report.header = reader->header();
  Replayer replayer(reader->header());
  for (;;) {
    const auto operation = reader->next();
    if (!operation) report.damage = operation.error();
    if (!operation || *operation == nullptr) break;
    count(**operation, report);
    const bool same = replayer.run(**operation);
    report.unchecked += replayer.blind();
    if (same) continue;
    report.difference =
        Difference{reader->number(), reader->offset(), described(**operation), replayer.pool(), replayer.reference()};
    break;
  }
  report.bytes = reader->bytes_read();
  return report;
}

}  // namespace quire::journal

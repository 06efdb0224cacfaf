// Content that comes back from the tiers into the pool.
#include <algorithm>
#include <bit>
#include <utility>

#include "quire/base/check.h"
#include "quire/tiers/tiers.h"

namespace quire::tiers {
namespace {

using Phase = FetchStatus::Phase;

// A piece of so many bytes is promoted while the rest is on its way.
constexpr std::uint64_t kPiece = std::uint64_t{8} << 20;
constexpr std::size_t kQuestions = 256;  // submitted together

double seconds_since(Clock::time_point time) { return std::chrono::duration<double>(Clock::now() - time).count(); }

}  // namespace

Tiers::Wanted& Tiers::wanted(Fetch& fetch, std::uint32_t block, std::uint32_t cls) const {
  return fetch.wanted[std::size_t{block} * classes() + cls];
}
const Tiers::Wanted& Tiers::wanted(const Fetch& fetch, std::uint32_t block, std::uint32_t cls) const {
  return fetch.wanted[std::size_t{block} * classes() + cls];
}

ObjectKey Tiers::key_at(const Fetch& fetch, std::uint32_t block, std::uint32_t cls) const {
  return {fetch.names[block], cls == groups() ? ObjectKey::kCheckpoint : static_cast<std::uint8_t>(cls)};
}

Tiers::Fetch* Tiers::find(FetchId id) {
  const auto at = std::ranges::find(fetches_, id, [](const auto& fetch) { return fetch->id; });
  return at == fetches_.end() ? nullptr : at->get();
}
const Tiers::Fetch* Tiers::find(FetchId id) const { return const_cast<Tiers*>(this)->find(id); }

FetchId Tiers::look(std::span<const Token> prompt, Namespace name_space) {
  if (pool_ == nullptr || (tiers_.empty() && !host_) || prompt.empty() || !pool_->config().prefix_cache) return 0;
  // The last token is always computed.
  const auto blocks = static_cast<std::uint32_t>((prompt.size() - 1) / block_size());
  if (blocks == 0 || pool_->lookup(prompt, name_space).tokens >= blocks * block_size()) return 0;
  auto fetch = std::make_unique<Fetch>();
  fetch->id = ++last_fetch_;
  fetch->name_space = name_space;
  fetch->blocks = blocks;
  fetch->tokens.assign(prompt.begin(), prompt.begin() + std::ptrdiff_t{blocks} * block_size() + 1);
  ObjectName name = root(name_space);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    name = block_name(name, std::span(fetch->tokens).subspan(std::size_t{b} * block_size(), block_size()));
    fetch->names.push_back(name);
  }
  fetch->began = fetch->progress = Clock::now();
  begin(*fetch);
  // Somebody else brings the first block that is missing here: what follows it is looked for afterwards.
  for (const auto& other : fetches_) {
    const std::uint32_t at = fetch->known;
    if (other->ended || other->phase == Phase::Done || other->behind != 0 || at >= blocks || at >= other->blocks)
      continue;
    if (other->names[at] == fetch->names[at]) fetch->behind = other->id;
  }
  ++counters_.looks;
  fetches_.push_back(std::move(fetch));
  Fetch& made = *fetches_.back();
  if (made.behind == 0) {
    ask(made);
    take_arrived();  // a tier may have answered at once
    if (made.phase == Phase::Looking) ask(made);
  }
  return last_fetch_;
}

// Notes what the pool has, and what must be asked for.
void Tiers::begin(Fetch& fetch) {
  for (Wanted& object : fetch.wanted) {
    if (object.state == Wanted::State::Ready) give_back(object);
  }
  std::vector<std::uint32_t> path(fetch.blocks);
  fetch.known = pool_->known_blocks(fetch.tokens, fetch.name_space, path);
  fetch.wanted.assign(std::size_t{fetch.blocks} * classes(), {});
  fetch.phase = Phase::Looking;
  fetch.asked = 0;
  fetch.first = fetch.known;
  fetch.promoted = 0;
  const TierSet repaired_now = repaired();
  for (std::uint32_t b = 0; b < fetch.blocks; ++b) {
    for (std::uint32_t c = 0; c < classes(); ++c) {
      Wanted& object = wanted(fetch, b, c);
      if (b < fetch.known && pool_->cached_object(path[b], c).address != nullptr) {
        object.state = Wanted::State::InPool;
        repair(path[b], c, repaired_now);
      } else if (c < groups() && b < pool_->first_block_needed(c, (fetch.known + 1) * block_size())) {
        object.state = Wanted::State::Absent;  // before every window that could be of use
      } else if (const std::uint32_t place = host_ ? host_->find(key_at(fetch, b, c)) : UINT32_MAX;
                 place != UINT32_MAX) {
        host_->pin(place);
        object.state = Wanted::State::Ready;
        object.host = place;
      }
    }
  }
}

// Submits questions as long as the tiers take them. When all are answered, it is known what can be there.
void Tiers::ask(Fetch& fetch) {
  const auto all = static_cast<std::uint32_t>(fetch.wanted.size() * tiers_.size());
  std::vector<TierJob> jobs;
  while (fetch.asked < all) {
    const auto tier = static_cast<std::uint8_t>(fetch.asked / fetch.wanted.size());
    const std::uint32_t before = fetch.asked;
    std::vector<std::uint32_t> places;
    jobs.clear();
    for (; fetch.asked < all && fetch.asked / fetch.wanted.size() == tier && jobs.size() < kQuestions; ++fetch.asked) {
      const auto place = static_cast<std::uint32_t>(fetch.asked % fetch.wanted.size());
      if (fetch.wanted[place].state != Wanted::State::Asked) continue;
      const std::uint32_t block = place / classes(), cls = place % classes();
      const std::uint64_t ticket =
          open_ticket({.fetch = fetch.id, .block = block, .cls = cls, .tier = tier, .since = Clock::now()});
      jobs.push_back({.kind = TierJob::Kind::Find,
                      .key = key_at(fetch, block, cls),
                      .bytes = pool_->bytes_of_object(cls),
                      .ticket = ticket});
      places.push_back(fetch.asked);
    }
    if (jobs.empty()) continue;
    const std::size_t taken = tiers_[tier]->submit(jobs);
    fetch.open += static_cast<std::uint32_t>(taken);
    if (taken == jobs.size()) continue;
    for (std::size_t i = taken; i < jobs.size(); ++i) close_ticket(jobs[i].ticket);
    fetch.asked = taken > 0 || places.empty() ? places[taken] : before;
    return;  // the rest at the next call
  }
  if (fetch.open > 0) return;
  for (Wanted& object : fetch.wanted) {
    if (object.state == Wanted::State::Asked) {
      object.state = object.in != 0 ? Wanted::State::There : Wanted::State::Absent;
    }
  }
  fetch.end = best_end(fetch);
  fetch.phase = fetch.end == 0 ? Phase::Done : Phase::Found;
}

// Visits what a sequence of `end` blocks needs and the pool did not have, block by block; what lies before `first` is
// computed. Stops when visit(block, class) returns false, and returns that.
template <typename Visit>
bool Tiers::each_needed(const Fetch& fetch, std::uint32_t first, std::uint32_t end, Visit visit) const {
  // What lies before all windows is not even looked at.
  std::array<std::uint32_t, kMaxClasses> needed_from{};
  std::uint32_t from = end;
  for (std::uint32_t g = 0; g < groups(); ++g) {
    needed_from[g] = pool_->first_block_needed(g, end * block_size());
    from = std::min(from, needed_from[g]);
  }
  if (first > fetch.known) from = std::max(from, first);
  for (std::uint32_t b = from; b < end; ++b) {
    for (std::uint32_t g = 0; g < groups(); ++g) {
      if (b < needed_from[g]) continue;
      if (wanted(fetch, b, g).state == Wanted::State::InPool) continue;
      if (!visit(b, g)) return false;
    }
  }
  if (!pool_->layout().has_recurrent() || wanted(fetch, end - 1, groups()).state == Wanted::State::InPool) return true;
  return visit(end - 1, groups());
}

// The most blocks after which a sequence could go on with what is there. 0: no more than the pool has itself.
std::uint32_t Tiers::best_end(const Fetch& fetch) const {
  // Pages of groups without a window are needed from the beginning.
  std::uint32_t run = fetch.first;
  const auto has_block = [&](std::uint32_t block) {
    for (std::uint32_t g = 0; g < groups(); ++g) {
      if (pool_->layout().groups[g].window == 0 && wanted(fetch, block, g).state == Wanted::State::Absent) return false;
    }
    return true;
  };
  while (run < fetch.blocks && has_block(run)) ++run;
  const std::uint32_t resumable = pool_->lookup(fetch.tokens, fetch.name_space).tokens / block_size();
  for (std::uint32_t end = run; end > resumable; --end) {
    if (is_complete(fetch, end)) return end;
  }
  return 0;
}

bool Tiers::is_complete(const Fetch& fetch, std::uint32_t end) const {
  // The state first: most blocks have none, and whoever asks goes through all of them.
  if (pool_->layout().has_recurrent() && wanted(fetch, end - 1, groups()).state == Wanted::State::Absent) return false;
  return each_needed(fetch, fetch.first, end, [&](std::uint32_t block, std::uint32_t cls) {
    return wanted(fetch, block, cls).state != Wanted::State::Absent;
  });
}

// Whether everything that is needed of these blocks can have a cell at the same time. Those of what leaves are left
// out.
bool Tiers::has_cells(const Fetch& fetch, std::uint32_t first, std::uint32_t end) const {
  std::array<std::uint32_t, kMaxClasses> cells{};
  return each_needed(fetch, first, end, [&](std::uint32_t block, std::uint32_t cls) {
    if (wanted(fetch, block, cls).host != UINT32_MAX) return true;
    return ++cells[cls] <= staging_->cells(cls) - staging_->cells(cls) / 4;
  });
}

bool Tiers::can_wait(FetchId id, std::uint32_t first_block) const {
  const Fetch* fetch = find(id);
  return fetch != nullptr && has_cells(*fetch, std::max(first_block, fetch->known), fetch->end);
}

// How far the next promotion goes. In pieces cells become free on the way. Otherwise everything that it needs must have
// a cell at the same time: as far as the cells suffice. 0: they suffice for nothing.
std::uint32_t Tiers::next_goal(const Fetch& fetch) const {
  if (in_pieces()) return fetch.end;
  for (std::uint32_t goal = fetch.end; goal > std::max(fetch.first, fetch.promoted); --goal) {
    if (goal != fetch.end && !is_complete(fetch, goal)) continue;
    if (has_cells(fetch, fetch.first, goal)) return goal;
  }
  return 0;
}

// Two fetches that both wait for cells which the other one has would wait for ever. So each begins only when those
// before it have all the cells that they need.
bool Tiers::may_load(const Fetch& fetch) const {
  if (in_pieces()) return true;
  for (const auto& other : fetches_) {
    if (other->id == fetch.id) return true;
    if (other->ended || other->phase != Phase::Fetching) continue;
    const bool has_all = each_needed(*other, other->first, other->goal, [&](std::uint32_t block, std::uint32_t cls) {
      return wanted(*other, block, cls).state != Wanted::State::There;
    });
    if (!has_all) return false;
  }
  return true;
}

void Tiers::fetch(FetchId id, std::uint32_t first_block) {
  Fetch* fetch = find(id);
  if (fetch == nullptr || fetch->phase != Phase::Found) return;
  fetch->first = std::max(first_block, fetch->known);
  fetch->progress = Clock::now();
  fetch->phase = Phase::Fetching;
  fetch->end = best_end(*fetch);
  fetch->goal = next_goal(*fetch);
  ++counters_.fetches;
  if (fetch->goal == 0) return finish(*fetch);
  load(*fetch);
}

FetchStatus Tiers::status(FetchId id) const {
  FetchStatus status;
  const Fetch* fetch = find(id);
  if (fetch == nullptr) return status;
  status.phase = fetch->behind != 0 ? Phase::Looking : fetch->phase;
  status.from = fetch->from;
  status.no_room = fetch->no_room;
  status.waited = seconds_since(fetch->began);
  status.since_progress = seconds_since(fetch->progress);
  const bool ahead = status.phase == Phase::Found || status.phase == Phase::Fetching;
  status.tokens = (ahead ? fetch->end : fetch->promoted) * block_size();
  if (!ahead) return status;
  status.brought = std::max(fetch->known, fetch->promoted) * block_size();
  (void)each_needed(*fetch, fetch->first, fetch->end, [&](std::uint32_t block, std::uint32_t cls) {
    const Wanted& object = wanted(*fetch, block, cls);
    const std::uint64_t bytes = pool_->bytes_of_object(cls);
    if (object.state == Wanted::State::Ready || object.in == 0) return true;
    status.bytes += bytes;
    std::uint8_t tier = 0;
    while ((object.in >> tier & 1) == 0) ++tier;
    status.seconds += static_cast<double>(bytes) * reading_[tier].seconds_per_byte;
    return true;
  });
  return status;
}

std::uint32_t Tiers::known_blocks(FetchId id) const {
  const Fetch* fetch = find(id);
  return fetch == nullptr ? 0 : fetch->known;
}

void Tiers::end(FetchId id) {
  Fetch* fetch = find(id);
  if (fetch == nullptr || fetch->ended) return;
  finish(*fetch);
  fetch->ended = true;  // advance() forgets it when its last job has ended
  if (fetch->open == 0) std::erase_if(fetches_, [&](const auto& each) { return each.get() == fetch; });
}

// Submits reads while there are cells for them, first blocks first.
void Tiers::load(Fetch& fetch) {
  if (!may_load(fetch)) return;
  (void)each_needed(fetch, fetch.first, fetch.goal, [&](std::uint32_t block, std::uint32_t cls) {
    Wanted& object = wanted(fetch, block, cls);
    if (object.state != Wanted::State::There) return true;
    const Staging::Cell cell = staging_->take(cls, staging_->cells(cls) / 4);
    if (!cell.valid()) return false;
    std::uint8_t tier = 0;
    while ((object.in >> tier & 1) == 0) ++tier;
    const std::uint64_t ticket =
        open_ticket({.fetch = fetch.id, .block = block, .cls = cls, .tier = tier, .since = Clock::now()});
    const bool taken = submit(tier, {.kind = TierJob::Kind::Get,
                                     .key = key_at(fetch, block, cls),
                                     .data = staging_->data(cell),
                                     .bytes = staging_->bytes(cell),
                                     .ticket = ticket});
    if (!taken) {
      close_ticket(ticket);
      staging_->give_back(cell);
      return false;
    }
    if (reading_[tier].open++ == 0) reading_[tier].since = Clock::now();
    object = {.state = Wanted::State::Loading, .in = object.in, .from = tier, .cell = cell};
    ++fetch.open;
    return true;
  });
}

void Tiers::answer(Fetch& fetch, const Ticket& ticket, const Arrived& arrived) {
  Wanted& object = wanted(fetch, ticket.block, ticket.cls);
  const auto bit = static_cast<TierSet>(1u << ticket.tier);
  if (arrived.kind == TierJob::Kind::Find) {
    if (arrived.outcome == TierOutcome::Done) object.in |= bit;
    return;
  }
  if (fetch.phase != Phase::Fetching || object.state != Wanted::State::Loading) {
    staging_->give_back(object.cell);  // nobody waits for it any more
    object = {.state = Wanted::State::Absent};
    return;
  }
  if (arrived.outcome == TierOutcome::Done) {
    object.state = Wanted::State::Ready;
    fetch.progress = Clock::now();
    return;
  }
  staging_->give_back(object.cell);
  object.cell = {};
  object.in = static_cast<TierSet>(object.in & ~bit);
  object.state = object.in != 0 ? Wanted::State::There : Wanted::State::Absent;
  if (object.state == Wanted::State::There) return;  // another tier has it too
  fetch.end = best_end(fetch);
  fetch.goal = next_goal(fetch);
  if (fetch.end <= fetch.promoted || fetch.goal == 0) finish(fetch);
}

// Promotes what is complete. Returns whether anything was. The pool waits for the device then: `fenced` becomes the
// error, if anything failed that was submitted since the last fence.
bool Tiers::promote(Fetch& fetch, PoolResult<void>& fenced) {
  std::uint32_t upto = fetch.goal;
  bool complete = true;
  std::uint64_t bytes = 0;
  std::vector<SequencePool::FetchedObject> objects;
  TierSet from = 0;
  const auto collect = [&](std::uint32_t block, std::uint32_t cls) {
    const Wanted& object = wanted(fetch, block, cls);
    if (object.state != Wanted::State::Ready) {
      complete = false;
      upto = block;
      return false;
    }
    bytes += pool_->bytes_of_object(cls);
    SequencePool::FetchedObject found{.cls = cls, .block = cls == groups() ? 0 : block};
    if (object.host != UINT32_MAX) {
      found.cells = &host_->cells(object.host);
      found.cell = host_->first_cell(object.host);
    } else {
      from |= static_cast<TierSet>(1u << object.from);
      found.bytes = staging_->data(object.cell);
    }
    objects.push_back(found);
    return true;
  };
  (void)each_needed(fetch, fetch.first, fetch.goal, collect);
  if (objects.empty()) return false;
  if (!complete) {
    // A piece: the blocks that are complete. Worth while if it is large, or if its cells are needed.
    const bool loading = fetch.open > 0;
    if (!in_pieces() || upto <= std::max(fetch.first, fetch.promoted)) return false;
    std::erase_if(objects, [&](const auto& object) { return object.block >= upto; });
    if (objects.empty() || (bytes < kPiece && loading)) return false;
  }
  if (fetch.first > fetch.known) {  // the blocks before it are being computed
    std::vector<std::uint32_t> path(fetch.first);
    const auto before = std::span<const Token>(fetch.tokens).first(std::size_t{fetch.first} * block_size());
    if (pool_->known_blocks(before, fetch.name_space, path) < fetch.first) return false;
  }
  promoting_ = &fetch;
  const auto sequence = pool_->promote(std::span<const Token>(fetch.tokens).first(std::size_t{upto} * block_size()),
                                       fetch.name_space, objects);
  if (sequence) {
    // A place to resume from, for this prompt and for others.
    if (pool_->layout().has_recurrent()) (void)pool_->commit(*sequence, {}, true);
    const auto released = pool_->release(*sequence);
    QUIRE_CHECK(released.has_value(), "the sequence was just made");
  }
  promoting_ = nullptr;
  if (!sequence) {
    ++counters_.promotions_refused;
    fetch.no_room = sequence.error().code == PoolError::Code::Exhausted;
    if (sequence.error().code != PoolError::Code::Exhausted) finish(fetch);
    if (sequence.error().code == PoolError::Code::WorkFailed) {
      distrust();
      fenced = std::unexpected(sequence.error());
    }
    return false;  // without room it is tried again, until whoever waits gives up
  }
  counters_.promoted += objects.size();
  counters_.promoted_bytes += bytes;
  moved_bytes_ += bytes;
  const std::uint32_t before = std::max(fetch.first, fetch.promoted);
  for (std::uint32_t b = before; b < upto; ++b) {
    // A block is of one tier: where its page lay, or that of the last one that was fetched.
    const Wanted& object = wanted(fetch, b, groups() > 0 ? 0 : classes() - 1);
    const bool of_host = object.state == Wanted::State::Ready ? object.host != UINT32_MAX : from == 0;
    if (of_host) {
      fetch.from[static_cast<std::size_t>(TierKind::Host)] += block_size();
      tokens_from_host_ += block_size();
      continue;
    }
    const std::size_t tier = object.state == Wanted::State::Ready ? object.from : std::countr_zero(from);
    fetch.from[static_cast<std::size_t>(tiers_[tier]->kind())] += block_size();
    tokens_from_[tier] += block_size();
  }
  for (std::uint32_t b = 0; b < upto; ++b) {
    for (std::uint32_t c = 0; c < classes(); ++c) {
      Wanted& object = wanted(fetch, b, c);
      if (object.state != Wanted::State::Ready) continue;
      if (object.host != UINT32_MAX) host_->count_hit(pool_->bytes_of_object(c));
      give_back(object);
      object = {.state = Wanted::State::InPool};
    }
  }
  fetch.promoted = upto;
  fetch.progress = Clock::now();
  if (upto == fetch.end) {
    finish(fetch);
  } else if (upto == fetch.goal) {
    fetch.goal = next_goal(fetch);
    if (fetch.goal == 0) finish(fetch);
  }
  return true;
}

void Tiers::finish(Fetch& fetch) {
  fetch.phase = Phase::Done;
  for (Wanted& object : fetch.wanted) {
    if (object.state != Wanted::State::Ready) continue;
    give_back(object);
    object = {.state = Wanted::State::Absent};
  }
}

// The memory of an object that is ready.
void Tiers::give_back(Wanted& object) {
  if (object.host != UINT32_MAX) return host_->unpin(object.host);
  staging_->give_back(object.cell);
}

}  // namespace quire::tiers

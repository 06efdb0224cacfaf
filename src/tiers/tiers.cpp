#include "quire/tiers/tiers.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "quire/base/check.h"

namespace quire::tiers {
namespace {

// How long reading a byte takes, until it was measured.
double guess(TierKind kind) {
  switch (kind) {
    case TierKind::Host: return 1e-10;
    case TierKind::Disk: return 1e-9;
    case TierKind::Shared: return 2e-9;
  }
  return 1e-9;
}

constexpr double kMemory = 0.7;                              // weight of earlier measurements
constexpr std::uint64_t kMeasured = std::uint64_t{1} << 20;  // bytes; fewer say nothing about the speed
constexpr std::size_t kMostPending = std::size_t{1} << 16;
constexpr std::chrono::milliseconds kFlushPause{1};

}  // namespace

Tiers::Tiers(TiersOptions options) : options_(std::move(options)) {}

Tiers::~Tiers() { detach(); }

void Tiers::detach() {
  tiers_.clear();  // waits for their threads
  // Staging memory belongs to the device until downloads into it are done.
  if (!copying_.empty()) (void)device_->fence();
  copying_.clear();
  to_offer_.clear();
  host_.reset();
  staging_.reset();
  pool_ = nullptr;
  device_ = nullptr;
}

void Tiers::add(std::unique_ptr<Tier> tier) {
  QUIRE_CHECK(pool_ == nullptr && tiers_.size() < 8, "tiers are added before the pool is attached, at most 8");
  reading_.push_back({.seconds_per_byte = guess(tier->kind())});
  tokens_from_.push_back(0);
  tiers_.push_back(std::move(tier));
}

PoolResult<void> Tiers::attach(SequencePool& pool) {
  std::vector<std::uint64_t> object_bytes;
  for (std::uint32_t c = 0; c < pool.object_classes(); ++c) object_bytes.push_back(pool.bytes_of_object(c));
  auto staging = Staging::create(pool.arena().device(), options_.staging_bytes, object_bytes);
  if (!staging) return std::unexpected(staging.error());
  staging_ = std::move(*staging);
  staging_->prepare(pool.arena().device());
  pool_ = &pool;
  device_ = &pool.arena().device();
  const StateLayout& layout = pool.layout();
  in_pieces_ = !layout.has_recurrent() &&
               std::ranges::all_of(layout.groups, [](const auto& group) { return group.window == 0; });
  infos_.resize(pool.prefix_index().max_nodes());
  pending_.resize(std::min<std::size_t>(kMostPending, infos_.size() * object_bytes.size() + 1));
  std::uint32_t cells = 0;
  for (std::uint32_t c = 0; c < pool.object_classes(); ++c) cells += staging_->cells(c);
  leaving_.resize(cells);
  for (std::uint32_t i = cells; i > 0; --i) free_leaving_.push_back(i - 1);
  copying_.reserve(cells);
  to_offer_.reserve(cells);
  return {};
}

void Tiers::use_host(HostArena& arena, std::uint64_t bytes) { host_ = std::make_unique<HostTier>(arena, bytes); }

void Tiers::leave_host() {
  if (!host_) return;
  for (const auto& fetch : fetches_) finish(*fetch);
  (void)device_->fence();
  host_.reset();
}

void Tiers::on_arrival(std::function<void()> wake) {
  const std::lock_guard lock(arrival_);
  wake_ = std::move(wake);
}

void Tiers::done(const TierJob& job, TierOutcome outcome) noexcept {
  const std::lock_guard lock(arrival_);
  arrived_.push_back({job.ticket, outcome, job.kind, job.bytes});
  if (wake_ && job.kind != TierJob::Kind::Put) wake_();
}

PoolResult<void> Tiers::advance(bool bounded) {
  if (pool_ == nullptr) return {};
  take_arrived();
  auto fenced = finish_copies();
  offer_leaving();
  if (fenced) copy_pending();

  moved_bytes_ = 0;
  for (std::size_t i = 0; i < fetches_.size(); ++i) {
    Fetch& fetch = *fetches_[i];
    if (fetch.ended) continue;
    if (fetch.behind != 0) {
      const Fetch* other = find(fetch.behind);
      if (other != nullptr && !other->ended && other->phase != FetchStatus::Phase::Done) continue;
      fetch.behind = 0;
      begin(fetch);
    }
    if (fetch.phase == FetchStatus::Phase::Looking) ask(fetch);
    if (fetch.phase != FetchStatus::Phase::Fetching) continue;
    load(fetch);
    while (fetch.phase == FetchStatus::Phase::Fetching && (!bounded || moved_bytes_ < options_.step_bytes) &&
           promote(fetch, fenced)) {
      load(fetch);
    }
  }
  std::erase_if(fetches_, [](const auto& fetch) { return fetch->ended && fetch->open == 0; });
  return fenced;
}

void Tiers::keep_note(const std::string& note) {
  for (const auto& tier : tiers_) tier->keep_note(note);
}

std::string Tiers::kept_note() const {
  for (const auto& tier : tiers_) {
    if (std::string note = tier->kept_note(); !note.empty()) return note;
  }
  return {};
}

bool Tiers::busy() const { return pending_count_ > 0 || free_leaving_.size() < leaving_.size() || !fetches_.empty(); }

bool Tiers::flush(Clock::time_point deadline) {
  if (pool_ != nullptr && options_.write_back && !tiers_.empty()) add_all_pending();
  while (pool_ != nullptr && (pending_count_ > 0 || free_leaving_.size() < leaving_.size())) {
    if (!advance() || Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kFlushPause);
  }
  return true;
}

void Tiers::take_arrived() {
  {
    const std::lock_guard lock(arrival_);
    arrived_now_.swap(arrived_);
  }
  for (const Arrived& arrived : arrived_now_) take(arrived);
  arrived_now_.clear();
}

void Tiers::take(const Arrived& arrived) {
  const Ticket ticket = tickets_[arrived.ticket];
  close_ticket(arrived.ticket);
  if (arrived.kind == TierJob::Kind::Put) {
    Leaving& object = leaving_[ticket.leaving];
    if (arrived.outcome != TierOutcome::Done) went_without(object);
    if (--object.open == 0 && object.to == 0) {
      was_kept(object);
      staging_->give_back(object.cell);
      free_leaving_.push_back(ticket.leaving);
    }
    return;
  }
  if (arrived.kind == TierJob::Kind::Get) {
    Reading& reading = reading_[ticket.tier];
    if (arrived.outcome == TierOutcome::Done) reading.bytes += arrived.bytes;
    if (--reading.open == 0) {
      if (reading.bytes >= kMeasured) {
        const double seconds = std::chrono::duration<double>(Clock::now() - reading.since).count();
        reading.seconds_per_byte =
            kMemory * reading.seconds_per_byte + (1 - kMemory) * seconds / static_cast<double>(reading.bytes);
      }
      reading.bytes = 0;
    }
  }
  Fetch* fetch = find(ticket.fetch);
  QUIRE_CHECK(fetch != nullptr, "a fetch lives as long as its jobs");
  --fetch->open;
  answer(*fetch, ticket, arrived);
}

std::uint64_t Tiers::open_ticket(const Ticket& ticket) {
  if (free_ticket_ == UINT64_MAX) {
    tickets_.push_back(ticket);
    return tickets_.size() - 1;
  }
  const std::uint64_t number = std::exchange(free_ticket_, tickets_[free_ticket_].next);
  tickets_[number] = ticket;
  return number;
}

void Tiers::close_ticket(std::uint64_t ticket) { tickets_[ticket].next = std::exchange(free_ticket_, ticket); }

bool Tiers::submit(std::uint8_t tier, const TierJob& job) { return tiers_[tier]->submit({&job, 1}) == 1; }

TiersStats Tiers::stats() const {
  TiersStats stats = counters_;
  if (host_) stats.tiers.push_back({TierKind::Host, host_->usage(), tokens_from_host_});
  for (std::size_t i = 0; i < tiers_.size(); ++i) {
    stats.tiers.push_back({tiers_[i]->kind(), tiers_[i]->usage(), tokens_from_[i]});
  }
  if (staging_) {
    stats.staging_bytes = staging_->total_bytes();
    stats.staging_used_bytes = staging_->used_bytes();
  }
  stats.pending = pending_count_;
  return stats;
}

}  // namespace quire::tiers

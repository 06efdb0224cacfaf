#include "quire/state/arena.h"

#include <algorithm>

#include "quire/base/check.h"
#include "quire/base/numbers.h"
#include "quire/state/layout.h"
#include "quire/state/out_of_memory.h"

namespace quire {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{64} << 10;  // room for the table entries between two fences

}  // namespace

PoolResult<SlabPlan> plan_slabs(std::uint64_t budget_bytes, std::span<const std::uint64_t> object_bytes,
                                std::size_t located) {
  std::uint64_t largest = 0;
  for (const std::uint64_t bytes : object_bytes) {
    if (bytes == 0 || bytes % kObjectAlignment != 0) {
      return std::unexpected(PoolError::invalid_argument("an object size is not a multiple of the alignment"));
    }
    largest = std::max(largest, bytes);
  }
  if (largest == 0) return std::unexpected(PoolError::invalid_argument("no objects to hold"));
  if (budget_bytes < largest)
    return std::unexpected(PoolError::exhausted("bytes for one object", largest, budget_bytes));

  if (object_bytes.size() == 1) {
    // A single class never hands a slab to another: one slab is enough.
    const std::uint64_t whole = budget_bytes / largest * largest;
    return SlabPlan{whole, 1, static_cast<double>(whole) / static_cast<double>(budget_bytes)};
  }

  // A slab that holds a whole number of objects of a class wastes nothing for it. Multiples of the largest class would
  // be enough; multiples of the others are tried too, since one may suit all classes.
  constexpr std::uint64_t kFewestSlabs = 64;
  constexpr double kWorthLess = 0.005;  // loss of fill that is accepted for smaller slabs
  const std::uint64_t limit = std::max(largest, budget_bytes / kFewestSlabs);
  const auto plan_for = [&](std::uint64_t slab_bytes) {
    SlabPlan plan{.slab_bytes = slab_bytes, .slabs = 0, .worst_fill = 1};
    plan.slabs = static_cast<std::uint32_t>(std::min<std::uint64_t>(budget_bytes / slab_bytes, UINT32_MAX / 2));
    for (const std::uint64_t bytes : object_bytes) {
      const double useful = static_cast<double>(slab_bytes / bytes * bytes) * plan.slabs;
      plan.worst_fill = std::min(plan.worst_fill, useful / static_cast<double>(budget_bytes));
    }
    return plan;
  };
  const auto can_be_located = [&](const SlabPlan& plan) {
    return std::ranges::all_of(object_bytes.first(std::min(located, object_bytes.size())), [&](std::uint64_t bytes) {
      return plan.slab_bytes / location_unit(plan.slab_bytes, bytes) < kNoIndex / plan.slabs;
    });
  };
  SlabPlan best;
  for (const std::uint64_t bytes : object_bytes) {
    const std::uint64_t first = divide_up(largest, bytes);
    for (std::uint64_t k = first; k < first + 256 && k * bytes <= limit; ++k) {
      const SlabPlan plan = plan_for(k * bytes);
      if (!can_be_located(plan)) continue;
      const bool better = plan.worst_fill > best.worst_fill + kWorthLess;
      const bool as_good_and_smaller = plan.worst_fill >= best.worst_fill - kWorthLess && plan.slabs > best.slabs;
      if (best.slabs == 0 || better || as_good_and_smaller) best = plan;
    }
  }
  if (best.slabs == 0) return std::unexpected(PoolError::invalid_argument("more pages than 32 bits can name"));
  return best;
}

PoolResult<Arena> Arena::create(Device& device, std::uint64_t slab_bytes, std::uint32_t slabs, EventLog* events) {
  const auto bytes = checked_mul<std::uint64_t>(slab_bytes, slabs);
  if (!bytes) return std::unexpected(PoolError::invalid_argument("an arena of more bytes than can be counted"));
  auto memory = DeviceBuffer::create(device, *bytes, 4096);
  if (!memory) return std::unexpected(memory.error());
  auto staging = Staging::create(device, kStagingBytes);
  if (!staging) return std::unexpected(staging.error());
  return or_out_of_memory("the slabs of an arena", [&]() -> PoolResult<Arena> {
    Arena arena;
    arena.staging_ = std::move(*staging);
    arena.device_ = &device;
    arena.events_ = events;
    arena.memory_ = std::move(*memory);
    arena.slab_bytes_ = slab_bytes;
    arena.owners_.assign(slabs, kNobody);
    arena.last_owners_.assign(slabs, kNobody);
    arena.tenancy_.assign(slabs, 0);
    arena.free_.resize(slabs);
    for (std::uint32_t i = 0; i < slabs; ++i) arena.free_[i] = slabs - 1 - i;  // the lowest slab is on top
    return arena;
  });
}

std::optional<std::uint32_t> Arena::take(std::uint16_t owner) {
  if (free_.empty()) return std::nullopt;
  const std::uint32_t slab = free_.back();
  free_.pop_back();
  owners_[slab] = owner;
  if (last_owners_[slab] != owner) {
    // The memory is zeroed for the first owner, so its tenancy stays 0.
    if (last_owners_[slab] != kNobody) ++tenancy_[slab];
    last_owners_[slab] = owner;
  }
  if (events_ != nullptr) events_->record(PoolEvent::Kind::SlabTaken, owner, slab);
  return slab;
}

void Arena::give(std::uint32_t slab) {
  QUIRE_CHECK(slab < owners_.size() && owners_[slab] != kNobody, "a slab is given back once");
  if (events_ != nullptr) events_->record(PoolEvent::Kind::SlabGiven, owners_[slab], slab);
  owners_[slab] = kNobody;
  free_.push_back(slab);
}

}  // namespace quire

#include "quire/engine/tenants.h"

#include <algorithm>
#include <limits>

namespace quire::engine {
namespace {

// A token more than its share makes the requests of a tenant of weight 1 this much later. So a hundred tokens count
// like a level of priority, and whoever waits long enough still gets his turn.
constexpr std::chrono::nanoseconds kTokenWorth = std::chrono::milliseconds(100);
constexpr double kMinute = 60;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Tenant& Tenants::of(Namespace id) {
  std::unique_ptr<Tenant>& tenant = tenants_[id];
  if (tenant == nullptr) {
    tenant = std::make_unique<Tenant>();
    tenant->options.id = id;
    tenant->waiting.reserve(reserve_);
    order_.push_back(tenant.get());
  }
  return *tenant;
}

void Tenants::configure(std::span<const TenantOptions> options) {
  for (Tenant* tenant : order_) tenant->options = {.id = tenant->options.id};
  for (const TenantOptions& one : options) of(one.id).options = one;
  for (Tenant* tenant : order_) {
    tenant->allowance = std::min<double>(tenant->allowance, tenant->options.tokens_per_minute);
  }
}

void Tenants::compare() {
  least_served_ = std::numeric_limits<double>::infinity();
  active_weight_ = 0;
  for (const Tenant* tenant : order_) {
    if (!tenant->active()) continue;
    least_served_ = std::min(least_served_, tenant->served);
    active_weight_ += tenant->options.weight;
  }
}

void Tenants::wake(Tenant& tenant) {
  if (tenant.active()) return;
  compare();
  if (active_weight_ > 0) tenant.served = std::max(tenant.served, least_served_);
}

void Tenants::charge(Tenant& tenant, std::uint32_t tokens, bool generated) {
  tenant.served += tokens / tenant.options.weight;
  tenant.allowance -= tokens;
  (generated ? tenant.generated_tokens : tenant.prompt_tokens) += tokens;
}

std::chrono::nanoseconds Tenants::debt(const Tenant& tenant) const {
  constexpr double kMost = 1e15;  // eleven days: times must not overflow
  const double more = std::max(0.0, tenant.served - least_served_) * static_cast<double>(kTokenWorth.count());
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(more, kMost)));
}

double Tenants::share(const Tenant& tenant, std::size_t running) const {
  return active_weight_ > 0 ? static_cast<double>(running) * tenant.options.weight / active_weight_ : 0;
}

std::chrono::nanoseconds Tenants::until_allowed(Tenant& tenant, Clock::time_point now) {
  const double rate = tenant.options.tokens_per_minute / kMinute;
  if (rate == 0) return {};
  // The allowance is at most that of a minute. At first it is full.
  const double gained =
      tenant.refilled ? rate * seconds_between(*tenant.refilled, now) : tenant.options.tokens_per_minute;
  tenant.allowance = std::min<double>(tenant.options.tokens_per_minute, tenant.allowance + gained);
  tenant.refilled = now;
  if (tenant.allowance >= 1) return {};
  return std::chrono::nanoseconds(static_cast<std::int64_t>((1 - tenant.allowance) / rate * 1e9));
}

std::vector<TenantUsage> Tenants::usage() const {
  std::vector<TenantUsage> all;
  all.reserve(order_.size());
  for (const Tenant* tenant : order_) {
    all.push_back({.id = tenant->options.id,
                   .weight = tenant->options.weight,
                   .waiting = static_cast<std::uint32_t>(tenant->waiting.size()),
                   .running = tenant->running,
                   .requests = tenant->requests,
                   .prompt_tokens = tenant->prompt_tokens,
                   .generated_tokens = tenant->generated_tokens});
  }
  return all;
}

}  // namespace quire::engine

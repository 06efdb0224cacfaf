// Who shares the engine. A tenant is a namespace of prefixes: the server gives every key its own. Each tenant has its
// own queue. Tokens are shared out by weight: a tenant that had more than its share waits behind the others.
//
// Fairness is by virtual token counters. A tenant's counter grows by every token that is computed for it, divided by
// its weight. Tokens found in the cache are free. A tenant that asks again after it was idle begins where the others
// are: it gets no credit for the time in which it asked for nothing.
//
// Who may call: the engine's own files, on its thread. Memory is taken only when a tenant is first seen and when a
// request comes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "quire/engine/request.h"

namespace quire::engine {

struct Choice;

inline constexpr double kMostWeight = 1e6;

struct TenantOptions {
  Namespace id = 0;
  double weight = 1;                    // its share of the tokens, compared with the weights of the others
  std::uint32_t max_sequences = 0;      // running at once; 0: no limit of its own
  std::uint32_t tokens_per_minute = 0;  // computed and generated; 0: no limit
};

// What a tenant used since the engine was created, and what it has now.
struct TenantUsage {
  Namespace id = 0;
  double weight = 1;
  std::uint32_t waiting = 0;  // choices, suspended ones included
  std::uint32_t running = 0;
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;  // computed; not those of the cache
  std::uint64_t generated_tokens = 0;
};

struct Tenant {
  TenantOptions options;
  std::vector<Choice*> waiting;  // by rank
  std::uint32_t running = 0;
  double served = 0;     // tokens, divided by the weight
  double allowance = 0;  // tokens that it may use now
  std::optional<Clock::time_point> refilled;
  std::uint64_t requests = 0, prompt_tokens = 0, generated_tokens = 0;
  // Scratch of the scheduler, valid during one admission.
  std::size_t next = 0;       // the next of `waiting` to look at
  std::uint32_t leaving = 0;  // running choices that would be preempted

  bool active() const { return running > 0 || !waiting.empty(); }
  bool may_run_more() const { return options.max_sequences == 0 || running < options.max_sequences; }
};

class Tenants {
 public:
  // `reserve`: waiting choices of a tenant for which room is reserved.
  explicit Tenants(std::size_t reserve) : reserve_(reserve) {}

  // Tenants that are not listed have the default options.
  void configure(std::span<const TenantOptions> options);
  Tenant& of(Namespace id);
  std::span<Tenant* const> all() const { return order_; }

  // To be called before a choice is added. A tenant that was idle begins where the others are.
  void wake(Tenant& tenant);
  // So many tokens were computed for the tenant.
  void charge(Tenant& tenant, std::uint32_t tokens, bool generated);
  // How much later the tenant's requests count as having come, because it had more than its share.
  std::chrono::nanoseconds debt(const Tenant& tenant) const;
  // The number of running choices that it is entitled to, if so many can run in all.
  double share(const Tenant& tenant, std::size_t running) const;
  // How long until the tenant may ask again; zero: it may now.
  std::chrono::nanoseconds until_allowed(Tenant& tenant, Clock::time_point now);
  std::vector<TenantUsage> usage() const;

  // Updates what debt() compares with. To be called once before the tenants are put in order.
  void compare();

 private:
  std::size_t reserve_;
  std::unordered_map<Namespace, std::unique_ptr<Tenant>> tenants_;
  std::vector<Tenant*> order_;  // by first use
  double least_served_ = 0;     // of the active tenants
  double active_weight_ = 0;
};

}  // namespace quire::engine

#include "quire/server/metrics.h"

#include <string_view>
#include <utility>
#include <vector>

#include <prometheus/client_metric.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace quire::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Builds one family of metrics.
class Family {
 public:
  Family(std::vector<MetricFamily>& into, MetricType type, std::string name, std::string help) {
    into.push_back({std::move(name), std::move(help), type, {}});
    family_ = &into.back();
  }
  Family& add(double value, std::vector<ClientMetric::Label> labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    if (family_->type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family_->metric.push_back(std::move(metric));
    return *this;
  }
  void add(ClientMetric metric) { family_->metric.push_back(std::move(metric)); }

 private:
  MetricFamily* family_;
};

ClientMetric::Label label(std::string name, std::string value) {
  ClientMetric::Label made;
  made.name = std::move(name);
  made.value = std::move(value);
  return made;
}

std::string snake(std::string_view words) {
  std::string out(words);
  for (char& c : out) c = c == ' ' ? '_' : c;
  return out;
}

double number(std::uint64_t value) { return static_cast<double>(value); }

}  // namespace

struct Metrics::Histograms {
  prometheus::Histogram first{{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}};
  prometheus::Histogram next{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}};
};

const char* name(Outcome outcome) {
  switch (outcome) {
    case Outcome::Finished: return "finished";
    case Outcome::Invalid: return "invalid";
    case Outcome::QueueFull: return "queue_full";
    case Outcome::Stopping: return "stopping";
    case Outcome::Gone: return "gone";
    case Outcome::TooSlow: return "too_slow";
    case Outcome::Deadline: return "deadline";
    case Outcome::Failed: return "failed";
    case Outcome::RateLimited: return "rate_limited";
  }
  return "?";
}

Metrics::Metrics() : histograms_(std::make_unique<Histograms>()) {}
Metrics::~Metrics() = default;
void Metrics::first_token(double seconds) { histograms_->first.Observe(seconds); }
void Metrics::next_token(double seconds) { histograms_->next.Observe(seconds); }

std::vector<TenantCount> Metrics::by_name(const std::map<Namespace, std::string>& names,
                                          std::span<const engine::TenantUsage> usage) const {
  std::map<std::string, TenantCount> counts;
  for (const auto& [id, name] : names) {
    TenantCount& count = counts[name];
    count.name = name;
    if (const auto refused = rate_limited_.find(id); refused != rate_limited_.end()) {
      count.rate_limited += refused->second;
    }
  }
  for (const engine::TenantUsage& one : usage) {
    const auto name = names.find(one.id);
    if (name == names.end()) continue;
    engine::TenantUsage& sum = counts[name->second].usage;
    sum.waiting += one.waiting;
    sum.running += one.running;
    sum.requests += one.requests;
    sum.prompt_tokens += one.prompt_tokens;
    sum.generated_tokens += one.generated_tokens;
  }
  std::vector<TenantCount> all;
  all.reserve(counts.size());
  for (auto& [name, count] : counts) all.push_back(std::move(count));
  return all;
}

namespace {

void add_tenants(std::vector<MetricFamily>& families, std::span<const TenantCount> tenants) {
  if (tenants.empty()) return;
  const auto add = [&](MetricType type, const char* of, const char* help, auto value) {
    Family family(families, type, of, help);
    for (const TenantCount& one : tenants) family.add(number(value(one)), {label("tenant", one.name)});
  };
  using Count = const TenantCount&;
  add(MetricType::Counter, "quire_tenant_requests_total", "Requests that the engine accepted, by tenant",
      [](Count c) { return c.usage.requests; });
  add(MetricType::Counter, "quire_tenant_prompt_tokens_total", "Tokens computed by prefill, by tenant",
      [](Count c) { return c.usage.prompt_tokens; });
  add(MetricType::Counter, "quire_tenant_generated_tokens_total", "Tokens computed by decode, by tenant",
      [](Count c) { return c.usage.generated_tokens; });
  add(MetricType::Counter, "quire_tenant_rate_limited_total", "Requests refused for tokens a minute, by tenant",
      [](Count c) { return c.rate_limited; });
  add(MetricType::Gauge, "quire_tenant_running", "Sequences in the step, by tenant",
      [](Count c) { return std::uint64_t{c.usage.running}; });
  add(MetricType::Gauge, "quire_tenant_waiting", "Sequences that wait or are suspended, by tenant",
      [](Count c) { return std::uint64_t{c.usage.waiting}; });
}

// Of each tier, with its kind as a label; then what they have in common.
void add_tiers(std::vector<MetricFamily>& families, const tiers::TiersStats& tiers, const engine::EngineStats& engine) {
  using One = const tiers::TiersStats::One&;
  const auto each = [&](MetricType type, const char* of, const char* help, auto value) {
    Family family(families, type, of, help);
    for (One one : tiers.tiers) family.add(static_cast<double>(value(one)), {label("tier", name(one.kind))});
  };
  const auto gauge = [&](const char* of, const char* help, auto value) { each(MetricType::Gauge, of, help, value); };
  const auto counter = [&](const char* of, const char* help, auto value) {
    each(MetricType::Counter, of, help, value);
  };
  gauge("quire_tier_working", "Whether the last attempt to use the tier succeeded",
        [](One one) { return one.usage.working ? 1 : 0; });
  gauge("quire_tier_bytes", "Bytes that the tier uses; 0: not known", [](One one) { return one.usage.bytes; });
  gauge("quire_tier_capacity_bytes", "Bytes that the tier may use; 0: not known",
        [](One one) { return one.usage.capacity_bytes; });
  gauge("quire_tier_objects", "Pages and checkpoints in the tier; 0: not known",
        [](One one) { return one.usage.objects; });
  counter("quire_tier_puts_total", "Objects written to the tier", [](One one) { return one.usage.puts; });
  counter("quire_tier_gets_total", "Objects asked of the tier", [](One one) { return one.usage.gets; });
  counter("quire_tier_hits_total", "Objects read from the tier", [](One one) { return one.usage.hits; });
  counter("quire_tier_misses_total", "Objects that were not there", [](One one) { return one.usage.misses; });
  counter("quire_tier_finds_total", "Questions whether an object is there", [](One one) { return one.usage.finds; });
  counter("quire_tier_written_bytes_total", "Bytes written to the tier",
          [](One one) { return one.usage.bytes_written; });
  counter("quire_tier_read_bytes_total", "Bytes read from the tier", [](One one) { return one.usage.bytes_read; });
  counter("quire_tier_write_seconds_total", "Time spent writing", [](One one) { return one.usage.write_seconds; });
  counter("quire_tier_read_seconds_total", "Time spent reading", [](One one) { return one.usage.read_seconds; });
  counter("quire_tier_evicted_total", "Objects removed to stay within the limit",
          [](One one) { return one.usage.evicted; });
  counter("quire_tier_failed_total", "Jobs that failed", [](One one) { return one.usage.failed; });
  counter("quire_tier_refused_total", "Jobs that found the queue full", [](One one) { return one.usage.refused; });
  counter("quire_tier_tokens_total", "Tokens of prefixes that were brought into the pool",
          [](One one) { return one.tokens; });
  {
    Family damaged(families, MetricType::Counter, "quire_tier_damaged_total", "Objects that failed a check, by reason");
    for (One one : tiers.tiers) {
      for (std::size_t i = 0; i < one.usage.damaged.size(); ++i) {
        damaged.add(number(one.usage.damaged[i]),
                    {label("tier", name(one.kind)), label("reason", snake(name(static_cast<ObjectFault>(i))))});
      }
    }
  }

  const auto one = [&](MetricType type, const char* of, const char* help, std::uint64_t value) {
    Family(families, type, of, help).add(number(value));
  };
  constexpr auto kGauge = MetricType::Gauge, kCounter = MetricType::Counter;
  one(kGauge, "quire_tiers_staging_bytes", "Host memory of objects on their way: in use", tiers.staging_used_bytes);
  one(kGauge, "quire_tiers_staging_capacity_bytes", "Host memory of objects on their way: in all", tiers.staging_bytes);
  one(kGauge, "quire_tiers_pending", "Objects that wait to be copied for the tiers", tiers.pending);
  one(kCounter, "quire_tiers_written_total", "Objects copied from the pool for the tiers", tiers.written);
  one(kCounter, "quire_tiers_written_bytes_total", "Their bytes", tiers.written_bytes);
  one(kCounter, "quire_tiers_lost_total", "Objects evicted before they could be copied", tiers.lost);
  one(kCounter, "quire_tiers_looks_total", "Prompts whose rest was looked for in the tiers", tiers.looks);
  one(kCounter, "quire_tiers_fetches_total", "Prompts that were fetched from there", tiers.fetches);
  one(kCounter, "quire_tiers_promoted_total", "Objects brought into the pool", tiers.promoted);
  one(kCounter, "quire_tiers_promoted_bytes_total", "Their bytes", tiers.promoted_bytes);
  one(kCounter, "quire_tiers_promotions_refused_total", "Fetched objects that the pool did not take",
      tiers.promotions_refused);
  one(kCounter, "quire_tiers_waits_total", "Requests that waited for pages from a tier", engine.tier_waits);
  one(kCounter, "quire_tiers_splits_total", "Requests that computed the front while the rest was fetched",
      engine.tier_splits);
}

}  // namespace

std::string Metrics::text(const engine::EngineStats& engine, const PoolStats& pool, const tiers::TiersStats* tiers,
                          std::uint32_t checkpoint_unit, const engine::Service::Integrity& integrity,
                          const HttpCounts& http, bool has_keys, std::span<const TenantCount> tenants,
                          const ResponseStore::Count& kept) const {
  std::vector<MetricFamily> families;
  const auto gauge = [&](const char* of, const char* help) { return Family(families, MetricType::Gauge, of, help); };
  const auto counter = [&](const char* of, const char* help) {
    return Family(families, MetricType::Counter, of, help);
  };

  {
    auto pages = gauge("quire_pages", "Pages of keys and values, by layer group and state");
    for (std::size_t g = 0; g < pool.pages.size(); ++g) {
      const ObjectCounts& counts = pool.pages[g];
      for (const auto& [state, count] :
           {std::pair("free", counts.free), {"held", counts.held}, {"cached", counts.cached}}) {
        pages.add(count, {label("group", std::to_string(g)), label("state", state)});
      }
    }
  }
  gauge("quire_slots", "Recurrent states: free, or held by sequences")
      .add(pool.states.free, {label("state", "free")})
      .add(pool.states.held, {label("state", "held")});
  gauge("quire_checkpoints", "Recurrent states kept as checkpoints").add(pool.states.cached);
  if (checkpoint_unit != 0) {
    gauge("quire_checkpoint_unit_tokens", "A checkpoint may lie at every multiple of this").add(checkpoint_unit);
  }
  gauge("quire_pool_bytes", "Size of the pool").add(number(pool.arena_bytes));
  gauge("quire_pool_unfilled_bytes", "Places without a token yet, in the pages of live sequences")
      .add(number(pool.unfilled_bytes));
  gauge("quire_slabs", "Slabs of the pool; each holds objects of one kind")
      .add(pool.free_slabs, {label("state", "free")})
      .add(pool.slabs - pool.free_slabs, {label("state", "used")});
  gauge("quire_sequences", "Sequences alive in the pool").add(pool.sequences);
  gauge("quire_prefix_blocks", "Blocks in the prefix index").add(pool.prefix_blocks);

  counter("quire_prefix_lookups_total", "Prompts looked up in the prefix index").add(number(pool.lookups));
  counter("quire_prefix_lookup_tokens_total", "Tokens of those prompts").add(number(pool.lookup_tokens));
  counter("quire_prefix_hit_tokens_total", "Tokens of those prompts that were reused").add(number(pool.hit_tokens));
  {
    auto ends = counter("quire_prefix_lookup_ends_total", "Lookups, by the reason why the hit ended");
    auto counts = pool.hit_ends;
    if (has_keys) {
      // These counts would reveal what other keys have asked.
      counts[static_cast<std::size_t>(HitEnd::NeverSeen)] +=
          std::exchange(counts[static_cast<std::size_t>(HitEnd::OtherNamespace)], 0);
    }
    for (std::size_t i = 0; i < kHitEnds; ++i) {
      ends.add(number(counts[i]), {label("reason", snake(name(static_cast<HitEnd>(i))))});
    }
  }
  counter("quire_evictions_total", "Cached objects evicted to make room")
      .add(number(pool.blocks_evicted), {label("what", "block")})
      .add(number(pool.window_pages_evicted), {label("what", "window_page")})
      .add(number(pool.checkpoints_dropped), {label("what", "checkpoint")});
  counter("quire_checkpoints_stored_total", "Recurrent states kept").add(number(pool.checkpoints_stored));
  counter("quire_checkpoints_restored_total", "Sequences that resumed from a checkpoint")
      .add(number(pool.checkpoints_restored));
  counter("quire_pages_copied_total", "Pages copied because they were shared").add(number(pool.pages_copied));
  counter("quire_objects_moved_total", "Objects moved to empty a slab").add(number(pool.objects_moved));
  counter("quire_forks_total", "Sequences forked").add(number(pool.forks));
  counter("quire_blocks_published_total", "Blocks published for reuse").add(number(pool.blocks_published));
  counter("quire_blocks_deduplicated_total", "Blocks that were computed twice and merged")
      .add(number(pool.blocks_deduplicated));
  counter("quire_pool_refusals_total", "Operations refused for lack of memory").add(number(pool.refusals));

  if (pool.has_journal) {
    counter("quire_journal_records_total", "Operations written to the journal").add(number(pool.journal_records));
    counter("quire_journal_bytes_total", "Bytes written to the journal").add(number(pool.journal_bytes));
    gauge("quire_journal_failed", "Whether the journal could not be written and has stopped")
        .add(pool.journal_failed ? 1 : 0);
  }

  gauge("quire_queue", "Requests that wait to be admitted").add(engine.waiting);
  gauge("quire_running", "Sequences in the step").add(engine.running);
  gauge("quire_suspended", "Sequences suspended to free memory for others").add(engine.suspended);
  gauge("quire_host_bytes", "Host memory for copies of suspended sequences: in use").add(number(engine.host_bytes));
  gauge("quire_host_capacity_bytes", "Host memory for copies of suspended sequences: in all")
      .add(number(engine.host_capacity_bytes));
  counter("quire_copies_lost_total", "Suspended sequences whose copy was useless, because shared pages were evicted")
      .add(number(engine.copies_lost));
  counter("quire_suspensions_total", "Sequences suspended, by how they are resumed")
      .add(number(engine.suspensions_by_copy), {label("by", "copy")})
      .add(number(engine.suspensions_by_recompute), {label("by", "recompute")});
  counter("quire_resumed_total", "Suspended sequences that were resumed").add(number(engine.resumed));
  counter("quire_prefix_waits_total", "Requests that waited for another request's pages")
      .add(number(engine.prefix_waits));
  counter("quire_device_errors_total", "Steps that were thrown away because the device failed")
      .add(number(engine.device_errors));
  counter("quire_steps_total", "Steps of the engine").add(number(engine.steps));
  counter("quire_model_seconds_total", "Time in the model").add(engine.model_seconds);
  counter("quire_step_seconds_total", "Time in steps").add(engine.total_seconds);
  counter("quire_prompt_tokens_total", "Tokens of admitted prompts").add(number(engine.prompt_tokens));
  counter("quire_cached_tokens_total", "Tokens of admitted prompts reused from the prefix cache")
      .add(number(engine.cached_tokens));
  counter("quire_computed_tokens_total", "Tokens computed by prefill").add(number(engine.computed_tokens));
  counter("quire_generated_tokens_total", "Tokens computed by decode").add(number(engine.generated_tokens));
  counter("quire_drafted_tokens_total", "Tokens that were guessed and computed beside an answer")
      .add(number(engine.drafted_tokens));
  counter("quire_accepted_tokens_total", "Guessed tokens that were right and became part of an answer")
      .add(number(engine.accepted_tokens));
  counter("quire_engine_requests_total", "Requests to the engine, by how they ended")
      .add(number(engine.finished), {label("outcome", "finished")})
      .add(number(engine.cancelled), {label("outcome", "cancelled")})
      .add(number(engine.expired), {label("outcome", "expired")})
      .add(number(engine.failed), {label("outcome", "failed")})
      .add(number(engine.refused), {label("outcome", "refused")});

  if (tiers != nullptr) add_tiers(families, *tiers, engine);
  add_tenants(families, tenants);
  Family(families, MetricType::Histogram, "quire_first_token_seconds", "Time from a request to its first token")
      .add(histograms_->first.Collect());
  Family(families, MetricType::Histogram, "quire_next_token_seconds", "Time between two tokens of an answer")
      .add(histograms_->next.Collect());
  {
    auto requests = counter("quire_completions_total", "Completions, by how they ended for their clients");
    for (std::size_t i = 0; i < kOutcomes; ++i) {
      requests.add(number(outcomes_[i]), {label("outcome", name(static_cast<Outcome>(i)))});
    }
  }
  {
    auto responses = counter("quire_http_responses_total", "Answers, by status");
    for (const auto& [status, count] : statuses_) responses.add(number(count), {label("code", std::to_string(status))});
  }
  gauge("quire_responses", "Responses that are kept for clients").add(number(kept.responses));
  gauge("quire_responses_bytes", "Memory of the responses that are kept").add(number(kept.bytes));
  gauge("quire_http_connections", "Open connections").add(number(http.connections));
  counter("quire_http_accepted_total", "Connections accepted").add(number(http.accepted));
  counter("quire_http_turned_away_total", "Connections refused because there were too many")
      .add(number(http.turned_away));
  counter("quire_http_malformed_total", "Malformed requests refused before they reached a handler")
      .add(number(http.malformed));
  counter("quire_http_timeouts_total", "Clients that were too slow").add(number(http.timed_out));
  gauge("quire_pool_sound", "Whether the last integrity check of the pool succeeded").add(integrity.sound ? 1 : 0);
  gauge("quire_pool_checked", "Whether the pool was checked yet").add(integrity.checked ? 1 : 0);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace quire::server

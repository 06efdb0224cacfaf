// The cost of the pool's operations with a thousand, a hundred thousand and a million pages, and at the end the targets
// beside the results. Pools are full when measured: every page taken must first be evicted. Machines are shared and
// noisy, so each figure is the best of several repetitions.
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "quire/base/check.h"
#include "quire/state/sequence_pool.h"

namespace quire {
namespace {

constexpr std::uint32_t kBlock = 16;
constexpr std::uint32_t kTokens = 4096;
constexpr std::uint32_t kBlocks = kTokens / kBlock;

// Pages of 64 bytes, so that bookkeeping is measured and not copying.
StateLayout small_pages() {
  const LayerDesc layer = LayerDesc::attention(1, 2, ElementType::I8);
  return *StateLayout::from_layers(std::span(&layer, 1), kBlock);
}

std::vector<Token> prompt_of(std::uint32_t seed) {
  std::vector<Token> tokens(kTokens + 1);
  std::uint64_t x = seed * 0x9E3779B97F4A7C15 + 1;
  for (Token& token : tokens) {
    x = x * 6364136223846793005 + 1442695040888963407;
    token = static_cast<Token>(x >> 40);
  }
  return tokens;
}

// A pool of `pages` pages, all cached: as many 4,096-token prompts as fit were computed and released.
struct FullPool {
  HostDevice device;
  std::unique_ptr<SequencePool> pool;
  std::vector<std::vector<Token>> prompts;

  explicit FullPool(std::uint32_t pages, Eviction eviction = Eviction::Value) {
    PoolConfig config{.layout = small_pages(), .max_sequences = 8, .max_tokens = kTokens + kBlock};
    config.eviction = eviction;
    config.budget_bytes = std::uint64_t{pages} * config.layout.groups[0].page_bytes();
    pool = *SequencePool::create(device, config);
    for (std::uint32_t i = 0; i < pages / kBlocks; ++i) {
      prompts.push_back(prompt_of(i));
      const auto id = compute(prompts.back());
      check(pool->release(id).has_value());
    }
  }

  static void check(bool ok) { QUIRE_CHECK(ok, "the benchmark's own operations succeed"); }

  SequenceId compute(std::span<const Token> prompt) {
    const auto created = pool->create({.prompt = prompt.first(1)});
    check(created.has_value());
    check(pool->reserve(created->id, kTokens).has_value());
    check(pool->commit(created->id, prompt.first(kTokens)).has_value());
    return created->id;
  }
};

FullPool& full_pool(std::uint32_t pages, Eviction eviction = Eviction::Value) {
  static std::map<std::pair<std::uint32_t, Eviction>, std::unique_ptr<FullPool>> pools;
  auto& pool = pools[{pages, eviction}];
  if (!pool) pool = std::make_unique<FullPool>(pages, eviction);
  return *pool;
}

// A page pool on its own: half of the pages are taken; one more is allocated and freed.
void AllocateAndFree(benchmark::State& state) {
  BlockAllocator allocator(static_cast<std::uint32_t>(state.range(0)));
  std::vector<PageId> half(static_cast<std::size_t>(state.range(0) / 2));
  FullPool::check(allocator.allocate(std::span(half)));
  for (auto _ : state) {
    const auto page = allocator.allocate();
    benchmark::DoNotOptimize(page);
    benchmark::DoNotOptimize(allocator.free(*page));
  }
  state.SetItemsProcessed(state.iterations());
}

// The same over the whole pool in random order, so that the records of the pages are not in a cache.
void AllocateAndFreeAnywhere(benchmark::State& state) {
  const auto pages = static_cast<std::uint32_t>(state.range(0));
  BlockAllocator allocator(pages);
  std::vector<PageId> all(pages);
  FullPool::check(allocator.allocate(std::span(all)));
  std::uint64_t x = 1;
  for (auto _ : state) {
    x = x * 6364136223846793005 + 1442695040888963407;
    PageId& page = all[(x >> 33) % pages];
    benchmark::DoNotOptimize(allocator.free(page));
    page = *allocator.allocate();
  }
  state.SetItemsProcessed(state.iterations());
}

// Decode: reserve and commit one token at a time. Every sixteenth token publishes a
// block and takes a page, which evicts another.
void AppendToken(benchmark::State& state) {
  FullPool& full = full_pool(static_cast<std::uint32_t>(state.range(0)));
  static std::uint32_t seed = 1u << 20;
  for (auto _ : state) {
    state.PauseTiming();
    const auto prompt = prompt_of(seed++);
    const auto created = full.pool->create({.prompt = std::span(prompt).first(1)});
    state.ResumeTiming();
    for (std::uint32_t i = 0; i < kTokens; ++i) {
      FullPool::check(full.pool->reserve(created->id, 1).has_value());
      FullPool::check(full.pool->commit(created->id, std::span(prompt).subspan(i, 1)).has_value());
    }
    state.PauseTiming();
    FullPool::check(full.pool->release(created->id).has_value());
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * kTokens);
}

template <typename Operation>
void timed(benchmark::State& state, Operation operation) {
  const auto begin = std::chrono::steady_clock::now();
  operation();
  state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

void Fork(benchmark::State& state) {
  FullPool& full = full_pool(static_cast<std::uint32_t>(state.range(0)));
  const auto parent = full.compute(prompt_of(1u << 30));
  for (auto _ : state) {
    PoolResult<SequencePool::Forked> child = std::unexpected(PoolError{});
    timed(state, [&] { child = full.pool->fork(parent, kTokens); });
    FullPool::check(full.pool->release(child->id).has_value());
  }
  FullPool::check(full.pool->release(parent).has_value());
  state.SetItemsProcessed(state.iterations() * kBlocks);
}

void Release(benchmark::State& state) {
  FullPool& full = full_pool(static_cast<std::uint32_t>(state.range(0)));
  static std::uint32_t seed = 1u << 21;
  for (auto _ : state) {
    const auto id = full.compute(prompt_of(seed++));
    timed(state, [&] { FullPool::check(full.pool->release(id).has_value()); });
  }
  state.SetItemsProcessed(state.iterations() * kBlocks);
}

// Reserves 4,096 tokens at once in a full pool: 256 pages are evicted, by either policy.
template <Eviction kEviction>
void Evict(benchmark::State& state) {
  FullPool& full = full_pool(static_cast<std::uint32_t>(state.range(0)), kEviction);
  static std::uint32_t seed = 1u << 22;
  for (auto _ : state) {
    const auto prompt = prompt_of(seed++);
    const auto created = full.pool->create({.prompt = std::span(prompt).first(1)});
    timed(state, [&] { FullPool::check(full.pool->reserve(created->id, kTokens).has_value()); });
    FullPool::check(full.pool->commit(created->id, std::span(prompt).first(kTokens)).has_value());
    FullPool::check(full.pool->release(created->id).has_value());
  }
  state.SetItemsProcessed(state.iterations() * kBlocks);
}

// Looks up a different cached prompt each time: with many pages nothing of it is in the processor's cache.
template <bool kOnlyHash>
void LookUp(benchmark::State& state) {
  const auto pages = static_cast<std::uint32_t>(state.range(0));
  static std::map<std::uint32_t, std::unique_ptr<FullPool>> pools;  // not used by the other benchmarks
  auto& full = pools[pages];
  if (!full) full = std::make_unique<FullPool>(pages);
  std::size_t i = 0;
  const PrefixIndex& index = full->pool->prefix_index();
  for (auto _ : state) {
    const auto& prompt = full->prompts[i];
    i = (i + 7) % full->prompts.size();
    if constexpr (kOnlyHash) {
      benchmark::DoNotOptimize(index.key_of(0, std::span(prompt).first(kTokens)));
    } else {
      const Hit hit = full->pool->lookup(prompt);
      FullPool::check(hit.tokens == kTokens);
    }
  }
  state.SetItemsProcessed(state.iterations() * kBlocks);
}

// A sequence of so many MiB leaves the pool and comes back: save and restore, the checksum that is part of both,
// suspend and resume. Pages of 2 MiB.
enum class Leave : std::uint8_t { Save, Restore, Checksum, Suspend, Resume };
template <Leave kWhat>
void LeaveAndReturn(benchmark::State& state) {
  const auto pages = static_cast<std::uint32_t>(state.range(0)) / 2;
  const std::vector<LayerDesc> layers(32, LayerDesc::attention(8, 128));
  HostDevice device;
  PoolConfig config{.layout = *StateLayout::from_layers(layers, kBlock), .max_sequences = 1};
  config.max_tokens = pages * kBlock;
  config.budget_bytes = pages * config.layout.groups[0].page_bytes();
  const auto pool = *SequencePool::create(device, config);
  const auto id = pool->create({})->id;
  const std::vector<Token> tokens(config.max_tokens, 7);
  FullPool::check(pool->reserve(id, config.max_tokens) && pool->commit(id, tokens));
  const auto host_arena = *pool->create_host_arena(config.budget_bytes);
  auto saved = pool->save(id);
  FullPool::check(saved.has_value() && saved->bytes == pages * config.layout.groups[0].page_bytes());
  FullPool::check(pool->release(id).has_value());
  for (auto _ : state) {
    pool->drop_cache();
    PoolResult<SequenceId> back = std::unexpected(PoolError{});
    if constexpr (kWhat == Leave::Restore) {
      timed(state, [&] { back = pool->restore(*saved); });
    } else {
      back = pool->restore(*saved);
    }
    FullPool::check(back.has_value());
    if constexpr (kWhat == Leave::Save) timed(state, [&] { saved = pool->save(*back); });
    if constexpr (kWhat == Leave::Checksum) {
      timed(state, [&] { FullPool::check(saved->compute_checksum() == saved->checksum); });
    }
    if constexpr (kWhat == Leave::Suspend || kWhat == Leave::Resume) {
      PoolResult<SuspendedSequence> suspended = std::unexpected(PoolError{});
      const auto suspend = [&] { suspended = pool->suspend(*back, *host_arena); };
      kWhat == Leave::Suspend ? timed(state, suspend) : suspend();
      FullPool::check(suspended.has_value());
      pool->drop_cache();
      const auto resume = [&] { back = pool->resume(*suspended, tokens); };
      kWhat == Leave::Resume ? timed(state, resume) : resume();
    }
    FullPool::check(saved.has_value() && back && pool->release(*back));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void sizes(benchmark::internal::Benchmark* b) {
  b->Arg(1 << 10)->Arg(100'000)->Arg(1'000'000)->Repetitions(5)->ReportAggregatesOnly(false);
}

BENCHMARK(AllocateAndFree)->Apply(sizes)->MinTime(0.1);
BENCHMARK(AllocateAndFreeAnywhere)->Apply(sizes)->MinTime(0.1);
BENCHMARK(AppendToken)->Apply(sizes)->MinTime(0.2);
BENCHMARK(Fork)->Apply(sizes)->MinTime(0.05)->UseManualTime();
BENCHMARK(Release)->Apply(sizes)->MinTime(0.05)->UseManualTime();
BENCHMARK(Evict<Eviction::Lru>)->Name("EvictLru")->Apply(sizes)->MinTime(0.05)->UseManualTime();
BENCHMARK(Evict<Eviction::Value>)->Name("EvictValue")->Apply(sizes)->MinTime(0.05)->UseManualTime();
BENCHMARK(LookUp<false>)->Name("LookUp")->Apply(sizes)->MinTime(0.2);
BENCHMARK(LookUp<true>)->Name("HashOnly")->Apply(sizes)->MinTime(0.2);

void one_size(benchmark::internal::Benchmark* b) { b->Arg(256)->Repetitions(5)->MinTime(0.2)->UseManualTime(); }
BENCHMARK(LeaveAndReturn<Leave::Save>)->Name("Save")->Apply(one_size);
BENCHMARK(LeaveAndReturn<Leave::Restore>)->Name("Restore")->Apply(one_size);
BENCHMARK(LeaveAndReturn<Leave::Checksum>)->Name("Checksum")->Apply(one_size);
BENCHMARK(LeaveAndReturn<Leave::Suspend>)->Name("Suspend")->Apply(one_size);
BENCHMARK(LeaveAndReturn<Leave::Resume>)->Name("Resume")->Apply(one_size);

// Keeps the best repetition of each benchmark, in nanoseconds per item.
class Best : public benchmark::ConsoleReporter {
 public:
  Best() : ConsoleReporter(OO_None) {}
  bool ReportContext(const Context& context) override {
    PrintBasicContext(&GetErrorStream(), context);
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      const double nanoseconds = 1e9 / run.counters.at("items_per_second");
      const std::string name = run.run_name.function_name + "/" + run.run_name.args;
      auto [entry, fresh] = best_.try_emplace(name, nanoseconds);
      if (!fresh) entry->second = std::min(entry->second, nanoseconds);
    }
  }
  double operator()(const std::string& name, const char* pages) const {
    const auto found = best_.find(name + "/" + pages);
    return found == best_.end() ? 0 : found->second;
  }

 private:
  std::map<std::string, double> best_;
};

int report(const Best& best) {
  static constexpr const char* kSmall = "1024";
  static constexpr const char* kMiddle = "100000";
  static constexpr const char* kLarge = "1000000";
  std::printf("\nbest of 5, nanoseconds%34s%12s%12s\n", "1 k pages", "100 k", "1 M");
  const auto row = [&](const char* what, const char* name) {
    std::printf("  %-44s%10.1f%12.1f%12.1f\n", what, best(name, kSmall), best(name, kMiddle), best(name, kLarge));
  };
  row("allocate and free a page, the pair", "AllocateAndFree");
  row("the same, anywhere in the pool", "AllocateAndFreeAnywhere");
  row("append a token (evicting), per token", "AppendToken");
  row("fork at 4,096 tokens, per page", "Fork");
  row("release 4,096 tokens, per page", "Release");
  row("evict and take a page, LRU", "EvictLru");
  row("evict and take a page, value per byte", "EvictValue");
  row("look up 4,096 cached tokens, per page", "LookUp");
  row("  of which hashing the tokens", "HashOnly");
  const auto speed = [&](const char* what, const char* name) {
    const double nanoseconds = best(name, "256");  // per MiB
    std::printf("  %-44s%10.1f GB/s\n", what, nanoseconds == 0 ? 0 : (1 << 20) / nanoseconds);
  };
  speed("save a sequence of 256 MiB", "Save");
  speed("restore it", "Restore");
  speed("  of which its checksum", "Checksum");
  speed("suspend it", "Suspend");
  speed("resume it", "Resume");

  bool all = true;
  std::printf("\n%-60s%12s%10s\n", "target", "reached", "");
  const auto target = [&](const char* what, double reached, double limit, const char* unit) {
    const bool ok = reached > 0 && reached <= limit;
    all = all && ok;
    std::printf("  %-58s%9.1f %-3s%8s\n", what, reached, unit, ok ? "met" : "MISSED");
  };
  double pair = 0, append = 0, beyond_hash = 0;
  for (const char* pages : {kSmall, kMiddle, kLarge}) {
    pair = std::max(pair, best("AllocateAndFree", pages));
    append = std::max(append, best("AppendToken", pages));
    beyond_hash = std::max(beyond_hash, best("LookUp", pages) - best("HashOnly", pages));
  }
  target("allocate and free, at most 25 ns for the pair", pair, 25, "ns");
  target("the pair with 1 M pages, at most 2 times that with 1 k",
         best("AllocateAndFree", kLarge) / best("AllocateAndFree", kSmall), 2, "x");
  target("look-up beyond hashing, at most 60 ns per page", beyond_hash, 60, "ns");
  target("append, at most 15 ns per token", append, 15, "ns");
  return all ? 0 : 1;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  quire::Best best;
  benchmark::RunSpecifiedBenchmarks(&best);
  return quire::report(best);
}

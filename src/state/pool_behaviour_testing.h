// For tests of SequencePool: small pools, computed sequences, and their events.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/toy_engine_testing.h"

namespace quire::testing {

inline PoolConfig pool_of(const ToyModel& model, std::uint64_t budget_bytes) {
  return {.layout = model.layout(), .budget_bytes = budget_bytes, .max_sequences = 8, .max_tokens = 64};
}

// Creates a sequence for this prompt and computes all of it, in chunks of `chunk` tokens.
inline ToyEngine::Sequence written(ToyEngine& engine, const std::vector<Token>& prompt, Namespace name_space = 0,
                                   std::size_t chunk = SIZE_MAX) {
  ToyEngine::Sequence sequence = engine.create(prompt, name_space).value();
  while (!sequence.pending.empty()) {
    const auto end = sequence.pending.begin() + static_cast<long>(std::min(chunk, sequence.pending.size()));
    EXPECT_TRUE(done(engine.append(sequence, {sequence.pending.begin(), end})));
    sequence.pending.erase(sequence.pending.begin(), end);
  }
  EXPECT_EQ(engine.verify(sequence), "");
  return sequence;
}

// The same, then releases it.
inline void cached(ToyEngine& engine, const std::vector<Token>& prompt, Namespace name_space = 0,
                   std::size_t chunk = SIZE_MAX) {
  EXPECT_TRUE(done(engine.pool().release(written(engine, prompt, name_space, chunk).id)));
  EXPECT_TRUE(sound(engine.pool()));
}

inline std::vector<PoolEvent> events_since(const SequencePool& pool, std::uint64_t cursor) {
  std::vector<PoolEvent> events(pool.events().written() - cursor);
  const auto read = pool.events().read(cursor, events);
  EXPECT_EQ(read.lost, 0u);
  events.resize(read.count);
  return events;
}

inline std::vector<PoolEvent> only(std::vector<PoolEvent> events, PoolEvent::Kind kind) {
  std::erase_if(events, [&](const PoolEvent& event) { return event.kind != kind; });
  return events;
}

inline std::vector<PageId> pages_of(const SequencePool& pool, SequenceId id, std::uint32_t group = 0) {
  const auto pages = pool.pages(id, group).value();
  return {pages.begin(), pages.end()};
}

}  // namespace quire::testing

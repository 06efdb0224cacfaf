// A step with adapters allocates nothing, whatever adapters its sequences have.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/backends_testing.h"
#include "quire/base/counted_heap_testing.h"
#include "quire/model/adapter_testing.h"
#include "quire/model/runner.h"

namespace quire::model {
namespace {

using quire::testing::allocations;

TEST(AdapterHeap, NothingIsAllocatedInAStepWithAdapters) {
  for (const std::string file : {"quire-demo-llama-q8_0.gguf", "quire-demo-hybrid-q8_0.gguf"}) {
    const auto backend = quire::testing::backend_kinds().back().make(3);
    auto model = Model::load(std::string(QUIRE_SOURCE_DIR) + "/models/" + file);
    ASSERT_TRUE(model) << model.error().message;
    std::vector<std::vector<std::byte>> images;
    for (std::uint32_t i = 0; i < 3; ++i) {
      images.push_back(testing::adapter_for((*model)->file(), 4 + 9 * i, i).image());
      const auto added = (*model)->add_adapter(*gguf::File::from_memory(images.back(), "adapter"),
                                               {.name = std::to_string(i), .file = {}});
      ASSERT_TRUE(added) << added.error().message;
    }
    ASSERT_TRUE((*model)->prepare(*backend, 64, 8));
    PoolConfig config{.layout = *(*model)->layout(16, ElementType::F16), .max_sequences = 8, .max_tokens = 512};
    config.budget_bytes = 64 << 20;
    const auto pool = *SequencePool::create(backend->device(), config);
    auto runner = *Runner::create(**model, *pool);
    Batch batch = runner.make_batch();
    std::vector<SequenceId> ids;
    for (std::uint32_t i = 0; i < 8; ++i) ids.push_back(pool->create({.prompt = {}, .reuse = false})->id);
    const std::vector<Token> tokens = {5, 6, 7, 8, 9, 10, 11, 12};
    std::uint64_t before = 0;
    for (std::uint32_t step = 0; step < 40; ++step) {
      if (step == 4) before = allocations;
      batch.clear();
      for (std::uint32_t i = 0; i < 8; ++i) {
        batch.add(ids[i], std::span(tokens).first(1 + (i + step) % 8), Logits::Last, false, {}, (i + step) % 4);
      }
      ASSERT_TRUE(runner.run(batch));
    }
    EXPECT_EQ(allocations - before, 0u) << file;
  }
}

}  // namespace
}  // namespace quire::model

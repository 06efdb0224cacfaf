// For tests of the rule of exactness: the logits of a prompt, computed in many ways.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/model/runner.h"

namespace quire::model::testing {

// More than one tile of attention and more than one block of any size, with a partial one at the end.
inline constexpr std::uint32_t kPrompt = 75;

using Bits = std::vector<float>;  // [kPrompt][vocabulary]

inline std::vector<Token> prompt_of(std::uint32_t seed, std::size_t length, std::uint32_t vocabulary) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(length);
  for (Token& token : tokens) token = static_cast<Token>(random() % vocabulary);
  return tokens;
}

// A model on a backend, which computes the logits of a prompt in one of many ways.
class Subject {
 public:
  Subject(const std::string& path, std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {
    auto loaded = Model::load(path);
    if (!loaded) throw std::runtime_error(loaded.error().message);
    model_ = std::move(*loaded);
    if (auto ok = model_->prepare(*backend_, 640, 640); !ok) throw std::runtime_error(ok.error().message);
  }

  std::uint32_t vocabulary() const { return model_->hyperparameters().vocabulary; }
  bool recurrent() const { return model_->layout(16, ElementType::F16)->has_recurrent(); }
  // A state of convolution only has the same type whatever is asked for.
  bool typed_state() const { return model_->layout(16, ElementType::F16)->recurrent.ssm_bytes > 0; }

  struct Way {
    std::uint32_t block_size = 16;
    std::vector<std::uint32_t> chunks = {kPrompt};
    std::uint32_t others = 0;  // sequences in the same steps
    bool scatter_pages = false;
    bool contiguous = false;
    ElementType kv = ElementType::F16;
    ElementType state = ElementType::F32;
  };

  Bits logits(const std::vector<Token>& prompt, const Way& way) {
    if (way.contiguous) return contiguous(prompt, way);
    PoolConfig config{
        .layout = *model_->layout(way.block_size, way.kv, way.state), .max_sequences = 64, .max_tokens = 256};
    for (const PageShape& shape : config.layout.groups)
      config.budget_bytes += 800 * 16 / way.block_size * shape.page_bytes();
    if (config.layout.has_recurrent()) config.budget_bytes += 40 * config.layout.recurrent.bytes();
    auto pool = *SequencePool::create(backend_->device(), config);
    auto runner = *Runner::create(*model_, *pool);
    Batch batch = runner.make_batch();
    if (way.scatter_pages) scatter(*pool);

    const SequenceId id = pool->create({.prompt = prompt, .reuse = false})->id;
    struct Other {
      SequenceId id;
      std::vector<Token> tokens;
      std::size_t done = 0;
    };
    std::vector<Other> others;
    for (std::uint32_t i = 0; i < way.others; ++i) {
      others.push_back({pool->create({.prompt = {}, .name_space = i + 1, .reuse = false})->id,
                        prompt_of(1000 + i, 1 + i * 5 % 60, vocabulary())});
    }
    Bits bits;
    std::uint32_t done = 0;
    for (std::size_t step = 0; step < way.chunks.size(); ++step) {
      batch.clear();
      // Half of the others are before the sequence in the batch, half after it. They bring chunks and single tokens.
      const auto add = [&](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i) {
          Other& other = others[i];
          const std::size_t count =
              std::min<std::size_t>(other.tokens.size() - other.done, i % 3 == 0 ? 1 : 3 + i % 13);
          if (count == 0) continue;
          batch.add(other.id, std::span(other.tokens).subspan(other.done, count), Logits::None);
          other.done += count;
        }
      };
      add(0, others.size() / 2);
      batch.add(id, std::span(prompt).subspan(done, way.chunks[step]), Logits::All);
      add(others.size() / 2, others.size());
      const auto rows = runner.run(batch);
      EXPECT_TRUE(rows.has_value()) << rows.error().message();
      append(bits, *rows);
      done += way.chunks[step];
    }
    const auto ok = pool->check_integrity();
    EXPECT_TRUE(ok.has_value()) << ok.error();
    return bits;
  }

 private:
  static void append(Bits& bits, const HostRows& rows) {
    for (std::uint32_t i = 0; i < rows.rows; ++i) {
      bits.insert(bits.end(), rows.row(i).begin(), rows.row(i).end());
    }
  }

  // Takes all pages and releases most of them in random order, so that the next allocations are scattered.
  static void scatter(SequencePool& pool) {
    std::mt19937 random(5);
    for (std::uint32_t g = 0; g < pool.layout().groups.size(); ++g) {
      std::vector<PageId> pages;
      for (int i = 0; i < 200; ++i) {
        if (const auto page = pool.alloc_kv(g)) pages.push_back(*page);
      }
      std::shuffle(pages.begin(), pages.end(), random);
      for (std::size_t i = 8; i < pages.size(); ++i) EXPECT_TRUE(pool.free_kv(pages[i], g).has_value());
    }
  }

  // The same model over one contiguous cache: no pool, and a single block as long as the cache.
  Bits contiguous(const std::vector<Token>& prompt, const Way& way) {
    constexpr std::uint32_t kCapacity = 256;
    const StateLayout layout = *model_->layout(16, way.kv, way.state);
    std::vector<DeviceBuffer> memory;
    std::vector<KvGroupView> kv;
    memory.push_back(*DeviceBuffer::create(backend_->device(), sizeof(std::uint32_t)));  // the table: block 0 is at 0
    for (const PageShape& group : layout.groups) {
      const std::uint64_t row = group.row_bytes(), plane = row * kCapacity * group.num_kv_heads;
      memory.push_back(*DeviceBuffer::create(backend_->device(), group.planes * plane * group.num_layers));
      kv.push_back({.base = memory.back().data(),
                    .tables = reinterpret_cast<const std::uint32_t*>(memory.front().data()),
                    .table_stride = 1,
                    .block_size = kCapacity,
                    .num_kv_heads = group.num_kv_heads,
                    .head_dim = group.head_dim,
                    .type = group.type,
                    .page_unit = 64,  // pages are aligned to this
                    .layer_stride = group.planes * plane,
                    .v_offset = (group.planes - 1) * plane,
                    .head_stride = row * kCapacity,
                    .token_stride = row});
    }
    std::optional<SequenceState> state;
    StatesView states;
    if (layout.has_recurrent()) {
      state.emplace(*SequenceState::create(backend_->device(), layout.recurrent));
      states = {.base = state->data(),
                .unit = 64,
                .layer_stride = layout.recurrent.layer_stride(),
                .ssm_offset = layout.recurrent.conv_stride(),
                .num_layers = layout.recurrent.num_layers,
                .type = layout.recurrent.type};
    }
    Bits bits;
    std::uint32_t done = 0;
    Batch batch;
    for (const std::uint32_t chunk : way.chunks) {
      batch.clear();
      batch.add(SequenceId{}, std::span(prompt).subspan(done, chunk), Logits::All);
      batch.bind(kv, states)[0].position = done;
      batch.set_positions();
      std::vector<std::uint32_t> rows(chunk);
      std::iota(rows.begin(), rows.end(), 0);
      append(bits, model_->forward(batch, {.jobs = {}, .logits = rows})->logits);
      done += chunk;
    }
    return bits;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
};

inline std::vector<std::uint32_t> random_chunks(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> chunks;
  for (std::uint32_t left = kPrompt; left > 0;) {
    chunks.push_back(std::min(left, 1 + static_cast<std::uint32_t>(random() % 20)));
    left -= chunks.back();
  }
  return chunks;
}

}  // namespace quire::model::testing

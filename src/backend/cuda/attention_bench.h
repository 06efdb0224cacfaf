// What attention_bench.cu uses: device memory, pages of some sequences, steps, and attention as CudaAttention does it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <numeric>
#include <random>
#include <vector>

#include <cuda_runtime.h>

#include "quire/backend/cuda/attention_kernels.h"

namespace quire::cuda::bench {

inline std::uint32_t multiprocessors = 1, most_shared = 227 << 10;
inline bool overlap = false;

inline void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <typename T>
class Array {
 public:
  explicit Array(std::size_t count) : count_(count) {
    must(cudaMalloc(&data_, std::max<std::size_t>(count, 1) * sizeof(T)));
  }
  explicit Array(const std::vector<T>& from) : Array(from.size()) {
    must(cudaMemcpy(data_, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { cudaFree(data_); }
  T* data() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> to(count_);
    must(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

inline std::vector<float> random_floats(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> to(count);
  for (float& x : to) x = static_cast<float>(random() >> 8) / 8388608.0f - 1;
  return to;
}

struct Shape {
  std::uint32_t heads, kv_heads, head_dim;
  ElementType type;
  std::uint32_t window = 0;
  float cap = 0;
  std::uint32_t block = 16;
  float scale() const { return 1 / std::sqrt(static_cast<float>(head_dim)); }
};

// Pages of some sequences, scattered.
class Pool {
 public:
  Pool(const Shape& shape, std::uint32_t sequences, std::uint32_t positions, std::uint32_t layers)
      : shape_(shape),
        blocks_((positions + shape.block - 1) / shape.block),
        row_(row_bytes(shape.type, shape.head_dim)),
        page_((row_ * shape.block * shape.kv_heads * 2 * layers + 63) / 64 * 64),
        memory_(page_ * blocks_ * sequences),
        tables_(table(sequences)) {
    must(cudaMemset(memory_.data(), 0xFF, page_ * blocks_ * sequences));  // NaN
  }
  KvGroupView view() const {
    const std::uint64_t plane = row_ * shape_.block * shape_.kv_heads;
    return {.base = memory_.data(),
            .tables = tables_.data(),
            .table_stride = blocks_,
            .block_size = shape_.block,
            .num_kv_heads = shape_.kv_heads,
            .head_dim = shape_.head_dim,
            .type = shape_.type,
            .page_unit = 64,
            .layer_stride = 2 * plane,
            .v_offset = plane,
            .head_stride = row_ * shape_.block,
            .token_stride = row_};
  }

 private:
  std::vector<std::uint32_t> table(std::uint32_t sequences) const {
    std::vector<std::uint32_t> pages(std::size_t{sequences} * blocks_);
    std::iota(pages.begin(), pages.end(), 0u);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(5));
    for (std::uint32_t& page : pages) page *= static_cast<std::uint32_t>(page_ / 64);
    return pages;
  }
  Shape shape_;
  std::uint32_t blocks_;
  std::uint64_t row_, page_;
  Array<std::byte> memory_;
  Array<std::uint32_t> tables_;
};

struct Part {
  std::uint32_t table, position, rows;
};
struct Step {
  std::vector<DeviceEntry> entries;
  std::vector<std::uint32_t> positions, row_entry;
  explicit Step(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      entries.push_back({static_cast<std::uint32_t>(positions.size()), part.rows, part.position, part.table, 0});
      for (std::uint32_t i = 0; i < part.rows; ++i) {
        positions.push_back(part.position + i);
        row_entry.push_back(static_cast<std::uint32_t>(entries.size() - 1));
      }
    }
    rows = static_cast<std::uint32_t>(positions.size());
    on_device_positions.emplace_back(positions);
    on_device_positions.emplace_back(row_entry);
    on_device_entries.emplace_back(entries);
  }
  DeviceBatch batch() const {
    return {.positions = on_device_positions.front().data(),
            .row_entry = on_device_positions.back().data(),
            .entries = on_device_entries.front().data(),
            .rows = rows,
            .entry_count = static_cast<std::uint32_t>(entries.size())};
  }
  std::uint32_t rows = 0;
  std::list<Array<std::uint32_t>> on_device_positions;
  std::list<Array<DeviceEntry>> on_device_entries;
};

inline Tensor tensor(const Array<float>& array, std::uint32_t rows, std::uint32_t cols) {
  return {reinterpret_cast<std::byte*>(array.data()), rows, cols, cols, ElementType::F32};
}

// What CudaAttention does, with what it decides itself as parameters.
struct Division {
  std::uint32_t slots, parts = 8192;
};
class Attention {
 public:
  static constexpr std::uint32_t kParts = 8192;
  Attention(const Shape& shape, std::uint32_t rows)
      : shape_(shape),
        sizes_{rows, kParts, shape.heads},
        plan_(sizes_.bytes()),
        totals_(std::size_t{kParts} * shape.heads),
        sums_(std::size_t{kParts} * shape.heads * shape.head_dim) {}

  void plan(cudaStream_t stream, const Pool& pool, const Step& step, const Division& division) {
    const AttendKind kind = attend_kind(shape_.type, shape_.head_dim, most_shared);
    launch_attention_plan(stream,
                          {.kv = pool.view(),
                           .batch = step.batch(),
                           .plan = sizes_.view(plan_.data()),
                           .per_head = shape_.heads / shape_.kv_heads,
                           .kv_heads = shape_.kv_heads,
                           .window = shape_.window,
                           .wide = wide_queries(kind, shape_.head_dim),
                           .parts = division.parts,
                           .slots = division.slots},
                          true);
    must(cudaGetLastError());
  }
  AttendCall call(const Pool& pool, const Step& step, const Array<float>& out, const Array<float>& q,
                  std::uint32_t layer, bool overlaps) const {
    const KvGroupView kv = pool.view();
    const std::uint64_t all =
        kv.layer_stride | kv.v_offset | kv.head_stride | kv.token_stride | row_bytes(kv.type, kv.head_dim) | 16;
    const std::uint32_t cols = shape_.heads * shape_.head_dim;
    return {.kv = kv,
            .batch = step.batch(),
            .plan = sizes_.view(plan_.data()),
            .out = tensor(out, step.rows, cols),
            .q = tensor(q, step.rows, cols),
            .part_sums = sums_.data(),
            .part_totals = totals_.data(),
            .layer = layer,
            .heads = shape_.heads,
            .kv_heads = shape_.kv_heads,
            .per_head = shape_.heads / shape_.kv_heads,
            .head_dim = shape_.head_dim,
            .scale = shape_.scale(),
            .soft_cap = shape_.cap,
            .window = shape_.window,
            .copy_bytes = static_cast<std::uint32_t>(all & (~all + 1)),
            .overlap = overlaps};
  }
  void run(cudaStream_t stream, const AttendCall& call, bool wide) const {
    launch_attend(stream, attend_kind(shape_.type, shape_.head_dim, most_shared), call, multiprocessors, true, wide);
    must(cudaGetLastError());
  }
  AttentionCounts counts() const {
    AttentionCounts to;
    must(cudaMemcpy(&to, plan_.data(), sizeof to, cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  Shape shape_;
  PlanSizes sizes_;
  Array<std::byte> plan_;
  Array<float2> totals_;
  Array<float> sums_;
};

inline void store(cudaStream_t stream, const Shape& shape, const Pool& pool, const Step& step, const Array<float>& k,
                  const Array<float>& v, std::uint32_t layer) {
  const std::uint32_t cols = shape.kv_heads * shape.head_dim;
  launch_store_kv(stream, {.kv = pool.view(),
                           .batch = step.batch(),
                           .q = tensor(k, step.rows, cols),
                           .k = tensor(k, step.rows, cols),
                           .v = tensor(v, step.rows, cols),
                           .layer = layer,
                           .heads = shape.heads,
                           .kv_heads = shape.kv_heads,
                           .head_dim = shape.head_dim,
                           .overlap = overlap});
  must(cudaGetLastError());
}

}  // namespace quire::cuda::bench

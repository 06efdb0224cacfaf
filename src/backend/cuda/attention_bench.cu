// Checks and times attention on a GPU: against a softmax in double precision on the host, the same bits however the
// work is divided, and how fast it is. Exit code 1: something is wrong.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "quire/backend/cuda/attention_bench.h"

namespace {

using namespace quire;
using namespace quire::cuda;
using namespace quire::cuda::bench;

int failures = 0;

// --- correctness

// What is stored of a head, as floats.
void round_head(ElementType type, float* x, std::uint32_t n) {
  if (type == ElementType::F16) {
    for (std::uint32_t i = 0; i < n; ++i) x[i] = __half2float(__float2half_rn(x[i]));
  } else if (type == ElementType::BF16) {
    for (std::uint32_t i = 0; i < n; ++i) x[i] = __bfloat162float(__float2bfloat16_rn(x[i]));
  } else if (type == ElementType::Q8_0) {
    for (std::uint32_t at = 0; at < n; at += 32) {
      const std::uint32_t count = std::min(32u, n - at);
      float largest = 0;
      for (std::uint32_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[at + i]));
      std::uint16_t half = __half_as_ushort(__float2half_rn(largest / 127));
      if (__half2float(__ushort_as_half(half)) < largest / 127) ++half;
      const float scale = __half2float(__ushort_as_half(half));
      for (std::uint32_t i = 0; i < count; ++i) x[at + i] = std::nearbyint(x[at + i] / scale) * scale;
    }
  }
}

struct Sequences {
  std::vector<std::uint32_t> lengths;
  std::vector<std::vector<float>> q, k, v;  // [positions][heads * head_dim]
};

// The largest error of a row, relative to the size of its terms and scores.
double error_of(const Shape& shape, const Sequences& all, std::uint32_t s, std::uint32_t position, const float* got) {
  const std::uint32_t dim = shape.head_dim, per_head = shape.heads / shape.kv_heads;
  const std::uint32_t cols = shape.heads * dim, kv_cols = shape.kv_heads * dim;
  double worst = 0;
  for (std::uint32_t head = 0; head < shape.heads; ++head) {
    const float* q = &all.q[s][std::size_t{position} * cols + head * dim];
    const std::uint32_t at = head / per_head * dim;
    std::vector<double> weights;
    double highest = -INFINITY, largest = 0, total = 0;
    const std::uint32_t first = first_seen(position, shape.window);
    for (std::uint32_t t = first; t <= position; ++t) {
      double score = 0;
      for (std::uint32_t d = 0; d < dim; ++d) score += double{q[d]} * all.k[s][std::size_t{t} * kv_cols + at + d];
      score *= shape.scale();
      if (shape.cap > 0) score = shape.cap * std::tanh(score / shape.cap);
      weights.push_back(score);
      highest = std::max(highest, score);
      largest = std::max(largest, std::fabs(score));
    }
    for (double& w : weights) total += w = std::exp(w - highest);
    for (std::uint32_t d = 0; d < dim; ++d) {
      double sum = 0, size = 0;
      for (std::uint32_t t = first; t <= position; ++t) {
        const double term = weights[t - first] / total * all.v[s][std::size_t{t} * kv_cols + at + d];
        sum += term;
        size += std::fabs(term);
      }
      const double error = std::fabs(got[head * dim + d] - sum) / (size * (1 + largest) + 1e-30);
      worst = error <= worst ? worst : error;  // a NaN counts
    }
  }
  return worst;
}

// Runs one step; rows in the order of the parts. Part.table is the sequence, too.
std::vector<float> run_step(const Shape& shape, Attention& attention, const Pool& pool, const Sequences& all,
                            const std::vector<Part>& parts, const Division& division) {
  const Step step(parts);
  const std::uint32_t cols = shape.heads * shape.head_dim;
  std::vector<float> q;
  for (const Part& part : parts) {
    const auto from = all.q[part.table].begin() + std::ptrdiff_t{part.position} * cols;
    q.insert(q.end(), from, from + std::ptrdiff_t{part.rows} * cols);
  }
  const Array<float> on_device(q), out(std::vector<float>(q.size(), NAN));
  attention.plan(nullptr, pool, step, division);
  attention.run(nullptr, attention.call(pool, step, out, on_device, 1, false), true);
  must(cudaDeviceSynchronize());
  return out.host();
}

void check(const Shape& shape, const char* what, double most_error) {
  Sequences all{{700, 65, 300, 1100}, {}, {}, {}};
  const std::uint32_t cols = shape.heads * shape.head_dim, kv_cols = shape.kv_heads * shape.head_dim;
  std::vector<Part> whole;
  std::vector<float> k, v;
  for (std::uint32_t s = 0; s < 4; ++s) {
    const std::size_t n = all.lengths[s];
    all.q.push_back(random_floats(n * cols, 10 + s));
    for (float& x : all.q.back()) x *= 3;
    all.k.push_back(random_floats(n * kv_cols, 20 + s));
    all.v.push_back(random_floats(n * kv_cols, 30 + s));
    whole.push_back({s, 0, all.lengths[s]});
    k.insert(k.end(), all.k[s].begin(), all.k[s].end());
    v.insert(v.end(), all.v[s].begin(), all.v[s].end());
    for (std::size_t head = 0; head < n * shape.kv_heads; ++head) {
      round_head(shape.type, &all.k[s][head * shape.head_dim], shape.head_dim);
      round_head(shape.type, &all.v[s][head * shape.head_dim], shape.head_dim);
    }
  }
  const auto make = [&](std::uint32_t block, Pool& pool) {
    const Step step(whole);
    const Array<float> keys(k), values(v);
    Shape other = shape;
    other.block = block;
    store(nullptr, other, pool, step, keys, values, 1);
    must(cudaDeviceSynchronize());
  };
  Attention attention(shape, 1100);
  Pool pool(shape, 4, 1100, 3);
  make(shape.block, pool);
  std::vector<std::vector<float>> out;
  double worst = 0;
  for (std::uint32_t s = 0; s < 4; ++s) {
    out.push_back(run_step(shape, attention, pool, all, {whole[s]}, {264}));
    for (const std::uint32_t p : {0u, 1u, 63u, 64u, 255u, 256u, 299u, 511u, 512u, 699u, 1023u, 1099u}) {
      if (p >= all.lengths[s]) continue;
      const double error = error_of(shape, all, s, p, &out[s][std::size_t{p} * cols]);
      worst = error <= worst ? worst : error;
    }
  }
  int differing = 0;
  const auto same = [&](const Pool& from, const std::vector<Part>& parts, const Division& division) {
    const std::vector<float> got = run_step(shape, attention, from, all, parts, division);
    std::size_t at = 0;
    for (const Part& part : parts) {
      for (std::uint32_t i = 0; i < part.rows; ++i, at += cols) {
        const float* expected = &out[part.table][std::size_t{part.position + i} * cols];
        differing += std::memcmp(&got[at], expected, cols * sizeof(float)) != 0 ? 1 : 0;
      }
    }
  };
  const std::vector<Part> decode = {{0, 699, 1}, {1, 64, 1}, {2, 257, 1}, {3, 1099, 1}, {3, 1023, 1}, {3, 767, 1}};
  for (const Division division : {Division{264}, {1}, {5}, {264, 0}, {264, 6}}) {
    same(pool, decode, division);
    same(pool, {{3, 1099, 1}}, division);
  }
  for (const std::uint32_t p : {0u, 63u, 64u, 255u, 256u, 512u, 600u}) same(pool, {{0, p, 1}}, {264});
  for (std::uint32_t p = 0; p + 17 <= 300; p += 17) same(pool, {{2, p, 17}, {3, 4 * p, 1}}, {264});
  same(pool, {{3, 800, 256}, {0, 20, 2}, {1, 0, 65}, {3, 1056, 44}}, {264});
  std::vector<Part> sharing;
  for (std::uint32_t i = 0; i < 45; ++i) sharing.push_back({3, 1055 + i, 1});
  sharing.push_back({0, 650, 1});
  sharing.push_back({2, 100, 9});
  for (const Division division : {Division{264}, {1}}) same(pool, sharing, division);
  for (const std::uint32_t block : {1u, 5u, 64u, 100u}) {
    Shape other = shape;
    other.block = block;
    Pool others(other, 4, 1100, 3);
    make(block, others);
    same(others, decode, {264});
    same(others, {{3, 700, 100}}, {264});
    same(others, sharing, {264});
  }
  // NaNs and infinities in the values of a token: rows before it have the same bits, rows that see it as if alone.
  const std::size_t token = std::size_t{all.lengths[0]} + all.lengths[1] + 100;
  for (std::uint32_t d = 0; d < kv_cols; d += 5) v[token * kv_cols + d] = d % 2 == 0 ? INFINITY : NAN;
  Pool poisoned(shape, 4, 1100, 3);
  make(shape.block, poisoned);
  const std::vector<float> clean = std::move(out[2]);
  out[2] = run_step(shape, attention, poisoned, all, {whole[2]}, {264});
  differing += std::memcmp(clean.data(), out[2].data(), std::size_t{100} * cols * sizeof(float)) != 0 ? 1 : 0;
  differing += std::isfinite(out[2][std::size_t{100} * cols]) ? 1 : 0;
  for (const std::uint32_t p : {99u, 100u, 101u, 127u, 128u, 289u}) same(poisoned, {{2, p, 1}}, {264});
  same(poisoned, {{2, 90, 17}, {2, 107, 2}}, {264});
  const bool good = worst <= most_error && differing == 0;
  failures += good ? 0 : 1;
  std::printf("%-30s %2u/%2u x %3u  error %.1e (limit %.0e)  differing rows %d%s\n", what, shape.heads, shape.kv_heads,
              shape.head_dim, worst, most_error, differing, good ? "" : "  WRONG");
}

// --- times

struct Case {
  const char* what;
  ElementType type;
  std::uint32_t sequences, context, rows;
  bool shared;
};

void time_case(const Case& one) {
  const Shape shape{32, 8, 128, one.type};
  const std::uint32_t own = one.shared ? 16 : 0;
  const std::uint32_t length = one.context + one.rows + own;
  const std::uint64_t token = 2ull * shape.kv_heads * row_bytes(one.type, shape.head_dim);
  const std::uint64_t layer_bytes = token * length * (one.shared ? 1 : one.sequences);
  const auto layers = static_cast<std::uint32_t>(std::clamp<std::uint64_t>((400ull << 20) / layer_bytes, 1, 32));
  const std::uint32_t tables = one.shared ? 1 : one.sequences;
  const Pool pool(shape, tables, length, layers);
  const std::uint32_t kv_cols = shape.kv_heads * shape.head_dim, cols = shape.heads * shape.head_dim;
  const Array<float> k(random_floats(std::size_t{1024} * kv_cols, 1)), v(random_floats(std::size_t{1024} * kv_cols, 2));
  for (std::uint32_t s = 0; s < tables; ++s) {
    for (std::uint32_t p = 0; p < length; p += 1024) {
      const Step step({{s, p, std::min(1024u, length - p)}});
      for (std::uint32_t layer = 0; layer < layers; ++layer) store(nullptr, shape, pool, step, k, v, layer);
      must(cudaDeviceSynchronize());
    }
  }
  std::vector<Part> parts;
  for (std::uint32_t s = 0; s < one.sequences; ++s) {
    parts.push_back({one.shared ? 0 : s, one.context + (one.shared ? s % own : 0), one.rows});
  }
  const Step step(parts);
  const Array<float> q(random_floats(std::size_t{step.rows} * cols, 3)), out(std::size_t{step.rows} * cols);
  Attention attention(shape, step.rows);
  cudaStream_t stream = nullptr;
  cudaEvent_t events[3];
  for (cudaEvent_t& event : events) must(cudaEventCreate(&event));
  const std::uint32_t rounds = 48;
  const bool wide = one.rows > 1 || one.sequences > 1;
  for (std::uint32_t i = 0; i < 4; ++i) {
    attention.plan(stream, pool, step, {2 * multiprocessors});
    attention.run(stream, attention.call(pool, step, out, q, i % layers, overlap), wide);
  }
  must(cudaEventRecord(events[0], stream));
  for (std::uint32_t i = 0; i < 10; ++i) attention.plan(stream, pool, step, {2 * multiprocessors});
  must(cudaEventRecord(events[1], stream));
  for (std::uint32_t i = 0; i < rounds; ++i)
    attention.run(stream, attention.call(pool, step, out, q, i % layers, overlap), wide);
  must(cudaEventRecord(events[2], stream));
  must(cudaEventSynchronize(events[2]));
  float plan_ms = 0, ms = 0;
  must(cudaEventElapsedTime(&plan_ms, events[0], events[1]));
  must(cudaEventElapsedTime(&ms, events[1], events[2]));
  const AttentionCounts counts = attention.counts();
  const double us = ms * 1e3 / rounds;
  double pairs = 0;  // of a query row and a position
  for (const Part& part : parts) pairs += part.rows * (part.position + (part.rows + 1) / 2.0);
  const double bytes = static_cast<double>(token) * (one.context + one.rows) * one.sequences;
  std::printf("%-28s %-5s %8.1f us  %7.0f GB/s  %6.1f TFLOP/s  plan %5.1f us  items %u + %u, run %u, parts %u\n",
              one.what, name(one.type), us, bytes / us * 1e-3, pairs * 4 * cols / us * 1e-6, plan_ms * 100,
              counts.narrow, counts.wide, counts.run, counts.parts);
  for (cudaEvent_t event : events) must(cudaEventDestroy(event));
}

// What the layers of a decode step take, as one graph: keys and values stored, then attention. Without the products
// between them, so a launch waits for every one before it.
void time_layers(std::uint32_t sequences, std::uint32_t context) {
  constexpr std::uint32_t kLayers = 32;
  const Shape shape{32, 8, 128, ElementType::F16};
  const Pool pool(shape, sequences, context + 1, kLayers);
  const std::uint32_t kv_cols = shape.kv_heads * shape.head_dim, cols = shape.heads * shape.head_dim;
  const Array<float> k(random_floats(std::size_t{1024} * kv_cols, 1)), v(random_floats(std::size_t{1024} * kv_cols, 2));
  std::vector<Part> parts;
  for (std::uint32_t s = 0; s < sequences; ++s) {
    for (std::uint32_t p = 0; p < context; p += 1024) {
      const Step step({{s, p, std::min(1024u, context - p)}});
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) store(nullptr, shape, pool, step, k, v, layer);
      must(cudaDeviceSynchronize());
    }
    parts.push_back({s, context, 1});
  }
  const Step step(parts);
  const Array<float> q(random_floats(std::size_t{step.rows} * cols, 3)), out(std::size_t{step.rows} * cols);
  Attention attention(shape, step.rows);
  cudaStream_t stream;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  double us[2] = {};
  for (int with_attention = 0; with_attention < 2; ++with_attention) {
    // The first round sets attributes, which a capture cannot.
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    for (int captured = 0; captured < 2; ++captured) {
      if (captured != 0) must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      attention.plan(stream, pool, step, {2 * multiprocessors});
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        store(stream, shape, pool, step, k, v, layer);
        if (with_attention == 0) continue;
        attention.run(stream, attention.call(pool, step, out, q, layer, overlap), sequences > 1);
      }
      if (captured != 0) must(cudaStreamEndCapture(stream, &graph));
    }
    must(cudaGraphInstantiate(&executable, graph, 0));
    cudaEvent_t events[2];
    for (cudaEvent_t& event : events) must(cudaEventCreate(&event));
    constexpr int kRounds = 20;
    for (int i = 0; i < 3; ++i) must(cudaGraphLaunch(executable, stream));
    must(cudaEventRecord(events[0], stream));
    for (int i = 0; i < kRounds; ++i) must(cudaGraphLaunch(executable, stream));
    must(cudaEventRecord(events[1], stream));
    must(cudaEventSynchronize(events[1]));
    float ms = 0;
    must(cudaEventElapsedTime(&ms, events[0], events[1]));
    us[with_attention] = ms * 1e3 / kRounds / kLayers;
    for (cudaEvent_t event : events) must(cudaEventDestroy(event));
    must(cudaGraphExecDestroy(executable));
    must(cudaGraphDestroy(graph));
  }
  must(cudaStreamDestroy(stream));
  std::printf("a layer of %2u x %5u, in a graph: %6.2f us, of which keys and values %5.2f us\n", sequences, context + 1,
              us[1], us[0]);
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0));
  multiprocessors = static_cast<std::uint32_t>(properties.multiProcessorCount);
  most_shared = static_cast<std::uint32_t>(properties.sharedMemPerBlockOptin);
  overlap = attention_overlaps();
  std::printf("%s, %u multiprocessors, kernels overlap: %s\n", properties.name, multiprocessors,
              overlap ? "yes" : "no");
  using enum ElementType;
  check({32, 8, 128, F16}, "f16", 1e-3);
  check({32, 8, 128, BF16}, "bf16", 1e-4);
  check({32, 8, 128, Q8_0}, "q8_0", 1e-3);
  check({16, 1, 64, F16}, "f16, 16 heads on 1", 1e-3);
  check({6, 2, 80, F16}, "f16, padded head", 1e-3);
  check({6, 2, 80, Q8_0}, "q8_0, padded head", 1e-3);
  check({6, 2, 96, BF16}, "bf16, padded head", 1e-4);
  check({4, 2, 256, F16, 0, 30}, "f16, cap", 1e-3);
  check({4, 2, 256, Q8_0}, "q8_0", 1e-3);
  check({4, 2, 256, BF16}, "bf16", 1e-4);
  check({8, 8, 64, F16, 100}, "f16, window 100", 1e-3);
  check({40, 2, 32, F16, 700, 20}, "f16, window 700, cap", 1e-3);
  check({4, 2, 64, F32}, "f32", 2e-5);
  check({4, 2, 64, F32, 300, 15}, "f32, window 300, cap", 2e-5);
  check({3, 3, 33, F16}, "f16, odd head", 2e-5);
  check({6, 2, 20, Q8_0}, "q8_0, odd head", 2e-5);
  check({2, 1, 272, BF16}, "bf16, large head", 2e-5);
  check({5, 1, 1, F16}, "f16, head of 1", 2e-5);
  for (const Case& one : {Case{"decode 1 x 512", F16, 1, 511, 1, false},
                          {"decode 1 x 8k", F16, 1, 8191, 1, false},
                          {"decode 1 x 32k", F16, 1, 32767, 1, false},
                          {"decode 64 x 512", F16, 64, 511, 1, false},
                          {"decode 64 x 4k", F16, 64, 4095, 1, false},
                          {"decode 64, sharing 4k", F16, 64, 4096, 1, true},
                          {"decode 1 x 8k", Q8_0, 1, 8191, 1, false},
                          {"decode 64 x 4k", Q8_0, 64, 4095, 1, false},
                          {"decode 64 x 4k", BF16, 64, 4095, 1, false},
                          {"prefill 2048 at 0", F16, 1, 0, 2048, false},
                          {"prefill 2048 at 8k", F16, 1, 8192, 2048, false},
                          {"prefill 2048 at 8k", Q8_0, 1, 8192, 2048, false},
                          {"prefill 2048 at 8k", BF16, 1, 8192, 2048, false}}) {
    time_case(one);
  }
  for (const std::uint32_t context : {99u, 511u, 4095u}) time_layers(1, context);
  for (const std::uint32_t context : {99u, 511u}) time_layers(64, context);
  std::printf("%s\n", failures == 0 ? "attention: all checks passed" : "attention: WRONG");
  return failures == 0 ? 0 : 1;
}

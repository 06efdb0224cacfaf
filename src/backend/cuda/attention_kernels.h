// Attention over pages, and the keys and values that go there: launchers of the kernels. They launch on the stream,
// check nothing, allocate nothing and never synchronise. Every kernel takes its work from device memory, so that a
// captured launch is right for every later batch with as many rows and entries.
//
// Exactness. The result of a query depends on its q, and on the keys and values that it sees; not on the other queries
// of its item, on pages, or on how sections are divided. See attention_tiles.h for the order of sums.
// Accuracy. F32 keys and head sizes that are no multiple of 16 or above 256: f32 arithmetic. F16 and Q8_0: queries,
// weights and (Q8_0) stored numbers are rounded to f16, sums are f32. An error of up to 2^-11 of the largest score
// and of each term. Q8_0 numbers beyond 65504 become that. BF16: keys and values as they are, queries and weights as
// a sum of two bf16, which is 16 bits.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "quire/backend/cuda/attention_tiles.h"
#include "quire/backend/cuda/device_batch.h"
#include "quire/backend/tensor.h"
#include "quire/state/views.h"

namespace quire::cuda {

struct StoreCall {
  KvGroupView kv;
  DeviceBatch batch;
  Tensor q, k, v;  // v is not valid in latent attention: nothing but keys is stored
  Tensor q_norm = {}, k_norm = {}, cosines = {}, sines = {}, key_balance = {};  // one that is not valid is left out
  float epsilon = 0;
  bool neighbours = true;  // pairs of a rotation: (0,1)(2,3)… or (0,n/2)(1,n/2+1)…
  std::uint32_t layer = 0;
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0;
  std::uint32_t rotated_from = 0;  // of a head
  bool overlap = false;            // may start while the kernel before it ends (overlap.cuh)
};
void launch_store_kv(cudaStream_t stream, const StoreCall& call);
// Whether calls may have `overlap` on the current device.
bool attention_overlaps();

struct AttendCall {
  KvGroupView kv;
  DeviceBatch batch;
  AttentionPlanView plan;
  Tensor out, q;
  float* part_sums = nullptr;     // [parts][heads][value_dim]
  float2* part_totals = nullptr;  // [parts][heads]: the maximum, in powers of two, and the sum of weights
  std::uint32_t layer = 0;
  std::uint32_t heads = 0, kv_heads = 0, per_head = 0, head_dim = 0;
  std::uint32_t value_dim = 0;  // less than head_dim in latent attention only, which the general kernel does
  float scale = 1, soft_cap = 0;
  std::uint32_t window = 0;
  const float* sinks = nullptr;   // [heads], or none
  std::uint32_t copy_bytes = 16;  // every row of keys begins at a multiple of this: 16, 8, 4 or 2
  // May start while the kernel before it ends. That one must not be the plan's, and must itself have waited for those
  // before it: items, tables and the keys of earlier steps are read at once.
  bool overlap = false;
};
// Which kernels a call takes. `most_shared`: shared memory that a block can have on this device; the fast kernels take
// up to 205 KiB, for heads of 128 and F16 140 KiB.
enum class AttendKind : std::uint8_t { General, F16, BF16, Q8 };
AttendKind attend_kind(ElementType type, std::uint32_t head_dim, std::uint32_t most_shared);
// Queries of a wide item.
std::uint32_t wide_queries(AttendKind kind, std::uint32_t head_dim);

// Makes the plan of a step. `decodes`: there are entries with one row.
struct PlanCall {
  KvGroupView kv;
  DeviceBatch batch;
  AttentionPlanView plan;
  std::uint32_t per_head = 1, kv_heads = 1, window = 0;
  std::uint32_t wide = kWide;  // queries of a wide item
  std::uint32_t parts = 0;     // most parts
  std::uint32_t slots = 1;     // blocks that run at once
};
void launch_attention_plan(cudaStream_t stream, const PlanCall& call, bool decodes);

// Items of a plan, and their parts joined. `narrow` and `wide`: which kinds of items there can be.
void launch_attend(cudaStream_t stream, AttendKind kind, const AttendCall& call, std::uint32_t multiprocessors,
                   bool narrow, bool wide);

// Of one kind each; launch_attend() chooses.
void launch_attend_f16(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors, bool wide);
void launch_attend_bf16(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors, bool wide);
void launch_attend_q8(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors, bool wide);
void launch_attend_general(cudaStream_t stream, const AttendCall& call, std::uint32_t multiprocessors);

}  // namespace quire::cuda

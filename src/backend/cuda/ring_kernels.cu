// One block per multiprocessor, which has its share of the row tiles. A warp has one part of the columns of every few
// tiles, and a ring of slots in shared memory for packed weights, which it fills and reads by itself. The warps of a
// tile add their parts in order.
#include <algorithm>

#include "quire/backend/cuda/input_rows.cuh"
#include "quire/backend/cuda/overlap.cuh"
#include "quire/backend/cuda/ring_launch.h"
#include "quire/backend/cuda/shared_fragments.cuh"

namespace quire::cuda {

namespace {

constexpr std::uint32_t kMostSlots = 8;    // of a warp
constexpr std::uint32_t kMostGroups = 15;  // of warps that wait for each other: barriers of a block, without 0

// Warps of a block. Unpacking is a chain of instructions that wait for each other, so it needs many.
template <Packing kPacking>
constexpr std::uint32_t kMostWarps = Fragments<kPacking>::kHalves ? 16 : 32;
constexpr std::uint32_t kStride = kTileRows + 4;  // floats of a token's sums
// A lane reads 64 neighbouring columns of the input. 16 bytes between these runs keep lanes from sharing banks.
constexpr std::uint32_t kRunBytes = kLaneCols * 2 + 16;
constexpr std::uint32_t kPieceRuns = kPieceCols / kLaneCols;
// Of a block. Leaves room for a block of the input kernel of the next product, which can then start before this one
// ends. (Blocks of 32 warps leave it no registers.)
constexpr std::uint32_t kRoom = 224 * 1024;

constexpr std::uint32_t input_bytes(std::uint32_t tokens, std::uint32_t pieces) {
  return tokens * pieces * kPieceRuns * kRunBytes;
}
// The shared memory of a block: barriers, sums, input, slots.
struct RingRoom {
  std::uint32_t sums, sums_of_round, input, slots;  // where they begin; floats of the sums of a round

  __host__ __device__ RingRoom(std::uint32_t warps, std::uint32_t tokens, std::uint32_t pieces)
      : sums(warps * kMostSlots * 8),
        sums_of_round(warps * kRingTokens * kStride),
        // [2][warp][token][row]: rounds take turns, so that one may write while others still read.
        input(sums + 2 * sums_of_round * 4),
        slots((input + input_bytes(tokens, pieces) + 127) / 128 * 128) {}
};

// The input as launch_prepare() would take it.
struct RawInput {
  InputArgs args;
  bool there = false;  // else the rows are ready
  bool aligned = false;
};
struct RingSizes {
  std::uint32_t workers;  // warps that multiply; others only make the input ready
  std::uint32_t slots;    // of a warp
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// The tile with this number, of all matrices together; first_block counts tiles.
struct Tile {
  const MatrixArgs* m;
  std::uint32_t tile;
};
__device__ Tile tile_of(const MatrixSet& set, std::uint32_t number) {
  std::uint32_t i = 0;
  while (i + 1 < set.count && number >= set.first_block[i + 1]) ++i;
  return {&set.matrix[i], number - set.first_block[i]};
}

// The tiles of a warp, and the portions of each.
struct RingTask {
  std::uint32_t first, last, step;      // tiles
  std::uint32_t begin, end, in_a_tile;  // portions of the part; of a whole tile
};

// Starts the copies of a warp, one portion after the other. Every lane keeps count; one copies.
template <Packing kPacking>
class Copies {
 public:
  using Weights = Fragments<kPacking>;

  __device__ Copies(const MatrixSet& set, const RingTask& task, std::uint32_t lane)
      : set_(set), task_(task), lane_(lane), tile_(task.first) {
    start_tile();
  }
  __device__ bool left() const { return tile_ < task_.last; }
  __device__ void next(std::uint32_t to, std::uint32_t barrier) {
    if (lane_ == 0) {
      expect_bytes(barrier, Weights::kPortionBytes);
      copy_bytes(to, from_, Weights::kPortionBytes, barrier);
    }
    from_ += Weights::kPortionBytes;
    if (++portion_ < task_.end) return;
    tile_ += task_.step;
    start_tile();
  }

 private:
  __device__ void start_tile() {
    if (!left()) return;
    const Tile at = tile_of(set_, tile_);
    portion_ = task_.begin;
    from_ = at.m->tiles + (std::uint64_t{at.tile} * task_.in_a_tile + portion_) * Weights::kPortionBytes;
  }

  const MatrixSet& set_;
  const RingTask& task_;
  std::uint32_t lane_, tile_, portion_ = 0;
  const std::byte* from_ = nullptr;
};

// The rows of the input, to shared memory.
__device__ void copy_rows(const PreparedInput& in, std::uint32_t tokens, std::uint32_t pieces, std::byte* to) {
  constexpr std::uint32_t kVectors = kLaneCols * 2 / 16;  // of a run
  const auto* from = reinterpret_cast<const uint4*>(in.rows);
  for (std::uint32_t i = threadIdx.x; i < tokens * pieces * kPieceRuns * kVectors; i += blockDim.x) {
    *reinterpret_cast<uint4*>(to + i / kVectors * kRunBytes + i % kVectors * 16) = __ldcg(from + i);
  }
}

// Where a block puts the halves of its input: as copy_rows() does it.
struct ToShared {
  std::byte* to;
  float* inverse;
  float power = 1;

  __device__ void scale_by(int exponent) {
    power = power_of_two(exponent);
    if (threadIdx.x == 0) *inverse = power_of_two(-exponent);
  }
  __device__ void operator()(std::uint32_t c, float4 v) const {
    const half2 low = __floats2half2_rn(v.x * power, v.y * power), high = __floats2half2_rn(v.z * power, v.w * power);
    *reinterpret_cast<uint2*>(to + c / kLaneCols * kRunBytes + c % kLaneCols * 2) = {bits_of(low), bits_of(high)};
  }
};

// sums += weights * inputs, for a quarter of a piece. `x`: the lane's columns of the portion, in shared memory.
template <Packing kPacking>
__device__ void multiply_quarter(float (&sums)[4], const Fragments<kPacking>& weights, int quarter, std::uint32_t x) {
#pragma unroll
  for (int step = quarter * kQuarter; step < (quarter + 1) * kQuarter; step += 2) {
    const uint4 b = shared_16(x + step * 8);
    multiply<false>(sums, weights.step(step), {b.x, b.y});
    multiply<false>(sums, weights.step(step + 1), {b.z, b.w});
  }
}

// The element of a tile that a thread writes: row r of token n. What it needs besides the sums is read when the tile
// begins, so that no warp waits for it at the end. Threads of a tile with one part have two elements.
struct Element {
  const MatrixArgs& m;
  std::uint32_t row, token;
  bool there;
  float row_inverse = 0, old = 0;

  __device__ Element(const MatrixArgs& matrix, std::uint32_t first_row, std::uint32_t n, std::uint32_t r,
                     std::uint32_t tokens)
      : m(matrix), row(first_row + r), token(n), there(row < m.rows && n < tokens) {
    if (!there) return;
    row_inverse = m.inverses[row];
    if (m.add) old = m.out[token * m.out_stride + row];
  }
  // As put() does it.
  __device__ void write(float total, float inverse) const {
    float value = __fmul_rn(__fmul_rn(total, inverse), row_inverse);
    if (m.bias != nullptr) value = __fadd_rn(value, m.bias[row]);
    m.out[token * m.out_stride + row] = m.add ? fmaf(value, m.scale, old) : value;
  }
};

// The parts of row r, in order. `sums`: of the tile's first warp and the token.
__device__ float total_of(const float* sums, std::uint32_t parts, std::uint32_t r) {
  float total = 0;
  for (std::uint32_t p = 0; p < parts; ++p) total = __fadd_rn(total, sums[p * kRingTokens * kStride + r]);
  return total;
}

#endif

template <Packing kPacking>
__global__ void QUIRE_HOPPER_BOUNDS(kMostWarps<kPacking> * 32, kMostWarps<kPacking> > 16 ? 1 : 2)
    ring_kernel(__grid_constant__ const MatrixSet set, PreparedInput in, __grid_constant__ const RawInput raw,
                std::uint32_t tokens, RingSizes sizes) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Weights = Fragments<kPacking>;
  extern __shared__ __align__(128) std::byte shared[];
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  __shared__ float room[32], norms[kRingGroups], inverses[kRingTokens];
  __shared__ uint4 zeros[kRunBytes / 16];
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, slots = sizes.slots;
  const std::uint32_t parts = set.matrix[0].parts, pieces = pieces_of(set.matrix[0].cols), part = warp % parts;
  const std::uint32_t tiles = set.first_block[set.count];
  RingTask task;
  task.first = blockIdx.x * tiles / gridDim.x + warp / parts;
  task.last = warp < sizes.workers ? (blockIdx.x + 1) * tiles / gridDim.x : 0;
  task.step = sizes.workers / parts;
  task.begin = part_begin(part, parts, pieces) * Weights::kPortions;
  task.end = part_begin(part + 1, parts, pieces) * Weights::kPortions;
  task.in_a_tile = pieces * Weights::kPortions;
  const RingRoom at(sizes.workers, tokens, pieces);
  const std::uint32_t barriers = base + warp * kMostSlots * 8;
  const std::uint32_t ring = base + at.slots + warp * slots * Weights::kPortionBytes;
  if (lane == 0 && warp < sizes.workers) {
    for (std::uint32_t i = 0; i < slots; ++i) init_barrier(barriers + i * 8, 1);
    barriers_ready();
  }
  __syncwarp();
  Copies<kPacking> copies(set, task, lane);
  for (std::uint32_t i = 0; i < slots && copies.left(); ++i) {
    copies.next(ring + i * Weights::kPortionBytes, barriers + i * 8);
  }
  if (threadIdx.x < kRunBytes / 16) zeros[threadIdx.x] = {0, 0, 0, 0};
  let_next_start();
  std::byte* const rows = shared + at.input;
  if (raw.there) {
    const Row row = row_of(raw.args, 0, norms, raw.aligned);
    // What other inputs need would take registers from the product.
    static_assert(kRingGroups < kManyGroups);
    __builtin_assume(is_common(row.kind));
    __builtin_assume(raw.args.groups < kManyGroups);
    const RowThread thread{threadIdx.x, row_threads(row.cols)};
    float4 ahead[kAhead];
    weights_ahead(row, thread, ahead);
    wait_for_previous();
    ToShared write{rows, inverses};
    static_assert(kRingCols <= 2 * 4 * kMostThreads);
    make_ready<2, true, false>(raw.args, row, thread, ahead, room, norms, write);
  } else {
    wait_for_previous();
    copy_rows(in, tokens, pieces, rows);
    if (threadIdx.x < tokens) inverses[threadIdx.x] = in.inverses[threadIdx.x];
  }
  __syncthreads();
  // Lanes of tokens that are not there read zeros.
  const bool wanted = lane / 4 < tokens;
  const std::uint32_t x = wanted ? base + at.input + (lane / 4 * pieces * kPieceRuns + lane % kPieceRuns) * kRunBytes
                                 : static_cast<std::uint32_t>(__cvta_generic_to_shared(zeros));
  const std::uint32_t piece_bytes = wanted ? kPieceRuns * kRunBytes : 0;
  auto* const first_sums = reinterpret_cast<float*>(shared + at.sums);
  float* sums = first_sums;
  std::uint32_t slot = 0, parity = 0;
  const std::uint32_t r = lane % kTileRows, token = part * 2 + lane / kTileRows;
  const float inverse = token < tokens ? inverses[token] : 0.0f;
  for (std::uint32_t number = task.first; number < task.last; number += task.step) {
    float own[4] = {};
    const Tile tile = tile_of(set, number);
    const Element element(*tile.m, tile.tile * kTileRows, token, r, tokens);
    for (std::uint32_t portion = task.begin; portion < task.end; ++portion) {
      const std::uint32_t data = ring + slot * Weights::kPortionBytes;
      wait_for(barriers + slot * 8, parity);
      const std::uint32_t inputs =
          x + portion / Weights::kPortions * piece_bytes + portion % Weights::kPortions * Weights::kPortionSteps * 8;
      constexpr int kQuarters = Weights::kPortionSteps / kQuarter;
      Weights weights;
      load_quarter(weights, 0, data, lane);
#pragma unroll
      for (int quarter = 0; quarter < kQuarters; ++quarter) {
        if (quarter + 1 < kQuarters) {
          load_quarter(weights, quarter + 1, data, lane);
        } else {
          // All have read the slot. Loads that are only on their way could still read what the copy brings.
          reads_before_copies();
          __syncwarp();
          if (copies.left()) copies.next(data, barriers + slot * 8);
        }
        multiply_quarter(own, weights, quarter, inputs);
      }
      if (++slot == slots) slot = 0, parity ^= 1;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t n = lane % 4 * 2 + i % 2;
      if (n < tokens) sums[(warp * kRingTokens + n) * kStride + lane / 4 + i / 2 * 8] = own[i];
    }
    // The warps of this tile.
    parts == 1 ? __syncwarp() : bar_sync(1 + warp / parts, parts * 32);
    const float* of_tile = sums + ((warp - part) * kRingTokens + token) * kStride;
    if (element.there) element.write(total_of(of_tile, parts, r), inverse);
    if (parts == 1 && tokens > 2) {
      const Element other(*tile.m, tile.tile * kTileRows, token + 2, r, tokens);
      if (other.there) other.write(total_of(of_tile + 2 * kStride, 1, r), inverses[token + 2]);
    }
    sums = sums == first_sums ? first_sums + at.sums_of_round : first_sums;
  }
#endif
}

template <Packing kPacking>
cudaError_t allow_ring() {
  const cudaError_t error =
      cudaFuncSetAttribute(ring_kernel<kPacking>, cudaFuncAttributeMaxDynamicSharedMemorySize, kRoom);
  return error != cudaSuccess ? error : want_shared_memory(ring_kernel<kPacking>);
}

template <Packing kPacking>
void start_ring(cudaStream_t stream, MatrixSet set, std::uint32_t tokens, const PreparedInput& in, const InputArgs* raw,
                std::uint32_t processors) {
  std::uint32_t tiles = 0;
  for (std::uint32_t i = 0; i < set.count; ++i) {
    set.first_block[i] = tiles;
    tiles += tiles_of(set.matrix[i].rows);
  }
  set.first_block[set.count] = tiles;
  const std::uint32_t blocks = tiles < processors ? tiles : processors, parts = set.matrix[0].parts;
  // Fewer warps have longer rings, but none longer than all that a warp reads: what is left is for other kernels.
  const std::uint32_t most = (tiles + blocks - 1) / blocks * parts;
  const std::uint32_t cols = set.matrix[0].cols, pieces = pieces_of(cols);
  constexpr std::uint32_t kBytes = Fragments<kPacking>::kPortionBytes;
  std::uint32_t workers = std::min({most, kMostWarps<kPacking>, parts == 1 ? most : kMostGroups * parts});
  const auto fit = [&] { return (kRoom - RingRoom(workers, tokens, pieces).slots) / (workers * kBytes); };
  while (workers > parts && fit() < 2) workers -= parts;  // one slot arrives while another is read
  const std::uint32_t before = RingRoom(workers, tokens, pieces).slots;
  const std::uint32_t all =
      (most + workers - 1) / workers * ((pieces + parts - 1) / parts) * Fragments<kPacking>::kPortions;
  const std::uint32_t slots = std::min({fit(), kMostSlots, all}), each = workers * kBytes;
  const std::uint32_t threads = std::max(workers * 32, raw == nullptr ? 0 : row_threads(cols));
  const RawInput own = raw == nullptr ? RawInput{} : RawInput{*raw, true, is_aligned(*raw)};
  launch(in.overlap, stream, dim3(blocks), threads, before + slots * each, ring_kernel<kPacking>, set, in, own, tokens,
         RingSizes{workers, slots});
}

}  // namespace

cudaError_t prepare_ring(std::uint32_t* processors) {
  int device = 0, count = 0;
  for (const cudaError_t error :
       {cudaGetDevice(&device), cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        allow_ring<Packing::F16>(), allow_ring<Packing::Q4>(), allow_ring<Packing::Q4Min>(),
        allow_ring<Packing::Q4x16>(), allow_ring<Packing::Q4x16Min>(), allow_ring<Packing::Q5>(),
        allow_ring<Packing::Q5Min>(), allow_ring<Packing::Q6x16>(), allow_ring<Packing::Q8>()}) {
    if (error != cudaSuccess) return error;
  }
  *processors = static_cast<std::uint32_t>(count);
  return cudaSuccess;
}

void launch_ring(cudaStream_t stream, Packing packing, const MatrixSet& set, std::uint32_t tokens,
                 const PreparedInput& in, const InputArgs* raw, std::uint32_t processors) {
  switch (packing) {
    case Packing::F32:
    case Packing::BF16:
    case Packing::E2M1:
    case Packing::Q8x16: return;
    case Packing::F16: return start_ring<Packing::F16>(stream, set, tokens, in, raw, processors);
    case Packing::Q4: return start_ring<Packing::Q4>(stream, set, tokens, in, raw, processors);
    case Packing::Q4Min: return start_ring<Packing::Q4Min>(stream, set, tokens, in, raw, processors);
    case Packing::Q4x16: return start_ring<Packing::Q4x16>(stream, set, tokens, in, raw, processors);
    case Packing::Q4x16Min: return start_ring<Packing::Q4x16Min>(stream, set, tokens, in, raw, processors);
    case Packing::Q5: return start_ring<Packing::Q5>(stream, set, tokens, in, raw, processors);
    case Packing::Q5Min: return start_ring<Packing::Q5Min>(stream, set, tokens, in, raw, processors);
    case Packing::Q6x16: return start_ring<Packing::Q6x16>(stream, set, tokens, in, raw, processors);
    case Packing::Q8: return start_ring<Packing::Q8>(stream, set, tokens, in, raw, processors);
  }
}

}  // namespace quire::cuda

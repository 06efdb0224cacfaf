// Makes the plan of a step: attention_tiles.h says what is in it. Places in its lists are taken with atomic additions,
// so their order varies from run to run. No result depends on it.
#include "quire/backend/cuda/attention_kernels.h"

namespace quire::cuda {
namespace {

constexpr std::uint32_t kThreads = 1024;
constexpr std::uint32_t kRunThreads = 256;
constexpr std::uint32_t kRunBlocks = 64;

__device__ void put(const AttentionPlanView& plan, const AttentionItem& item) {
  if (item.queries <= kNarrow) {
    plan.narrow[atomicAdd(&plan.counts->narrow, 1u)] = item;
  } else {
    plan.wide[atomicAdd(&plan.counts->wide, 1u)] = item;
  }
}

// Parts of all decode rows with more than `threshold` sections; also the largest number of sections.
__device__ std::uint32_t count_parts(const PlanCall& call, std::uint32_t threshold, std::uint32_t* most) {
  __shared__ unsigned long long total;
  __shared__ std::uint32_t largest;
  __syncthreads();
  if (threadIdx.x == 0) {
    total = 0;
    largest = 1;
  }
  __syncthreads();
  for (std::uint32_t e = threadIdx.x; e < call.batch.entry_count; e += blockDim.x) {
    const DeviceEntry entry = call.batch.entries[e];
    if (entry.rows != 1) continue;
    const std::uint32_t sections = sections_seen(entry.position, call.window);
    atomicMax(&largest, sections);
    if (sections > threshold) atomicAdd(&total, static_cast<unsigned long long>(sections));
  }
  __syncthreads();
  if (most != nullptr) *most = largest;
  return total > 0xFFFFFFFFull ? 0xFFFFFFFFu : static_cast<std::uint32_t>(total);
}

// Decides which decode rows have parts, and lists the items that need none. One block.
__global__ void __launch_bounds__(kThreads) plan_rows(const PlanCall call) {
  // If not all parts fit, those of the longest sequences do: the others take less time anyway.
  std::uint32_t most = 1;
  std::uint32_t threshold = 1;
  std::uint32_t parts = count_parts(call, threshold, &most);
  if (parts > call.parts) {
    std::uint32_t low = 1, high = most;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (count_parts(call, middle, nullptr) <= call.parts) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    threshold = high;
    parts = count_parts(call, threshold, nullptr);
  }
  const std::uint32_t run = run_length(parts, call.kv_heads, call.slots);
  if (threadIdx.x == 0) {
    *call.plan.counts = {};
    call.plan.counts->run = run;
  }
  __syncthreads();
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (std::uint32_t e = warp; e < call.batch.entry_count; e += kThreads / 32) {
    const DeviceEntry entry = call.batch.entries[e];
    if (lane == 0) call.plan.first_part[e] = kNone;
    if (entry.rows == 0) continue;
    const std::uint32_t sections = sections_seen(entry.position, call.window);
    if (entry.rows == 1 && sections > threshold) {
      for (std::uint32_t i = lane; i < call.per_head * call.kv_heads; i += 32) {
        call.plan.done[std::uint64_t{entry.first_row} * call.per_head * call.kv_heads + i] = 0;
      }
      if (lane == 0) {
        const std::uint32_t part = atomicAdd(&call.plan.counts->parts, sections);
        call.plan.first_part[e] = part;
        atomicMax(&call.plan.counts->runs, entry.position / kSection / run + 1);
      }
      continue;
    }
    const std::uint32_t queries = entry.rows * call.per_head;
    // Later rows see more, so they come first.
    const std::uint32_t pieces = queries <= kNarrow ? 1 : pieces_of(queries, call.wide);
    for (std::uint32_t i = lane; i < pieces; i += 32) {
      const std::uint32_t first = (pieces - 1 - i) * call.wide;
      const AttentionItem item = rows_item(entry.table, entry.first_row, entry.position, first,
                                           at_most(queries - first, call.wide), call.per_head, call.window);
      // The last piece of a chunk may be small, but all of its pieces go together.
      if (pieces == 1) {
        put(call.plan, item);
      } else {
        call.plan.wide[atomicAdd(&call.plan.counts->wide, 1u)] = item;
      }
    }
  }
}

// The items of a run for members [0, count) that share its pages, from `member` on. They have `length` sections each.
__device__ void put_members(const PlanCall& call, const DeviceEntry& entry, std::uint32_t member, std::uint32_t count,
                            SectionRange sections, std::uint32_t length) {
  const std::uint32_t begin = at_least(first_seen(entry.position, call.window), sections.begin * kSection);
  const std::uint32_t end = at_most(entry.position + 1, sections.end * kSection);
  const std::uint32_t queries = count * call.per_head;
  for (std::uint32_t s = sections.begin; s < sections.end; s += length) {
    const std::uint32_t s_end = at_most(s + length, sections.end);
    for (std::uint32_t first = 0; first < queries; first += call.wide) {
      put(call.plan, {entry.table, member, entry.first_row, entry.position, first, at_most(queries - first, call.wide),
                      s, s_end, at_least(begin, s * kSection), at_most(end, s_end * kSection), sections.begin});
    }
  }
}

__device__ AttentionMember member_of(const PlanCall& call, std::uint32_t e, SectionRange sections) {
  const DeviceEntry entry = call.batch.entries[e];
  const std::uint32_t first = first_seen(entry.position, call.window) / kSection;
  const std::uint32_t first_part = call.plan.first_part[e];
  return {entry.first_row, entry.position, first_part + sections.begin - first, first_part,
          sections_seen(entry.position, call.window)};
}

// Whether two sequences have the same pages in a run.
__device__ bool same_pages(const PlanCall& call, std::uint32_t a, std::uint32_t b, std::uint32_t begin,
                           std::uint32_t end) {
  const std::uint32_t* const one = call.kv.table(call.batch.entries[a].table);
  const std::uint32_t* const other = call.kv.table(call.batch.entries[b].table);
  for (std::uint32_t page = begin / call.kv.block_size; page <= (end - 1) / call.kv.block_size; ++page) {
    if (one[page] != other[page]) return false;
  }
  return true;
}

// The items of decode rows with parts: sequences with the same pages in a run go over it together. A block per run.
__global__ void __launch_bounds__(kRunThreads) plan_runs(const PlanCall call) {
  extern __shared__ std::uint32_t shared[];
  const std::uint32_t entries = call.batch.entry_count;
  std::uint32_t* const pages = shared;              // [entries]: the first page of a run that can be shared
  std::uint32_t* const leaders = shared + entries;  // [entries]: the first entry with the same pages; kNone: no part
  __shared__ std::uint32_t active, base;
  const std::uint32_t length = call.plan.counts->run;
  for (std::uint32_t run = blockIdx.x; run < call.plan.counts->runs; run += gridDim.x) {
    const std::uint32_t begin = run * length * kSection, end = begin + length * kSection;
    __syncthreads();
    if (threadIdx.x == 0) active = 0;
    __syncthreads();
    for (std::uint32_t e = threadIdx.x; e < entries; e += blockDim.x) {
      leaders[e] = pages[e] = kNone;
      if (call.plan.first_part[e] == kNone) continue;
      const DeviceEntry entry = call.batch.entries[e];
      const SectionRange sections = sections_of_run(entry.position, call.window, run, length);
      if (sections.begin >= sections.end) continue;
      leaders[e] = e;
      atomicAdd(&active, 1u);
      if (sees_whole_run(entry.position, call.window, run, length)) {
        pages[e] = call.kv.table(entry.table)[begin / call.kv.block_size];
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) base = atomicAdd(&call.plan.counts->members, active);
    for (std::uint32_t e = threadIdx.x; e < entries; e += blockDim.x) {
      if (pages[e] == kNone) continue;
      for (std::uint32_t other = 0; other < e; ++other) {
        if (pages[other] == pages[e] && same_pages(call, other, e, begin, end)) {
          leaders[e] = other;
          break;
        }
      }
    }
    __syncthreads();
    const std::uint32_t capacity = at_least(call.wide / call.per_head, 1);
    for (std::uint32_t e = threadIdx.x; e < entries; e += blockDim.x) {
      const std::uint32_t leader = leaders[e];
      if (leader == kNone) continue;
      std::uint32_t before = 0, rank = 0, size = 0;  // in groups before; in its own group before it; in its group
      for (std::uint32_t other = 0; other < entries; ++other) {
        before += leaders[other] < leader ? 1 : 0;
        size += leaders[other] == leader ? 1 : 0;
        rank += leaders[other] == leader && other < e ? 1 : 0;
      }
      const SectionRange sections = sections_of_run(call.batch.entries[e].position, call.window, run, length);
      const std::uint32_t place = base + before + rank;
      call.plan.members[place] = member_of(call, e, sections);
      if (rank % capacity != 0) continue;
      const std::uint32_t pieces = pieces_of(size * call.per_head, call.wide);
      const std::uint32_t own_length =
          size == 1 ? length
                    : shared_length(call.plan.counts->runs * length, pieces, call.kv_heads, call.slots, length);
      put_members(call, call.batch.entries[e], place, at_most(capacity, size - rank), sections, own_length);
    }
  }
}

// The same for steps of so many entries that looking for shared pages would take too long: every sequence alone.
__global__ void __launch_bounds__(kRunThreads) plan_runs_alone(const PlanCall call) {
  const std::uint32_t length = call.plan.counts->run;
  for (std::uint32_t run = blockIdx.x; run < call.plan.counts->runs; run += gridDim.x) {
    for (std::uint32_t e = threadIdx.x; e < call.batch.entry_count; e += blockDim.x) {
      if (call.plan.first_part[e] == kNone) continue;
      const SectionRange sections = sections_of_run(call.batch.entries[e].position, call.window, run, length);
      if (sections.begin >= sections.end) continue;
      const std::uint32_t place = atomicAdd(&call.plan.counts->members, 1u);
      call.plan.members[place] = member_of(call, e, sections);
      put_members(call, call.batch.entries[e], place, 1, sections, length);
    }
  }
}

}  // namespace

void launch_attention_plan(cudaStream_t stream, const PlanCall& call, bool decodes) {
  plan_rows<<<1, kThreads, 0, stream>>>(call);
  if (!decodes) return;
  if (call.batch.entry_count <= kMostSharing) {
    const std::uint32_t bytes = 2 * call.batch.entry_count * static_cast<std::uint32_t>(sizeof(std::uint32_t));
    plan_runs<<<kRunBlocks, kRunThreads, bytes, stream>>>(call);
  } else {
    plan_runs_alone<<<kRunBlocks, kRunThreads, 0, stream>>>(call);
  }
}

}  // namespace quire::cuda

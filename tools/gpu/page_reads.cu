// How fast a GPU reads keys and values from scattered pages, by the size of a page and the order within it: the read
// pattern of decode attention without its arithmetic. docs/performance.md has what it showed on an H200.
//
//   nvcc -O3 -std=c++20 -arch=sm_90 -o page_reads page_reads.cu && ./page_reads
//
// A block of threads reads the keys and the values of one KV head in one section of one sequence's context, as a kernel
// for decode would. The same kernel over pages in order, tokens innermost, is the limit it is compared with.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

constexpr int kThreads = 128, kAtOnce = 4;

struct Pages {
  const char* base;
  const uint32_t* table;  // [sequences][blocks], in pages
  uint64_t page_bytes, v_offset, head_stride, token_stride;
  uint32_t block_size, blocks, section, row_bytes;
};

__global__ void read_pages(Pages pages, uint32_t* out) {
  const uint32_t section = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z;
  const uint32_t lanes = pages.row_bytes / 16, rows = kThreads / lanes;
  const uint32_t lane = threadIdx.x % lanes, first = threadIdx.x / lanes;
  const uint32_t* table = pages.table + uint64_t{sequence} * pages.blocks;
  uint4 sum = {0, 0, 0, 0};
  for (uint32_t row = first; row < pages.section; row += rows * kAtOnce) {
    uint4 loaded[2 * kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const uint32_t position = section * pages.section + row + i * rows;
      const char* at = pages.base + table[position / pages.block_size] * pages.page_bytes + head * pages.head_stride +
                       (position % pages.block_size) * pages.token_stride + lane * 16;
      loaded[2 * i] = *reinterpret_cast<const uint4*>(at);
      loaded[2 * i + 1] = *reinterpret_cast<const uint4*>(at + pages.v_offset);
    }
#pragma unroll
    for (int i = 0; i < 2 * kAtOnce; ++i) {
      sum.x ^= loaded[i].x;
      sum.y ^= loaded[i].y;
      sum.z ^= loaded[i].z;
      sum.w ^= loaded[i].w;
    }
  }
  if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678) out[0] = 1;  // never optimised away
}

double measure(Pages pages, uint32_t heads, uint32_t sequences, uint32_t context, uint32_t* out) {
  pages.section = 256;
  const dim3 grid(context / pages.section, heads, sequences);
  cudaEvent_t start, stop;
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  float best = 1e30f;
  for (int turn = 0; turn < 20; ++turn) {
    cudaEventRecord(start);
    read_pages<<<grid, kThreads>>>(pages, out);
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0;
    cudaEventElapsedTime(&ms, start, stop);
    best = std::min(best, ms);
  }
  return 2.0 * sequences * context * heads * pages.row_bytes / best / 1e6;
}

int main() {
  constexpr uint32_t kHeads = 8;
  constexpr uint64_t kMemory = uint64_t{24} << 30, kOtherLayers = 4;  // a page has other layers between
  char* memory = nullptr;
  uint32_t *table = nullptr, *out = nullptr;
  if (cudaMalloc(&memory, kMemory) != cudaSuccess || cudaMalloc(&table, 64 << 20) != cudaSuccess ||
      cudaMalloc(&out, 4) != cudaSuccess) {
    std::printf("no GPU, or too little memory\n");
    return 1;
  }
  cudaMemset(memory, 1, kMemory);
  struct Order {
    const char* name;
    bool tokens_outermost, together;
  };
  const Order orders[] = {{"K,V head token", false, false},
                          {"head K,V token", false, true},
                          {"K,V token head", true, false},
                          {"token K,V head", true, true}};
  for (const uint32_t row : {128u, 256u, 512u}) {
    std::printf("8 KV heads, rows of %u bytes; GB/s\n%-16s %5s", row, "order", "page");
    for (const uint32_t context : {512u, 8192u, 32768u}) {
      for (const uint32_t sequences : {1u, 8u, 32u}) std::printf("  %4u x %5u", sequences, context);
    }
    std::printf("\n");
    for (const Order& order : orders) {
      for (const uint32_t block : {16u, 32u, 64u, 128u}) {
        std::printf("%-16s %5u", order.name, block);
        for (const uint32_t context : {512u, 8192u, 32768u}) {
          for (const uint32_t sequences : {1u, 8u, 32u}) {
            const uint64_t plane = uint64_t{row} * kHeads * block;
            Pages pages{memory, table, 2 * plane * kOtherLayers, 0, 0, 0, block, context / block, 0, row};
            if (order.tokens_outermost) {
              pages.head_stride = row;
              pages.token_stride = uint64_t{row} * kHeads * (order.together ? 2 : 1);
              pages.v_offset = order.together ? uint64_t{row} * kHeads : plane;
            } else {
              pages.token_stride = row;
              pages.head_stride = uint64_t{row} * block * (order.together ? 2 : 1);
              pages.v_offset = order.together ? uint64_t{row} * block : plane;
            }
            std::vector<uint32_t> places(uint64_t{sequences} * pages.blocks);
            if (places.size() * pages.page_bytes > kMemory) {
              pages.page_bytes = 2 * plane;
              if (places.size() * pages.page_bytes > kMemory) {
                std::printf("  %12s", "-");
                continue;
              }
            }
            std::iota(places.begin(), places.end(), 0u);
            std::shuffle(places.begin(), places.end(), std::mt19937(1));
            cudaMemcpy(table, places.data(), places.size() * 4, cudaMemcpyHostToDevice);
            std::printf("  %12.0f", measure(pages, kHeads, sequences, context, out));
          }
        }
        std::printf("\n");
      }
    }
  }
  std::printf("%s\n", cudaGetErrorString(cudaGetLastError()));
}

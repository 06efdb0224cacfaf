#include "quire/bench/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "quire/backend/cpu/kernels.h"
#include "quire/backend/cpu/topology.h"
#include "quire/base/check.h"
#include "quire/state/device.h"

namespace quire::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLine = 64;                   // bytes of a cache line
constexpr std::uint32_t kStreams[] = {1, 2, 4, 8};  // streams that a thread reads at the same time

// Keeps a value alive: the compiler would remove unused values, and sums that are the same every time.
template <typename T>
inline void keep(T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

// The loops of one instruction set.
struct Loops {
  // One function per entry of kStreams. It reads that many streams at the same time: `bytes` (whole lines) each, the
  // first at `data`, the next ones `stride` further on.
  void (*read[std::size(kStreams)])(const std::byte* data, std::size_t bytes, std::size_t stride);
  // Return the number of operations.
  double (*multiply_int8)(std::uint64_t rounds);
  double (*multiply_f32)(std::uint64_t rounds);
  double (*multiply_bf16)(std::uint64_t rounds);
};

// --- any processor: plain loops, vectorized by the compiler

template <std::uint32_t kCount>
void read_plain(const std::byte* data, std::size_t bytes, std::size_t stride) {
  std::uint64_t sums[kCount][kLine / 8] = {};
  for (std::size_t at = 0; at < bytes; at += kLine) {
    for (std::uint32_t s = 0; s < kCount; ++s) {
      std::uint64_t line[kLine / 8];
      std::memcpy(line, data + s * stride + at, kLine);
      for (std::size_t i = 0; i < kLine / 8; ++i) sums[s][i] ^= line[i];
    }
  }
  keep(sums);
}

double int8_plain(std::uint64_t rounds) {
  constexpr std::size_t kCount = 256;
  std::uint8_t a[kCount];
  std::int8_t b[kCount];
  for (std::size_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<std::uint8_t>(i % 15);
    b[i] = static_cast<std::int8_t>(i % 13);
  }
  std::int32_t sum = 0;
  for (std::uint64_t r = 0; r < rounds; ++r) {
    keep(a);
    keep(b);
    std::int32_t part = 0;
    for (std::size_t i = 0; i < kCount; ++i) part += a[i] * b[i];
    sum ^= part;
  }
  keep(sum);
  return 2.0 * kCount * static_cast<double>(rounds);
}

double f32_plain(std::uint64_t rounds) {
  constexpr std::size_t kCount = 32;
  float a[kCount], sums[kCount] = {};
  for (std::size_t i = 0; i < kCount; ++i) a[i] = 1e-3f * static_cast<float>(i + 1);
  keep(a);
  for (std::uint64_t r = 0; r < rounds; ++r) {
    for (std::size_t i = 0; i < kCount; ++i) sums[i] = sums[i] * 0.5f + a[i];
  }
  keep(sums);
  return 2.0 * kCount * static_cast<double>(rounds);
}

#if defined(__x86_64__)

// --- AVX2

template <std::uint32_t kCount>
__attribute__((target("avx2"))) void read_avx2(const std::byte* data, std::size_t bytes, std::size_t stride) {
  __m256i sums[kCount];
  for (std::uint32_t s = 0; s < kCount; ++s) sums[s] = _mm256_setzero_si256();
  for (std::size_t at = 0; at < bytes; at += kLine) {
    for (std::uint32_t s = 0; s < kCount; ++s) {
      const auto* line = reinterpret_cast<const __m256i*>(data + s * stride + at);
      sums[s] = _mm256_xor_si256(sums[s], _mm256_xor_si256(_mm256_load_si256(line), _mm256_load_si256(line + 1)));
    }
  }
  keep(sums);
}

__attribute__((target("avx2"))) double int8_avx2(std::uint64_t rounds) {
  constexpr int kChains = 5;  // with as many factors and the shared operand they fill the 16 registers
  __m256i sums[kChains], a[kChains];
  for (int i = 0; i < kChains; ++i) {
    sums[i] = _mm256_setzero_si256();
    a[i] = _mm256_set1_epi8(static_cast<char>(i + 1));
  }
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i b = _mm256_set1_epi8(3);
  for (std::uint64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+x"(b));  // the compiler must assume a new value each time
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a[i], b), ones));
    }
  }
  keep(sums);
  return 2.0 * 32 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx2,fma"))) double f32_avx2(std::uint64_t rounds) {
  constexpr int kChains = 12;
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  const __m256 a = _mm256_set1_ps(1e-3f), b = _mm256_set1_ps(1e-3f);
  for (std::uint64_t r = 0; r < rounds; ++r) {
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(a, b, sum);
  }
  keep(sums);
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}

// --- AVX-512

template <std::uint32_t kCount>
__attribute__((target("avx512f"))) void read_avx512(const std::byte* data, std::size_t bytes, std::size_t stride) {
  __m512i sums[kCount];
  for (std::uint32_t s = 0; s < kCount; ++s) sums[s] = _mm512_setzero_si512();
  for (std::size_t at = 0; at < bytes; at += kLine) {
    for (std::uint32_t s = 0; s < kCount; ++s) {
      sums[s] = _mm512_xor_si512(sums[s], _mm512_load_si512(data + s * stride + at));
    }
  }
  keep(sums);
}

__attribute__((target("avx512f,avx512vnni"))) double int8_avx512(std::uint64_t rounds) {
  constexpr int kChains = 16;
  __m512i sums[kChains];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (std::uint64_t r = 0; r < rounds; ++r) {
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
  }
  keep(sums);
  return 2.0 * 64 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx512f"))) double f32_avx512(std::uint64_t rounds) {
  constexpr int kChains = 16;
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(1e-3f), b = _mm512_set1_ps(1e-3f);
  for (std::uint64_t r = 0; r < rounds; ++r) {
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
  }
  keep(sums);
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx512f,avx512bf16"))) double bf16_avx512(std::uint64_t rounds) {
  constexpr int kChains = 16;
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
  for (std::uint64_t r = 0; r < rounds; ++r) {
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, ones, ones);
  }
  keep(sums);
  return 2.0 * 32 * kChains * static_cast<double>(rounds);
}

// Whole tiles: two times two factors of 16 rows and 64 columns.
double int8_amx(std::uint64_t rounds) {
  struct alignas(64) {
    std::uint8_t palette = 1, start = 0, unused[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } const shapes;
  asm volatile("ldtilecfg %0" ::"m"(shapes));
  asm volatile("tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3");
  asm volatile("tilezero %tmm4\n\ttilezero %tmm5\n\ttilezero %tmm6\n\ttilezero %tmm7");
  for (std::uint64_t r = 0; r < rounds; ++r) {
    asm volatile(
        "tdpbssd %tmm2, %tmm0, %tmm4\n\ttdpbssd %tmm3, %tmm0, %tmm5\n\t"
        "tdpbssd %tmm2, %tmm1, %tmm6\n\ttdpbssd %tmm3, %tmm1, %tmm7");
  }
  asm volatile("tilerelease");
  return 2.0 * 16 * 16 * 64 * 4 * static_cast<double>(rounds);
}

#endif

// The loops of the kernels of this name: only they are known to run on this machine.
Loops loops_of(const char* variant) {
#if defined(__x86_64__)
  const bool amx = std::strcmp(variant, "amx") == 0, bf16 = std::strcmp(variant, "avx512bf16") == 0;
  if (amx || bf16 || std::strcmp(variant, "avx512") == 0)
    return {{read_avx512<1>, read_avx512<2>, read_avx512<4>, read_avx512<8>},
            amx ? int8_amx : int8_avx512,
            f32_avx512,
            bf16 ? bf16_avx512 : f32_avx512};
  if (std::strcmp(variant, "avx2") == 0)
    return {{read_avx2<1>, read_avx2<2>, read_avx2<4>, read_avx2<8>}, int8_avx2, f32_avx2, f32_avx2};
#endif
  (void)variant;
  return {{read_plain<1>, read_plain<2>, read_plain<4>, read_plain<8>}, int8_plain, f32_plain, f32_plain};
}

Result<Loops> loops_of(const LimitOptions& options) {
  const cpu::Kernels* kernels =
      options.variant.empty() ? &cpu::best_kernels() : cpu::kernels_by_name(options.variant.c_str());
  if (kernels == nullptr) return fail("this machine cannot run the " + options.variant + " variant");
  return loops_of(kernels->name);
}

// --- measuring

// Pins this thread to the CPU of the n-th thread while the object lives. On a busy machine the system may otherwise
// keep all threads of a process on one core during a whole measurement. If there are fewer CPUs, or the system refuses,
// the thread is not pinned.
class OnCore {
 public:
  OnCore(const std::vector<cpu::LogicalCpu>& cpus, std::uint32_t thread) {
    if (thread >= cpus.size() || cpus[thread].id >= CPU_SETSIZE) return;
    if (::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpus[thread].id, &only);
    bound_ = ::sched_setaffinity(0, sizeof only, &only) == 0;
  }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;
  ~OnCore() {
    if (bound_) ::sched_setaffinity(0, sizeof before_, &before_);
  }

 private:
  cpu_set_t before_;
  bool bound_ = false;
};

// The rate of all threads together in the best `window` of the given time. `slice` does a little work on a thread, as
// the n-th slice there, and returns how much. The threads do not wait for each other.
template <typename Slice>
double best_rate(std::uint32_t threads, double seconds, double window, const Slice& slice) {
  struct alignas(kLine) Done {
    std::atomic<double> amount = 0;
  };
  // Where the engine's threads would be.
  const std::vector<cpu::LogicalCpu> cpus = cpu::Topology::of_this_machine().place(threads);
  std::vector<Done> done(threads);
  std::atomic<bool> over = false;
  const auto work = [&](std::uint32_t thread, std::uint64_t turn) {
    Done& mine = done[thread];
    mine.amount.store(mine.amount.load(std::memory_order_relaxed) + slice(thread, turn), std::memory_order_relaxed);
  };
  std::vector<std::thread> others;
  others.reserve(threads - 1);
  for (std::uint32_t thread = 1; thread < threads; ++thread) {
    others.emplace_back([&, thread] {
      const OnCore stay(cpus, thread);
      for (std::uint64_t turn = 0; !over.load(std::memory_order_relaxed); ++turn) work(thread, turn);
    });
  }

  double best = 0;
  {
    const OnCore stay(cpus, 0);
    const auto start = Clock::now();
    const auto time = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    // Samples of the work done by all threads, with their times. Taking a sample takes time, and much more if this
    // thread loses its core meanwhile. So a window begins before its first sample and ends after its last.
    struct Look {
      double before = 0, behind = 0;
      double amount = 0;
    };
    const auto look = [&] {
      Look now{.before = time()};
      for (const Done& one : done) now.amount += one.amount.load(std::memory_order_seq_cst);
      now.behind = time();
      return now;
    };
    std::vector<Look> looks = {look()};
    std::size_t first = 0;  // the last sample that is at least a window old
    do {
      work(0, looks.size() - 1);
      const Look& now = looks.emplace_back(look());
      while (first + 1 < looks.size() && now.behind - looks[first + 1].before >= window) ++first;
      const double took = now.behind - looks[first].before;
      if (took >= window) best = std::max(best, (now.amount - looks[first].amount) / took);
    } while (looks.back().behind < seconds);
    // The time was shorter than a window.
    if (best == 0) best = looks.back().amount / std::max(looks.back().behind, 1e-9);
  }
  over = true;
  for (std::thread& other : others) other.join();
  return best;
}

// CPU time of this thread. It stands still while other programs have the core.
double processor_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double measure_multiply(double (*loop)(std::uint64_t), const LimitOptions& options) {
  // The speed of the multipliers is constant, but other programs take the core away. So the window is shorter than they
  // keep a core, and a slice is so short that one slice more or less does not matter.
  constexpr double kWindow = 2e-3, kSlice = 1e-5;
  std::uint64_t rounds = 1 << 4;
  for (double took = 0; took < kSlice / 2; rounds *= 2) {
    const double start = processor_seconds();
    loop(rounds);
    took = processor_seconds() - start;
  }
  return best_rate(options.threads, options.seconds, kWindow,
                   [&](std::uint32_t, std::uint64_t) { return loop(rounds); });
}

}  // namespace

MachineLimits best_of(const MachineLimits& a, const MachineLimits& b) {
  return {std::max(a.read, b.read), std::max(a.int8, b.int8), std::max(a.f32, b.f32), std::max(a.bf16, b.bf16)};
}

struct ReadMeter::Memory {
  Loops loops;
  std::uint32_t threads = 1;
  HostDevice device;
  DeviceBuffer buffer;
};

ReadMeter::ReadMeter(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}
ReadMeter::ReadMeter(ReadMeter&&) noexcept = default;
ReadMeter::~ReadMeter() = default;

Result<ReadMeter> ReadMeter::create(const LimitOptions& options) {
  QUIRE_CHECK(options.threads > 0, "somebody has to measure");
  const auto loops = loops_of(options);
  if (!loops) return std::unexpected(loops.error());
  // The part of every thread and stream is at least one line, and whole lines.
  const std::uint64_t piece = kLine * kStreams[std::size(kStreams) - 1] * options.threads;
  const std::uint64_t bytes = std::max(options.buffer_bytes / piece, std::uint64_t{1}) * piece;
  auto memory = std::make_unique<Memory>(Memory{.loops = *loops, .threads = options.threads});
  auto buffer = DeviceBuffer::create(memory->device, bytes);
  if (!buffer) return fail("no memory for a buffer of " + std::to_string(bytes) + " bytes to measure with");
  memory->buffer = std::move(*buffer);
  // Not left as zeros: a hypervisor may map all zero pages to one page of memory.
  for (std::uint64_t at = 0; at < bytes; at += sizeof at) std::memcpy(memory->buffer.data() + at, &at, sizeof at);
  return ReadMeter(std::move(memory));
}

double ReadMeter::measure(double seconds, double window) const {
  constexpr std::size_t kSlice = 128 << 10;
  const std::byte* const data = memory_->buffer.data();
  double best = 0;
  for (std::size_t i = 0; i < std::size(kStreams); ++i) {
    const std::size_t mine = memory_->buffer.size() / memory_->threads, stream = mine / kStreams[i];
    const std::size_t run = std::min(stream, kSlice / kStreams[i]);
    const auto read = [&](std::uint32_t thread, std::uint64_t turn) {
      memory_->loops.read[i](data + thread * mine + turn % (stream / run) * run, run, stream);
      return static_cast<double>(run * kStreams[i]);
    };
    best = std::max(best, best_rate(memory_->threads, seconds, window, read));
  }
  return best;
}

double ReadMeter::look(ThreadTeam& team) const {
  const std::byte* const data = memory_->buffer.data();
  double best = 0;
  for (std::size_t i = 0; i < std::size(kStreams); ++i) {
    const std::size_t stream = memory_->buffer.size() / team.size() / kStreams[i] / kLine * kLine;
    const auto start = Clock::now();
    team.run([&](std::uint32_t part, std::uint32_t) {
      memory_->loops.read[i](data + part * kStreams[i] * stream, stream, stream);
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(team.size() * kStreams[i] * stream) / std::max(seconds, 1e-9));
  }
  return best;
}

Result<MachineLimits> measure_limits(const LimitOptions& options) {
  // As long as the measurement that it is compared with: on shared memory, the speed of a short moment is not a useful
  // limit.
  constexpr double kWindow = 200e-3;
  const auto loops = loops_of(options);
  if (!loops) return std::unexpected(loops.error());
  const auto memory = ReadMeter::create(options);
  if (!memory) return std::unexpected(memory.error());
  return MachineLimits{.read = memory->measure(options.seconds / 2, kWindow),
                       .int8 = measure_multiply(loops->multiply_int8, options),
                       .f32 = measure_multiply(loops->multiply_f32, options),
                       .bf16 = measure_multiply(loops->multiply_bf16, options)};
}

void read_lines(const cpu::Kernels& kernels, const std::byte* data, std::size_t bytes) {
  static_assert(kStreams[0] == 1);
  loops_of(kernels.name).read[0](data, bytes, 0);
}

}  // namespace quire::bench

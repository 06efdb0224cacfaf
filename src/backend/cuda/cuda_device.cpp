#include "quire/backend/cuda/cuda_device.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "quire/backend/cuda/move_kernels.h"
#include "quire/backend/cuda/row_kernels.h"
#include "quire/base/numbers.h"

namespace quire {
namespace {

constexpr std::size_t kPinned = std::size_t{32} << 20;  // bytes that are pinned at once
constexpr std::size_t kWords = std::size_t{1} << 14;    // words of one transfer
constexpr std::size_t kPage = 4096, kCudaAlignment = 256;

// Errors that concern one call or one launch. After every other error the context of this process is gone.
bool is_refusal(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
    case cudaErrorInvalidValue:
    case cudaErrorNotSupported:
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorNoKernelImageForDevice: return true;
    default: return false;
  }
}

std::string describe(cudaError_t error) {
  return fmt::format("{}: {}", cudaGetErrorName(error), cudaGetErrorString(error));
}

CudaFacts facts_of(std::uint32_t number, const cudaDeviceProp& properties) {
  return {.number = number,
          .name = properties.name,
          .major = static_cast<std::uint32_t>(properties.major),
          .minor = static_cast<std::uint32_t>(properties.minor),
          .multiprocessors = static_cast<std::uint32_t>(properties.multiProcessorCount),
          .memory = {.free = UINT64_MAX, .total = properties.totalGlobalMem}};
}

}  // namespace

Result<std::vector<CudaFacts>> cuda_devices() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    cudaGetLastError();  // clears it
    if (error == cudaErrorInsufficientDriver) return fail("there is no driver for NVIDIA GPUs, or it is too old");
    if (error == cudaErrorNoDevice) return fail("this machine has no NVIDIA GPU");
    return fail(describe(error));
  }
  std::vector<CudaFacts> all;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, i); error != cudaSuccess) {
      return fail(fmt::format("GPU {}: {}", i, describe(error)));
    }
    all.push_back(facts_of(static_cast<std::uint32_t>(i), properties));
  }
  if (all.empty()) return fail("this machine has no NVIDIA GPU");
  return all;
}

CudaDevice::CudaDevice(CudaFacts facts) : facts_(std::move(facts)), name_("cuda:" + std::to_string(facts_.number)) {}

Result<std::unique_ptr<CudaDevice>> CudaDevice::create(std::uint32_t number) {
  const auto all = cuda_devices();
  if (!all) return std::unexpected(all.error());
  if (number >= all->size()) {
    return fail(fmt::format("there is no GPU {}: this machine has {}", number, all->size()));
  }
  const CudaFacts& facts = (*all)[number];
  if (facts.major < 8) {
    return fail(fmt::format("GPU {} ({}) has compute capability {}.{}; 8.0 is needed", number, facts.name, facts.major,
                            facts.minor));
  }
  std::unique_ptr<CudaDevice> device(new CudaDevice(facts));
  if (auto ok = device->start(); !ok) return std::unexpected(ok.error());
  return device;
}

Result<void> CudaDevice::start() {
  const auto attempt = [&](cudaError_t error) -> Result<void> {
    if (error == cudaSuccess) return {};
    return fail(fmt::format("GPU {} ({}): {}", facts_.number, facts_.name, describe(error)));
  };
  if (auto ok = attempt(cudaSetDevice(static_cast<int>(facts_.number))); !ok) return ok;
  int same_address = 0;
  can_move_ = cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem,
                                     static_cast<int>(facts_.number)) == cudaSuccess &&
              same_address != 0;
  if (auto ok = attempt(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); !ok) return ok;
  for (cudaEvent_t& event : words_done_) {
    if (auto ok = attempt(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); !ok) return ok;
  }
  constexpr std::size_t kBytes = 2 * kWords * sizeof(Word);
  if (auto ok = attempt(cudaMallocHost(reinterpret_cast<void**>(&words_host_), kBytes)); !ok) return ok;
  return attempt(cudaMalloc(reinterpret_cast<void**>(&words_device_), kBytes));
}

CudaDevice::~CudaDevice() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  for (const cudaEvent_t event : words_done_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  cudaFreeHost(words_host_);
  cudaFree(words_device_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

// Remembers an error of submitted work until the next fence.
void CudaDevice::note(cudaError_t error) {
  if (error == cudaSuccess) return;
  failed_ = true;
  why_ = cudaGetErrorString(error);
  if (!is_refusal(error)) lost_ = true;
}

// The result of a call that submits work.
PoolResult<void> CudaDevice::submitted(cudaError_t error, const char* what, std::size_t bytes) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // this call was refused; later ones may succeed
  why_ = cudaGetErrorString(error);
  if (!is_refusal(error)) lost_ = true;
  return std::unexpected(PoolError::device_failure(what, bytes));
}

DeviceMemory CudaDevice::memory() const {
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return {.free = 0, .total = facts_.memory.total};
  return {.free = free, .total = total};
}

PoolResult<void*> CudaDevice::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes == 0) return std::unexpected(PoolError::invalid_argument("an allocation of no bytes"));
  if (alignment > kPage) return std::unexpected(PoolError::invalid_argument("alignment to more than a page"));
  if (lost_) return std::unexpected(PoolError::device_failure("allocate", bytes));
  // CUDA aligns to 256 bytes; what wants more is large, and some bytes in front of it do not matter.
  const std::size_t more = alignment > kCudaAlignment ? alignment : 0;
  void* base = nullptr;
  if (auto ok = submitted(cudaMalloc(&base, bytes + more), "allocate", bytes); !ok) return std::unexpected(ok.error());
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  void* const memory = static_cast<std::byte*>(base) + (round_up(address, std::max(more, kCudaAlignment)) - address);
  if (auto ok = zero(memory, bytes); !ok) {
    cudaFree(base);
    return std::unexpected(ok.error());
  }
  if (memory != base) moved_.emplace_back(memory, base);
  return memory;
}

void CudaDevice::deallocate(void* memory, std::size_t) noexcept {
  if (memory == nullptr) return;
  submit_moves();
  note(cudaStreamSynchronize(stream_));
  const auto moved = std::ranges::find(moved_, memory, &std::pair<void*, void*>::first);
  cudaFree(moved == moved_.end() ? memory : moved->second);
  if (moved != moved_.end()) moved_.erase(moved);
}

PoolResult<void*> CudaDevice::allocate_host(std::size_t bytes) {
  if (lost_) return std::unexpected(PoolError::device_failure("allocate", bytes));
  const auto memory = Device::allocate_host(bytes);
  if (!memory) return memory;
  const std::size_t pieces = divide_up(bytes, kPinned);
  areas_.push_back({static_cast<std::byte*>(*memory), bytes, std::vector<bool>(pieces), std::vector<bool>(pieces)});
  return memory;
}

void CudaDevice::deallocate_host(void* memory, std::size_t bytes) noexcept {
  const auto area = std::ranges::find(areas_, memory, &HostArea::begin);
  if (area != areas_.end()) {
    submit_moves();
    note(cudaStreamSynchronize(stream_));
    for (std::size_t i = 0; i < area->pinned.size(); ++i) {
      if (area->pinned[i]) cudaHostUnregister(area->begin + i * kPinned);
    }
    areas_.erase(area);
  }
  Device::deallocate_host(memory, bytes);
}

void CudaDevice::prepare_host(void* memory, std::size_t bytes) noexcept {
  if (lost_) return;
  for (std::size_t done = 0; done < bytes;) done += pin(static_cast<std::byte*>(memory) + done, bytes - done).bytes;
}

// How many bytes from here on one transfer may take: a transfer must not go over the end of a pinned piece, since each
// piece is pinned by itself. Pins the first piece. Where that fails, the transfer is slower and nothing else.
CudaDevice::Pinned CudaDevice::pin(const void* memory, std::size_t bytes) {
  const auto* const at = static_cast<const std::byte*>(memory);
  for (HostArea& area : areas_) {
    if (at < area.begin || at >= area.begin + area.bytes) continue;
    const auto offset = static_cast<std::size_t>(at - area.begin);
    const std::size_t piece = offset / kPinned;
    if (!area.tried[piece]) {
      area.tried[piece] = true;
      const std::size_t length = std::min(kPinned, area.bytes - piece * kPinned);
      const unsigned flags = can_move_ ? cudaHostRegisterMapped : cudaHostRegisterDefault;
      area.pinned[piece] = cudaHostRegister(area.begin + piece * kPinned, length, flags) == cudaSuccess;
      if (!area.pinned[piece]) cudaGetLastError();
    }
    return {std::min(bytes, (piece + 1) * kPinned - offset), area.pinned[piece]};
  }
  return {bytes, false};
}

// Whether the transfer is one of those that are submitted together, later.
bool CudaDevice::collect(void* to, const void* from, std::size_t bytes, cudaMemcpyKind direction) {
  if (!can_move_ || !cuda::MoveList::suits(to, from, bytes)) return false;
  if (moves_direction_ != direction) submit_moves();
  moves_direction_ = direction;
  if (moves_.add(to, from, bytes)) return true;
  submit_moves();
  return moves_.add(to, from, bytes);
}

void CudaDevice::submit_moves() {
  if (moves_.count == 0) return;
  if (!lost_) {
    cuda::launch_moves(stream_, moves_, facts_.multiprocessors);
    note_launches();
  }
  moves_.count = moves_.chunks = 0;
}

PoolResult<void> CudaDevice::transfer(void* to, const void* from, std::size_t bytes, cudaMemcpyKind direction,
                                      const char* what) {
  if (before_work_) before_work_();
  if (lost_) return std::unexpected(PoolError::device_failure(what, bytes));
  for (std::size_t done = 0; done < bytes;) {
    auto* const part_to = static_cast<std::byte*>(to) + done;
    const auto* const part_from = static_cast<const std::byte*>(from) + done;
    const Pinned part = pin(direction == cudaMemcpyHostToDevice ? part_from : part_to, bytes - done);
    done += part.bytes;
    if (part.pinned && collect(part_to, part_from, part.bytes, direction)) continue;
    submit_moves();
    if (auto ok = submitted(cudaMemcpyAsync(part_to, part_from, part.bytes, direction, stream_), what, bytes); !ok) {
      return ok;
    }
  }
  return {};
}

PoolResult<void> CudaDevice::upload(void* to, const void* from_host, std::size_t bytes) {
  return transfer(to, from_host, bytes, cudaMemcpyHostToDevice, "upload");
}

PoolResult<void> CudaDevice::download(void* to_host, const void* from, std::size_t bytes) {
  return transfer(to_host, from, bytes, cudaMemcpyDeviceToHost, "download");
}

PoolResult<void> CudaDevice::copy(void* to, const void* from, std::size_t bytes) {
  if (before_work_) before_work_();
  if (lost_) return std::unexpected(PoolError::device_failure("copy", bytes));
  submit_moves();
  return submitted(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "copy", bytes);
}

PoolResult<void> CudaDevice::zero(void* to, std::size_t bytes) {
  if (before_work_) before_work_();
  if (lost_) return std::unexpected(PoolError::device_failure("zero", bytes));
  submit_moves();
  return submitted(cudaMemsetAsync(to, 0, bytes, stream_), "zero", bytes);
}

PoolResult<void> CudaDevice::fence() {
  if (before_work_) before_work_();
  submit_moves();
  note(cudaStreamSynchronize(stream_));
  note(cudaGetLastError());
  if (lost_ || std::exchange(failed_, false)) return std::unexpected(PoolError::failed_at_fence(why_));
  return {};
}

PoolResult<void> CudaDevice::upload_words(void* to, std::span<const Word> words) {
  if (before_work_) before_work_();
  if (lost_) return std::unexpected(PoolError::device_failure("upload", words.size_bytes()));
  submit_moves();
  while (!words.empty()) {
    const auto some = words.first(std::min(words.size(), kWords));
    const std::uint32_t half = next_half_;
    next_half_ = 1 - next_half_;
    note(cudaEventSynchronize(words_done_[half]));
    std::memcpy(words_host_ + half * kWords, some.data(), some.size_bytes());
    if (auto ok = submitted(cudaMemcpyAsync(words_device_ + half * kWords, words_host_ + half * kWords,
                                            some.size_bytes(), cudaMemcpyHostToDevice, stream_),
                            "upload", some.size_bytes());
        !ok) {
      return ok;
    }
    static_assert(sizeof(Word) == sizeof(cuda::WordWrite));
    cuda::launch_write_words(stream_, to, reinterpret_cast<const cuda::WordWrite*>(words_device_ + half * kWords),
                             static_cast<std::uint32_t>(some.size()));
    note_launches();
    note(cudaEventRecord(words_done_[half], stream_));
    words = words.subspan(some.size());
  }
  return {};
}

}  // namespace quire

// Memory of one NVIDIA GPU, and the stream on which everything for it runs in order: copies and kernels.
//
// Small transfers to or from pinned memory are collected until something else is submitted, or somebody waits. Then one
// kernel does all of them (moves.h).
//
// Host memory for transfers is pinned piece by piece, when a transfer first touches a piece: a large area that is never
// used takes no room, and the first use of a piece costs some milliseconds.
//
// Who may call: one thread.
// How it fails: an allocation that does not fit is refused. An error of the GPU itself (a fault in a kernel, a lost
//   device) cannot be undone within a process: the device is lost then. It refuses every later call, and
//   every fence says why. An error at a launch fails that work alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "quire/backend/cuda/moves.h"
#include "quire/base/error.h"
#include "quire/state/device.h"

namespace quire {

// A GPU of this machine, for people.
struct CudaFacts {
  std::uint32_t number = 0;
  std::string name;
  std::uint32_t major = 0, minor = 0;  // compute capability
  std::uint32_t multiprocessors = 0;
  DeviceMemory memory;
};

// All GPUs that this process can use, or one line that says why there are none.
Result<std::vector<CudaFacts>> cuda_devices();

class CudaDevice final : public Device {
 public:
  static Result<std::unique_ptr<CudaDevice>> create(std::uint32_t number);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const CudaFacts& facts() const { return facts_; }
  // For work that is submitted directly. What was collected goes first, so ask for it each time.
  cudaStream_t stream() {
    submit_moves();
    return stream_;
  }
  // Kernels were submitted directly: takes note of an error at their launch. The next fence reports it.
  void note_launches() { note(cudaGetLastError()); }
  // Called before the device submits anything, so that work which the backend has collected goes first.
  void before_work(std::function<void()> submit_collected) { before_work_ = std::move(submit_collected); }
  // Takes note of an error of submitted work; the next fence reports it.
  void note(cudaError_t error);
  bool lost() const { return lost_; }

  const char* name() const override { return name_.c_str(); }
  DeviceMemory memory() const override;
  bool has_own_memory() const override { return true; }
  PoolResult<void*> allocate(std::size_t bytes, std::size_t alignment) override;
  void deallocate(void* memory, std::size_t bytes) noexcept override;
  PoolResult<void*> allocate_host(std::size_t bytes) override;
  void deallocate_host(void* memory, std::size_t bytes) noexcept override;
  void prepare_host(void* memory, std::size_t bytes) noexcept override;
  PoolResult<void> upload(void* to, const void* from_host, std::size_t bytes) override;
  PoolResult<void> download(void* to_host, const void* from, std::size_t bytes) override;
  PoolResult<void> copy(void* to, const void* from, std::size_t bytes) override;
  PoolResult<void> zero(void* to, std::size_t bytes) override;
  PoolResult<void> fence() override;
  PoolResult<void> upload_words(void* to, std::span<const Word> words) override;

 private:
  // Host memory that is pinned piece by piece.
  struct HostArea {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::vector<bool> tried;  // pieces
    std::vector<bool> pinned;
  };

  explicit CudaDevice(CudaFacts facts);
  Result<void> start();
  PoolResult<void> submitted(cudaError_t error, const char* what, std::size_t bytes);
  struct Pinned {
    std::size_t bytes = 0;  // from here on, of one piece
    bool pinned = false;
  };
  Pinned pin(const void* memory, std::size_t bytes);
  PoolResult<void> transfer(void* to, const void* from, std::size_t bytes, cudaMemcpyKind direction, const char* what);
  bool collect(void* to, const void* from, std::size_t bytes, cudaMemcpyKind direction);
  void submit_moves();

  CudaFacts facts_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
  bool failed_ = false;   // work since the last fence
  const char* why_ = "";  // the last error, in CUDA's words
  bool lost_ = false;
  std::function<void()> before_work_;
  std::vector<HostArea> areas_;
  cuda::MoveList moves_;  // not submitted yet
  cudaMemcpyKind moves_direction_ = cudaMemcpyHostToDevice;
  bool can_move_ = false;                       // kernels can use pinned memory at its own address
  std::vector<std::pair<void*, void*>> moved_;  // allocations with an alignment of their own, and where CUDA has them
  // Words on their way: two halves, each free again when its event has passed.
  Word* words_host_ = nullptr;
  Word* words_device_ = nullptr;
  cudaEvent_t words_done_[2] = {};
  std::uint32_t next_half_ = 0;
};

}  // namespace quire

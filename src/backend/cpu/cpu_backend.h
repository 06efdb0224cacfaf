// The CPU's backend: host memory, a team of threads, and the inner loops of one instruction set.
//
// How exactness is kept: every element of a result is computed by one thread in one fixed order; threads divide
// elements, never sums. Attention walks the context in tiles at fixed absolute positions. Recurrent layers advance
// token by token.
#pragma once

#include <memory>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/backend/cpu/kernels.h"
#include "quire/base/thread_team.h"

namespace quire {

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::uint32_t threads, const cpu::Kernels& kernels = cpu::best_kernels());

  Device& device() override { return device_; }
  const char* variant() const override { return kernels_.name; }
  std::uint32_t threads() const { return team_.size(); }
  PoolResult<void> prepare(std::uint32_t max_rows, std::uint32_t max_cols) override;
  void begin(const Step& step) override { step_ = step; }
  void finish() override {}

  void embed(Rows out, const Weight& table, float scale) override;
  void rms_norm(Rows out, Rows x, const float* weight, float epsilon) override;
  void matmul(Rows out, const Weight& weight, Rows x, const float* bias) override;
  void gather(Rows out, Rows x, std::span<const std::uint32_t> indices) override;
  void add(Rows x, Rows y, float scale) override;
  void gate(Rows out, Rows gate, Rows up, Activation activation) override;
  void cap_and_scale(Rows x, float cap, float scale) override;
  void rope_angles(Rows cosines, Rows sines, std::span<const float> frequencies) override;
  void rope(Rows x, std::uint32_t heads, std::uint32_t head_dim, Rows cosines, Rows sines, RopePairs pairs) override;
  void store_kv(const AttentionShape& shape, Rows k, Rows v) override;
  void attention(Rows out, Rows q, const AttentionShape& shape) override;
  void mamba2_conv(Rows x, const float* weight, const float* bias, const Mamba2Shape& shape) override;
  void mamba2_scan(Rows out, Rows x, Rows b, Rows c, Rows dt, const float* dt_bias, const float* a, const float* d,
                   const Mamba2Shape& shape) override;
  void gated_norm(Rows out, Rows x, Rows gate, const float* weight, float epsilon, std::uint32_t groups) override;

 private:
  struct Scratch {  // of one thread
    std::vector<std::int8_t> q;
    std::vector<float> scales, offsets, row;
  };
  // Calls work(i) for each of `count` items, each on one thread.
  template <typename Work>
  void for_each(std::uint32_t count, Work work);
  KvView view(const AttentionShape& shape, std::uint32_t part) const;
  cpu::QuantInput input(std::uint32_t row);

  HostDevice device_;
  const cpu::Kernels& kernels_;
  ThreadTeam team_;
  Step step_;
  std::uint32_t max_rows_ = 0;
  std::uint32_t max_cols_ = 0;
  std::vector<Scratch> scratch_;          // by thread
  std::vector<std::int8_t> input_q_;      // [max_rows][max_cols]
  std::vector<float> input_scales_;       // [max_rows][max_cols / 32]
  std::vector<std::int32_t> input_sums_;  // [max_rows][max_cols / 16]
};

}  // namespace quire

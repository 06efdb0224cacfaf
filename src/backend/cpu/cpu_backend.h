// The CPU's backend: host memory, a team of threads, and the inner loops of one instruction set.
//
// How exactness is kept: every element of a result is computed by one thread in one fixed order; threads divide
// elements, never sums. Attention walks the context in tiles at fixed absolute positions. Recurrent layers advance
// token by token. How many rows are computed together changes how often weights, keys and values are loaded, and
// nothing else.
#pragma once

#include <memory>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/backend/cpu/attention_plan.h"
#include "quire/backend/cpu/kernels.h"
#include "quire/base/large_vector.h"
#include "quire/base/thread_team.h"

namespace quire {

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::uint32_t threads, const cpu::Kernels& kernels = cpu::best_kernels());

  Device& device() override { return device_; }
  const char* variant() const override { return kernels_.name; }
  std::uint32_t threads() const { return team_.size(); }
  ThreadTeam& team() { return team_; }  // between steps, for what is to be measured with the same threads
  PoolResult<void> prepare(const Sizes& sizes) override;
  std::uint64_t arranged_bytes(const Weight& weight) const override;
  Weight arrange(const Weight& weight, std::byte* to) override;
  void begin(const Step& step) override;
  void finish() override {}

  void embed(Rows out, const Weight& table, float scale) override;
  void rms_norm(Rows out, Rows x, const float* weight, float epsilon) override;
  void matmul(std::span<const Product> products, const Input& input) override;
  void gather(Rows out, Rows x, std::span<const std::uint32_t> indices) override;
  void add(Rows x, Rows y, float scale) override;
  void cap_and_scale(Rows x, float cap, float scale) override;
  void rope_angles(Rows cosines, Rows sines, std::span<const float> frequencies) override;
  void store_kv(const AttentionShape& shape, Rows q, Rows k, Rows v, const HeadChanges& changes) override;
  void attention(Rows out, Rows q, const AttentionShape& shape) override;
  void mamba2_conv(Rows x, const float* weight, const float* bias, const Mamba2Shape& shape) override;
  void mamba2_scan(Rows out, Rows x, Rows b, Rows c, Rows dt, const float* dt_bias, const float* a, const float* d,
                   const Mamba2Shape& shape) override;

 private:
  struct Scratch {  // of one thread
    LargeVector<std::byte> quants;
    LargeVector<float> scales, offsets, sums, row;
  };
  KvView view(const AttentionShape& shape, std::uint32_t part) const;
  cpu::QuantInput quant_input(std::uint32_t row);
  cpu::ProductScratch scratch(std::uint32_t thread);
  void make_input_row(const Input& input, std::uint32_t row, float* to) const;
  void prepare_input(const Input& input, bool quants, bool floats);

  HostDevice device_;
  const cpu::Kernels& kernels_;
  ThreadTeam team_;
  Step step_;
  Sizes sizes_;                   // cols are rounded up
  std::vector<Scratch> scratch_;  // by thread
  // The input of a product, quantised, and as floats where something was done to it: [rows][cols] each
  LargeVector<std::int8_t> input_q_;
  LargeVector<float> input_scales_, input_sums_, input_half_sums_, input_floats_;
  LargeVector<std::int32_t> input_starts_, input_half_starts_;
  std::vector<cpu::AttentionPlan> plans_;  // of this step, by group
  LargeVector<cpu::Query> queries_;        // [rows][heads]
  LargeVector<float> steps_, decays_;      // of recurrent layers: [heads][rows]
};

}  // namespace quire

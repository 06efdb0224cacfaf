// The CPU backend: host memory, a team of threads, and the kernels of one instruction set.
//
// How exactness is kept: every element of a result is computed by one thread in one fixed order. Threads divide
// elements, and the context at fixed absolute positions (cpu::kSection), never other sums. Recurrent layers advance
// token by token. The number of rows that are computed together only changes how often weights, keys and values are
// loaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quire/backend/adapted_rows.h"
#include "quire/backend/backend.h"
#include "quire/backend/cpu/attention_plan.h"
#include "quire/backend/cpu/kernels.h"
#include "quire/backend/cpu/quant_rows.h"
#include "quire/backend/cpu/topology.h"
#include "quire/backend/cpu/weights_ahead.h"
#include "quire/backend/host_sampling.h"
#include "quire/base/large_vector.h"
#include "quire/base/thread_team.h"

namespace quire::cpu {

// The calling thread does up to this many rows alone: that costs less than waking the others.
inline constexpr std::uint32_t kFewRows = 4;

// Activations of this backend are f32 in host memory.
inline float* row_of(const Tensor& x, std::uint32_t i) { return reinterpret_cast<float*>(x.data) + i * x.stride; }

// In which forms an input is needed. The type of a matrix says which one it is multiplied with.
struct InputForms {
  bool floats = false, bf16 = false, quants = false;

  void add(gguf::Type type) {
    if (type == gguf::Type::F32 || type == gguf::Type::F16) {
      floats = true;
    } else {
      (type == gguf::Type::BF16 ? bf16 : quants) = true;
    }
  }
  static InputForms of(gguf::Type type) {
    InputForms forms;
    forms.add(type);
    return forms;
  }
  bool converted() const { return bf16 || quants; }
};

inline const float* vector_of(const Tensor& x) { return reinterpret_cast<const float*>(x.data); }

}  // namespace quire::cpu

namespace quire {

class CpuBackend final : public Backend {
 public:
  // `device` is for tests that count or fail its calls. Null: the backend has a device of its own in host memory.
  CpuBackend(std::uint32_t threads, const cpu::Kernels& kernels = cpu::best_kernels(), Device* device = nullptr);
  CpuBackend(const cpu::PlacedTeam& team, const cpu::Kernels& kernels, Device* device = nullptr);

  Device& device() override { return *device_; }
  BackendFacts facts() const override { return {"cpu", kernels_.name, team_.size()}; }
  bool stores(ElementType kv_type) const override { return kv_type != ElementType::I8; }
  bool stores_state(ElementType type) const override {
    return type == ElementType::F32 || type == ElementType::F16 || type == ElementType::BF16;
  }
  ThreadTeam& team() { return team_; }  // between steps, to measure other code with the same threads
  PoolResult<void> prepare(const Sizes& sizes) override;
  std::uint64_t weight_bytes(const FileMatrix& matrix, WeightUse use) const override;
  PoolResult<Weight> load(const FileMatrix& matrix, WeightUse use, std::byte* to) override;
  void begin(const Batch& batch) override;
  HostRows read(Tensor x) override;
  HostRows read_rows(Tensor x, std::span<const std::uint32_t>) override { return read(x); }
  using Backend::sample;
  std::span<const sampling::Picked> sample(Tensor logits, std::span<const sampling::Job> jobs,
                                           sampling::MaskGate* masks) override;
  PoolResult<void> finish() override;

  void embed(Tensor out, const Weight& table, float scale) override;
  void add_positions(Tensor x, const Weight& table) override;
  void rms_norm(Tensor out, Tensor x, Tensor weight, float epsilon) override;
  void layer_norm(Tensor out, Tensor x, Tensor weight, Tensor bias, float epsilon) override;
  void matmul(std::span<const Product> products, const Input& input) override;
  void matmul_heads(const HeadProducts& products) override;
  void route(const Choices& choices, Tensor logits, Tensor selection_bias, const Router& router) override;
  void experts(const ExpertLayer& layer, const Input& input, const Choices& choices) override;
  void gather_wanted(Tensor out, Tensor x) override;
  void add(Tensor x, Tensor y, float scale) override;
  void cap_and_scale(Tensor x, float cap, float scale) override;
  void rope_angles(Tensor cosines, Tensor sines, Tensor frequencies, float magnitude) override;
  void store_kv(const AttentionShape& shape, Tensor q, Tensor k, Tensor v, const HeadChanges& changes) override;
  void attention(Tensor out, Tensor q, const AttentionShape& shape) override;
  void split_query_gate(Tensor q, Tensor gate, Tensor both, std::uint32_t head_dim) override;
  void convolve(Tensor x, Tensor factor, Tensor weight, Tensor bias, const ConvolutionShape& shape) override;
  void mamba1_scan(Tensor out, Tensor x, Tensor b, Tensor c, Tensor dt, Tensor dt_bias, Tensor a, Tensor d,
                   const Mamba1Shape& shape) override;
  void mamba2_scan(Tensor out, Tensor x, Tensor b, Tensor c, Tensor dt, Tensor dt_bias, Tensor a, Tensor d,
                   const Mamba2Shape& shape) override;
  void delta_rule(Tensor out, Tensor q, Tensor k, Tensor v, Tensor alpha, Tensor beta, Tensor dt_bias, Tensor a,
                  const DeltaShape& shape) override;

 private:
  struct Scratch {  // of one thread
    LargeVector<std::byte> quants;
    LargeVector<float> scales, offsets, sums, row;
    LargeVector<float> chosen;  // of experts: outputs by choice, for some columns
    LargeVector<float> mixed;   // their sum for one row
  };
  // Rows that are multiplied with one matrix, in the form that the type of the matrix needs.
  struct ProductRows {
    const float* floats;
    std::uint64_t stride;
    const std::uint16_t* bf16;
    std::uint64_t bf16_stride;
    cpu::QuantInput quants;
    std::uint64_t quant_stride;
    std::uint32_t count;
  };
  struct AttentionCall;
  struct QueryPlace;
  KvView view(const AttentionShape& shape, std::uint32_t entry) const;
  void prepare_attention();
  std::uint32_t parts_of_a_kv_head(const AttentionShape& shape) const;
  void prepare_sampling();
  void attend_in_order(const AttentionCall& call, std::uint32_t heads_at_once);
  void attend_spread(const AttentionCall& call);
  void attend_section(const AttentionCall& call, const cpu::AttentionPlan::Item& item, std::uint32_t section,
                      std::uint32_t first_head, std::uint32_t last_head, const QueryPlace& place, bool continues);
  cpu::ProductScratch scratch(std::uint32_t thread);
  ProductRows all_rows(const Input& input);
  void multiply_all(std::span<const Product> products, const Input& input);
  void multiply(const Weight& weight, std::uint32_t begin, std::uint32_t end, const ProductRows& x,
                const cpu::ProductOut& out, std::uint32_t thread);
  void activate(Activation activation, float* out, const float* gate, const float* up, std::uint32_t n) const;
  void prepare_experts();
  void sort_choices(const Choices& choices, std::uint32_t experts);
  ProductRows gather_rows(const Input& input, cpu::InputForms forms);
  ProductRows rows_of_expert(const ProductRows& all, std::uint32_t begin, std::uint32_t end);
  void multiply_chosen(const ExpertLayer& layer, const ProductRows& rows);
  void activate_chosen(const ExpertLayer& layer);
  void sum_chosen(const ExpertLayer& layer, const Choices& choices);
  void make_input_row(const Input& input, std::uint32_t row, float* to) const;
  void prepare_input(const Input& input, cpu::InputForms forms);
  std::uint16_t* bf16_row(std::uint32_t i) { return input_bf16_.get() + std::size_t{i} * sizes_.cols; }
  // Adapters (cpu_low_rank.cpp)
  struct LowRankInput {
    const float* x;
    std::uint64_t stride;
  };
  void prepare_low_rank();
  LowRankInput make_low_rank_input(const Input& input, const AdaptedRows::Rows& rows);
  void add_low_rank(std::span<const Product> products, const Input& input);
  void embed_low_rank(Tensor out, const Weight& table, float scale);
  const LowRank* low_rank_of_place(const Weight& weight, std::uint32_t place) const;
  void add_low_rank_to_chosen(const ExpertLayer& layer, const Input& input);
  void low_rank_a_of_place(const Weight& down, std::uint32_t place, std::uint32_t expert, const float* x);
  void low_rank_b_of_place(const Weight& down, std::uint32_t place, std::uint32_t expert, std::uint32_t first_tile,
                           std::uint32_t tiles, float* out);

  cpu::PlacedMemory host_;
  Device* device_;
  const cpu::Kernels& kernels_;
  cpu::WeightsAhead ahead_;  // before the team, whose threads use it
  ThreadTeam team_;
  std::vector<std::uint32_t> share_nodes_;  // of each thread, if its share of a matrix is on its own node
  const Batch* batch_ = nullptr;            // of this step
  Sizes sizes_;                             // with cols rounded up
  std::vector<Scratch> scratch_;            // by thread
  // The input of a product: quantised, in BF16, and as floats where a norm or gate was applied to it. [rows][cols]
  // each.
  cpu::QuantRows input_;
  std::unique_ptr<std::uint16_t[]> input_bf16_;  // memory is touched only where weights are BF16
  LargeVector<float> input_floats_;
  // The choices of a step's rows, sorted by expert. A choice's place is its index in that order.
  struct ExpertRange {
    std::uint32_t expert, begin, end;  // places
  };
  std::vector<ExpertRange> chosen_experts_;  // those with rows
  std::vector<std::uint32_t> expert_ends_;   // [experts]
  std::vector<std::uint32_t> place_rows_;    // by place
  std::vector<std::uint32_t> places_of_;     // by choice: [rows][used]
  std::uint32_t expert_cols_ = 0;            // of the two below
  cpu::QuantRows place_inputs_;              // by place
  // By place too. Memory is touched only where experts are floats or BF16.
  std::unique_ptr<float[]> place_floats_;
  std::unique_ptr<std::uint16_t[]> place_bf16_;
  std::vector<float> expert_scores_;       // [threads][experts]
  std::vector<cpu::AttentionPlan> plans_;  // of this step, by group
  LargeVector<cpu::Query> queries_;        // [kv_heads][rows][heads / kv_heads]
  LargeVector<cpu::Query> parts_;          // what queries saw of a section; as queries_, for some sections
  LargeVector<float> part_sums_;           // of parts_
  LargeVector<float> steps_, decays_;      // of recurrent layers: [rows][heads]; the delta rule has its betas in steps_
  AdaptedRows adapted_;                    // of this step
  struct LowRankItem {
    std::uint32_t product, group, first, count;  // some rows of the group, or some tiles of B
  };
  std::vector<LowRankItem> low_rank_items_;
  LargeVector<float> low_rank_x_;  // inputs of adapters after their norm or gate: [rows][cols]
  // A x: [products][rows][low_rank_cols_]; with experts: [choices][low_rank_cols_]
  LargeVector<float> low_rank_t_;
  std::uint32_t low_rank_cols_ = 0;
  std::vector<sampling::Scratch> samplers_;  // by thread
  std::vector<sampling::Picked> picked_;     // of this step
  std::vector<std::uint64_t> places_;        // of picked_
};

}  // namespace quire

// The backend for one NVIDIA GPU: weights, activations and the pool in its memory, all work on one stream, one fence
// per step.
//
// How exactness is kept: see the kernels. Every sum has an order that depends on the matrix, the head or absolute
// positions alone, never on the number of rows, on other sequences or on the number of multiprocessors.
//
// Operations of a step in which every sequence brings one token are collected and submitted by finish(). If the same
// operations came before, they are one CUDA graph: one launch instead of hundreds. Other steps (prompts) submit each
// operation at once, so that the GPU starts while the host still walks the layers.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/backend/cuda/cuda_attention.h"
#include "quire/backend/cuda/cuda_device.h"
#include "quire/backend/cuda/cuda_experts.h"
#include "quire/backend/cuda/cuda_low_rank.h"
#include "quire/backend/cuda/cuda_products.h"
#include "quire/backend/cuda/cuda_sampling.h"
#include "quire/backend/cuda/device_batch.h"
#include "quire/base/thread_team.h"

namespace quire {

class CudaBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> create(std::uint32_t number);
  ~CudaBackend() override;

  Device& device() override { return *device_; }
  BackendFacts facts() const override;
  bool stores(ElementType kv_type) const override { return kv_type != ElementType::I8; }
  bool stores_state(ElementType type) const override {
    return type == ElementType::F32 || type == ElementType::F16 || type == ElementType::BF16;
  }
  PoolResult<void> prepare(const Sizes& sizes) override;
  std::uint64_t weight_bytes(const FileMatrix& matrix, WeightUse use) const override;
  PoolResult<Weight> load(const FileMatrix& matrix, WeightUse use, std::byte* to) override;
  void begin(const Batch& batch) override;
  HostRows read(Tensor x) override;
  HostRows read_rows(Tensor x, std::span<const std::uint32_t> rows) override;
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
  static constexpr std::uint32_t kMostProducts = 4;  // of one input in one operation; more are divided

  // The operations of a step, as they are collected.
  struct Embed {
    Tensor out;
    Weight table;
    float scale;
    friend bool operator==(const Embed&, const Embed&) = default;
  };
  struct Norm {
    Tensor out, x, weight;
    float epsilon;
    friend bool operator==(const Norm&, const Norm&) = default;
  };
  struct LayerNorm {
    Tensor out, x, weight, bias;
    float epsilon;
    friend bool operator==(const LayerNorm&, const LayerNorm&) = default;
  };
  struct AddPositions {
    Tensor x;
    Weight table;
    friend bool operator==(const AddPositions&, const AddPositions&) = default;
  };
  struct Matmul {
    Product products[kMostProducts];  // without their weights: those may be gone when a graph is compared
    Weight weights[kMostProducts];
    std::uint32_t count;
    Input input;
    friend bool operator==(const Matmul&, const Matmul&) = default;
  };
  struct Heads {
    Tensor out, x;
    Weight weight;
    friend bool operator==(const Heads&, const Heads&) = default;
  };
  struct Route {
    Choices choices;
    Tensor logits, selection_bias;
    Router router;
    friend bool operator==(const Route&, const Route&) = default;
  };
  struct Mixture {
    Product gate, up, down;  // without their weights, as above
    Weight gates, ups, downs;
    Activation activation;
    Input input;
    Choices choices;
    friend bool operator==(const Mixture&, const Mixture&) = default;
  };
  struct Gather {
    Tensor out, x;
    friend bool operator==(const Gather&, const Gather&) = default;
  };
  struct Add {
    Tensor x, y;
    float scale;
    friend bool operator==(const Add&, const Add&) = default;
  };
  struct Cap {
    Tensor x;
    float cap, scale;
    friend bool operator==(const Cap&, const Cap&) = default;
  };
  struct Angles {
    Tensor cosines, sines, frequencies;
    float magnitude;
    friend bool operator==(const Angles&, const Angles&) = default;
  };
  struct Store {
    AttentionShape shape;
    Tensor q, k, v;
    HeadChanges changes;
    friend bool operator==(const Store&, const Store&) = default;
  };
  struct Attend {
    Tensor out, q;
    AttentionShape shape;
    friend bool operator==(const Attend&, const Attend&) = default;
  };
  struct Split {
    Tensor q, gate, both;
    std::uint32_t head_dim;
    friend bool operator==(const Split&, const Split&) = default;
  };
  struct Convolve {
    Tensor x, factor, weight, bias;
    ConvolutionShape shape;
    friend bool operator==(const Convolve&, const Convolve&) = default;
  };
  struct Scan {
    Tensor out, x, b, c, dt, dt_bias, a, d;
    Mamba2Shape shape;
    friend bool operator==(const Scan&, const Scan&) = default;
  };
  struct ChannelScan {
    Tensor out, x, b, c, dt, dt_bias, a, d;
    Mamba1Shape shape;
    friend bool operator==(const ChannelScan&, const ChannelScan&) = default;
  };
  struct Delta {
    Tensor out, q, k, v, alpha, beta, dt_bias, a;
    DeltaShape shape;
    friend bool operator==(const Delta&, const Delta&) = default;
  };
  using Operation = std::variant<Embed, Norm, Matmul, Heads, Route, Mixture, Gather, Add, Cap, Angles, Store, Attend,
                                 Split, Convolve, ChannelScan, Scan, Delta, LayerNorm, AddPositions>;

  // A sequence of operations that came at least twice, ready to be launched at once.
  struct Graph {
    std::uint64_t key = 0;
    std::vector<Operation> operations;
    std::vector<KvGroupView> kv;  // where the pool was
    StatesView states;
    std::vector<AdaptedRows::Group> adapted, adapted_wanted;  // the groups of rows with adapters
    cudaGraphExec_t executable = nullptr;                     // null: came once
    std::uint64_t last_use = 0;
  };

  explicit CudaBackend(std::unique_ptr<CudaDevice> device);
  void submit(const Operation& operation);
  void launch(const Operation& operation);
  void launch_collected();
  void launch_all();
  void stop_collecting();
  Graph* find_graph();
  void record(Graph& graph);
  void forget_graphs();
  std::uint64_t put_drafts(const Batch& batch, std::uint64_t at);
  std::byte* room_to_read(Tensor x);

  std::unique_ptr<CudaDevice> device_;
  ThreadTeam team_;  // arranges weights
  Sizes sizes_;
  cuda::CudaProducts products_;
  cuda::CudaExperts experts_;
  cuda::CudaLowRank low_rank_;
  cuda::CudaAttention attention_;
  cuda::CudaSampling sampling_;
  DeviceBuffer scratch_;
  HostBuffer staging_;  // a weight on its way; gone when the first step begins

  // The batch of this step, in pinned memory and on the device.
  std::byte* batch_host_ = nullptr;
  DeviceBuffer batch_device_;
  std::uint64_t batch_bytes_ = 0;
  const Batch* batch_ = nullptr;
  cuda::DeviceBatch on_device_;
  // With drafts, recurrent layers go through the certain rows of all entries first, and then through the drafts, which
  // continue in scratch states. Without drafts, certain_ is the whole batch.
  cuda::DeviceBatch certain_, drafts_;

  // What read() and read_rows() asked for.
  struct Reading {
    Tensor from;
    std::byte* to;
  };
  std::byte* read_host_ = nullptr;
  std::uint64_t read_bytes_ = 0, read_used_ = 0;
  std::vector<Reading> readings_;
  std::vector<std::byte*> outgrown_;  // read buffers that became too small in this step

  bool collecting_ = false;
  std::vector<Operation> operations_;
  std::vector<Graph> graphs_;
  bool no_graphs_ = false;  // recording failed
  std::uint64_t steps_ = 0;
};

}  // namespace quire

#include "quire/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "quire/backend/cuda/head_products.h"
#include "quire/backend/cuda/lookup_kernels.h"
#include "quire/backend/cuda/recurrent_kernels.h"
#include "quire/backend/cuda/row_kernels.h"
#include "quire/backend/low_rank_tiles.h"
#include "quire/base/check.h"
#include "quire/base/machine.h"
#include "quire/base/numbers.h"

namespace quire {
namespace {

constexpr std::size_t kMostGraphs = 96;
constexpr std::size_t kMostOperations = 4096;
constexpr std::uint64_t kAlignment = 256;  // of everything in device memory that kernels read in large pieces

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

Result<std::unique_ptr<Backend>> CudaBackend::create(std::uint32_t number) {
  auto device = CudaDevice::create(number);
  if (!device) return std::unexpected(device.error());
  return std::unique_ptr<Backend>(new CudaBackend(std::move(*device)));
}

CudaBackend::CudaBackend(std::unique_ptr<CudaDevice> device)
    : device_(std::move(device)), team_(std::min(available_cores(), 16u)) {
  device_->before_work([this] { stop_collecting(); });
}

CudaBackend::~CudaBackend() {
  static_cast<void>(device_->fence());
  device_->before_work({});
  forget_graphs();
  cudaFreeHost(batch_host_);
  cudaFreeHost(read_host_);
  for (std::byte* const buffer : outgrown_) cudaFreeHost(buffer);
}

BackendFacts CudaBackend::facts() const {
  const CudaFacts& gpu = device_->facts();
  // The variant says all that the bits of a GPU depend on: attention is divided among its multiprocessors.
  return {.device = device_->name(),
          .variant = fmt::format("sm_{}{} x {}", gpu.major, gpu.minor, gpu.multiprocessors),
          .threads = 0};
}

PoolResult<void> CudaBackend::prepare(const Sizes& sizes) {
  forget_graphs();
  sizes_ = sizes;
  const std::uint64_t rows = sizes.rows;
  scratch_ = {};
  attention_.prepare(sizes, device_->facts().multiprocessors);
  const std::uint64_t products = round_up(cuda::CudaProducts::scratch_bytes(sizes), kAlignment);
  const std::uint64_t attention = round_up(attention_.scratch_bytes(), kAlignment);
  const std::uint64_t experts = round_up(cuda::CudaExperts::scratch_bytes(sizes), kAlignment);
  const std::uint64_t low_rank = round_up(cuda::CudaLowRank::scratch_bytes(sizes), kAlignment);
  auto scratch = DeviceBuffer::create(*device_, products + attention + experts + low_rank, kAlignment);
  if (!scratch) return std::unexpected(scratch.error());
  scratch_ = std::move(*scratch);
  device_->note(products_.prepare(sizes, scratch_.data()));
  attention_.set_scratch(scratch_.data() + products);
  device_->note(experts_.prepare(sizes, scratch_.data() + products + attention, products_.prepared().overlap));

  low_rank_.prepare(sizes, scratch_.data() + products + attention + experts);

  batch_bytes_ = 6 * round_up(rows * sizeof(std::uint32_t), kAlignment) +
                 3 * round_up(rows * sizeof(cuda::DeviceEntry), kAlignment);
  batch_device_ = {};
  auto batch = DeviceBuffer::create(*device_, batch_bytes_, kAlignment);
  if (!batch) return std::unexpected(batch.error());
  batch_device_ = std::move(*batch);
  cudaFreeHost(std::exchange(batch_host_, nullptr));
  cudaFreeHost(std::exchange(read_host_, nullptr));
  read_bytes_ = round_up(std::max<std::uint64_t>(sizes.read, 1) * sizeof(float), std::uint64_t{4096});
  const auto take = [](std::byte*& to, std::uint64_t bytes) {
    return cudaMallocHost(reinterpret_cast<void**>(&to), bytes) == cudaSuccess;
  };
  if (!take(batch_host_, batch_bytes_) || !take(read_host_, read_bytes_)) {
    cudaGetLastError();
    return std::unexpected(PoolError::out_of_memory("pinned host memory", batch_bytes_ + read_bytes_));
  }
  if (auto ok = sampling_.prepare(*device_, sizes.sampling); !ok) return ok;
  operations_.reserve(kMostOperations);
  readings_.reserve(16 + rows);
  graphs_.reserve(kMostGraphs);
  return device_->fence();
}

// --- weights

std::uint64_t CudaBackend::weight_bytes(const FileMatrix& matrix, WeightUse use) const {
  if (use == WeightUse::LowRank) return low_rank_bytes(matrix);
  return cuda::CudaProducts::weight_bytes(matrix, use);
}

PoolResult<Weight> CudaBackend::load(const FileMatrix& matrix, WeightUse use, std::byte* to) {
  const std::uint64_t bytes = weight_bytes(matrix, use);
  if (staging_.size() < bytes) {
    staging_ = {};
    auto larger = HostBuffer::create(*device_, bytes);
    if (!larger) return std::unexpected(larger.error());
    staging_ = std::move(*larger);
  }
  if (use == WeightUse::LowRank) {
    make_low_rank_tiles(matrix, staging_.data());
  } else {
    cuda::CudaProducts::arrange(matrix, use, team_, staging_.data());
  }
  if (auto ok = device_->upload(to, staging_.data(), bytes); !ok) return std::unexpected(ok.error());
  if (auto ok = device_->fence(); !ok) return std::unexpected(ok.error());
  if (use == WeightUse::LowRank) return low_rank_weight(matrix, to);
  return cuda::CudaProducts::weight(matrix, use, to);
}

// --- a step

void CudaBackend::begin(const Batch& batch) {
  batch_ = &batch;
  ++steps_;
  if (staging_.size() > 0) staging_ = {};  // all weights are there
  operations_.clear();
  readings_.clear();
  sampling_.begin();
  read_used_ = 0;
  for (std::byte* const buffer : outgrown_) cudaFreeHost(buffer);
  outgrown_.clear();
  QUIRE_CHECK(batch.rows() <= sizes_.rows && batch.wanted().size() <= sizes_.rows,
              "steps are as large as they were prepared for");

  std::uint64_t at = 0;
  const auto put = [&]<typename T>(std::span<const T> values) {
    std::memcpy(batch_host_ + at, values.data(), values.size_bytes());
    const auto* const there = reinterpret_cast<const T*>(batch_device_.data() + at);
    at = round_up(at + values.size_bytes(), kAlignment);
    return there;
  };
  on_device_ = {.rows = batch.rows(),
                .entry_count = static_cast<std::uint32_t>(batch.entries().size()),
                .wanted_count = static_cast<std::uint32_t>(batch.wanted().size())};
  on_device_.tokens = put(batch.tokens());
  on_device_.positions = put(batch.positions());
  on_device_.wanted = put(batch.wanted());
  auto* const row_entry = reinterpret_cast<std::uint32_t*>(batch_host_ + at);
  on_device_.row_entry = reinterpret_cast<const std::uint32_t*>(batch_device_.data() + at);
  at = round_up(at + batch.rows() * sizeof(std::uint32_t), kAlignment);
  auto* entry = reinterpret_cast<cuda::DeviceEntry*>(batch_host_ + at);
  on_device_.entries = reinterpret_cast<const cuda::DeviceEntry*>(batch_device_.data() + at);
  bool single = true;
  for (std::uint32_t i = 0; i < batch.entries().size(); ++i) {
    const BatchEntry& from = batch.entries()[i];
    *entry++ = {from.first_row, from.rows, from.position, from.table, from.state};
    std::fill_n(row_entry + from.first_row, from.rows, i);
    single = single && from.rows == 1;
  }
  at = round_up(at + batch.entries().size() * sizeof(cuda::DeviceEntry), kAlignment);
  low_rank_.begin(batch);
  if (low_rank_.rows().any()) {
    const std::uint32_t* const all = put(std::span<const std::uint32_t>(low_rank_.rows().of_all().list));
    low_rank_.set_lists(all, put(std::span<const std::uint32_t>(low_rank_.rows().of_wanted().list)));
  }
  at = put_drafts(batch, at);
  attention_.begin(batch);
  QUIRE_CHECK(at <= batch_bytes_, "the batch fits into its buffer");
  if (at > 0 && !device_->lost()) {
    device_->note(cudaMemcpyAsync(batch_device_.data(), batch_host_, at, cudaMemcpyHostToDevice, device_->stream()));
  }
  collecting_ = single;
}

// The rows of a batch once more, those before the drafts and the drafts. Returns where the buffer goes on.
std::uint64_t CudaBackend::put_drafts(const Batch& batch, std::uint64_t at) {
  certain_ = on_device_;
  drafts_ = {};
  const auto has_drafts = [](const BatchEntry& entry) { return entry.drafts > 0; };
  if (batch.states().num_layers == 0 || std::ranges::none_of(batch.entries(), has_drafts)) return at;
  const auto begin = [&](cuda::DeviceBatch& part) {
    part.entries = reinterpret_cast<const cuda::DeviceEntry*>(batch_device_.data() + at);
    return reinterpret_cast<cuda::DeviceEntry*>(batch_host_ + at);
  };
  const auto end = [&](const cuda::DeviceBatch& part) {
    at = round_up(at + part.entry_count * sizeof(cuda::DeviceEntry), kAlignment);
  };
  cuda::DeviceEntry* entry = begin(certain_);
  certain_.rows = 0;
  for (const BatchEntry& from : batch.entries()) {
    *entry++ = {from.first_row, from.certain_rows(), from.position, from.table, from.state};
    certain_.rows += from.certain_rows();
  }
  end(certain_);
  entry = begin(drafts_);
  for (const BatchEntry& from : batch.entries()) {
    if (from.drafts == 0) continue;
    const std::uint32_t before = from.certain_rows();
    *entry++ = {from.first_row + before, from.drafts, from.position + before, from.table, from.scratch, from.state};
    drafts_.rows += from.drafts;
    ++drafts_.entry_count;
  }
  end(drafts_);
  return at;
}

// Host memory for all of x; null if there is none.
std::byte* CudaBackend::room_to_read(Tensor x) {
  const std::uint64_t bytes = std::uint64_t{x.rows} * x.cols * sizeof(float);
  if (read_used_ + bytes > read_bytes_) {
    // More than was prepared for: correct, but it allocates.
    std::byte* larger = nullptr;
    if (cudaMallocHost(reinterpret_cast<void**>(&larger), bytes + read_bytes_) != cudaSuccess) {
      device_->note(cudaErrorMemoryAllocation);
      return nullptr;
    }
    outgrown_.push_back(std::exchange(read_host_, larger));
    read_bytes_ += bytes;
    read_used_ = 0;
  }
  return read_host_ + std::exchange(read_used_, read_used_ + bytes);
}

HostRows CudaBackend::read(Tensor x) {
  std::byte* const to = room_to_read(x);
  if (to == nullptr) return {};
  readings_.push_back({x, to});
  return {reinterpret_cast<const float*>(to), x.rows, x.cols, x.cols};
}

// Rows that follow each other are one transfer.
HostRows CudaBackend::read_rows(Tensor x, std::span<const std::uint32_t> rows) {
  std::byte* const to = room_to_read(x);
  if (to == nullptr) return {};
  for (std::size_t first = 0, end = 0; first < rows.size(); first = end) {
    while (end < rows.size() && rows[end] == rows[first] + (end - first)) ++end;
    readings_.push_back({x.row_range(rows[first], static_cast<std::uint32_t>(end - first)),
                         to + std::uint64_t{rows[first]} * x.cols * sizeof(float)});
  }
  return {reinterpret_cast<const float*>(to), x.rows, x.cols, x.cols};
}

std::span<const sampling::Picked> CudaBackend::sample(Tensor logits, std::span<const sampling::Job> jobs,
                                                      sampling::MaskGate* masks) {
  return sampling_.sample(logits, jobs, masks);
}

PoolResult<void> CudaBackend::finish() {
  if (!device_->lost()) {
    if (collecting_) launch_collected();
    sampling_.launch();
    for (const Reading& reading : readings_) {
      const std::uint64_t width = reading.from.cols * sizeof(float);
      device_->note(cudaMemcpy2DAsync(reading.to, width, reading.from.data, reading.from.stride * sizeof(float), width,
                                      reading.from.rows, cudaMemcpyDeviceToHost, device_->stream()));
    }
  }
  device_->note_launches();
  batch_ = nullptr;
  collecting_ = false;
  const PoolResult<void> done = device_->fence();
  if (done) sampling_.collect();
  return done;
}

// --- graphs

void CudaBackend::submit(const Operation& operation) {
  if (!collecting_) return launch(operation);
  operations_.push_back(operation);
}

// The device is about to submit something in the middle of a step: what was collected goes first, and the rest of the
// step is submitted as it comes.
void CudaBackend::stop_collecting() {
  if (!std::exchange(collecting_, false) || device_->lost()) return;
  launch_all();
  operations_.clear();
}

void CudaBackend::launch_all() {
  attention_.begin(*batch_);  // what it submits once per step must be submitted again
  for (const Operation& operation : operations_) launch(operation);
}

// The first time a sequence of operations comes, its kernels are launched one by one. The second time it is recorded as
// a graph. From then on it is one launch.
void CudaBackend::launch_collected() {
  Graph* const graph = no_graphs_ ? nullptr : find_graph();
  if (graph == nullptr) return launch_all();
  graph->last_use = steps_;
  if (graph->executable == nullptr) record(*graph);
  if (graph->executable == nullptr) return launch_all();
  device_->note(cudaGraphLaunch(graph->executable, device_->stream()));
}

// The graph of this step's operations; null if they come for the first time (they are remembered then).
CudaBackend::Graph* CudaBackend::find_graph() {
  const std::uint64_t key = std::uint64_t{on_device_.rows} << 32 | on_device_.wanted_count;
  const auto kv = batch_->kv();
  for (Graph& graph : graphs_) {
    if (graph.key == key && graph.operations == operations_ && std::ranges::equal(graph.kv, kv) &&
        graph.states == batch_->states() && graph.adapted == low_rank_.rows().of_all().groups &&
        graph.adapted_wanted == low_rank_.rows().of_wanted().groups) {
      return &graph;
    }
  }
  if (operations_.empty()) return nullptr;
  if (graphs_.size() == kMostGraphs) {
    const auto oldest = std::ranges::min_element(graphs_, {}, &Graph::last_use);
    if (oldest->executable != nullptr) cudaGraphExecDestroy(oldest->executable);
    graphs_.erase(oldest);
  }
  graphs_.push_back({key,
                     operations_,
                     {kv.begin(), kv.end()},
                     batch_->states(),
                     low_rank_.rows().of_all().groups,
                     low_rank_.rows().of_wanted().groups,
                     nullptr,
                     steps_});
  return nullptr;
}

void CudaBackend::record(Graph& graph) {
  const cudaStream_t stream = device_->stream();
  device_->note_launches();
  cudaGraph_t captured = nullptr;
  cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (error == cudaSuccess) {
    launch_all();
    const cudaError_t launched = cudaGetLastError();
    error = cudaStreamEndCapture(stream, &captured);
    if (error == cudaSuccess) error = launched;
  }
  if (error == cudaSuccess) error = cudaGraphInstantiate(&graph.executable, captured, 0);
  if (captured != nullptr) cudaGraphDestroy(captured);
  if (error == cudaSuccess) return;
  // Without a graph the kernels are launched one by one, from now on.
  graph.executable = nullptr;
  cudaGetLastError();
  if (!std::exchange(no_graphs_, true)) {
    fmt::print(stderr, "quire: steps are not recorded as CUDA graphs: {}\n", cudaGetErrorString(error));
  }
}

void CudaBackend::forget_graphs() {
  for (const Graph& graph : graphs_) {
    if (graph.executable != nullptr) cudaGraphExecDestroy(graph.executable);
  }
  graphs_.clear();
}

// --- operations

void CudaBackend::embed(Tensor out, const Weight& table, float scale) { submit(Embed{out, table, scale}); }
void CudaBackend::rms_norm(Tensor out, Tensor x, Tensor weight, float epsilon) {
  submit(Norm{out, x, weight, epsilon});
}
void CudaBackend::layer_norm(Tensor out, Tensor x, Tensor weight, Tensor bias, float epsilon) {
  submit(LayerNorm{out, x, weight, bias, epsilon});
}
void CudaBackend::add_positions(Tensor x, const Weight& table) { submit(AddPositions{x, table}); }
void CudaBackend::matmul(std::span<const Product> products, const Input& input) {
  while (!products.empty()) {
    Matmul operation{.products = {},
                     .weights = {},
                     .count = static_cast<std::uint32_t>(std::min<std::size_t>(products.size(), kMostProducts)),
                     .input = input};
    for (std::uint32_t i = 0; i < operation.count; ++i) {
      operation.products[i] = products[i];
      operation.products[i].weight = nullptr;
      operation.weights[i] = *products[i].weight;
    }
    submit(operation);
    products = products.subspan(operation.count);
  }
}
void CudaBackend::matmul_heads(const HeadProducts& products) {
  QUIRE_CHECK(products.out.cols == products.weight->count * (products.weight->rows + products.copied()) &&
                  products.out.rows == products.x.rows && !products.weight->arranged,
              "shapes agree, and matrices of heads are rows");
  submit(Heads{products.out, products.x, *products.weight});
}
void CudaBackend::route(const Choices& choices, Tensor logits, Tensor selection_bias, const Router& router) {
  submit(Route{choices, logits, selection_bias, router});
}
void CudaBackend::experts(const ExpertLayer& layer, const Input& input, const Choices& choices) {
  Mixture operation{layer.gate,       layer.up, layer.down, *layer.gate.weight, *layer.up.weight, *layer.down.weight,
                    layer.activation, input,    choices};
  for (Product* product : {&operation.gate, &operation.up, &operation.down}) product->weight = nullptr;
  submit(operation);
}
void CudaBackend::gather_wanted(Tensor out, Tensor x) { submit(Gather{out, x}); }
void CudaBackend::add(Tensor x, Tensor y, float scale) { submit(Add{x, y, scale}); }
void CudaBackend::cap_and_scale(Tensor x, float cap, float scale) {
  if (cap > 0 || scale != 1.0f) submit(Cap{x, cap, scale});
}
void CudaBackend::rope_angles(Tensor cosines, Tensor sines, Tensor frequencies, float magnitude) {
  submit(Angles{cosines, sines, frequencies, magnitude});
}
void CudaBackend::store_kv(const AttentionShape& shape, Tensor q, Tensor k, Tensor v, const HeadChanges& changes) {
  submit(Store{shape, q, k, v, changes});
}
void CudaBackend::attention(Tensor out, Tensor q, const AttentionShape& shape) { submit(Attend{out, q, shape}); }
void CudaBackend::split_query_gate(Tensor q, Tensor gate, Tensor both, std::uint32_t head_dim) {
  submit(Split{q, gate, both, head_dim});
}
void CudaBackend::convolve(Tensor x, Tensor factor, Tensor weight, Tensor bias, const ConvolutionShape& shape) {
  submit(Convolve{x, factor, weight, bias, shape});
}
void CudaBackend::mamba1_scan(Tensor out, Tensor x, Tensor b, Tensor c, Tensor dt, Tensor dt_bias, Tensor a, Tensor d,
                              const Mamba1Shape& shape) {
  submit(ChannelScan{out, x, b, c, dt, dt_bias, a, d, shape});
}
void CudaBackend::delta_rule(Tensor out, Tensor q, Tensor k, Tensor v, Tensor alpha, Tensor beta, Tensor dt_bias,
                             Tensor a, const DeltaShape& shape) {
  submit(Delta{out, q, k, v, alpha, beta, dt_bias, a, shape});
}
void CudaBackend::mamba2_scan(Tensor out, Tensor x, Tensor b, Tensor c, Tensor dt, Tensor dt_bias, Tensor a, Tensor d,
                              const Mamba2Shape& shape) {
  submit(Scan{out, x, b, c, dt, dt_bias, a, d, shape});
}

void CudaBackend::launch(const Operation& operation) {
  if (device_->lost()) return;
  const cudaStream_t stream = device_->stream();
  const auto recurrent = [](const Mamba2Shape& shape) {
    return cuda::RecurrentShape{shape.layer,  shape.heads,     shape.head_dim,
                                shape.groups, shape.state_dim, shape.conv_width};
  };
  const auto table = [](const Weight& weight) {
    const gguf::TypeInfo& type = gguf::type_info(weight.type);
    return cuda::FileTable{weight.type, weight.table != nullptr ? weight.table : weight.data,
                           std::uint64_t{weight.cols} / type.block_size * type.block_bytes};
  };
  const std::uint64_t ssm = batch_->states().ssm_offset, element = element_bytes(batch_->states().type);
  const auto in_parts = [&](std::uint32_t layer, std::uint64_t offset, std::uint64_t bytes, const auto& compute) {
    compute(certain_);
    if (drafts_.entry_count == 0) return;
    cuda::launch_copy_states(stream, drafts_, batch_->states(), layer, offset, bytes);
    compute(drafts_);
  };
  const Overloaded launchers{
      [&](const Embed& op) {
        cuda::launch_embed(stream, op.out, table(op.table), op.scale, on_device_);
        low_rank_.embed(stream, op.out, op.table, op.scale, on_device_);
      },
      [&](const AddPositions& op) { cuda::launch_add_positions(stream, op.x, table(op.table), on_device_); },
      [&](const Norm& op) { cuda::launch_rms_norm(stream, op.out, op.x, op.weight, op.epsilon); },
      [&](const LayerNorm& op) { cuda::launch_layer_norm(stream, op.out, op.x, op.weight, op.bias, op.epsilon); },
      [&](const Matmul& op) {
        Product products[kMostProducts];
        for (std::uint32_t i = 0; i < op.count; ++i) {
          products[i] = op.products[i];
          products[i].weight = &op.weights[i];
        }
        const std::span<const Product> all(products, op.count);
        const bool adapts = low_rank_.adapts(all);
        if (adapts) low_rank_.before(stream, all, op.input, products_.prepared());
        products_.matmul(stream, all, op.input);
        if (adapts) low_rank_.after(stream, all, op.input.x.rows);
      },
      [&](const Heads& op) {
        const Weight& weight = op.weight;
        cuda::launch_head_products(stream, weight.type,
                                   {.out = reinterpret_cast<float*>(op.out.data),
                                    .x = reinterpret_cast<const float*>(op.x.data),
                                    .out_stride = op.out.stride,
                                    .x_stride = op.x.stride,
                                    .tokens = op.x.rows,
                                    .heads = weight.count,
                                    .rows = weight.rows,
                                    .cols = weight.cols,
                                    .copied = op.x.cols / weight.count - weight.cols,
                                    .weights = weight.data,
                                    .head_bytes = weight.stride,
                                    .row_bytes = weight.unit_bytes},
                                   products_.overlaps());
      },
      [&](const Route& op) { experts_.route(stream, op.choices, op.logits, op.selection_bias, op.router); },
      [&](const Mixture& op) {
        ExpertLayer layer{op.gate, op.up, op.down, op.activation};
        layer.gate.weight = &op.gates;
        layer.up.weight = &op.ups;
        layer.down.weight = &op.downs;
        experts_.experts(stream, products_, low_rank_, layer, op.input, op.choices);
      },
      [&](const Gather& op) { cuda::launch_gather_wanted(stream, op.out, op.x, on_device_); },
      [&](const Add& op) { cuda::launch_add(stream, op.x, op.y, op.scale); },
      [&](const Cap& op) { cuda::launch_cap_and_scale(stream, op.x, op.cap, op.scale); },
      [&](const Angles& op) {
        cuda::launch_rope_angles(stream, op.cosines, op.sines, op.frequencies, op.magnitude, on_device_);
      },
      [&](const Store& op) {
        attention_.store_kv(stream, op.shape, batch_->kv()[op.shape.group], op.q, op.k, op.v, op.changes, on_device_);
      },
      [&](const Attend& op) {
        attention_.attention(stream, op.out, op.q, op.shape, batch_->kv()[op.shape.group], on_device_);
      },
      [&](const Split& op) { cuda::launch_split_query_gate(stream, op.q, op.gate, op.both, op.head_dim); },
      [&](const Convolve& op) {
        const ConvolutionShape& s = op.shape;
        in_parts(s.layer, 0, std::uint64_t{s.width - 1} * s.channels * sizeof(float), [&](const auto& part) {
          cuda::launch_convolution(stream, op.x, {op.factor, op.weight, op.bias},
                                   {s.layer, s.channels, s.width, s.silu}, part, batch_->states());
        });
      },
      [&](const ChannelScan& op) {
        in_parts(op.shape.layer, ssm, std::uint64_t{op.shape.channels} * op.shape.state_dim * element,
                 [&](const auto& part) {
                   cuda::launch_mamba1_scan(stream, op.out, {op.x, op.b, op.c, op.dt, op.dt_bias, op.a, op.d},
                                            {op.shape.layer, op.shape.channels, op.shape.state_dim}, part,
                                            batch_->states());
                 });
      },
      [&](const Delta& op) {
        const DeltaShape& s = op.shape;
        in_parts(s.layer, ssm, std::uint64_t{s.heads} * s.key_dim * s.value_dim * element, [&](const auto& part) {
          cuda::launch_delta_rule(stream, op.out, {op.q, op.k, op.v, op.alpha, op.beta, op.dt_bias, op.a},
                                  {s.layer, s.heads, s.key_heads, s.key_dim, s.value_dim, s.tiled, s.gate_run,
                                   s.gate_step, s.epsilon, &part == &drafts_},
                                  part, batch_->states());
        });
      },
      [&](const Scan& op) {
        const Mamba2Shape& s = op.shape;
        in_parts(s.layer, ssm, std::uint64_t{s.heads} * s.head_dim * s.state_dim * element, [&](const auto& part) {
          cuda::launch_mamba2_scan(stream, op.out, {op.x, op.b, op.c, op.dt, op.dt_bias, op.a, op.d}, recurrent(s),
                                   part, batch_->states());
        });
      },
  };
  std::visit(launchers, operation);
}

}  // namespace quire

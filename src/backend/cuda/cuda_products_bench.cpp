// Checks and times products on a GPU. Exits with 1 if a bit depends on the number of tokens, or a result is wrong.
//   cuda_products_bench [SHAPES] [check|many]    SHAPES random small shapes (400), then mistral-7b's matrices; "check":
//   no timing; "many": a million random products instead, whose bits are compared on the GPU
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>

#include "quire/backend/cuda/products_bench_many.h"

namespace quire::cuda {
namespace {

using reference::FileWeight;
using reference::HostInput;
using reference::Matrix;

double tolerance_of(gguf::Type type) {
  switch (packing_of(type)) {
    case Packing::F32: return 2e-5;
    case Packing::BF16: return 1e-4;
    case Packing::F16: return 1e-3;
    default: return 3e-3;
  }
}

// --- random shapes

struct Shape {
  FileWeight file;
  HostInput input;
  Matrix bias, before;
  float scale = 1;
  std::uint32_t shift = 0;
};

class Check {
 public:
  explicit Check(Gpu& gpu) : gpu_(gpu) {}

  bool run(std::uint32_t shapes) {
    for (std::uint32_t i = 0; i < shapes; ++i) one();
    std::printf(
        "%u random shapes: %lu rows differ between numbers of tokens; wrong elements %lu, worst error %.3f of the "
        "tolerance (%s)\n",
        shapes, differ_, wrong_, worst_, worst_name_.c_str());
    return differ_ == 0 && wrong_ == 0;
  }

 private:
  std::uint32_t below(std::uint32_t n) { return random_() % n; }

  Shape random_shape() {
    const auto types = reference::weight_types();
    const gguf::Type type = types[below(static_cast<std::uint32_t>(types.size()))];
    const std::uint32_t block = gguf::type_info(type).block_size;
    const std::uint32_t cols = block == 1 ? 1 + below(1300) : block == 32 ? 32 * (1 + below(40)) : 256 * (1 + below(6));
    const std::uint32_t rows = 1 + below(below(4) == 0 ? 400 : 60), seed = random_();
    const std::uint32_t tokens = 1 + below(below(3) == 0 ? 300 : 40);
    Shape shape{.file = reference::random_weight(type, rows, cols, seed), .input = {}, .shift = below(4)};
    HostInput& in = shape.input;
    in.x = reference::random_matrix(tokens, cols, seed + 1);
    in.kind = static_cast<Input::Kind>(below(4));
    in.activation = below(2) == 0 ? Activation::Silu : Activation::GeluTanh;
    if (in.kind == Input::Kind::GatedNormed) in.activation = Activation::Silu;
    in.epsilon = 1e-5f;
    const bool gated = in.kind == Input::Kind::Gated || in.kind == Input::Kind::GatedNormed;
    if (gated) in.gate = reference::random_matrix(tokens, cols, seed + 2);
    if (in.kind == Input::Kind::Normed || in.kind == Input::Kind::GatedNormed) {
      in.weight = reference::random_matrix(1, cols, seed + 3);
    }
    if (in.kind == Input::Kind::GatedNormed && cols % 4 == 0) in.groups = 1u << below(3);
    // Rows of very different magnitude, a row of zeros and one that is lost.
    for (std::uint32_t i = 0; i < tokens; ++i) {
      const float by = std::ldexp(1.0f, static_cast<int>(below(60)) - 30);
      for (std::uint32_t k = 0; k < cols; ++k) in.x.at(i, k) *= by;
    }
    zero_ = below(tokens), lost_ = below(tokens);
    for (std::uint32_t k = 0; k < cols; ++k) in.x.at(zero_, k) = 0;
    in.x.at(lost_, below(cols)) = below(2) == 0 ? NAN : INFINITY;
    if (below(2) == 0) shape.bias = reference::random_matrix(1, rows, seed + 4);
    if (below(2) == 0) shape.before = reference::random_matrix(tokens, rows, seed + 5), shape.scale = 0.5f;
    return shape;
  }

  Matrix multiply(const Shape& s, const Weight& weight, std::uint32_t first, std::uint32_t count) {
    Input in{.kind = s.input.kind,
             .x = gpu_.put(s.input.x.row_range(first, count), s.shift),
             .activation = s.input.activation,
             .epsilon = s.input.epsilon,
             .groups = s.input.groups};
    if (!s.input.gate.values.empty()) in.gate = gpu_.put(s.input.gate.row_range(first, count), s.shift);
    in.weight = gpu_.put(s.input.weight);
    Product product{.weight = &weight, .bias = gpu_.put(s.bias)};
    product.add = !s.before.values.empty();
    product.scale = s.scale;
    product.out = gpu_.put(product.add ? s.before.row_range(first, count) : Matrix(count, weight.rows, NAN), s.shift);
    gpu_.products.matmul(gpu_.stream, {&product, 1}, in);
    must(cudaGetLastError(), "launch");
    return gpu_.get(product.out);
  }

  // Bits, except of rows that are lost: a NaN is a NaN.
  void compare(const Matrix& some, const Matrix& all, std::uint32_t first) {
    for (std::uint32_t i = 0; i < some.rows; ++i) {
      if (first + i == lost_) continue;
      const auto a = some.row(i), b = all.row(first + i);
      if (std::memcmp(a.data(), b.data(), a.size_bytes()) != 0) ++differ_;
    }
  }

  void one() {
    gpu_.clear();
    const Shape shape = random_shape();
    const std::uint32_t tokens = shape.input.x.rows;
    const Weight weight = gpu_.load(shape.file.file());
    const Matrix all = multiply(shape, weight, 0, tokens);
    for (const Kernels kernels : {Kernels::Split, Kernels::Mma}) {
      gpu_.products.use(kernels);
      compare(multiply(shape, weight, 0, tokens), all, 0);
    }
    gpu_.products.use(Kernels::Best);
    for (const std::uint32_t most : {1u, 3u, 9u, 20u, 70u, 140u}) {
      const std::uint32_t first = below(tokens), count = std::min(most, tokens - first);
      compare(multiply(shape, weight, first, count), all, first);
    }
    check_values(shape, all);
  }

  void check_values(const Shape& shape, const Matrix& all) {
    const Matrix values = shape.file.values();
    for (int k = 0; k < 3; ++k) {
      const std::uint32_t token = k == 0 ? zero_ : below(shape.input.x.rows);
      if (token == lost_) continue;
      const reference::Row row = reference::input_row(shape.input, token);
      reference::Expected out = reference::product(values, {&row, 1});
      const Matrix before = shape.before.values.empty() ? Matrix() : shape.before.row_range(token, 1);
      if (!shape.bias.values.empty() || !before.values.empty()) {
        out = reference::product_added(out, shape.bias, before, shape.before.values.empty() ? 1 : shape.scale);
      }
      for (std::uint32_t n = 0; n < out.cols; ++n) {
        const double allowed = tolerance_of(shape.file.type) * out.sizes[n] + 1e-30;
        const double error = std::fabs(all.at(token, n) - out.values[n]) / allowed;
        if (!(error <= 1)) ++wrong_;
        if (!(error <= worst_)) worst_ = error, worst_name_ = gguf::type_name(shape.file.type);
      }
    }
  }

  Gpu& gpu_;
  std::mt19937 random_{1};
  std::uint32_t zero_ = 0, lost_ = 0;
  std::uint64_t differ_ = 0, wrong_ = 0;
  double worst_ = 0;
  std::string worst_name_;
};

// --- mistral-7b

struct Group {
  const char* name;
  std::vector<std::uint32_t> rows;
  std::uint32_t cols;
};

// A matrix whose 256 different rows are repeated.
FileWeight large_weight(gguf::Type type, std::uint32_t rows, std::uint32_t cols) {
  FileWeight some = reference::random_weight(type, 256, cols, 5);
  const std::size_t bytes = some.bytes.size();
  some.rows = rows;
  some.bytes.resize(bytes / 256 * rows);
  for (std::size_t at = bytes; at < some.bytes.size(); at += bytes) {
    std::memcpy(some.bytes.data() + at, some.bytes.data(), std::min(bytes, some.bytes.size() - at));
  }
  return some;
}

class Timing {
 public:
  explicit Timing(Gpu& gpu) : gpu_(gpu), stream_(gpu.stream) {
    must(cudaEventCreate(&begin_), "event");
    must(cudaEventCreate(&end_), "event");
  }

  bool run() {
    std::printf("%-5s %-10s", "type", "matrix");
    for (const std::uint32_t tokens : kTokens)
      std::printf(tokens <= 64 ? "  %4u: us GB/s" : "  %4u: us TFLOP/s", tokens);
    std::printf("\n");
    for (const gguf::Type type : {gguf::Type::F16, gguf::Type::Q8_0, gguf::Type::Q4_K, gguf::Type::Q6_K}) {
      totals_.clear();
      for (const Group& group : kGroups) line(type, group);
      for (const bool other : {false, true}) total_line(type, other);
    }
    std::printf(
        "first token: %lu values differ between numbers of tokens; %lu of %lu values are wrong, worst error %.3f "
        "of the tolerance\n",
        differ_, wrong_, checked_, worst_);
    return differ_ == 0 && wrong_ == 0;
  }

 private:
  static constexpr std::uint32_t kTokens[] = {1, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024, 2048};
  const std::vector<Group> kGroups = {{"q,k,v", {4096, 1024, 1024}, 4096},
                                      {"output", {4096}, 4096},
                                      {"gate,up", {14336, 14336}, 4096},
                                      {"down", {4096}, 14336},
                                      {"head", {32000}, 4096}};

  // Several copies of the matrices, so that none is still in the L2 cache when its turn comes again.
  std::vector<std::vector<Weight>> load(gguf::Type type, const Group& group, std::vector<FileWeight>& files) {
    std::vector<std::vector<Weight>> copies(1);
    const std::uint64_t before = gpu_.left();
    for (const std::uint32_t rows : group.rows) {
      files.push_back(large_weight(type, rows, group.cols));
      copies[0].push_back(gpu_.load(files.back().file()));
    }
    bytes_ = before - gpu_.left();
    const std::uint64_t wanted = std::uint64_t{300} << 20;
    while (bytes_ * copies.size() < wanted) {
      auto& copy = copies.emplace_back();
      for (std::size_t i = 0; i < files.size(); ++i) {
        const std::uint64_t bytes = CudaProducts::weight_bytes(files[i].file(), WeightUse::Product);
        std::byte* to = gpu_.take(bytes);
        must(cudaMemcpy(to, copies[0][i].data, bytes, cudaMemcpyDeviceToDevice), "copy");
        copy.push_back(CudaProducts::weight(files[i].file(), WeightUse::Product, to));
      }
    }
    return copies;
  }

  void line(gguf::Type type, const Group& group) {
    gpu_.clear();
    std::vector<FileWeight> files;
    const auto copies = load(type, group, files);
    const Matrix x = reference::random_matrix(kSizes.rows, group.cols, 3);
    const Tensor input = gpu_.put(x);
    std::vector<Tensor> outs;
    for (const std::uint32_t rows : group.rows) {
      outs.push_back({gpu_.take(std::uint64_t{kSizes.rows} * rows * 4), kSizes.rows, rows, rows});
    }
    double work = 0;
    for (const std::uint32_t rows : group.rows) work += 2.0 * rows * group.cols;
    std::vector<Matrix> first;
    for (const bool other : {false, true}) {
      std::printf("%-5s %-10s", std::string(gguf::type_name(type)).c_str(), other ? " (other)" : group.name);
      for (const std::uint32_t tokens : kTokens) {
        const auto multiply = [&](const std::vector<Weight>& weights) {
          std::vector<Product> products;
          for (std::size_t i = 0; i < weights.size(); ++i) {
            products.push_back({.out = outs[i].row_range(0, tokens), .weight = &weights[i]});
          }
          gpu_.products.matmul(stream_, products, Input::plain(input.row_range(0, tokens)));
        };
        if (other) gpu_.products.use(Kernels::Mma);
        const double us = time(copies, multiply, tokens > 64 ? 6 : 24);
        gpu_.products.use(Kernels::Best);
        print(us, tokens, tokens <= 64 ? double(bytes_) : work * tokens);
        check(files, x, outs, tokens, first);
        if (std::string_view(group.name) != "head") totals_[{other, tokens}] += us;
      }
      std::printf("\n");
    }
  }

  static void print(double us, std::uint32_t tokens, double of) {
    tokens <= 64 ? std::printf("  %7.1f %6.0f", us, of / us / 1e3) : std::printf("  %7.1f %8.0f", us, of / us / 1e6);
  }

  void total_line(gguf::Type type, bool other) {
    std::printf("%-5s %-10s", std::string(gguf::type_name(type)).c_str(), other ? " (other)" : "LAYER");
    for (const std::uint32_t tokens : kTokens) {
      std::printf(tokens <= 64 ? "  %7.1f       " : "  %7.1f         ", totals_[{other, tokens}]);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  template <typename Multiply>
  double time(const std::vector<std::vector<Weight>>& copies, Multiply multiply, std::uint32_t runs) {
    // In a graph, as in a step of the engine: the host's launches are not measured.
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    for (std::uint32_t i = 0; i < runs; ++i) multiply(copies[i % copies.size()]);
    must(cudaStreamEndCapture(stream_, &graph), "capture");
    must(cudaGraphInstantiate(&ready, graph, 0), "graph");
    double best = 1e30;
    for (int repeat = 0; repeat < 4; ++repeat) {
      must(cudaEventRecord(begin_, stream_), "event");
      must(cudaGraphLaunch(ready, stream_), "launch");
      must(cudaEventRecord(end_, stream_), "event");
      must(cudaEventSynchronize(end_), "products");
      float ms = 0;
      must(cudaEventElapsedTime(&ms, begin_, end_), "event");
      best = std::min(best, double{ms} * 1e3 / runs);
    }
    must(cudaGraphExecDestroy(ready), "graph");
    must(cudaGraphDestroy(graph), "graph");
    return best;
  }

  void check(const std::vector<FileWeight>& files, const Matrix& x, const std::vector<Tensor>& outs,
             std::uint32_t tokens, std::vector<Matrix>& first) {
    for (std::size_t i = 0; i < files.size(); ++i) {
      const Matrix got = gpu_.get(outs[i].row_range(0, 1)), last = gpu_.get(outs[i].row_range(tokens - 1, 1));
      if (first.size() <= i) first.push_back(got);
      for (std::uint32_t n = 0; n < got.cols; ++n) differ_ += std::memcmp(&got.values[n], &first[i].values[n], 4) != 0;
      if (tokens != 1 && tokens != 64 && tokens != 2048) continue;
      for (int k = 0; k < 8; ++k) check_one(files[i], x.row(tokens - 1), random_() % got.cols, last);
    }
  }

  void check_one(const FileWeight& file, std::span<const float> x, std::uint32_t row, const Matrix& got) {
    std::vector<float> weights(file.cols);
    const std::size_t bytes = file.bytes.size() / file.rows;
    if (!gguf::dequantize(file.type, std::span(file.bytes).subspan(row * bytes, bytes), weights)) std::exit(1);
    double sum = 0, size = 0;
    for (std::uint32_t k = 0; k < file.cols; ++k) {
      sum += double{weights[k]} * x[k];
      size += std::fabs(double{weights[k]} * x[k]);
    }
    const double error = std::fabs(got.values[row] - sum) / (size * tolerance_of(file.type));
    ++checked_;
    if (!(error <= 1)) ++wrong_;
    if (!(error <= worst_)) worst_ = error;
  }

  Gpu& gpu_;
  cudaStream_t stream_;
  std::map<std::pair<bool, std::uint32_t>, double> totals_;  // us of a layer by (other kernels, tokens)
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::uint64_t bytes_ = 0;  // of the weights of a group
  std::mt19937 random_{2};
  std::uint64_t differ_ = 0, wrong_ = 0, checked_ = 0;
  double worst_ = 0;
};

int run(int count, char** words) {
  Gpu gpu;
  std::printf("kernels: %s\n", gpu.products.has_split() ? "stream and split" : "stream and GEMM");
  Check check(gpu);
  bool good = check.run(count > 1 ? static_cast<std::uint32_t>(std::strtoul(words[1], nullptr, 10)) : 400);
  std::fflush(stdout);
  const std::string_view what = count > 2 ? words[2] : "";
  if (what == "many") {
    good = Many(gpu).run() && good;
  } else if (what != "check") {
    good = Timing(gpu).run() && good;
  }
  std::puts(good ? "good" : "NOT GOOD");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace quire::cuda

int main(int count, char** words) { return quire::cuda::run(count, words); }

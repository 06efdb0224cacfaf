// For cuda_products_bench: a million random products, whose bits are compared on the GPU.
#pragma once

#include "quire/backend/cuda/products_bench_gpu.h"
#include "quire/backend/cuda/products_check.h"

namespace quire::cuda {

// A product of some tokens against the same product of a few of them, with kernels chosen at random. Values are not
// checked here: Check does that. Then products of very few tokens with matrices so large that a warp uses each of its
// slots in shared memory again and again.
class Many {
 public:
  explicit Many(Gpu& gpu) : gpu_(gpu) {}

  bool run() {
    std::uint64_t small = 0, large = 0;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      begin(kRows, kCols);
      for (std::uint32_t i = 0; i < kMatrices; ++i) add_small();
      for (std::uint32_t i = 0; i < kProducts; ++i) one();
      small += differing();
    }
    std::printf("%u random products of %u matrices: %lu values differ between numbers of tokens and kernels\n",
                kRounds * kProducts, kRounds * kMatrices, small);
    const auto types = reference::weight_types();
    for (const gguf::Type type : types) {
      begin(kLargeRows, kLargeCols);
      weights_.push_back(gpu_.load(reference::random_weight(type, kLargeRows, kLargeCols, random_()).file()));
      for (std::uint32_t i = 0; i < kLargeProducts; ++i) one(4);
      const std::uint64_t here = differing();
      if (here > 0) std::printf("%s: %lu values differ\n", std::string(gguf::type_info(type).name).c_str(), here);
      large += here;
    }
    std::printf("%u products of up to 4 tokens with large matrices: %lu values differ\n",
                kLargeProducts * static_cast<std::uint32_t>(types.size()), large);
    return small + large == 0;
  }

 private:
  static constexpr std::uint32_t kRounds = 100, kProducts = 10'000, kMatrices = 60;
  static constexpr std::uint32_t kRows = 400, kCols = 1536, kTokens = 300;
  static constexpr std::uint32_t kLargeProducts = 2'000, kLargeRows = 6144, kLargeCols = 4096;

  std::uint32_t below(std::uint32_t n) { return random_() % n; }

  // New inputs, no matrices.
  void begin(std::uint32_t rows, std::uint32_t cols) {
    gpu_.clear();
    weights_.clear();
    for (Tensor* tensor : {&x_, &gate_}) {
      Matrix values = reference::random_matrix(kTokens, std::max(rows, cols) + 4, random_());
      for (std::uint32_t i = 0; tensor == &x_ && i < kTokens; ++i) {
        const float by = std::ldexp(1.0f, static_cast<int>(below(40)) - 20);
        for (std::uint32_t k = 0; k < values.cols; ++k) values.at(i, k) *= by;
      }
      *tensor = gpu_.put(values);
    }
    norm_ = gpu_.put(reference::random_matrix(1, cols + 4, random_()));
    for (Tensor* out : {&all_, &some_}) *out = {gpu_.take(std::uint64_t{kTokens} * rows * 4), kTokens, rows, rows};
    differing_ = reinterpret_cast<std::uint64_t*>(gpu_.take(sizeof *differing_));
    must(cudaMemset(differing_, 0, sizeof *differing_), "counter");
  }

  void add_small() {
    const auto types = reference::weight_types();
    const gguf::Type type = types[below(static_cast<std::uint32_t>(types.size()))];
    const std::uint32_t block = gguf::type_info(type).block_size;
    const std::uint32_t cols = block * (1 + below(kCols / block)), rows = 1 + below(below(4) == 0 ? kRows : 60);
    weights_.push_back(gpu_.load(reference::random_weight(type, rows, cols, random_()).file()));
  }
  std::uint64_t differing() {
    must(cudaGetLastError(), "launch");
    std::uint64_t count = 0;
    must(cudaMemcpy(&count, differing_, sizeof count, cudaMemcpyDeviceToHost), "products");
    return count;
  }

  // most: tokens; 0: any number.
  void one(std::uint32_t most = 0) {
    const Weight& weight = weights_[below(static_cast<std::uint32_t>(weights_.size()))];
    const std::uint32_t tokens = 1 + below(most != 0 ? most : below(8) == 0 ? kTokens : below(2) == 0 ? 40 : 8);
    const std::uint32_t first = below(tokens), count = 1 + below(tokens - first), shift = below(4);
    Input in{.kind = static_cast<Input::Kind>(below(4)),
             .x = x_.columns(shift, weight.cols),
             .activation = below(2) == 0 ? Activation::Silu : Activation::GeluTanh,
             .epsilon = 1e-5f};
    const bool gated = in.kind == Input::Kind::Gated || in.kind == Input::Kind::GatedNormed;
    if (in.kind == Input::Kind::GatedNormed) in.activation = Activation::Silu;
    if (gated) in.gate = gate_.columns(shift, weight.cols);
    if (in.kind == Input::Kind::Normed || in.kind == Input::Kind::GatedNormed)
      in.weight = norm_.columns(0, weight.cols);
    if (in.kind == Input::Kind::GatedNormed && weight.cols % 4 == 0) in.groups = 1u << below(3);
    const Tensor bias = below(2) == 0 ? gate_.row_range(0, 1).columns(0, weight.rows) : Tensor{};
    multiply(in, weight, bias, 0, tokens, all_, Kernels::Best);
    multiply(in, weight, bias, first, count, some_, static_cast<Kernels>(below(3)));
    count_differing(gpu_.stream, all_.row_range(first, count).columns(0, weight.rows),
                    some_.row_range(0, count).columns(0, weight.rows), differing_);
  }

  void multiply(Input in, const Weight& weight, const Tensor& bias, std::uint32_t first, std::uint32_t count,
                const Tensor& out, Kernels kernels) {
    in.x = in.x.row_range(first, count);
    if (in.gate.valid()) in.gate = in.gate.row_range(first, count);
    const Product product{.out = out.row_range(0, count).columns(0, weight.rows), .weight = &weight, .bias = bias};
    gpu_.products.use(kernels);
    gpu_.products.matmul(gpu_.stream, {&product, 1}, in);
  }

  Gpu& gpu_;
  std::mt19937 random_{3};
  std::vector<Weight> weights_;
  Tensor x_, gate_, norm_, all_, some_;
  std::uint64_t* differing_ = nullptr;
};

}  // namespace quire::cuda

// For tests of adapters: small adapters with random matrices, as images in memory, and the models that they would
// become if they were merged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/gguf/gguf.h"
#include "quire/gguf/writer.h"

namespace quire::model::testing {

class TestAdapter {
 public:
  explicit TestAdapter(std::string architecture, float alpha = 0) : alpha_(alpha) {
    texts_["general.type"] = "adapter";
    texts_["general.architecture"] = std::move(architecture);
    texts_["adapter.type"] = "lora";
  }

  struct Matrix {
    std::vector<std::uint64_t> shape;
    std::vector<float> values;
  };

  TestAdapter& text(const std::string& key, std::string value) {
    texts_[key] = std::move(value);
    return *this;
  }
  TestAdapter& remove(const std::string& key) {
    texts_.erase(key);
    tensors_.erase(key);
    return *this;
  }
  TestAdapter& tokens(const std::string& key, std::vector<std::uint32_t> values) {
    arrays_[key] = std::move(values);
    return *this;
  }
  TestAdapter& tensor(const std::string& name, std::vector<std::uint64_t> shape, std::vector<float> values) {
    tensors_[name] = {std::move(shape), std::move(values)};
    return *this;
  }
  // A pair for a tensor of this shape. `size`: how large the products of A and B are, about.
  TestAdapter& adapt(const std::string& name, const std::vector<std::uint64_t>& shape, std::uint32_t rank,
                     std::uint32_t seed, float size = 0.3F) {
    const std::uint64_t cols = shape[0], rows = shape.size() > 1 ? shape[1] : 1,
                        count = shape.size() > 2 ? shape[2] : 1;
    const bool lookup = name == "token_embd.weight";
    const auto with = [&](std::vector<std::uint64_t> two) {
      if (count > 1) two.push_back(count);
      return two;
    };
    const float each = std::sqrt(size / static_cast<float>(rank));
    tensor(name + ".lora_a",
           with(lookup ? std::vector<std::uint64_t>{rank, rows} : std::vector{cols, std::uint64_t{rank}}),
           random(name + "a", seed, (lookup ? rows : cols) * rank * count, each));
    tensor(name + ".lora_b", with({rank, lookup ? cols : rows}),
           random(name + "b", seed, (lookup ? cols : rows) * rank * count, each));
    return *this;
  }

  // W + scale * B A, for a tensor that is adapted.
  std::vector<float> merged(const std::string& name, std::vector<float> w,
                            const std::vector<std::uint64_t>& shape) const {
    const auto a = tensors_.find(name + ".lora_a"), b = tensors_.find(name + ".lora_b");
    if (a == tensors_.end()) return w;
    const std::uint64_t cols = shape[0], rows = shape.size() > 1 ? shape[1] : 1;
    const std::uint64_t rank = b->second.shape[0];
    const bool lookup = name == "token_embd.weight";
    const double scale = alpha_ == 0 ? 1.0 : alpha_ / static_cast<double>(rank);
    for (std::uint64_t i = 0; i < w.size(); ++i) {
      const std::uint64_t expert = i / (rows * cols), row = i / cols % rows, col = i % cols;
      double sum = 0;
      for (std::uint64_t r = 0; r < rank; ++r) {
        sum += lookup ? double{a->second.values[row * rank + r]} * b->second.values[col * rank + r]
                      : double{a->second.values[(expert * rank + r) * cols + col]} *
                            b->second.values[(expert * rows + row) * rank + r];
      }
      w[i] = static_cast<float>(w[i] + scale * sum);
    }
    return w;
  }

  gguf::Writer writer() const {
    gguf::Writer writer;
    for (const auto& [key, value] : texts_) writer.add(key, std::string_view(value));
    if (alpha_ != 0) writer.add("adapter.lora.alpha", alpha_);
    for (const auto& [key, values] : arrays_) writer.add_array<std::uint32_t>(key, values);
    for (const auto& [name, matrix] : tensors_) {
      writer.add_tensor(name, gguf::Type::F32, matrix.shape, std::as_bytes(std::span(matrix.values)));
    }
    return writer;
  }
  std::vector<std::byte> image() const {
    auto bytes = writer().to_memory();
    EXPECT_TRUE(bytes) << bytes.error().message;
    return bytes ? std::move(*bytes) : std::vector<std::byte>();
  }

 private:
  static std::vector<float> random(const std::string& name, std::uint32_t seed, std::uint64_t count, float size) {
    std::seed_seq seeds(name.begin(), name.end());
    std::mt19937 random(seeds);
    random.discard(seed);
    std::vector<float> values(count);
    for (float& value : values) value = (static_cast<float>(random() % 2001) / 1000.0F - 1.0F) * size;
    return values;
  }

  float alpha_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, std::vector<std::uint32_t>> arrays_;
  std::map<std::string, Matrix> tensors_;
};

// Adapts every matrix of a model's file that can be adapted, or those whose names contain one of `only`.
inline TestAdapter adapter_for(const gguf::File& file, std::uint32_t rank, std::uint32_t seed, float alpha = 0,
                               const std::vector<std::string>& only = {}, float size = 0.3F) {
  TestAdapter adapter(std::string(*file.get<std::string_view>("general.architecture")), alpha);
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const gguf::Tensor tensor = file.tensor(i);
    const std::string name(tensor.name);
    const bool vector = tensor.n_dims < 2 && !name.ends_with("shexp.weight");
    const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
    if (!name.ends_with(".weight") || vector || has("norm") || has("conv1d") || has("shortconv.conv") ||
        has("attn_k_b") || has("attn_v_b") || has("attn_kv_b") || has("position_embd") || has("attn_sinks")) {
      continue;
    }
    if (!only.empty() && std::ranges::none_of(only, has)) continue;
    adapter.adapt(name, {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims}, rank, seed, size);
  }
  return adapter;
}

}  // namespace quire::model::testing

// For tests of heads: golden models with a layer behind their last one that guesses the token after the next.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/gguf/gguf.h"
#include "quire/gguf/types.h"
#include "quire/gguf/writer.h"

namespace quire::model::testing {

// The golden models whose architectures have heads.
inline constexpr const char* kHeadModels[] = {"deepseek2", "glm4", "qwen35", "qwen35moe", "qwen3next"};

// A golden model with a head, whose tensors a test may change. The tensors of its layer have the shapes of those of the
// last layer and random values.
class HeadModel {
 public:
  explicit HeadModel(const std::string& golden, std::uint32_t seed = 1)
      : file_(std::make_shared<const gguf::File>(
            *gguf::File::open(std::string(QUIRE_SOURCE_DIR) + "/testdata/golden/" + golden + "/model.gguf"))),
        architecture_(*file_->get<std::string_view>("general.architecture")),
        layers_(*file_->get<std::uint32_t>(architecture_ + ".block_count")),
        width_(*file_->get<std::uint32_t>(architecture_ + ".embedding_length")),
        random_(seed) {
    const std::string last = fmt::format("blk.{}.", layers_ - 1);
    for (std::size_t i = 0; i < file_->tensor_count(); ++i) {
      const gguf::Tensor tensor = file_->tensor(i);
      const std::string name(tensor.name);
      if (!name.starts_with(last)) continue;
      std::vector<std::uint64_t> shape(tensor.shape.begin(), tensor.shape.end());
      while (shape.size() > 1 && shape.back() == 1) shape.pop_back();
      set(name.substr(last.size()), shape);
    }
    set("nextn.eh_proj.weight", {2 * std::uint64_t{width_}, width_});
    set("nextn.enorm.weight", {width_}).set("nextn.hnorm.weight", {width_});
  }

  std::uint32_t layers() const { return layers_; }  // without the head
  std::uint32_t width() const { return width_; }
  const std::string& architecture() const { return architecture_; }
  const gguf::File& file() const { return *file_; }  // of the model without the head

  // A tensor of the head's layer, with random values.
  HeadModel& set(const std::string& name, std::vector<std::uint64_t> shape) {
    std::uint64_t count = 1;
    for (const std::uint64_t each : shape) count *= each;
    std::normal_distribution<float> normal;
    const bool vector = shape.size() == 1;
    std::vector<float> values(count);
    for (float& value : values) {
      value = normal(random_) / (vector ? 5.0F : std::sqrt(static_cast<float>(shape[0])));
      if (vector && !name.ends_with(".bias")) value += 1;
    }
    tensors_[name] = {std::move(shape), std::move(values)};
    return *this;
  }
  HeadModel& remove(const std::string& name) {
    tensors_.erase(name);
    return *this;
  }
  // The norm and both tables of the head's own, which it may share with the model.
  HeadModel& own_tables() {
    const auto vocabulary = file_->find_tensor("token_embd.weight")->shape[1];
    set("nextn.embed_tokens.weight", {width_, vocabulary}).set("nextn.shared_head_head.weight", {width_, vocabulary});
    return set("nextn.shared_head_norm.weight", {width_});
  }
  // No layer adds anything, so the next token depends on the last one alone. The head computes the same from the token
  // that it is given: it is right with every greedy guess.
  HeadModel& knowing() {
    silent_ = true;
    for (auto& [name, tensor] : tensors_) {
      if (is_last_product(name)) std::ranges::fill(tensor.values, 0.0F);
    }
    Tensor& joined = tensors_.at("nextn.eh_proj.weight");
    std::ranges::fill(joined.values, 0.0F);
    for (std::size_t i = 0; i < width_; ++i) joined.values[i * 2 * width_ + i] = 1;
    std::ranges::fill(tensors_.at("nextn.enorm.weight").values, 1.0F);
    return *this;
  }
  // So many layers behind the last. Those after the first have a tensor that nothing is known of.
  HeadModel& count(std::uint32_t heads) {
    heads_ = heads;
    return *this;
  }
  // Metadata without the tensors, as some files have them.
  HeadModel& without_tensors() {
    tensors_.clear();
    return *this;
  }
  const std::vector<float>& values(const std::string& name) const { return tensors_.at(name).values; }
  bool has(const std::string& name) const { return tensors_.contains(name); }

  std::vector<std::byte> image() const {
    gguf::Writer writer;
    const std::string blocks = architecture_ + ".block_count";
    for (std::size_t i = 0; i < file_->entry_count(); ++i) {
      const gguf::Entry entry = file_->entry(i);
      if (entry.key != blocks) writer.add_value(entry.key, entry.value);
    }
    writer.add(blocks, layers_ + heads_);
    writer.add(architecture_ + ".nextn_predict_layers", heads_);
    std::vector<std::vector<std::byte>> zeros;
    for (std::size_t i = 0; i < file_->tensor_count(); ++i) {
      const gguf::Tensor tensor = file_->tensor(i);
      std::vector<std::uint64_t> shape(tensor.shape.begin(), tensor.shape.end());
      while (shape.size() > 1 && shape.back() == 1) shape.pop_back();
      const bool silent = silent_ && is_last_product(std::string(tensor.name));
      if (silent) zeros.emplace_back(tensor.data.size());
      writer.add_tensor(tensor.name, tensor.type, shape,
                        silent ? std::span<const std::byte>(zeros.back()) : tensor.data);
    }
    for (const auto& [name, tensor] : tensors_) {
      writer.add_tensor(fmt::format("blk.{}.{}", layers_, name), gguf::Type::F32, tensor.shape,
                        std::as_bytes(std::span(tensor.values)));
    }
    const std::vector<float> other(width_);
    for (std::uint32_t i = 1; i < heads_; ++i) {
      writer.add_tensor(fmt::format("blk.{}.nextn.other.weight", layers_ + i), gguf::Type::F32, {width_},
                        std::as_bytes(std::span(other)));
    }
    auto bytes = writer.to_memory();
    EXPECT_TRUE(bytes) << bytes.error().message;
    return bytes ? std::move(*bytes) : std::vector<std::byte>();
  }

 private:
  struct Tensor {
    std::vector<std::uint64_t> shape;
    std::vector<float> values;
  };
  static bool is_last_product(const std::string& name) {
    for (const char* end :
         {"attn_output.weight", "ssm_out.weight", "ffn_down.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight"}) {
      if (name.ends_with(end)) return true;
    }
    return false;
  }

  std::shared_ptr<const gguf::File> file_;
  std::string architecture_;
  std::uint32_t layers_, width_;
  std::mt19937 random_;
  std::map<std::string, Tensor> tensors_;  // of the head's layer
  std::uint32_t heads_ = 1;
  bool silent_ = false;
};

}  // namespace quire::model::testing

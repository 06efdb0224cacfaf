// For tests: a model file whose answers are given texts. Each control token of `scripts` begins one: after it the model
// writes the text, piece by piece, and ends. So a chat template chooses the answer by the token that it ends the prompt
// with. The model has one layer of zeros; the last matrix leads from each piece to the next.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "quire/gguf/writer.h"
#include "quire/text/byte_level.h"

namespace quire::server::testing {

class ScriptedModel {
 public:
  // `controls`: texts that are control tokens where a script has them. Each may come once in all scripts.
  ScriptedModel(const std::map<std::string, std::string>& scripts, std::string_view chat_template,
                const std::vector<std::string>& controls = {}) {
    for (unsigned byte = 0; byte < 256; ++byte) add(text::byte_level_spelling(static_cast<std::uint8_t>(byte)), 1);
    const std::size_t end = add("<|end_of_script|>", 3);
    for (const std::string& control : controls) add(control, 3);
    for (const auto& [control, script] : scripts) {
      std::size_t before = add(control, 3);
      for (std::string_view rest = script; !rest.empty();) {
        const std::size_t piece = next_piece(rest, controls);
        leads_.emplace_back(before, piece);
        before = piece;
      }
      leads_.emplace_back(before, end);
    }
    write(end, chat_template);
  }
  const gguf::Writer& file() const { return writer_; }

 private:
  std::size_t add(const std::string& spelling, std::int32_t type) {
    tokens_.push_back(spelling);
    types_.push_back(type);
    return tokens_.size() - 1;
  }

  // Every piece is a token of its own, so no two may have the same text. Two bytes are few enough for many cuts.
  std::size_t next_piece(std::string_view& rest, const std::vector<std::string>& controls) {
    std::size_t most = rest.size();
    for (std::size_t i = 0; i < controls.size(); ++i) {
      if (rest.starts_with(controls[i])) {
        rest.remove_prefix(controls[i].size());
        return 257 + i;
      }
      most = std::min(most, rest.find(controls[i]));
    }
    std::size_t length = std::min<std::size_t>(2, most);
    while (length < most && used_.contains(std::string(rest.substr(0, length)))) ++length;
    const std::string piece(rest.substr(0, length));
    EXPECT_TRUE(used_.insert(piece).second) << "a script ends with a piece that it had before: " << piece;
    rest.remove_prefix(length);
    std::string spelling;
    for (const char c : piece) spelling += text::byte_level_spelling(static_cast<std::uint8_t>(c));
    // A single byte has a token already.
    return length == 1 ? static_cast<std::uint8_t>(piece.front()) : add(spelling, 1);
  }

  void write(std::size_t end, std::string_view chat_template) {
    const auto tokens = static_cast<std::uint64_t>(tokens_.size());
    const std::uint64_t width = (leads_.size() + 63) / 64 * 64;
    writer_.add("general.architecture", "llama");
    const std::pair<const char*, std::uint32_t> numbers[] = {
        {"llama.block_count", 1},
        {"llama.context_length", 8192},
        {"llama.embedding_length", static_cast<std::uint32_t>(width)},
        {"llama.feed_forward_length", 32},
        {"llama.attention.head_count", static_cast<std::uint32_t>(width / 64)},
        {"llama.attention.head_count_kv", 1},
        {"llama.vocab_size", static_cast<std::uint32_t>(tokens)},
        {"tokenizer.ggml.eos_token_id", static_cast<std::uint32_t>(end)},
    };
    for (const auto& [key, value] : numbers) writer_.add(key, value);
    writer_.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    writer_.add("tokenizer.ggml.model", "gpt2");
    writer_.add("tokenizer.ggml.pre", "gpt-2");
    std::vector<std::string_view> spellings(tokens_.begin(), tokens_.end());
    writer_.add_array<std::string_view>("tokenizer.ggml.tokens", spellings);
    writer_.add_array<std::int32_t>("tokenizer.ggml.token_type", types_);
    writer_.add_array<std::string_view>("tokenizer.ggml.merges", {});
    writer_.add("tokenizer.chat_template", chat_template);

    std::vector<float> embedding(tokens * width), output(tokens * width);
    for (std::size_t i = 0; i < leads_.size(); ++i) {
      embedding[leads_[i].first * width + i] = 1;
      output[leads_[i].second * width + i] = 100;
    }
    const auto tensor = [&](const std::string& name, std::vector<std::uint64_t> shape,
                            const std::vector<float>& values) {
      writer_.add_tensor(name, gguf::Type::F32, std::move(shape), keep(values));
    };
    const auto filled = [&](const std::string& name, std::vector<std::uint64_t> shape, float value) {
      std::uint64_t count = 1;
      for (const std::uint64_t length : shape) count *= length;
      tensor(name, std::move(shape), std::vector<float>(count, value));
    };
    tensor("token_embd.weight", {width, tokens}, embedding);
    tensor("output.weight", {width, tokens}, output);
    filled("output_norm.weight", {width}, 1);
    filled("blk.0.attn_norm.weight", {width}, 1);
    filled("blk.0.ffn_norm.weight", {width}, 1);
    filled("blk.0.attn_q.weight", {width, width}, 0);
    filled("blk.0.attn_k.weight", {width, 64}, 0);
    filled("blk.0.attn_v.weight", {width, 64}, 0);
    filled("blk.0.attn_output.weight", {width, width}, 0);
    filled("blk.0.ffn_gate.weight", {width, 32}, 0);
    filled("blk.0.ffn_up.weight", {width, 32}, 0);
    filled("blk.0.ffn_down.weight", {32, width}, 0);
  }
  std::span<const std::byte> keep(const std::vector<float>& values) {
    kept_.push_back(values);
    return std::as_bytes(std::span(kept_.back()));
  }

  std::vector<std::string> tokens_;
  std::vector<std::int32_t> types_;
  std::set<std::string> used_;
  std::vector<std::pair<std::size_t, std::size_t>> leads_;  // from a token to the next
  std::vector<std::vector<float>> kept_;                    // the tensors' data, until the file is written
  gguf::Writer writer_;
};

}  // namespace quire::server::testing

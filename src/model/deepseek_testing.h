// For tests: DeepSeek V2 and V3 in double precision, written from the published model code. It does not absorb
// anything: keys and values of every head are computed for every position. It reads the same file as the model under
// test and shares no code with it. Where there is a golden model, it is compared with that first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/gguf/gguf.h"
#include "quire/state/batch.h"

namespace quire::model::testing {

class DeepSeekReference {
 public:
  using Row = std::vector<double>;

  explicit DeepSeekReference(const gguf::File& file) : file_(file) {
    heads_ = whole("attention.head_count");
    const std::uint64_t query =
        has("attention.key_length_mla") ? whole("attention.key_length_mla") : whole("attention.key_length");
    value_ = has("attention.value_length_mla") ? whole("attention.value_length_mla") : whole("attention.value_length");
    rotated_ = whole("rope.dimension_count");
    plain_ = query - rotated_;
    rank_ = whole("attention.kv_lora_rank");
    epsilon_ = real("attention.layer_norm_rms_epsilon", 0);
    scale_ = 1 / std::sqrt(static_cast<double>(query));
    set_frequencies();
  }

  // The logits of every position.
  std::vector<Row> logits(std::span<const Token> tokens) const {
    const std::uint64_t width = whole("embedding_length");
    const Row table = tensor("token_embd.weight");
    const Row output = file_.find_tensor("output.weight") ? tensor("output.weight") : table;
    std::vector<Row> x;
    for (const Token token : tokens) {
      const auto first = table.begin() + static_cast<std::ptrdiff_t>(static_cast<std::uint64_t>(token) * width);
      x.emplace_back(first, first + static_cast<std::ptrdiff_t>(width));
    }
    for (std::uint64_t layer = 0; layer < whole("block_count"); ++layer) {
      prefix_ = "blk." + std::to_string(layer) + ".";
      attend(x);
      for (Row& row : x) {
        const Row in = norm(row, tensor(prefix_ + "ffn_norm.weight"));
        add(row, file_.find_tensor(prefix_ + "ffn_gate_inp.weight") ? experts(in) : feed_forward(in, "", 0, 1));
      }
    }
    for (Row& row : x) row = times(output, norm(row, tensor("output_norm.weight")));
    return x;
  }

 private:
  // --- the file

  std::string key(const std::string& name) const { return "deepseek2." + name; }
  bool has(const std::string& name) const { return file_.has(key(name)); }
  std::uint64_t whole(const std::string& name) const {
    const auto value = file_.get<std::uint64_t>(key(name));
    EXPECT_TRUE(value) << name;
    return value ? *value : 1;
  }
  std::uint64_t whole(const std::string& name, std::uint64_t fallback) const {
    return has(name) ? whole(name) : fallback;
  }
  double real(const std::string& name, double fallback) const {
    if (!has(name)) return fallback;
    const auto value = file_.get<float>(key(name));
    EXPECT_TRUE(value) << name;
    return value ? *value : fallback;
  }
  Row tensor(const std::string& name) const {
    const auto found = file_.tensor(name);
    EXPECT_TRUE(found) << name;
    if (!found) return {};
    std::vector<float> values(found->elements());
    EXPECT_TRUE(gguf::dequantize(found->type, found->data, values)) << name;
    return {values.begin(), values.end()};
  }

  // --- arithmetic

  static void add(Row& to, const Row& more) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
  }
  Row norm(const Row& x, const Row& weight) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double root = std::sqrt(squares / static_cast<double>(x.size()) + epsilon_);
    Row out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] / root * weight[i];
    return out;
  }
  // Some rows of a matrix with as many columns as x has elements.
  static Row times(std::span<const double> weight, std::span<const double> x) {
    Row out(weight.size() / x.size());
    for (std::size_t n = 0; n < out.size(); ++n) {
      for (std::size_t k = 0; k < x.size(); ++k) out[n] += weight[n * x.size() + k] * x[k];
    }
    return out;
  }

  // --- attention

  // YaRN: a pair that turns often within the original context keeps its frequency, one that turns seldom gets it
  // divided by the factor, and those between are mixed. Scores are multiplied by the square of 1 + 0.1 * mscale *
  // ln(factor).
  void set_frequencies() {
    const double base = real("rope.freq_base", 10000), dims = static_cast<double>(rotated_);
    const double factor = real("rope.scaling.factor", 1);
    const bool yarn = has("rope.scaling.type");
    double low = 0, high = 0;
    if (yarn) {
      const double length = static_cast<double>(whole("rope.scaling.original_context_length"));
      const auto turning = [&](double turns) {
        return dims * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
      };
      low = std::max(std::floor(turning(real("rope.scaling.yarn_beta_fast", 32))), 0.0);
      high = std::min(std::ceil(turning(real("rope.scaling.yarn_beta_slow", 1))), dims - 1);
      if (low == high) high += 0.001;
      const double mscale = real("rope.scaling.yarn_log_multiplier", 0) * std::log(factor) + 1;
      scale_ *= mscale * mscale;
    }
    for (std::uint64_t i = 0; i < rotated_ / 2; ++i) {
      const double own = std::pow(base, -2.0 * static_cast<double>(i) / dims);
      const double ramp = yarn ? std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0) : 0;
      frequencies_.push_back(own / factor * ramp + own * (1 - ramp));
    }
  }
  void rotate(std::span<double> x, std::size_t position) const {
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
      const double angle = frequencies_[i] * static_cast<double>(position);
      const double a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * std::cos(angle) - b * std::sin(angle);
      x[2 * i + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
  }

  struct OfToken {     // of one position
    Row query;         // [heads][plain + rotated]
    Row keys, values;  // [heads][plain], [heads][value]
    Row key_of_all;    // [rotated]
  };
  void attend(std::vector<Row>& x) const {
    std::vector<OfToken> seen;
    const Row output = tensor(prefix_ + "attn_output.weight");
    for (std::size_t t = 0; t < x.size(); ++t) {
      seen.push_back(project(norm(x[t], tensor(prefix_ + "attn_norm.weight")), t));
      Row all;
      for (std::uint64_t h = 0; h < heads_; ++h) {
        const Row out = softmax_of_head(seen, h);
        all.insert(all.end(), out.begin(), out.end());
      }
      add(x[t], times(output, all));
    }
  }
  OfToken project(const Row& in, std::size_t position) const {
    OfToken token;
    if (file_.find_tensor(prefix_ + "attn_q.weight")) {
      token.query = times(tensor(prefix_ + "attn_q.weight"), in);
    } else {
      const Row low = times(tensor(prefix_ + "attn_q_a.weight"), in);
      token.query = times(tensor(prefix_ + "attn_q_b.weight"), norm(low, tensor(prefix_ + "attn_q_a_norm.weight")));
    }
    for (std::uint64_t h = 0; h < heads_; ++h) {
      rotate(std::span(token.query).subspan(h * (plain_ + rotated_) + plain_, rotated_), position);
    }
    const Row both = times(tensor(prefix_ + "attn_kv_a_mqa.weight"), in);
    const Row latent = norm({both.begin(), both.begin() + static_cast<std::ptrdiff_t>(rank_)},
                            tensor(prefix_ + "attn_kv_a_norm.weight"));
    token.key_of_all.assign(both.begin() + static_cast<std::ptrdiff_t>(rank_), both.end());
    rotate(token.key_of_all, position);
    if (file_.find_tensor(prefix_ + "attn_k_b.weight")) {
      const Row k_b = tensor(prefix_ + "attn_k_b.weight");  // [heads][rank][plain]
      token.keys.resize(heads_ * plain_);
      for (std::uint64_t i = 0; i < k_b.size(); ++i) {
        token.keys[i / (rank_ * plain_) * plain_ + i % plain_] += k_b[i] * latent[i / plain_ % rank_];
      }
      token.values = times(tensor(prefix_ + "attn_v_b.weight"), latent);
    } else {
      const Row joint = times(tensor(prefix_ + "attn_kv_b.weight"), latent);  // [heads][plain + value]
      for (std::uint64_t i = 0; i < joint.size(); ++i) {
        (i % (plain_ + value_) < plain_ ? token.keys : token.values).push_back(joint[i]);
      }
    }
    return token;
  }
  Row softmax_of_head(const std::vector<OfToken>& seen, std::uint64_t h) const {
    const auto query = std::span(seen.back().query).subspan(h * (plain_ + rotated_), plain_ + rotated_);
    Row scores;
    for (const OfToken& token : seen) {
      double score = 0;
      for (std::uint64_t i = 0; i < plain_; ++i) score += query[i] * token.keys[h * plain_ + i];
      for (std::uint64_t i = 0; i < rotated_; ++i) score += query[plain_ + i] * token.key_of_all[i];
      scores.push_back(score * scale_);
    }
    const double highest = *std::ranges::max_element(scores);
    double total = 0;
    for (double& score : scores) total += score = std::exp(score - highest);
    Row out(value_);
    for (std::size_t t = 0; t < seen.size(); ++t) {
      for (std::uint64_t i = 0; i < value_; ++i) out[i] += scores[t] / total * seen[t].values[h * value_ + i];
    }
    return out;
  }

  // --- feed-forward parts

  // Matrix `which` of `count` in tensors that end like this: "" for a dense layer, "_shexp", "_exps".
  Row feed_forward(const Row& in, const std::string& kind, std::size_t which, std::size_t count) const {
    const auto part = [&](const std::string& name, const Row& x) {
      const Row all = tensor(prefix_ + name + kind + ".weight");
      return times(std::span(all).subspan(which * (all.size() / count), all.size() / count), x);
    };
    Row inner = part("ffn_gate", in);
    const Row up = part("ffn_up", in);
    for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = inner[i] / (1 + std::exp(-inner[i])) * up[i];
    return part("ffn_down", inner);
  }

  // V2: softmax over all experts; of groups, those with the best expert. V3: sigmoids; a bias that counts for the
  // choice only; of groups, those with the best two experts together.
  Row experts(const Row& in) const {
    const Row router = times(tensor(prefix_ + "ffn_gate_inp.weight"), in);
    const std::size_t count = router.size(), used = whole("expert_used_count");
    const bool sigmoid = whole("expert_gating_func", 1) == 2;
    const double highest = *std::ranges::max_element(router);
    double total = 0;
    for (const double logit : router) total += std::exp(logit - highest);
    Row scores, choice;
    for (const double logit : router) {
      scores.push_back(sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit - highest) / total);
    }
    choice = scores;
    if (file_.find_tensor(prefix_ + "exp_probs_b.bias")) add(choice, tensor(prefix_ + "exp_probs_b.bias"));
    leave_best_groups(choice, sigmoid);
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t e) { return choice[e]; });
    order.resize(used);
    double sum = 0;
    for (const std::size_t e : order) sum += scores[e];
    const auto normed = file_.get_or<bool>(key("expert_weights_norm"), false);
    Row out(in.size());
    for (const std::size_t e : order) {
      Row one = feed_forward(in, "_exps", e, count);
      const double weight = scores[e] / (normed && *normed ? sum : 1) * real("expert_weights_scale", 1);
      for (double& v : one) v *= weight;
      add(out, one);
    }
    add(out, feed_forward(in, "_shexp", 0, 1));
    return out;
  }
  void leave_best_groups(Row& choice, bool by_two) const {
    const std::size_t groups = whole("expert_group_count", 1), left = whole("expert_group_used_count", groups);
    if (groups <= 1) return;
    const std::size_t size = choice.size() / groups;
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t g = 0; g < groups; ++g) {
      const auto first = choice.begin() + static_cast<std::ptrdiff_t>(g * size);
      Row sorted(first, first + static_cast<std::ptrdiff_t>(size));
      std::ranges::sort(sorted, std::greater());
      order.emplace_back(by_two ? sorted[0] + sorted[1] : sorted[0], g);
    }
    std::ranges::sort(order, std::greater());
    for (std::size_t i = left; i < groups; ++i) {
      for (std::size_t e = 0; e < size; ++e) choice[order[i].second * size + e] = -INFINITY;
    }
  }

  const gguf::File& file_;
  std::uint64_t heads_ = 0, plain_ = 0, rotated_ = 0, value_ = 0, rank_ = 0;
  double epsilon_ = 0, scale_ = 1;
  Row frequencies_;
  mutable std::string prefix_;  // of the layer
};

}  // namespace quire::model::testing

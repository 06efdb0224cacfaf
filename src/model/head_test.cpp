// Heads that guess the token after the next, against the published formulas in double precision.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/backend/backends_testing.h"
#include "quire/gguf/types.h"
#include "quire/model/head_testing.h"
#include "quire/model/runner.h"

namespace quire::model {
namespace {

using ::testing::HasSubstr;
using testing::HeadModel;
using testing::kHeadModels;
using Vector = std::vector<double>;

// The head of a model with attention and a dense feed-forward part: Qwen3.5 and GLM-4. Everything is kept, and each
// position is computed from all before it.
class Reference {
 public:
  explicit Reference(const HeadModel& model) : model_(model), glm_(model.architecture() == "glm4") {}

  struct Step {
    Vector hidden, logits;
  };
  // The next pair of a hidden state and the token that follows it.
  Step next(const Vector& hidden, Token token) {
    const std::size_t width = model_.width();
    Vector joined = norm(embedding(token), tensor("nextn.enorm.weight"));
    const Vector second = norm(hidden, tensor("nextn.hnorm.weight"));
    joined.insert(joined.end(), second.begin(), second.end());
    Vector x = product("nextn.eh_proj.weight", joined);
    EXPECT_EQ(x.size(), width);

    Vector attended = attend(norm(x, tensor("attn_norm.weight")));
    if (glm_) attended = norm(attended, tensor("post_attention_norm.weight"));
    add(x, attended);
    Vector fed = feed_forward(norm(x, tensor(glm_ ? "ffn_norm.weight" : "post_attention_norm.weight")));
    if (glm_) fed = norm(fed, tensor("post_ffw_norm.weight"));
    add(x, fed);
    const bool own = model_.has("nextn.shared_head_norm.weight");
    Step step{.hidden = norm(x, own ? tensor("nextn.shared_head_norm.weight") : shared("output_norm.weight")),
              .logits = {}};
    const Vector output = own ? tensor("nextn.shared_head_head.weight") : shared("output.weight");
    step.logits = times(output, step.hidden);
    return step;
  }

 private:
  Vector tensor(const std::string& name) const {
    const auto& values = model_.values(name);
    return {values.begin(), values.end()};
  }
  Vector shared(const std::string& name) const {
    const auto found = model_.file().find_tensor(name);
    std::vector<float> values(found->elements());
    EXPECT_TRUE(gguf::dequantize(found->type, found->data, values).has_value());
    return {values.begin(), values.end()};
  }
  double number(const std::string& name) const {
    return *model_.file().get<double>(model_.architecture() + "." + name);
  }
  std::uint32_t count(const std::string& name) const {
    return *model_.file().get<std::uint32_t>(model_.architecture() + "." + name);
  }
  static void add(Vector& x, const Vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  Vector norm(const Vector& x, const Vector& weight) const {
    double squares = 0;
    for (const double each : x) squares += each * each;
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + number("attention.layer_norm_rms_epsilon"));
    Vector out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
    return out;
  }
  static Vector times(const Vector& matrix, const Vector& x) {
    Vector out(matrix.size() / x.size());
    for (std::size_t n = 0; n < out.size(); ++n) {
      for (std::size_t k = 0; k < x.size(); ++k) out[n] += matrix[n * x.size() + k] * x[k];
    }
    return out;
  }
  Vector product(const std::string& name, const Vector& x) const {
    Vector out = times(tensor(name), x);
    const std::string bias = name.substr(0, name.rfind('.')) + ".bias";
    if (model_.has(bias)) add(out, tensor(bias));
    return out;
  }
  Vector embedding(Token token) const {
    const bool own = model_.has("nextn.embed_tokens.weight");
    const Vector table = own ? tensor("nextn.embed_tokens.weight") : shared("token_embd.weight");
    const auto first = table.begin() + static_cast<std::ptrdiff_t>(token) * model_.width();
    return {first, first + model_.width()};
  }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  // Rotates the first elements of a head: neighbours in GLM, halves in Qwen.
  void rotate(std::span<double> head, std::size_t position) const {
    const std::uint32_t rotated = count("rope.dimension_count"), pairs = rotated / 2;
    for (std::uint32_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(position) * std::pow(number("rope.freq_base"), -2.0 * i / rotated);
      double& a = head[glm_ ? 2 * i : i];
      double& b = head[glm_ ? 2 * i + 1 : i + pairs];
      const double c = std::cos(angle), s = std::sin(angle), old = a;
      a = old * c - b * s;
      b = old * s + b * c;
    }
  }
  Vector attend(const Vector& x) {
    const std::uint32_t heads = count("attention.head_count"), kv_heads = count("attention.head_count_kv");
    const std::uint32_t size = count("attention.key_length");
    const std::size_t position = keys_.size();
    const Vector projected = product("attn_q.weight", x);
    Vector k = product("attn_k.weight", x);
    const auto finish = [&](std::span<double> head, const char* norm_name) {
      if (!glm_) std::ranges::copy(norm({head.begin(), head.end()}, tensor(norm_name)), head.begin());
      rotate(head, position);
    };
    for (std::uint32_t i = 0; i < kv_heads; ++i) finish(std::span(k).subspan(i * size, size), "attn_k_norm.weight");
    keys_.push_back(k);
    values_.push_back(product("attn_v.weight", x));
    Vector all(std::size_t{heads} * size);
    for (std::uint32_t i = 0; i < heads; ++i) {
      // Qwen: a head's query, then its gate.
      const std::size_t at = std::size_t{i} * size * (glm_ ? 1 : 2), kv = std::size_t{i / (heads / kv_heads)} * size;
      Vector q(projected.begin() + static_cast<std::ptrdiff_t>(at),
               projected.begin() + static_cast<std::ptrdiff_t>(at + size));
      finish(q, "attn_q_norm.weight");
      Vector weights(keys_.size());
      double sum = 0;
      for (std::size_t p = 0; p < keys_.size(); ++p) {
        double score = 0;
        for (std::uint32_t d = 0; d < size; ++d) score += q[d] * keys_[p][kv + d];
        weights[p] = std::exp(score / std::sqrt(static_cast<double>(size)));
        sum += weights[p];
      }
      for (std::uint32_t d = 0; d < size; ++d) {
        double value = 0;
        for (std::size_t p = 0; p < keys_.size(); ++p) value += weights[p] / sum * values_[p][kv + d];
        all[std::size_t{i} * size + d] = glm_ ? value : value * sigmoid(projected[at + size + d]);
      }
    }
    return product("attn_output.weight", all);
  }
  Vector feed_forward(const Vector& x) const {
    const std::uint32_t inner = count("feed_forward_length");
    Vector up = product("ffn_up.weight", x);
    const Vector gate = glm_ ? Vector(up.begin(), up.begin() + inner) : product("ffn_gate.weight", x);
    if (glm_) up.erase(up.begin(), up.begin() + inner);
    for (std::uint32_t i = 0; i < inner; ++i) up[i] *= gate[i] * sigmoid(gate[i]);
    return product("ffn_down.weight", up);
  }

  const HeadModel& model_;
  bool glm_;
  std::vector<Vector> keys_, values_;
};

// A model and its head, ready to run.
struct Loaded {
  explicit Loaded(const HeadModel& test,
                  const quire::testing::BackendKind& kind = quire::testing::backend_kinds().back())
      : image(test.image()), backend(kind.make(1)), head_backend(kind.make(1)) {
    auto made = Model::create(*gguf::File::from_memory(image, "test"));
    EXPECT_TRUE(made.has_value()) << made.error().message;
    model = std::move(*made);
    EXPECT_TRUE(model->prepare(*backend, 32, 32).has_value());
    auto own = model->head();
    EXPECT_TRUE(own.has_value()) << own.error().message;
    head = std::move(*own);
    EXPECT_TRUE(head->prepare(*head_backend, 32, 32).has_value());
    pool = make_pool(*head, *head_backend);
  }
  static std::unique_ptr<SequencePool> make_pool(const Model& model, Backend& backend) {
    PoolConfig config{.layout = *model.layout(4, ElementType::F32), .max_sequences = 4, .max_tokens = 64};
    config.budget_bytes = 4 << 20;
    return *SequencePool::create(backend.device(), config);
  }
  std::vector<std::byte> image;
  std::unique_ptr<Backend> backend, head_backend;
  std::unique_ptr<Model> model, head;
  std::unique_ptr<SequencePool> pool;
};

std::vector<Token> some_tokens(std::size_t count) {
  std::mt19937 random(5);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % 320);
  return tokens;
}

void expect_reference(const HeadModel& test) {
  for (const auto& kind : quire::testing::backend_kinds()) {
    SCOPED_TRACE(kind.name);
    Loaded loaded(test, kind);
    auto runner = *Runner::create(*loaded.head, *loaded.pool);
    Reference reference(test);
    const SequenceId id = loaded.pool->create({})->id;
    const std::vector<Token> tokens = some_tokens(19);
    std::vector<float> given(tokens.size() * test.width());
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float& each : given) each = normal(random);
    const std::uint32_t rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (std::size_t at = 0; at < tokens.size();) {
      const std::size_t count = at == 0 ? 10 : 1;
      Batch batch = runner.make_batch();
      batch.add(id, std::span(tokens).subspan(at, count), Logits::All);
      ASSERT_TRUE(loaded.pool->reserve(batch.entries()).has_value());
      const auto wanted = std::span(rows).first(count);
      const auto output =
          runner.forward(batch, {.jobs = {},
                                 .logits = wanted,
                                 .hidden = wanted,
                                 .given = std::span(given).subspan(at * test.width(), count * test.width())});
      ASSERT_TRUE(output.has_value()) << output.error().message();
      ASSERT_TRUE(loaded.pool->commit(batch).has_value());
      for (std::uint32_t i = 0; i < count; ++i, ++at) {
        const auto hidden = std::span(given).subspan(at * test.width(), test.width());
        const auto right = reference.next({hidden.begin(), hidden.end()}, tokens[at]);
        double spread = 0, wrong = 0;
        for (std::size_t k = 0; k < right.logits.size(); ++k) {
          spread = std::max(spread, std::abs(right.logits[k]));
          wrong = std::max(wrong, std::abs(right.logits[k] - output->logits.row(i)[k]));
        }
        EXPECT_LT(wrong, 2e-3 * spread) << "position " << at;
        wrong = 0;
        for (std::size_t k = 0; k < right.hidden.size(); ++k) {
          wrong = std::max(wrong, std::abs(right.hidden[k] - output->hidden.row(i)[k]));
        }
        EXPECT_LT(wrong, 5e-3) << "position " << at;
      }
    }
  }
}

TEST(Head, ComputesThePublishedFormulas) {
  expect_reference(HeadModel("qwen35"));
  expect_reference(HeadModel("glm4", 2));
}

TEST(Head, UsesTablesOfItsOwnWhereTheFileHasThem) {
  expect_reference(HeadModel("qwen35").own_tables());
  expect_reference(HeadModel("glm4").own_tables());
}

TEST(Head, IsNoLayerOfTheModel) {
  for (const char* name : kHeadModels) {
    SCOPED_TRACE(name);
    const HeadModel test(name);
    Loaded loaded(test);
    EXPECT_EQ(loaded.model->hyperparameters().layers.size(), test.layers());
    EXPECT_EQ(loaded.model->hyperparameters().extra_layers, 1u);
    EXPECT_EQ(loaded.head->hyperparameters().layers.size(), 1u);
    EXPECT_FALSE(loaded.head->layout(16, ElementType::F16)->has_recurrent());
    EXPECT_FALSE(loaded.head->head().has_value());
    EXPECT_LT(loaded.head->weight_bytes(), loaded.model->weight_bytes());
  }
}

// The hidden states of all rows are those that the output matrix is multiplied with. Asking for them changes nothing.
TEST(Head, GetsTheHiddenStatesOfEveryRow) {
  for (const char* name : kHeadModels) {
    SCOPED_TRACE(name);
    Loaded loaded{HeadModel(name)};
    const auto pool = Loaded::make_pool(*loaded.model, *loaded.backend);
    auto runner = *Runner::create(*loaded.model, *pool);
    const std::vector<Token> tokens = some_tokens(6);
    const std::uint32_t rows[] = {0, 1, 2, 3, 4, 5};
    std::vector<std::vector<float>> logits;
    for (const bool every : {false, true}) {
      Batch batch = runner.make_batch();
      batch.add(pool->create({})->id, tokens, Logits::All);
      ASSERT_TRUE(pool->reserve(batch.entries()).has_value());
      const auto output = runner.forward(batch, {.jobs = {}, .logits = rows, .hidden = rows, .every_hidden = every});
      ASSERT_TRUE(output.has_value());
      EXPECT_EQ(output->every_hidden.data != nullptr, every);
      std::vector<float> all;
      for (const std::uint32_t row : rows) {
        all.insert(all.end(), output->logits.row(row).begin(), output->logits.row(row).end());
        if (every) {
          EXPECT_TRUE(std::ranges::equal(output->every_hidden.row(row), output->hidden.row(row)));
        }
      }
      logits.push_back(std::move(all));
    }
    EXPECT_EQ(logits[0], logits[1]);
  }
}

TEST(Head, NeedsAHiddenStateForEachRow) {
  Loaded loaded{HeadModel("glm4")};
  auto runner = *Runner::create(*loaded.head, *loaded.pool);
  Batch batch = runner.make_batch();
  batch.add(loaded.pool->create({})->id, some_tokens(2), Logits::Last);
  ASSERT_TRUE(loaded.pool->reserve(batch.entries()).has_value());
  const std::vector<float> one(64);
  EXPECT_FALSE(runner.forward(batch, {.jobs = {}, .logits = {}, .given = one}).has_value());
}

// The model itself needs no head, so it is made whatever its head lacks.
std::string refusal(const HeadModel& test) {
  const auto image = test.image();
  const auto made = Model::create(*gguf::File::from_memory(image, "test"));
  EXPECT_TRUE(made.has_value()) << made.error().message;
  if (!made) return made.error().message;
  const auto head = (*made)->head();
  return head ? "" : head.error().message;
}

TEST(Head, IsRefusedByTheNameOfATensorThatIsMissingOrMisshapen) {
  for (const char* name : kHeadModels) {
    SCOPED_TRACE(name);
    const HeadModel right(name);
    EXPECT_EQ(refusal(right), "");
    const std::string layer = fmt::format("blk.{}.", right.layers());
    for (const char* tensor : {"nextn.eh_proj.weight", "nextn.enorm.weight", "nextn.hnorm.weight", "attn_norm.weight",
                               "attn_output.weight"}) {
      EXPECT_THAT(refusal(HeadModel(name).remove(tensor)), HasSubstr(layer + tensor));
      EXPECT_THAT(refusal(HeadModel(name).set(tensor, {8, 3})), HasSubstr(layer + tensor));
    }
    EXPECT_THAT(refusal(HeadModel(name).own_tables().set("nextn.shared_head_norm.weight", {3})),
                HasSubstr(layer + "nextn.shared_head_norm.weight"));
    EXPECT_THAT(refusal(HeadModel(name).set("nextn.what.weight", {3})), HasSubstr(layer + "nextn.what.weight"));
  }
}

// Some files count the layer and have left it out. Of several heads the first is used.
TEST(Head, MayBeLeftOutOrBeOneOfSeveral) {
  const auto head_of = [](const HeadModel& test) {
    const auto image = test.image();
    const auto model = Model::create(*gguf::File::from_memory(image, "test"));
    EXPECT_TRUE(model.has_value()) << model.error().message;
    EXPECT_EQ((*model)->hyperparameters().layers.size(), test.layers());
    return (*model)->head();
  };
  const auto none = head_of(HeadModel("qwen35").without_tensors());
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().message, HasSubstr("has no layer that guesses further tokens"));
  EXPECT_TRUE(head_of(HeadModel("qwen35").count(3)).has_value());
}

}  // namespace
}  // namespace quire::model

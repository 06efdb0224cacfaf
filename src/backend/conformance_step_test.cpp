// All operations together, as a model calls them. The rule of exactness from tokens to logits, whatever the batch, the
// chunks, the pages and the number of threads. No step allocates memory.
#include "quire/backend/conformance_batches_testing.h"
#include "quire/base/counted_heap_testing.h"

namespace quire::conformance {
namespace {

constexpr std::uint32_t kVocabulary = 50, kWidth = 96, kInner = 160, kPositions = 128;
constexpr AttentionShape kAttention{.group = 0, .layer = 1, .heads = 4, .kv_heads = 2, .head_dim = 32, .scale = 0.2f};
constexpr AttentionShape kWindowed{
    .group = 1, .layer = 0, .heads = 4, .kv_heads = 1, .head_dim = 32, .scale = 0.2f, .window = 20};
constexpr Mamba2Shape kMamba{.layer = 1, .heads = 4, .head_dim = 8, .groups = 2, .state_dim = 16, .conv_width = 4};
const std::uint32_t kMambaIn = kMamba.inner() + kMamba.conv_channels() + kMamba.heads;

// A model of one layer of every kind with random weights: attention, attention with a window, Mamba-2, feed-forward.
class SmallModel {
 public:
  SmallModel(Backend& backend, std::uint32_t block_size, KvPool::Order order)
      : backend_(backend),
        tensors_(backend.device()),
        full_(backend.device(), page(kAttention, block_size), kSequences, kPositions, order),
        windowed_(backend.device(), page(kWindowed, block_size), kSequences, kPositions, order),
        states_(backend.device(), kMamba, 2, kSequences) {
    must(backend.prepare(kSizes));
    const auto weight = [&](gguf::Type type, std::uint32_t rows, std::uint32_t cols,
                            WeightUse use = WeightUse::Product) {
      files_.push_back(std::make_unique<FileWeight>(random_weight(type, rows, cols, 50 + rows)));
      weights_.push_back(load(backend_, *files_.back(), use));
    };
    weight(gguf::Type::Q8_0, kVocabulary, kWidth, WeightUse::Both);  // in the order of Weights
    for (const AttentionShape& shape : {kAttention, kWindowed}) {
      weight(gguf::Type::Q8_0, shape.heads * shape.head_dim, kWidth);
      weight(gguf::Type::F16, shape.kv_heads * shape.head_dim, kWidth);
      weight(gguf::Type::F32, shape.kv_heads * shape.head_dim, kWidth);
      weight(gguf::Type::Q4_0, kWidth, shape.heads * shape.head_dim);
    }
    weight(gguf::Type::Q8_0, kMambaIn, kWidth);
    weight(gguf::Type::BF16, kWidth, kMamba.inner());
    weight(gguf::Type::Q5_0, kInner, kWidth);
    weight(gguf::Type::IQ4_NL, kInner, kWidth);
    weight(gguf::Type::Q8_0, kWidth, kInner);
    const auto vector = [&](std::uint32_t cols) { return tensors_.put(random_matrix(1, cols, cols)); };
    norm_ = vector(kWidth);
    head_norm_ = vector(32);
    inner_norm_ = vector(kMamba.inner());
    frequencies_ = vector(16);
    conv_ = tensors_.put(random_matrix(kMamba.conv_width, kMamba.conv_channels(), 3));
    conv_bias_ = vector(kMamba.conv_channels());
    dt_bias_ = vector(kMamba.heads);
    d_ = vector(kMamba.heads);
    a_ = tensors_.put(Matrix(1, kMamba.heads, -0.3f));
    const auto room = [&](std::uint32_t cols) { return tensors_.room(kSizes.rows, cols); };
    x_ = room(kWidth), q_ = room(128), k_ = room(64), v_ = room(64), block_output_ = room(128), wide_ = room(kMambaIn);
    gate_ = room(kInner), up_ = room(kInner), cosines_ = room(16), sines_ = room(16);
    last_ = room(kWidth), logits_ = room(kVocabulary);
  }

  Batch batch(std::span<const Part> parts, std::span<const Token> tokens) const {
    return make_batch(parts, {{full_.view(), windowed_.view()}, states_.view(), states_.stride()}, tokens);
  }

  // Returns the logits of the rows that the batch wants.
  HostRows forward(const Batch& batch) {
    const auto rows = [n = batch.rows()](Tensor tensor) { return tensor.row_range(0, n); };
    const Tensor x = rows(x_), wide = rows(wide_);
    const auto wanted = static_cast<std::uint32_t>(batch.wanted().size());
    backend_.begin(batch);
    backend_.embed(x, weights_[Table].weight, 2.0f);
    backend_.rope_angles(rows(cosines_), rows(sines_), frequencies_, 1);
    attention(kAttention, Query, batch.rows());
    attention(kWindowed, WindowedQuery, batch.rows());
    const Product in{.out = wide, .weight = &weights_[MambaIn].weight};
    backend_.matmul({&in, 1}, Input::normed(x, norm_, 1e-5f));
    const Tensor convolved = wide.columns(kMamba.inner(), kMamba.conv_channels());
    const Tensor scanned = rows(block_output_).columns(0, kMamba.inner());
    backend_.convolve(convolved, {}, conv_, conv_bias_, kMamba.convolution());
    backend_.mamba2_scan(scanned, convolved.columns(0, 32), convolved.columns(32, 32), convolved.columns(64, 32),
                         wide.columns(kMamba.inner() + kMamba.conv_channels(), kMamba.heads), dt_bias_, a_, d_, kMamba);
    const Product out{.out = x, .weight = &weights_[MambaOut].weight, .add = true};
    backend_.matmul({&out, 1}, {.kind = Input::Kind::GatedNormed,
                                .x = scanned,
                                .gate = wide.columns(0, kMamba.inner()),
                                .weight = inner_norm_,
                                .epsilon = 1e-5f,
                                .groups = 2});
    const Product both[] = {{.out = rows(gate_), .weight = &weights_[Gate].weight},
                            {.out = rows(up_), .weight = &weights_[Up].weight}};
    backend_.matmul(both, Input::normed(x, norm_, 1e-5f));
    const Product down{.out = x, .weight = &weights_[Down].weight, .add = true, .scale = 0.1f};
    backend_.matmul({&down, 1}, Input::gated(rows(gate_), rows(up_), Activation::Silu));
    const Tensor last = last_.row_range(0, wanted), logits = logits_.row_range(0, wanted);
    backend_.gather_wanted(last, x);
    const Product tied{.out = logits, .weight = &weights_[Table].weight};
    backend_.matmul({&tied, 1}, Input::normed(last, norm_, 1e-5f));
    backend_.cap_and_scale(logits, 30, 0.5f);
    const HostRows read = backend_.read(logits);
    must(backend_.finish());
    return read;
  }

  static constexpr std::uint32_t kSequences = 5;

 private:
  enum Weights {
    Table,
    Query,
    Key,
    Value,
    Output,
    WindowedQuery,
    MambaIn = WindowedQuery + 4,
    MambaOut,
    Gate,
    Up,
    Down
  };

  static PageShape page(const AttentionShape& shape, std::uint32_t block_size) {
    return {.block_size = block_size,
            .num_layers = 2,
            .num_kv_heads = shape.kv_heads,
            .head_dim = shape.head_dim,
            .type = ElementType::F16};
  }
  void attention(const AttentionShape& shape, std::size_t first, std::uint32_t rows) {
    const std::uint32_t queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
    const Tensor x = x_.row_range(0, rows), q = q_.row_range(0, rows).columns(0, queries);
    const Tensor k = k_.row_range(0, rows).columns(0, keys), v = v_.row_range(0, rows).columns(0, keys);
    const Tensor attended = block_output_.row_range(0, rows).columns(0, queries);
    const Product products[] = {{.out = q, .weight = &weights_[first].weight},
                                {.out = k, .weight = &weights_[first + 1].weight},
                                {.out = v, .weight = &weights_[first + 2].weight}};
    backend_.matmul(products, Input::normed(x, norm_, 1e-5f));
    backend_.store_kv(shape, q, k, v,
                      {.q_norm = head_norm_,
                       .k_norm = head_norm_,
                       .epsilon = 1e-5f,
                       .cosines = cosines_.row_range(0, rows),
                       .sines = sines_.row_range(0, rows),
                       .pairs = RopePairs::Halves});
    backend_.attention(attended, q, shape);
    const Product out{.out = x, .weight = &weights_[first + 3].weight, .add = true};
    backend_.matmul({&out, 1}, Input::plain(attended));
    backend_.add(x, q.columns(0, kWidth), 0.01f);
  }

  Backend& backend_;
  Tensors tensors_;
  KvPool full_, windowed_;
  StatePool states_;
  std::vector<std::unique_ptr<FileWeight>> files_;
  std::vector<Loaded> weights_;
  Tensor norm_, head_norm_, inner_norm_, frequencies_, conv_, conv_bias_, dt_bias_, a_, d_;
  Tensor x_, q_, k_, v_, block_output_, wide_, gate_, up_, cosines_, sines_, last_, logits_;
};

constexpr std::uint32_t kLengths[SmallModel::kSequences] = {1, 40, 128, 17, 70};

Token token_at(std::uint32_t sequence, std::uint32_t position) {
  return static_cast<Token>((sequence * 31 + position * position * 7 + position) % kVocabulary);
}

// The logits of every token of all sequences, [sequence][position].
std::vector<Matrix> logits_of_all(Backend& backend, const Schedule& schedule, std::uint32_t block_size = 16,
                                  KvPool::Order order = KvPool::Order::Scattered) {
  SmallModel model(backend, block_size, order);
  std::vector<Matrix> all;
  for (const std::uint32_t length : kLengths) all.emplace_back(length, kVocabulary, poison());
  std::vector<std::uint32_t> lengths(all.size());
  for (const auto& entries : schedule) {
    std::vector<Part> parts;
    std::vector<Token> tokens;
    for (const auto& [s, rows] : entries) {
      parts.push_back({.sequence = s, .position = lengths[s], .rows = rows, .logits = Logits::All});
      for (std::uint32_t i = 0; i < rows; ++i) tokens.push_back(token_at(s, lengths[s] + i));
    }
    const HostRows got = model.forward(model.batch(parts, tokens));
    std::uint32_t row = 0;
    for (const auto& [s, rows] : entries) {
      for (std::uint32_t i = 0; i < rows; ++i, ++row, ++lengths[s]) {
        std::ranges::copy(got.row(row), all[s].values.begin() + std::ptrdiff_t{lengths[s]} * kVocabulary);
      }
    }
  }
  return all;
}

void expect_same_logits(std::span<const Matrix> got, std::span<const Matrix> expected) {
  for (std::size_t s = 0; s < got.size(); ++s) {
    for (std::uint32_t i = 0; i < got[s].rows; ++i) {
      if (same_bits(got[s].row(i), expected[s].row(i))) continue;
      ADD_FAILURE() << "sequence " << s << ", position " << i << ": " << got[s].at(i, 0) << " is not "
                    << expected[s].at(i, 0);
      break;
    }
  }
}

class ConformanceOfSteps : public Conformance {};

TEST_P(ConformanceOfSteps, LogitsHaveTheSameBitsHoweverTheyAreComputed) {
  const std::vector<Matrix> alone = logits_of_all(backend(), one_by_one(kLengths));
  for (const Matrix& logits : alone) {
    for (const float value : logits.values) ASSERT_TRUE(std::fabs(value) <= 15) << "a capped number, and no NaN";
  }
  expect_same_logits(logits_of_all(backend(), token_by_token(kLengths)), alone);
  expect_same_logits(logits_of_all(backend(), one_by_one(kLengths), kPositions, KvPool::Order::Rising), alone);
  for (std::uint32_t round = 0; round < repetitions(4); ++round) {
    const auto block_size = std::uint32_t{1} << (2 * round);
    expect_same_logits(logits_of_all(backend(), at_random(kLengths, 200, round), block_size), alone);
  }
}

// Another token changes the logits from its position on, and no logits before it.
TEST_P(ConformanceOfSteps, LogitsDependOnTheTokensBefore) {
  SmallModel model(backend(), 16, KvPool::Order::Scattered);
  const auto run = [&](std::uint32_t sequence, Token third) {
    const std::vector<Part> parts = {{.sequence = sequence, .rows = 6, .logits = Logits::All}};
    const HostRows rows = model.forward(model.batch(parts, std::vector<Token>{5, 9, third, 3, 9, 9}));
    Matrix copy(rows.rows, rows.cols);
    for (std::uint32_t i = 0; i < rows.rows; ++i) {
      std::ranges::copy(rows.row(i), copy.values.begin() + std::ptrdiff_t{i} * rows.cols);
    }
    return copy;
  };
  const Matrix one = run(0, 17), other = run(1, 18);
  for (std::uint32_t i = 0; i < 6; ++i) EXPECT_EQ(same_bits(one.row(i), other.row(i)), i < 2) << "position " << i;
}

TEST_P(ConformanceOfSteps, NothingIsAllocatedForAStep) {
  SmallModel model(backend(), 16, KvPool::Order::Scattered);
  std::vector<Token> tokens(kSizes.rows, 3);
  std::vector<Batch> batches;
  for (std::uint32_t s = 0; s < SmallModel::kSequences; ++s) {
    batches.push_back(model.batch(std::vector<Part>{{.sequence = s, .rows = 40, .logits = Logits::Last}}, tokens));
  }
  // Single tokens and chunks of several sequences, and a step of the largest size that was prepared.
  std::vector<Part> mixed, largest;
  for (std::uint32_t s = 0; s < SmallModel::kSequences; ++s) {
    mixed.push_back({.sequence = s, .position = 40, .rows = s % 2 == 0 ? 1 : 9u, .logits = Logits::Last});
    largest.push_back({.sequence = s,
                       .position = mixed.back().position + mixed.back().rows,
                       .rows = s == 0 ? 56 : 50u,
                       .logits = Logits::All});
  }
  batches.push_back(model.batch(mixed, tokens));
  batches.push_back(model.batch(largest, tokens));
  ASSERT_EQ(batches.back().rows(), kSizes.rows);
  const std::uint64_t before = quire::testing::allocations;
  for (const Batch& batch : batches) model.forward(batch);
  EXPECT_EQ(quire::testing::allocations, before);
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfSteps, ::testing::ValuesIn(backends_under_test()), name_of);

// --- backends that differ only in their number of threads and in their instructions

class ConformanceOfFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(ConformanceOfFamilies, LogitsHaveTheSameBitsWhateverTheThreadsAndInstructions) {
  std::vector<std::vector<Matrix>> all;
  for (const BackendUnderTest& one : backends_under_test()) {
    if (one.family != GetParam()) continue;
    const std::unique_ptr<Backend> backend = one.make();
    all.push_back(logits_of_all(*backend, at_random(kLengths, 200, 1)));
    SCOPED_TRACE(one.name);
    expect_same_logits(all.back(), all.front());
  }
}

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const BackendUnderTest& one : backends_under_test()) names.push_back(one.family);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfFamilies, ::testing::ValuesIn(families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace quire::conformance

// What a backend promises for attention over stored keys and values.
#include "quire/backend/conformance_batches_testing.h"

namespace quire::conformance {
namespace {

// Queries, keys and values of one sequence: [positions][heads * head_dim].
struct Context {
  Matrix q, k, v;
};
std::vector<Context> random_contexts(const AttentionShape& shape, std::span<const std::uint32_t> lengths) {
  std::vector<Context> contexts;
  for (std::uint32_t s = 0; s < lengths.size(); ++s) {
    contexts.push_back({random_matrix(lengths[s], shape.heads * shape.head_dim, 100 + s),
                        random_matrix(lengths[s], shape.kv_heads * shape.head_dim, 200 + s),
                        random_matrix(lengths[s], shape.kv_heads * shape.head_dim, 300 + s)});
  }
  return contexts;
}
void append(Matrix& to, const Matrix& from) {
  to.rows += from.rows;
  to.cols = from.cols;
  to.values.insert(to.values.end(), from.values.begin(), from.values.end());
}

// How keys and values are laid out in a test.
struct Layout {
  ElementType type = ElementType::F32;
  std::uint32_t block_size = 16;  // 0: all positions of a sequence in one block
  KvPool::Order order = KvPool::Order::Scattered;
};

class ConformanceOfAttention : public Conformance {
 protected:
  static constexpr std::uint32_t kLayers = 3;

  KvPool make_pool(const AttentionShape& shape, const Layout& layout, std::uint32_t sequences,
                   std::uint32_t positions) {
    const PageShape page{.block_size = layout.block_size == 0 ? positions : layout.block_size,
                         .num_layers = kLayers,
                         .num_kv_heads = shape.kv_heads,
                         .head_dim = shape.head_dim,
                         .type = layout.type};
    return {backend().device(), page, sequences, positions, layout.order};
  }

  // One step of some sequences. The results of their rows are written to `out`.
  struct Entry {
    std::uint32_t sequence, position, rows;
  };
  void attend(const AttentionShape& shape, const KvPool& pool, std::span<const Context> contexts,
              std::span<const Entry> entries, std::vector<Matrix>& out, bool store = true) {
    Context rows;
    std::vector<Part> parts;
    for (const auto& [s, position, count] : entries) {
      parts.push_back({.sequence = s, .position = position, .rows = count});
      append(rows.q, contexts[s].q.row_range(position, count));
      append(rows.k, contexts[s].k.row_range(position, count));
      append(rows.v, contexts[s].v.row_range(position, count));
    }
    Tensors own(backend().device());
    const Tensor q = own.put(rows.q), k = own.put(rows.k), v = own.put(rows.v);
    const Tensor to = own.room(rows.q.rows, rows.q.cols);
    // The second of two groups, so that a wrong group number shows.
    step(make_batch(parts, {.kv = {KvGroupView{}, pool.view()}}), [&] {
      if (store) backend().store_kv(shape, q, k, v, {});
      backend().attention(to, q, shape);
    });
    const Matrix all = own.get(to);
    std::uint32_t row = 0;
    for (const auto& [s, position, count] : entries) {
      for (std::uint32_t i = 0; i < count; ++i, ++row) {
        std::ranges::copy(all.row(row), out[s].values.begin() + std::ptrdiff_t{position + i} * all.cols);
      }
    }
  }

  // Runs all positions of all sequences in the steps of a schedule. With a window, pages that no row can see any more
  // are released.
  std::vector<Matrix> attend_all(const AttentionShape& shape, const Layout& layout, std::span<const Context> contexts,
                                 const Schedule& schedule) {
    std::uint32_t positions = 0;
    std::vector<Matrix> out;
    for (const Context& context : contexts) {
      positions = std::max(positions, context.q.rows);
      out.emplace_back(context.q.rows, context.q.cols, poison());
    }
    KvPool pool = make_pool(shape, layout, static_cast<std::uint32_t>(contexts.size()), positions);
    std::vector<std::uint32_t> lengths(contexts.size());
    for (const auto& step : schedule) {
      std::vector<Entry> entries;
      for (const auto& [s, rows] : step) {
        entries.push_back({s, lengths[s], rows});
        if (shape.window != 0 && layout.block_size != 0 && lengths[s] + 1 > shape.window) {
          pool.give_back(s, (lengths[s] + 1 - shape.window) / layout.block_size);
        }
        lengths[s] += rows;
      }
      attend(shape, pool, contexts, entries, out);
    }
    return out;
  }

  // Compares rows of one sequence with the softmax.
  void expect_softmax(const Matrix& got, const AttentionShape& shape, ElementType type, const Context& context,
                      std::span<const std::uint32_t> rows, std::span<const float> sinks = {}) {
    const Matrix k = reference::stored(type, context.k, shape.head_dim),
                 v = reference::stored(type, context.v, shape.head_dim);
    Expected expected(1, got.cols);
    for (const std::uint32_t i : rows) {
      SCOPED_TRACE("position " + std::to_string(i));
      reference::attend(expected, 0, context.q.row(i), k, v, i, shape, sinks);
      expect_close(got.row_range(i, 1), expected, tolerance().attention);
    }
  }
};

std::string describe(const AttentionShape& shape, const Layout& layout) {
  return std::to_string(shape.heads) + " heads on " + std::to_string(shape.kv_heads) + " of " +
         std::to_string(shape.head_dim) + ", window " + std::to_string(shape.window) + ", cap " +
         std::to_string(shape.soft_cap) + ", " + name(layout.type) + ", blocks of " + std::to_string(layout.block_size);
}

void expect_same_bits(std::span<const Matrix> got, std::span<const Matrix> expected) {
  for (std::size_t s = 0; s < got.size(); ++s) {
    for (std::uint32_t i = 0; i < got[s].rows; ++i) {
      if (same_bits(got[s].row(i), expected[s].row(i))) continue;
      ADD_FAILURE() << "sequence " << s << ", position " << i << ": " << got[s].at(i, 0) << " is not "
                    << expected[s].at(i, 0);
      break;
    }
  }
}

// --- attention

TEST_P(ConformanceOfAttention, IsASoftmaxForEverySizeOfHeadAndKeyType) {
  const std::uint32_t length = 140, rows[] = {0, 1, 15, 63, 64, 127, 128, 139};
  AttentionShape shapes[] = {{.heads = 4, .kv_heads = 4, .head_dim = 64},  {.heads = 6, .kv_heads = 2, .head_dim = 80},
                             {.heads = 8, .kv_heads = 1, .head_dim = 128}, {.heads = 4, .kv_heads = 2, .head_dim = 256},
                             {.heads = 6, .kv_heads = 2, .head_dim = 20},  {.heads = 3, .kv_heads = 3, .head_dim = 33},
                             {.heads = 2, .kv_heads = 1, .head_dim = 272}, {.heads = 16, .kv_heads = 2, .head_dim = 96},
                             {.heads = 5, .kv_heads = 1, .head_dim = 1}};
  for (AttentionShape& shape : shapes) {
    shape.group = 1;
    shape.layer = 2;
    shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    const std::vector<Context> contexts = random_contexts(shape, std::span(&length, 1));
    for (const ElementType type : types_stored_by(backend())) {
      SCOPED_TRACE(describe(shape, {.type = type}));
      const auto out = attend_all(shape, {.type = type}, contexts, {{{0, 70}}, {{0, 69}}, {{0, 1}}});
      expect_softmax(out[0], shape, type, contexts[0], rows);
    }
  }
}

TEST_P(ConformanceOfAttention, SeesItsWindowAndNoReleasedPage) {
  const std::uint32_t lengths[] = {150, 90, 230};
  for (const std::uint32_t window : {1u, 2u, 16u, 64u, 70u, 129u, 1000u}) {
    const AttentionShape shape{.group = 1, .heads = 6, .kv_heads = 2, .head_dim = 32, .scale = 0.3f, .window = window};
    SCOPED_TRACE(describe(shape, {}));
    const std::vector<Context> contexts = random_contexts(shape, lengths);
    const auto out = attend_all(shape, {}, contexts, at_random(lengths, 200, window));
    for (std::uint32_t s = 0; s < 3; ++s) {
      SCOPED_TRACE("sequence " + std::to_string(s));
      std::vector<std::uint32_t> rows;
      for (std::uint32_t i = 0; i < lengths[s]; i += 7) rows.push_back(i);
      expect_softmax(out[s], shape, ElementType::F32, contexts[s], rows);
    }
  }
}

TEST_P(ConformanceOfAttention, ScoresAreCapped) {
  const std::uint32_t length = 150, rows[] = {0, 1, 63, 64, 149};
  for (const std::uint32_t window : {0u, 70u}) {
    for (const std::uint32_t dim : {32u, 20u}) {
      const AttentionShape shape{
          .group = 1, .heads = 8, .kv_heads = 2, .head_dim = dim, .scale = 2, .soft_cap = 5, .window = window};
      SCOPED_TRACE(describe(shape, {}));
      const std::vector<Context> contexts = random_contexts(shape, std::span(&length, 1));
      expect_softmax(attend_all(shape, {}, contexts, {{{0, 149}}, {{0, 1}}})[0], shape, ElementType::F32, contexts[0],
                     rows);
    }
  }
}

// Sinks above, among and below the scores.
TEST_P(ConformanceOfAttention, ASinkTakesItsPartOfTheWeights) {
  const std::uint32_t lengths[] = {530, 1, 40}, rows[] = {0, 1, 64, 511, 512, 529};
  Matrix sinks(1, 8);
  sinks.values = {0, 1, -2, 4, 30, -30, 200, 2};
  for (const auto& [dim, window] : {std::pair{64u, 0u}, {64u, 70u}, {20u, 0u}}) {
    const AttentionShape shape{.group = 1,
                               .heads = 8,
                               .kv_heads = 2,
                               .head_dim = dim,
                               .scale = 0.3f,
                               .window = window,
                               .sinks = tensors().put(sinks)};
    const std::vector<Context> contexts = random_contexts(shape, lengths);
    for (const ElementType type : types_stored_by(backend())) {
      if (type != ElementType::F16 && window != 0) continue;
      SCOPED_TRACE(describe(shape, {.type = type}));
      const auto whole =
          attend_all(shape, {.type = type}, contexts, {{{0, 250}}, {{0, 256}}, {{0, 23}}, {{0, 1}, {1, 1}, {2, 40}}});
      expect_softmax(whole[0], shape, type, contexts[0], rows, sinks.values);
      expect_softmax(whole[1], shape, type, contexts[1], std::span(rows).first(1), sinks.values);
      expect_softmax(whole[2], shape, type, contexts[2], std::span(rows).first(2), sinks.values);
      if (type != ElementType::F16) continue;
      expect_same_bits(attend_all(shape, {.type = type}, contexts, at_random(lengths, 256, dim)), whole);
    }
  }
}

// The scores are so large that their exponentials would be infinite if the maximum were not subtracted first.
TEST_P(ConformanceOfAttention, LargeScoresDoNotOverflow) {
  const std::uint32_t length = 200, rows[] = {0, 64, 130, 199};
  const AttentionShape shape{.group = 1, .heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 30};
  const std::vector<Context> contexts = random_contexts(shape, std::span(&length, 1));
  expect_softmax(attend_all(shape, {}, contexts, {{{0, 199}}, {{0, 1}}})[0], shape, ElementType::F32, contexts[0],
                 rows);
}

// A row sees no later token of its prompt: a NaN or an infinity there must not reach it, not even times 0.
TEST_P(ConformanceOfAttention, NonFiniteNumbersOfATokenDoNotReachEarlierRows) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr std::uint32_t kLength = 110, kPoisoned = 75;
  AttentionShape shapes[] = {{.heads = 4, .kv_heads = 1, .head_dim = 64},
                             {.heads = 6, .kv_heads = 2, .head_dim = 80},
                             {.heads = 2, .kv_heads = 2, .head_dim = 128, .window = 30},
                             {.heads = 8, .kv_heads = 1, .head_dim = 256},
                             {.heads = 3, .kv_heads = 1, .head_dim = 33}};
  for (AttentionShape& shape : shapes) {
    shape.group = 1;
    shape.scale = 0.1f;
    const std::vector<Context> clean = random_contexts(shape, std::span(&kLength, 1));
    for (const ElementType type : types_stored_by(backend())) {
      const auto expected = attend_all(shape, {.type = type}, clean, {{{0, kLength}}});
      for (const float value : {kNan, -kInfinity}) {
        SCOPED_TRACE(describe(shape, {.type = type}) + ", " + std::to_string(value));
        std::vector<Context> values = clean, keys = clean;
        for (std::uint32_t d = 0; d < values[0].v.cols; d += 7) values[0].v.at(kPoisoned, d) = value;
        keys[0].k.at(kPoisoned, 2) = value;
        const auto chunk = attend_all(shape, {.type = type}, values, {{{0, kLength}}});
        const auto alone = attend_all(shape, {.type = type}, values, token_by_token(std::span(&kLength, 1)));
        const auto other = attend_all(shape, {.type = type}, keys, {{{0, kLength}}});
        const std::uint32_t unseen = shape.window == 0 ? kLength : kPoisoned + shape.window;
        for (std::uint32_t i = 0; i < kLength; ++i) {
          if (i < kPoisoned || i >= unseen) {
            EXPECT_TRUE(same_bits(chunk[0].row(i), expected[0].row(i))) << "values, position " << i;
            EXPECT_TRUE(same_bits(other[0].row(i), expected[0].row(i))) << "keys, position " << i;
            continue;
          }
          // Those that see it have it, in the same elements as alone.
          EXPECT_FALSE(std::isfinite(chunk[0].at(i, 0))) << "position " << i;
          for (std::uint32_t d = 0; d < chunk[0].cols; ++d) {
            const float a = chunk[0].at(i, d), b = alone[0].at(i, d);
            EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << "position " << i << ", element " << d;
          }
        }
      }
    }
  }
}

TEST_P(ConformanceOfAttention, GoesOverLongContexts) {
  const std::uint32_t lengths[] = {2000, 1500, 700};
  for (const ElementType type : types_stored_by(backend())) {
    const AttentionShape shape{.group = 1, .layer = 1, .heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125f};
    const std::vector<Context> contexts = random_contexts(shape, lengths);
    KvPool pool = make_pool(shape, {.type = type, .block_size = 32}, 3, 2000);
    std::vector<Matrix> out;
    for (std::uint32_t s = 0; s < 3; ++s) {
      pool.write(s, 1, contexts[s].k, contexts[s].v);
      out.emplace_back(lengths[s], contexts[s].q.cols, poison());
    }
    const std::vector<Entry> entries = {{0, 1999, 1}, {1, 1490, 10}, {2, 699, 1}};
    attend(shape, pool, contexts, entries, out, false);
    SCOPED_TRACE(name(type));
    expect_softmax(out[0], shape, type, contexts[0], std::vector{1999u});
    expect_softmax(out[1], shape, type, contexts[1], std::vector{1490u, 1499u});
    expect_softmax(out[2], shape, type, contexts[2], std::vector{699u});
  }
}

// --- the rule of exactness

struct ExactCase {
  AttentionShape shape;
  ElementType type;
};
std::vector<ExactCase> exact_cases(Backend& backend) {
  const AttentionShape plain{.group = 1, .layer = 1, .heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.2f};
  AttentionShape windowed = plain, capped = plain, both = plain;
  windowed.heads = 4, windowed.kv_heads = 1, windowed.head_dim = 32, windowed.window = 100;
  capped.heads = capped.kv_heads = 2, capped.head_dim = 20, capped.soft_cap = 5;
  both.heads = 16, both.kv_heads = 1, both.head_dim = 16, both.window = 70, both.soft_cap = 3;
  std::vector<ExactCase> cases = {{windowed, ElementType::F16}, {capped, ElementType::F32}, {both, ElementType::F16}};
  for (const ElementType type : types_stored_by(backend)) cases.push_back({plain, type});
  return cases;
}
constexpr std::uint32_t kExactLengths[] = {1, 17, 130, 150, 64, 65};

TEST_P(ConformanceOfAttention, HasTheSameBitsHoweverPromptsAreCutAndWhoeverElseIsThere) {
  for (const auto& [shape, type] : exact_cases(backend())) {
    const Layout layout{.type = type};
    SCOPED_TRACE(describe(shape, layout));
    const std::vector<Context> contexts = random_contexts(shape, kExactLengths);
    const auto whole = attend_all(shape, layout, contexts, one_by_one(kExactLengths));
    expect_same_bits(attend_all(shape, layout, contexts, token_by_token(kExactLengths)), whole);
    for (std::uint32_t round = 0; round < repetitions(3); ++round) {
      expect_same_bits(attend_all(shape, layout, contexts, at_random(kExactLengths, 256, round)), whole);
    }
  }
}

TEST_P(ConformanceOfAttention, HasTheSameBitsWhateverTheBlockSizeAndTheOrderOfPages) {
  using Order = KvPool::Order;
  constexpr std::pair<std::uint32_t, Order> kLayouts[] = {{0, Order::Rising},     {5, Order::Scattered},
                                                          {16, Order::Rising},    {1, Order::Scattered},
                                                          {64, Order::Scattered}, {100, Order::Rising}};
  for (const auto& [shape, type] : exact_cases(backend())) {
    const std::vector<Context> contexts = random_contexts(shape, kExactLengths);
    const Schedule schedule = at_random(kExactLengths, 256, 5);
    const auto paged = attend_all(shape, {.type = type}, contexts, schedule);
    for (const auto& [block, order] : std::span(kLayouts).first(std::max(2u, repetitions(std::size(kLayouts))))) {
      const Layout layout{.type = type, .block_size = block, .order = order};
      SCOPED_TRACE(describe(shape, layout));
      expect_same_bits(attend_all(shape, layout, contexts, schedule), paged);
    }
  }
}

// Sequences that begin with the same pages may go over them together. Each gets the same result as alone.
TEST_P(ConformanceOfAttention, OverSharedPagesHasTheSameBitsAsAlone) {
  constexpr std::uint32_t kSequences = 9, kBlock = 16, kLength = 14 * kBlock;
  const AttentionShape shape{.group = 1, .heads = 6, .kv_heads = 2, .head_dim = 32, .scale = 0.5f};
  std::vector<std::uint32_t> lengths(kSequences, kLength);
  std::vector<Context> contexts = random_contexts(shape, lengths);
  // The number of pages that a sequence shares with the first one. Its keys and values there are those of the first
  // one.
  const std::uint32_t shared[kSequences] = {0, 12, 12, 8, 8, 0, 13, 4, 12};
  for (std::uint32_t s = 0; s < kSequences; ++s) {
    const std::ptrdiff_t count = std::ptrdiff_t{shared[s]} * kBlock * contexts[s].k.cols;
    std::copy_n(contexts[0].k.values.begin(), count, contexts[s].k.values.begin());
    std::copy_n(contexts[0].v.values.begin(), count, contexts[s].v.values.begin());
  }
  for (const ElementType type : types_stored_by(backend())) {
    SCOPED_TRACE(name(type));
    KvPool pool = make_pool(shape, {.type = type}, kSequences, kLength);
    for (std::uint32_t s = 0; s < kSequences; ++s) {
      pool.share(0, s, shared[s]);
      pool.write(s, 0, contexts[s].k, contexts[s].v);
    }
    const std::vector<Matrix> nothing(kSequences, Matrix(kLength, contexts[0].q.cols));
    std::vector<Matrix> together = nothing, alone = nothing;
    std::vector<Entry> entries;
    for (std::uint32_t s = 0; s < kSequences; ++s) {
      // One of them is a prefill chunk.
      entries.push_back(s == 4 ? Entry{s, 10 * kBlock, 30} : Entry{s, 13 * kBlock + s, 1});
    }
    attend(shape, pool, contexts, entries, together, false);
    for (const Entry& entry : entries) attend(shape, pool, contexts, std::span(&entry, 1), alone, false);
    expect_same_bits(together, alone);
    for (const Entry& entry : entries) {
      expect_softmax(alone[entry.sequence], shape, type, contexts[entry.sequence], std::vector{entry.position});
    }
  }
}

// A context of several sections can be divided among threads. One sequence alone, many, and the end of a prompt's chunk
// divide it differently.
TEST_P(ConformanceOfAttention, LongContextsHaveTheSameBitsAloneAmongOthersAndInAChunk) {
  constexpr std::uint32_t kLengths[] = {1700, 1025, 512, 513, 1540, 90, 1100, 600};
  for (const std::uint32_t window : {0u, 700u}) {
    for (const ElementType type : types_stored_by(backend())) {
      const AttentionShape shape{
          .group = 1, .layer = 1, .heads = 4, .kv_heads = 2, .head_dim = 32, .scale = 0.3f, .window = window};
      const Layout layout{.type = type, .block_size = 64};
      SCOPED_TRACE(describe(shape, layout));
      const std::vector<Context> contexts = random_contexts(shape, kLengths);
      KvPool pool = make_pool(shape, layout, std::size(kLengths), 1700);
      std::vector<Matrix> nothing;
      std::vector<Entry> last, chunks;
      for (std::uint32_t s = 0; s < std::size(kLengths); ++s) {
        pool.write(s, 1, contexts[s].k, contexts[s].v);
        nothing.emplace_back(kLengths[s], contexts[s].q.cols);
        last.push_back({s, kLengths[s] - 1, 1});
        chunks.push_back({s, kLengths[s] - 30, 30});
      }
      std::vector<Matrix> alone = nothing, together = nothing, in_chunks = nothing;
      for (const Entry& entry : last) attend(shape, pool, contexts, std::span(&entry, 1), alone, false);
      attend(shape, pool, contexts, last, together, false);
      expect_same_bits(together, alone);
      for (const Entry& entry : chunks) attend(shape, pool, contexts, std::span(&entry, 1), in_chunks, false);
      for (const Entry& entry : last) {
        EXPECT_TRUE(same_bits(in_chunks[entry.sequence].row(entry.position), alone[entry.sequence].row(entry.position)))
            << "sequence " << entry.sequence;
        expect_softmax(alone[entry.sequence], shape, type, contexts[entry.sequence], std::vector{entry.position});
      }
    }
  }
}

// Two layers of one step, and the same layer of two groups, do not affect each other.
TEST_P(ConformanceOfAttention, LayersAndGroupsAreIndependent) {
  const std::uint32_t length = 50, rows[] = {0, 49};
  AttentionShape shapes[] = {
      {.group = 0, .layer = 0, .heads = 4, .kv_heads = 2, .head_dim = 32, .scale = 0.2f},
      {.group = 0, .layer = 2, .heads = 4, .kv_heads = 2, .head_dim = 32, .scale = 0.2f},
      {.group = 1, .layer = 0, .heads = 6, .kv_heads = 1, .head_dim = 20, .scale = 0.2f, .window = 9},
  };
  const KvPool full = make_pool(shapes[0], {}, 1, length),
               windowed = make_pool(shapes[2], {.block_size = 5}, 1, length);
  std::vector<Context> contexts;
  std::vector<Tensor> outs;
  const Batch batch = make_batch(std::vector<Part>{{.rows = length}}, {.kv = {full.view(), windowed.view()}});
  step(batch, [&] {
    std::vector<std::array<Tensor, 3>> qkv;
    for (const AttentionShape& shape : shapes) {
      contexts.push_back(random_contexts(shape, std::span(&length, 1))[0]);
      for (Matrix* m : {&contexts.back().k, &contexts.back().v}) {
        for (float& value : m->values) value += static_cast<float>(contexts.size());
      }
      qkv.push_back(
          {tensors().put(contexts.back().q), tensors().put(contexts.back().k), tensors().put(contexts.back().v)});
      outs.push_back(tensors().room(length, shape.heads * shape.head_dim));
    }
    for (int i = 0; i < 3; ++i) backend().store_kv(shapes[i], qkv[i][0], qkv[i][1], qkv[i][2], {});
    for (int i = 0; i < 3; ++i) backend().attention(outs[i], qkv[i][0], shapes[i]);
  });
  for (int i = 0; i < 3; ++i) expect_softmax(tensors().get(outs[i]), shapes[i], ElementType::F32, contexts[i], rows);
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfAttention, ::testing::ValuesIn(backends_under_test()), name_of);

}  // namespace
}  // namespace quire::conformance

// What a backend promises for latent attention: the value of a position is the beginning of its key, all heads share
// one key, and each head has projections of its own.
#include "quire/backend/conformance_batches_testing.h"

namespace quire::conformance {
namespace {

class ConformanceOfLatentAttention : public Conformance {
 protected:
  static constexpr std::uint32_t kLayers = 3;

  // Wider than the other tests: 16 heads of a row as DeepSeek's models have it.
  ConformanceOfLatentAttention() {
    Backend::Sizes sizes = kSizes;
    sizes.attention_cols = 16 * 576;
    sizes.cols = 16 * 512;
    must(backend().prepare(sizes));
  }

  KvPool make_pool(const AttentionShape& shape, ElementType type, std::uint32_t sequences, std::uint32_t positions,
                   std::uint32_t block_size = 16, KvPool::Order order = KvPool::Order::Scattered) {
    const PageShape page{.block_size = block_size,
                         .num_layers = kLayers,
                         .num_kv_heads = 1,
                         .head_dim = shape.head_dim,
                         .planes = 1,
                         .type = type};
    return {backend().device(), page, sequences, positions, order};
  }

  struct Context {
    Matrix q, k;
  };
  static std::vector<Context> random_contexts(const AttentionShape& shape, std::span<const std::uint32_t> lengths) {
    std::vector<Context> contexts;
    for (std::uint32_t s = 0; s < lengths.size(); ++s) {
      contexts.push_back({random_matrix(lengths[s], shape.heads * shape.head_dim, 100 + s),
                          random_matrix(lengths[s], shape.head_dim, 200 + s)});
    }
    return contexts;
  }

  // One step of some sequences: (sequence, position, rows).
  struct Entry {
    std::uint32_t sequence, position, rows;
  };
  void attend(const AttentionShape& shape, const KvPool& pool, std::span<const Context> contexts,
              std::span<const Entry> entries, std::vector<Matrix>& out) {
    Matrix q(0, shape.heads * shape.head_dim), k(0, shape.head_dim);
    std::vector<Part> parts;
    for (const auto& [s, position, count] : entries) {
      parts.push_back({.sequence = s, .position = position, .rows = count});
      for (const auto& [to, from] : {std::pair{&q, &contexts[s].q}, {&k, &contexts[s].k}}) {
        const Matrix rows = from->row_range(position, count);
        to->rows += count;
        to->values.insert(to->values.end(), rows.values.begin(), rows.values.end());
      }
    }
    Tensors own(backend().device());
    const Tensor queries = own.put(q), keys = own.put(k), to = own.room(q.rows, shape.heads * shape.value_dim);
    step(make_batch(parts, {.kv = {KvGroupView{}, pool.view()}}), [&] {
      backend().store_kv(shape, queries, keys, {}, {});
      backend().attention(to, queries, shape);
    });
    const Matrix all = own.get(to);
    std::uint32_t row = 0;
    for (const auto& [s, position, count] : entries) {
      for (std::uint32_t i = 0; i < count; ++i, ++row) {
        std::ranges::copy(all.row(row), out[s].values.begin() + std::ptrdiff_t{position + i} * all.cols);
      }
    }
  }

  std::vector<Matrix> attend_all(const AttentionShape& shape, ElementType type, std::span<const Context> contexts,
                                 const Schedule& schedule, std::uint32_t block_size = 16) {
    std::uint32_t positions = 0;
    std::vector<Matrix> out;
    for (const Context& context : contexts) {
      positions = std::max(positions, context.q.rows);
      out.emplace_back(context.q.rows, shape.heads * shape.value_dim, poison());
    }
    const KvPool pool = make_pool(shape, type, static_cast<std::uint32_t>(contexts.size()), positions, block_size);
    std::vector<std::uint32_t> lengths(contexts.size());
    for (const auto& step : schedule) {
      std::vector<Entry> entries;
      for (const auto& [s, rows] : step) {
        entries.push_back({s, lengths[s], rows});
        lengths[s] += rows;
      }
      attend(shape, pool, contexts, entries, out);
    }
    return out;
  }
};

std::string describe(const AttentionShape& shape, ElementType type) {
  return std::to_string(shape.heads) + " heads, keys of " + std::to_string(shape.head_dim) + ", values of " +
         std::to_string(shape.value_dim) + ", " + name(type);
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

TEST_P(ConformanceOfLatentAttention, IsASoftmaxOverKeysWhoseBeginningsAreTheValues) {
  const std::uint32_t length = 140, rows[] = {0, 1, 15, 63, 64, 127, 128, 139};
  for (AttentionShape shape : {AttentionShape{.heads = 4, .kv_heads = 1, .head_dim = 48, .value_dim = 32},
                               {.heads = 16, .kv_heads = 1, .head_dim = 576, .value_dim = 512},
                               {.heads = 16, .kv_heads = 1, .head_dim = 96, .value_dim = 64},
                               {.heads = 7, .kv_heads = 1, .head_dim = 272, .value_dim = 256},
                               {.heads = 12, .kv_heads = 1, .head_dim = 37, .value_dim = 21},
                               {.heads = 3, .kv_heads = 1, .head_dim = 40, .value_dim = 40}}) {
    shape.group = 1;
    shape.layer = 2;
    shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
    const std::vector<Context> contexts = random_contexts(shape, std::span(&length, 1));
    for (const ElementType type : types_stored_by(backend())) {
      SCOPED_TRACE(describe(shape, type));
      const auto out = attend_all(shape, type, contexts, {{{0, 70}}, {{0, 69}}, {{0, 1}}});
      const Matrix k = reference::stored(type, contexts[0].k, shape.head_dim);
      Expected expected(1, out[0].cols);
      for (const std::uint32_t i : rows) {
        SCOPED_TRACE("position " + std::to_string(i));
        reference::attend(expected, 0, contexts[0].q.row(i), k, k, i, shape);
        expect_close(out[0].row_range(i, 1), expected, tolerance().attention);
      }
    }
  }
}

TEST_P(ConformanceOfLatentAttention, HasTheSameBitsHoweverPromptsAreCutAndWhateverTheBlockSize) {
  constexpr std::uint32_t kLengths[] = {1, 17, 130, 150, 64, 530};
  for (const AttentionShape& shape :
       {AttentionShape{.group = 1, .heads = 16, .kv_heads = 1, .head_dim = 64, .value_dim = 48, .scale = 0.2f},
        {.group = 1, .layer = 1, .heads = 6, .kv_heads = 1, .head_dim = 40, .value_dim = 24, .scale = 0.3f}}) {
    for (const ElementType type : types_stored_by(backend())) {
      SCOPED_TRACE(describe(shape, type));
      // The long one has several sections.
      const auto lengths = std::span(kLengths).first(type == ElementType::F16 ? 6 : 5);
      const std::vector<Context> contexts = random_contexts(shape, lengths);
      Schedule whole = one_by_one(lengths);
      if (type == ElementType::F16) {
        whole.back() = {{5, 256}};
        whole.push_back({{5, 256}});
        whole.push_back({{5, 18}});
      }
      const auto expected = attend_all(shape, type, contexts, whole);
      expect_same_bits(attend_all(shape, type, contexts, token_by_token(lengths)), expected);
      for (std::uint32_t round = 0; round < repetitions(2); ++round) {
        const Schedule schedule = at_random(lengths, 256, round);
        expect_same_bits(attend_all(shape, type, contexts, schedule, round == 0 ? 16 : 5), expected);
      }
    }
  }
}

// Rotation does not begin at the first element, and nothing but keys is written.
TEST_P(ConformanceOfLatentAttention, TheLastElementsOfAHeadAreRotatedAndKeysAloneAreStored) {
  struct Case {
    std::uint32_t head_dim, value_dim, from, pairs;
    RopePairs order;
  };
  for (const Case& one : {Case{48, 32, 32, 8, RopePairs::Neighbours},
                          {48, 32, 32, 8, RopePairs::Halves},
                          {576, 512, 512, 32, RopePairs::Neighbours},
                          {37, 20, 21, 5, RopePairs::Neighbours}}) {
    for (const ElementType type : types_stored_by(backend())) {
      const AttentionShape shape{
          .group = 1, .layer = 1, .heads = 6, .kv_heads = 1, .head_dim = one.head_dim, .value_dim = one.value_dim};
      SCOPED_TRACE(describe(shape, type));
      const std::vector<Part> parts = {{.position = 0, .rows = 5}, {.sequence = 1, .position = 14, .rows = 3}};
      KvPool pool = make_pool(shape, type, 2, 20);
      const Batch batch = make_batch(parts, {.kv = {KvGroupView{}, pool.view()}});
      const Matrix q = random_matrix(8, 6 * one.head_dim, 6), k = random_matrix(8, one.head_dim, 7);
      const Matrix angles = random_matrix(8, one.pairs, 11);
      reference::HostHeadChanges changes{.cosines = angles, .sines = angles, .pairs = one.order};
      changes.rotated_from = one.from;
      for (std::size_t i = 0; i < angles.values.size(); ++i) {
        changes.cosines.values[i] = std::cos(angles.values[i]);
        changes.sines.values[i] = std::sin(angles.values[i]);
      }
      const Tensor queries = tensors().put(q), keys = tensors().put_within(k, 3, 5);
      const HeadChanges on{.cosines = tensors().put(changes.cosines),
                           .sines = tensors().put(changes.sines),
                           .rotated_from = one.from,
                           .pairs = one.order};
      step(batch, [&] { backend().store_kv(shape, queries, keys, {}, on); });
      expect_close(tensors().get(queries), reference::change_heads(q, one.head_dim, {}, changes), tolerance().floats);
      const Expected rotated = reference::change_heads(k, one.head_dim, {}, changes);
      const Matrix got = tensors().get(keys);
      expect_close(got, rotated, tolerance().floats);
      EXPECT_TRUE(tensors().surroundings_are_untouched(keys));
      // What is in the page is what was rotated, as its type has it.
      const Matrix stored = reference::stored(type, got, one.head_dim);
      for (std::uint32_t row = 0; row < 8; ++row) {
        const std::uint32_t s = row < 5 ? 0 : 1, position = row < 5 ? row : 14 + row - 5;
        EXPECT_TRUE(same_bits(pool.key(s, 1, position), stored.row(row))) << "row " << row;
        for (const std::uint32_t other : {0u, 2u}) {
          for (const float value : pool.key(s, other, position)) EXPECT_TRUE(std::isnan(value)) << "layer " << other;
        }
      }
    }
  }
}

// --- products of heads

class ConformanceOfHeadProducts : public ConformanceOfLatentAttention {
 protected:
  // Matrices of heads, one after the other on the device as a loader has them.
  struct LoadedHeads {
    std::vector<FileWeight> files;
    std::vector<std::byte> bytes;  // of all, for backends that use them in place
    DeviceBuffer memory;
    Weight weight;
  };
  LoadedHeads load_heads(gguf::Type type, std::uint32_t heads, std::uint32_t rows, std::uint32_t cols) {
    LoadedHeads loaded;
    loaded.bytes = random_weight(type, heads * rows, cols, 17).bytes;
    const FileMatrix joint{type, heads * rows, cols, loaded.bytes.data(), loaded.bytes.size() / (heads * rows)};
    const std::uint64_t each =
        round_up(backend().weight_bytes(joint.part(0, rows), WeightUse::Heads), kObjectAlignment);
    loaded.memory = must(DeviceBuffer::create(backend().device(), heads * each));
    for (std::uint32_t h = 0; h < heads; ++h) {
      const FileMatrix part = joint.part(h * rows, rows);
      loaded.files.push_back({type, rows, cols, {part.data, part.data + part.bytes()}});
      const Weight one = must(backend().load(part, WeightUse::Heads, loaded.memory.data() + h * each));
      if (h == 0) loaded.weight = one;
    }
    loaded.weight.count = heads;
    loaded.weight.stride = each != 0 ? each : rows * joint.row_bytes;
    must(backend().device().fence());
    return loaded;
  }

  Matrix multiply(const LoadedHeads& heads, const Matrix& x, std::uint32_t copied, std::uint32_t before = 0) {
    const Tensor in = tensors().put_within(x, before, 2 * before);
    const Tensor out = tensors().room_within(x.rows, heads.weight.count * (heads.weight.rows + copied), before, before);
    step(rows_alone(x.rows), [&] { backend().matmul_heads({.out = out, .x = in, .weight = &heads.weight}); });
    EXPECT_TRUE(before == 0 || tensors().surroundings_are_untouched(out));
    return tensors().get(out);
  }

  Expected expected(const LoadedHeads& heads, const Matrix& x, std::uint32_t copied) const {
    const auto count = static_cast<std::uint32_t>(heads.files.size());
    const std::uint32_t rows = heads.files[0].rows, cols = heads.files[0].cols;
    Expected out(x.rows, count * (rows + copied));
    for (std::uint32_t h = 0; h < count; ++h) {
      const Matrix weight = heads.files[h].values();
      for (std::uint32_t i = 0; i < x.rows; ++i) {
        const auto head = x.row(i).subspan(std::size_t{h} * (cols + copied), cols + copied);
        reference::Row input = reference::to_doubles(head.first(cols));
        if (GetParam().inputs_rounded) input = reference::rounded_input(heads.files[0].type, input);
        const Expected one = reference::product(weight, std::span(&input, 1));
        const std::uint32_t at = h * (rows + copied);
        for (std::uint32_t n = 0; n < rows; ++n) out.set(i, at + n, one.values[n], one.sizes[n]);
        for (std::uint32_t c = 0; c < copied; ++c) out.set(i, at + rows + c, head[cols + c], 0);
      }
    }
    return out;
  }
  double tolerance_of(gguf::Type type) const {
    return reference::is_float(type) ? tolerance().products : tolerance().quantised;
  }
};

TEST_P(ConformanceOfHeadProducts, OfEveryTypeMatchTheReferenceAndCopyTheRest) {
  for (const gguf::Type type : reference::weight_types()) {
    const std::uint32_t block = gguf::type_info(type).block_size;
    const std::uint32_t cols = block == 1 ? 20 : block == 32 ? 96 : 256;
    for (const std::uint32_t outputs : {32u, 21u}) {
      const LoadedHeads heads = load_heads(type, 5, outputs, cols);
      for (const std::uint32_t rows : {1u, 6u, 40u}) {
        for (const std::uint32_t copied : {0u, 8u}) {
          SCOPED_TRACE(std::string(gguf::type_name(type)) + ", " + std::to_string(outputs) + " outputs, " +
                       std::to_string(rows) + " rows, " + std::to_string(copied) + " copied");
          const Matrix x = random_matrix(rows, 5 * (cols + copied), 40);
          expect_close(multiply(heads, x, copied, 4), expected(heads, x, copied), tolerance_of(type));
        }
      }
    }
  }
}

TEST_P(ConformanceOfHeadProducts, HaveTheSizesOfDeepSeek) {
  const LoadedHeads keys = load_heads(gguf::Type::Q8_0, 16, 512, 128),
                    values = load_heads(gguf::Type::F16, 16, 128, 512);
  const Matrix q = random_matrix(3, 16 * (128 + 64), 41), attended = random_matrix(3, 16 * 512, 42);
  expect_close(multiply(keys, q, 64), expected(keys, q, 64), tolerance_of(gguf::Type::Q8_0));
  expect_close(multiply(values, attended, 0), expected(values, attended, 0), tolerance_of(gguf::Type::F16));
}

TEST_P(ConformanceOfHeadProducts, HaveTheSameBitsForARowAloneAndAmongOthers) {
  for (const gguf::Type type : {gguf::Type::F16, gguf::Type::Q8_0, gguf::Type::Q4_1, gguf::Type::Q4_K}) {
    SCOPED_TRACE(gguf::type_name(type));
    constexpr std::uint32_t kRows = 37, kHeads = 3, kCopied = 16, kCols = 256, kOutputs = 48;
    const LoadedHeads heads = load_heads(type, kHeads, kOutputs, kCols);
    const Matrix x = random_matrix(kRows, kHeads * (kCols + kCopied), 50);
    const Matrix whole = multiply(heads, x, kCopied);
    for (std::uint32_t i = 0; i < kRows; i += 5) {
      EXPECT_TRUE(same_bits(multiply(heads, x.row_range(i, 1), kCopied).row(0), whole.row(i))) << "row " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfLatentAttention, ::testing::ValuesIn(backends_under_test()), name_of);
INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfHeadProducts, ::testing::ValuesIn(backends_under_test()), name_of);

}  // namespace
}  // namespace quire::conformance

// Adapters of every architecture: what they compute, and which files are refused.
#include "quire/model/adapter.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/backends_testing.h"
#include "quire/model/adapter_testing.h"
#include "quire/model/model_testing.h"
#include "quire/model/runner.h"

namespace quire::model {
namespace {

using testing::adapter_for;
using testing::OpenedModel;
using testing::TestAdapter;
using testing::TestModel;

TestModel small_model(const Architecture& row) {
  TestModel model = TestModel::of(row);
  if (row.has(BlockKind::Attention) && row.recurs() && !row.alternates()) {
    model.with_both(2);
  } else {
    const bool first = row.recurs(), second = row.recurs() && !row.has(BlockKind::Attention);
    model.with_tensors({first, second});
  }
  return model.randomize(7);
}

struct Loaded {
  std::vector<std::byte> image;
  std::vector<std::vector<std::byte>> adapters;
  std::unique_ptr<Model> model;
};

Loaded load(std::vector<std::byte> image, const std::vector<TestAdapter>& adapters = {}) {
  Loaded to;
  to.image = std::move(image);
  auto file = gguf::File::from_memory(to.image, "model");
  EXPECT_TRUE(file) << file.error().message;
  auto model = Model::create(std::move(*file));
  EXPECT_TRUE(model) << model.error().message;
  to.model = std::move(*model);
  for (const TestAdapter& adapter : adapters) {
    to.adapters.push_back(adapter.image());
    const std::string name = "a" + std::to_string(to.adapters.size());
    const auto ok =
        to.model->add_adapter(*gguf::File::from_memory(to.adapters.back(), name), {.name = name, .file = {}});
    EXPECT_TRUE(ok) << ok.error().message;
  }
  return to;
}

struct Asked {
  std::vector<Token> tokens;
  std::uint32_t adapter = 0;
};

// The logits of every token, of all of them in the same steps, `chunk` tokens of each at a time.
std::vector<std::vector<float>> logits(Loaded& loaded, Backend& backend, const std::vector<Asked>& asked,
                                       std::uint32_t chunk = 100) {
  Model& model = *loaded.model;
  const auto prepared = model.prepare(backend, 64, 64);
  EXPECT_TRUE(prepared) << prepared.error().message;
  PoolConfig config{.layout = *model.layout(16, ElementType::F32), .max_sequences = 8, .max_tokens = 100};
  config.budget_bytes = 1 << 20;
  auto pool = *SequencePool::create(backend.device(), config);
  auto runner = *Runner::create(model, *pool);
  Batch batch = runner.make_batch();
  std::vector<SequenceId> ids;
  for (const Asked& each : asked) ids.push_back(pool->create({.prompt = each.tokens, .reuse = false})->id);
  std::vector<std::vector<float>> out(asked.size());
  for (std::size_t done = 0; done < asked[0].tokens.size(); done += chunk) {
    batch.clear();
    const std::size_t count = std::min<std::size_t>(chunk, asked[0].tokens.size() - done);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      batch.add(ids[i], std::span(asked[i].tokens).subspan(done, count), Logits::All, false, {}, asked[i].adapter);
    }
    const auto rows = runner.run(batch);
    EXPECT_TRUE(rows) << rows.error().message();
    if (!rows) return out;
    for (std::uint32_t row = 0; row < rows->rows; ++row) {
      auto& to = out[row / count];
      to.insert(to.end(), rows->row(row).begin(), rows->row(row).end());
    }
  }
  return out;
}

const std::vector<Token> kTokens = {0, 2, 1, 1, 0, 2, 2, 1, 0, 1, 2};

TEST(Adapters, GiveWhatAModelWithMergedWeightsGivesInEveryArchitecture) {
  for (const Architecture& row : architectures()) {
    SCOPED_TRACE(row.name);
    TestModel model = small_model(row);
    const OpenedModel opened(model);
    const TestAdapter adapter = adapter_for(*opened.file, 3, 11, 1.5F);
    TestModel merged = model;
    bool changed = false;
    for (std::size_t i = 0; i < opened.file->tensor_count(); ++i) {
      const gguf::Tensor tensor = opened.file->tensor(i);
      const std::string name(tensor.name);
      const std::vector<std::uint64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims);
      if (name == "token_embd.weight" && !opened.file->find_tensor("output.weight")) {
        // The output is the embedding too, and that is not adapted: give the merged model one of its own.
        merged.tensor("output.weight", shape, model.weights(name));
      }
      merged.tensor(name, shape, adapter.merged(name, model.weights(name), shape));
      changed = true;
    }
    ASSERT_TRUE(changed);
    for (const quire::testing::BackendKind& kind : quire::testing::backend_kinds()) {
      SCOPED_TRACE(kind.name);
      const auto backend = kind.make(2);
      Loaded plain = load(model.image(), {adapter}), other = load(merged.image());
      const auto expected = logits(other, *backend, {{kTokens}});
      const auto base = logits(plain, *backend, {{kTokens}});
      const auto adapted = logits(plain, *backend, {{kTokens, 1}});
      ASSERT_EQ(expected[0].size(), adapted[0].size());
      double largest = 0, off = 0, apart = 0;
      for (std::size_t i = 0; i < expected[0].size(); ++i) {
        largest = std::max(largest, std::abs(double{expected[0][i]}));
        off = std::max(off, std::abs(double{expected[0][i]} - adapted[0][i]));
        apart = std::max(apart, std::abs(double{expected[0][i]} - base[0][i]));
      }
      EXPECT_LE(off, (kind.gpu ? 2e-2 : 1e-4) * largest);
      EXPECT_GE(apart, 0.02 * largest) << "the adapter changes something";
    }
  }
}

TEST(Adapters, GiveTheSameBitsInOneStepAsAlone) {
  for (const Architecture& row : architectures()) {
    SCOPED_TRACE(row.name);
    const TestModel model = small_model(row);
    const OpenedModel opened(model);
    const std::vector<TestAdapter> adapters = {adapter_for(*opened.file, 3, 11), adapter_for(*opened.file, 20, 12, 8)};
    for (const quire::testing::BackendKind& kind : quire::testing::backend_kinds()) {
      SCOPED_TRACE(kind.name);
      const auto one = kind.make(1), three = kind.make(3);
      Loaded loaded = load(model.image(), adapters), other = load(model.image(), adapters);
      std::vector<std::vector<float>> alone;
      for (std::uint32_t adapter = 0; adapter <= 2; ++adapter) {
        alone.push_back(logits(loaded, *one, {{kTokens, adapter}})[0]);
      }
      const std::vector<Asked> mixed = {{kTokens, 2}, {kTokens, 0}, {kTokens, 1}, {kTokens, 0}, {kTokens, 2}};
      for (const std::uint32_t chunk : {100u, 1u, 3u}) {
        const auto together = logits(other, *three, mixed, chunk);
        for (std::size_t i = 0; i < mixed.size(); ++i) {
          const auto& expected = alone[mixed[i].adapter];
          ASSERT_EQ(together[i].size(), expected.size());
          EXPECT_EQ(std::memcmp(together[i].data(), expected.data(), expected.size() * sizeof(float)), 0)
              << "sequence " << i << ", chunks of " << chunk;
        }
      }
    }
  }
}

TEST(Adapters, OfTheOutputAloneFitAModelWhoseOutputIsItsEmbedding) {
  const TestModel model = small_model(*find_architecture("llama"));
  const OpenedModel opened(model);
  ASSERT_FALSE(opened.file->find_tensor("output.weight"));
  TestAdapter adapter("llama");
  adapter.adapt("output.weight", {16, 3}, 2, 5);
  TestModel merged = model;
  merged.tensor("output.weight", {16, 3}, adapter.merged("output.weight", model.weights("token_embd.weight"), {16, 3}));
  const auto backend = quire::testing::backend_kinds().back().make(2);
  Loaded plain = load(model.image(), {adapter}), other = load(merged.image());
  const auto expected = logits(other, *backend, {{kTokens}}), adapted = logits(plain, *backend, {{kTokens, 1}});
  for (std::size_t i = 0; i < expected[0].size(); ++i) EXPECT_NEAR(expected[0][i], adapted[0][i], 1e-2);
}

TEST(Adapters, ScaleIsAlphaByRankTimesTheCallers) {
  const TestModel model = small_model(*find_architecture("llama"));
  const OpenedModel opened(model);
  const auto scale = [&](float alpha, float given) {
    Loaded loaded = load(model.image());
    const auto image = adapter_for(*opened.file, 4, 1, alpha).image();
    EXPECT_TRUE(
        loaded.model->add_adapter(*gguf::File::from_memory(image, "x"), {.name = "x", .file = {}, .scale = given}));
    const Adapter& adapter = loaded.model->adapters()[0];
    return adapter.scale_of(adapter.targets()[0]);
  };
  EXPECT_EQ(scale(0, 1), 1.0F);
  EXPECT_EQ(scale(8, 1), 2.0F);
  EXPECT_EQ(scale(2, 0.5F), 0.25F);
}

TEST(Adapters, HaveFingerprintsOfTheirContentsAndScale) {
  const TestModel model = small_model(*find_architecture("llama"));
  const OpenedModel opened(model);
  const auto print = [&](std::uint32_t seed, float scale) {
    Loaded loaded = load(model.image());
    const auto image = adapter_for(*opened.file, 4, seed).image();
    EXPECT_TRUE(
        loaded.model->add_adapter(*gguf::File::from_memory(image, "x"), {.name = "x", .file = {}, .scale = scale}));
    return loaded.model->adapters()[0].fingerprint();
  };
  EXPECT_EQ(print(1, 1), print(1, 1));
  EXPECT_NE(print(1, 1), print(2, 1));
  EXPECT_NE(print(1, 1), print(1, 0.5F));
}

// --- refusals

std::string refusal(const TestAdapter& adapter, const TestModel& model) {
  Loaded loaded = load(model.image());
  const auto image = adapter.image();
  const auto ok = loaded.model->add_adapter(*gguf::File::from_memory(image, "a.gguf"), {.name = "x", .file = {}});
  return ok ? "accepted" : ok.error().message;
}

TEST(Adapters, RefuseFilesThatDoNotFit) {
  const TestModel model = small_model(*find_architecture("llama"));
  const TestAdapter good = TestAdapter("llama").adapt("blk.0.attn_q.weight", {16, 16}, 2, 1);
  const auto with = [&](auto change) {
    TestAdapter adapter = good;
    change(adapter);
    return refusal(adapter, model);
  };
  EXPECT_EQ(refusal(good, model), "accepted");
  EXPECT_EQ(with([](TestAdapter& a) { a.remove("general.type"); }),
            "a.gguf: is a model and not an adapter (general.type)");
  EXPECT_EQ(with([](TestAdapter& a) { a.text("general.type", "mmproj"); }),
            "a.gguf: is not an adapter: general.type is 'mmproj'");
  EXPECT_EQ(with([](TestAdapter& a) { a.text("adapter.type", "ia3"); }),
            "a.gguf: is an adapter of type 'ia3': Quire knows 'lora' only");
  EXPECT_EQ(with([](TestAdapter& a) { a.text("general.architecture", "qwen2"); }),
            "a.gguf: is an adapter for models of architecture 'qwen2', and the model has 'llama'");
  EXPECT_EQ(with([](TestAdapter& a) {
              a.tokens("adapter.alora.invocation_tokens", {1, 2});
            }),
            "a.gguf: is an activated LoRA (adapter.alora.invocation_tokens), which Quire does not support");
  EXPECT_EQ(with([](TestAdapter& a) { a.remove("blk.0.attn_q.weight.lora_b"); }),
            "a.gguf: has tensor 'blk.0.attn_q.weight.lora_a', but not 'blk.0.attn_q.weight.lora_b'");
  EXPECT_EQ(with([](TestAdapter& a) { a.remove("blk.0.attn_q.weight.lora_a"); }),
            "a.gguf: has tensor 'blk.0.attn_q.weight.lora_b', but not 'blk.0.attn_q.weight.lora_a'");
  EXPECT_EQ(with([](TestAdapter& a) {
              a.adapt("blk.9.attn_q.weight", {16, 16}, 2, 1);
            }),
            "a.gguf: adapts tensor 'blk.9.attn_q.weight', which the model does not have");
  EXPECT_EQ(with([](TestAdapter& a) { a.tensor("blk.0.attn_norm.weight", {16}, std::vector<float>(16)); }),
            "a.gguf: tensor 'blk.0.attn_norm.weight' is neither a .lora_a nor a .lora_b: Quire cannot replace whole "
            "tensors");
  EXPECT_EQ(with([](TestAdapter& a) {
              a.adapt("blk.0.attn_norm.weight", {16, 1}, 2, 1);
            }),
            "a.gguf: adapts tensor 'blk.0.attn_norm.weight', which is not one that adapters can change in a model of "
            "architecture 'llama'");
  EXPECT_EQ(with([](TestAdapter& a) {
              a.adapt("blk.1.attn_q.weight", {16, 8}, 2, 1);
            }),
            "a.gguf: tensors 'blk.1.attn_q.weight.lora_a' and 'lora_b' do not fit: they are 16 x 2 and 2 x 8, and the "
            "model's tensor has 16 rows of 16");
  EXPECT_EQ(with([](TestAdapter& a) {
              a.tensor("blk.0.attn_q.weight.lora_a", {16, 3}, std::vector<float>(48));
            }),
            "a.gguf: tensors 'blk.0.attn_q.weight.lora_a' and 'lora_b' do not fit: they are 16 x 3 and 2 x 16, and the "
            "model's tensor has 16 rows of 16");
  EXPECT_EQ(refusal(TestAdapter("llama"), model), "a.gguf: has no tensors, so it changes nothing");
}

TEST(Adapters, RefuseExpertsThatDoNotFit) {
  const TestModel model = small_model(*find_architecture("qwen3moe"));
  EXPECT_EQ(
      refusal(TestAdapter("qwen3moe").adapt("blk.0.ffn_up_exps.weight", {16, 32, 3}, 2, 1), model),
      "a.gguf: tensors 'blk.0.ffn_up_exps.weight.lora_a' and 'lora_b' do not fit: they are 16 x 2 x 3 and 2 x 32 x "
      "3, and the model's tensor has 32 rows of 16 for each of 4 experts");
}

TEST(Adapters, AreNotModels) {
  const auto image = TestAdapter("llama").adapt("blk.0.attn_q.weight", {16, 16}, 2, 1).image();
  const auto model = Model::create(*gguf::File::from_memory(image, "a.gguf"));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message, "a.gguf: is an adapter and not a model; it is given with --lora NAME=FILE");
}

TEST(Adapters, HaveNamesOfTheirOwn) {
  const TestModel model = small_model(*find_architecture("llama"));
  const TestAdapter adapter = TestAdapter("llama").adapt("blk.0.attn_q.weight", {16, 16}, 2, 1);
  Loaded loaded = load(model.image(), {adapter});
  const auto image = adapter.image();
  const auto twice = loaded.model->add_adapter(*gguf::File::from_memory(image, "b"), {.name = "a1", .file = {}});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message, "adapter 'a1' is given twice");
  EXPECT_EQ(loaded.model->adapter_number("a1"), 1U);
  EXPECT_EQ(loaded.model->adapter_number("b1"), 0U);
  const auto colon = loaded.model->add_adapter(*gguf::File::from_memory(image, "b"), {.name = "a:b", .file = {}});
  ASSERT_FALSE(colon);
  EXPECT_EQ(colon.error().message, "adapter name 'a:b': a name has 1 to 64 letters, digits, '.', '_' and '-'");
}

TEST(Adapters, AreGivenAsNameAndFile) {
  const auto parsed = [](std::string_view text) {
    const auto options = parse_adapter(text);
    return options ? options->name + " " + options->file + " " + std::to_string(options->scale)
                   : options.error().message;
  };
  EXPECT_EQ(parsed("sql=a/b.gguf"), "sql a/b.gguf 1.000000");
  EXPECT_EQ(parsed("sql=a.gguf:0.5"), "sql a.gguf 0.500000");
  EXPECT_EQ(parsed("sql=a.gguf:-2"), "sql a.gguf -2.000000");
  EXPECT_EQ(parsed("sql=c:a.gguf"), "sql c:a.gguf 1.000000");
  EXPECT_EQ(parsed("a.gguf"), "'a.gguf': an adapter is given as NAME=FILE");
  EXPECT_EQ(parsed("=a.gguf"), "adapter name '': a name has 1 to 64 letters, digits, '.', '_' and '-'");
  EXPECT_EQ(parsed("x="), "adapter 'x' has no file: it is given as NAME=FILE");
  EXPECT_EQ(parsed("x=a:inf"), "adapter 'x': its scale is not a number");
}

}  // namespace
}  // namespace quire::model

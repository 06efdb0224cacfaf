// The demo models answer the questions that they were trained for, through our tokenizer, kernels and pool, as well as
// through Hugging Face. There are forty questions of each kind. Batches mix prefill and decode.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <expected>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/gguf/quantize_testing.h"
#include "quire/gguf/writer.h"
#include "quire/model/runner.h"
#include "quire/text/tokenizer.h"

namespace quire::model {
namespace {

namespace json = boost::json;

using gguf::Type;

constexpr std::size_t kKinds = 8;
constexpr std::size_t kQuestions = 40;   // of each kind
constexpr std::size_t kMaxAnswer = 40;   // tokens
constexpr std::uint32_t kMaxRows = 256;  // of a step

struct Question {
  std::string prompt, answer;
};
struct Kind {
  std::string name;
  std::vector<Question> questions;
};

std::string string_at(const json::value& object, std::string_view key) {
  return std::string(object.at(key).as_string());
}

std::vector<Kind> read_questions() {
  std::ifstream in(QUIRE_SOURCE_DIR "/testdata/demo/questions.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const json::value file = json::parse(text);
  std::vector<Kind> kinds;
  for (const json::value& kind : file.at("kinds").as_array()) {
    Kind& to = kinds.emplace_back(Kind{.name = string_at(kind, "kind")});
    for (const json::value& question : kind.at("questions").as_array()) {
      to.questions.push_back({string_at(question, "prompt"), string_at(question, "answer")});
    }
  }
  return kinds;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string message_of(const Error& error) { return error.message; }
std::string message_of(const PoolError& error) { return error.message(); }

template <typename T, typename E>
T must(std::expected<T, E> result) {
  if (!result) throw std::runtime_error(message_of(result.error()));
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// A model with a pool that has room for all questions of a kind at once.
class AnsweringModel {
 public:
  AnsweringModel(const std::string& path, ElementType kv_type, ElementType state_type)
      : backend_(1),  // ctest runs several models at once
        model_(must(Model::load(path))),
        tokenizer_(must(text::Tokenizer::from_gguf(model_->file()))),
        pool_(must(SequencePool::create(backend_.device(), config(*model_, kv_type, state_type)))) {
    must(model_->prepare(backend_, kMaxRows, kQuestions));
    runner_.emplace(must(Runner::create(*model_, *pool_)));
    batch_ = runner_->make_batch();
  }

  // Greedy, until the end of the turn or kMaxAnswer tokens. Special tokens are left out.
  std::vector<std::string> answer(std::span<const Question> questions) {
    std::vector<Answer> answers;
    for (const Question& question : questions) {
      const auto ids = must(tokenizer_.encode(question.prompt, {.add_special = false, .parse_special = true}));
      Answer& answer = answers.emplace_back(Answer{.pending = {ids.begin(), ids.end()}});
      answer.id = must(pool_->create({.prompt = answer.pending})).id;
    }
    while (step(answers)) {
    }
    std::vector<std::string> texts;
    for (const Answer& answer : answers) {
      must(pool_->release(answer.id));
      texts.emplace_back(trimmed(tokenizer_.decode(answer.tokens, {.at_start = false})));
    }
    const auto integrity = pool_->check_integrity();
    EXPECT_TRUE(integrity) << integrity.error();
    return texts;
  }

 private:
  struct Answer {
    std::vector<Token> pending;  // next inputs: the prompt, then the last token
    std::size_t done = 0;        // of `pending`, computed
    std::vector<text::TokenId> tokens;
    bool ended = false;
    SequenceId id;
  };

  static PoolConfig config(const Model& model, ElementType kv_type, ElementType state_type) {
    return {.layout = must(model.layout(16, kv_type, state_type)),
            .budget_bytes = 128 << 20,
            .max_sequences = kQuestions,
            .max_tokens = 512,
            .prefix_cache = false};
  }

  // Runs one step with as many tokens of unfinished answers as fit. False when all are finished.
  bool step(std::vector<Answer>& answers) {
    batch_.clear();
    std::vector<Answer*> whose;
    std::size_t room = kMaxRows;
    for (Answer& answer : answers) {
      if (answer.ended || room == 0) continue;
      const std::size_t left = answer.pending.size() - answer.done;
      const std::size_t now = std::min(left, room);
      batch_.add(answer.id, std::span(answer.pending).subspan(answer.done, now),
                 now == left ? Logits::Last : Logits::None);
      whose.push_back(&answer);
      room -= now;
    }
    if (batch_.empty()) return false;
    const HostRows logits = must(runner_->run(batch_));
    std::uint32_t row = 0;
    for (std::size_t i = 0; i < batch_.entries().size(); ++i) {
      Answer& answer = *whose[i];
      answer.done += batch_.entries()[i].rows;
      if (batch_.entries()[i].logits == Logits::None) continue;
      const std::span<const float> values = logits.row(row++);
      const auto next = static_cast<Token>(std::ranges::max_element(values) - values.begin());
      answer.ended = next == static_cast<Token>(*tokenizer_.eos());
      if (answer.ended) continue;
      answer.tokens.push_back(static_cast<text::TokenId>(next));
      answer.ended = answer.tokens.size() == kMaxAnswer;
      answer.pending = {next};
      answer.done = 0;
    }
    return true;
  }

  CpuBackend backend_;
  std::unique_ptr<Model> model_;
  text::Tokenizer tokenizer_;
  std::unique_ptr<SequencePool> pool_;
  std::optional<Runner> runner_;
  Batch batch_;
};

// Writes the model with its matrices in another type. As in llama.cpp, embedding and output are Q6_K. In the mixes
// called _M, the value projection of attention and the down projection of the feed-forward block have the type `more`.
void write_in(const gguf::File& file, Type type, Type more, const std::string& path) {
  gguf::Writer writer;
  for (std::size_t i = 0; i < file.entry_count(); ++i) writer.add_value(file.entry(i).key, file.entry(i).value);
  std::vector<std::vector<std::byte>> converted(file.tensor_count());
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const gguf::Tensor tensor = file.tensor(i);
    const std::vector<std::uint64_t> shape(tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims);
    if (tensor.type != Type::Q8_0) {
      writer.add_tensor(tensor.name, tensor.type, shape, tensor.data);
      continue;
    }
    Type wanted = type;
    if (tensor.name.contains("attn_v") || tensor.name.contains("ffn_down")) wanted = more;
    if (tensor.name.starts_with("token_embd") || tensor.name.starts_with("output")) wanted = Type::Q6_K;
    std::vector<float> floats(tensor.elements());
    must(gguf::dequantize(tensor.type, tensor.data, floats));
    converted[i] = gguf::testing::quantize(wanted, floats);
    writer.add_tensor(tensor.name, wanted, shape, converted[i]);
  }
  must(writer.write(path));
}

struct Expected {
  std::string name;  // of the model
  std::string type;
  std::size_t asked;               // questions of each kind
  std::array<int, kKinds> scores;  // of 40
  Type matrices = Type::Q8_0;      // Q8_0: as in the file
  Type better = Type::Q8_0;
  ElementType state_type = ElementType::F32;
  ElementType kv_type = ElementType::F16;
  int tolerance = 2;  // of 40

  friend std::ostream& operator<<(std::ostream& out, const Expected& expected) {
    return out << expected.name << " " << expected.type << ", states " << quire::name(expected.state_type)
               << ", keys and values " << quire::name(expected.kv_type);
  }
};

Expected in_16_bits(const char* model, ElementType state_type, const std::array<int, kKinds>& scores) {
  Expected expected{model, "q8_0", kQuestions, scores};
  expected.state_type = state_type;
  return expected;
}

// Compared with what f16 scores here, not with the reference.
Expected with_keys(const char* model, ElementType kv_type, const std::array<int, kKinds>& scores) {
  Expected expected{model, "q8_0", kQuestions, scores};
  expected.kv_type = kv_type;
  expected.tolerance = 1;
  return expected;
}

// Sanitizers are slow, and look at memory and not at knowledge: with QUIRE_PROPERTY_PERCENT below 100 a few questions
// of each kind are enough, and only kinds that are nearly always right are checked: half of the answers must be right.
bool few_questions() {
  const char* percent = std::getenv("QUIRE_PROPERTY_PERCENT");
  return percent != nullptr && std::strtoul(percent, nullptr, 10) < 100;
}
constexpr std::size_t kFewQuestions = 4;

class DemoScores : public ::testing::TestWithParam<Expected> {};

TEST_P(DemoScores, AreThoseOfTheReference) {
  Expected expected = GetParam();
  if (few_questions()) expected.asked = kFewQuestions;
  std::string path = fmt::format("{}/models/quire-demo-{}-q8_0.gguf", QUIRE_SOURCE_DIR, expected.name);
  const gguf::testing::TemporaryFolder folder;
  if (expected.matrices != Type::Q8_0) {
    const gguf::File file = must(gguf::File::open(path));
    path = folder / "model.gguf";
    write_in(file, expected.matrices, expected.better, path);
  }
  const std::vector<Kind> kinds = read_questions();
  ASSERT_EQ(kinds.size(), kKinds);
  AnsweringModel model(path, expected.kv_type, expected.state_type);
  std::string table;
  for (std::size_t i = 0; i < kKinds; ++i) {
    ASSERT_EQ(kinds[i].questions.size(), kQuestions);
    const auto questions = std::span(kinds[i].questions).first(expected.asked);
    const std::vector<std::string> answers = model.answer(questions);
    int score = 0;
    std::string wrong;
    for (std::size_t q = 0; q < questions.size(); ++q) {
      score += answers[q] == questions[q].answer ? 1 : 0;
      if (answers[q] != questions[q].answer) {
        wrong += fmt::format("\n{}  right: {}\n  answered: {}", questions[q].prompt, questions[q].answer, answers[q]);
      }
    }
    fmt::format_to(std::back_inserter(table), " {:3}", score);
    // A near tie may fall the other way now and then: weights and activations have 8 bits here and were floats in the
    // reference. A wrong kernel or a wrong state costs far more than two answers.
    const double of_forty = score * 40.0 / static_cast<double>(expected.asked);
    if (few_questions()) {
      if (expected.scores[i] >= 38) {
        EXPECT_GE(of_forty, 20) << expected << ", " << kinds[i].name << wrong;
      }
    } else {
      EXPECT_NEAR(of_forty, expected.scores[i], expected.tolerance) << expected << ", " << kinds[i].name << wrong;
    }
  }
  fmt::print("{:7} {:7} {:4} {:4} of {}:{}\n", expected.name, expected.type, name(expected.state_type),
             name(expected.kv_type), expected.asked, table);
}

// Kinds: adding and subtracting, counting, sorting, repeating, reversing; recall from 2, 6 and 12 notes.
// The first three rows: the same questions through Hugging Face in float32, before the weights became Q8_0.
// The next four: the same with recurrent states in 16 bits. They are expected to know as much.
// The next three: keys and values of other types, compared with f16.
// The others: the same model, with its matrices converted to smaller types here. The expected scores are those of
// llama.cpp with its own files, on forty other questions of each kind. Here twenty are asked, to save time.
INSTANTIATE_TEST_SUITE_P(
    Models, DemoScores,
    ::testing::Values(Expected{"llama", "q8_0", 40, {40, 40, 39, 40, 40, 40, 40, 40}},
                      Expected{"hybrid", "q8_0", 40, {40, 40, 39, 40, 40, 38, 30, 26}},
                      Expected{"mamba2", "q8_0", 40, {36, 40, 38, 40, 40, 15, 8, 4}},
                      in_16_bits("hybrid", ElementType::F16, {40, 40, 39, 40, 40, 38, 30, 26}),
                      in_16_bits("hybrid", ElementType::BF16, {40, 40, 39, 40, 40, 38, 30, 26}),
                      in_16_bits("mamba2", ElementType::F16, {36, 40, 38, 40, 40, 15, 8, 4}),
                      in_16_bits("mamba2", ElementType::BF16, {36, 40, 38, 40, 40, 15, 8, 4}),
                      with_keys("llama", ElementType::Q8_0, {40, 40, 39, 40, 40, 40, 40, 40}),
                      with_keys("llama", ElementType::BF16, {40, 40, 39, 40, 40, 40, 40, 40}),
                      with_keys("hybrid", ElementType::Q8_0, {40, 40, 39, 40, 40, 38, 28, 25}),
                      Expected{"llama", "q4_0", 20, {40, 40, 38, 40, 40, 40, 40, 40}, Type::Q4_0, Type::Q4_0},
                      Expected{"llama", "q4_k_m", 20, {40, 40, 39, 40, 40, 40, 40, 40}, Type::Q4_K, Type::Q6_K},
                      Expected{"llama", "q5_k_m", 20, {40, 40, 39, 40, 40, 40, 40, 40}, Type::Q5_K, Type::Q6_K},
                      Expected{"llama", "q6_k", 20, {40, 40, 39, 40, 40, 40, 40, 40}, Type::Q6_K, Type::Q6_K},
                      Expected{"llama", "iq4_xs", 20, {40, 40, 39, 40, 40, 40, 40, 40}, Type::IQ4_XS, Type::IQ4_XS}),
    [](const ::testing::TestParamInfo<Expected>& model) {
      std::string name = model.param.name + "_" + model.param.type;
      if (model.param.state_type != ElementType::F32)
        name += std::string("_states_") + quire::name(model.param.state_type);
      if (model.param.kv_type != ElementType::F16) name += std::string("_keys_") + quire::name(model.param.kv_type);
      return name;
    });

}  // namespace
}  // namespace quire::model

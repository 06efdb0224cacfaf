#include "quire/bench/synth/vocabulary.h"

#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "quire/base/check.h"
#include "quire/text/byte_level.h"
#include "quire/text/vocabulary.h"

namespace quire::synth {
namespace {

using text::TokenType;

// The most frequent first.
constexpr std::string_view kLetters = "etaoinshrdlcumwfgypbvkjxqz";

// Makes pieces by joining two existing ones, the short ones first, while `take` wants more. It ends with runs of eight
// letters, which are far more than any vocabulary needs.
using Take = std::function<bool(std::string_view left, std::string_view right)>;

void make_pieces(std::string_view space, const Take& take) {
  std::vector<std::string> singles;
  for (const char letter : kLetters) singles.emplace_back(1, letter);
  const auto join = [&](const std::vector<std::string>& left, const std::vector<std::string>& right,
                        std::vector<std::string>* joined) {
    for (const std::string& a : left) {
      for (const std::string& b : right) {
        if (!take(a, b)) return false;
        if (joined != nullptr) joined->push_back(a + b);
      }
    }
    return true;
  };
  const std::vector<std::string> mark = {std::string(space)};
  std::vector<std::string> twos, threes, fours;
  if (!join(mark, singles, nullptr) || !join(singles, singles, &twos) || !join(mark, twos, nullptr)) return;
  if (!join(twos, singles, &threes) || !join(mark, threes, nullptr)) return;
  if (!join(twos, twos, &fours) || !join(mark, fours, nullptr)) return;
  join(fours, fours, nullptr);
}

struct Tokens {
  std::vector<std::string> spelled;
  std::vector<std::int32_t> types;

  void add(std::string token, TokenType type) {
    spelled.push_back(std::move(token));
    types.push_back(static_cast<std::int32_t>(type));
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(spelled.size()); }
};

void add_strings(gguf::Writer& writer, std::string_view key, const std::vector<std::string>& strings) {
  const std::vector<std::string_view> views(strings.begin(), strings.end());
  writer.add_array<std::string_view>(key, views);
}

void add_tokens(gguf::Writer& writer, const Tokens& tokens) {
  add_strings(writer, "tokenizer.ggml.tokens", tokens.spelled);
  writer.add_array<std::int32_t>("tokenizer.ggml.token_type", tokens.types);
}

constexpr std::string_view kSpaceMark = "\u2581";

constexpr std::string_view kPlainTemplate =
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + eos_token + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";
constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

void add_sentencepiece(gguf::Writer& writer, std::uint32_t count) {
  Tokens tokens;
  tokens.add("<unk>", TokenType::unknown);
  tokens.add("<s>", TokenType::control);
  tokens.add("</s>", TokenType::control);
  for (unsigned byte = 0; byte < 256; ++byte) tokens.add(fmt::format("<0x{:02X}>", byte), TokenType::byte);
  tokens.add(std::string(kSpaceMark), TokenType::normal);
  for (char c = '!'; c <= '~' && tokens.size() < count; ++c) tokens.add(std::string(1, c), TokenType::normal);
  make_pieces(kSpaceMark, [&](std::string_view left, std::string_view right) {
    if (tokens.size() == count) return false;
    tokens.add(std::string(left).append(right), TokenType::normal);
    return true;
  });
  QUIRE_CHECK(tokens.size() == count, "there are pieces for any vocabulary");
  // Earlier merges have priority.
  std::vector<float> scores(count);
  for (std::uint32_t i = 259; i < count; ++i) scores[i] = -static_cast<float>(i - 259);

  writer.add("tokenizer.ggml.model", "llama");
  writer.add("tokenizer.ggml.pre", "default");
  add_tokens(writer, tokens);
  writer.add_array<float>("tokenizer.ggml.scores", scores);
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
  writer.add("tokenizer.ggml.add_bos_token", true);
  writer.add("tokenizer.ggml.add_eos_token", false);
  writer.add("tokenizer.chat_template", kPlainTemplate);
}

void add_byte_level(gguf::Writer& writer, std::uint32_t count, std::string_view pre) {
  constexpr std::string_view kSpecials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  const std::uint32_t first_special = count - static_cast<std::uint32_t>(std::size(kSpecials));
  Tokens tokens;
  for (unsigned byte = 0; byte < 256; ++byte) {
    tokens.add(text::byte_level_spelling(static_cast<std::uint8_t>(byte)), TokenType::normal);
  }
  std::vector<std::string> merges;
  make_pieces(text::byte_level_spelling(' '), [&](std::string_view left, std::string_view right) {
    if (tokens.size() == first_special) return false;
    tokens.add(std::string(left).append(right), TokenType::normal);
    merges.push_back(fmt::format("{} {}", left, right));
    return true;
  });
  for (const std::string_view special : kSpecials) tokens.add(std::string(special), TokenType::control);
  QUIRE_CHECK(tokens.size() == count, "there are pieces for any vocabulary");

  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.pre", pre);
  add_tokens(writer, tokens);
  add_strings(writer, "tokenizer.ggml.merges", merges);
  writer.add("tokenizer.ggml.bos_token_id", first_special);
  writer.add("tokenizer.ggml.eos_token_id", first_special + 2);
  writer.add("tokenizer.ggml.padding_token_id", first_special);
  // Llama 3 adds BOS to every text, the others do not.
  writer.add("tokenizer.ggml.add_bos_token", pre == "llama-bpe");
  writer.add("tokenizer.chat_template", kChatMl);
}

}  // namespace

void add_tokenizer(gguf::Writer& writer, std::uint32_t tokens, std::string_view pre) {
  pre.empty() ? add_sentencepiece(writer, tokens) : add_byte_level(writer, tokens, pre);
}

}  // namespace quire::synth

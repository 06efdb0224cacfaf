#include "quire/text/infill.h"

#include <gtest/gtest.h>

#include "quire/gguf/writer.h"
#include "quire/text/tokenizer_testing.h"

namespace quire::text {
namespace {

using testing::byte_level_vocabulary;
using testing::make;

gguf::File file_with(const std::vector<std::pair<std::string, std::uint32_t>>& keys, std::vector<std::byte>& image) {
  gguf::Writer writer;
  writer.add("general.architecture", "llama");
  for (const auto& [key, value] : keys) writer.add(key, value);
  image = *writer.to_memory();
  return std::move(*gguf::File::from_memory(image, "test.gguf"));
}

TEST(Infill, TokensAreKnownByTheirSpelling) {
  std::vector<std::byte> image;
  const gguf::File file = file_with({}, image);
  for (const auto& [pre, suf, mid] : {std::array{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                                      std::array{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                                      std::array{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}}) {
    const Tokenizer tokenizer = make(byte_level_vocabulary({}, {{pre, TokenType::control},
                                                                {suf, TokenType::control},
                                                                {mid, TokenType::user_defined},
                                                                {"<|fim_pad|>", TokenType::control}}));
    const auto tokens = find_infill_tokens(file, tokenizer);
    ASSERT_TRUE(tokens.has_value()) << pre;
    EXPECT_EQ(tokens->prefix, 256);
    EXPECT_EQ(tokens->suffix, 257);
    EXPECT_EQ(tokens->middle, 258);
    EXPECT_EQ(tokens->ends, std::vector<TokenId>{259});
  }
}

TEST(Infill, TheFilesOwnWordComesFirst) {
  std::vector<std::byte> image;
  const gguf::File file = file_with({{"tokenizer.ggml.fim_pre_token_id", 5},
                                     {"tokenizer.ggml.fim_suf_token_id", 6},
                                     {"tokenizer.ggml.middle_token_id", 7},
                                     {"tokenizer.ggml.fim_pad_token_id", 5000}},
                                    image);
  const auto tokens =
      find_infill_tokens(file, make(byte_level_vocabulary({}, {{"<|fim_prefix|>", TokenType::control}})));
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->prefix, 5);
  EXPECT_EQ(tokens->suffix, 6);
  EXPECT_EQ(tokens->middle, 7);
  EXPECT_TRUE(tokens->ends.empty()) << "an id that is no token names none";
}

TEST(Infill, AModelThatMissesOneOfThemHasNone) {
  std::vector<std::byte> image;
  const gguf::File file = file_with({}, image);
  EXPECT_FALSE(find_infill_tokens(file, make(byte_level_vocabulary({}, {{"<|fim_prefix|>", TokenType::control},
                                                                        {"<|fim_suffix|>", TokenType::control}}))));
  // Plain words do not count.
  EXPECT_FALSE(find_infill_tokens(
      file, make(byte_level_vocabulary(
                {}, {{"<PRE>", TokenType::normal}, {"<SUF>", TokenType::normal}, {"<MID>", TokenType::normal}}))));
}

}  // namespace
}  // namespace quire::text

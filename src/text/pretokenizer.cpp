#include "quire/text/pretokenizer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/text/vocabulary.h"

namespace quire::text {
namespace {

// GPT-2: contractions, then words, numbers and other characters, each with at most one leading space.
constexpr const char* kGpt2 = R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";

// A word may begin with one character that is not a letter, digit or line break. Numbers are split into threes.
constexpr const char* kLlama3 = R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})re"
                                R"re(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
// The same, but every digit is a word.
constexpr const char* kQwen2 = R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})re"
                               R"re(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
// The same, and marks count as letters.
constexpr const char* kQwen35 = R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})re"
                                R"re(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
// Punctuation does not include line breaks.
constexpr const char* kSeedCoder = R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})re"
                                   R"re(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr const char* kMiniCpm5 = R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+)re"
                                  R"re(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

// Words are split where lower case changes to upper case.
constexpr const char* kTekken = R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)re"
                                R"re(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)re"
                                R"re(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
// The same, but contractions stay with their word, and numbers are split into threes.
constexpr const char* kGpt4o =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)re"
    R"re(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)re"
    R"re(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

constexpr const char* kDigit = R"re(\p{N})re";
constexpr const char* kThreeDigits = R"re([0-9][0-9][0-9])re";
constexpr const char* kLineBreak = R"re([\r\n])re";

// BLOOM: everything up to white space or punctuation.
constexpr const char* kBloom = R"re( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)re";

// DeepSeek's first tokenizers list the letters of scripts with upper and lower case.
constexpr const char* kDeepSeekLetters =
    R"re(\s?[A-Za-z)re"
    R"re(\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF})re"
    R"re(\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})re"
    R"re(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})re"
    R"re(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77})re"
    R"re(\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})re"
    R"re(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE})re"
    R"re(\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC})re"
    R"re(\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})re"
    R"re(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E})re"
    R"re(\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})re"
    R"re(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})re"
    R"re(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})re"
    R"re(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})re"
    R"re(\x{1E900}-\x{1E943})re"
    R"re(]+)re";
constexpr const char* kDeepSeekSigns =
    R"re(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)re";
// Their file has \s+$. This form scans a run of spaces once, not once from each of its spaces.
constexpr const char* kTrailingSpace = R"re((?<!\s)\s++$)re";
constexpr const char* kDeepSeekCjk = R"re([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)re";
constexpr const char* kDeepSeek3Cjk = R"re([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)re";
constexpr const char* kDeepSeek3 =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)re"
    R"re(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";

struct Row {
  std::string_view name;
  std::array<const char*, 6> patterns;  // up to the first null
  bool ignore_merges = false;
  bool adds_bos = false;
};

constexpr Row kRows[] = {
    {"a.x-4.0", {kGpt2}},
    {"chatglm-bpe", {kLlama3}},
    {"codeshell", {kDigit, kGpt2}},
    {"command-r", {kDigit, kGpt2}},
    {"dbrx", {kLlama3}},
    {"deepseek-coder", {kLineBreak, R"re(\s?\p{L}+)re", R"re(\s?\p{P}+)re", kDeepSeekCjk, kDigit}},
    {"deepseek-llm", {kLineBreak, kDeepSeekLetters, kDeepSeekSigns, kTrailingSpace, kDeepSeekCjk, R"re(\p{N}+)re"}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"deepseek-v3", {R"re(\p{N}{1,3})re", kDeepSeek3Cjk, kDeepSeek3}},
    {"default", {R"re([\p{P}\$\+<=>\^~\|]+)re", kGpt2, R"re(\p{N}+)re", kThreeDigits}},
    {"exaone", {kDigit, kGpt2}},
    {"f2llmv2", {kQwen2}},
    {"falcon", {R"re([\p{P}\$\+<=>\^~\|`]+)re", kGpt2, kThreeDigits}},
    {"falcon-h1", {kLlama3}, true, true},
    {"falcon3", {kLlama3}, true, true},
    {"glm4", {kLlama3}},
    {"gpt-2", {kGpt2}},
    {"gpt-4o", {kGpt4o}},
    {"granite-docling", {kGpt2}},
    {"hunyuan", {kQwen2}},
    {"hunyuan-dense", {R"re(\p{N}{1,3})re", kDeepSeek3Cjk, kDeepSeek3}},
    {"kanana2", {kGpt4o}},
    {"kormo", {kQwen2}},
    {"lfm2", {kLlama3}, true, true},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama4", {kGpt4o}},
    {"megrez", {kQwen2}},
    {"mellum", {kGpt2}},
    {"midm-2.0", {kLlama3}, true, true},
    {"minerva-7b", {kDigit, kGpt2}},
    {"minicpm5", {R"re(\p{N}{1,3})re", kMiniCpm5}, true, false},
    {"mpt", {kGpt2}},
    {"olmo", {kGpt2}},
    {"phi-2", {kGpt2}},
    {"pixtral", {kLlama3}, true, true},
    {"poro-chat", {kBloom}},
    {"qwen2", {kQwen2}},
    {"qwen35", {kQwen35}},
    {"refact", {kDigit, kGpt2}},
    {"seed-coder", {kSeedCoder}},
    {"smaug-bpe", {kLlama3}},
    {"smollm", {kDigit, kGpt2}},
    {"stablelm2", {kQwen2}},
    {"starcoder", {kDigit, kGpt2}},
    {"tekken", {kTekken}, true, true},
    {"trillion", {kGpt2}},
    {"viking", {kBloom, kDigit}},
};

// The number of invalid bytes at the front of `text`, up to the next valid character.
std::size_t invalid_prefix(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const Utf8Step step = utf8_step(text.substr(length));
    if (step.kind == Utf8Kind::valid) break;
    length += step.length;
  }
  return length;
}

}  // namespace

Result<Pretokenizer> Pretokenizer::create(std::string_view name) {
  const Row* const row = std::ranges::find(kRows, name, &Row::name);
  if (row == std::end(kRows)) return fail(fmt::format("the pre-tokenizer {} is unknown", in_quotes(name)));
  Pretokenizer made;
  made.ignore_merges_ = row->ignore_merges;
  made.adds_bos_ = row->adds_bos;
  for (const char* pattern : row->patterns) {
    if (pattern == nullptr) break;
    auto regex = Regex::compile(pattern);
    if (!regex) return fail(fmt::format("the pre-tokenizer {}: {}", in_quotes(name), regex.error().message));
    made.patterns_.push_back(std::move(*regex));
  }
  return made;
}

std::vector<std::string_view> Pretokenizer::names() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);
  std::ranges::sort(names);
  return names;
}

Result<void> Pretokenizer::split(std::string_view text, std::vector<std::uint32_t>& ends) const {
  Regex::Scratch scratch;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t valid = utf8_valid_prefix(text.substr(at));
    if (valid > 0) {
      const auto base = static_cast<std::uint32_t>(at);
      if (auto split = split_valid(text.substr(at, valid), base, scratch, ends); !split) return split;
      at += valid;
    }
    if (at < text.size()) {
      at += invalid_prefix(text.substr(at));
      ends.push_back(static_cast<std::uint32_t>(at));
    }
  }
  return {};
}

Result<void> Pretokenizer::split_valid(std::string_view text, std::uint32_t base, Regex::Scratch& scratch,
                                       std::vector<std::uint32_t>& ends) const {
  if (patterns_.size() == 1) return patterns_[0].split(text, base, scratch, ends);
  std::vector<std::uint32_t> pieces = {base + static_cast<std::uint32_t>(text.size())};
  std::vector<std::uint32_t> finer;
  for (const Regex& pattern : patterns_) {
    finer.clear();
    std::uint32_t begin = base;
    for (const std::uint32_t end : pieces) {
      const std::string_view piece = text.substr(begin - base, end - begin);
      if (auto split = pattern.split(piece, begin, scratch, finer); !split) return split;
      begin = end;
    }
    std::swap(pieces, finer);
  }
  ends.insert(ends.end(), pieces.begin(), pieces.end());
  return {};
}

}  // namespace quire::text

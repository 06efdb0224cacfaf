#include "quire/text/vocabulary.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "quire/base/utf8.h"

namespace quire::text {
namespace {

// Much longer than any real token, but short enough that loops over a token are cheap.
constexpr std::size_t kMaxTokenBytes = 64 * 1024;

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kPreKey = "tokenizer.ggml.pre";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kMergesKey = "tokenizer.ggml.merges";

struct IdKey {
  std::string_view key;
  TokenId Vocabulary::*id;
};
constexpr IdKey kIdKeys[] = {
    {"tokenizer.ggml.bos_token_id", &Vocabulary::bos},     {"tokenizer.ggml.eos_token_id", &Vocabulary::eos},
    {"tokenizer.ggml.eot_token_id", &Vocabulary::eot},     {"tokenizer.ggml.eom_token_id", &Vocabulary::eom},
    {"tokenizer.ggml.unknown_token_id", &Vocabulary::unk}, {"tokenizer.ggml.padding_token_id", &Vocabulary::pad},
};

struct FlagKey {
  std::string_view key;
  std::optional<bool> Vocabulary::*flag;
};
constexpr FlagKey kFlagKeys[] = {
    {"tokenizer.ggml.add_bos_token", &Vocabulary::add_bos},
    {"tokenizer.ggml.add_eos_token", &Vocabulary::add_eos},
    {"tokenizer.ggml.add_space_prefix", &Vocabulary::add_space_prefix},
};

Result<std::vector<std::string>> read_strings(const gguf::File& file, std::string_view key) {
  const auto array = file.get_array<std::string_view>(key);
  if (!array) return std::unexpected(array.error());
  std::vector<std::string> strings;
  strings.reserve(array->size());
  for (const std::string_view string : *array) strings.emplace_back(string);
  return strings;
}

Result<void> read_types(const gguf::File& file, Vocabulary& vocabulary) {
  // A byte-level vocabulary needs no types: its control tokens are not spelled like text. In a sentencepiece vocabulary
  // without types, byte and control tokens could not be told from text.
  if (vocabulary.kind == VocabularyKind::byte_level_bpe && !file.has(kTypesKey)) return {};
  const auto array = file.get_array<std::int64_t>(kTypesKey);
  if (!array) return std::unexpected(array.error());
  vocabulary.types.reserve(array->size());
  for (const std::int64_t type : *array) {
    if (type < 0 || type > static_cast<std::int64_t>(TokenType::byte)) {
      return fail(fmt::format("{}: {}: token {} has the unknown type {}", file.path(), kTypesKey,
                              vocabulary.types.size(), type));
    }
    vocabulary.types.push_back(static_cast<TokenType>(type));
  }
  return {};
}

Result<void> read_scores(const gguf::File& file, Vocabulary& vocabulary) {
  const auto array = file.get_array<float>(kScoresKey);
  if (array) {
    vocabulary.scores = array->to_vector();
    return {};
  }
  // A few converters write them as whole numbers.
  const auto integers = file.get_array<std::int32_t>(kScoresKey);
  if (!integers) return std::unexpected(array.error());
  for (const std::int32_t score : *integers) vocabulary.scores.push_back(static_cast<float>(score));
  return {};
}

// Default ids of a sentencepiece file. They apply only if such a token exists.
void set_sentencepiece_defaults(Vocabulary& vocabulary) {
  const auto size = vocabulary.tokens.size();
  vocabulary.unk = size > 0 ? 0 : kNoToken;
  vocabulary.bos = size > 1 ? 1 : kNoToken;
  vocabulary.eos = size > 2 ? 2 : kNoToken;
}

Result<void> read_ids_and_flags(const gguf::File& file, Vocabulary& vocabulary) {
  for (const IdKey& entry : kIdKeys) {
    if (!file.has(entry.key)) continue;
    const auto id = file.get<std::int64_t>(entry.key);
    if (!id) return std::unexpected(id.error());
    if (*id < 0 || static_cast<std::uint64_t>(*id) >= vocabulary.tokens.size()) {
      return fail(
          fmt::format("{}: {} is {}, but there are {} tokens", file.path(), entry.key, *id, vocabulary.tokens.size()));
    }
    vocabulary.*entry.id = static_cast<TokenId>(*id);
  }
  for (const FlagKey& entry : kFlagKeys) {
    if (!file.has(entry.key)) continue;
    const auto flag = file.get<bool>(entry.key);
    if (!flag) return std::unexpected(flag.error());
    vocabulary.*entry.flag = *flag;
  }
  return {};
}

// Only the model's name or architecture tells whether special tokens swallow the white space after them.
bool is_phi3(const gguf::File& file) {
  const auto architecture = file.get_or<std::string_view>("general.architecture", "");
  if (architecture && *architecture == "phi3") return true;
  const auto name = file.get_or<std::string_view>("general.name", "");
  if (!name) return false;
  std::string lower(*name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;
}

}  // namespace

Result<Vocabulary> read_vocabulary(const gguf::File& file) {
  const auto model = file.get<std::string_view>(kModelKey);
  if (!model) return std::unexpected(model.error());
  Vocabulary vocabulary;
  if (*model == "gpt2") {
    vocabulary.kind = VocabularyKind::byte_level_bpe;
  } else if (*model == "llama") {
    vocabulary.kind = VocabularyKind::sentencepiece;
  } else {
    return fail(fmt::format("{}: {} is {}; only \"gpt2\" and \"llama\" are supported", file.path(), kModelKey,
                            in_quotes(*model)));
  }

  auto tokens = read_strings(file, kTokensKey);
  if (!tokens) return std::unexpected(tokens.error());
  vocabulary.tokens = std::move(*tokens);
  if (auto read = read_types(file, vocabulary); !read) return std::unexpected(read.error());

  if (vocabulary.kind == VocabularyKind::byte_level_bpe) {
    // Files without this key are from before April 2024 and do not say how text is split. With a wrong guess the model
    // would run, but answer badly.
    const auto pre = file.get<std::string_view>(kPreKey);
    if (!pre) return std::unexpected(pre.error());
    vocabulary.pre = *pre;
    auto merges = read_strings(file, kMergesKey);
    if (!merges) return std::unexpected(merges.error());
    vocabulary.merges = std::move(*merges);
  } else {
    if (auto read = read_scores(file, vocabulary); !read) return std::unexpected(read.error());
    set_sentencepiece_defaults(vocabulary);
    vocabulary.strip_after_special = is_phi3(file);
  }
  if (auto read = read_ids_and_flags(file, vocabulary); !read) return std::unexpected(read.error());
  if (auto checked = check_vocabulary(vocabulary); !checked) {
    return fail(fmt::format("{}: {}", file.path(), checked.error().message));
  }
  return vocabulary;
}

Result<void> check_vocabulary(const Vocabulary& vocabulary) {
  const std::size_t size = vocabulary.tokens.size();
  if (size == 0) return fail(fmt::format("{} is empty", kTokensKey));
  if (size > static_cast<std::size_t>(std::numeric_limits<TokenId>::max())) {
    return fail(fmt::format("{} has {} entries, more than there are ids", kTokensKey, size));
  }
  for (std::size_t id = 0; id < size; ++id) {
    if (vocabulary.tokens[id].size() > kMaxTokenBytes) {
      return fail(fmt::format("{}: token {} is {} bytes long, more than {}", kTokensKey, id,
                              vocabulary.tokens[id].size(), kMaxTokenBytes));
    }
  }
  if (!vocabulary.types.empty() && vocabulary.types.size() != size) {
    return fail(fmt::format("{} has {} entries, {} has {}", kTypesKey, vocabulary.types.size(), kTokensKey, size));
  }
  for (std::size_t id = 0; id < vocabulary.types.size(); ++id) {
    if (vocabulary.types[id] > TokenType::byte) {
      return fail(fmt::format("{}: token {} has the unknown type {}", kTypesKey, id,
                              static_cast<unsigned>(vocabulary.types[id])));
    }
  }
  if (vocabulary.kind == VocabularyKind::sentencepiece) {
    if (vocabulary.scores.size() != size) {
      return fail(fmt::format("{} has {} entries, {} has {}", kScoresKey, vocabulary.scores.size(), kTokensKey, size));
    }
    const auto bad = std::ranges::find_if(vocabulary.scores, [](float score) { return std::isnan(score); });
    if (bad != vocabulary.scores.end()) {
      return fail(
          fmt::format("{}: the score of token {} is not a number", kScoresKey, bad - vocabulary.scores.begin()));
    }
  }
  for (const IdKey& entry : kIdKeys) {
    const TokenId id = vocabulary.*entry.id;
    if (id != kNoToken && (id < 0 || static_cast<std::size_t>(id) >= size)) {
      return fail(fmt::format("{} is {}, but there are {} tokens", entry.key, id, size));
    }
  }
  return {};
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 48;
  std::string out = "\"";
  std::string_view rest = text;
  while (!rest.empty() && text.size() - rest.size() < kShown) {
    const Utf8Step step = utf8_step(rest);
    const unsigned char first = static_cast<unsigned char>(rest[0]);
    if (step.kind != Utf8Kind::valid || first < 0x20 || first == 0x7F || first == '"' || first == '\\') {
      for (const char c : rest.substr(0, step.length)) {
        out += fmt::format("\\x{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
      }
    } else {
      out += rest.substr(0, step.length);
    }
    rest.remove_prefix(step.length);
  }
  out += rest.empty() ? "\"" : "...\"";
  return out;
}

}  // namespace quire::text

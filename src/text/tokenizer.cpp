#include "quire/text/tokenizer.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "quire/base/check.h"
#include "quire/text/bpe.h"
#include "quire/text/flat_map.h"
#include "quire/text/pieces.h"
#include "quire/text/special_tokens.h"
#include "quire/text/spm.h"
#include "quire/text/stream_decoder.h"

namespace quire::text {
namespace {

// Tokens that end a generation, as the model families spell them. Files name EOS, but rarely the others.
constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",                               // Llama 3
    "<|eom_id|>",                               // Llama 3
    "<|im_end|>",                               // ChatML
    "<|end|>",                                  // Phi-3
    "<end_of_turn>",                            // Gemma
    "<|endoftext|>",                            // GPT-2, Qwen, Phi
    "<|end_of_text|>",                          // Llama 3, Granite
    "<|fim_pad|>",                              // Qwen, fill in the middle ...
    "<|repo_name|>",                            // ... next repository
    "<|file_sep|>",                             // ... next file
    "<EOT>",                                    // CodeLlama
    "<end_of_utterance>",                       // SmolVLM
    "<|return|>",                               // gpt-oss: the end of an answer ...
    "<|call|>",                                 // ... and of a call of a tool
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",  // DeepSeek
};

// Phi-3's special tokens that do not swallow the white space after them.
constexpr std::string_view kKeepsSpaceBehind[] = {"<unk>", "<s>", "<|endoftext|>"};

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::optional<TokenId> optional_id(TokenId id) { return id == kNoToken ? std::nullopt : std::optional(id); }

}  // namespace

struct Tokenizer::Impl {
  Vocabulary vocabulary;  // without its merges
  Pieces pieces;
  TokenIndex spelled;
  SpecialTokens specials;
  std::vector<TokenId> end_of_generation;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  std::size_t max_token_bytes = 0;
  std::optional<std::variant<ByteLevelBpe, SentencePieceBpe>> model;

  bool contains(TokenId id) const { return id >= 0 && static_cast<std::size_t>(id) < vocabulary.tokens.size(); }
  TokenType type(TokenId id) const { return vocabulary.types[static_cast<std::size_t>(id)]; }

  Result<void> index_spellings();
  void find_ends();
  void find_specials();
  Result<void> make_model();
  Result<void> resolve_flags();
  void find_longest();
  bool strips_behind(TokenId id) const;
  // Text between special tokens.
  Result<void> encode_plain(std::string_view text, std::vector<TokenId>& out) const;
};

Result<void> Tokenizer::Impl::index_spellings() {
  spelled = TokenIndex(vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& text = vocabulary.tokens[id];
    if (text.empty()) continue;
    const TokenId before = spelled.insert(text, static_cast<TokenId>(id));
    if (before != kNoToken) {
      return fail(fmt::format("tokenizer.ggml.tokens: tokens {} and {} are both {}", before, id, in_quotes(text)));
    }
  }
  return {};
}

// Some files declare the tokens that end a turn as user-defined or even normal. Then any user who writes "<|im_end|>"
// would end the turn. So they become control tokens here. If the file names a normal token as an end, it stays normal
// unless its spelling is known: it may be a line break, which text needs.
void Tokenizer::Impl::find_ends() {
  const auto type_of = [this](TokenId id) -> TokenType& { return vocabulary.types[static_cast<std::size_t>(id)]; };
  for (const TokenId id : {vocabulary.eos, vocabulary.eot, vocabulary.eom}) {
    if (id == kNoToken) continue;
    end_of_generation.push_back(id);
    if (type_of(id) == TokenType::user_defined) type_of(id) = TokenType::control;
  }
  // In gpt-oss "<|end|>" ends a message, and an answer has several messages.
  const bool messages = spelled.find("<|return|>") != kNoToken && spelled.find("<|call|>") != kNoToken;
  for (const std::string_view name : kEndNames) {
    const TokenId id = spelled.find(name);
    if (id == kNoToken || (messages && name == "<|end|>")) continue;
    end_of_generation.push_back(id);
    type_of(id) = TokenType::control;
  }
  if (vocabulary.bos != kNoToken && type_of(vocabulary.bos) == TokenType::user_defined) {
    type_of(vocabulary.bos) = TokenType::control;
  }
  std::ranges::sort(end_of_generation);
  end_of_generation.erase(std::unique(end_of_generation.begin(), end_of_generation.end()), end_of_generation.end());
  // GPT-2 and similar models have one token for BOS, EOS and unknown. An unknown character must not become EOS.
  if (vocabulary.unk == vocabulary.bos || std::ranges::binary_search(end_of_generation, vocabulary.unk)) {
    vocabulary.unk = kNoToken;
  }
}

void Tokenizer::Impl::find_specials() {
  for (std::size_t index = 0; index < vocabulary.tokens.size(); ++index) {
    const TokenType type = vocabulary.types[index];
    const bool restricted = type == TokenType::control || type == TokenType::unknown;
    if (vocabulary.tokens[index].empty() || (!restricted && type != TokenType::user_defined)) continue;
    specials.add(vocabulary.tokens[index], static_cast<TokenId>(index), restricted);
  }
}

Result<void> Tokenizer::Impl::make_model() {
  if (vocabulary.kind == VocabularyKind::sentencepiece) {
    model = SentencePieceBpe(vocabulary, pieces);
    return {};
  }
  auto bpe = ByteLevelBpe::create(vocabulary, pieces, spelled);
  if (!bpe) return std::unexpected(bpe.error());
  model = std::move(*bpe);
  return {};
}

Result<void> Tokenizer::Impl::resolve_flags() {
  const bool sentencepiece = vocabulary.kind == VocabularyKind::sentencepiece;
  if (vocabulary.add_bos.value_or(false) && vocabulary.bos == kNoToken) {
    return fail("tokenizer.ggml.add_bos_token is set, but there is no tokenizer.ggml.bos_token_id");
  }
  if (vocabulary.add_eos.value_or(false) && vocabulary.eos == kNoToken) {
    return fail("tokenizer.ggml.add_eos_token is set, but there is no tokenizer.ggml.eos_token_id");
  }
  const bool usual_bos = sentencepiece || std::get<ByteLevelBpe>(*model).adds_bos();
  add_bos = vocabulary.bos != kNoToken && vocabulary.add_bos.value_or(usual_bos);
  add_eos = vocabulary.add_eos.value_or(false);
  add_space_prefix = sentencepiece && vocabulary.add_space_prefix.value_or(true);
  return {};
}

void Tokenizer::Impl::find_longest() {
  const bool sentencepiece = vocabulary.kind == VocabularyKind::sentencepiece;
  const auto bytes = std::ranges::count(vocabulary.types, TokenType::byte);
  // Without byte tokens SentencePiece has one unknown token for a run of characters.
  if (vocabulary.strip_after_special || (sentencepiece && bytes < 256)) return;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    max_token_bytes = std::max(max_token_bytes, pieces[static_cast<TokenId>(id)].size());
    // Special tokens are found by their spelling.
    if (!is_mergeable(vocabulary.types[id])) max_token_bytes = std::max(max_token_bytes, vocabulary.tokens[id].size());
  }
  // SentencePiece makes one byte, a space, of the three bytes of U+2581.
  if (sentencepiece) max_token_bytes *= 3;
}

bool Tokenizer::Impl::strips_behind(TokenId id) const {
  return vocabulary.strip_after_special &&
         std::ranges::find(kKeepsSpaceBehind, vocabulary.tokens[static_cast<std::size_t>(id)]) ==
             std::end(kKeepsSpaceBehind);
}

Result<void> Tokenizer::Impl::encode_plain(std::string_view text, std::vector<TokenId>& out) const {
  if (text.empty()) return {};
  if (const auto* bpe = std::get_if<ByteLevelBpe>(&*model)) return bpe->encode(text, out);
  return std::get<SentencePieceBpe>(*model).encode(text, add_space_prefix, out);
}

Result<Tokenizer> Tokenizer::from_gguf(const gguf::File& file) {
  auto vocabulary = read_vocabulary(file);
  if (!vocabulary) return std::unexpected(vocabulary.error());
  auto tokenizer = create(std::move(*vocabulary));
  if (!tokenizer) return fail(fmt::format("{}: {}", file.path(), tokenizer.error().message));
  return tokenizer;
}

Result<Tokenizer> Tokenizer::create(Vocabulary vocabulary) {
  if (auto checked = check_vocabulary(vocabulary); !checked) return std::unexpected(checked.error());
  auto impl = std::make_unique<Impl>();
  impl->vocabulary = std::move(vocabulary);
  impl->vocabulary.types.resize(impl->vocabulary.tokens.size(), TokenType::normal);
  if (auto indexed = impl->index_spellings(); !indexed) return std::unexpected(indexed.error());
  impl->find_ends();
  auto pieces = build_pieces(impl->vocabulary);
  if (!pieces) return std::unexpected(pieces.error());
  impl->pieces = std::move(*pieces);
  impl->find_specials();
  if (auto made = impl->make_model(); !made) return std::unexpected(made.error());
  if (auto resolved = impl->resolve_flags(); !resolved) return std::unexpected(resolved.error());
  impl->find_longest();
  impl->vocabulary.merges = {};
  impl->vocabulary.scores = {};
  return Tokenizer(std::move(impl));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes) {
    return fail(fmt::format("the text has {} bytes, more than {}", text.size(), kMaxTextBytes));
  }
  for (std::size_t i = 1; i < options.literal.size(); ++i) {
    QUIRE_CHECK(options.literal[i - 1].end <= options.literal[i].begin, "literal ranges are sorted");
  }
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 2);
  if (options.add_special && impl_->add_bos) out.push_back(impl_->vocabulary.bos);
  std::size_t at = 0;
  while (at < text.size()) {
    // Skip ranges that end before this place: a long conversation has many.
    while (!options.literal.empty() && options.literal.front().end <= at) options.literal = options.literal.subspan(1);
    const auto special = impl_->specials.find(text, at, options.parse_special, options.literal);
    const std::size_t end = special ? special->begin : text.size();
    if (auto encoded = impl_->encode_plain(text.substr(at, end - at), out); !encoded) {
      return std::unexpected(encoded.error());
    }
    if (!special) break;
    out.push_back(special->id);
    at = special->end;
    if (impl_->strips_behind(special->id)) {
      while (at < text.size() && is_ascii_space(text[at])) ++at;
    }
  }
  if (options.add_special && impl_->add_eos) out.push_back(impl_->vocabulary.eos);
  return out;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  StreamDecoder decoder(*this, options);
  std::string text;
  for (const TokenId id : ids) decoder.push(id, text);
  decoder.flush(text);
  return text;
}

std::size_t Tokenizer::max_token_bytes() const { return impl_->max_token_bytes; }
std::size_t Tokenizer::size() const { return impl_->vocabulary.tokens.size(); }
VocabularyKind Tokenizer::kind() const { return impl_->vocabulary.kind; }
std::string_view Tokenizer::pre() const { return impl_->vocabulary.pre; }

std::string_view Tokenizer::piece(TokenId id) const { return impl_->contains(id) ? impl_->pieces[id] : ""; }

std::string_view Tokenizer::spelling(TokenId id) const {
  return impl_->contains(id) ? std::string_view(impl_->vocabulary.tokens[static_cast<std::size_t>(id)]) : "";
}

std::optional<TokenId> Tokenizer::find(std::string_view spelling) const {
  return optional_id(impl_->spelled.find(spelling));
}

TokenType Tokenizer::type(TokenId id) const { return impl_->contains(id) ? impl_->type(id) : TokenType::undefined; }

bool Tokenizer::is_special(TokenId id) const {
  const TokenType of = type(id);
  return of == TokenType::control || of == TokenType::unknown || of == TokenType::unused;
}

std::optional<TokenId> Tokenizer::bos() const { return optional_id(impl_->vocabulary.bos); }
std::optional<TokenId> Tokenizer::eos() const { return optional_id(impl_->vocabulary.eos); }
std::optional<TokenId> Tokenizer::unk() const { return optional_id(impl_->vocabulary.unk); }
std::optional<TokenId> Tokenizer::pad() const { return optional_id(impl_->vocabulary.pad); }
bool Tokenizer::adds_bos() const { return impl_->add_bos; }
bool Tokenizer::adds_eos() const { return impl_->add_eos; }
bool Tokenizer::adds_space_prefix() const { return impl_->add_space_prefix; }

bool Tokenizer::is_end_of_generation(TokenId id) const {
  return std::ranges::binary_search(impl_->end_of_generation, id);
}
std::span<const TokenId> Tokenizer::end_of_generation() const { return impl_->end_of_generation; }

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

}  // namespace quire::text

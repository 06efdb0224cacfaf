#include "quire/cli/constrain.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "quire/cli/input.h"
#include "quire/cli/printable.h"
#include "quire/gguf/gguf.h"
#include "quire/grammar/byte_vocabulary.h"
#include "quire/grammar/matcher.h"
#include "quire/text/tokenizer.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using grammar::Matcher;
using text::TokenId;
using text::Tokenizer;

class Stopwatch {
 public:
  double us() const {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Where a file is not admitted, and why.
struct Refusal {
  std::size_t byte = 0;
  std::string reason;
};

Result<Tokenizer> tokenizer_of(const std::string& model) {
  if (model.empty()) return grammar::byte_tokenizer();
  const auto file = gguf::File::open(model);
  if (!file) return std::unexpected(file.error());
  return Tokenizer::from_gguf(*file);
}

struct Spelled {
  TokenId id = text::kNoToken;
  std::size_t bytes = 0;
};
// The longest token that the text begins with, or the one of its first byte.
Spelled longest_token(const Tokenizer& tokenizer, std::string_view text) {
  for (std::size_t length = text.size(); length > 0; --length) {
    const TokenId id = tokenizer.find(text.substr(0, length)).value_or(text::kNoToken);
    if (id != text::kNoToken && tokenizer.piece(id) == text.substr(0, length)) return {id, length};
  }
  const std::string byte = fmt::format("<0x{:02X}>", static_cast<unsigned char>(text.front()));
  return {tokenizer.find(byte).value_or(text::kNoToken), 1};
}

// SentencePiece's encode() puts a space before a text. An answer goes on after a prompt, so it has none.
void remove_space_prefix(const Tokenizer& tokenizer, std::string_view text, std::vector<TokenId>& ids) {
  if (!tokenizer.adds_space_prefix() || ids.empty() || text.starts_with(' ')) return;
  std::string_view rest = tokenizer.piece(ids.front());
  if (!rest.starts_with(' ')) return;
  std::vector<TokenId> begin;
  for (rest.remove_prefix(1); !rest.empty();) {
    const Spelled token = longest_token(tokenizer, rest);
    if (token.id == text::kNoToken) return;  // the vocabulary cannot spell it without the space
    begin.push_back(token.id);
    rest.remove_prefix(token.bytes);
  }
  ids.erase(ids.begin());
  ids.insert(ids.begin(), begin.begin(), begin.end());
}

class Checker {
 public:
  Checker(const ConstrainOptions& options, const Tokenizer& tokenizer, std::shared_ptr<grammar::Compiled> compiled,
          std::size_t mask_words)
      : options_(options), tokenizer_(tokenizer), compiled_(std::move(compiled)), mask_(mask_words) {}

  // Nothing: the text is admitted.
  Result<std::optional<Refusal>> check(std::string_view text) {
    // A special token's spelling is not text, so a file that has them can only be read token by token.
    if (!options_.special) {
      if (auto refusal = by_bytes(text)) return refusal;
    }
    if (options_.model.empty()) return std::nullopt;
    return by_tokens(text);
  }
  std::vector<double>& mask_us() { return mask_us_; }

 private:
  std::optional<Refusal> by_bytes(std::string_view text) {
    Matcher matcher(compiled_);
    const std::size_t admitted = matcher.accept_bytes(text);
    if (matcher.failed()) return Refusal{admitted, kTooAmbiguous};
    if (admitted < text.size()) {
      const std::string_view rest = text.substr(admitted);
      if (matcher.may_end() && (rest == "\n" || rest == "\r\n")) {
        return Refusal{admitted, "the text is complete before its last line end"};
      }
      return Refusal{admitted, fmt::format("{} cannot come here", shown(rest))};
    }
    if (!matcher.may_end()) return Refusal{text.size(), kTooEarly};
    return std::nullopt;
  }

  Result<std::optional<Refusal>> by_tokens(std::string_view text) {
    auto ids = tokenizer_.encode(text, {.add_special = false, .parse_special = options_.special});
    if (!ids) return std::unexpected(ids.error());
    remove_space_prefix(tokenizer_, text, *ids);
    Matcher matcher(compiled_);
    std::size_t byte = 0;
    for (std::size_t i = 0; i < ids->size(); ++i) {
      const TokenId id = (*ids)[i];
      const Stopwatch watch;
      matcher.mask(mask_);
      const bool allowed = is_allowed(id) && matcher.accept(id);
      mask_us_.push_back(watch.us());
      if (matcher.failed()) return Refusal{byte, kTooAmbiguous};
      const std::string_view piece = tokenizer_.is_special(id) ? tokenizer_.spelling(id) : tokenizer_.piece(id);
      if (!allowed) {
        const std::size_t part = matcher.accept_bytes(piece);
        return Refusal{byte + part,
                       fmt::format("token {} of {} ({}) cannot come here", i + 1, ids->size(), shown(piece))};
      }
      byte += piece.size();
    }
    const Stopwatch watch;
    matcher.mask(mask_);
    mask_us_.push_back(watch.us());
    const auto ends = tokenizer_.end_of_generation();
    if (ends.empty() ? !matcher.may_end() : std::ranges::none_of(ends, [&](TokenId id) { return is_allowed(id); })) {
      return Refusal{text.size(), kTooEarly};
    }
    return std::nullopt;
  }

  bool is_allowed(TokenId id) const {
    const auto index = static_cast<std::size_t>(id);
    return index / 32 < mask_.size() && ((mask_[index / 32] >> (index % 32)) & 1) != 0;
  }
  static std::string shown(std::string_view text) { return printable(text, {.limit = 40, .quotes = true}); }

  static constexpr const char* kTooEarly = "the text ends before it is complete";
  static constexpr const char* kTooAmbiguous = "the grammar is too ambiguous here";

  const ConstrainOptions& options_;
  const Tokenizer& tokenizer_;
  std::shared_ptr<grammar::Compiled> compiled_;
  std::vector<std::uint32_t> mask_;
  std::vector<double> mask_us_;
};

std::string line_of(const std::string& file, std::string_view text, const std::optional<Refusal>& refusal,
                    bool as_json) {
  if (as_json) {
    json::object out;
    out["file"] = file;
    out["admitted"] = !refusal;
    out["byte"] = refusal ? json::value(refusal->byte) : json::value();
    out["reason"] = refusal ? json::value(refusal->reason) : json::value();
    return text::json_line(out);
  }
  const std::string name = printable(file);
  if (!refusal) return fmt::format("{}: admitted\n", name);
  const std::string_view before = text.substr(0, refusal->byte);
  const auto lines = std::ranges::count(before, '\n');
  const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("{}: not admitted at byte {} (line {}, column {}): {}\n", name, refusal->byte, lines + 1,
                     refusal->byte - line_start + 1, refusal->reason);
}

struct Statistics {
  double compile_us = 0;
  std::size_t masks = 0;
  double mean = 0, p50 = 0, p99 = 0, p999 = 0;
};

Statistics statistics_of(double compile_us, std::vector<double>& values) {
  Statistics out{.compile_us = compile_us, .masks = values.size()};
  if (values.empty()) return out;
  std::ranges::sort(values);
  for (const double value : values) out.mean += value / static_cast<double>(values.size());
  const auto at = [&](std::size_t per_thousand) {
    return values[std::min(values.size() - 1, values.size() * per_thousand / 1000)];
  };
  out.p50 = at(500);
  out.p99 = at(990);
  out.p999 = at(999);
  return out;
}

std::string statistics_text(const Statistics& s, bool has_model, bool as_json, const Style& style) {
  if (as_json) {
    json::object masks{
        {"count", s.masks}, {"mean_us", s.mean}, {"p50_us", s.p50}, {"p99_us", s.p99}, {"p999_us", s.p999}};
    json::object out{{"compile_us", s.compile_us}};
    out["masks"] = has_model ? json::value(masks) : json::value();
    return text::json_line(json::object{{"stats", out}});
  }
  const char* us = style.utf8 ? "µs" : "us";
  std::string out = fmt::format("compiled in {:.0f} {}\n", s.compile_us, us);
  if (has_model) {
    fmt::format_to(std::back_inserter(out), "{} masks: mean {:.1f} {}, 50 % {:.1f}, 99 % {:.1f}, 99.9 % {:.1f}\n",
                   s.masks, s.mean, us, s.p50, s.p99, s.p999);
  }
  return out;
}

}  // namespace

Result<Constrained> constrain(const ConstrainOptions& options, const Style& style) {
  const auto spec = read_constraint(options.constraint);
  if (!spec) return std::unexpected(spec.error());
  if (!*spec) return fail("one of --schema, --regex and --grammar is required");
  std::string name = "--regex";
  if (!options.constraint.schema.empty()) name = input_name(options.constraint.schema);
  if (!options.constraint.grammar.empty()) name = input_name(options.constraint.grammar);

  const auto tokenizer = tokenizer_of(options.model);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  const auto trie = grammar::TokenTrie::create(*tokenizer, static_cast<std::uint32_t>(tokenizer->size()));
  const Stopwatch watch;
  auto grammar = grammar::build(**spec);
  if (!grammar) return fail(fmt::format("{}: {}", name, grammar.error().message));
  auto compiled = grammar::compile(std::move(*grammar), trie);
  if (!compiled) return fail(fmt::format("{}: {}", name, compiled.error().message));
  const double compile_us = watch.us();

  Checker checker(options, *tokenizer, *compiled, trie->mask_words());
  Constrained out;
  for (const std::string& file : options.files) {
    const auto text = read_input(file, kMaxConstrainedBytes);
    if (!text) return std::unexpected(text.error());
    const auto refusal = checker.check(*text);
    if (!refusal) return fail(fmt::format("{}: {}", input_name(file), refusal.error().message));
    out.admitted = out.admitted && !*refusal;
    out.text += line_of(input_name(file), *text, *refusal, options.json);
  }
  if (options.stats) {
    const Statistics statistics = statistics_of(compile_us, checker.mask_us());
    out.text += statistics_text(statistics, !options.model.empty(), options.json, style);
  }
  return out;
}

}  // namespace quire::cli

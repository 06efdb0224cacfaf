#include "quire/grammar/matcher.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "quire/base/utf8.h"
#include "quire/grammar/masks.h"
#include "quire/grammar/parser.h"
#include "quire/grammar/prepared.h"
#include "quire/grammar/token_trie.h"

namespace quire::grammar {

namespace {

// For one call of a matcher. A call that needs more is not of a grammar that anyone writes.
constexpr std::uint64_t kCallSteps = 10'000'000;
constexpr std::uint64_t kCallBytes = std::uint64_t{64} << 20;
constexpr std::size_t kForcedBytes = 4096;

// In a form that compilers turn into vector instructions: without them std::popcount() would be most of a mask's time.
std::uint32_t count_bits(std::span<const std::uint32_t> words) {
  std::uint32_t count = 0;
  for (std::uint32_t word : words) {
    word -= word >> 1 & 0x55555555U;
    word = (word & 0x33333333U) + (word >> 2 & 0x33333333U);
    word = (word + (word >> 4)) & 0x0F0F0F0FU;
    word += word >> 8;
    word += word >> 16;
    count += word & 63U;
  }
  return count;
}

// What matchers of a grammar have computed. A new one begins when it is full; matchers carry their state over.
struct Cache {
  Budget budget;
  Parser parser;
  Masks masks;
  std::size_t limit;

  Cache(const Prepared& prepared, std::unique_ptr<Budget> spent, RegexSet regexes, std::vector<RegexId> terminals,
        const TokenTrie::Impl& vocabulary, std::size_t bytes)
      : parser(prepared, std::move(regexes), std::move(terminals)),
        masks(parser, vocabulary),
        limit(bytes),
        first_(std::move(spent)) {
    parser.lexer().regexes().use(budget);
    base_ = this->bytes();
  }

  void begin_call() { budget = Budget({.steps = kCallSteps, .bytes = kCallBytes}); }
  std::size_t bytes() const { return parser.bytes() + masks.bytes(); }
  bool full() const { return bytes() > base_ + limit; }

 private:
  std::unique_ptr<Budget> first_;
  std::size_t base_ = 0;  // bytes of the grammar itself
};

}  // namespace

class Compiled {
 public:
  Compiled(Grammar grammar, Prepared prepared, std::shared_ptr<const TokenTrie> vocabulary,
           const CompileOptions& options)
      : grammar_(std::move(grammar)),
        prepared_(std::move(prepared)),
        vocabulary_(std::move(vocabulary)),
        limit_(options.cache_bytes) {
    free_special_ = vocabulary_->impl().free_special;
    for (const TokenId token : prepared_.named_tokens) {
      const auto bit = static_cast<std::uint32_t>(token);
      free_special_[bit / 32] &= ~(1U << (bit % 32));
    }
    // The first cache goes on with the grammar's own expressions.
    for (const PreparedTerminal& terminal : prepared_.terminals) regexes_.push_back(terminal.regex);
    auto budget = unlimited();
    grammar_.regexes().use(*budget);
    begin(std::move(budget), std::move(grammar_.regexes()));
  }

  // An empty cache: of the old one only the grammar's own expressions are copied.
  void renew() {
    auto budget = unlimited();
    RegexSet regexes(*budget);
    for (RegexId& regex : regexes_) regex = regexes.import(cache->parser.lexer().regexes(), regex);
    begin(std::move(budget), std::move(regexes));
  }

  bool is_free_special(TokenId token) const {
    const auto bit = static_cast<std::uint32_t>(token);
    return (free_special_[bit / 32] >> (bit % 32) & 1U) != 0;
  }
  std::span<const std::uint32_t> free_special() const { return free_special_; }
  const TokenTrie& vocabulary() const { return *vocabulary_; }

  std::mutex mutex;  // of everything that the cache points to
  std::shared_ptr<Cache> cache;
  std::atomic<std::size_t> bytes = 0;  // about; with the grammar

  void count_bytes() { bytes = cache->bytes() + grammar_.budget().bytes(); }

 private:
  static std::unique_ptr<Budget> unlimited() {
    return std::make_unique<Budget>(Limits{.steps = ~std::uint64_t{0} >> 1, .bytes = ~std::uint64_t{0} >> 1});
  }
  void begin(std::unique_ptr<Budget> budget, RegexSet regexes) {
    cache = std::make_shared<Cache>(prepared_, std::move(budget), std::move(regexes), regexes_, vocabulary_->impl(),
                                    limit_);
    count_bytes();
  }

  Grammar grammar_;  // its expressions are the cache's
  Prepared prepared_;
  std::shared_ptr<const TokenTrie> vocabulary_;
  std::size_t limit_;
  std::vector<std::uint32_t> free_special_;
  std::vector<RegexId> regexes_;  // of the terminals, in the cache
};

Result<std::shared_ptr<Compiled>> compile(Grammar grammar, std::shared_ptr<const TokenTrie> vocabulary,
                                          const CompileOptions& options) {
  auto prepared = prepare(grammar, vocabulary->tokenizer());
  if (!prepared) return fail(prepared.error().message);
  return std::make_shared<Compiled>(std::move(grammar), std::move(*prepared), std::move(vocabulary), options);
}

std::size_t compiled_bytes(const Compiled& compiled) { return compiled.bytes; }

struct Matcher::Impl {
  std::shared_ptr<Compiled> compiled;
  std::shared_ptr<Cache> cache;
  StateId state = Parser::kDead;
  bool ended = false;  // a token that ends an answer was accepted
  bool failed = false;
  std::string tail;  // bytes of an unfinished character at the end of the text

  Parser& parser() const { return cache->parser; }

  // Calls `body` with the mutex held and a cache that is not full. If the cache becomes too large on the way, once more
  // with an empty one. `body` says whether it stayed within the limits.
  template <typename F>
  void call(F body) {
    const std::lock_guard lock(compiled->mutex);
    if (failed) return;
    if (compiled->cache->full()) compiled->renew();
    for (int attempt = 0; attempt < 2; ++attempt) {
      compiled->cache->begin_call();
      if (cache != compiled->cache) {
        state = compiled->cache->parser.import(cache->parser, state);
        cache = compiled->cache;
      }
      const StateId before = state;
      const bool ended_before = ended;
      const std::string tail_before = tail;
      const bool within = body() && !cache->budget.exhausted();
      compiled->count_bytes();
      if (within) return;
      // What was computed with an exhausted budget is not to be used.
      state = before;
      ended = ended_before;
      tail = tail_before;
      compiled->renew();
    }
    failed = true;
  }

  static void set(std::span<std::uint32_t> bits, TokenId token) {
    const auto bit = static_cast<std::uint32_t>(token);
    bits[bit / 32] |= 1U << (bit % 32);
  }

  template <typename F>
  std::uint32_t mask(std::span<std::uint32_t> bits, F add) {
    std::ranges::fill(bits, 0U);
    call([&] {
      std::ranges::fill(bits, 0U);
      if (!ended) {
        if (!add(state)) return false;
        for (const TokenId token : parser().tokens(state)) set(bits, token);
        if (parser().free_special(state)) {
          const auto more = compiled->free_special();
          for (std::size_t i = 0; i < more.size(); ++i) bits[i] |= more[i];
        }
      }
      if (ended || parser().complete(state)) {
        for (const TokenId token : compiled->vocabulary().impl().ends) set(bits, token);
      }
      return true;
    });
    if (failed) std::ranges::fill(bits, 0U);
    return count_bits(bits);
  }

  void read(std::string_view bytes) {
    const std::string end = tail + std::string(bytes.substr(bytes.size() - std::min<std::size_t>(bytes.size(), 4)));
    tail = end.substr(end.size() - utf8_incomplete_tail(end));
  }

  std::string forced_bytes(StateId& at) const {
    std::string bytes;
    while (!ended && bytes.size() < kForcedBytes && !parser().complete(at) && parser().tokens(at).empty() &&
           !parser().free_special(at)) {
      const int byte = parser().only_byte(at);
      if (byte < 0) break;
      const StateId next = parser().step(at, static_cast<std::uint8_t>(byte));
      if (next <= Parser::kTooMuch) break;
      bytes += static_cast<char>(byte);
      at = next;
    }
    return bytes;
  }

  // Whether some token begins with `bytes` and goes on in a way that is possible from `at`.
  bool may_go_on(std::string_view bytes, StateId at) const {
    const TokenTrie::Impl& vocabulary = compiled->vocabulary().impl();
    return may_go_on(vocabulary.all, bytes, at) || may_go_on(vocabulary.longer, bytes, at);
  }

  bool may_go_on(const Trie& trie, std::string_view bytes, StateId at) const {
    std::uint32_t node = 0, end = trie.size();
    for (const char c : bytes) {
      while (node < end && trie.byte[node] != static_cast<std::uint8_t>(c)) node = trie.end[node];
      if (node >= end) return false;
      end = trie.end[node++];
    }
    for (; node < end; node = trie.end[node]) {
      if (parser().step(at, trie.byte[node]) != Parser::kDead) return true;
    }
    return false;
  }

  std::vector<TokenId> spelled(std::string_view bytes) const;
};

// In the tokenizer's own spelling; empty if it has none with exactly these bytes.
std::vector<TokenId> Matcher::Impl::spelled(std::string_view bytes) const {
  const text::Tokenizer& tokenizer = compiled->vocabulary().tokenizer();
  const auto pieces = [&](std::span<const TokenId> tokens) {
    std::string all;
    for (const TokenId token : tokens) all += tokenizer.piece(token);
    return all;
  };
  const auto wanted = [&](const std::vector<TokenId>& tokens) {
    const auto in_trie = [&](TokenId token) {
      return compiled->vocabulary().impl().special[static_cast<std::size_t>(token)] == 0;
    };
    return std::ranges::all_of(tokens, in_trie) && pieces(tokens) == bytes;
  };
  auto tokens = tokenizer.encode(bytes, {.add_special = false, .parse_special = false});
  if (tokens && wanted(*tokens)) return std::move(*tokens);
  // SentencePiece puts a space before a text, but not after a line break.
  tokens = tokenizer.encode("\n" + std::string(bytes), {.add_special = false, .parse_special = false});
  if (!tokens) return {};
  for (std::size_t i = 1; i <= std::min<std::size_t>(2, tokens->size()); ++i) {
    std::vector<TokenId> rest(tokens->begin() + static_cast<std::ptrdiff_t>(i), tokens->end());
    if (wanted(rest)) return rest;
  }
  return {};
}

Matcher::Matcher(std::shared_ptr<Compiled> compiled) : impl_(std::make_unique<Impl>()) {
  impl_->compiled = std::move(compiled);
  {
    const std::lock_guard lock(impl_->compiled->mutex);
    impl_->cache = impl_->compiled->cache;
  }
  impl_->call([&] {
    impl_->state = impl_->parser().start();
    return impl_->state != Parser::kTooMuch;
  });
}

Matcher::Matcher(const Matcher& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(const Matcher& other) {
  if (this != &other) impl_ = std::make_unique<Impl>(*other.impl_);
  return *this;
}
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

std::uint32_t Matcher::mask(std::span<std::uint32_t> bits) {
  return impl_->mask(bits, [&](StateId state) { return impl_->cache->masks.add(state, bits); });
}

std::uint32_t Matcher::mask_slowly(std::span<std::uint32_t> bits) {
  return impl_->mask(bits, [&](StateId state) { return impl_->cache->masks.add_slowly(state, bits); });
}

bool Matcher::accept(TokenId token) {
  Impl& impl = *impl_;
  const text::Tokenizer& tokenizer = impl.compiled->vocabulary().tokenizer();
  if (token < 0 || static_cast<std::size_t>(token) >= tokenizer.size()) return false;
  bool accepted = false;
  impl.call([&] {
    accepted = false;
    if (impl.compiled->vocabulary().impl().special[static_cast<std::size_t>(token)] != 0) {
      const StateId next = impl.ended
                               ? Parser::kDead
                               : impl.parser().step_token(impl.state, token, impl.compiled->is_free_special(token));
      if (next == Parser::kTooMuch) return false;
      if (next != Parser::kDead) {
        impl.state = next;
        impl.tail.clear();
        accepted = true;
      } else if (tokenizer.is_end_of_generation(token) && (impl.ended || impl.parser().complete(impl.state))) {
        impl.ended = true;
        accepted = true;
      }
      return true;
    }
    if (impl.ended) return true;
    StateId at = impl.state;
    const std::string_view piece = tokenizer.piece(token);
    for (const char c : piece) {
      at = impl.parser().step(at, static_cast<std::uint8_t>(c));
      if (at == Parser::kTooMuch) return false;
    }
    if (at == Parser::kDead) return true;
    impl.state = at;
    impl.read(piece);
    accepted = true;
    return true;
  });
  return accepted && !impl.failed;
}

std::size_t Matcher::accept_bytes(std::string_view bytes) {
  Impl& impl = *impl_;
  std::size_t count = 0;
  // In parts, so that the cache can be renewed in between.
  constexpr std::size_t kPart = 4096;
  while (count < bytes.size() && !impl.failed && !impl.ended) {
    const std::string_view part = bytes.substr(count, kPart);
    std::size_t accepted = 0;
    impl.call([&] {
      StateId at = impl.state;
      for (accepted = 0; accepted < part.size(); ++accepted) {
        const StateId next = impl.parser().step(at, static_cast<std::uint8_t>(part[accepted]));
        if (next == Parser::kTooMuch || impl.cache->budget.exhausted()) return false;
        if (next == Parser::kDead) break;
        at = next;
      }
      impl.state = at;
      return true;
    });
    if (impl.failed) break;
    impl.read(part.substr(0, accepted));
    count += accepted;
    if (accepted < part.size()) break;
  }
  return count;
}

bool Matcher::may_end() const {
  const std::lock_guard lock(impl_->compiled->mutex);
  return !impl_->failed && (impl_->ended || impl_->parser().complete(impl_->state));
}

bool Matcher::must_end() const {
  if (!may_end()) return false;
  const std::lock_guard lock(impl_->compiled->mutex);
  const Parser& parser = impl_->parser();
  return impl_->ended || (parser.threads(impl_->state).empty() && parser.tokens(impl_->state).empty());
}

std::string Matcher::forced_bytes() {
  std::string bytes;
  impl_->call([&] {
    StateId at = impl_->state;
    bytes = impl_->forced_bytes(at);
    return true;
  });
  return impl_->failed ? std::string() : bytes;
}

std::vector<TokenId> Matcher::forced() {
  Impl& impl = *impl_;
  std::vector<TokenId> tokens;
  impl.call([&] {
    tokens.clear();
    StateId at = impl.state;
    std::string bytes = impl.forced_bytes(at);
    if (bytes.empty()) {
      // A special token alone.
      const auto named = impl.parser().tokens(at);
      if (!impl.ended && named.size() == 1 && impl.parser().threads(at).empty() && !impl.parser().complete(at))
        tokens.push_back(named.front());
      return true;
    }
    if (!impl.tail.empty()) return true;
    const std::size_t whole = bytes.size() - utf8_incomplete_tail(bytes);
    const bool nothing_follows = whole == bytes.size() && impl.parser().threads(at).empty();
    tokens = impl.spelled(std::string_view(bytes).substr(0, whole));
    if (nothing_follows) return true;
    // The first byte from which on a longer token may come.
    const std::size_t longest =
        std::max(impl.compiled->vocabulary().impl().all.longest, impl.compiled->vocabulary().impl().longer.longest);
    std::size_t stable = bytes.size() > longest ? bytes.size() - longest : 0;
    while (stable < whole && !impl.may_go_on(std::string_view(bytes).substr(stable), at)) ++stable;
    std::size_t end = whole;
    while (!tokens.empty() && end > stable) {
      end -= impl.compiled->vocabulary().tokenizer().piece(tokens.back()).size();
      tokens.pop_back();
    }
    return true;
  });
  if (impl.failed) tokens.clear();
  return tokens;
}

bool Matcher::failed() const { return impl_->failed; }
std::size_t Matcher::bytes() const { return sizeof(Matcher) + sizeof(Impl) + impl_->tail.capacity(); }

std::uint64_t Matcher::work() const {
  const std::lock_guard lock(impl_->compiled->mutex);
  return impl_->cache->parser.work() + impl_->cache->masks.visited();
}

}  // namespace quire::grammar

// A small engine on libquire-state: what a program has to write to keep the memory of its sequences in one
// pool. There are four sequences. "first" computes its prompt. "shared" has the same prefix as "first" and
// reuses its pages. "forked" starts from "first" in the middle of a page, which is copied on the first
// write. "refused" is larger than the pool.
//
// A token is a letter, so that pages can be read. The model is a toy, but a complete one: two attention layers and a
// recurrent layer between them. Its output depends on every byte that was stored for the earlier tokens.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quire/state/device.h"
#include "quire/state/sequence_pool.h"

namespace {

using namespace quire;

// ------------------------------------------------------------------------------------------------------- the model

constexpr std::uint32_t kDim = 8;        // hidden size; one KV head of this dimension
constexpr std::uint32_t kConvWidth = 4;  // inputs in the convolution state
constexpr std::uint32_t kBlockSize = 8;  // tokens in a page
using Vector = std::array<float, kDim>;

const std::array kLayers = {
    LayerDesc::attention(1, kDim, ElementType::F32),
    LayerDesc::recurrent(kConvWidth * sizeof(Vector), kDim * sizeof(Vector)),
    LayerDesc::attention(1, kDim, ElementType::F32),
};

float dot(const float* a, const float* b) {
  float sum = 0;
  for (std::uint32_t i = 0; i < kDim; ++i) sum += a[i] * b[i];
  return sum;
}

// Writes K and V of this position, then attends to all positions up to it, in order, through the page table.
void attend(const KvView& kv, std::uint32_t position, Vector& hidden) {
  const auto row = [](std::byte* at) { return reinterpret_cast<float*>(at); };
  std::memcpy(kv.k(0, position), hidden.data(), sizeof hidden);
  std::reverse_copy(hidden.begin(), hidden.end(), row(kv.v(0, position)));
  Vector out{};
  float total = 0;
  for (std::uint32_t p = 0; p <= position; ++p) {
    const float weight = std::exp(dot(hidden.data(), row(kv.k(0, p))));
    for (std::uint32_t i = 0; i < kDim; ++i) out[i] += weight * row(kv.v(0, p))[i];
    total += weight;
  }
  for (std::uint32_t i = 0; i < kDim; ++i) hidden[i] += out[i] / total;
}

// Shifts the convolution state by one input and updates the SSM state. The size of a recurrent state never grows.
void recur(const StateView& view, std::uint32_t layer, Vector& hidden) {
  auto* conv = reinterpret_cast<float*>(view.conv(layer));  // [kConvWidth][kDim]
  auto* state = reinterpret_cast<float*>(view.ssm(layer));  // [kDim][kDim]
  std::copy(conv + kDim, conv + kConvWidth * kDim, conv);
  std::copy(hidden.begin(), hidden.end(), conv + (kConvWidth - 1) * kDim);
  for (std::uint32_t i = 0; i < kDim; ++i) {
    for (std::uint32_t j = 0; j < kDim; ++j) state[i * kDim + j] = 0.9f * state[i * kDim + j] + hidden[i] * conv[j];
  }
  const Vector in = hidden;
  for (std::uint32_t i = 0; i < kDim; ++i) hidden[i] += dot(state + i * kDim, in.data());
}

// Computes one token and returns the next. Views are requested each time: they are valid until
// the next call that may change something.
Token forward(SequencePool& pool, SequenceId id, std::uint32_t position, Token token) {
  Vector hidden;
  for (std::uint32_t i = 0; i < kDim; ++i) hidden[i] = std::sin(static_cast<float>(token * (i + 1)));
  for (const StateLayout::Place& place : pool.layout().places) {
    if (place.kind == LayerDesc::Kind::Attention) {
      attend(*pool.kv_view(id, place.group, place.index), position, hidden);
    } else {
      recur(*pool.state_view(id), place.index, hidden);
    }
    const float norm = std::sqrt(dot(hidden.data(), hidden.data()));
    for (float& x : hidden) x /= norm;
  }
  float logit = 0;
  for (std::uint32_t i = 0; i < kDim; ++i) logit += hidden[i] * static_cast<float>(i + 1);
  return 'a' + static_cast<Token>(std::fabs(logit) * 1000) % 26;
}

// ------------------------------------------------------------------------------------------------------ the engine

// One step of an engine: reserve room for all tokens or be refused, write, commit. A long prompt is split at checkpoint
// positions, so that prompts with the same prefix can resume from there.
PoolResult<Token> feed(SequencePool& pool, SequenceId id, std::span<const Token> tokens) {
  if (auto ok = pool.reserve(id, static_cast<std::uint32_t>(tokens.size())); !ok) return std::unexpected(ok.error());
  Token next = 0;
  while (!tokens.empty()) {
    const std::uint32_t length = *pool.length(id);
    const auto chunk = tokens.first(std::min<std::size_t>(tokens.size(), *pool.next_checkpoint(id) - length));
    for (std::uint32_t i = 0; i < chunk.size(); ++i) next = forward(pool, id, length + i, chunk[i]);
    if (auto ok = pool.commit(id, chunk); !ok) return std::unexpected(ok.error());
    tokens = tokens.subspan(chunk.size());
  }
  return next;
}

struct Sequence {
  const char* name;
  SequenceId id;
  Hit hit;         // how much of its prompt was reused
  Token next = 0;  // the last token generated; not computed yet
};

PoolResult<Sequence> start(SequencePool& pool, const char* name, std::string_view text) {
  const std::vector<Token> prompt(text.begin(), text.end());
  const auto created = pool.create({.prompt = prompt});
  if (!created) return std::unexpected(created.error());
  const auto next = feed(pool, created->id, std::span(prompt).subspan(created->hit.tokens));
  if (!next) {
    (void)pool.release(created->id);
    return std::unexpected(next.error());
  }
  return Sequence{name, created->id, created->hit, *next};
}

PoolResult<void> generate(SequencePool& pool, Sequence& sequence, int tokens) {
  for (; tokens > 0; --tokens) {
    const auto next = feed(pool, sequence.id, std::span(&sequence.next, 1));
    if (!next) return std::unexpected(next.error());
    sequence.next = *next;
  }
  return {};
}

// Only one operation of this program may be refused, and its result is inspected. Everything else must succeed.
template <typename T>
T must(PoolResult<T> result) {
  if (!result) {
    std::fprintf(stderr, "embed_state: %s\n", result.error().message().c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

std::string text_of(const SequencePool& pool, SequenceId id) {
  const auto tokens = must(pool.tokens(id));
  return {tokens.begin(), tokens.end()};
}

// ------------------------------------------------------------------------------------------------------- to look at

// Draws each page of a sequence with its number and its text. '*': other sequences have it in
// their tables too. '.': reserved, not written.
void draw(const SequencePool& pool, std::initializer_list<const Sequence*> sequences) {
  for (const Sequence* sequence : sequences) {
    std::string text = text_of(pool, sequence->id);
    const auto pages = must(pool.pages(sequence->id, 0));
    text.resize(pages.size() * kBlockSize, '.');
    std::printf("    %-7s |", sequence->name);
    for (std::size_t block = 0; block < pages.size(); ++block) {
      const bool shared = must(pool.block_pool(0).allocator().references(pages[block])) > 1;
      std::printf("%u%c%s|", pages[block].index, shared ? '*' : ' ',
                  text.substr(block * kBlockSize, kBlockSize).c_str());
    }
    std::printf(" state %u\n", must(pool.slot(sequence->id)).index);
  }
  // One letter per slab: P holds pages, S states, '.' is free for either.
  std::printf("    arena   |");
  const Arena& arena = pool.arena();
  for (std::uint32_t slab = 0; slab < arena.total_slabs(); ++slab) {
    std::putchar(arena.is_free(slab) ? '.' : arena.owner(slab) == 0 ? 'P' : 'S');
  }
  const PoolStats stats = pool.stats();
  std::printf("|\n    pages: %u held + %u cached + %u free = %u; states: %u held + %u cached + %u free = %u\n\n",
              stats.pages[0].held, stats.pages[0].cached, stats.pages[0].free, stats.pages[0].total, stats.states.held,
              stats.states.cached, stats.states.free, stats.states.total);
}

std::unique_ptr<SequencePool> make_pool(Device& device) {
  PoolConfig config;
  config.layout = must(StateLayout::from_layers(kLayers, kBlockSize));
  config.budget_bytes = 192 << 10;
  config.max_sequences = 8;
  config.checkpoint_interval = 2 * kBlockSize;
  return must(SequencePool::create(device, config));
}

// The letter that follows this text in a pool of its own: nothing to reuse, no sharing, no fork.
Token alone(Device& device, std::string_view text) {
  const auto pool = make_pool(device);
  return must(start(*pool, "alone", text)).next;
}

}  // namespace

int main() {
  HostDevice device;
  const auto pool = make_pool(device);
  const Arena& arena = pool->arena();
  std::printf("A pool of %u slabs of %u bytes. A slab holds %u pages of %u tokens, or %u states.\n\n",
              arena.total_slabs(), static_cast<unsigned>(arena.slab_bytes()),
              pool->block_pool(0).allocator().cells_per_slab(), kBlockSize,
              static_cast<unsigned>(arena.slab_bytes() / pool->layout().recurrent.bytes()));

  std::printf("1. first: computes its prompt and generates a few letters.\n");
  Sequence first = must(start(*pool, "first", "You are a poet. Roses are"));
  must(generate(*pool, first, 3));
  draw(*pool, {&first});

  std::printf(
      "2. shared: has the same prefix, so it shares those pages and resumes from the checkpoint at their end.\n");
  Sequence shared = must(start(*pool, "shared", "You are a poet. Snow is"));
  must(generate(*pool, shared, 3));
  std::printf("   %u of its 23 prompt tokens were reused, %u computed.\n", shared.hit.tokens, 23 - shared.hit.tokens);
  draw(*pool, {&first, &shared});

  std::printf("3. forked: a second sequence from the end of the first. All pages are shared, the state is copied.\n");
  const auto fork = must(pool->fork(first.id, must(pool->length(first.id))));
  Sequence forked{.name = "forked", .id = fork.id, .hit = {}, .next = '!'};
  draw(*pool, {&first, &forked});
  std::printf("   It writes: now the half-full page is copied, and only that one.\n");
  must(generate(*pool, forked, 1));
  draw(*pool, {&first, &forked});

  std::printf("4. refused: a prompt of 2000 tokens. The pool can be asked beforehand, or simply says no.\n");
  const auto verdict = pool->can_ever_fit(2000, 2000);
  std::printf("   beforehand: %s\n", verdict ? "would fit" : verdict.error().message().c_str());
  const auto refused = start(*pool, "refused", "You are a poet. " + std::string(1984, 'x'));
  std::printf("   asked for:  %s\n", refused ? "fits" : refused.error().message().c_str());
  std::printf("   Nothing has changed:\n");
  draw(*pool, {&first, &shared, &forked});

  std::printf("5. Sharing does not change the output. Each text again, alone in an empty pool:\n");
  bool same = true;
  for (const Sequence* sequence : {&first, &shared, &forked}) {
    const Token expected = alone(device, text_of(*pool, sequence->id));
    std::printf("   %-7s continues with '%c', alone with '%c'\n", sequence->name, sequence->next, expected);
    same = same && sequence->next == expected;
  }

  std::printf("\n6. All are released. What nobody holds stays cached until the room is needed.\n");
  for (const Sequence* sequence : {&first, &shared, &forked}) must(pool->release(sequence->id));
  draw(*pool, {});
  const auto intact = pool->check_integrity();
  std::printf("   every page and state accounted for: %s\n", intact ? "yes" : intact.error().c_str());
  return same && intact ? 0 : 1;
}

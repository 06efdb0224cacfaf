#include "quire/session/session_state.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "quire/base/numbers.h"

namespace quire::session {
namespace {

// Restores the sequence that the first tokens of a file make, and keeps what it has in the cache.
PoolResult<void> give_beginning(SequencePool& pool, const Contents& file, const Fingerprint& model,
                                Namespace name_space, std::uint32_t tokens, std::span<const std::byte> state) {
  const std::uint32_t blocks = divide_up(tokens, file.block_size);
  std::vector<std::span<const std::byte>> pages;
  for (std::size_t g = 0; g < file.pages.size(); ++g) {
    if (file.first_blocks[g] > blocks) return std::unexpected(PoolError::damaged("first block of a group"));
    pages.push_back(file.pages[g].first((blocks - file.first_blocks[g]) * file.page_bytes[g]));
  }
  const auto id = pool.restore(SavedView{.model = model,
                                         .layout = file.layout,
                                         .name_space = name_space,
                                         .tokens = std::span(file.tokens).first(tokens),
                                         .first_blocks = file.first_blocks,
                                         .pages = pages,
                                         .state = state});
  if (!id) return std::unexpected(id.error());
  const auto kept = pool.commit(*id, {}, true);
  const auto released = pool.release(*id);
  return kept ? released : kept;
}

// The tokens that are cached, in whole units, and one more: a sequence always leaves one token of its prompt to
// compute. The other pool can keep nothing that ends inside a unit, and the window before its last whole unit would be
// missing.
std::vector<Token> cached_units(const SequencePool& pool, std::span<const Token> tokens, Namespace name_space) {
  const std::uint32_t unit = std::max(pool.config().checkpoint_unit, 1u);
  std::vector<Token> prompt(tokens.begin(), tokens.end());
  if (prompt.size() < pool.config().max_tokens) prompt.push_back(0);
  for (;;) {
    const std::uint32_t hit = pool.lookup(prompt, name_space).tokens, whole = hit / unit * unit;
    if (whole == 0) return {};
    if (prompt.size() > whole + 1) prompt.resize(whole + 1);
    if (hit == whole) return prompt;
  }
}

}  // namespace

PoolResult<Snapshot> take(SequencePool& pool, std::span<const Token> tokens, Namespace name_space,
                          const Fingerprint* adapter) {
  Snapshot snapshot{.block_size = pool.layout().block_size};
  for (const PageShape& shape : pool.layout().groups) snapshot.page_bytes.push_back(shape.page_bytes());
  if (pool.layout().has_recurrent()) snapshot.state_bytes = pool.layout().recurrent.bytes();
  const Fingerprint model = adapter != nullptr ? adapted(pool.config().model, *adapter) : pool.config().model;
  snapshot.sequence.model = model;
  snapshot.sequence.layout = fingerprint_of(pool.layout());
  const std::vector<Token> prompt = cached_units(pool, tokens, name_space);
  if (prompt.empty()) return snapshot;
  const auto created = pool.create({.prompt = prompt, .name_space = name_space});
  if (!created) return std::unexpected(created.error());
  auto saved = pool.save(created->id);
  auto checkpoints = pool.save_checkpoints(created->id);
  const auto released = pool.release(created->id);
  if (!saved) return std::unexpected(saved.error());
  if (!checkpoints) return std::unexpected(checkpoints.error());
  if (!released) return std::unexpected(released.error());
  snapshot.sequence = std::move(*saved);
  snapshot.sequence.model = model;
  snapshot.checkpoints = std::move(*checkpoints);
  return snapshot;
}

Result<void> check_origin(const Contents& file, const Fingerprint& model, const Hash128& layout) {
  if (file.model != model) {
    return fail(
        fmt::format("was made with another model or another arithmetic: its fingerprint is {}, and this one's {}",
                    short_name(file.model), short_name(model)));
  }
  if (file.layout != layout) {
    return fail(fmt::format("was made with another layout of the cache: its fingerprint is {}, and this one's {}",
                            short_name(file.layout), short_name(layout)));
  }
  return {};
}

PoolResult<Given> give(SequencePool& pool, const Contents& file, Namespace name_space, const Fingerprint* adapter) {
  Given given;
  const Fingerprint& own = pool.config().model;
  // The pool knows its model alone, and refuses the state of any other.
  const Fingerprint model = adapter != nullptr && file.model == adapted(own, *adapter) ? own
                            : adapter != nullptr                                       ? Fingerprint{}
                                                                                       : file.model;
  if (file.computed == 0) return given;
  for (const Contents::Checkpoint& each : file.checkpoints) {
    // What is left out is computed again when it is wanted. The end of the file says what is wrong with all of it. But
    // a failure of the device concerns everybody.
    const auto ok = give_beginning(pool, file, model, name_space, each.position, each.state);
    if (!ok && ok.error().code == PoolError::Code::WorkFailed) return std::unexpected(ok.error());
    if (!ok) break;
    ++given.checkpoints;
  }
  if (auto ok = give_beginning(pool, file, model, name_space, file.computed, file.state); !ok) {
    return std::unexpected(ok.error());
  }
  given.tokens = file.computed;
  return given;
}

}  // namespace quire::session

// Between a pool and a session file: what the pool has cached of some tokens is copied out, and put back as cached.
//
// Who may call: the thread that owns the pool. Both calls wait for the device.
// What holds: the pool has no sequence more than before. What was put back is cached like anything else: it can be
//   evicted at any time, and a prompt with these tokens finds it. Nothing is ever put back into a pool of another
//   model, arithmetic or layout.
#pragma once

#include <cstdint>
#include <span>

#include "quire/base/error.h"
#include "quire/session/session_format.h"
#include "quire/state/sequence_pool.h"

namespace quire::session {

// What the pool has of these tokens now: perhaps all, perhaps none. A recurrent model can be resumed at the positions
// of checkpoints only, so the last tokens are usually left out; they are computed again.
// `adapter`: the fingerprint of the namespace's adapter, if it has one. The snapshot is then one of another model
// (adapted() in saved_sequence.h).
PoolResult<Snapshot> take(SequencePool& pool, std::span<const Token> tokens, Namespace name_space,
                          const Fingerprint* adapter = nullptr);

// The error if a file was not made with this pool's model, arithmetic and layout. May be called from any thread.
Result<void> check_origin(const Contents& file, const Fingerprint& model, const Hash128& layout);

struct Given {
  std::uint32_t tokens = 0;       // that are cached now
  std::uint32_t checkpoints = 0;  // before their end
};
// Refused as SequencePool::restore() refuses: Incompatible, TooLong, Exhausted. Checkpoints for which there is no room
// are left out.
PoolResult<Given> give(SequencePool& pool, const Contents& file, Namespace name_space,
                       const Fingerprint* adapter = nullptr);

}  // namespace quire::session

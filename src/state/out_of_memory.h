// Turns exceptions of the heap into error values. Containers throw when memory runs out; this library returns
// errors. Code that builds containers for a caller does so inside or_out_of_memory(). What was built up to then is
// freed by its owners, as after any error.
//
// Constructors cannot return an error: those of BlockAllocator, PrefixIndex, EventLog and the arena classes throw. The
// create() functions of this library call them and do not throw.
#pragma once

#include <new>
#include <stdexcept>
#include <type_traits>

#include "quire/state/pool_error.h"

namespace quire {

// Returns what `make` returns (a PoolResult), or OutOfMemory.
template <typename Make>
std::invoke_result_t<Make> or_out_of_memory(const char* what, Make make) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return std::unexpected(PoolError::out_of_memory(what));
  } catch (const std::length_error&) {  // larger than a container may be
    return std::unexpected(PoolError::out_of_memory(what));
  }
}

}  // namespace quire

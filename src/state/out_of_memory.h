// The border where an exception of the heap becomes a value. Containers throw when memory runs out; this library
// returns errors. Whoever makes containers on behalf of a caller does so inside or_out_of_memory(). What was made up to
// then is given back by its owners, as after any error.
//
// Constructors cannot return: those of BlockAllocator, PrefixIndex, EventLog and the arena classes throw, and the
// create() functions of this library, which call them, do not.
#pragma once

#include <new>
#include <stdexcept>
#include <type_traits>

#include "quire/state/pool_error.h"

namespace quire {

// What `make` returns (a PoolResult), or OutOfMemory.
template <typename Make>
std::invoke_result_t<Make> or_out_of_memory(const char* what, Make make) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return std::unexpected(PoolError::out_of_memory(what));
  } catch (const std::length_error&) {  // more than a container can count
    return std::unexpected(PoolError::out_of_memory(what));
  }
}

}  // namespace quire

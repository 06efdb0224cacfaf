#include "quire/grammar/compiled_cache.h"

#include <iterator>
#include <utility>

namespace quire::grammar {

Result<std::shared_ptr<Compiled>> CompiledCache::get(const std::string& key, const Compile& compile) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) break;
    if (found->second->compiled) {
      ++hits_;
      entries_.splice(entries_.begin(), entries_, found->second);
      std::shared_ptr<Compiled> compiled = entries_.front().compiled;
      shrink();
      return compiled;
    }
    compiled_.wait(lock);
  }
  ++misses_;
  entries_.push_front({.key = key, .compiled = nullptr});
  const auto entry = entries_.begin();
  by_key_.emplace(key, entry);
  lock.unlock();
  const auto drop = [&] {
    by_key_.erase(key);
    entries_.erase(entry);
    compiled_.notify_all();
  };
  Result<std::shared_ptr<Compiled>> result;
  try {
    result = compile();
  } catch (...) {
    lock.lock();
    drop();
    throw;
  }
  lock.lock();
  if (!result) {
    drop();
    return result;
  }
  entry->compiled = *result;
  compiled_.notify_all();
  shrink();
  return result;
}

void CompiledCache::shrink() {
  std::size_t used = bytes();
  // The first was just asked for. Those that are being compiled have threads waiting.
  for (auto it = entries_.end();
       it != entries_.begin() && (entries_.size() > options_.count || used > options_.bytes);) {
    --it;
    if (it == entries_.begin() || !it->compiled) continue;
    used -= compiled_bytes(*it->compiled) + it->key.size();
    by_key_.erase(it->key);
    it = entries_.erase(it);
  }
}

std::size_t CompiledCache::bytes() const {
  std::size_t used = 0;
  for (const Entry& entry : entries_) {
    if (entry.compiled) used += compiled_bytes(*entry.compiled) + entry.key.size();
  }
  return used;
}

CompiledCache::Stats CompiledCache::stats() {
  const std::lock_guard lock(mutex_);
  return {.count = entries_.size(), .bytes = bytes(), .hits = hits_, .misses = misses_};
}

}  // namespace quire::grammar

#include "quire/grammar/compiled_cache.h"

#include <utility>

namespace quire::grammar {

Result<std::shared_ptr<Compiled>> CompiledCache::get(const std::string& key, const Compile& compile) {
  std::shared_ptr<Place> place;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      places_.splice(places_.begin(), places_, found->second);
    } else {
      places_.emplace_front(key, std::make_shared<Place>());
      by_key_.emplace(key, places_.begin());
      if (places_.size() > most_) {
        by_key_.erase(places_.back().first);
        places_.pop_back();
      }
    }
    place = places_.front().second;
  }
  const std::lock_guard compiling(place->compiling);
  if (place->compiled) return place->compiled;
  auto compiled = compile();
  if (compiled) {
    place->compiled = *compiled;
    return compiled;
  }
  const std::lock_guard lock(mutex_);
  if (const auto found = by_key_.find(key); found != by_key_.end() && found->second->second == place) {
    places_.erase(found->second);
    by_key_.erase(found);
  }
  return compiled;
}

std::size_t CompiledCache::size() const {
  const std::lock_guard lock(mutex_);
  return places_.size();
}

}  // namespace quire::grammar

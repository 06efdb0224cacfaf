// Compiled grammars by content: requests that bring the same schema share one.
//
//   auto compiled = cache.get(kind + content, [&] { return compile(...); });
//
// Who may call: any number of threads. Requests for the same key compile once: the others wait for it. The mutex is not
//   held while a grammar is compiled.
// What holds: at most `count` grammars and about `bytes` bytes are kept; the one that was not used for the longest time
//   goes first. What is dropped lives on while a matcher uses it. The bytes are looked at when a grammar is asked for:
//   grammars grow while they are used, each up to its CompileOptions::cache_bytes.
// How it fails: as compile() does. Failures are not kept: they are cheap to find again.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "quire/base/error.h"
#include "quire/grammar/matcher.h"

namespace quire::grammar {

class CompiledCache {
 public:
  struct Options {
    std::size_t count = 1000;
    std::size_t bytes = std::size_t{256} << 20;
  };
  using Compile = std::function<Result<std::shared_ptr<Compiled>>()>;

  CompiledCache() = default;
  explicit CompiledCache(const Options& options) : options_(options) {}

  Result<std::shared_ptr<Compiled>> get(const std::string& key, const Compile& compile);

  struct Stats {
    std::size_t count = 0, bytes = 0;
    std::uint64_t hits = 0, misses = 0;
  };
  Stats stats();

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Compiled> compiled;  // null: being compiled
  };

  void shrink();  // with the mutex held
  std::size_t bytes() const;

  Options options_;
  std::mutex mutex_;
  std::condition_variable compiled_;
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  std::uint64_t hits_ = 0, misses_ = 0;
};

}  // namespace quire::grammar

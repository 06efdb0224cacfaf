// Compiled grammars by their content. Agents send the same schemas again and again; each is compiled once.
//
// Who may call: any number of threads at the same time. Requests for the same key wait for the first one's result;
//   requests for other keys do not.
// What holds: at most `most` grammars are kept, those used last. A grammar in use outlives its place here. Failures are
//   not kept.
#pragma once

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
  using Compile = std::function<Result<std::shared_ptr<Compiled>>()>;

  explicit CompiledCache(std::size_t most = 256) : most_(most) {}

  Result<std::shared_ptr<Compiled>> get(const std::string& key, const Compile& compile);
  std::size_t size() const;

 private:
  struct Place {
    std::mutex compiling;
    std::shared_ptr<Compiled> compiled;
  };
  using Places = std::list<std::pair<std::string, std::shared_ptr<Place>>>;

  const std::size_t most_;
  mutable std::mutex mutex_;
  Places places_;  // the one used last comes first
  std::unordered_map<std::string, Places::iterator> by_key_;
};

}  // namespace quire::grammar

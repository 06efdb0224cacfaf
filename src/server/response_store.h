// Keeps responses of /v1/responses, so that a later one can continue them (previous_response_id) and clients can get
// them again. It holds JSON, not the state of sequences: the pool's prefixes make a continuation fast, and it is right
// without them.
//
// Who may call: any thread.
// What holds: a tenant sees its own responses alone. A tenant's responses take at most `bytes`; the one that was used
//   least recently goes first. What a response continues stays there for it, also if its own id is gone by then, and is
//   counted as long as it is there.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include <boost/json/array.hpp>

#include "quire/state/ids.h"
#include "quire/state/sequence_pool.h"

namespace quire::server {

// One response, and what it continues.
struct StoredResponse {
  std::string id;
  std::shared_ptr<const StoredResponse> previous;
  boost::json::array input;                             // items of its request, without those of the previous ones
  boost::json::array output;                            // items
  std::string response;                                 // JSON, as the client got it
  std::uint64_t bytes = 0;                              // about what it takes, ...
  std::uint64_t chain_bytes = 0;                        // and what it and all before it take
  std::shared_ptr<std::atomic<std::uint64_t>> counted;  // of its tenant: `bytes` are part of it

  StoredResponse() = default;
  StoredResponse(StoredResponse&&) = default;

  // Conversations are chains, which may be long: they are taken apart one by one.
  ~StoredResponse();
};
using StoredResponseRef = std::shared_ptr<const StoredResponse>;

class ResponseStore {
 public:
  struct Limits {
    std::uint64_t bytes = std::uint64_t{64} << 20;  // of one tenant; 0: nothing is kept
    std::chrono::seconds age{86'400};               // since it was used
  };
  using Clock = std::chrono::steady_clock;
  explicit ResponseStore(Limits limits) : limits_(limits) {}

  // Null: there is none of this id, or none any more.
  StoredResponseRef find(Namespace tenant, std::string_view id, Clock::time_point now = Clock::now());
  void keep(Namespace tenant, StoredResponse response, Clock::time_point now = Clock::now());
  bool erase(Namespace tenant, std::string_view id, Clock::time_point now = Clock::now());

  // Of all tenants.
  struct Count {
    std::uint64_t responses = 0;
    std::uint64_t bytes = 0;
  };
  Count count() const;

 private:
  struct Entry {
    StoredResponseRef response;
    Clock::time_point used;
  };
  struct Tenant {
    std::list<Entry> entries;                                                // the most recently used first
    std::unordered_map<std::string_view, std::list<Entry>::iterator> by_id;  // keys are those of the responses
    std::shared_ptr<std::atomic<std::uint64_t>> bytes = std::make_shared<std::atomic<std::uint64_t>>(0);
  };
  void drop_last(Tenant& tenant);
  void drop_old(Tenant& tenant, Clock::time_point now);

  Limits limits_;
  mutable std::mutex mutex_;
  std::map<Namespace, Tenant> tenants_;
};

}  // namespace quire::server

#include "quire/server/response_store.h"

#include <utility>

#include <boost/json/serialize.hpp>

namespace quire::server {

namespace {

// A JSON value takes about four times its text.
std::uint64_t bytes_of(const boost::json::array& items) { return 4 * boost::json::serialize(items).size(); }

}  // namespace

StoredResponse::~StoredResponse() {
  if (counted) *counted -= bytes;
  // Only this one holds it: then it goes here, and not inside of the destructor of its follower.
  std::shared_ptr<const StoredResponse> next = std::move(previous);
  while (next && next.use_count() == 1) {
    auto after = std::const_pointer_cast<StoredResponse>(next);
    next = std::move(after->previous);
  }
}

StoredResponseRef ResponseStore::find(Namespace tenant, std::string_view id, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto owner = tenants_.find(tenant);
  if (owner == tenants_.end()) return nullptr;
  drop_old(owner->second, now);
  const auto found = owner->second.by_id.find(id);
  if (found == owner->second.by_id.end()) return nullptr;
  found->second->used = now;
  owner->second.entries.splice(owner->second.entries.begin(), owner->second.entries, found->second);
  return found->second->response;
}

void ResponseStore::keep(Namespace tenant, StoredResponse response, Clock::time_point now) {
  constexpr std::uint64_t kOverhead = 512;
  response.bytes = bytes_of(response.input) + bytes_of(response.output) + response.response.size() + kOverhead;
  response.chain_bytes = response.bytes + (response.previous ? response.previous->chain_bytes : 0);
  if (response.chain_bytes > limits_.bytes) return;  // there would be no room for it alone
  const std::lock_guard lock(mutex_);
  Tenant& owner = tenants_[tenant];
  drop_old(owner, now);
  while (!owner.entries.empty() && *owner.bytes + response.bytes > limits_.bytes) drop_last(owner);
  response.counted = owner.bytes;
  *owner.bytes += response.bytes;
  owner.entries.push_front({std::make_shared<const StoredResponse>(std::move(response)), now});
  owner.by_id[owner.entries.front().response->id] = owner.entries.begin();
}

bool ResponseStore::erase(Namespace tenant, std::string_view id, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto owner = tenants_.find(tenant);
  if (owner == tenants_.end()) return false;
  drop_old(owner->second, now);
  const auto found = owner->second.by_id.find(id);
  if (found == owner->second.by_id.end()) return false;
  const auto entry = found->second;
  owner->second.by_id.erase(found);
  owner->second.entries.erase(entry);
  return true;
}

ResponseStore::Count ResponseStore::count() const {
  const std::lock_guard lock(mutex_);
  Count count;
  for (const auto& [id, tenant] : tenants_) {
    count.responses += tenant.entries.size();
    count.bytes += *tenant.bytes;
  }
  return count;
}

void ResponseStore::drop_last(Tenant& tenant) {
  const Entry& last = tenant.entries.back();
  tenant.by_id.erase(last.response->id);
  tenant.entries.pop_back();
}

void ResponseStore::drop_old(Tenant& tenant, Clock::time_point now) {
  while (!tenant.entries.empty() && now - tenant.entries.back().used > limits_.age) drop_last(tenant);
}

}  // namespace quire::server

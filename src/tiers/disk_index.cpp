#include "quire/tiers/disk_index.h"

#include <algorithm>
#include <cstring>

#include "quire/state/tier_object.h"

namespace quire::tiers {
namespace {

struct SavedAccess {
  std::uint64_t hash;
  std::uint32_t hits, accessed;
};
static_assert(sizeof(SavedAccess) == 16);

// The file has the format of an object, so that it has a checksum. This is its key.
constexpr ObjectKey kAccessKey{.name = {'a', 'c', 'c', 'e', 's', 's'}, .cls = 0xfe};

}  // namespace

const DiskEntry* DiskIndex::find(std::uint64_t hash) const {
  const auto found = entries_.find(hash);
  return found == entries_.end() ? nullptr : &found->second;
}

void DiskIndex::hit(std::uint64_t hash, std::uint32_t now) {
  const auto found = entries_.find(hash);
  if (found == entries_.end()) return;
  if (found->second.hits < UINT32_MAX) ++found->second.hits;
  found->second.accessed = now;
}

bool DiskIndex::erase(std::uint64_t hash, std::uint64_t number) {
  const auto found = entries_.find(hash);
  if (found == entries_.end() || found->second.number != number) return false;
  entries_.erase(found);
  return true;
}

std::vector<std::uint64_t> DiskIndex::worth_keeping(std::span<const std::uint64_t> hashes, std::uint64_t first,
                                                    std::uint64_t last, std::uint64_t bytes) const {
  struct Candidate {
    std::uint64_t hash;
    const DiskEntry* entry;
  };
  std::vector<Candidate> candidates;
  for (const std::uint64_t hash : hashes) {
    const DiskEntry* entry = find(hash);
    if (entry && entry->hits > 0 && entry->number >= first && entry->number <= last)
      candidates.push_back({hash, entry});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.entry->hits != b.entry->hits) return a.entry->hits > b.entry->hits;
    if (a.entry->accessed != b.entry->accessed) return a.entry->accessed > b.entry->accessed;
    return a.entry->number < b.entry->number;
  });
  std::vector<std::uint64_t> kept;
  for (const Candidate& candidate : candidates) {
    if (candidate.entry->bytes > bytes) break;
    bytes -= candidate.entry->bytes;
    kept.push_back(candidate.hash);
  }
  return kept;
}

std::vector<std::byte> DiskIndex::save_accesses() const {
  std::vector<std::byte> saved(kObjectHeaderBytes);
  for (const auto& [hash, entry] : entries_) {
    if (entry.hits == 0) continue;
    const SavedAccess access{hash, entry.hits, entry.accessed};
    const auto* bytes = reinterpret_cast<const std::byte*>(&access);
    saved.insert(saved.end(), bytes, bytes + sizeof access);
  }
  const ObjectHeader header = header_of(kAccessKey, std::span(saved).subspan(kObjectHeaderBytes));
  std::memcpy(saved.data(), header.data(), header.size());
  return saved;
}

bool DiskIndex::load_accesses(std::span<const std::byte> saved) {
  if (saved.size() < kObjectHeaderBytes) return false;
  const auto header = saved.first(kObjectHeaderBytes), bytes = saved.subspan(kObjectHeaderBytes);
  if (!check_header(kAccessKey, header, saved.size(), bytes.size()) || !check_bytes(header, bytes)) return false;
  for (std::size_t at = 0; at + sizeof(SavedAccess) <= bytes.size(); at += sizeof(SavedAccess)) {
    SavedAccess access;
    std::memcpy(&access, bytes.data() + at, sizeof access);
    const auto found = entries_.find(access.hash);
    if (found == entries_.end()) continue;
    found->second.hits = access.hits;
    found->second.accessed = std::max(found->second.accessed, access.accessed);
  }
  return true;
}

}  // namespace quire::tiers

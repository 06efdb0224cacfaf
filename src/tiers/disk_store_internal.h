// Shared by the sources of DiskStore: its generations, and how numbers, names and options look to RocksDB.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <rocksdb/options.h>
#include <rocksdb/slice.h>

#include "quire/tiers/disk_store.h"

namespace quire::tiers {

// RocksDB writes one file of a column family at a time, and computes checksums between the writes. With two families
// the disk has something to do meanwhile (docs/tiers.md has what that gives).
inline constexpr std::uint64_t kLanes = 2;

struct DiskStore::Generation {
  Generation(DiskStore& owner, std::vector<rocksdb::ColumnFamilyHandle*> families, std::uint64_t first_number)
      : store(owner), handles(std::move(families)), first(first_number) {}
  ~Generation();  // takes the store's lock
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Where the object with this number is.
  rocksdb::ColumnFamilyHandle* lane(std::uint64_t number) const { return handles[number % kLanes]; }

  DiskStore& store;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;  // kLanes
  std::uint64_t first;
  // With the store's lock:
  std::uint64_t charged = 0;          // what its files take at most
  std::vector<std::uint64_t> hashes;  // of the objects in it
  std::uint32_t writers = 0;          // with room reserved in it; it is not dropped before they have ended
  bool dirty = false;                 // has objects that are not in a file yet
};

inline std::span<const std::byte> as_bytes(const rocksdb::Slice& slice) {
  return std::as_bytes(std::span(slice.data(), slice.size()));
}
inline rocksdb::Slice as_slice(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Big-endian, so that RocksDB's order is the order of writing.
inline std::string number_key(char kind, std::uint64_t number) {
  std::string key(9, kind);
  for (std::size_t i = 0; i < 8; ++i) key[8 - i] = static_cast<char>(number >> (8 * i));
  return key;
}

inline std::string listed(const ObjectKey& key, std::uint64_t bytes) {
  const ObjectKeyBytes name = bytes_of(key);
  std::string value(name.size() + 8, '\0');
  std::memcpy(value.data(), name.data(), name.size());
  for (std::size_t i = 0; i < 8; ++i) value[name.size() + i] = static_cast<char>(bytes >> (8 * i));
  return value;
}

std::string family_name(std::uint64_t first, std::uint64_t lane);
rocksdb::ColumnFamilyOptions family_options(std::uint64_t write_buffer_bytes);

}  // namespace quire::tiers

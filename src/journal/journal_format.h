// The file format of a journal: what the operations of a pool are in bytes. docs/journal.md describes it.
//
//   magic "quirejnl", version (u32)
//   record 0: the header, what the reference model needs to know of the pool
//   record 1, 2, ...: one operation each
//
// A record is its length (varint), so many bytes, and a checksum (u32). The checksum covers the bytes and the number of
// the record, so a record that is lost, doubled or moved is found as well as one with a changed bit. Numbers are
// little endian; a varint has seven bits in each byte, the low ones first.
//
// To add an operation: its kind and fields in state/pool_journal.h, its line in visit() here, its case in replay.cpp,
// and a new kVersion.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

#include "quire/state/pool_journal.h"
#include "quire/state/reference_pool.h"

namespace quire::journal {

inline constexpr char kMagic[8] = {'q', 'u', 'i', 'r', 'e', 'j', 'n', 'l'};
inline constexpr std::uint32_t kVersion = 5;
inline constexpr std::size_t kPreambleBytes = sizeof kMagic + sizeof kVersion;
inline constexpr std::size_t kChecksumBytes = 4;
inline constexpr std::size_t kMostVarintBytes = 10;
inline constexpr std::uint64_t kMostRecordBytes = std::uint64_t{1} << 30;  // longer ones are damaged

// What a journal says about its pool before the first operation.
struct JournalHeader {
  PoolConfig config;  // without what no answer depends on: events, hashes, the device
  PoolGeometry geometry;
};

std::uint32_t checksum(std::span<const std::byte> payload, std::uint64_t number);

// Appends to memory of a fixed size. The caller has made sure that there is room.
class ByteWriter {
 public:
  explicit ByteWriter(std::byte* to) : begin_(to), at_(to) {}
  void byte(std::uint8_t value) { *at_++ = std::byte{value}; }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
    byte(static_cast<std::uint8_t>(value));
  }
  void u32(std::uint32_t value) {
    for (int i = 0; i < 4; ++i) byte(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  void real(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    u32(static_cast<std::uint32_t>(bits));
    u32(static_cast<std::uint32_t>(bits >> 32));
  }
  std::size_t size() const { return static_cast<std::size_t>(at_ - begin_); }

 private:
  std::byte* begin_;
  std::byte* at_;
};

// Reads from memory. After the first value that is not there, everything reads as 0 and ok() is false.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> from) : from_(from) {}
  std::uint8_t byte() {
    if (at_ == from_.size()) return fail(), 0;
    return std::to_integer<std::uint8_t>(from_[at_++]);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < kMostVarintBytes; ++i) {
      const std::uint8_t next = byte();
      value |= std::uint64_t{next & 0x7Fu} << (7 * i);
      if (next < 0x80) return value;
    }
    return fail(), 0;
  }
  std::uint32_t number() {  // a varint of 32 bits
    const std::uint64_t value = varint();
    if (value > UINT32_MAX) fail();
    return static_cast<std::uint32_t>(value);
  }
  double real() {
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= std::uint64_t{byte()} << (8 * i);
    return std::bit_cast<double>(bits);
  }
  void fail() { ok_ = false, at_ = from_.size(); }
  bool ok() const { return ok_; }
  std::size_t left() const { return from_.size() - at_; }

 private:
  std::span<const std::byte> from_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

// What writer and reader both remember of earlier records, so that a record can leave it out.
struct Memory {
  std::vector<std::uint32_t> generations;  // by index: of the last sequence that was made there
  PoolCounts counts;
};

class OperationEncoder {
 public:
  explicit OperationEncoder(std::uint32_t max_sequences) { memory_.generations.resize(max_sequences); }
  // The most bytes that a whole record of this operation takes.
  static std::size_t most_bytes(const PoolOperation& operation);
  // Writes record `number` with this operation. Returns its size.
  std::size_t encode(const PoolOperation& operation, std::uint64_t number, std::byte* to);

 private:
  Memory memory_;
};

class OperationDecoder {
 public:
  explicit OperationDecoder(std::uint32_t max_sequences) { memory_.generations.resize(max_sequences); }
  // The operation is valid until the next call. Fails with what is wrong.
  std::expected<const PoolOperation*, const char*> decode(std::span<const std::byte> payload);

 private:
  Memory memory_;
  PoolOperation operation_;
  std::vector<Token> tokens_;
  std::vector<BatchEntry> entries_;
  std::vector<std::uint32_t> first_blocks_;
  std::vector<HostArena::Object> not_copied_;
};

std::vector<std::byte> encode(const JournalHeader& header);  // magic, version and record 0
std::expected<JournalHeader, std::string> decode_header(std::span<const std::byte> payload);

}  // namespace quire::journal

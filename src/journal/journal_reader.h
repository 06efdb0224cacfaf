// Reads a journal, record by record.
//
// How it fails: with the number and the offset of the record that is damaged, and what is wrong. Everything before it
//   has been read. No bytes make it crash, and it takes no more memory than the longest record.
#pragma once

#include <cstdint>
#include <expected>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "quire/journal/journal_format.h"

namespace quire::journal {

struct JournalDamage {
  std::uint64_t record = 0;  // 0: the header
  std::uint64_t offset = 0;  // of the record, in bytes
  bool at_end = false;       // the file ends within this record: the program that wrote it was interrupted
  std::string what;          // a phrase
};

class JournalReader {
 public:
  // Reads the header. `in` must outlive the reader.
  static std::expected<JournalReader, JournalDamage> open(std::istream& in);

  const JournalHeader& header() const { return header_; }
  // The next operation, valid until the next call; null at the end of the file.
  std::expected<const PoolOperation*, JournalDamage> next();
  std::uint64_t number() const { return number_; }  // of the record last read
  std::uint64_t offset() const { return offset_; }  // where that record begins
  std::uint64_t bytes_read() const { return bytes_; }

 private:
  explicit JournalReader(std::istream& in) : in_(&in) {}
  // The bytes of the next record without length and checksum; false at the end of the file.
  std::expected<bool, JournalDamage> read_record();
  std::expected<void, JournalDamage> read_header();
  std::size_t read(std::byte* to, std::size_t size);
  std::unexpected<JournalDamage> damaged(std::string what, bool at_end = false) const;

  std::istream* in_;
  JournalHeader header_;
  std::unique_ptr<OperationDecoder> decoder_;
  std::vector<std::byte> payload_;
  std::uint64_t number_ = 0, offset_ = 0, bytes_ = 0;
};

}  // namespace quire::journal

#include "quire/journal/journal_reader.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace quire::journal {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;
constexpr std::size_t kMostLengthBytes = 5;  // of kMostRecordBytes

}  // namespace

std::unexpected<JournalDamage> JournalReader::damaged(std::string what, bool at_end) const {
  return std::unexpected(JournalDamage{number_, offset_, at_end, std::move(what)});
}

std::size_t JournalReader::read(std::byte* to, std::size_t size) {
  in_->read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(size));
  const auto got = static_cast<std::size_t>(in_->gcount());
  bytes_ += got;
  return got;
}

std::expected<JournalReader, JournalDamage> JournalReader::open(std::istream& in) {
  JournalReader reader(in);
  if (auto ok = reader.read_header(); !ok) return std::unexpected(ok.error());
  return reader;
}

std::expected<void, JournalDamage> JournalReader::read_header() {
  std::byte preamble[kPreambleBytes] = {};
  const std::size_t got = read(preamble, sizeof preamble);
  if (std::memcmp(preamble, kMagic, std::min(got, sizeof kMagic)) != 0 || got == 0) {
    return damaged("this is not a journal");
  }
  if (got < sizeof preamble) return damaged("the file ends within its header", true);
  std::uint32_t version = 0;
  for (int i = 0; i < 4; ++i) version |= std::to_integer<std::uint32_t>(preamble[sizeof kMagic + i]) << (8 * i);
  if (version != kVersion) {
    return damaged(fmt::format("a journal of version {}; this program reads version {}", version, kVersion));
  }
  offset_ = bytes_;
  const auto there = read_record();
  if (!there) return std::unexpected(there.error());
  if (!*there) return damaged("the file ends before its header", true);
  auto header = decode_header(payload_);
  if (!header) return damaged("the header has " + header.error());
  header_ = std::move(*header);
  decoder_ = std::make_unique<OperationDecoder>(header_.config.max_sequences);
  return {};
}

std::expected<bool, JournalDamage> JournalReader::read_record() {
  std::uint64_t length = 0;
  for (std::size_t i = 0;; ++i) {
    std::byte next{};
    if (read(&next, 1) == 0) {
      if (i == 0) return false;
      return damaged("the file ends within the length of this record", true);
    }
    if (i < kMostLengthBytes) length |= (std::to_integer<std::uint64_t>(next) & 0x7F) << (7 * i);
    if (i == kMostLengthBytes || length > kMostRecordBytes || (i > 0 && next == std::byte{0})) {
      return damaged("its length is not one that is written");
    }
    if (next < std::byte{0x80}) break;
  }
  // In chunks: a damaged length must not take gigabytes.
  payload_.clear();
  while (payload_.size() < length) {
    const std::size_t before = payload_.size();
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(length - before, kChunk));
    payload_.resize(before + wanted);
    if (read(payload_.data() + before, wanted) < wanted) {
      return damaged(fmt::format("the file ends within this record of {} bytes", length), true);
    }
  }
  std::byte sum[kChecksumBytes] = {};
  if (read(sum, sizeof sum) < sizeof sum) return damaged("the file ends within the checksum of this record", true);
  std::uint32_t expected = 0;
  for (std::size_t i = 0; i < sizeof sum; ++i) expected |= std::to_integer<std::uint32_t>(sum[i]) << (8 * i);
  if (expected != checksum(payload_, number_)) return damaged("its checksum does not match");
  return true;
}

std::expected<const PoolOperation*, JournalDamage> JournalReader::next() {
  ++number_;
  offset_ = bytes_;
  const auto there = read_record();
  if (!there) return std::unexpected(there.error());
  if (!*there) {
    --number_;
    return nullptr;
  }
  const auto operation = decoder_->decode(payload_);
  if (!operation) return damaged(fmt::format("its checksum matches, but it has {}", operation.error()));
  return *operation;
}

}  // namespace quire::journal

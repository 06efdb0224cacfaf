// Any bytes as a journal, from libFuzzer. The checksums of the input are replaced by right ones first, since the fuzzer
// could not guess them: so most inputs get past them, to the operations and the reference model.
#include <cstring>
#include <sstream>
#include <string>

#include "quire/journal/replay.h"

namespace {

using namespace quire;
using namespace quire::journal;

// Puts the right checksum behind every record that is there.
void repair(std::string& file) {
  std::size_t at = kPreambleBytes;
  for (std::uint64_t number = 0; at < file.size(); ++number) {
    ByteReader head(std::as_bytes(std::span(file).subspan(at)));
    const std::size_t left = head.left();
    const std::uint64_t length = head.varint();
    at += left - head.left();
    if (!head.ok() || length > file.size() - at || file.size() - at - length < kChecksumBytes) return;
    const auto payload = std::as_bytes(std::span(file).subspan(at, length));
    std::byte sum[kChecksumBytes];
    ByteWriter(sum).u32(checksum(payload, number));
    std::memcpy(file.data() + at + length, sum, sizeof sum);
    at += length + kChecksumBytes;
  }
}

// The model of a large pool takes a lot of memory by right.
bool is_small(const std::string& file) {
  std::istringstream in(file);
  const auto reader = JournalReader::open(in);
  if (!reader) return true;
  const JournalHeader& header = reader->header();
  std::uint64_t objects = 0;
  for (const PageShape& shape : header.config.layout.groups) objects += header.geometry.slab_bytes / shape.page_bytes();
  if (header.config.layout.has_recurrent())
    objects += header.geometry.slab_bytes / header.config.layout.recurrent.bytes();
  return objects < 1000 && objects * header.geometry.slabs < 1000 && header.geometry.max_nodes < 10'000;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string file(reinterpret_cast<const char*>(data), size);
  if (size < kPreambleBytes) return 0;
  std::memcpy(file.data(), kMagic, sizeof kMagic);
  repair(file);
  if (!is_small(file)) return 0;
  std::istringstream in(file);
  (void)replay(in);
  return 0;
}

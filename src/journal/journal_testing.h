// For tests: a journal in memory. Its operations can be changed and encoded again, so that the file is well formed and
// its content is wrong.
#pragma once

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "quire/journal/journal_format.h"
#include "quire/journal/replay.h"

namespace quire::journal::testing {

// An operation that owns what it refers to.
struct Recorded {
  explicit Recorded(const PoolOperation& from)
      : operation(from),
        tokens(from.tokens.begin(), from.tokens.end()),
        entries(from.entries.begin(), from.entries.end()),
        first_blocks(from.first_blocks.begin(), from.first_blocks.end()),
        not_copied(from.not_copied.begin(), from.not_copied.end()) {}
  PoolOperation view() const {
    PoolOperation view = operation;
    view.tokens = tokens;
    view.entries = entries;
    view.first_blocks = first_blocks;
    view.not_copied = not_copied;
    return view;
  }
  PoolOperation operation;  // without its spans
  std::vector<Token> tokens;
  std::vector<BatchEntry> entries;
  std::vector<std::uint32_t> first_blocks;
  std::vector<HostArena::Object> not_copied;
};

class MemoryJournal final : public PoolJournal {
 public:
  PoolResult<void> begin(const SequencePool& pool) override {
    header = {pool.config(), PoolGeometry::of(pool)};
    return {};
  }
  void record(const PoolOperation& operation) noexcept override { operations.emplace_back(operation); }
  Status status() const noexcept override { return {.records = operations.size()}; }

  // The file. `ends`, if given: where the header and each record end.
  std::string file(std::vector<std::size_t>* ends = nullptr) const {
    const std::vector<std::byte> head = encode(header);
    std::string bytes(reinterpret_cast<const char*>(head.data()), head.size());
    if (ends != nullptr) ends->push_back(bytes.size());
    OperationEncoder encoder(header.config.max_sequences);
    std::vector<std::byte> record;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      const PoolOperation operation = operations[i].view();
      record.resize(OperationEncoder::most_bytes(operation));
      const std::size_t size = encoder.encode(operation, i + 1, record.data());
      bytes.append(reinterpret_cast<const char*>(record.data()), size);
      if (ends != nullptr) ends->push_back(bytes.size());
    }
    return bytes;
  }

  JournalHeader header;
  std::vector<Recorded> operations;
};

inline ReplayReport replayed(const std::string& file) {
  std::istringstream in(file);
  return replay(in);
}
inline std::string text(const ReplayReport& report) {
  std::string out = std::to_string(report.records) + " records";
  if (report.difference) {
    const Difference& d = *report.difference;
    out += "; record " + std::to_string(d.record) + ": " + d.operation + ": pool: " + d.pool +
           ", reference: " + d.reference;
  }
  if (report.damage) out += "; record " + std::to_string(report.damage->record) + " damaged: " + report.damage->what;
  return out;
}

}  // namespace quire::journal::testing

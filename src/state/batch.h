// One step of an engine: which sequences compute which of their next tokens. The scheduler builds it
// once. The pool reserves room for it and binds it to the memory of its sequences, the model and its
// backend compute it, and the pool commits it.
//
//   batch.clear();
//   batch.add(sequence, tokens, Logits::Last);      // once per sequence
//   pool.reserve(batch.entries());                  // room for all of them, or a refusal
//   pool.bind(batch);                               // positions, rows of page tables, places of recurrent states
//   ... forward ...
//   pool.commit(batch);
//
// A row is a token. The tokens of an entry are consecutive rows, in the order of their positions. Entries stand in the
// order in which they were added. Everything here is a plain array, so that a device can take the batch in one upload.
//
// Who may call: the engine's thread. Nothing is allocated after construction as
// long as the batch stays within its limits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quire/state/ids.h"
#include "quire/state/views.h"

namespace quire {

// Of which rows of an entry. Last: the last row that is no draft, and all drafts.
enum class Logits : std::uint8_t { None, Last, All };

// The tokens of one sequence in a step.
struct BatchEntry {
  SequenceId sequence;
  std::uint32_t rows = 0;  // tokens
  Logits logits = Logits::None;
  bool checkpoint = false;      // keep a checkpoint after the last token, if that is a block boundary
  std::uint32_t first_row = 0;  // of the batch
  std::uint32_t adapter = 0;    // what the model computes these rows with, beside its weights; 0: none
  // The last rows, so many, are drafts: tokens that the sequence may turn out not to have. Their keys and values are
  // written like those of others. A recurrent state is not: rows before the drafts change `state`, and the drafts
  // continue from it in `scratch`, which is then the whole state after the last row.
  std::uint32_t drafts = 0;
  // Set by SequencePool::bind()
  std::uint32_t position = 0;  // of the first token
  std::uint32_t table = 0;     // row of the group's page tables
  std::uint32_t state = 0;     // place of the recurrent state, in units of StatesView
  std::uint32_t scratch = 0;   // with drafts: place of the state after them

  std::uint32_t certain_rows() const { return rows - drafts; }
  std::uint32_t wanted_rows() const {  // rows whose logits are wanted: the last ones
    return logits == Logits::All ? rows : logits == Logits::Last && rows > 0 ? 1 + drafts : 0;
  }
};

class Batch {
 public:
  Batch() = default;
  Batch(std::uint32_t max_rows, std::uint32_t max_entries, std::uint32_t groups) {
    tokens_.reserve(max_rows);
    positions_.reserve(max_rows);
    wanted_.reserve(max_rows);
    entries_.reserve(max_entries);
    kv_.reserve(groups);
  }

  void clear() {
    entries_.clear();
    tokens_.clear();
    positions_.clear();
    wanted_.clear();
    kv_.clear();
    states_ = {};
  }
  // `drafts` are rows after the tokens.
  void add(SequenceId sequence, std::span<const Token> tokens, Logits logits = Logits::Last, bool checkpoint = false,
           std::span<const Token> drafts = {}, std::uint32_t adapter = 0) {
    const auto first = static_cast<std::uint32_t>(tokens_.size());
    const auto rows = static_cast<std::uint32_t>(tokens.size() + drafts.size());
    entries_.push_back({.sequence = sequence,
                        .rows = rows,
                        .logits = logits,
                        .checkpoint = checkpoint,
                        .first_row = first,
                        .adapter = adapter,
                        .drafts = static_cast<std::uint32_t>(drafts.size())});
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    tokens_.insert(tokens_.end(), drafts.begin(), drafts.end());
    const std::uint32_t wanted = entries_.back().wanted_rows();
    for (std::uint32_t i = rows - wanted; i < rows; ++i) wanted_.push_back(first + i);
  }

  bool empty() const { return entries_.empty(); }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(tokens_.size()); }
  std::span<const BatchEntry> entries() const { return entries_; }
  std::span<const Token> tokens() const { return tokens_; }  // [rows]
  std::span<const Token> tokens(const BatchEntry& entry) const { return tokens().subspan(entry.first_row, entry.rows); }
  std::span<const std::uint32_t> wanted() const { return wanted_; }  // rows whose logits are wanted, ascending
  // After bind()
  std::span<const std::uint32_t> positions() const { return positions_; }  // [rows]
  std::span<const KvGroupView> kv() const { return kv_; }                  // [groups]
  const StatesView& states() const { return states_; }

  // Called by SequencePool::bind(), and by tests that have memory of their own.
  // The caller fills in the entries returned.
  std::span<BatchEntry> bind(std::span<const KvGroupView> kv, const StatesView& states) {
    kv_.assign(kv.begin(), kv.end());
    states_ = states;
    return entries_;
  }
  void set_positions() {
    positions_.clear();
    for (const BatchEntry& entry : entries_) {
      for (std::uint32_t i = 0; i < entry.rows; ++i) positions_.push_back(entry.position + i);
    }
  }

 private:
  std::vector<BatchEntry> entries_;
  std::vector<Token> tokens_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint32_t> wanted_;
  std::vector<KvGroupView> kv_;
  StatesView states_;
};

}  // namespace quire

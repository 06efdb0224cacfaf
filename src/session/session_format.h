// The bytes of a session file: the tokens of a sequence, what the model remembers of them, and metadata, in one file.
// docs/state-format.md describes them.
//
//   header, 128 bytes     magic, version, length, model, layout, counts, checksum of header and table
//   table                 one entry of 64 bytes for each section: kind, place, length, checksum
//   sections              each at a multiple of 64: tokens, pages of each layer group, state, checkpoints, metadata
//
// What holds: parse() reads every byte once. What it returns has been checked: each place lies inside the bytes, each
//   length is what the counts say, each checksum is right, and there is nothing between the sections. The checksums
//   detect accidents; who can change a file can also write right checksums, so nothing here trusts a number.
// Who may call: any thread.
// How it fails: one line that says what is wrong. It does not name the file; the caller knows it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/state/saved_sequence.h"

namespace quire::session {

inline constexpr std::uint32_t kVersion = 1;  // changes when an older program would read a file wrongly
inline constexpr std::size_t kHeaderBytes = 128;
inline constexpr std::size_t kEntryBytes = 64;
inline constexpr std::uint64_t kAlignment = 64;
inline constexpr std::uint32_t kMostSections = 1 << 20;

enum class SectionKind : std::uint32_t {
  Tokens = 1,      // 4 bytes each, little-endian
  Pages = 2,       // of one layer group, from its first block to that of the last computed token
  State = 3,       // recurrent models: after the last computed token
  Checkpoint = 4,  // recurrent models: the state at an earlier position
  Metadata = 5,    // a JSON object
};
const char* name(SectionKind kind);

struct Section {
  SectionKind kind = SectionKind::Tokens;
  std::uint32_t group = 0;         // Pages
  std::uint64_t offset = 0;        // from the beginning of the file
  std::uint64_t length = 0;        // bytes
  std::uint64_t at = 0;            // Pages: the first block that has a page; Checkpoint: its position
  std::uint64_t object_bytes = 0;  // Pages: of one page
  Hash128 checksum;                // XXH3-128
};

// What a pool remembers of a sequence, ready to be written.
struct Snapshot {
  std::uint32_t block_size = 0;
  std::vector<std::uint64_t> page_bytes;  // by layer group
  std::uint64_t state_bytes = 0;          // 0: the model is not recurrent
  SavedSequence sequence;                 // the first tokens; perhaps none
  std::vector<SavedCheckpoint> checkpoints;
};

// A file as pieces to be written one after the other. They refer to what was given.
struct Pieces {
  std::vector<std::byte> head;  // header and table, padded
  struct Piece {
    std::span<const std::byte> bytes;
    std::uint64_t padding = 0;  // zeros behind it
  };
  std::vector<Piece> pieces;
  std::uint64_t bytes = 0;  // of the file
};
// `tokens` begin with those of the snapshot.
Pieces encode(std::span<const Token> tokens, const Snapshot& snapshot, std::string_view metadata);

// A file that was checked. It refers to the bytes that were parsed.
struct Contents {
  std::uint32_t version = 0;
  Fingerprint model;
  Hash128 layout;
  std::uint32_t block_size = 0;
  std::uint64_t state_bytes = 0;
  std::vector<Token> tokens;
  std::uint32_t computed = 0;  // the pages and the state are those of so many of the tokens
  std::vector<std::uint32_t> first_blocks;
  std::vector<std::uint64_t> page_bytes;
  std::vector<std::span<const std::byte>> pages;  // by layer group
  std::span<const std::byte> state;
  struct Checkpoint {
    std::uint32_t position = 0;
    std::span<const std::byte> state;
  };
  std::vector<Checkpoint> checkpoints;  // in ascending order, before `computed`
  std::string_view metadata;
  std::vector<Section> sections;
};
Result<Contents> parse(std::span<const std::byte> file);
// Whether a file that begins so is a session file at all: what parse() says first.
Result<void> check_magic(std::span<const std::byte> start);

// The first 16 hex digits of a fingerprint, for people.
std::string short_name(const Fingerprint& model);
std::string short_name(const Hash128& hash);

}  // namespace quire::session

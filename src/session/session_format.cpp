#include "quire/session/session_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include "quire/base/numbers.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire::session {
namespace {

static_assert(std::endian::native == std::endian::little, "the file has the bytes of a little-endian machine");

constexpr std::string_view kMagic = "QUIRESES";
constexpr std::size_t kCheckedHeader = 112;  // bytes of the header before its checksum

// Where the fields of the header lie.
constexpr std::size_t kAtVersion = 8, kAtSections = 12, kAtLength = 16, kAtModel = 24, kAtLayout = 56, kAtTokens = 72,
                      kAtComputed = 76, kAtBlockSize = 80, kAtGroups = 84, kAtStateBytes = 88, kAtReserved = 96;
// And those of an entry of the table.
constexpr std::size_t kAtGroup = 4, kAtOffset = 8, kAtBytes = 16, kAtDetail = 24, kAtObjectBytes = 32, kAtChecksum = 40,
                      kAtEntryReserved = 56;

template <typename T>
void put(std::byte* to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof value);
}
template <typename T>
T get(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

Hash128 to_hash(const XXH128_hash_t& hash) { return {hash.low64, hash.high64}; }

Hash128 hash_of_bytes(std::span<const std::byte> bytes) { return to_hash(XXH3_128bits(bytes.data(), bytes.size())); }

// The first bytes of the header and the whole table.
Hash128 hash_of_head(std::span<const std::byte> head, std::uint32_t sections) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, head.data(), kCheckedHeader);
  XXH3_128bits_update(&state, head.data() + kHeaderBytes, std::size_t{sections} * kEntryBytes);
  return to_hash(XXH3_128bits_digest(&state));
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// Reads the entries of a table in order, and checks that they describe the file that the header announces.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> file) : file_(file) {}

  Result<Contents> read() {
    if (auto ok = read_header(); !ok) return std::unexpected(ok.error());
    if (auto ok = read_table(); !ok) return std::unexpected(ok.error());
    if (auto ok = read_sections(); !ok) return std::unexpected(ok.error());
    return std::move(contents_);
  }

 private:
  Result<void> read_header() {
    if (auto ok = check_magic(file_); !ok) return ok;
    if (file_.size() < kHeaderBytes) return cut(kHeaderBytes);
    contents_.version = field<std::uint32_t>(kAtVersion);
    if (contents_.version > kVersion) {
      return fail(
          fmt::format("has format version {}, and this program reads versions up to {}", contents_.version, kVersion));
    }
    sections_ = field<std::uint32_t>(kAtSections);
    if (sections_ > kMostSections) return fail(fmt::format("is damaged: {} sections", sections_));
    const std::uint64_t head = kHeaderBytes + std::uint64_t{sections_} * kEntryBytes;
    if (file_.size() < head) return cut(head);
    if (hash_of_head(file_, sections_) != field<Hash128>(kCheckedHeader)) {
      return fail("is damaged: the checksum of its header and table is wrong");
    }
    if (contents_.version == 0) return fail("has format version 0, which there is not");
    const auto length = field<std::uint64_t>(kAtLength);
    if (file_.size() < length) return cut(length);
    if (file_.size() > length) {
      return fail(fmt::format("has {} bytes, {} more than it should", file_.size(), file_.size() - length));
    }
    if (!all_zero(file_.subspan(kAtReserved, kCheckedHeader - kAtReserved)))
      return wrong("reserved bytes of its header");
    contents_.model = field<Fingerprint>(kAtModel);
    contents_.layout = field<Hash128>(kAtLayout);
    tokens_ = field<std::uint32_t>(kAtTokens);
    contents_.computed = field<std::uint32_t>(kAtComputed);
    contents_.block_size = field<std::uint32_t>(kAtBlockSize);
    groups_ = field<std::uint32_t>(kAtGroups);
    contents_.state_bytes = field<std::uint64_t>(kAtStateBytes);
    if (contents_.computed > tokens_) return wrong("number of computed tokens");
    if (contents_.block_size == 0) return wrong("size of a block");
    next_ = round_up(head, kAlignment);
    return zeros(head, next_);
  }

  // Entries come in the order of their kinds.
  Result<void> read_table() {
    blocks_ = divide_up(contents_.computed, contents_.block_size);
    if (auto ok = take(SectionKind::Tokens); !ok) return ok;
    if (last_.length != std::uint64_t{tokens_} * sizeof(Token)) return wrong("length of its tokens");
    for (std::uint32_t g = 0; contents_.computed > 0 && g < groups_; ++g) {
      if (auto ok = take(SectionKind::Pages); !ok) return ok;
      const auto bytes =
          last_.at <= blocks_ ? checked_mul(blocks_ - last_.at, last_.object_bytes) : std::optional<std::uint64_t>();
      if (last_.group != g || !bytes || *bytes != last_.length) return wrong("pages");
      contents_.first_blocks.push_back(static_cast<std::uint32_t>(last_.at));
      contents_.page_bytes.push_back(last_.object_bytes);
      contents_.pages.push_back(file_.subspan(last_.offset, last_.length));
    }
    if (contents_.computed > 0 && contents_.state_bytes > 0) {
      if (auto ok = take(SectionKind::State); !ok) return ok;
      if (last_.length != contents_.state_bytes) return wrong("length of its state");
      contents_.state = file_.subspan(last_.offset, last_.length);
      while (kind_of_next() == SectionKind::Checkpoint) {
        if (auto ok = take(SectionKind::Checkpoint); !ok) return ok;
        const std::uint32_t before = contents_.checkpoints.empty() ? 0 : contents_.checkpoints.back().position;
        if (last_.length != contents_.state_bytes || last_.at <= before || last_.at >= contents_.computed) {
          return wrong("checkpoints");
        }
        contents_.checkpoints.push_back(
            {static_cast<std::uint32_t>(last_.at), file_.subspan(last_.offset, last_.length)});
      }
    }
    if (auto ok = take(SectionKind::Metadata); !ok) return ok;
    contents_.metadata = {reinterpret_cast<const char*>(file_.data()) + last_.offset, last_.length};
    if (contents_.sections.size() != sections_) return wrong("number of sections");
    if (next_ != file_.size()) return wrong("length");
    return {};
  }

  std::optional<SectionKind> kind_of_next() const {
    if (contents_.sections.size() == sections_) return std::nullopt;
    return get<SectionKind>(entry());
  }

  // The next entry must be of this kind, and lie where the one before it ends.
  Result<void> take(SectionKind kind) {
    if (kind_of_next() != kind)
      return fail(fmt::format("is damaged: its table has no {} where they belong", name(kind)));
    const std::byte* const at = entry();
    last_ = {.kind = kind,
             .group = get<std::uint32_t>(at + kAtGroup),
             .offset = get<std::uint64_t>(at + kAtOffset),
             .length = get<std::uint64_t>(at + kAtBytes),
             .at = get<std::uint64_t>(at + kAtDetail),
             .object_bytes = get<std::uint64_t>(at + kAtObjectBytes),
             .checksum = get<Hash128>(at + kAtChecksum)};
    const bool pages = kind == SectionKind::Pages;
    const bool unused = (!pages && (last_.group != 0 || last_.object_bytes != 0)) ||
                        (!pages && kind != SectionKind::Checkpoint && last_.at != 0);
    if (unused || get<std::uint64_t>(at + kAtEntryReserved) != 0) return wrong("unused bytes of its table");
    if (last_.offset != next_ || last_.length > file_.size() - last_.offset) return wrong("place of a section");
    const std::uint64_t end = last_.offset + last_.length;
    next_ = round_up(end, kAlignment);
    if (next_ > file_.size()) return wrong("place of a section");
    contents_.sections.push_back(last_);
    return zeros(end, next_);
  }

  Result<void> read_sections() {
    for (const Section& section : contents_.sections) {
      if (hash_of_bytes(file_.subspan(section.offset, section.length)) == section.checksum) continue;
      return fail(fmt::format("is damaged: the checksum of its {} is wrong", name(section.kind)));
    }
    contents_.tokens.resize(tokens_);
    const Section& tokens = contents_.sections.front();
    if (tokens.length > 0) std::memcpy(contents_.tokens.data(), file_.data() + tokens.offset, tokens.length);
    return {};
  }

  template <typename T>
  T field(std::size_t at) const {
    return get<T>(file_.data() + at);
  }
  const std::byte* entry() const { return file_.data() + kHeaderBytes + contents_.sections.size() * kEntryBytes; }
  Result<void> zeros(std::uint64_t from, std::uint64_t to) const {
    // A file may end before the padding of its head.
    const std::uint64_t end = std::min<std::uint64_t>(to, file_.size());
    if (from < end && !all_zero(file_.subspan(from, end - from))) return wrong("bytes between its sections");
    return {};
  }
  Result<void> cut(std::uint64_t wanted) const {
    return fail(fmt::format("is cut: it has {} of {} bytes", file_.size(), wanted));
  }
  static Result<void> wrong(std::string_view what) { return fail(fmt::format("is damaged: wrong {}", what)); }

  std::span<const std::byte> file_;
  Contents contents_;
  std::uint32_t sections_ = 0, tokens_ = 0, groups_ = 0, blocks_ = 0;
  std::uint64_t next_ = 0;  // where the next section must be
  Section last_;
};

}  // namespace

const char* name(SectionKind kind) {
  switch (kind) {
    case SectionKind::Tokens: return "tokens";
    case SectionKind::Pages: return "pages";
    case SectionKind::State: return "state";
    case SectionKind::Checkpoint: return "checkpoints";
    case SectionKind::Metadata: return "metadata";
  }
  return "?";
}

Pieces encode(std::span<const Token> tokens, const Snapshot& snapshot, std::string_view metadata) {
  const SavedSequence& saved = snapshot.sequence;
  const auto computed = static_cast<std::uint32_t>(saved.tokens.size());
  struct Part {
    Section section;
    std::span<const std::byte> bytes;
  };
  std::vector<Part> parts;
  parts.push_back({{.kind = SectionKind::Tokens}, std::as_bytes(tokens)});
  if (computed > 0) {
    const std::uint32_t blocks = divide_up(computed, snapshot.block_size);
    std::uint64_t at = 0;
    for (std::uint32_t g = 0; g < snapshot.page_bytes.size(); ++g) {
      const std::uint64_t bytes = (blocks - saved.first_blocks[g]) * snapshot.page_bytes[g];
      parts.push_back({{.kind = SectionKind::Pages,
                        .group = g,
                        .at = saved.first_blocks[g],
                        .object_bytes = snapshot.page_bytes[g]},
                       {saved.data.data() + at, bytes}});
      at += bytes;
    }
    if (snapshot.state_bytes > 0) {
      parts.push_back({{.kind = SectionKind::State}, {saved.data.data() + at, snapshot.state_bytes}});
    }
    for (const SavedCheckpoint& each : snapshot.checkpoints) {
      parts.push_back({{.kind = SectionKind::Checkpoint, .at = each.position}, {each.state.data(), each.state.size()}});
    }
  }
  parts.push_back({{.kind = SectionKind::Metadata}, std::as_bytes(std::span(metadata))});

  Pieces out;
  const std::uint64_t head = kHeaderBytes + parts.size() * kEntryBytes;
  out.bytes = round_up(head, kAlignment);
  out.head.resize(out.bytes);
  std::byte* entry = out.head.data() + kHeaderBytes;
  for (const Part& part : parts) {
    const std::uint64_t length = part.bytes.size(), padded = round_up(length, kAlignment);
    put(entry, part.section.kind);
    put(entry + kAtGroup, part.section.group);
    put(entry + kAtOffset, out.bytes);
    put(entry + kAtBytes, length);
    put(entry + kAtDetail, part.section.at);
    put(entry + kAtObjectBytes, part.section.object_bytes);
    put(entry + kAtChecksum, hash_of_bytes(part.bytes));
    entry += kEntryBytes;
    out.pieces.push_back({part.bytes, padded - length});
    out.bytes += padded;
  }
  std::byte* const header = out.head.data();
  std::memcpy(header, kMagic.data(), kMagic.size());
  put(header + kAtVersion, kVersion);
  put(header + kAtSections, static_cast<std::uint32_t>(parts.size()));
  put(header + kAtLength, out.bytes);
  put(header + kAtModel, saved.model);
  put(header + kAtLayout, saved.layout);
  put(header + kAtTokens, static_cast<std::uint32_t>(tokens.size()));
  put(header + kAtComputed, computed);
  put(header + kAtBlockSize, snapshot.block_size);
  put(header + kAtGroups, static_cast<std::uint32_t>(snapshot.page_bytes.size()));
  put(header + kAtStateBytes, snapshot.state_bytes);
  put(header + kCheckedHeader, hash_of_head(out.head, static_cast<std::uint32_t>(parts.size())));
  return out;
}

Result<Contents> parse(std::span<const std::byte> file) { return Reader(file).read(); }

Result<void> check_magic(std::span<const std::byte> start) {
  if (start.size() >= kMagic.size() && std::memcmp(start.data(), kMagic.data(), kMagic.size()) == 0) return {};
  return fail("is not a session file: its first bytes are others");
}

std::string short_name(const Fingerprint& model) { return fmt::format("{:016x}", model.words[0]); }
std::string short_name(const Hash128& hash) { return fmt::format("{:016x}", hash.high); }

}  // namespace quire::session

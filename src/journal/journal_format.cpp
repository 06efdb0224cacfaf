#include "quire/journal/journal_format.h"

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace quire::journal {
namespace {

using Kind = PoolOperation::Kind;

// The first byte of an operation: its kind, and two flags.
constexpr std::uint8_t kKindBits = 0x1F, kRefused = 0x20, kNewCounts = 0x40;
static_assert(PoolOperation::kKinds <= kKindBits + 1);
constexpr std::uint32_t kMostSequences = 1 << 20;  // a header with more is damaged

// The fields of each kind of operation, in the order of the file. Writing and reading both go through here.
template <typename Archive, typename Operation>
void visit(Archive& a, Operation& o) {
  const bool done = !o.error.has_value();
  switch (o.kind) {
    case Kind::Create:
      a.number(o.name_space);
      a.tokens(o.tokens, o.reuse);
      if (done) a.made(o.made), a.hit(o.hit);
      break;
    case Kind::Admit:
      a.number(o.name_space);
      a.tokens(o.tokens, o.reuse);
      a.number(o.total);
      a.number(o.chunk);
      a.entries(o.entries);
      if (done) a.made(o.made), a.hit(o.hit);
      break;
    case Kind::Reserve: a.entries(o.entries); break;
    case Kind::Commit:
      a.sequence(o.sequence);
      a.tokens(o.tokens, o.checkpoint);
      break;
    case Kind::Fork:
      a.sequence(o.sequence);
      a.number(o.position);
      if (done) a.made(o.made), a.number(o.reached);
      break;
    case Kind::Rewind:
      a.sequence(o.sequence);
      a.number(o.position);
      if (done) a.number(o.reached);
      break;
    case Kind::Release: a.sequence(o.sequence); break;
    case Kind::Save:
      a.sequence(o.sequence);
      if (done) a.number(o.bytes);
      break;
    case Kind::Restore:
      a.number(o.name_space);
      a.tokens(o.tokens, o.reuse);
      a.blocks(o.first_blocks);
      if (done) a.made(o.made);
      break;
    case Kind::Suspend:
      a.sequence(o.sequence);
      a.number(o.cell_bytes);
      a.number(o.free_cells);
      if (done) a.number(o.bytes);
      break;
    case Kind::Resume:
      a.number(o.name_space);
      a.tokens(o.tokens, o.reuse);
      a.blocks(o.first_blocks);
      a.objects(o.not_copied);
      if (done) a.made(o.made);
      break;
    case Kind::SetCosts:
      a.real(o.costs.token);
      a.real(o.costs.token_per_context);
      break;
    case Kind::SetShare:
      a.number(o.name_space);
      a.number(o.floor);
      a.number(o.cap);
      break;
    case Kind::DropCache:
    case Kind::Recover: break;
    case Kind::AllocPage:
      a.number(o.group);
      if (done) a.object(o.object);
      break;
    case Kind::FreePage:
      a.number(o.group);
      a.object(o.object);
      break;
    case Kind::AllocSlot:
      if (done) a.object(o.object);
      break;
    case Kind::FreeSlot: a.object(o.object); break;
    case Kind::Draft:
      a.sequence(o.sequence);
      a.number(o.total);
      a.number(o.chunk);
      break;
    case Kind::EndDraft: a.sequence(o.sequence); break;
  }
}

class Writing {
 public:
  Writing(ByteWriter& to, Memory& memory) : to_(to), memory_(memory) {}
  void number(std::uint64_t value) { to_.varint(value); }
  void tokens(std::span<const Token> tokens, bool flag) {
    to_.varint(2 * tokens.size() + flag);
    for (const Token token : tokens) to_.varint(static_cast<std::uint32_t>(token));
  }
  // The generation is left out if the last sequence that was made there is meant.
  void sequence(SequenceId id) { sequence(id, 1, 0); }
  void entries(std::span<const BatchEntry> entries) {
    to_.varint(entries.size());
    for (const BatchEntry& entry : entries) {
      sequence(entry.sequence, 2, entry.rows != 1);
      if (entry.rows != 1) to_.varint(entry.rows);
    }
  }
  void made(SequenceId id) {
    object({id.index, id.generation});
    memory_.generations[id.index] = id.generation;
  }
  void hit(const Hit& hit) {
    to_.varint(hit.tokens);
    to_.varint(hit.matched);
    to_.byte(static_cast<std::uint8_t>(hit.end));
  }
  void blocks(std::span<const std::uint32_t> blocks) {
    to_.varint(blocks.size());
    for (const std::uint32_t block : blocks) to_.varint(block);
  }
  void objects(std::span<const HostArena::Object> objects) {
    to_.varint(objects.size());
    for (const HostArena::Object& object : objects) to_.varint(object.cls), to_.varint(object.block);
  }
  void real(double value) { to_.real(value); }
  void object(PageId id) {
    to_.varint(id.index);
    to_.varint(id.generation);
  }

 private:
  void sequence(SequenceId id, std::uint64_t flags, std::uint64_t flag) {
    const bool other = memory_.generations[id.index] != id.generation;
    to_.varint(((std::uint64_t{id.index} << 1) | other) * flags + flag);
    if (other) to_.varint(id.generation);
  }
  ByteWriter& to_;
  Memory& memory_;
};

class Reading {
 public:
  Reading(ByteReader& from, Memory& memory, std::vector<Token>& tokens, std::vector<BatchEntry>& entries,
          std::vector<std::uint32_t>& blocks, std::vector<HostArena::Object>& objects)
      : from_(from), memory_(memory), tokens_(tokens), entries_(entries), blocks_(blocks), objects_(objects) {}
  void number(std::uint64_t& value) { value = from_.varint(); }
  void number(std::uint32_t& value) { value = from_.number(); }
  void tokens(std::span<const Token>& tokens, bool& flag) {
    const std::uint64_t packed = from_.varint();
    const std::uint64_t count = within(packed / 2);
    flag = packed % 2 != 0;
    tokens_.clear();
    for (std::uint64_t i = 0; i < count; ++i) tokens_.push_back(static_cast<Token>(from_.number()));
    tokens = tokens_;
  }
  void sequence(SequenceId& id) { sequence(id, from_.varint()); }
  void entries(std::span<const BatchEntry>& entries) {
    const std::uint64_t count = within(from_.varint());
    entries_.clear();
    for (std::uint64_t i = 0; i < count; ++i) {
      BatchEntry entry{.rows = 1};
      const std::uint64_t packed = from_.varint();
      sequence(entry.sequence, packed >> 1);
      if (packed % 2 != 0) entry.rows = from_.number();
      entries_.push_back(entry);
    }
    entries = entries_;
  }
  void made(SequenceId& id) {
    PageId read;
    object(read);
    id = {read.index, read.generation};
    if (id.index < memory_.generations.size()) {
      memory_.generations[id.index] = id.generation;
    } else {
      from_.fail();
    }
  }
  void hit(Hit& hit) {
    hit = {.tokens = from_.number(), .matched = from_.number()};
    const std::uint8_t end = from_.byte();
    if (end >= kHitEnds) from_.fail();
    hit.end = static_cast<HitEnd>(end % kHitEnds);
  }
  void blocks(std::span<const std::uint32_t>& blocks) {
    const std::uint64_t count = within(from_.varint());
    blocks_.clear();
    for (std::uint64_t i = 0; i < count; ++i) blocks_.push_back(from_.number());
    blocks = blocks_;
  }
  void objects(std::span<const HostArena::Object>& objects) {
    const std::uint64_t count = within(from_.varint());
    objects_.clear();
    for (std::uint64_t i = 0; i < count; ++i) objects_.push_back({from_.number(), from_.number()});
    objects = objects_;
  }
  void real(double& value) { value = from_.real(); }
  void object(PageId& id) { id = {from_.number(), from_.number()}; }

 private:
  // Every element takes at least a byte, so a larger number is wrong.
  std::uint64_t within(std::uint64_t count) {
    if (count <= from_.left()) return count;
    from_.fail();
    return 0;
  }
  void sequence(SequenceId& id, std::uint64_t packed) {
    if (packed >> 1 >= memory_.generations.size()) return from_.fail();
    id.index = static_cast<std::uint32_t>(packed >> 1);
    id.generation = packed % 2 != 0 ? from_.number() : memory_.generations[id.index];
  }
  ByteReader& from_;
  Memory& memory_;
  std::vector<Token>& tokens_;
  std::vector<BatchEntry>& entries_;
  std::vector<std::uint32_t>& blocks_;
  std::vector<HostArena::Object>& objects_;
};

// Puts length and checksum around a payload that begins kMostVarintBytes after `to`.
std::size_t frame(std::byte* to, std::size_t payload_bytes, std::uint64_t number) {
  const std::byte* payload = to + kMostVarintBytes;
  const std::uint32_t sum = checksum({payload, payload_bytes}, number);
  ByteWriter head(to);
  head.varint(payload_bytes);
  std::memmove(to + head.size(), payload, payload_bytes);
  ByteWriter(to + head.size() + payload_bytes).u32(sum);
  return head.size() + payload_bytes + kChecksumBytes;
}

}  // namespace

std::uint32_t checksum(std::span<const std::byte> payload, std::uint64_t number) {
  return static_cast<std::uint32_t>(XXH3_64bits_withSeed(payload.data(), payload.size(), number));
}

std::size_t OperationEncoder::most_bytes(const PoolOperation& operation) {
  constexpr std::size_t kFixed = 128 + kMaxClasses * 10;
  return kFixed + 5 * operation.tokens.size() + 20 * operation.entries.size() + 5 * operation.first_blocks.size() +
         10 * operation.not_copied.size();
}

std::size_t OperationEncoder::encode(const PoolOperation& operation, std::uint64_t number, std::byte* to) {
  ByteWriter out(to + kMostVarintBytes);
  const bool new_counts = operation.counts != memory_.counts;
  out.byte(static_cast<std::uint8_t>(static_cast<std::uint8_t>(operation.kind) | (operation.error ? kRefused : 0) |
                                     (new_counts ? kNewCounts : 0)));
  if (operation.error) out.byte(static_cast<std::uint8_t>(*operation.error));
  Writing writing(out, memory_);
  visit(writing, operation);
  if (new_counts) {
    memory_.counts = operation.counts;
    out.varint(operation.counts.known_blocks);
    out.varint(operation.counts.classes);
    for (std::uint32_t c = 0; c < operation.counts.classes; ++c) {
      out.varint(operation.counts.objects[c].held);
      out.varint(operation.counts.objects[c].cached);
    }
  }
  return frame(to, out.size(), number);
}

std::expected<const PoolOperation*, const char*> OperationDecoder::decode(std::span<const std::byte> payload) {
  ByteReader in(payload);
  const std::uint8_t first = in.byte();
  if ((first & kKindBits) >= PoolOperation::kKinds || first > (kKindBits | kRefused | kNewCounts)) {
    return std::unexpected("an unknown kind of operation");
  }
  operation_ = PoolOperation{.kind = static_cast<Kind>(first & kKindBits)};
  if ((first & kRefused) != 0) {
    const std::uint8_t code = in.byte();
    if (code > static_cast<std::uint8_t>(PoolError::Code::InvalidArgument)) {
      return std::unexpected("an unknown error");
    }
    operation_.error = static_cast<PoolError::Code>(code);
  }
  Reading reading(in, memory_, tokens_, entries_, first_blocks_, not_copied_);
  visit(reading, operation_);
  if ((first & kNewCounts) != 0) {
    PoolCounts counts{};
    counts.known_blocks = in.number();
    counts.classes = in.number();
    if (counts.classes > kMaxClasses) return std::unexpected("more classes of objects than a pool can have");
    for (std::uint32_t c = 0; c < counts.classes; ++c) counts.objects[c] = {in.number(), in.number()};
    memory_.counts = counts;
  }
  operation_.counts = memory_.counts;
  if (!in.ok()) return std::unexpected("a field that is too long, too large or missing");
  if (in.left() > 0) return std::unexpected("bytes after the last field");
  return &operation_;
}

// --- the header

namespace {

// Writing and reading both go through here.
template <typename Archive, typename Header>
void visit_header(Archive& a, Header& header) {
  auto& config = header.config;
  a.number(config.layout.block_size);
  a.groups(config.layout.groups);
  for (auto& group : config.layout.groups) {
    a.number(group.num_layers);
    a.number(group.num_kv_heads);
    a.number(group.head_dim);
    a.number(group.planes);
    a.type(group.type);
    a.number(group.window);
  }
  a.number(config.layout.recurrent.num_layers);
  a.number(config.layout.recurrent.conv_bytes);
  a.number(config.layout.recurrent.ssm_bytes);
  a.type(config.layout.recurrent.type);
  for (auto& word : config.model.words) a.number(word);
  a.number(config.budget_bytes);
  a.number(config.max_sequences);
  a.number(config.max_tokens);
  a.flag(config.prefix_cache);
  a.eviction(config.eviction);
  a.number(config.checkpoint_budget_bytes);
  a.number(config.checkpoint_interval);
  a.number(config.max_recompute);
  a.number(config.checkpoint_unit);
  a.number(header.geometry.slab_bytes);
  a.number(header.geometry.slabs);
  a.number(header.geometry.max_nodes);
}

struct WritingHeader {
  ByteWriter& to;
  void number(std::uint64_t value) { to.varint(value); }
  void flag(bool value) { to.byte(value ? 1 : 0); }
  void eviction(Eviction eviction) { to.byte(static_cast<std::uint8_t>(eviction)); }
  void type(ElementType type) { to.byte(static_cast<std::uint8_t>(type)); }
  void groups(const std::vector<PageShape>& groups) { to.varint(groups.size()); }
};

struct ReadingHeader {
  ByteReader& from;
  void number(std::uint64_t& value) { value = from.varint(); }
  void number(std::uint32_t& value) { value = from.number(); }
  void flag(bool& value) { value = from.byte() != 0; }
  void eviction(Eviction& eviction) {
    const std::uint8_t value = from.byte();
    if (value > static_cast<std::uint8_t>(Eviction::Value)) return from.fail();
    eviction = static_cast<Eviction>(value);
  }
  void type(ElementType& type) {
    const std::uint8_t value = from.byte();
    if (value > static_cast<std::uint8_t>(ElementType::Q8_0)) return from.fail();
    type = static_cast<ElementType>(value);
  }
  void groups(std::vector<PageShape>& groups) {
    const std::uint64_t count = from.varint();
    if (count >= kMaxClasses) return from.fail();
    groups.resize(count);
  }
};

// The reference model divides by these numbers and trusts them.
std::expected<void, std::string> check(const JournalHeader& header) {
  const StateLayout& layout = header.config.layout;
  const auto fits = [&](std::uint64_t bytes) {
    const std::uint64_t cells = header.geometry.slab_bytes / bytes;
    return cells > 0 && cells < kNoIndex / header.geometry.slabs;
  };
  if (layout.block_size == 0) return std::unexpected("a block size of 0");
  if (header.config.checkpoint_unit == 0 || layout.block_size % header.config.checkpoint_unit != 0) {
    return std::unexpected("a checkpoint unit that does not divide the block size");
  }
  if (header.config.max_sequences == 0 || header.config.max_sequences > kMostSequences) {
    return std::unexpected("a pool for no sequences, or for too many");
  }
  if (header.config.max_tokens == 0) return std::unexpected("a pool for sequences of no tokens");
  if (header.geometry.slabs == 0) return std::unexpected("a pool without slabs");
  // A node for each page, or for each 32 bytes where pages do not limit them, and never fewer than 1,024.
  const std::uint64_t slab_nodes = std::max<std::uint64_t>(header.geometry.slab_bytes, 1024);
  if (header.geometry.max_nodes / (std::uint64_t{header.geometry.slabs} + 1) > slab_nodes) {
    return std::unexpected("a prefix index that is too large for the pool");
  }
  if (!layout.has_attention() && !layout.has_recurrent()) return std::unexpected("a model that remembers nothing");
  for (const PageShape& shape : layout.groups) {
    if (const auto ok = shape.check(); !ok) return std::unexpected(ok.error().message());
    if (!fits(shape.page_bytes())) return std::unexpected("slabs that do not fit their pages");
  }
  if (!layout.has_recurrent()) return {};
  if (const auto ok = layout.recurrent.check(); !ok) return std::unexpected(ok.error().message());
  if (!fits(layout.recurrent.bytes())) return std::unexpected("slabs that do not fit their recurrent states");
  return {};
}

}  // namespace

std::vector<std::byte> encode(const JournalHeader& header) {
  constexpr std::size_t kMostHeaderBytes = 512 + kMaxClasses * 64;
  std::vector<std::byte> bytes(kPreambleBytes + kMostHeaderBytes);
  std::memcpy(bytes.data(), kMagic, sizeof kMagic);
  ByteWriter(bytes.data() + sizeof kMagic).u32(kVersion);
  std::byte* record = bytes.data() + kPreambleBytes;
  ByteWriter out(record + kMostVarintBytes);
  WritingHeader writing{out};
  visit_header(writing, header);
  bytes.resize(kPreambleBytes + frame(record, out.size(), 0));
  return bytes;
}

std::expected<JournalHeader, std::string> decode_header(std::span<const std::byte> payload) {
  ByteReader in(payload);
  JournalHeader header;
  ReadingHeader reading{in};
  visit_header(reading, header);
  for (PageShape& shape : header.config.layout.groups) shape.block_size = header.config.layout.block_size;
  if (!in.ok() || in.left() > 0) return std::unexpected("a field that is too large or missing, or one too many");
  if (auto ok = check(header); !ok) return std::unexpected(ok.error());
  return header;
}

}  // namespace quire::journal

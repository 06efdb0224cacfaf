// The parts of libquire-state without its sequences: for an engine that does its own bookkeeping and only needs memory,
// and for a tool that moves state in and out of a pool.
//
//   1. KvCache, contiguous and paged: the same rows give the same bytes in both
//   2. plain pages and slots (alloc_kv, alloc_ssm): the caller's until given back, in the same arena as sequences
//   3. snapshots: a recurrent state is copied out of the pool as bytes, and back in
//   4. a sequence is read through KvCache, saved, and restored in another pool; or refused where it must be
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "quire/state/device.h"
#include "quire/state/kv_cache.h"
#include "quire/state/sequence_pool.h"

namespace {

using namespace quire;

constexpr std::uint32_t kHeads = 2, kDim = 4, kBlockSize = 4;

template <typename T>
T must(PoolResult<T> result) {
  if (!result) {
    std::fprintf(stderr, "plain_state: %s\n", result.error().message().c_str());
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

void must_be(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "plain_state: %s\n", what);
  std::exit(1);
}

// Prints the message of a call that must be refused.
template <typename T>
void refused(const char* what, const PoolResult<T>& result) {
  must_be(!result.has_value(), "something was allowed that must be refused");
  std::printf("   %-34s refused: %s\n", what, result.error().message().c_str());
}

// Rows of K or V, one per token: [tokens, kv_heads, head_dim] floats.
std::vector<std::byte> rows(std::uint32_t tokens, float first) {
  std::vector<float> values(tokens * kHeads * kDim);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<std::byte> keys_of(const KvCache& cache, std::uint32_t tokens) {
  std::vector<std::byte> k(tokens * cache.token_bytes()), v(k.size());
  must(cache.read(0, tokens, k, v));
  return k;
}

PoolConfig config_of(std::uint64_t model) {
  const LayerDesc layers[] = {LayerDesc::attention(kHeads, kDim, ElementType::F32),
                              LayerDesc::recurrent(4 * sizeof(float), 32 * sizeof(float))};
  PoolConfig config;
  config.layout = must(StateLayout::from_layers(layers, kBlockSize));
  config.model.words[0] = model;  // a hash of the weights, in a real engine
  config.budget_bytes = 64 << 10;
  config.max_sequences = 4;
  config.max_tokens = 64;
  return config;
}

void two_layouts(Device& device) {
  std::printf("1. K and V of ten tokens, written in chunks of three, in both layouts\n");
  const PageShape shape{
      .block_size = kBlockSize, .num_layers = 1, .num_kv_heads = kHeads, .head_dim = kDim, .type = ElementType::F32};
  BlockPool pages = must(BlockPool::create(device, 8, shape));
  PagedSeqState sequence = must(PagedSeqState::create(pages, 8));
  KvCache contiguous = must(KvCache::contiguous(device, kHeads, 16, kDim, ElementType::F32));
  KvCache paged = must(KvCache::paged(sequence, 0));

  refused("to write without room", paged.write(0, rows(1, 0), rows(1, 0)));
  must(sequence.ensure_capacity(10));
  for (std::uint32_t at = 0; at < 10; at += 3) {
    const std::uint32_t count = std::min(3u, 10 - at);
    for (KvCache* cache : {&contiguous, &paged}) {
      must(cache->write(at, rows(count, static_cast<float>(100 * at)), rows(count, -1)));
    }
  }
  std::vector<std::byte> k(2 * paged.token_bytes()), v(k.size());
  refused("to read what nobody wrote", paged.read(9, 2, k, v));
  must_be(keys_of(contiguous, 10) == keys_of(paged, 10), "the layouts hold different bytes");
  std::printf("   contiguous: %u of %u positions, paged: %u of %u in %u pages; the same bytes\n",
              must(contiguous.length()), must(contiguous.capacity()), must(paged.length()), must(paged.capacity()),
              sequence.table().size());

  // What a kernel sees. HostDevice's memory can be read here; another device's only by its kernels.
  const KvView view = must(paged.view());
  float value = 0;
  std::memcpy(&value, view.k(1, 7), sizeof value);
  std::printf("   K of head 1 at position 7 begins with %.0f, in page %u\n", static_cast<double>(value),
              sequence.table().place(7).page.index);
  sequence.release();
  refused("the view of a sequence that ended", paged.view());
}

void plain_objects(Device& device) {
  std::printf("\n2. Pages and slots for an engine with its own bookkeeping\n");
  const auto pool = must(SequencePool::create(device, config_of(1)));
  const PageId page = must(pool->alloc_kv());
  const SlotId slot = must(pool->alloc_ssm(42));
  const auto content = rows(2, 7);
  std::byte* bytes = must(pool->block_pool(0).data(page));
  must(device.upload(bytes, content.data(), content.size()));
  must(device.fence());  // now `content` may be changed again
  SequenceSlot& state = *must(pool->ssm_slot(slot));
  must(state.step(5));  // the kernel has computed five tokens
  std::printf("   page %u and slot %u: request %u stands at position %u\n", page.index, slot.index,
              static_cast<unsigned>(state.request()), state.position());

  // Sequences of the same pool make room around them, and never move or take them.
  const SequenceId sequence = must(pool->create({})).id;
  must(pool->reserve(sequence, 40));
  must_be(std::memcmp(must(pool->block_pool(0).data(page)), content.data(), content.size()) == 0, "a page has changed");
  must_be(!pool->free_kv(must(pool->pages(sequence, 0))[0]).has_value(), "took a page of a sequence");

  must(pool->free_kv(page));
  must(pool->release_ssm(slot));
  refused("a page given back twice", pool->free_kv(page));
  const SlotId next = must(pool->alloc_ssm(43));
  refused("the old name of a slot", pool->release_ssm(slot));
  must(pool->release_ssm(next));
  must(pool->release(sequence));
  const auto intact = pool->check_integrity();
  std::printf("   every page and state accounted for: %s\n", intact ? "yes" : intact.error().c_str());
  must_be(intact.has_value(), "the counts do not add up");
}

void snapshots(Device& device) {
  std::printf("\n3. A recurrent state is copied out and back in\n");
  const auto pool = must(SequencePool::create(device, config_of(1)));
  const SlotId first = must(pool->alloc_ssm(1)), second = must(pool->alloc_ssm(2));
  SequenceState& state = must(pool->ssm_slot(first))->state();
  std::vector<std::byte> bytes(state.shape().bytes(), std::byte{0x5A});
  must(device.upload(state.data(), bytes.data(), bytes.size()));
  must(device.fence());
  must(state.advance(9));
  const StateSnapshot snapshot = must(state.snapshot());
  must(pool->release_ssm(first));  // the snapshot does not need it
  SequenceState& other = must(pool->ssm_slot(second))->state();
  must(other.restore(snapshot));
  must_be(must(other.snapshot()).bytes == bytes, "the state came back changed");
  std::printf("   %zu bytes at position %u, in another slot\n", snapshot.bytes.size(), other.position());
  StateSnapshot narrow = snapshot;
  narrow.shape.ssm_bytes /= 2;
  refused("a snapshot of another shape", other.restore(narrow));
}

void save_and_restore(Device& device) {
  std::printf("\n4. A sequence moves to another pool\n");
  const auto pool = must(SequencePool::create(device, config_of(1)));
  const auto twin = must(SequencePool::create(device, config_of(1)));
  const auto stranger = must(SequencePool::create(device, config_of(2)));
  const std::vector<Token> tokens = {1, 2, 3, 4, 5, 6};
  const SequenceId id = must(pool->create({})).id;
  must(pool->reserve(id, 6));
  KvCache written = must(pool->kv_cache(id, 0, 0));
  must(written.write(0, rows(6, 1), rows(6, 2)));
  must(pool->commit(id, tokens));

  SavedSequence saved = must(pool->save(id));
  const SequenceId moved = must(twin->restore(saved));
  must_be(keys_of(must(twin->kv_cache(moved, 0, 0)), 6) == rows(6, 1), "the sequence came over changed");
  std::printf("   %zu tokens and %u bytes came over\n", must(twin->tokens(moved)).size(),
              static_cast<unsigned>(saved.bytes));
  refused("by a pool of another model", stranger->restore(saved));
  saved.data.data()[0] ^= std::byte{1};
  refused("with one bit that has changed", twin->restore(saved));
  must(pool->release(id));
  refused("a cache whose sequence is gone", written.length());
}

}  // namespace

int main() {
  HostDevice device;
  two_layouts(device);
  plain_objects(device);
  snapshots(device);
  save_and_restore(device);
  return 0;
}

#include "quire/engine/pool_size.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "quire/base/numbers.h"
#include "quire/state/arena.h"

namespace quire::engine {

namespace {

// Sizes and numbers of objects by class: the pages of each group, then recurrent states.
struct Objects {
  std::vector<std::uint64_t> bytes;
  std::vector<std::uint64_t> count;
};

Objects objects_of(const StateLayout& layout, const SequenceNeeds& needs) {
  Objects objects;
  for (const PageShape& group : layout.groups) {
    const std::uint64_t block = group.block_size;
    std::uint64_t pages = divide_up<std::uint64_t>(needs.tokens, block);
    if (group.window != 0) {
      // The window and the chunk after it. The window may begin in the middle of a page.
      const std::uint64_t span = std::uint64_t{group.window} + std::max(needs.chunk, 1u) + block - 2;
      pages = std::min(pages, divide_up(span, block));
    }
    objects.bytes.push_back(group.page_bytes());
    objects.count.push_back(pages);
  }
  if (layout.has_recurrent()) {
    objects.bytes.push_back(layout.recurrent.bytes());
    objects.count.push_back(1 + std::uint64_t{needs.checkpoints});
  }
  return objects;
}

bool fits(const Objects& objects, const SlabPlan& plan) {
  std::uint64_t slabs = 0;
  for (std::size_t i = 0; i < objects.bytes.size(); ++i) {
    slabs += divide_up(objects.count[i], plan.slab_bytes / objects.bytes[i]);
  }
  return slabs <= plan.slabs;
}

// `roomy`: the bytes of one sequence of the whole context.
std::uint64_t size_in_shared_memory(const StateLayout& layout, const PoolWish& wish, std::uint64_t roomy) {
  const std::uint64_t state = layout.has_recurrent() ? layout.recurrent.bytes() : 0;
  const auto many = checked_mul(roomy, std::uint64_t{wish.contexts});
  const auto rest = checked_mul(state, std::uint64_t{wish.more_sequences});
  const auto wanted = many && rest ? checked_add(*many, *rest) : std::nullopt;
  return std::min(wanted.value_or(UINT64_MAX), wish.device.free / 2);
}

// Memory of a GPU has no other use than the pool. What is not needed by sequences caches prefixes.
std::uint64_t size_in_own_memory(const PoolWish& wish, std::uint64_t roomy) {
  constexpr std::uint64_t kReserve = std::uint64_t{1}
                                     << 30;  // the driver's, and what other programs may take meanwhile
  const std::uint64_t reserve = std::min(wish.device.free / 10, kReserve);
  const std::uint64_t sequences = std::uint64_t{wish.contexts} + wish.more_sequences;
  const auto wanted = checked_mul(roomy, 2 * sequences);
  return std::min(wanted.value_or(UINT64_MAX), wish.device.free - reserve);
}

}  // namespace

Result<std::uint64_t> bytes_for(const StateLayout& layout, const SequenceNeeds& needs) {
  const Objects objects = objects_of(layout, needs);
  std::uint64_t sum = 0, largest = 0;
  for (std::size_t i = 0; i < objects.bytes.size(); ++i) {
    const auto bytes = checked_mul(objects.bytes[i], objects.count[i]);
    const auto more = bytes ? checked_add(sum, *bytes) : bytes;
    if (!more) return fail(fmt::format("a sequence of {} tokens takes more than 2^64 bytes", needs.tokens));
    sum = *more;
    largest = std::max(largest, objects.bytes[i]);
  }
  // Classes do not share slabs, so a little more than the sum is needed. How much depends on how the slabs are cut.
  constexpr int kSteps = 1024;
  const std::uint64_t step = std::max(largest, sum / 256);
  std::uint64_t budget = std::max(sum, largest);
  for (int i = 0; i < kSteps && budget <= UINT64_MAX / 2; ++i, budget += step) {
    const auto plan = plan_slabs(budget, objects.bytes, layout.groups.size());
    if (!plan) return fail(plan.error().message());
    if (fits(objects, *plan)) return budget;
  }
  return fail(fmt::format("found no pool size in which a sequence of {} tokens fits", needs.tokens));
}

std::uint32_t tokens_within(const StateLayout& layout, std::uint64_t budget, const SequenceNeeds& needs) {
  const auto plan = plan_slabs(budget, objects_of(layout, needs).bytes, layout.groups.size());
  if (!plan) return 0;
  // Sequences of up to `low` tokens fit; sequences of more than `high` do not.
  std::uint32_t low = 0, high = needs.tokens;
  while (low < high) {
    const std::uint32_t middle = low + (high - low + 1) / 2;
    SequenceNeeds tried = needs;
    tried.tokens = middle;
    if (fits(objects_of(layout, tried), *plan)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

Result<PoolSize> choose_pool_size(const StateLayout& layout, std::uint32_t trained, const PoolWish& wish,
                                  SequenceNeeds needs) {
  const auto mebibytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  if (wish.context > trained) {
    return fail(fmt::format("a context of {} tokens is longer than the {} that the model was trained for", wish.context,
                            trained));
  }
  if (wish.memory > wish.device.total) {
    return fail(fmt::format("a pool of {:.1f} MiB is more memory than the device has ({:.1f} MiB)",
                            mebibytes(wish.memory), mebibytes(wish.device.total)));
  }
  needs.tokens = wish.context != 0 ? wish.context : trained;
  const auto roomy = bytes_for(layout, needs);
  if (!roomy) return std::unexpected(roomy.error());
  needs.checkpoints = 0;
  const auto one = bytes_for(layout, needs);
  if (!one) return std::unexpected(one.error());

  std::uint64_t bytes = wish.memory;
  if (bytes == 0) {
    bytes = wish.own_memory ? size_in_own_memory(wish, *roomy) : size_in_shared_memory(layout, wish, *roomy);
    // If the caller asked for a context, one such sequence must fit, even if it takes more than half.
    if (wish.context != 0) bytes = std::max(bytes, *one);
    if (bytes > wish.device.total) {
      return fail(fmt::format("a context of {} tokens takes {:.1f} MiB, more memory than the device has ({:.1f} MiB)",
                              needs.tokens, mebibytes(*one), mebibytes(wish.device.total)));
    }
  }
  const std::uint32_t tokens = tokens_within(layout, bytes, needs);
  if (wish.context != 0 && tokens < wish.context) {
    return fail(fmt::format("a pool of {:.1f} MiB is too small for one sequence of {} tokens, which takes {:.1f} MiB",
                            mebibytes(bytes), wish.context, mebibytes(*one)));
  }
  if (const std::uint32_t few = std::min(needs.tokens, layout.block_size); tokens < few) {
    needs.tokens = few;
    const auto least = bytes_for(layout, needs);
    if (!least) return std::unexpected(least.error());
    return fail(fmt::format("a pool of {:.2f} MiB is too small for one sequence: {} tokens take {:.2f} MiB",
                            mebibytes(bytes), needs.tokens, mebibytes(*least)));
  }
  return PoolSize{tokens, bytes};
}

}  // namespace quire::engine

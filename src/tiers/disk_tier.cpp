// The threads of a disk tier. Readers and writers take jobs from a queue each and use the store: a page that somebody
// waits for is not behind those that are written. The keeper flushes, evicts, and opens the store again after an error.
// The watchdog answers for workers that the disk keeps waiting.
//
// Writers, the keeper and RocksDB's own threads have a low priority: nobody waits for what they do, and on a CPU they
// share the cores with the threads that compute.
#if QUIRE_DISK_TIER
#include "quire/tiers/disk_tier.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <rocksdb/env.h>
#include <rocksdb/slice.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "quire/base/readable.h"
#include "quire/tiers/disk_slot.h"
#include "quire/tiers/disk_store.h"
#include "quire/tiers/disk_tier_internal.h"
#include "quire/tiers/queue.h"

namespace quire::tiers {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kBatch = Slot::kBatch;
constexpr int kBackgroundNice = 10;  // more than others have
// An object may be so large a part of the limit. Two generations of room are made ahead, and they are a sixteenth.
constexpr std::uint64_t kLargestPart = 16;

// Lets this thread run when others do not want to. That takes no rights, and there is no way back without them, so
// threads that also do what somebody waits for must not call it. Where it is refused, nothing is lost but time.
void give_way() {
  const auto thread = static_cast<id_t>(::gettid());
  (void)::setpriority(PRIO_PROCESS, thread, ::getpriority(PRIO_PROCESS, thread) + kBackgroundNice);  // at most 19
  const sched_param none{};
  (void)::sched_setscheduler(static_cast<pid_t>(thread), SCHED_BATCH, &none);
}

// Jobs of one kind, and who does them.
struct Lane {
  Lane(std::size_t capacity, std::size_t workers) : queue(capacity), slots(workers) {}
  JobQueue queue;
  std::vector<Slot> slots;
};

class DiskTier final : public Tier {
 public:
  DiskTier(DiskTierOptions options, TierListener& listener, rocksdb::Env* env, std::unique_ptr<DiskStore> store)
      : options_(std::move(options)),
        listener_(listener),
        env_(env),
        reads_(options_.queue, options_.threads),
        writes_(options_.queue, (options_.threads + 1) / 2),
        pause_(options_.first_pause),
        note_(store->load_note()) {
    adopt(std::move(store));
    for (Slot& slot : reads_.slots) workers_.emplace_back([this, &slot] { work(reads_.queue, slot); });
    for (Slot& slot : writes_.slots) {
      workers_.emplace_back([this, &slot] {
        if (options_.low_priority) give_way();
        work(writes_.queue, slot);
      });
    }
    keeper_ = std::thread([this] {
      if (options_.low_priority) give_way();
      keep();
    });
    watchdog_ = std::thread([this] { watch(); });
  }

  ~DiskTier() override {
    stopping_ = true;
    reads_.queue.end();
    writes_.queue.end();
    for (std::thread& worker : workers_) worker.join();
    stopped_ = true;
    wake_keeper();
    keeper_.join();
    {
      const std::lock_guard lock(watch_mutex_);
      watched_ = true;
    }
    watch_.notify_all();
    watchdog_.join();
  }

  TierKind kind() const override { return TierKind::Disk; }
  std::string describe() const override {
    return fmt::format("disk {}, at most {}", options_.path.string(), in_units(options_.limit_bytes));
  }

  std::size_t submit(std::span<const TierJob> jobs) override {
    // Small pieces: each wakes a worker.
    std::size_t taken = 0;
    while (taken < jobs.size()) {
      if (answer_at_once(jobs[taken])) {
        ++taken;
        continue;
      }
      JobQueue& queue = queue_of(jobs[taken]);
      std::size_t run = 1;
      while (run < kBatch && taken + run < jobs.size() && &queue_of(jobs[taken + run]) == &queue) ++run;
      const std::size_t count = queue.push(jobs.subspan(taken, run));
      taken += count;
      if (count < run) break;
    }
    if (taken == jobs.size()) return taken;
    const std::lock_guard lock(count_mutex_);
    counts_.refused += jobs.size() - taken;
    return taken;
  }

  void keep_note(const std::string& note) override {
    const std::lock_guard lock(note_mutex_);
    note_changed_ = note_changed_ || note != note_;
    note_ = note;
  }
  std::string kept_note() const override {
    const std::lock_guard lock(note_mutex_);
    return note_;
  }

  bool has_lost(const ObjectKey& key) const override {
    const auto store = store_at_once();
    if (!store) return false;
    const auto there = store->has_at_once(key);
    return there && !*there;
  }

  TierUsage usage() const override {
    TierUsage usage;
    {
      const std::lock_guard lock(count_mutex_);
      usage = counts_;
    }
    const std::lock_guard lock(mutex_);
    if (store_) figures_ = store_->figures();
    usage.bytes = figures_.bytes;
    usage.objects = figures_.objects;
    usage.evicted = evicted_before_ + figures_.evicted;
    usage.capacity_bytes = figures_.limit > 0 ? figures_.limit : options_.limit_bytes;
    usage.working = problem_.empty() && !stuck_ && too_large_ == 0;
    usage.problem = !problem_.empty() ? problem_ : stuck_ ? stuck_text() : too_large_ > 0 ? too_large_text() : "";
    return usage;
  }

 private:
  enum class Trouble : std::uint8_t { None, Puts, Full, Broken };  // Puts: the last one failed, the next may not

  JobQueue& queue_of(const TierJob& job) { return job.kind == TierJob::Kind::Put ? writes_.queue : reads_.queue; }
  std::string stuck_text() const {
    return fmt::format("{}: the disk does not answer within {} s", options_.path.string(),
                       std::chrono::duration<double>(options_.timeout).count());
  }
  std::string too_large_text() const {  // with the lock
    return fmt::format(
        "{}: pages or states of {} are not kept: with this limit no object may have more than {}. It needs {}",
        options_.path.string(), in_units(too_large_), in_units(options_.limit_bytes / kLargestPart),
        in_units(kLargestPart * too_large_));
  }
  void log(const std::string& line) const {
    if (options_.log) options_.log(line);
  }

  // --- state, shared by all threads

  void adopt(std::unique_ptr<DiskStore> store) {
    store->when_room_is_wanted([this] { wake_keeper(); });
    const std::lock_guard lock(mutex_);
    store_ = std::move(store);
    figures_ = {};
  }

  // The store, if this kind of job may use it now.
  std::shared_ptr<DiskStore> store_for(bool put) const {
    const std::lock_guard lock(mutex_);
    if (trouble_ == Trouble::Broken || stopping_) return nullptr;
    if (put && trouble_ == Trouble::Full) return nullptr;
    if (put && trouble_ == Trouble::Puts && Clock::now() < retry_at_) return nullptr;
    return store_;
  }

  void fail_with(const DiskFault& fault) {
    const bool waits = fault.kind == DiskFault::Kind::NoRoom || fault.kind == DiskFault::Kind::Slow;
    const Trouble trouble = waits                                 ? Trouble::Puts
                            : fault.kind == DiskFault::Kind::Full ? Trouble::Full
                                                                  : Trouble::Broken;
    {
      const std::lock_guard lock(mutex_);
      if (trouble < trouble_ || (trouble == trouble_ && Clock::now() < retry_at_)) return;  // known
      trouble_ = trouble;
      retry_at_ = Clock::now() + pause_;
      pause_ = std::min(2 * pause_, options_.longest_pause);
      if (problem_ == fault.message) return;
      problem_ = fault.message;
    }
    log("disk cache " + fault.message);
    wake_keeper();
  }

  void works_again(Trouble after) {
    {
      const std::lock_guard lock(mutex_);
      if (trouble_ == Trouble::None || trouble_ > after) return;
      trouble_ = Trouble::None;
      pause_ = options_.first_pause;
      problem_.clear();
    }
    log(fmt::format("disk cache {}: works again", options_.path.string()));
  }

  // The store, if it can be asked without waiting.
  std::shared_ptr<DiskStore> store_at_once() const {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || trouble_ == Trouble::Broken || stopping_) return nullptr;
    return store_;
  }

  // Whether an object is there is known from the index in memory. Waking a thread for that would cost far more.
  bool answer_at_once(const TierJob& job) {
    if (job.kind != TierJob::Kind::Find) return false;
    auto store = store_at_once();
    if (!store) return false;
    const auto there = store->has_at_once(job.key);
    store.reset();
    if (!there) return false;
    answer(job, *there ? TierOutcome::Done : TierOutcome::Missing);
    return true;
  }

  // --- workers

  void finish(Slot& slot, std::size_t i, TierOutcome outcome) {
    if (slot.finish(i)) answer(slot.jobs[i], outcome);
  }

  void answer(const TierJob& job, TierOutcome outcome) {
    {
      const std::lock_guard lock(count_mutex_);
      if (outcome == TierOutcome::Failed) {
        ++counts_.failed;
      } else if (job.kind == TierJob::Kind::Put) {
        ++counts_.puts;
      } else if (job.kind == TierJob::Kind::Find) {
        ++counts_.finds;
      } else {
        ++counts_.gets;
        ++(outcome == TierOutcome::Done ? counts_.hits : counts_.misses);
      }
    }
    listener_.done(job, outcome);
  }

  void work(JobQueue& queue, Slot& slot) {
    while (const std::size_t count = queue.pop(slot.jobs)) {
      slot.begin(count, Clock::now() + options_.timeout);
      try {
        puts(slot, count);
        for (std::size_t i = 0; i < count; ++i) {
          if (slot.jobs[i].kind == TierJob::Kind::Get) get(slot, i);
          if (slot.jobs[i].kind == TierJob::Kind::Find) {
            const auto store = store_for(false);
            finish(slot, i,
                   !store                         ? TierOutcome::Failed
                   : store->has(slot.jobs[i].key) ? TierOutcome::Done
                                                  : TierOutcome::Missing);
          }
        }
      } catch (const std::exception& error) {
        // RocksDB throws when memory is short. Nothing is half done: a job is answered after its work.
        for (std::size_t i = 0; i < count; ++i) finish(slot, i, TierOutcome::Failed);
        fail_with({DiskFault::Kind::Broken, fmt::format("{}: {}", options_.path.string(), error.what())});
      }
      slot.end();
    }
  }

  void get(Slot& slot, std::size_t i) {
    const TierJob& job = slot.jobs[i];
    const auto store = store_for(false);
    if (!store) return finish(slot, i, TierOutcome::Failed);
    const auto began = Clock::now();
    rocksdb::PinnableSlice object;
    const DiskStore::Read read = store->read(job.key, job.bytes, object);
    if (read.failed) fail_with(*read.failed);
    if (read.outcome == TierOutcome::Damaged) {
      const std::lock_guard lock(count_mutex_);
      ++counts_.damaged[static_cast<std::size_t>(read.fault)];
    }
    if (read.outcome == TierOutcome::Done) {
      const Slot::Hold hold(slot, i);
      if (!hold) return;
      if (job.bytes > 0) std::memcpy(job.data, object.data() + kObjectHeaderBytes, job.bytes);
      const std::lock_guard lock(count_mutex_);
      counts_.bytes_read += job.bytes;
      counts_.read_seconds += std::chrono::duration<double>(Clock::now() - began).count();
    }
    finish(slot, i, read.outcome);
  }

  // Objects of a class have one size, so it is refused again and again: a model with larger states than this cache is
  // made for. That is no fault of the disk, and nothing changes it but another limit.
  void refuse_large(std::uint64_t bytes) {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      if (bytes <= too_large_) return;
      too_large_ = bytes;
      text = too_large_text();
    }
    log("disk cache " + text);
  }

  // All puts of the slot in one batch.
  void puts(Slot& slot, std::size_t count) {
    std::array<bool, kBatch> chosen{};
    for (std::size_t i = 0; i < count; ++i) chosen[i] = slot.jobs[i].kind == TierJob::Kind::Put;
    if (std::find(chosen.begin(), chosen.end(), true) == chosen.end()) return;
    const auto end_with = [&](TierOutcome outcome) {
      for (std::size_t i = 0; i < count; ++i) {
        if (chosen[i]) finish(slot, i, outcome);
      }
    };
    const auto store = store_for(true);
    if (!store) return end_with(TierOutcome::Failed);
    const auto began = Clock::now();
    DiskStore::Write write(*store);
    for (std::size_t i = 0; i < count; ++i) {
      if (!chosen[i]) continue;
      const bool fits = slot.jobs[i].bytes <= options_.limit_bytes / kLargestPart && slot.jobs[i].bytes < UINT32_MAX;
      if (!fits) refuse_large(slot.jobs[i].bytes);
      if (fits && write.want(slot.jobs[i].key, slot.jobs[i].bytes)) continue;
      chosen[i] = false;
      finish(slot, i, fits ? TierOutcome::Done : TierOutcome::Failed);
    }
    if (std::find(chosen.begin(), chosen.end(), true) == chosen.end()) return;
    // A third of the time for room, a third for the disk: then the worker is never late because of either.
    auto fault = write.reserve(began + options_.timeout / 3);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; !fault && i < count; ++i) {
      if (!chosen[i]) continue;
      const Slot::Hold hold(slot, i);
      if (!hold) continue;
      write.add(slot.jobs[i].key, std::span(slot.jobs[i].data, slot.jobs[i].bytes));
      bytes += slot.jobs[i].bytes;
    }
    if (!fault) fault = write.commit(began + options_.timeout * 2 / 3);
    if (fault) {
      fail_with(*fault);
      return end_with(TierOutcome::Failed);
    }
    works_again(Trouble::Puts);
    {
      const std::lock_guard lock(count_mutex_);
      counts_.bytes_written += bytes;
      counts_.write_seconds += std::chrono::duration<double>(Clock::now() - began).count();
    }
    end_with(TierOutcome::Done);
  }

  // --- keeper

  void wake_keeper() {
    {
      const std::lock_guard lock(keeper_mutex_);
      woken_ = true;
    }
    wake_.notify_one();
  }

  void keep() {
    const auto tick = std::clamp<milliseconds>(options_.flush_interval / 4, milliseconds(5), milliseconds(200));
    while (!stopped_) {
      {
        std::unique_lock lock(keeper_mutex_);
        wake_.wait_for(lock, tick, [&] { return woken_; });
        woken_ = false;
      }
      if (stopped_) break;
      try {
        keep_once();
      } catch (const std::exception& error) {
        fail_with({DiskFault::Kind::Broken, fmt::format("{}: {}", options_.path.string(), error.what())});
      }
    }
    const auto store = take_store();
    if (!store || trouble_ != Trouble::None) return;
    (void)store->flush();
    save_note(*store);
  }

  void keep_once() {
    Trouble trouble;
    bool due;
    std::shared_ptr<DiskStore> store;
    {
      const std::lock_guard lock(mutex_);
      trouble = trouble_;
      due = Clock::now() >= retry_at_;
      store = store_;
    }
    if (trouble == Trouble::Broken) {
      store.reset();
      take_store();  // closes it
      if (due) reopen();
      return;
    }
    if (!store->still_there()) {
      return fail_with({DiskFault::Kind::Broken, fmt::format("{}: the directory is gone", options_.path.string())});
    }
    if (trouble == Trouble::Full) {
      if (!due) return;
      if (const auto fault = store->resume(stopping_)) return fail_with(*fault);
      works_again(Trouble::Full);
    }
    if (const auto fault = store->maintain(stopping_)) return fail_with(*fault);
    if (Clock::now() < note_at_) return;
    note_at_ = Clock::now() + options_.flush_interval;
    save_note(*store);
  }

  void save_note(DiskStore& store) {
    std::string note;
    {
      const std::lock_guard lock(note_mutex_);
      if (!std::exchange(note_changed_, false)) return;
      note = note_;
    }
    store.save_note(note);
  }

  // The store, when no worker uses it any more.
  std::shared_ptr<DiskStore> take_store() {
    std::shared_ptr<DiskStore> store;
    {
      const std::lock_guard lock(mutex_);
      if (store_) {
        figures_ = store_->figures();
        evicted_before_ += figures_.evicted;
        figures_.evicted = 0;
      }
      store = std::move(store_);
      store_ = nullptr;
    }
    while (store && store.use_count() > 1) std::this_thread::sleep_for(milliseconds(1));
    return store;
  }

  void reopen() {
    auto opened = DiskStore::open(options_, env_);
    if (!opened) return fail_with({DiskFault::Kind::Broken, opened.error().message});
    adopt(std::move(*opened));
    works_again(Trouble::Broken);
  }

  // --- watchdog

  void watch() {
    const auto tick = std::clamp<milliseconds>(options_.timeout / 10, milliseconds(5), milliseconds(500));
    for (;;) {
      {
        std::unique_lock lock(watch_mutex_);
        if (watch_.wait_for(lock, tick, [&] { return watched_; })) return;
      }
      const auto now = Clock::now();
      const bool reads_late = answer_late(reads_, now), writes_late = answer_late(writes_, now);
      const bool late = reads_late || writes_late;
      bool changed;
      {
        const std::lock_guard lock(mutex_);
        changed = stuck_ != late;
        stuck_ = late;
      }
      if (changed) log("disk cache " + (late ? stuck_text() : options_.path.string() + ": answers again"));
    }
  }

  // Answers for workers that are late. If all are, nobody works, and the queue is answered here. Returns whether any
  // is.
  bool answer_late(Lane& lane, Clock::time_point now) {
    std::size_t late_workers = 0;
    std::array<TierJob, kBatch> jobs;
    for (Slot& slot : lane.slots) {
      bool late = false;
      const std::size_t count = slot.take_late(now, jobs, late);
      late_workers += late;
      for (std::size_t i = 0; i < count; ++i) answer(jobs[i], TierOutcome::Failed);
    }
    while (late_workers == lane.slots.size()) {
      const std::size_t count = lane.queue.try_pop(jobs);
      if (count == 0) break;
      for (std::size_t i = 0; i < count; ++i) answer(jobs[i], TierOutcome::Failed);
    }
    return late_workers > 0;
  }

  const DiskTierOptions options_;
  TierListener& listener_;
  rocksdb::Env* const env_;
  Lane reads_, writes_;

  mutable std::mutex mutex_;
  std::shared_ptr<DiskStore> store_;  // null while it is closed
  Trouble trouble_ = Trouble::None;
  std::string problem_;
  milliseconds pause_;
  Clock::time_point retry_at_{};
  bool stuck_ = false;
  std::uint64_t too_large_ = 0;  // the largest object that was refused for its size
  mutable DiskStore::Figures figures_;
  std::uint64_t evicted_before_ = 0;  // by stores that were closed

  mutable std::mutex count_mutex_;
  TierUsage counts_;

  mutable std::mutex note_mutex_;
  std::string note_;
  bool note_changed_ = false;
  Clock::time_point note_at_{};  // the keeper's

  std::atomic<bool> stopping_ = false;  // no new work
  std::atomic<bool> stopped_ = false;   // workers have ended
  std::mutex keeper_mutex_, watch_mutex_;
  std::condition_variable wake_, watch_;
  bool woken_ = false, watched_ = false;
  std::vector<std::thread> workers_;
  std::thread keeper_, watchdog_;
};

}  // namespace

Result<std::unique_ptr<Tier>> open_disk_tier_on(rocksdb::Env* env, DiskTierOptions options, TierListener& listener) {
  if (options.limit_bytes < kSmallestDiskLimit) {
    return fail(fmt::format("{}: a disk cache needs at least {}", options.path.string(), in_units(kSmallestDiskLimit)));
  }
  options.threads = std::max<std::size_t>(options.threads, 1);
  options.queue = std::max<std::size_t>(options.queue, 1);
  auto store = DiskStore::open(options, env);
  if (!store) return std::unexpected(store.error());
  // Flushes and deletions. RocksDB is used for nothing else in this process.
  for (const auto pool : {rocksdb::Env::HIGH, rocksdb::Env::LOW, rocksdb::Env::BOTTOM}) {
    if (options.low_priority) (void)env->LowerThreadPoolCPUPriority(pool, rocksdb::CpuPriority::kLow);
  }
  return std::make_unique<DiskTier>(std::move(options), listener, env, std::move(*store));
}

Result<std::unique_ptr<Tier>> open_disk_tier(DiskTierOptions options, TierListener& listener) {
  return open_disk_tier_on(rocksdb::Env::Default(), std::move(options), listener);
}

}  // namespace quire::tiers
#endif  // QUIRE_DISK_TIER

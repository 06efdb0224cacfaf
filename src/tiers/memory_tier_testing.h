// For tests: a tier in memory. Jobs wait until run() is called, so that a test decides what happens before they end.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "quire/state/tier.h"

namespace quire::tiers::testing {

// What several tiers may share, as servers share a store.
using Store = std::map<ObjectKey, std::vector<std::byte>>;

class MemoryTier final : public Tier {
 public:
  MemoryTier(TierKind kind, Store& store, TierListener& listener) : kind_(kind), store_(&store), listener_(&listener) {}

  TierKind kind() const override { return kind_; }
  std::string describe() const override { return "memory"; }
  std::size_t submit(std::span<const TierJob> jobs) override {
    std::size_t taken = 0;
    for (const TierJob& job : jobs) {
      if (jobs_.size() >= capacity) break;
      jobs_.push_back(job);
      ++taken;
    }
    return taken;
  }
  TierUsage usage() const override {
    TierUsage usage = usage_;
    usage.objects = store_->size();
    usage.working = !down;
    usage.problem = down ? "the memory is down" : "";
    return usage;
  }
  bool has_lost(const ObjectKey& key) const override { return knows_losses && !store_->contains(key); }

  void keep_note(const std::string& text) override {
    if (kind_ == TierKind::Disk) note = text;
  }
  std::string kept_note() const override { return note; }

  // Ends all jobs, or the first ones.
  void run(std::size_t most = SIZE_MAX) {
    for (std::size_t i = 0; i < most && !jobs_.empty(); ++i) {
      const TierJob job = jobs_.front();
      jobs_.pop_front();
      const bool unlucky = fails && fails();
      listener_->done(job, unlucky ? TierOutcome::Failed : work(job));
    }
  }

  std::string note;
  std::size_t capacity = SIZE_MAX;
  bool down = false;                 // everything fails
  std::function<bool()> fails = {};  // whether the next job fails
  bool knows_losses = false;         // says what is not in the store
  bool loses_reads = false;          // what Find has found is gone when it is read

 private:
  TierOutcome work(const TierJob& job) {
    if (down) {
      ++usage_.failed;
      return TierOutcome::Failed;
    }
    const auto at = store_->find(job.key);
    if (job.kind == TierJob::Kind::Put) {
      ++usage_.puts;
      usage_.bytes_written += job.bytes;
      const ObjectHeader header = header_of(job.key, {job.data, job.bytes});
      std::vector<std::byte> object(header.begin(), header.end());
      object.insert(object.end(), job.data, job.data + job.bytes);
      (*store_)[job.key] = std::move(object);
      return TierOutcome::Done;
    }
    const bool there = at != store_->end();
    if (job.kind == TierJob::Kind::Find) {
      ++usage_.finds;
      return there ? TierOutcome::Done : TierOutcome::Missing;
    }
    ++usage_.gets;
    if (!there || loses_reads) {
      ++usage_.misses;
      return TierOutcome::Missing;
    }
    const std::span<const std::byte> object = at->second;
    auto checked =
        check_header(job.key, object.first(std::min(object.size(), kObjectHeaderBytes)), object.size(), job.bytes);
    if (checked) checked = check_bytes(object.first(kObjectHeaderBytes), object.subspan(kObjectHeaderBytes));
    if (!checked) {
      ++usage_.misses;
      ++usage_.damaged[static_cast<std::size_t>(checked.error())];
      return TierOutcome::Damaged;
    }
    ++usage_.hits;
    usage_.bytes_read += job.bytes;
    std::copy(object.begin() + kObjectHeaderBytes, object.end(), job.data);
    return TierOutcome::Done;
  }

  TierKind kind_;
  Store* store_;
  TierListener* listener_;
  std::deque<TierJob> jobs_;
  TierUsage usage_;
};

}  // namespace quire::tiers::testing

#include "quire/tiers/redis_tier.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

namespace quire::tiers {
namespace {

constexpr std::uint64_t kActiveBytes = std::uint64_t{32} << 20;  // of reads, and of writes
constexpr std::uint64_t kMostParts = 1 << 16;

double seconds_since(RedisClock::time_point then) {
  return std::chrono::duration<double>(RedisClock::now() - then).count();
}

}  // namespace

std::vector<ObjectPart> parts_of(const RedisUrl& url, const ObjectKey& key, std::uint64_t bytes) {
  std::string name = url.prefix + ":1:";
  for (const std::uint8_t byte : bytes_of(key)) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  const std::uint64_t total = kObjectHeaderBytes + bytes;
  std::vector<ObjectPart> parts;
  if (total <= url.part) {
    parts.push_back({std::move(name), 0, total});
    return parts;
  }
  for (std::uint64_t begin = 0; begin < total; begin += url.part) {
    parts.push_back({fmt::format("{}:{}:{}", name, url.part, parts.size()), begin, std::min(url.part, total - begin)});
  }
  return parts;
}

struct RedisTier::Job {
  TierJob job;
  ObjectHeader header{};
  bool header_made = false;
  bool missing = false, failed = false, written = false, removing = false;
  std::optional<ObjectFault> fault;
  std::size_t left = 0;  // parts that have not ended, and one while they are started
  std::vector<std::unique_ptr<PartRequest>> parts;
  std::list<Job>::iterator self;
};

class RedisTier::PartRequest : public StoreRequest {
 public:
  PartRequest(RedisTier& tier, Job& job, ObjectPart part) : tier_(tier), job_(job), part_(std::move(part)) {
    slot = slot_of(part_.key);
    lane = job.job.kind == TierJob::Kind::Put ? RedisLane::Write : RedisLane::Read;
  }

  void begin() {
    const std::string& expire = tier_.expire_;
    switch (job_.job.kind) {
      case TierJob::Kind::Find: stage_ = Stage::Exists; break;
      case TierJob::Kind::Put: stage_ = Stage::Check; break;
      case TierJob::Kind::Get: stage_ = Stage::Get; break;
    }
    if (stage_ == Stage::Get) {
      head = format_command({"GET", part_.key});
      if (!expire.empty()) {
        head += format_command({"EXPIRE", part_.key, expire});
        replies_after = 1;
      }
      sink = place();
    } else if (stage_ == Stage::Check && !expire.empty()) {
      head = format_command({"EXPIRE", part_.key, expire});
    } else {
      head = format_command({"EXISTS", part_.key});
    }
    send(false);
  }

  void remove() {
    stage_ = Stage::Remove;
    redirected = 0;
    sink.reset();
    replies_after = 0;
    head = format_command({"DEL", part_.key});
    send(true);
  }

  void answered(Reply reply) override {
    if (tier_.store_->redirect(*this, reply)) return;
    if (reply.is_error()) {
      const RedisFault fault = understand_error(reply.text).fault;
      const bool redirected_in_vain = fault == RedisFault::Moved || fault == RedisFault::Ask;
      // Whatever the reason is, the next payload would be refused too.
      if (stage_ == Stage::Set && !redirected_in_vain) node->write_refused(printable(reply.text));
      if (stage_ == Stage::Get && fault == RedisFault::WrongType) {
        job_.fault = ObjectFault::NotAnObject;
      } else {
        job_.failed = true;
      }
      tier_.part_ended(job_);
      return;
    }
    switch (stage_) {
      case Stage::Exists: present(reply, [&] { job_.missing = true; }); break;
      case Stage::Check:
        if (present(reply, [] {}) || job_.failed) break;
        write();
        return;
      case Stage::Set:
        if (reply.kind == Reply::Kind::Status && reply.text == "OK") {
          node->write_accepted();
          node->moved(lane);
          job_.written = true;
        } else {
          job_.failed = true;
        }
        break;
      case Stage::Get: got(reply); break;
      case Stage::Remove: break;
    }
    tier_.part_ended(job_);
  }

  void lost() override {
    job_.failed = true;
    tier_.part_ended(job_);
  }

 private:
  enum class Stage : std::uint8_t { Exists, Check, Set, Get, Remove };

  void send(bool first) {
    if (!tier_.store_->send(*this, first)) lost();
  }

  // The reply to EXISTS or EXPIRE.
  template <typename Absent>
  bool present(const Reply& reply, Absent absent) {
    if (reply.kind != Reply::Kind::Integer || reply.integer < 0 || reply.integer > 1) {
      job_.failed = true;
      node->trip("an answer that is not Redis'");
      return false;
    }
    if (reply.integer == 0) absent();
    return reply.integer == 1;
  }

  void write() {
    if (tier_.stopping_ || tier_.store_->refuses_writes(slot, RedisClock::now())) {
      lost();
      return;
    }
    stage_ = Stage::Set;
    const TierJob& job = job_.job;
    if (!std::exchange(job_.header_made, true)) job_.header = header_of(job.key, {job.data, job.bytes});
    const std::string& expire = tier_.expire_;
    FramedCommand command = expire.empty() ? frame_command({"SET", part_.key}, part_.length, {})
                                           : frame_command({"SET", part_.key}, part_.length, {"EX", expire});
    head = std::move(command.head);
    tail = std::move(command.tail);
    const PayloadSink from = place();
    payload = {from.first, from.second};
    send(true);
  }

  void got(const Reply& reply) {
    if (reply.kind == Reply::Kind::Nil) {
      job_.missing = true;
    } else if (reply.kind != Reply::Kind::Payload) {
      job_.failed = true;
      node->trip("an answer that is not Redis'");
    } else if (reply.whole) {
      node->moved(lane);
    } else {
      const auto stored = static_cast<std::uint64_t>(reply.integer);
      job_.fault = ObjectFault::Truncated;
      if (job_.parts.size() > 1) return;
      const auto header = std::span(job_.header).first(std::min<std::uint64_t>(stored, kObjectHeaderBytes));
      if (auto checked = check_header(job_.job.key, header, stored, job_.job.bytes); !checked) {
        job_.fault = checked.error();
      }
    }
  }

  // Where the bytes of this part are: in the header, in the job's memory.
  PayloadSink place() const {
    const std::span<std::byte> data(job_.job.data, job_.job.bytes);
    if (part_.begin == 0) return {job_.header, data.first(part_.length - kObjectHeaderBytes)};
    return {{}, data.subspan(part_.begin - kObjectHeaderBytes, part_.length)};
  }

  RedisTier& tier_;
  Job& job_;
  const ObjectPart part_;
  Stage stage_ = Stage::Exists;
};

Result<std::unique_ptr<Tier>> open_redis_tier(const SharedTierOptions& options, TierListener& listener) {
  auto url = parse_redis_url(options.url);
  if (!url) return std::unexpected(url.error());
  std::unique_ptr<RedisTls> tls;
  if (url->tls) {
    auto made = make_redis_tls(*url);
    if (!made) return std::unexpected(made.error());
    tls = std::move(*made);
  }
  return std::make_unique<RedisTier>(options, std::move(*url), std::move(tls), listener);
}

RedisTier::RedisTier(const SharedTierOptions& options, RedisUrl url, std::unique_ptr<RedisTls> tls,
                     TierListener& listener)
    : options_(options),
      listener_(listener),
      tls_(std::move(tls)),
      url_(std::move(url)),
      expire_(url_.expire.count() > 0 ? std::to_string(url_.expire.count()) : ""),
      reads_(options.queue_jobs),
      writes_(options.queue_jobs) {
  RedisSettings settings{.url = url_, .tls = tls_.get()};
  settings.in_flight_bytes = options_.in_flight_bytes;
  store_ = std::make_unique<RedisStore>(io_, std::move(settings));
  usage_.working = false;
  usage_.problem = "not connected yet";
  thread_ = std::thread([this] {
    // OpenSSL writes to sockets that the server may have closed.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    store_->start();
    tick();
    io_.run();
  });
}

RedisTier::~RedisTier() {
  reads_.queue.end();
  writes_.queue.end();
  boost::asio::post(io_, [this] { stop(); });
  thread_.join();
}

std::string RedisTier::describe() const { return "shared store " + tiers::describe(url_); }

// --- on the caller's thread ---

std::size_t RedisTier::submit(std::span<const TierJob> jobs) {
  std::size_t taken = 0;
  while (taken < jobs.size()) {
    Window& window = window_of(jobs[taken].kind);
    std::size_t run = 1;
    while (taken + run < jobs.size() && &window_of(jobs[taken + run].kind) == &window) ++run;
    const std::size_t pushed = window.queue.push(jobs.subspan(taken, run));
    taken += pushed;
    if (pushed < run) break;
  }
  if (taken > 0) wake();
  if (taken < jobs.size()) {
    const std::lock_guard lock(usage_mutex_);
    usage_.refused += jobs.size() - taken;
  }
  return taken;
}

TierUsage RedisTier::usage() const {
  const std::lock_guard lock(usage_mutex_);
  return usage_;
}

void RedisTier::wake() {
  if (awake_.exchange(true)) return;
  boost::asio::post(io_, [this] {
    awake_ = false;
    pump();
  });
}

// --- on the tier's thread ---

void RedisTier::pump() {
  for (Window* const window : {&reads_, &writes_}) {
    TierJob job;
    while (window->jobs < options_.active_jobs && window->bytes < kActiveBytes &&
           window->queue.try_pop({&job, 1}) > 0) {
      start(job);
    }
  }
}

void RedisTier::start(const TierJob& request) {
  const bool too_large = request.bytes / url_.part >= kMostParts;
  if (stopping_ || too_large || store_->down()) {
    tell(request, TierOutcome::Failed, false, nullptr);
    return;
  }
  Window& window = window_of(request.kind);
  if (window.jobs++ == 0) window.busy_since = RedisClock::now();
  window.bytes += request.kind == TierJob::Kind::Find ? 0 : request.bytes;
  jobs_.emplace_front();
  Job& job = jobs_.front();
  job.job = request;
  job.self = jobs_.begin();
  const auto deadline = RedisClock::now() + url_.job_time();
  for (ObjectPart& part : parts_of(url_, request.key, request.bytes)) {
    job.parts.push_back(std::make_unique<PartRequest>(*this, job, std::move(part)));
    job.parts.back()->deadline = deadline;
  }
  job.left = job.parts.size() + 1;
  for (const auto& part : job.parts) part->begin();
  part_ended(job);
}

void RedisTier::part_ended(Job& job) {
  if (--job.left == 0) parts_ended(job);
}

void RedisTier::parts_ended(Job& job) {
  if (job.removing) {
    finish(job, TierOutcome::Damaged);
    return;
  }
  if (job.missing) {
    finish(job, TierOutcome::Missing);
    return;
  }
  if (job.failed) {
    finish(job, TierOutcome::Failed);
    return;
  }
  if (job.job.kind == TierJob::Kind::Get) {
    if (!job.fault) {
      if (auto checked = check_header(job.job.key, job.header, kObjectHeaderBytes + job.job.bytes, job.job.bytes);
          !checked) {
        job.fault = checked.error();
      } else if (auto whole = check_bytes(job.header, {job.job.data, job.job.bytes}); !whole) {
        job.fault = whole.error();
      }
    }
    if (job.fault) {
      job.removing = true;
      job.left = job.parts.size() + 1;
      for (const auto& part : job.parts) part->remove();
      part_ended(job);
      return;
    }
  }
  finish(job, TierOutcome::Done);
}

void RedisTier::finish(Job& job, TierOutcome outcome) {
  const TierJob request = job.job;
  const bool written = job.written;
  const auto fault = job.fault;
  Window& window = window_of(request.kind);
  window.bytes -= request.kind == TierJob::Kind::Find ? 0 : request.bytes;
  if (--window.jobs == 0) window.busy_seconds += seconds_since(window.busy_since);
  jobs_.erase(job.self);
  tell(request, outcome, written, outcome == TierOutcome::Damaged && fault ? &*fault : nullptr);
  // Not pump(): this may be deep in a connection's reading.
  wake();
  if (stopping_ && jobs_.empty()) io_.stop();
}

void RedisTier::tell(const TierJob& job, TierOutcome outcome, bool written, const ObjectFault* fault) {
  {
    const std::lock_guard lock(usage_mutex_);
    if (outcome == TierOutcome::Failed) {
      ++usage_.failed;
    } else if (job.kind == TierJob::Kind::Find) {
      ++usage_.finds;
    } else if (job.kind == TierJob::Kind::Put) {
      ++usage_.puts;
      if (written) usage_.bytes_written += job.bytes;
    } else {
      ++usage_.gets;
      ++(outcome == TierOutcome::Done ? usage_.hits : usage_.misses);
      if (outcome == TierOutcome::Done) usage_.bytes_read += job.bytes;
    }
    if (fault != nullptr) ++usage_.damaged[static_cast<std::size_t>(*fault)];
    usage_.read_seconds = reads_.busy_seconds + (reads_.jobs > 0 ? seconds_since(reads_.busy_since) : 0);
    usage_.write_seconds = writes_.busy_seconds + (writes_.jobs > 0 ? seconds_since(writes_.busy_since) : 0);
    publish_state();
  }
  listener_.done(job, outcome);
}

// usage_mutex_ is held.
void RedisTier::publish_state() {
  usage_.problem = store_->problem();
  usage_.working = usage_.problem.empty();
}

void RedisTier::tick() {
  const auto now = RedisClock::now();
  store_->tick(now);
  pump();
  {
    const std::lock_guard lock(usage_mutex_);
    publish_state();
  }
  if (stopping_ && now > stop_by_) {
    store_->abandon();
    io_.stop();
    return;
  }
  const auto pause = std::clamp<std::chrono::milliseconds>(url_.timeout / 20, std::chrono::milliseconds(2),
                                                           std::chrono::milliseconds(50));
  timer_.expires_after(pause);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) tick();
  });
}

void RedisTier::stop() {
  stopping_ = true;
  stop_by_ = RedisClock::now() + 2 * url_.timeout;
  for (Window* const window : {&reads_, &writes_}) {
    TierJob job;
    while (window->queue.try_pop({&job, 1}) > 0) tell(job, TierOutcome::Failed, false, nullptr);
  }
  store_->drop_queued();
  if (jobs_.empty()) io_.stop();
}

}  // namespace quire::tiers

// Many sequences on one pool: continuous batching with prefix reuse, and no request lost to memory.
//
//   auto engine = Engine::create(executor, pool, {});
//   auto id = (*engine)->submit(request, listener);    // or a refusal with its reason
//   while ((*engine)->step()) {}                       // events reach the listener in here
//
// A step schedules, computes, samples and commits. The executor computes and samples. Decoding sequences get their
// token first. The rest of the step's token budget goes to prefill, in the order of rank: time of arrival, less some
// seconds for each level of priority. If another request is computing the same prefix right now, a prompt waits for
// those pages instead of computing them again.
//
// When memory is full, the pool first evicts cached pages and checkpoints. Then the engine suspends the running
// sequence that is cheapest to resume. What it alone holds is copied to host memory, or all of it is recomputed later,
// whichever was measured cheaper. The host memory is allocated with the engine. The sequence resumes where it was. A
// resumed sequence decodes a token before it can be suspended again, unless nobody could get on otherwise.
//
// When the device fails, the requests of that step end with Finish::Failed and the error. Everything else on the device
// is thrown away and recomputed, and the engine continues. If the device is lost (device.h), nothing can continue:
// every request ends with Finish::Failed, new ones are refused, and device_lost() says why. The process must be started
// again.
//
// Who may call: one thread (service.h runs an engine on a thread of its own). Executor and pool outlive the engine.
//   Nobody else uses them meanwhile.
// What holds: the bytes of an answer depend on the model, the prompt and the sampling options, and on nothing else. An
//   admitted request ends by itself, by its client, by its deadline or by a device error, never for lack of memory. In
//   steady state a step does not allocate from the heap.
// How it fails: submit() refuses with a reason; nothing else fails.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quire/engine/executor.h"
#include "quire/engine/mask_worker.h"
#include "quire/engine/request.h"
#include "quire/engine/tenants.h"
#include "quire/tiers/tiers.h"

namespace quire::engine {

class CostModel;
class Drafter;
class Scheduler;
struct Choice;
struct Step;

enum class SuspendBy : std::uint8_t { Cheaper, Copy, Recompute };

// Of the pool, with tiers: what was fetched is a sequence for the moment in which it comes into the pool. A full server
// needs one for that which no request can have.
inline constexpr std::uint32_t kTierSequences = 1;

struct EngineOptions {
  // The most tokens in one step. It also limits how many sequences run at once. 0: as many as the executor takes.
  std::uint32_t step_tokens = 0;
  std::uint32_t queue_limit = 256;  // waiting requests; more are refused
  // The longest time between two tokens of an answer that prompts may cause. While sequences decode, chunks of prompts
  // fill a step until its predicted time reaches this. Empty: twice the time of a step that only decodes, at least
  // 100 ms. 0: throughput at any price; chunks are as large as the budget.
  std::optional<std::chrono::microseconds> target_itl = {};
  std::chrono::milliseconds priority_worth{10'000};
  std::uint64_t host_bytes = std::uint64_t{1} << 30;  // of the host arena, for copies of suspended sequences
  // Of the same arena, beside that: for what the pool evicts. Only for a device with memory of its own; needs tiers.
  std::uint64_t host_cache_bytes = 0;
  SuspendBy suspend_by = SuspendBy::Cheaper;
  // Where state lies besides the pool: attached to this pool, and outlives the engine. Null: nowhere. With tiers the
  // pool has kTierSequences more sequences than run.
  tiers::Tiers* tiers = nullptr;
  // With tiers: what the steps' costs depend on besides the model, in a few words. A tier of this machine keeps the
  // costs for the next start, so that it can choose between fetching and computing from its first prompt on. Empty: not
  // kept.
  std::string machine;
  std::uint32_t mask_threads = 1;  // compute the masks of constraints, beside the thread that samples
  // Guesses tokens that steps compute beside the next one of each answer; those that turn out right are kept. Answers
  // are the same with any drafter and without. Null: no drafts.
  std::shared_ptr<Drafter> drafter;
  std::uint32_t draft_tokens = 8;  // the most drafts of an answer in a step, up to kMostDrafts
  bool draft_always = false;       // also where it does not pay (tests)
  bool check_integrity = false;    // check the pool after every step (tests)
  // The time, also for measuring how long a step took. Empty: Clock::now. A simulation has its own.
  std::function<Clock::time_point()> now = {};
};

struct EngineStats {
  std::uint32_t waiting = 0;    // requests not yet admitted
  std::uint32_t running = 0;    // sequences
  std::uint32_t suspended = 0;  // sequences
  std::uint64_t steps = 0;
  std::uint64_t submitted = 0, refused = 0, finished = 0, cancelled = 0, expired = 0, failed = 0;
  std::uint64_t prompt_tokens = 0;     // of admitted requests
  std::uint64_t cached_tokens = 0;     // of those, reused from the prefix cache, also what came there from a tier
  std::uint64_t computed_tokens = 0;   // by prefill: prompts, and recomputed answers after a suspension
  std::uint64_t generated_tokens = 0;  // by decode
  std::uint64_t drafted_tokens = 0;    // guesses that were computed
  std::uint64_t accepted_tokens = 0;   // of those, the ones that were right
  std::uint64_t suspensions_by_copy = 0, suspensions_by_recompute = 0, resumed = 0;
  std::uint64_t bytes_saved = 0;                          // copied to the host arena so far
  std::uint64_t host_bytes = 0, host_capacity_bytes = 0;  // of the host arena: in use now; in all
  std::uint64_t copies_lost = 0;    // suspended by copy, then recomputed: pages that it had shared were evicted
  std::uint64_t prefix_waits = 0;   // requests that waited for another request's pages
  std::uint64_t tier_waits = 0;     // requests that waited for pages from a tier
  std::uint64_t tier_splits = 0;    // requests that computed the front of a prefix while the rest was fetched
  std::uint64_t device_errors = 0;  // steps that were thrown away
  double model_seconds = 0, total_seconds = 0;  // of all steps
  // Masks of constraints: computing them, all threads together; and how long sampling waited for them.
  double mask_seconds = 0, mask_wait_seconds = 0;
};

// One choice of a request, for inspection.
struct SequenceInfo {
  enum class State : std::uint8_t { Waiting, Prefill, Decode, Suspended };
  RequestId request = 0;
  std::uint32_t choice = 0;
  State state = State::Waiting;
  SequenceId sequence;  // valid while it is in the pool
  std::uint32_t prompt_tokens = 0;
  std::uint32_t tokens = 0;       // prompt and answer
  std::uint32_t computed = 0;     // tokens that are in the pool
  std::uint32_t max_tokens = 0;   // prompt and answer at most
  bool waits_for_prefix = false;  // Waiting: another request computes its prefix
  bool waits_for_tier = false;    // Waiting: its prefix is on its way from a tier
  Hit hit;
  std::array<std::uint32_t, kTierKinds> from{};  // of the hit's tokens, those that came from a tier (by TierKind)
  std::int32_t priority = 0;
  std::uint32_t suspensions = 0;
  Namespace name_space = 0;  // its tenant
  std::uint32_t adapter = 0;
};
const char* name(SequenceInfo::State state);

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(Executor& executor, SequencePool& pool, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The listener gets the events of the request. The final one has `last` set. `id` is chosen by the caller and must
  // not be in use; 0: the engine chooses one.
  std::expected<RequestId, Refusal> submit(Request request, std::shared_ptr<Listener> listener, RequestId id = 0);
  // Frees everything the request holds at once. Its listener is told that it has finished. False: no such request.
  bool cancel(RequestId id);
  void cancel_all(Finish why = Finish::Cancelled);

  // One step. False: nothing could be computed, and nothing came from a tier. Then either the engine is idle(), or a
  // request waits for pages from a tier, which calls Tiers::on_arrival().
  bool step();
  bool idle() const;  // no request is waiting or running
  // Refuses new requests from now on. Those already here are finished.
  void stop_accepting() { accepting_ = false; }
  // One line for a person, with the device's error, if the device is lost. Empty: it works.
  const std::string& device_lost() const { return device_lost_; }

  // Weights and limits of the tenants; those that are not listed have the defaults. May be called at any time.
  std::expected<void, std::string> set_tenants(std::span<const TenantOptions> tenants);

  EngineStats stats() const;
  std::vector<TenantUsage> tenants() const;
  const CostModel& cost_model() const;  // what the steps of this machine cost
  // Somebody used the pool between two steps, waited for the device and was told that work had failed
  // (PoolError::Code::WorkFailed). Nothing on the device can be trusted, so the state of all sequences is recomputed.
  void device_failed();
  std::vector<SequenceInfo> sequences() const;
  SequencePool& pool() { return *pool_; }
  const SequencePool& pool() const { return *pool_; }
  const EngineOptions& options() const { return options_; }
  std::uint32_t vocabulary() const { return executor_->vocabulary(); }

 private:
  struct Job;
  Engine(Executor& executor, SequencePool& pool, std::unique_ptr<HostArena> host_arena, const EngineOptions& options);
  Clock::time_point now() const { return options_.now ? options_.now() : Clock::now(); }
  std::optional<Refusal> refusal(const Request& request);

  void expire(Clock::time_point now);
  void advance_tiers();
  void note_admissions(const Step& step);
  model::StepWants ask(const Step& step);
  bool ask_for_tokens(Choice& choice, std::uint32_t row);
  std::span<const std::uint32_t> ask_for_mask(Choice& choice, bool at_once = false);
  void ask_for_drafts(Choice& choice, const BatchEntry& entry, std::uint32_t row);
  void take(const Step& step, const model::StepOutput& output);
  void take_prompt(const Choice& choice, const BatchEntry& entry, std::uint32_t row, const model::StepOutput& output);
  void tell_prompt_row(Job& job, const Choice& choice, std::uint32_t position, std::span<const float> logits);
  void pool_row(Job& job, const Choice& choice, std::uint32_t position, std::span<const float> hidden);
  void commit(const Step& step, const model::StepOutput& output);
  void show_drafter(const Step& step, const HostRows& hidden);
  void accept_drafts(Choice& choice, const Step& step, const BatchEntry& entry, std::uint32_t row,
                     const model::StepOutput& output);
  void end_failed();
  void lose_step(const Step& step, const PoolError& error);
  bool fetch_device_errors();
  void lose_device();
  void recover();

  std::optional<std::string> equip(const Job& job, Choice& choice);
  static std::optional<std::string> replay(const Request& asked, Choice& choice);
  void start_siblings(Choice& first);
  void accept(Choice& choice);
  bool append(Choice& choice, Token token, float logprob, std::span<const TokenLogprob> alternatives);
  void follow_constraint(Choice& choice);
  struct Ending {  // how an answer ended, for the listener
    Finish why = Finish::Stop;
    std::string_view stop = {};
    Token stop_token = -1;
    std::string_view error = {};
  };
  void finish(Choice& choice, Ending ending);
  void end_job(Job& job, const Ending& ending);
  void tell_best(Job& job);
  void tell(Job& job, const Event& event);
  void forget_ended();

  Executor* executor_;
  SequencePool* pool_;
  EngineOptions options_;
  bool accepting_ = true;
  std::string device_lost_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unordered_map<RequestId, std::unique_ptr<Job>> jobs_;
  std::vector<RequestId> ended_;  // jobs to remove after the step
  Clock::time_point next_deadline_ = Clock::time_point::max();
  RequestId last_id_ = 0;
  // What a step wants of the executor.
  std::vector<sampling::Job> wanted_jobs_;
  std::vector<std::uint32_t> wanted_logits_;
  std::vector<std::uint32_t> wanted_hidden_;
  std::vector<float> pooled_;                      // scratch
  std::vector<TokenLogprob> prompt_alternatives_;  // scratch
  sampling::Budget budget_;
  SamplerScratch scratch_;             // for what the executor does not sample
  std::unique_ptr<MaskWorker> masks_;  // from the first request with a constraint on
  EngineStats stats_;                  // without what the scheduler counts
};

}  // namespace quire::engine

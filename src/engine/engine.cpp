#include "quire/engine/engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/base/check.h"
#include "quire/engine/choice.h"
#include "quire/engine/job.h"
#include "quire/engine/scheduler.h"

namespace quire::engine {
namespace {

using State = Choice::State;

constexpr std::uint32_t kMostChoices = 128;
constexpr std::int32_t kMostLogprobs = 100;
constexpr std::size_t kMostStops = 64;
// Levels of priority and what one is worth: small enough for their product to be a time.
constexpr std::int32_t kMostPriority = 1'000'000;
constexpr std::chrono::hours kMostPriorityWorth{1};

}  // namespace

const char* name(SequenceInfo::State state) {
  switch (state) {
    case State::Waiting: return "waiting";
    case State::Reading: return "reading";
    case State::Writing: return "writing";
    case State::Suspended: return "suspended";
  }
  return "?";
}

Result<std::unique_ptr<Engine>> Engine::create(Executor& executor, SequencePool& pool, const EngineOptions& options) {
  if (executor.max_rows() == 0 || executor.max_logits() == 0) return fail("an executor that takes no tokens");
  if (options.priority_worth.count() < 0 || options.priority_worth > kMostPriorityWorth) {
    return fail(fmt::format("a level of priority is worth {} ms of waiting, which is not between 0 and an hour",
                            options.priority_worth.count()));
  }
  return std::unique_ptr<Engine>(new Engine(executor, pool, options));
}

Engine::Engine(Executor& executor, SequencePool& pool, const EngineOptions& options)
    : executor_(&executor), pool_(&pool), options_(options), scratch_(executor.vocabulary()) {
  const std::uint32_t rows = executor.max_rows();
  const std::uint32_t budget = options.step_tokens == 0 ? rows : std::min(rows, options.step_tokens);
  // Each has a token in a step once it writes.
  const std::uint32_t running = std::min({pool.config().max_sequences, executor.max_logits(), budget});
  scheduler_ = std::make_unique<Scheduler>(pool, options_, budget, running);
  work_.reserve(running);
  sampled_.reserve(running + kMostChoices);
}

Engine::~Engine() {
  for (auto& [id, job] : jobs_) {
    for (auto& choice : job->choices) {
      if (!choice->done) scheduler_->remove(*choice);
    }
  }
}

// --- requests come and go

std::optional<Refusal> Engine::refusal(const Request& request) const {
  const auto no = [](Refusal::Why why, std::string message) { return Refusal{why, std::move(message)}; };
  using Why = Refusal::Why;
  if (!accepting_) return no(Why::Stopping, "the engine is shutting down");
  if (request.prompt.empty()) return no(Why::Invalid, "the prompt has no tokens");
  for (const Token token : request.prompt) {
    if (token < 0 || static_cast<std::uint32_t>(token) >= executor_->vocabulary()) {
      return no(Why::Invalid, fmt::format("the prompt has token {}, which is not one of the model's {}", token,
                                          executor_->vocabulary()));
    }
  }
  if (request.n == 0 || request.n > kMostChoices || request.best_of > kMostChoices) {
    return no(Why::Invalid, fmt::format("n and best_of can be from 1 to {}", kMostChoices));
  }
  if (request.best_of != 0 && request.best_of < request.n) {
    return no(Why::Invalid, fmt::format("best_of ({}) is less than n ({})", request.best_of, request.n));
  }
  if (request.logprobs > kMostLogprobs) {
    return no(Why::Invalid, fmt::format("at most {} log-probabilities can be told with a token", kMostLogprobs));
  }
  if (request.priority < -kMostPriority || request.priority > kMostPriority) {
    return no(Why::Invalid, fmt::format("a priority of {} is not between {} and {}", request.priority, -kMostPriority,
                                        kMostPriority));
  }
  if (auto ok = check(request.sampling); !ok) return no(Why::Invalid, ok.error().message);
  if (!request.stop_strings.empty() && !request.text) {
    return no(Why::Invalid, "stop strings, and nothing that turns tokens into text");
  }
  if (request.stop_strings.size() > kMostStops) {
    return no(Why::Invalid, fmt::format("more than {} stop strings", kMostStops));
  }
  for (const std::string& stop : request.stop_strings) {
    if (stop.empty()) return no(Why::Invalid, "a stop string that is empty");
  }
  const std::uint32_t context = pool_->config().max_tokens;
  const std::uint64_t needed = request.prompt.size() + (request.max_tokens > 0 ? 1 : 0);
  if (needed > context) {
    return no(Why::TooLong, fmt::format("the prompt has {} tokens, and the context of {} leaves no room for an answer",
                                        request.prompt.size(), context));
  }
  const auto most = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(context, std::uint64_t{request.max_tokens} + request.prompt.size()));
  if (auto ok = pool_->can_ever_fit(most, scheduler_->step_tokens()); !ok) {
    return no(Why::NeverFits, fmt::format("{} tokens do not fit into the pool: {}", most, ok.error().message()));
  }
  if (scheduler_->queued() >= options_.queue_limit) {
    return no(Why::QueueFull, fmt::format("{} requests are waiting already", scheduler_->queued()));
  }
  return std::nullopt;
}

std::expected<RequestId, Refusal> Engine::submit(Request request, std::shared_ptr<Listener> listener, RequestId id) {
  ++stats_.submitted;
  auto why = refusal(request);
  if (!why && id != 0 && jobs_.contains(id)) why = Refusal{Refusal::Why::Invalid, "the request id is in use"};
  if (why) {
    ++stats_.refused;
    return std::unexpected(std::move(*why));
  }
  auto job = std::make_unique<Job>();
  job->id = id != 0 ? id : ++last_id_;
  while (id == 0 && jobs_.contains(job->id)) job->id = ++last_id_;
  job->request = std::move(request);
  job->listener = std::move(listener);
  job->submitted = now();
  const Request& asked = job->request;
  const std::uint32_t count = std::max(asked.n, asked.best_of);
  const auto prompt = static_cast<std::uint32_t>(asked.prompt.size());
  job->usage.prompt_tokens = prompt;
  job->open = count;
  const auto arrived = std::chrono::duration_cast<std::chrono::nanoseconds>(job->submitted.time_since_epoch());
  const std::int64_t worth = std::chrono::nanoseconds(options_.priority_worth).count();
  for (std::uint32_t i = 0; i < count; ++i) {
    auto choice = std::make_unique<Choice>();
    choice->request = job->id;
    choice->index = i;
    choice->rank = {arrived.count() - asked.priority * worth, stats_.submitted, i};
    choice->priority = asked.priority;
    choice->name_space = asked.name_space;
    choice->reuse = asked.reuse;
    choice->prompt_tokens = prompt;
    choice->max_tokens = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(pool_->config().max_tokens, std::uint64_t{prompt} + asked.max_tokens));
    job->choices.push_back(std::move(choice));
  }
  equip(*job, *job->choices.front());
  next_deadline_ = std::min(next_deadline_, asked.deadline);
  scheduler_->add(*job->choices.front());
  const RequestId given = job->id;
  jobs_.emplace(given, std::move(job));
  return given;
}

// Gives a choice its tokens and what it picks and tells them by. The first gets it when the request comes; the others
// when they begin, so that a request that waits is no larger for the choices it wants.
void Engine::equip(const Job& job, Choice& choice) {
  const Request& asked = job.request;
  choice.tokens.reserve(choice.max_tokens + 1);
  choice.tokens.assign(asked.prompt.begin(), asked.prompt.end());
  SamplerOptions sampling = asked.sampling;
  sampling.seed += choice.index;
  const bool ranks = asked.best_of > asked.n;
  choice.sampler = Sampler(sampling, executor_->vocabulary(), std::max(asked.logprobs, ranks ? 0 : -1));
  choice.sampler.see_prompt(asked.prompt);
  if (asked.text) choice.text = asked.text();
  choice.stop = StopMatcher(asked.stop_strings);
}

bool Engine::cancel(RequestId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second->ended) return false;
  end_job(*found->second, Finish::Cancelled);
  forget_ended();
  return true;
}

void Engine::cancel_all(Finish why) {
  for (auto& [id, job] : jobs_) {
    if (!job->ended) end_job(*job, why);
  }
  forget_ended();
}

void Engine::end_job(Job& job, Finish why) {
  // Choices that have not begun are not in the scheduler, and nobody is to hear of more than was asked for.
  for (auto& choice : job.choices) {
    if (!choice->done) finish(*choice, why);
  }
}

void Engine::expire(Clock::time_point time) {
  if (time < next_deadline_) return;
  next_deadline_ = Clock::time_point::max();
  for (auto& [id, job] : jobs_) {
    if (job->ended) continue;
    if (job->request.deadline <= time) {
      end_job(*job, Finish::Deadline);
    } else {
      next_deadline_ = std::min(next_deadline_, job->request.deadline);
    }
  }
}

bool Engine::idle() const { return jobs_.empty(); }

// --- the step

bool Engine::step() {
  const Clock::time_point start = Clock::now();
  expire(now());
  const std::span<const Scheduled> batch = scheduler_->schedule(stats_);
  if (!batch.empty()) {
    note_admissions(batch);
    const Clock::time_point computing = Clock::now();
    const Rows logits = forward(batch);
    const double model_seconds = seconds(Clock::now() - computing);
    scheduler_->measure(model_seconds);
    sample(batch, logits);
    commit(batch);
    ++stats_.steps;
    stats_.model_seconds += model_seconds;
    stats_.total_seconds += seconds(Clock::now() - start);
  }
  forget_ended();
  if (options_.check_integrity) {
    const auto sound = pool_->check_integrity();
    QUIRE_CHECK(sound.has_value(), "the pool explains every page it has");
  }
  return !batch.empty();
}

// Who is in its first step has waited until now.
void Engine::note_admissions(std::span<const Scheduled> batch) {
  for (const Scheduled& item : batch) {
    if (item.choice->writes()) continue;
    Job& job = *jobs_.at(item.choice->request);
    if (job.admitted) continue;
    job.admitted = true;
    job.usage.hit = item.choice->hit;
    job.usage.queued_seconds = seconds(now() - job.submitted);
  }
}

Rows Engine::forward(std::span<const Scheduled> batch) {
  work_.clear();
  for (const Scheduled& item : batch) {
    const Choice& choice = *item.choice;
    work_.push_back({.id = choice.sequence,
                     .tokens = std::span(choice.tokens).subspan(choice.position, item.tokens),
                     .logits = item.logits});
  }
  const auto logits = executor_->forward(work_);
  QUIRE_CHECK(logits.has_value(), "what was scheduled can be computed");
  return *logits;
}

void Engine::sample(std::span<const Scheduled> batch, const Rows& logits) {
  sampled_.clear();
  std::uint32_t row = 0;
  for (const Scheduled& item : batch) {
    if (!item.logits) continue;
    const std::span<const float> values(logits.row(row++), logits.cols);
    Choice& choice = *item.choice;
    Job& job = *jobs_.at(choice.request);
    // The others of a request begin where the first one's prompt ends, each with a token of its own.
    const bool first = !job.siblings_started;
    for (std::uint32_t i = 0; i < (first ? job.choices.size() : 1); ++i) {
      Choice& picks = first ? *job.choices[i] : choice;
      if (first && i > 0) equip(job, picks);
      sampled_.push_back(picks.max_tokens == picks.prompt_tokens
                             ? Sampled{}
                             : picks.sampler.sample(values, picks.tokens.size(), scratch_));
    }
  }
}

void Engine::commit(std::span<const Scheduled> batch) {
  std::size_t next = 0;
  for (const Scheduled& item : batch) {
    Choice& choice = *item.choice;
    const auto tokens = std::span(choice.tokens).subspan(choice.position, item.tokens);
    const auto ok = pool_->commit(choice.sequence, tokens, item.checkpoint);
    QUIRE_CHECK(ok.has_value(), "what was scheduled was reserved");
    choice.position += item.tokens;
    Job& job = *jobs_.at(choice.request);
    if (choice.writes()) {
      ++stats_.generated_tokens;
    } else {
      stats_.computed_tokens += item.tokens;
    }
    if (!item.logits) continue;
    choice.state = State::Writing;
    choice.safe = false;
    if (job.siblings_started) {
      accept(choice, sampled_[next++]);
      continue;
    }
    job.siblings_started = true;
    job.usage.first_token_seconds = seconds(now() - job.submitted);
    start_siblings(choice);
    for (auto& each : job.choices) accept(*each, sampled_[next++]);
  }
}

// The other choices of a request share the prompt that the first one has just read. Where there is no room for one now,
// it comes in like one that was suspended.
void Engine::start_siblings(Choice& first) {
  Job& job = *jobs_.at(first.request);
  for (std::size_t i = 1; i < job.choices.size(); ++i) {
    Choice& choice = *job.choices[i];
    choice.hit = first.hit;
    choice.admitted_before = true;
    if (scheduler_->running().size() < scheduler_->max_running()) {
      if (const auto fork = pool_->fork(first.sequence, first.position, job.id)) {
        QUIRE_CHECK(fork->position == first.position, "a sequence can be forked where it stands");
        choice.position = first.position;
        scheduler_->add_running(choice, fork->id);
        continue;
      }
    }
    choice.state = State::Suspended;
    scheduler_->add(choice);
  }
}

void Engine::forget_ended() {
  for (const RequestId id : ended_) jobs_.erase(id);
  ended_.clear();
}

// --- looking

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<std::uint32_t>(scheduler_->running().size());
  stats.waiting = scheduler_->queued();
  stats.suspended = static_cast<std::uint32_t>(scheduler_->waiting().size()) - stats.waiting;
  stats.host_bytes = scheduler_->host_bytes();
  return stats;
}

std::vector<SequenceInfo> Engine::sequences() const {
  std::vector<SequenceInfo> infos;
  const auto add = [&](const Choice& choice) {
    infos.push_back({.request = choice.request,
                     .choice = choice.index,
                     .state = choice.state,
                     .sequence = choice.sequence,
                     .prompt_tokens = choice.prompt_tokens,
                     .tokens = static_cast<std::uint32_t>(choice.tokens.size()),
                     .computed = choice.position,
                     .max_tokens = choice.max_tokens,
                     .waits_for_prefix = choice.leader != nullptr,
                     .hit = choice.hit,
                     .priority = choice.priority,
                     .suspensions = choice.suspensions});
  };
  for (const Choice* choice : scheduler_->running()) add(*choice);
  for (const Choice* choice : scheduler_->waiting()) add(*choice);
  return infos;
}

}  // namespace quire::engine

#include "quire/engine/engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/base/check.h"
#include "quire/base/numbers.h"
#include "quire/engine/choice.h"
#include "quire/engine/job.h"
#include "quire/engine/scheduler.h"

namespace quire::engine {
namespace {

using State = Choice::State;

// The most that one level of priority is worth. Its product with kMostPriority must not overflow a time.
constexpr std::chrono::hours kMostPriorityWorth{1};

}  // namespace

const char* name(SequenceInfo::State state) {
  switch (state) {
    case State::Waiting: return "waiting";
    case State::Prefill: return "prefill";
    case State::Decode: return "decode";
    case State::Suspended: return "suspended";
  }
  return "?";
}

Result<std::unique_ptr<Engine>> Engine::create(Executor& executor, SequencePool& pool, const EngineOptions& options) {
  if (executor.max_rows() == 0 || executor.max_logits() == 0) return fail("the executor takes no tokens");
  if (options.priority_worth.count() < 0 || options.priority_worth > kMostPriorityWorth) {
    return fail(fmt::format("a level of priority is worth {} ms of waiting, which is not between 0 and an hour",
                            options.priority_worth.count()));
  }
  if (options.tiers != nullptr && pool.config().max_sequences <= kTierSequences) {
    return fail("with tiers the pool needs a sequence more than are to run");
  }
  const std::uint64_t host_bytes = options.host_bytes + options.host_cache_bytes;
  auto host_arena = pool.create_host_arena(host_bytes);
  if (!host_arena) {
    return fail(fmt::format("{} bytes of host memory for what leaves the device: {}", host_bytes,
                            host_arena.error().message()));
  }
  if (options.host_cache_bytes > 0) {
    if (options.tiers == nullptr) return fail("a host cache needs the tiers that look after it");
    (*host_arena)->prepare();  // it is going to be used, and not in the middle of a step
    options.tiers->use_host(**host_arena, options.host_cache_bytes);
  }
  return std::unique_ptr<Engine>(new Engine(executor, pool, std::move(*host_arena), options));
}

Engine::Engine(Executor& executor, SequencePool& pool, std::unique_ptr<HostArena> host_arena,
               const EngineOptions& options)
    : executor_(&executor),
      pool_(&pool),
      options_(options),
      budget_(executor.sampling_limits()),
      scratch_(executor.vocabulary()) {
  wanted_jobs_.reserve(executor.sampling_limits().jobs);
  wanted_logits_.reserve(executor.max_logits());
  wanted_hidden_.reserve(executor.max_logits());
  pooled_.resize(executor.hidden_width());
  const std::uint32_t rows = executor.max_rows();
  const std::uint32_t budget = options.step_tokens == 0 ? rows : std::min(rows, options.step_tokens);
  const std::uint32_t places = pool.config().max_sequences - (options.tiers != nullptr ? kTierSequences : 0);
  // A decoding sequence takes one token of every step, so the budget limits how many can run.
  const std::uint32_t running = std::min({places, executor.max_logits(), budget});
  scheduler_ =
      std::make_unique<Scheduler>(pool, std::move(host_arena), options_, budget, running, executor.max_logits());
}

Engine::~Engine() {
  for (auto& [id, job] : jobs_) {
    for (auto& choice : job->choices) {
      if (!choice->done) scheduler_->remove(*choice);
    }
  }
  if (options_.host_cache_bytes > 0) options_.tiers->leave_host();  // its arena goes with the scheduler
}

// --- requests

std::optional<Refusal> Engine::refusal(const Request& request) {
  const auto no = [](Refusal::Why why, std::string message) { return Refusal{why, std::move(message)}; };
  using Why = Refusal::Why;
  if (!device_lost_.empty()) return no(Why::DeviceLost, device_lost_);
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
    return no(Why::Invalid, fmt::format("at most {} log-probabilities can be reported for a token", kMostLogprobs));
  }
  if (request.prompt_logprobs > kMostLogprobs) {
    return no(Why::Invalid,
              fmt::format("at most {} log-probabilities can be reported for a token of a prompt", kMostLogprobs));
  }
  if (request.answered > 0 && (request.answered >= request.prompt.size() || request.n != 1 || request.best_of > 1)) {
    return no(Why::Invalid, "an answer that goes on needs a prompt before it, and can have no other choices");
  }
  if (request.min_tokens > std::uint64_t{request.max_tokens} + request.answered) {
    return no(Why::Invalid,
              fmt::format("min_tokens ({}) is more than max_tokens ({})", request.min_tokens, request.max_tokens));
  }
  if (request.embedding != Pooling::None && executor_->hidden_width() == 0) {
    return no(Why::Invalid, "there are no hidden states to make an embedding of");
  }
  if (request.embedding != Pooling::None && (request.max_tokens != 0 || request.n != 1)) {
    return no(Why::Invalid, "an embedding has no answer: max_tokens must be 0, and n 1");
  }
  if (request.adapter > executor_->adapters()) {
    return no(Why::Invalid,
              fmt::format("there is no adapter {}: the model has {} of them", request.adapter, executor_->adapters()));
  }
  if (adapter_of(request.name_space) != 0) {
    return no(Why::Invalid, "name_space has bits that are those of adapters");
  }
  if (request.priority < -kMostPriority || request.priority > kMostPriority) {
    return no(Why::Invalid, fmt::format("a priority of {} is not between {} and {}", request.priority, -kMostPriority,
                                        kMostPriority));
  }
  if (auto ok = check(request.sampling); !ok) return no(Why::Invalid, ok.error().message);
  if (!request.stop_strings.empty() && !request.text) {
    return no(Why::Invalid, "stop strings need 'text', which turns tokens into text");
  }
  if (request.stop_strings.size() > kMostStopStrings) {
    return no(Why::Invalid, fmt::format("more than {} stop strings", kMostStopStrings));
  }
  if (request.stop_tokens.size() > kMostStopTokens) {
    return no(Why::Invalid, fmt::format("more than {} stop tokens", kMostStopTokens));
  }
  for (const std::string& stop : request.stop_strings) {
    if (stop.empty()) return no(Why::Invalid, "a stop string is empty");
    if (stop.size() > kMostStopBytes) {
      return no(Why::Invalid, fmt::format("a stop string has {} bytes, more than {}", stop.size(), kMostStopBytes));
    }
  }
  const std::uint32_t context = pool_->config().max_tokens;
  const std::uint64_t needed = request.prompt.size() + (request.max_tokens > 0 ? 1 : 0);
  if (request.prompt.size() > context) {
    return no(Why::TooLong,
              fmt::format("the prompt has {} tokens, and the context only {}", request.prompt.size(), context));
  }
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
  Tenant& tenant = scheduler_->tenants().of(request.name_space);
  if (const auto wait = scheduler_->tenants().until_allowed(tenant, now()); wait.count() > 0) {
    Refusal late = no(Why::RateLimited, fmt::format("{} tokens a minute are allowed, and they are used up",
                                                    tenant.options.tokens_per_minute));
    late.retry_after = std::chrono::ceil<std::chrono::seconds>(wait);
    return late;
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
  // accept() searches them for every token.
  if (!std::ranges::is_sorted(job->request.stop_tokens)) {
    std::vector<Token> sorted(job->request.stop_tokens.begin(), job->request.stop_tokens.end());
    std::ranges::sort(sorted);
    job->request.stop_tokens = std::move(sorted);
  }
  if (job->request.constraint && !masks_) masks_ = std::make_unique<MaskWorker>(options_.mask_threads);
  job->listener = std::move(listener);
  job->submitted = now();
  const Request& asked = job->request;
  const std::uint32_t count = std::max(asked.n, asked.best_of);
  const bool every_row = asked.prompt_logits == Logits::All || asked.prompt_logprobs >= 0 ||
                         asked.embedding == Pooling::Mean || asked.embedding == Pooling::First;
  if (job->embeds()) job->pooled.assign(executor_->hidden_width(), 0);
  const auto prompt = static_cast<std::uint32_t>(asked.prompt.size());
  job->usage.prompt_tokens = prompt;
  job->open = count;
  const auto arrived = std::chrono::duration_cast<std::chrono::nanoseconds>(job->submitted.time_since_epoch());
  const std::int64_t worth = std::chrono::nanoseconds(options_.priority_worth).count();
  Tenant& tenant = scheduler_->tenants().of(asked.name_space);
  ++tenant.requests;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto choice = std::make_unique<Choice>();
    choice->request = job->id;
    choice->index = i;
    choice->rank = {arrived.count() - asked.priority * worth, stats_.submitted, i};
    choice->priority = asked.priority;
    choice->name_space = in_adapter(asked.name_space, asked.adapter);
    choice->tenant = &tenant;
    choice->reuse = asked.reuse && !every_row;
    choice->every_row = every_row && i == 0;
    choice->prompt_tokens = prompt;
    choice->max_tokens = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(pool_->config().max_tokens, std::uint64_t{prompt} + asked.max_tokens));
    job->choices.push_back(std::move(choice));
  }
  if (auto problem = equip(*job, *job->choices.front())) {
    ++stats_.refused;
    --tenant.requests;
    return std::unexpected(Refusal{Refusal::Why::Invalid, std::move(*problem)});
  }
  next_deadline_ = std::min(next_deadline_, asked.deadline);
  scheduler_->add(*job->choices.front());
  const RequestId given = job->id;
  jobs_.emplace(given, std::move(job));
  return given;
}

// Gives a choice its tokens, sampler, text stream and stop matcher. The first choice gets them when the request comes,
// the others when they begin. So a waiting request with many choices takes no more memory than one with a single
// choice. An answer that goes on may be refused: returns why.
std::optional<std::string> Engine::equip(const Job& job, Choice& choice) {
  const Request& asked = job.request;
  choice.tokens.reserve(choice.max_tokens + 1);
  choice.tokens.assign(asked.prompt.begin(), asked.prompt.end());
  SamplerOptions sampling = asked.sampling;
  sampling.seed += choice.index;
  const bool ranks = asked.best_of > asked.n;
  choice.sampler =
      Sampler(sampling, executor_->vocabulary(), std::max(asked.logprobs, ranks ? 0 : -1), choice.max_tokens);
  choice.answered = asked.answered;
  const std::uint32_t begin = choice.prompt_tokens - asked.answered;
  choice.sampler.see_prompt(std::span(asked.prompt).first(begin));
  if (asked.min_tokens > 0) choice.sampler.hold_back(asked.stop_tokens, std::uint64_t{begin} + asked.min_tokens);
  if (asked.text) choice.text = asked.text();
  choice.stop = StopMatcher(asked.stop_strings);
  if (asked.constraint) {
    choice.constraint = asked.constraint();
    choice.mask.assign(divide_up(executor_->vocabulary(), 32u), 0);
    choice.masked_at = 0;
    choice.forced.clear();
    choice.find_forced();
  }
  return asked.answered > 0 ? replay(asked, choice) : std::nullopt;
}

// Brings sampler, text, stop strings and constraint to where they stood after the tokens that the answer has already.
std::optional<std::string> Engine::replay(const Request& asked, Choice& choice) {
  std::string text;
  const auto tokens = std::span(asked.prompt).last(asked.answered);
  for (std::uint32_t i = 0; i < tokens.size(); ++i) {
    choice.sampler.see(tokens[i]);
    text.clear();
    if (choice.text) choice.text->push(tokens[i], text);
    if (i + 1 > asked.min_tokens || asked.min_tokens == 0) (void)choice.stop.push(text);
    if (!choice.constraint) continue;
    if (!choice.forced.empty()) choice.forced.pop_back();
    if (!choice.constraint->accept(tokens[i])) return "the answer so far does not follow its constraint";
    if (choice.forced.empty()) choice.find_forced();
  }
  if (choice.stop.matched()) return "the answer has ended with a stop string";
  if (choice.constraint && choice.constraint->complete()) return "the answer is complete: nothing can follow it";
  choice.told_before = choice.stop.held();
  return std::nullopt;
}

bool Engine::cancel(RequestId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second->ended) return false;
  end_job(*found->second, {.why = Finish::Cancelled});
  forget_ended();
  return true;
}

void Engine::cancel_all(Finish why) {
  for (auto& [id, job] : jobs_) {
    if (!job->ended) end_job(*job, {.why = why});
  }
  forget_ended();
}

void Engine::end_job(Job& job, const Ending& ending) {
  // Choices that have not begun are not in the scheduler. The listener hears of no more choices than it asked for.
  for (auto& choice : job.choices) {
    if (!choice->done) finish(*choice, ending);
  }
}

void Engine::expire(Clock::time_point time) {
  if (time < next_deadline_) return;
  next_deadline_ = Clock::time_point::max();
  for (auto& [id, job] : jobs_) {
    if (job->ended) continue;
    if (job->request.deadline <= time) {
      end_job(*job, {.why = Finish::Deadline});
    } else {
      next_deadline_ = std::min(next_deadline_, job->request.deadline);
    }
  }
}

bool Engine::idle() const { return jobs_.empty(); }

// --- the step

bool Engine::step() {
  const Clock::time_point start = now();
  expire(start);
  if (options_.tiers != nullptr) advance_tiers();
  Step& step = scheduler_->schedule();
  const bool failed = !scheduler_->failures().empty();
  const bool worked = failed || !step.batch.empty();
  if (failed) {
    end_failed();  // this may end choices of the planned step, so the next call schedules again
  } else if (!step.batch.empty()) {
    note_admissions(step);
    const model::StepWants wants = ask(step);
    const Clock::time_point computing = now();
    const auto output = executor_->forward(step.batch, wants);
    if (masks_) masks_->wait();  // also after an error: the choices may go
    const double model_seconds = seconds(now() - computing);
    if (output) {
      scheduler_->measure(model_seconds);
      take(step, *output);
      commit(step, *output);
      if (output->every_hidden.data != nullptr) show_drafter(step, output->every_hidden);
    } else {
      lose_step(step, output.error());
    }
    ++stats_.steps;
    const double total_seconds = seconds(now() - start);
    stats_.model_seconds += model_seconds;
    stats_.total_seconds += total_seconds;
    if (output) scheduler_->measure_outside(total_seconds - model_seconds);
  }
  forget_ended();
  const bool moved = options_.tiers != nullptr && options_.tiers->moved_bytes() > 0;
  if (options_.check_integrity) {
    const auto sound = pool_->check_integrity();
    QUIRE_CHECK(sound.has_value(), "the pool is sound after a step");
  }
  return worked || moved;
}

// A choice that is in its first step stops waiting here.
void Engine::note_admissions(const Step& step) {
  for (const Choice* choice : step.choices) {
    if (choice->decodes()) continue;
    Job& job = *jobs_.at(choice->request);
    job.usage.hit = choice->hit;  // it grows if the rest of a prefix arrives from a tier
    job.usage.from = choice->from;
    if (job.admitted) continue;
    job.admitted = true;
    job.usage.queued_seconds = seconds(now() - job.submitted);
  }
}

// Commits one choice after the other. An answer that ends here frees memory, and the checkpoint of the next choice may
// use it.
void Engine::commit(const Step& step, const model::StepOutput& output) {
  std::uint32_t row = 0;  // of the output
  for (std::size_t i = 0; i < step.choices.size(); ++i) {
    const BatchEntry& entry = step.batch.entries()[i];
    Choice& choice = *step.choices[i];
    const std::uint32_t first = std::exchange(row, row + entry.wanted_rows());
    const auto tokens = step.batch.tokens(entry).first(entry.certain_rows());
    const auto ok = pool_->commit(entry.sequence, tokens, entry.checkpoint);
    QUIRE_CHECK(ok.has_value(), "schedule() has reserved what is committed");
    choice.position += entry.certain_rows();
    if (!choice.decodes()) {
      stats_.computed_tokens += entry.rows;
    } else if (choice.pending() == 0) {
      ++stats_.generated_tokens;
    }
    if (choice.pending() > 0) continue;  // the prompt goes on, or what has to be redone
    Job& job = *jobs_.at(choice.request);
    choice.state = State::Decode;
    choice.just_resumed = false;
    if (entry.drafts > 0) {
      accept_drafts(choice, step, entry, first, output);
      continue;
    }
    if (job.siblings_started) {
      accept(choice);
      continue;
    }
    job.siblings_started = true;
    choice.every_row = false;
    job.usage.first_token_seconds = seconds(now() - job.submitted);
    start_siblings(choice);
    for (auto& each : job.choices) accept(*each);
  }
}

// The other choices of a request fork the sequence of the first one, whose prompt has just been computed. If there is
// no room for a fork now, the choice is admitted later, like a suspended one.
void Engine::start_siblings(Choice& first) {
  Job& job = *jobs_.at(first.request);
  for (std::size_t i = 1; i < job.choices.size(); ++i) {
    Choice& choice = *job.choices[i];
    choice.hit = first.hit;
    choice.charged = first.position;
    choice.admitted_before = true;
    if (scheduler_->has_place(*choice.tenant)) {
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

// --- inspection

std::expected<void, std::string> Engine::set_tenants(std::span<const TenantOptions> tenants) {
  for (const TenantOptions& tenant : tenants) {
    if (!(tenant.weight > 0 && tenant.weight <= kMostWeight)) {
      return std::unexpected(
          fmt::format("a weight of {} is not more than 0 and at most {}", tenant.weight, kMostWeight));
    }
  }
  scheduler_->tenants().configure(tenants);
  return {};
}

std::vector<TenantUsage> Engine::tenants() const { return scheduler_->tenants().usage(); }

const CostModel& Engine::cost_model() const { return scheduler_->cost_model(); }

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  const Scheduler::Counters& counters = scheduler_->counters();
  stats.prompt_tokens = counters.prompt_tokens;
  stats.cached_tokens = counters.cached_tokens;
  stats.suspensions_by_copy = counters.suspensions_by_copy;
  stats.suspensions_by_recompute = counters.suspensions_by_recompute;
  stats.resumed = counters.resumed;
  stats.bytes_saved = counters.bytes_saved;
  stats.prefix_waits = counters.prefix_waits;
  stats.tier_waits = counters.tier_waits;
  stats.tier_splits = counters.tier_splits;
  stats.running = static_cast<std::uint32_t>(scheduler_->running().size());
  stats.waiting = scheduler_->queued();
  stats.suspended = scheduler_->waiting() - stats.waiting;
  stats.copies_lost = counters.copies_lost;
  stats.host_bytes = scheduler_->host_arena().used_bytes();
  stats.host_capacity_bytes = scheduler_->host_arena().total_bytes();
  if (masks_) {
    const MaskWorker::Times times = masks_->times();
    stats.mask_seconds = times.computing;
    stats.mask_wait_seconds = times.waiting;
  }
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
                     .waits_for_tier = choice.fetch != 0,
                     .hit = choice.hit,
                     .from = choice.from,
                     .priority = choice.priority,
                     .suspensions = choice.suspensions,
                     .name_space = tenant_of(choice.name_space),
                     .adapter = adapter_of(choice.name_space)});
  };
  for (const Choice* choice : scheduler_->running()) add(*choice);
  for (const Tenant* tenant : scheduler_->tenants().all()) {
    for (const Choice* choice : tenant->waiting) add(*choice);
  }
  return infos;
}

}  // namespace quire::engine

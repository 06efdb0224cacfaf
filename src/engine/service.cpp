#include "quire/engine/service.h"

#include <algorithm>
#include <utility>

namespace quire::engine {
namespace {

// How long the thread sleeps while requests wait for a tier, or while content is still to be written to one. A tier
// wakes it earlier.
constexpr std::chrono::milliseconds kTierPause{1};
// How long the end of the service may be delayed by content that is still to be written.
constexpr std::chrono::seconds kFlush{5};
// The pool is checked once after it has been idle for this long.
constexpr std::chrono::milliseconds kQuiet{250};

}  // namespace

Service::Service(std::unique_ptr<Engine> engine, OnDeviceLost on_device_lost)
    : engine_(std::move(engine)), on_device_lost_(std::move(on_device_lost)) {}

std::unique_ptr<Service> Service::start(std::unique_ptr<Engine> engine, OnDeviceLost on_device_lost) {
  std::unique_ptr<Service> service(new Service(std::move(engine), std::move(on_device_lost)));
  if (tiers::Tiers* tiers = service->engine_->options().tiers; tiers != nullptr) {
    tiers->on_arrival([raw = service.get()] { raw->wake(); });
  }
  service->thread_ = std::thread([raw = service.get()] { raw->run(); });
  return service;
}

Service::~Service() {
  stop(Clock::now());
  if (tiers::Tiers* tiers = engine_->options().tiers; tiers != nullptr) tiers->on_arrival({});
}

void Service::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  arrived_.notify_one();
}

bool Service::post(std::function<void()> command) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    commands_.push_back(std::move(command));
  }
  arrived_.notify_one();
  return true;
}

RequestId Service::submit(Request request, const std::shared_ptr<Listener>& listener) {
  const RequestId id = ++last_id_;
  const auto refuse = [id](Listener& to, const Refusal& why) {
    to.on_event({.kind = Event::Kind::Refused, .request = id, .last = true, .refusal = &why});
  };
  // std::function must be copyable and a Request is large, so the request is held by a pointer.
  const bool posted = post([this, id, refuse, listener, held = std::make_shared<Request>(std::move(request))] {
    if (auto taken = engine_->submit(std::move(*held), listener, id); !taken) {
      refuse(*listener, taken.error());
    } else {
      listener->on_event({.kind = Event::Kind::Accepted, .request = id});
    }
  });
  if (!posted) {  // the engine's thread has ended, and the engine does not change any more
    const std::string& lost = engine_->device_lost();
    refuse(*listener, lost.empty() ? Refusal{Refusal::Why::Stopping, "the engine has shut down"}
                                   : Refusal{Refusal::Why::DeviceLost, lost});
  }
  return id;
}

void Service::cancel(RequestId id) {
  post([this, id] { engine_->cancel(id); });
}

bool Service::inspect(std::function<void(Engine&)> look) {
  return post([this, look = std::move(look)] { look(*engine_); });
}

bool Service::stop(Clock::time_point deadline) {
  {
    std::unique_lock lock(mutex_);
    ending_ = true;
    deadline_ = std::min(deadline_, deadline);
    // Requests may take all the time that they have, and there is still some for writing.
    const bool waits = deadline > Clock::now() && deadline != Clock::time_point::max();
    write_until_ = std::min(write_until_, waits ? deadline + kFlush : deadline);
  }
  arrived_.notify_one();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  return finished_all_;
}

void Service::hurry(Clock::time_point deadline) {
  {
    const std::lock_guard lock(mutex_);
    deadline_ = std::min(deadline_, deadline);
    write_until_ = std::min(write_until_, deadline);
  }
  arrived_.notify_one();
}

Service::Integrity Service::integrity() const {
  const std::lock_guard lock(mutex_);
  return integrity_;
}

void Service::check_pool() {
  const auto sound = engine_->pool().check_integrity();
  const std::lock_guard lock(mutex_);
  integrity_ = {.checked = true, .sound = sound.has_value(), .problem = sound ? std::string() : sound.error()};
}

void Service::run() {
  std::vector<std::function<void()>> commands;
  tiers::Tiers* const tiers = engine_->options().tiers;
  bool busy = false;   // there may be something to compute
  bool waits = false;  // for a tier
  bool checked = false;
  Clock::time_point quiet_since = Clock::now();  // time of the last step; inspecting the pool does not count
  for (;;) {
    bool ending = false;
    Clock::time_point deadline, write_until;
    {
      std::unique_lock lock(mutex_);
      const auto woken = [&] { return !commands_.empty() || ending_; };
      if (waits && !woken()) {
        arrived_.wait_for(lock, kTierPause, [&] { return woken() || woken_; });
      } else if (!busy && !woken()) {
        if (!checked && !arrived_.wait_until(lock, quiet_since + kQuiet, woken)) {
          lock.unlock();
          check_pool();
          checked = true;
          continue;
        }
        arrived_.wait(lock, woken);
      }
      woken_ = false;
      commands.swap(commands_);
      ending = ending_;
      deadline = deadline_;
      write_until = write_until_;
    }
    for (auto& command : commands) command();
    commands.clear();
    if (ending) {
      engine_->stop_accepting();
      if (!engine_->idle() && Clock::now() >= deadline) {
        {
          const std::lock_guard lock(mutex_);
          finished_all_ = false;
        }
        engine_->cancel_all();
      }
      if (engine_->idle()) {
        check_pool();
        if (tiers != nullptr) (void)tiers->flush(std::min(write_until, Clock::now() + kFlush));
        // Late commands still run: their listeners wait for an event.
        const std::lock_guard lock(mutex_);
        ended_ = commands_.empty();
        if (ended_) return;
        continue;
      }
    }
    const bool worked = engine_->step();
    if (worked) {
      checked = false;
      quiet_since = Clock::now();
    }
    if (const std::string& lost = engine_->device_lost(); !lost.empty() && on_device_lost_) {
      std::exchange(on_device_lost_, {})(lost);
    }
    busy = !engine_->idle();
    // Content of the last step is on its way to the tiers when there is nothing left to compute.
    waits = (!worked || !busy) && tiers != nullptr && tiers->busy();
  }
}

}  // namespace quire::engine

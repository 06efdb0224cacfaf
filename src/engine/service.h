// Runs an engine on a thread of its own. Any thread may use it.
//
//   auto service = Service::start(std::move(engine));
//   RequestId id = service->submit(request, listener);   // returns at once; the first event is Accepted or Refused
//   service->cancel(id);
//
// Who may call: any thread; start() and stop() one thread only. Listeners are called on the engine's thread and must
//   not block it. The service drops a listener after its last event. Once the engine's thread has ended, submit()
//   itself tells the listener that the request is refused.
// What holds: commands take effect between two steps, in the order they came. The thread sleeps while there is nothing
//   to do; with tiers only after everything was written to them. When it has been idle for a while, it checks the pool
//   once.
// How it fails: if the device is lost (engine.h), every request ends and new ones are refused. The owner is told once,
//   and should stop the service.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "quire/engine/engine.h"

namespace quire::engine {

class Service {
 public:
  // `on_device_lost` is called once if the device is lost, on the engine's thread, after all requests have ended. It
  // gets Engine::device_lost(). It must not call stop(), which waits for that thread.
  using OnDeviceLost = std::function<void(const std::string& why)>;
  static std::unique_ptr<Service> start(std::unique_ptr<Engine> engine, OnDeviceLost on_device_lost = {});
  // Cancels all requests that are left.
  ~Service();

  RequestId submit(Request request, const std::shared_ptr<Listener>& listener);
  void cancel(RequestId id);
  // Runs a function on the engine's thread between two steps, for example to inspect the pool. False: the service has
  // stopped, and the function will not run.
  bool inspect(std::function<void(Engine&)> look);
  // Refuses new requests, lets the others run until the deadline, cancels the rest and ends the thread. Returns whether
  // every request could finish.
  bool stop(Clock::time_point deadline);
  // Sets an earlier deadline for a stop() in which another thread is waiting.
  void hurry(Clock::time_point deadline);

  struct Integrity {
    bool checked = false;  // at least once
    bool sound = true;
    std::string problem;
  };
  Integrity integrity() const;

 private:
  Service(std::unique_ptr<Engine> engine, OnDeviceLost on_device_lost);
  void run();
  bool post(std::function<void()> command);
  void check_pool();
  void wake();

  std::unique_ptr<Engine> engine_;
  OnDeviceLost on_device_lost_;  // empty once it was called
  std::atomic<RequestId> last_id_{0};

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::function<void()>> commands_;
  bool woken_ = false;  // something has arrived from a tier
  bool ending_ = false;
  bool ended_ = false;  // the thread takes no more commands
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point write_until_ = Clock::time_point::max();  // what the pool has, at the end
  bool finished_all_ = true;
  Integrity integrity_;
  std::thread thread_;
};

}  // namespace quire::engine

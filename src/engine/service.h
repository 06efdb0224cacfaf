// An engine on a thread of its own, which any thread may talk to.
//
//   auto service = Service::start(std::move(engine));
//   RequestId id = service->submit(request, listener);   // returns at once; the first event is Accepted or Refused
//   service->cancel(id);
//
// Who may call: any thread, all but the constructor and stop(). Listeners are called on the engine's thread, and must
//   not wait there; a listener is let go of after its last event. Once that thread has ended, submit() itself tells the
//   listener that the request is refused.
// What holds: commands take effect in the order they came, between two steps. While there is nothing to do the thread
//   sleeps, and some time after it has fallen asleep it checks the pool.
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
  static std::unique_ptr<Service> start(std::unique_ptr<Engine> engine);
  // Cancels what is left.
  ~Service();

  RequestId submit(Request request, std::shared_ptr<Listener> listener);
  void cancel(RequestId id);
  // Runs a function on the engine's thread between two steps: for those who look at the pool. False: the service has
  // stopped, and nobody will look.
  bool inspect(std::function<void(Engine&)> look);
  // Takes nothing more, gives what is running until the deadline to finish, cancels the rest, ends the thread. Says
  // whether everything could finish.
  bool stop(Clock::time_point deadline);
  // An earlier deadline for a stop() that another thread is waiting in.
  void hurry(Clock::time_point deadline);

  struct Integrity {
    bool checked = false;  // at least once
    bool sound = true;
    std::string problem;
  };
  Integrity integrity() const;

 private:
  explicit Service(std::unique_ptr<Engine> engine);
  void run();
  bool post(std::function<void()> command);
  void check_pool();

  std::unique_ptr<Engine> engine_;
  std::atomic<RequestId> last_id_{0};

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::function<void()>> commands_;
  bool ending_ = false;
  bool ended_ = false;  // the thread takes no more commands
  Clock::time_point deadline_ = Clock::time_point::max();
  bool finished_all_ = true;
  Integrity integrity_;
  std::thread thread_;
};

}  // namespace quire::engine

// HTTP as the rest of the server sees it: a complete request, and a responder for its answer. No sockets.
//
// Who may call: everything here is used on the loop's thread, except Loop::post(), which any thread may call.
// What holds: a handler answers every request once: with send(), or with begin(), any number of write()s and end(). It
//   may answer later. When the client goes away, `on_gone` is called once, and later answers are discarded.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::server {

struct HttpRequest {
  std::string method;  // as sent, but HEAD arrives as GET: the connection leaves out the body
  std::string path;    // without the query
  std::string query;   // what follows the question mark, as sent
  std::string body;
  std::string authorization;
  std::string host;
  std::string origin;
  std::string if_none_match;
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json";  // empty: there is no body
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

// What a handler knows about its request, for the access log.
struct RequestNotes {
  std::uint64_t request = 0;  // its number in the engine; 0: it did not get that far
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
  std::string finish;  // why the answer ended
  std::string tenant;  // whose key it was; empty: the server has no keys
};

class Responder {
 public:
  virtual ~Responder() = default;
  virtual void send(HttpResponse response) = 0;
  // Begins a body that is sent in pieces. The body in `head` is the first piece.
  virtual void begin(HttpResponse head) = 0;
  virtual void write(std::string_view piece) = 0;
  virtual void end() = 0;
  // Bytes that the client has not received yet.
  virtual std::size_t pending() const = 0;

  std::function<void()> on_gone;
  std::vector<std::pair<std::string, std::string>> headers;  // added to the answer, whatever it is
  RequestNotes notes;                                        // read when the answer ends, or after `on_gone` was called
};

using Handler = std::function<void(HttpRequest, std::shared_ptr<Responder>)>;
// Looks at the header of a request that has a body, before the body is read. An answer refuses the request.
using HeadCheck = std::function<std::optional<HttpResponse>(const HttpRequest&)>;

// The thread on which connections live.
class Loop {
 public:
  virtual ~Loop() = default;
  virtual void post(std::function<void()> task) = 0;  // from any thread
  virtual void after(std::chrono::milliseconds delay, std::function<void()> task) = 0;
  // Runs the task on a worker thread. For work that would block the loop.
  virtual void work(std::function<void()> task) = 0;
};

}  // namespace quire::server

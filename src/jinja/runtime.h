// The state of one rendering: its meter, its clock, its current line.
//
// Who may call: one thread; there is one Runtime per rendering.
// What holds: namespaces are the only objects that may refer to themselves. They live until the rendering ends and are
//   emptied then. So nothing leaks, and no destructor recurses deeply.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "quire/jinja/meter.h"
#include "quire/jinja/value.h"

namespace quire::jinja {

// Each level takes a few stack frames of the interpreter. In Jinja2, recursive macros end at Python's recursion limit,
// after about as many levels.
inline constexpr int kMaxEvaluationDepth = 800;

class Runtime {
 public:
  explicit Runtime(const RenderOptions& options) : meter(options), now(options.now) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() {
    for (const Ref<Namespace>& kept : namespaces_) kept->attributes = Dict();
  }

  Value make_namespace(Dict attributes) {
    namespaces_.push_back(std::make_shared<Namespace>(Namespace{std::move(attributes)}));
    return namespaces_.back();
  }

  Value text(std::string bytes, Source source) { return make_text(meter, std::move(bytes), source); }
  Value undefined(std::string message) { return make_undefined(meter, std::move(message)); }

  Meter meter;  // first, so that it outlives every value
  const std::chrono::local_seconds now;
  int line = 1;   // of the current operation, for errors
  int depth = 0;  // of evaluation; see Deeper

 private:
  std::vector<Ref<Namespace>> namespaces_;
};

// Counts one level of evaluation, so that the stack cannot overflow.
class Deeper {
 public:
  explicit Deeper(Runtime& runtime) : depth_(runtime.depth) {
    if (depth_ >= kMaxEvaluationDepth) fail_limit("the template recurses too deeply");
    ++depth_;
  }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  ~Deeper() { --depth_; }

 private:
  int& depth_;
};

}  // namespace quire::jinja

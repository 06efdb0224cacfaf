// A temporary model file with random weights (quire/bench/synth), for a measurement.
//
//   auto model = SyntheticModel::create(*synth::find_shape("llama-1.1b"), "Q8_0", show_progress);
//   Model::load(model->path());      // may be repeated
//
// Who may call: one thread at a time calls create().
// What holds: the file has a name in $TMPDIR or /tmp only while it is written. Afterwards only a descriptor refers to
//   it, so the system frees its space when the object is destroyed or the program ends, however it ends. If a signal
//   ends the program (Ctrl-C) while the file is written, the partial file is removed first.
// How it fails: create() returns one line: the shape cannot have this type, or the disk is full.
#pragma once

#include <string>
#include <utility>

#include "quire/base/error.h"
#include "quire/bench/synth/synth.h"

namespace quire::bench {

class SyntheticModel {
 public:
  static Result<SyntheticModel> create(const synth::Shape& shape, const std::string& type,
                                       const synth::Progress& progress = {});
  SyntheticModel(SyntheticModel&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}
  SyntheticModel& operator=(SyntheticModel&&) = delete;
  ~SyntheticModel();

  const std::string& path() const { return path_; }

 private:
  explicit SyntheticModel(int descriptor);

  int descriptor_ = -1;
  std::string path_;  // below /proc/self; valid while this object lives
};

}  // namespace quire::bench

// A model with random weights (quire/bench/synth) that is there for a measurement and then gone.
//
//   auto model = SyntheticModel::create(*synth::find_shape("llama-1.1b"), "Q8_0", show_progress);
//   Model::load(model->path());      // as often as one likes
//
// What holds: the file has a name, in $TMPDIR or /tmp, only while it is written; from then on it is known by a
// descriptor
//   alone, and the system takes the room back when this goes, however the program ends. If a signal that ends the
//   program (Ctrl-C) comes while it is written, what there is of it is removed first. One is made at a time, by one
//   thread.
// How it fails: create() with one line: no such shape in this type, no room on the disk.
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
  std::string path_;  // of this process, valid as long as this is
};

}  // namespace quire::bench

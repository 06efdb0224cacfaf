#include "quire/bench/synth/shape_layout.h"

#include "quire/bench/synth/metadata.h"
#include "quire/gguf/gguf.h"
#include "quire/gguf/writer.h"
#include "quire/model/hyperparameters.h"
#include "quire/model/state_layout.h"

namespace quire::synth {

// The model loader reads the metadata of a file without tensors, so that this file knows no architecture.
Result<StateLayout> layout_of(const Shape& shape, ElementType kv_type) {
  if (auto ok = check_shape(shape); !ok) return std::unexpected(ok.error());
  gguf::Writer writer;
  add_hyperparameters(writer, shape);
  const auto image = writer.to_memory();
  if (!image) return std::unexpected(image.error());
  const auto file = gguf::File::from_memory(*image, shape.name);
  if (!file) return std::unexpected(file.error());
  const auto model = model::read_hyperparameters(*file);
  if (!model) return std::unexpected(model.error());
  return model::state_layout(*model, kDefaultBlockSize, kv_type);
}

}  // namespace quire::synth

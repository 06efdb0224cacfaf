#include "quire/model/loader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire::model {
namespace {

constexpr std::uint64_t kAlignment = 64;

// A vector of the file as f32.
Result<void> read_vector(const gguf::File& file, const Binding& binding, std::span<float> to) {
  std::vector<float> all(binding.source.elements());
  if (const auto ok = gguf::dequantize(binding.source.type, binding.source.data, all); !ok) {
    return fail(fmt::format("{}: tensor '{}': {}", file.path(), binding.source.name, ok.error().message));
  }
  if (binding.transposed_cols == 0) {
    std::ranges::copy_n(all.begin() + static_cast<std::ptrdiff_t>(binding.first),
                        static_cast<std::ptrdiff_t>(binding.count), to.begin());
    return {};
  }
  const std::uint64_t cols = binding.transposed_cols, rows = all.size() / cols;
  for (std::uint64_t i = 0; i < all.size(); ++i) to[i % cols * rows + i / cols] = all[i];
  return {};
}

// A matrix as a backend gets it. Blocks of quantised types run along rows, so a matrix of such a type is dequantised
// when it is transposed.
FileMatrix description_of(const Binding& binding) {
  if (!binding.transposed) return binding.matrix;
  const gguf::TypeInfo& info = gguf::type_info(binding.matrix.type);
  const bool plain = info.block_size == 1;
  return {.type = plain ? info.type : gguf::Type::F32,
          .rows = binding.matrix.cols,
          .cols = binding.matrix.rows,
          .row_bytes = std::uint64_t{binding.matrix.rows} * (plain ? info.block_bytes : sizeof(float))};
}

Result<std::vector<std::byte>> transposed(const FileMatrix& from, const FileMatrix& to) {
  const std::uint64_t bytes = to.row_bytes / to.cols;  // of an element
  std::vector<std::byte> memory(to.bytes());
  std::vector<float> row(from.type == to.type ? 0 : from.cols);
  for (std::uint32_t r = 0; r < from.rows; ++r) {
    const std::byte* source = from.data + r * from.row_bytes;
    if (from.type != to.type) {
      if (auto ok = gguf::dequantize(from.type, {source, from.row_bytes}, row); !ok) return std::unexpected(ok.error());
      source = reinterpret_cast<const std::byte*>(row.data());
    }
    for (std::uint32_t c = 0; c < from.cols; ++c) {
      std::memcpy(memory.data() + c * to.row_bytes + r * bytes, source + c * bytes, bytes);
    }
  }
  return memory;
}

// Loads one matrix. A backend does not use a transposed one in place: it is not of a type that it would.
Result<Weight> load_matrix(Backend& backend, const Binding& binding, std::byte* to) {
  FileMatrix matrix = description_of(binding);
  std::vector<std::byte> memory;
  if (binding.transposed) {
    auto made = transposed(binding.matrix, matrix);
    if (!made) return std::unexpected(made.error());
    memory = std::move(*made);
    matrix.data = memory.data();
    QUIRE_CHECK(backend.weight_bytes(matrix, binding.use) > 0, "plain matrices are copied to the device");
  }
  auto loaded = backend.load(matrix, binding.use, to);
  if (!loaded) return fail(loaded.error().message());
  if (!memory.empty()) {
    // The device may still read it.
    if (auto ok = backend.device().fence(); !ok) return fail(ok.error().message());
  }
  return *loaded;
}

}  // namespace

const FileMatrix* FileSources::matrix(const Weight& to) const {
  const auto found = std::ranges::find(bindings_, &to, &Binding::weight);
  return found == bindings_.end() ? nullptr : &found->matrix;
}

Result<std::vector<float>> FileSources::vector(const Tensor& to) const {
  std::vector<float> values;
  const auto found = std::ranges::find(bindings_, &to, &Binding::vector);
  if (found == bindings_.end()) return values;
  values.resize(found->count);
  if (auto ok = read_vector(*file_, *found, values); !ok) return std::unexpected(ok.error());
  return values;
}

Result<DeviceBuffer> load_weights(Backend& backend, const gguf::File& file, std::span<const Binding> bindings,
                                  std::span<const HostVector> computed) {
  // Matrices come first, so that huge pages can hold them; vectors come after them.
  const auto matrix_room = [&](const Binding& b) {
    return b.weight == nullptr ? 0 : round_up(backend.weight_bytes(description_of(b), b.use), kAlignment);
  };
  const auto vector_room = [](std::uint64_t count) { return round_up(count * sizeof(float), kAlignment); };
  std::uint64_t matrix_bytes = 0, vector_bytes = 0;
  for (const Binding& binding : bindings) {
    matrix_bytes += matrix_room(binding);
    if (binding.vector != nullptr) vector_bytes += vector_room(binding.count);
  }
  for (const HostVector& vector : computed) vector_bytes += vector_room(vector.values.size());
  auto memory = DeviceBuffer::create(backend.device(), matrix_bytes + vector_bytes);
  if (!memory) return fail(fmt::format("{}: {}", file.path(), memory.error().message()));

  std::byte* to = memory->data();
  for (const Binding& binding : bindings) {
    if (binding.weight == nullptr) continue;
    const auto loaded = load_matrix(backend, binding, to);
    if (!loaded) {
      return fail(fmt::format("{}: tensor '{}': {}", file.path(), binding.source.name, loaded.error().message));
    }
    *binding.weight = *loaded;
    // Releases the file's pages at once, so that no matrix is in memory twice.
    const std::uint64_t taken = matrix_room(binding);
    if (taken > 0) file.forget({binding.matrix.data, binding.matrix.bytes()});
    to += taken;
  }

  // The device may read this until the fence below.
  std::vector<float> host(vector_bytes / sizeof(float));
  std::span<float> rest = host;
  const auto place = [&](Tensor& tensor, std::uint64_t count) -> Result<void> {
    tensor = {to, 1, static_cast<std::uint32_t>(count), count, ElementType::F32};
    if (count == 0) return {};
    if (auto ok = backend.device().upload(to, rest.data(), count * sizeof(float)); !ok) {
      return fail(fmt::format("{}: {}", file.path(), ok.error().message()));
    }
    to += vector_room(count);
    rest = rest.subspan(vector_room(count) / sizeof(float));
    return {};
  };
  const auto place_all = [&]() -> Result<void> {
    for (const Binding& binding : bindings) {
      if (binding.vector == nullptr) continue;
      if (auto ok = read_vector(file, binding, rest); !ok) return ok;
      if (auto ok = place(*binding.vector, binding.count); !ok) return ok;
    }
    for (const HostVector& vector : computed) {
      std::ranges::copy(vector.values, rest.begin());
      if (auto ok = place(*vector.to, vector.values.size()); !ok) return ok;
    }
    return {};
  };
  const auto placed = place_all();
  const auto fenced = backend.device().fence();  // also after a refusal: what was submitted still reads from the host
  if (!placed) return std::unexpected(placed.error());
  if (!fenced) return fail(fmt::format("{}: {}", file.path(), fenced.error().message()));
  return std::move(*memory);
}

}  // namespace quire::model

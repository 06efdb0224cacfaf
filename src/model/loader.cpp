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

// Matrix i of a stack as the backend is to load it. One that is converted or transposed is written to `memory` first;
// without `memory`, only its type and shape are right.
Result<FileMatrix> source_of(const gguf::File& file, const Binding& binding, std::uint32_t i,
                             std::vector<std::byte>* memory) {
  FileMatrix matrix = binding.matrix;
  matrix.data += i * binding.stride;
  const gguf::TypeInfo& info = gguf::type_info(matrix.type);
  // Blocks of quantised types run along rows, so such a matrix is dequantised when it is transposed.
  const bool in_f32 = matrix.type != gguf::Type::F32 && (binding.in_f32 || (binding.transposed && info.block_size > 1));
  if (!in_f32 && !binding.transposed) return matrix;
  FileMatrix made = matrix;
  const std::uint64_t bytes = in_f32 ? sizeof(float) : info.block_bytes;  // of an element
  if (in_f32) made.type = gguf::Type::F32;
  if (binding.transposed) std::swap(made.rows, made.cols);
  made.row_bytes = made.cols * bytes;
  if (memory == nullptr) return made;
  memory->resize(made.bytes());
  made.data = memory->data();
  const std::size_t elements = std::size_t{matrix.rows} * matrix.cols;
  std::vector<float> before(in_f32 && binding.transposed ? elements : 0);  // it was transposed
  const std::byte* from = matrix.data;
  if (in_f32) {
    const std::span<float> floats =
        binding.transposed ? std::span(before) : std::span(reinterpret_cast<float*>(memory->data()), elements);
    if (const auto ok = gguf::dequantize(matrix.type, {matrix.data, matrix.bytes()}, floats); !ok) {
      return fail(fmt::format("{}: tensor '{}': {}", file.path(), binding.source.name, ok.error().message));
    }
    from = reinterpret_cast<const std::byte*>(floats.data());
  }
  if (!binding.transposed) return made;
  for (std::uint32_t row = 0; row < matrix.rows; ++row) {
    for (std::uint32_t col = 0; col < matrix.cols; ++col, from += bytes) {
      std::memcpy(memory->data() + col * made.row_bytes + row * bytes, from, bytes);
    }
  }
  return made;
}

// Loads a matrix, or each matrix of a stack, to `to` and after it, `room` bytes each.
Result<void> load_matrix(Backend& backend, const gguf::File& file, const Binding& binding, std::byte* to,
                         std::uint64_t room) {
  std::vector<std::byte> memory;
  for (std::uint32_t i = 0; i < binding.stacked; ++i) {
    const auto source = source_of(file, binding, i, &memory);
    if (!source) return std::unexpected(source.error());
    QUIRE_CHECK(memory.empty() || room > 0, "a matrix that was made here is copied to the device");
    const auto loaded = backend.load(*source, binding.use, to + i * room);
    if (!loaded) {
      return fail(fmt::format("{}: tensor '{}': {}", file.path(), binding.source.name, loaded.error().message()));
    }
    if (i == 0) *binding.weight = *loaded;
    // Releases the file's pages at once, so that no matrix is in memory twice.
    if (room > 0) file.forget({binding.matrix.data + i * binding.stride, binding.matrix.bytes()});
  }
  if (binding.stacked > 1) {
    binding.weight->count = binding.stacked;
    binding.weight->stride = room > 0 ? room : binding.stride;
  }
  return {};
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
    return b.weight == nullptr ? 0 : round_up(backend.weight_bytes(*source_of(file, b, 0, nullptr), b.use), kAlignment);
  };
  const auto vector_room = [](std::uint64_t count) { return round_up(count * sizeof(float), kAlignment); };
  std::uint64_t matrix_bytes = 0, vector_bytes = 0;
  for (const Binding& binding : bindings) {
    matrix_bytes += binding.stacked * matrix_room(binding);
    if (binding.vector != nullptr) vector_bytes += vector_room(binding.count);
  }
  for (const HostVector& vector : computed) vector_bytes += vector_room(vector.values.size());
  auto memory = DeviceBuffer::create(backend.device(), matrix_bytes + vector_bytes);
  if (!memory) return fail(fmt::format("{}: {}", file.path(), memory.error().message()));

  std::byte* to = memory->data();
  for (const Binding& binding : bindings) {
    if (binding.weight == nullptr) continue;
    const std::uint64_t room = matrix_room(binding);
    if (auto ok = load_matrix(backend, file, binding, to, room); !ok) return std::unexpected(ok.error());
    to += binding.stacked * room;
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

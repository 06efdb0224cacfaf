#include "quire/model/tensor_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "quire/base/check.h"
#include "quire/gguf/message.h"

namespace quire::model {
namespace {

std::string name_in(std::uint32_t layer, std::string_view name) { return fmt::format("blk.{}.{}", layer, name); }

// "blk.N.rest". A name with leading zeros in N is not one of these.
struct LayerName {
  std::uint64_t layer = 0;
  std::string_view rest;
};
std::optional<LayerName> split(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  LayerName parts;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, parts.layer);
  if (error != std::errc() || rest == end || *rest != '.' || (*begin == '0' && rest - begin > 1)) return std::nullopt;
  parts.rest = name.substr(static_cast<std::size_t>(rest + 1 - name.data()));
  return parts;
}

}  // namespace

// --- declaring

void TensorTable::enter(std::uint32_t layer) {
  QUIRE_CHECK(layer_ == kModel || layer_ <= layer, "layers are declared in order");
  layer_ = layer;
}

bool TensorTable::file_has(std::string_view name) const {
  return file_->find_tensor(layer_ == kModel ? std::string(name) : name_in(layer_, name)).has_value();
}

TensorTable::Row& TensorTable::add(std::string_view name, Row::Shape shape, std::uint64_t rows, std::uint64_t cols,
                                   Presence presence) {
  Row& row = rows_.emplace_back();
  row.layer = layer_;
  row.name = name;
  row.shape = shape;
  row.presence = presence;
  row.rows = rows;
  row.cols = cols;
  row.first_part = static_cast<std::uint32_t>(parts_.size());
  return row;
}

void TensorTable::matrix(std::string_view name, std::uint64_t rows, std::uint64_t cols, Weight& to, Presence presence,
                         WeightUse use) {
  Row& row = add(name, Row::Shape::Matrix, rows, cols, presence);
  row.use = use;
  row.parts = 1;
  parts_.push_back({.weight = &to, .length = rows});
}

void TensorTable::vector(std::string_view name, std::uint64_t length, Tensor& to, Presence presence) {
  add(name, Row::Shape::Vector, 1, length, presence).parts = 1;
  parts_.push_back({.vector = &to, .length = length});
}

void TensorTable::fused_matrix(std::string_view name, std::uint64_t cols, std::initializer_list<MatrixPart> parts) {
  Row& row = add(name, Row::Shape::Matrix, 0, cols, Presence::Required);
  row.parts = static_cast<std::uint32_t>(parts.size());
  for (const MatrixPart& part : parts) {
    row.rows += part.rows;
    parts_.push_back({.weight = part.to, .length = part.rows, .transposed = part.transposed});
  }
}

void TensorTable::f32_matrix(std::string_view name, std::uint64_t rows, std::uint64_t cols, Weight& to,
                             Presence presence) {
  matrix(name, rows, cols, to, presence);
  rows_.back().in_f32 = true;
}

void TensorTable::stack(std::string_view name, std::uint64_t count, std::uint64_t cols,
                        std::initializer_list<MatrixPart> parts, WeightUse use) {
  fused_matrix(name, cols, parts);
  rows_.back().count = count;
  rows_.back().use = use;
}

void TensorTable::fused_vector(std::string_view name, std::initializer_list<VectorPart> parts, Presence presence) {
  Row& row = add(name, Row::Shape::Vector, 1, 0, presence);
  row.parts = static_cast<std::uint32_t>(parts.size());
  for (const VectorPart& part : parts) {
    row.cols += part.length;
    parts_.push_back({.vector = part.to, .length = part.length});
  }
}

void TensorTable::transposed(std::string_view name, std::uint64_t rows, std::uint64_t cols, Tensor& to) {
  Row& row = add(name, Row::Shape::Matrix, rows, cols, Presence::Required);
  row.transposed_cols = cols;
  row.parts = 1;
  parts_.push_back({.vector = &to, .length = rows * cols});
}

void TensorTable::known(std::string_view name) { add(name, Row::Shape::Any, 0, 0, Presence::Optional); }

void TensorTable::known_prefix(std::string_view prefix) { add(prefix, Row::Shape::Prefix, 0, 0, Presence::Optional); }

// --- checking

std::string TensorTable::full_name(const Row& row) const {
  return row.layer == kModel ? std::string(row.name) : name_in(row.layer, row.name);
}

// Rows are sorted by layer, with those of the model first.
std::span<const TensorTable::Row> TensorTable::rows_of(std::uint32_t layer) const {
  const auto order = [](const Row& row) { return row.layer == kModel ? 0 : std::uint64_t{row.layer} + 1; };
  const auto [begin, end] =
      std::ranges::equal_range(rows_, layer == kModel ? 0 : std::uint64_t{layer} + 1, std::ranges::less{}, order);
  return {begin, end};
}

Result<void> TensorTable::check(std::uint32_t layers, std::string_view architecture, std::uint32_t extra) const {
  if (file_->tensor_count() == 0) return {};
  for (const Row& row : rows_) {
    if (auto ok = check_row(row); !ok) return ok;
  }
  if (auto ok = check_gaps(); !ok) return ok;
  return check_unknown(layers, architecture, extra);
}

Result<void> TensorTable::check_row(const Row& row) const {
  if (row.shape == Row::Shape::Any || row.shape == Row::Shape::Prefix) return {};
  const std::string name = full_name(row);
  const auto tensor = file_->tensor(name);
  if (!tensor) return row.presence == Presence::Optional ? Result<void>() : std::unexpected(tensor.error());
  if (row.shape == Row::Shape::Vector) {
    // Converters write some vectors as matrices with one row or one column.
    if (tensor->elements() == row.cols) return {};
    return fail(fmt::format("{}: tensor '{}' has {} elements, but the metadata require {}", file_->path(), name,
                            tensor->elements(), row.cols));
  }
  if (row.count > 1) {
    if (tensor->shape == std::array{row.cols, row.rows, row.count, std::uint64_t{1}}) return {};
    // Heads may follow each other in one matrix.
    const bool flat = tensor->shape[1] == row.rows * row.count && tensor->rows() == tensor->shape[1];
    if (row.use == WeightUse::Heads && tensor->shape[0] == row.cols && flat) return {};
    return fail(fmt::format(
        "{}: tensor '{}' has {} times {} rows of {}, but the metadata require {} times {} rows of {}", file_->path(),
        name, tensor->shape[2] * tensor->shape[3], tensor->shape[1], tensor->shape[0], row.count, row.rows, row.cols));
  }
  if (tensor->shape[0] == row.cols && tensor->rows() == row.rows) return {};
  return fail(fmt::format("{}: tensor '{}' has {} rows of {}, but the metadata require {} rows of {}", file_->path(),
                          name, tensor->rows(), tensor->shape[0], row.rows, row.cols));
}

Result<void> TensorTable::check_gaps() const {
  struct Seen {
    std::string_view name;
    bool found = false;
    const Row* missing = nullptr;
  };
  std::vector<Seen> seen;
  for (const Row& row : rows_) {
    if (row.presence != Presence::Optional || row.layer == kModel || row.shape == Row::Shape::Prefix) continue;
    auto at = std::ranges::find(seen, row.name, &Seen::name);
    if (at == seen.end()) at = seen.insert(seen.end(), Seen{row.name});
    if (has(row)) {
      at->found = true;
    } else if (at->missing == nullptr) {
      at->missing = &row;
    }
  }
  for (const Seen& each : seen) {
    if (!each.found || each.missing == nullptr) continue;
    return fail(
        fmt::format("{}: has no tensor '{}', but other layers have theirs", file_->path(), full_name(*each.missing)));
  }
  return {};
}

Result<void> TensorTable::check_unknown(std::uint32_t layers, std::string_view architecture,
                                        std::uint32_t extra) const {
  for (std::size_t i = 0; i < file_->tensor_count(); ++i) {
    const gguf::Tensor tensor = file_->tensor(i);
    const auto parts = split(tensor.name);
    if (parts && parts->layer >= std::uint64_t{layers} + extra) {
      return fail(fmt::format("{}: has a tensor of layer {}, but '{}.block_count' is {}", file_->path(), parts->layer,
                              architecture, layers + extra));
    }
    if (parts && parts->layer >= layers) continue;
    const std::string_view name = parts ? parts->rest : std::string_view(tensor.name);
    const bool known =
        std::ranges::any_of(rows_of(parts ? static_cast<std::uint32_t>(parts->layer) : kModel), [&](const Row& row) {
          return row.shape == Row::Shape::Prefix ? name.starts_with(row.name) : row.name == name;
        });
    if (known) continue;
    return fail(fmt::format("{}: tensor {} is not one that Quire uses in a model of architecture '{}'", file_->path(),
                            gguf::quoted(tensor.name), architecture));
  }
  return {};
}

// --- binding

Result<std::vector<Binding>> TensorTable::bind() const {
  std::vector<Binding> bindings;
  for (const Row& row : rows_) {
    if (row.parts == 0) continue;
    const std::string name = full_name(row);
    const auto tensor = file_->tensor(name);
    if (!tensor) {
      if (row.presence == Presence::Optional) continue;
      return std::unexpected(tensor.error());
    }
    const gguf::TypeInfo& type = gguf::type_info(tensor->type);
    if (!type.dequantizable) {
      return fail(fmt::format("{}: tensor '{}' is of type {}, which Quire cannot compute with", file_->path(), name,
                              gguf::type_name(tensor->type)));
    }
    QUIRE_CHECK(tensor->elements() == row.rows * row.cols * row.count, "check() lets only this shape pass");
    const FileMatrix all{tensor->type, static_cast<std::uint32_t>(row.rows), static_cast<std::uint32_t>(row.cols),
                         tensor->data.data(), row.shape == Row::Shape::Matrix ? tensor->row_bytes() : 0};
    std::uint64_t first = 0;
    for (const Part& part : std::span(parts_).subspan(row.first_part, row.parts)) {
      Binding& to = bindings.emplace_back();
      to.source = *tensor;
      to.use = row.use;
      to.weight = part.weight;
      to.vector = part.vector;
      to.first = first;
      to.count = part.length;
      to.transposed_cols = row.transposed_cols;
      to.transposed = part.transposed;
      to.stacked = static_cast<std::uint32_t>(row.count);
      to.stride = all.bytes();
      to.in_f32 = row.in_f32;
      if (part.weight != nullptr) {
        to.matrix = all.part(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(part.length));
      }
      first += part.length;
    }
  }
  return bindings;
}

}  // namespace quire::model

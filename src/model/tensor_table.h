// The tensors of a model, as its blocks declare them: name, shape, required or optional, and destination. One table
// both checks a file and binds it.
//
//   TensorTable table(file);
//   table.enter(3);                                           // names below get the prefix "blk.3."
//   table.matrix("attn_q.weight", query, width, q);           // shape in the file: `query` rows of `width`
//   table.vector("attn_q.bias", query, q_bias, Presence::Optional);
//   if (auto ok = table.check(layers, "llama"); !ok) ...      // the file has all required tensors, and no others
//   auto bindings = table.bind();                             // the input of load_weights() (loader.h)
//
// A tensor that no block uses would make every answer wrong, so such a file is refused and the tensor named. An
// optional tensor is in all layers that declare it, or in none: a file that has lost some of them is not the same
// model.
//
// Who may call: one thread. The table keeps pointers to the destinations; these must not move.
// How it fails: check() and bind() with one line that names the file, the tensor, and what was expected of it. A file
//   with no tensors at all (a vocabulary on its own) passes check() and is refused by bind().
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/backend/backend.h"
#include "quire/base/error.h"
#include "quire/gguf/gguf.h"

namespace quire::model {

enum class Presence : std::uint8_t { Required, Optional };

// A tensor of the file, or a part of one, and its destination. Either `weight` or `vector` is set.
struct Binding {
  gguf::Tensor source;
  FileMatrix matrix = {};  // for `weight`
  WeightUse use = WeightUse::Product;
  Weight* weight = nullptr;
  Tensor* vector = nullptr;  // converted to f32
  std::uint64_t first = 0;   // for `vector`: first element in the source
  std::uint64_t count = 0;
  std::uint64_t transposed_cols = 0;  // for `vector`: row length in the file, if it is to be transposed
  bool transposed = false;            // for `weight`: rows and columns are swapped
  // For `weight`: a stack of this many matrices; `matrix` is the first. In the file they are `stride` bytes apart.
  std::uint32_t stacked = 1;
  std::uint64_t stride = 0;
  bool in_f32 = false;  // for `weight`: converted to f32
};

class TensorTable {
 public:
  explicit TensorTable(const gguf::File& file) : file_(&file) {}

  void enter(std::uint32_t layer);
  bool file_has(std::string_view name) const;

  void matrix(std::string_view name, std::uint64_t rows, std::uint64_t cols, Weight& to,
              Presence presence = Presence::Required, WeightUse use = WeightUse::Product);
  void vector(std::string_view name, std::uint64_t length, Tensor& to, Presence presence = Presence::Required);
  // Several matrices in one tensor, one after the other.
  struct MatrixPart {
    Weight* to;
    std::uint64_t rows;
    bool transposed = false;  // [rows][cols] in the file, [cols][rows] on the device
  };
  void fused_matrix(std::string_view name, std::uint64_t cols, std::initializer_list<MatrixPart> parts);
  // A matrix that becomes f32, whatever its type in the file.
  void f32_matrix(std::string_view name, std::uint64_t rows, std::uint64_t cols, Weight& to,
                  Presence presence = Presence::Required);
  // The matrices of all experts, or of all heads, in one tensor. Several parts: each expert has one after the other.
  void stack(std::string_view name, std::uint64_t count, std::uint64_t cols, std::initializer_list<MatrixPart> parts,
             WeightUse use = WeightUse::Product);
  struct VectorPart {
    Tensor* to;
    std::uint64_t length;
  };
  void fused_vector(std::string_view name, std::initializer_list<VectorPart> parts, Presence presence);
  // [rows][cols] in the file, [cols][rows] on the device.
  void transposed(std::string_view name, std::uint64_t rows, std::uint64_t cols, Tensor& to);
  // A tensor that is read elsewhere, or one that Quire cannot use yet and accepts.
  void known(std::string_view name);
  void known_prefix(std::string_view prefix);

  // `extra`: layers after those, whose tensors are not used.
  Result<void> check(std::uint32_t layers, std::string_view architecture, std::uint32_t extra = 0) const;
  Result<std::vector<Binding>> bind() const;

 private:
  static constexpr std::uint32_t kModel = UINT32_MAX;  // a tensor of the model, not of a layer
  struct Part {
    Weight* weight = nullptr;
    Tensor* vector = nullptr;
    std::uint64_t length = 0;  // rows of a matrix, elements of a vector
    bool transposed = false;
  };
  struct Row {
    enum class Shape : std::uint8_t { Matrix, Vector, Any, Prefix };
    std::uint32_t layer = kModel;
    std::string_view name;  // without "blk.N."; string literals
    Shape shape = Shape::Vector;
    Presence presence = Presence::Required;
    WeightUse use = WeightUse::Product;
    std::uint64_t rows = 1, cols = 0;
    std::uint64_t transposed_cols = 0;
    std::uint64_t count = 1;  // matrices of a stack
    bool in_f32 = false;
    std::uint32_t first_part = 0, parts = 0;
  };
  Row& add(std::string_view name, Row::Shape shape, std::uint64_t rows, std::uint64_t cols, Presence presence);
  std::string full_name(const Row& row) const;
  bool has(const Row& row) const { return file_->find_tensor(full_name(row)).has_value(); }
  std::span<const Row> rows_of(std::uint32_t layer) const;
  Result<void> check_row(const Row& row) const;
  Result<void> check_gaps() const;
  Result<void> check_unknown(std::uint32_t layers, std::string_view architecture, std::uint32_t extra) const;

  const gguf::File* file_;
  std::uint32_t layer_ = kModel;
  std::vector<Row> rows_;  // in the order of layers, after those of the model itself
  std::vector<Part> parts_;
};

}  // namespace quire::model

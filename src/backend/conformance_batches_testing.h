// For the conformance suite: batches built by hand, schedules, and small pools of keys, values and recurrent states.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "quire/backend/conformance_testing.h"
#include "quire/backend/reference_testing.h"
#include "quire/gguf/half.h"
#include "quire/state/batch.h"
#include "quire/state/device.h"
#include "quire/state/layout.h"

namespace quire::conformance {

// --- batches

// The next tokens of one sequence.
struct Part {
  std::uint32_t sequence = 0;
  std::uint32_t position = 0;
  std::uint32_t rows = 1;
  Logits logits = Logits::None;
  std::uint32_t drafts = 0;   // of the rows, the last ones
  std::uint32_t scratch = 0;  // with drafts: the sequence whose state is the scratch state
};

// Where the sequences are: each has a row of the page tables and a recurrent state.
struct Places {
  std::vector<KvGroupView> kv = {};
  StatesView states = {};
  std::uint32_t state_stride = 0;  // units from one sequence's state to the next one's
};

inline Batch make_batch(std::span<const Part> parts, const Places& places = {}, std::span<const Token> tokens = {}) {
  Batch batch;
  std::size_t at = 0;
  for (const Part& part : parts) {
    const std::vector<Token> zeros(part.rows);
    batch.add({}, tokens.empty() ? zeros : tokens.subspan(at, part.rows), part.logits);
    at += part.rows;
  }
  std::size_t i = 0;
  for (BatchEntry& entry : batch.bind(places.kv, places.states)) {
    entry.position = parts[i].position;
    entry.table = parts[i].sequence;
    entry.state = parts[i].sequence * places.state_stride;
    entry.drafts = parts[i].drafts;
    entry.scratch = parts[i].scratch * places.state_stride;
    ++i;
  }
  batch.set_positions();
  return batch;
}
// Rows for operations that do not look at sequences.
inline Batch rows_alone(std::uint32_t rows) { return make_batch(std::vector<Part>{{.rows = rows}}); }

// A schedule: for each step, the sequences in it and the number of next tokens of each.
using Schedule = std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>>;

// One step per sequence, with all of its tokens.
inline Schedule one_by_one(std::span<const std::uint32_t> lengths) {
  Schedule schedule;
  for (std::uint32_t s = 0; s < lengths.size(); ++s) schedule.push_back({{s, lengths[s]}});
  return schedule;
}
// All sequences in every step, one token each.
inline Schedule token_by_token(std::span<const std::uint32_t> lengths) {
  Schedule schedule(*std::ranges::max_element(lengths));
  for (std::uint32_t t = 0; t < schedule.size(); ++t) {
    for (std::uint32_t s = 0; s < lengths.size(); ++s) {
      if (t < lengths[s]) schedule[t].push_back({s, 1});
    }
  }
  return schedule;
}
// Random chunks and single tokens, of random sequences in each step.
inline Schedule at_random(std::span<const std::uint32_t> lengths, std::uint32_t most_rows, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> left(lengths.begin(), lengths.end());
  Schedule schedule;
  while (std::accumulate(left.begin(), left.end(), 0u) > 0) {
    std::vector<std::uint32_t> order(left.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::shuffle(order, random);
    auto& step = schedule.emplace_back();
    std::uint32_t room = most_rows;
    for (const std::uint32_t s : order) {
      if (left[s] == 0 || room == 0 || (random() % 4 == 0 && !step.empty())) continue;
      const std::uint32_t rows = random() % 2 == 0 ? 1 : std::min({left[s], room, 1 + std::uint32_t(random() % 90)});
      step.push_back({s, rows});
      left[s] -= rows;
      room -= rows;
    }
  }
  return schedule;
}

// --- keys and values

inline std::vector<ElementType> types_stored_by(const Backend& backend) {
  std::vector<ElementType> types;
  for (const ElementType type : {ElementType::F32, ElementType::F16, ElementType::BF16, ElementType::Q8_0}) {
    if (backend.stores(type)) types.push_back(type);
  }
  return types;
}

// The K and V of some sequences, in pages as in a pool, in order or scattered. All pages hold NaN at first.
class KvPool {
 public:
  enum class Order : std::uint8_t { Rising, Scattered };

  KvPool(Device& device, const PageShape& shape, std::uint32_t sequences, std::uint32_t positions, Order order)
      : device_(device),
        shape_(shape),
        blocks_((positions + shape.block_size - 1) / shape.block_size),
        tables_(std::size_t{sequences} * blocks_) {
    const std::uint32_t pages = sequences * blocks_ + 1;  // the last one belongs to no sequence
    std::vector<std::uint32_t> order_of_pages(pages - 1);
    std::iota(order_of_pages.begin(), order_of_pages.end(), 0u);
    if (order == Order::Scattered) std::ranges::shuffle(order_of_pages, std::mt19937(9));
    for (std::size_t i = 0; i < tables_.size(); ++i) tables_[i] = location(order_of_pages[i]);
    nobodys_ = location(pages - 1);
    memory_ = must(DeviceBuffer::create(device, pages * shape.page_bytes()));
    device_tables_ = must(DeviceBuffer::create(device, tables_.size() * sizeof(std::uint32_t)));
    const std::vector<std::byte> nothing(memory_.size(), std::byte{0xFF});  // NaN in every type
    must(device.upload(memory_.data(), nothing.data(), nothing.size()));
    must(device.fence());
    upload_tables();
  }

  KvGroupView view() const {
    return {.base = memory_.data(),
            .tables = reinterpret_cast<const std::uint32_t*>(device_tables_.data()),
            .table_stride = blocks_,
            .block_size = shape_.block_size,
            .num_kv_heads = shape_.num_kv_heads,
            .head_dim = shape_.head_dim,
            .type = shape_.type,
            .page_unit = kUnit,
            .layer_stride = shape_.layer_bytes(),
            .v_offset = shape_.value_offset(),
            .head_stride = shape_.head_bytes(),
            .token_stride = shape_.row_bytes()};
  }

  // The first `blocks` blocks of `to` become those of `from`.
  void share(std::uint32_t from, std::uint32_t to, std::uint32_t blocks) {
    std::copy_n(tables_.begin() + std::ptrdiff_t{from} * blocks_, blocks,
                tables_.begin() + std::ptrdiff_t{to} * blocks_);
    upload_tables();
  }
  // The first `blocks` blocks are released: their table entries now point to a page of NaN.
  void give_back(std::uint32_t sequence, std::uint32_t blocks) {
    std::fill_n(tables_.begin() + std::ptrdiff_t{sequence} * blocks_, blocks, nobodys_);
    upload_tables();
  }

  // What is stored at a position, for all heads. The conversion to float is exact for every type.
  std::vector<float> key(std::uint32_t sequence, std::uint32_t layer, std::uint32_t position) {
    return read(sequence, layer, position, 0);
  }
  std::vector<float> value(std::uint32_t sequence, std::uint32_t layer, std::uint32_t position) {
    return read(sequence, layer, position, shape_.plane_bytes());
  }

  // Writes K and V of the positions from 0 on directly, without the backend.
  void write(std::uint32_t sequence, std::uint32_t layer, const Matrix& k, const Matrix& v) {
    std::vector<std::byte> all(memory_.size());
    must(device_.download(all.data(), memory_.data(), all.size()));
    must(device_.fence());
    for (std::uint32_t p = 0; p < k.rows; ++p) {
      for (std::uint32_t head = 0; head < shape_.num_kv_heads; ++head) {
        const std::uint64_t at = offset(sequence, layer, head, p);
        const std::uint32_t first = head * shape_.head_dim;
        encode(k.row(p).subspan(first, shape_.head_dim), all.data() + at);
        encode(v.row(p).subspan(first, shape_.head_dim), all.data() + at + shape_.plane_bytes());
      }
    }
    must(device_.upload(memory_.data(), all.data(), all.size()));
    must(device_.fence());
  }

 private:
  static constexpr std::uint64_t kUnit = kObjectAlignment;

  std::uint32_t location(std::uint32_t page) const {
    return static_cast<std::uint32_t>(page * (shape_.page_bytes() / kUnit));
  }
  void upload_tables() {
    must(device_.upload(device_tables_.data(), tables_.data(), tables_.size() * sizeof(std::uint32_t)));
    must(device_.fence());
  }
  std::uint64_t offset(std::uint32_t sequence, std::uint32_t layer, std::uint32_t head, std::uint32_t position) const {
    const std::uint32_t page = tables_[std::size_t{sequence} * blocks_ + position / shape_.block_size];
    return page * kUnit + layer * shape_.layer_bytes() + head * shape_.head_bytes() +
           position % shape_.block_size * shape_.row_bytes();
  }
  std::vector<float> read(std::uint32_t sequence, std::uint32_t layer, std::uint32_t position, std::uint64_t plane) {
    std::vector<float> all;
    std::vector<std::byte> row(shape_.row_bytes());
    for (std::uint32_t head = 0; head < shape_.num_kv_heads; ++head) {
      must(device_.download(row.data(), memory_.data() + offset(sequence, layer, head, position) + plane, row.size()));
      must(device_.fence());
      for (std::uint32_t d = 0; d < shape_.head_dim; ++d) all.push_back(decode(row.data(), d));
    }
    return all;
  }
  void encode(std::span<const float> row, std::byte* to) const {
    if (shape_.type == ElementType::Q8_0) return encode_scaled(row, to);
    for (const float value : row) {
      const std::uint16_t half = shape_.type == ElementType::F16 ? gguf::f32_to_f16(value) : gguf::f32_to_bf16(value);
      if (shape_.type == ElementType::F32) {
        std::memcpy(to, &value, sizeof value);
      } else {
        std::memcpy(to, &half, sizeof half);
      }
      to += element_bytes(shape_.type);
    }
  }
  // The numbers, then the scales.
  static void encode_scaled(std::span<const float> row, std::byte* to) {
    const auto dim = static_cast<std::uint32_t>(row.size());
    for (std::uint32_t at = 0; at < dim; at += kScaledElements) {
      const auto block = row.subspan(at, std::min(kScaledElements, dim - at));
      const std::uint16_t scale = reference::scale_of(block);
      std::memcpy(to + scales_offset(dim) + at / kScaledElements * 2, &scale, sizeof scale);
      for (std::uint32_t i = 0; i < block.size(); ++i) {
        to[at + i] = static_cast<std::byte>(static_cast<std::int8_t>(reference::whole_number(block[i], scale)));
      }
    }
  }
  float decode(const std::byte* row, std::uint32_t d) const {
    float value = 0;
    std::uint16_t half = 0;
    if (shape_.type == ElementType::F32) {
      std::memcpy(&value, row + std::size_t{d} * 4, sizeof value);
      return value;
    }
    if (shape_.type == ElementType::Q8_0) {
      std::memcpy(&half, row + scales_offset(shape_.head_dim) + d / kScaledElements * 2, sizeof half);
      return static_cast<float>(static_cast<std::int8_t>(row[d])) * gguf::f16_to_f32(half);
    }
    std::memcpy(&half, row + std::size_t{d} * 2, sizeof half);
    return shape_.type == ElementType::F16 ? gguf::f16_to_f32(half) : gguf::bf16_to_f32(half);
  }

  Device& device_;
  PageShape shape_;
  std::uint32_t blocks_;  // of a sequence
  std::vector<std::uint32_t> tables_;
  std::uint32_t nobodys_ = 0;
  DeviceBuffer memory_, device_tables_;
};

// --- recurrent states

inline std::vector<ElementType> state_types_stored_by(const Backend& backend) {
  std::vector<ElementType> types;
  for (const ElementType type : {ElementType::F32, ElementType::F16, ElementType::BF16}) {
    if (backend.stores_state(type)) types.push_back(type);
  }
  return types;
}

class StatePool {
 public:
  StatePool(Device& device, const Mamba2Shape& mamba, std::uint32_t layers, std::uint32_t sequences,
            ElementType type = ElementType::F32)
      : shape_{.num_layers = layers,
               .conv_bytes = std::uint64_t{mamba.conv_width - 1} * mamba.conv_channels() * sizeof(float),
               .ssm_bytes = std::uint64_t{mamba.inner()} * mamba.state_dim * element_bytes(type),
               .type = type},
        device_(device),
        memory_(must(DeviceBuffer::create(device, shape_.bytes() * sequences))) {}  // zeros: no token yet
  StatePool(Device& device, const StateShape& shape, std::uint32_t sequences)
      : shape_(shape), device_(device), memory_(must(DeviceBuffer::create(device, shape.bytes() * sequences))) {}

  StatesView view() const {
    return {.base = memory_.data(),
            .unit = kObjectAlignment,
            .layer_stride = shape_.layer_stride(),
            .ssm_offset = shape_.conv_stride(),
            .num_layers = shape_.num_layers,
            .type = shape_.type};
  }
  std::uint32_t stride() const { return static_cast<std::uint32_t>(shape_.bytes() / kObjectAlignment); }

  // The bytes of one layer's state.
  std::vector<std::byte> bytes(std::uint32_t sequence, std::uint32_t layer) {
    std::vector<std::byte> bytes(shape_.layer_stride());
    must(device_.download(bytes.data(), memory_.data() + sequence * shape_.bytes() + layer * shape_.layer_stride(),
                          bytes.size()));
    must(device_.fence());
    return bytes;
  }

 private:
  StateShape shape_;
  Device& device_;
  DeviceBuffer memory_;
};

}  // namespace quire::conformance

#include "quire/gguf/parse.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "quire/base/numbers.h"
#include "quire/gguf/message.h"

namespace quire::gguf {

namespace {

// An entry is at least a key of one byte, a type and a value of one byte. A tensor is at least a name of one byte, the
// number of dimensions, a type and an offset.
constexpr std::uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;
// Larger than any page. A larger value would only serve to push tensors out of the file.
constexpr std::uint64_t kMaxAlignment = 1 << 20;

constexpr std::uint32_t kLastValueType = static_cast<std::uint32_t>(ValueType::f64);

// The least number of bytes that a value takes, to tell whether the file can hold so many.
std::uint64_t min_size(ValueType type) {
  if (type == ValueType::string) return kStringHeader;
  if (type == ValueType::array) return kArrayHeader;
  return fixed_size(type);
}

// A tensor of the directory. Its data have not been checked yet.
struct Description {
  Tensor tensor;         // without data
  std::uint64_t offset;  // from data_begin
  std::uint64_t bytes;
};

Description description(const Index& index, std::size_t i) {
  Description result = {};
  Tensor& tensor = result.tensor;
  tensor.name = index.tensor_name(i);
  const std::byte* at = index.image.data() + index.tensors[i] + kStringHeader + tensor.name.size();
  tensor.n_dims = detail::load<std::uint32_t>(at);
  at += 4;
  for (std::uint32_t d = 0; d < tensor.n_dims; ++d, at += 8) tensor.shape[d] = detail::load<std::uint64_t>(at);
  tensor.type = static_cast<Type>(detail::load<std::uint32_t>(at));
  result.offset = detail::load<std::uint64_t>(at + 4);
  result.bytes = byte_size(tensor.type, tensor.elements()).value_or(0);
  return result;
}

class Parser {
 public:
  Parser(std::span<const std::byte> image, const std::string& name) : image_(image), name_(name) {}

  Result<Index> run() {
    index_.image = image_;
    if (auto ok = header(); !ok) return std::unexpected(ok.error());
    for (std::uint64_t i = 0; i < entry_count_; ++i) {
      if (auto ok = entry(i); !ok) return std::unexpected(ok.error());
    }
    if (auto ok = unique_keys(); !ok) return std::unexpected(ok.error());
    if (auto ok = alignment(); !ok) return std::unexpected(ok.error());
    // Checked again, since the entries have taken some of the room that header() saw.
    if (auto ok = room(tensor_count_, kMinTensorBytes, "tensors"); !ok) return std::unexpected(ok.error());
    index_.tensors.reserve(tensor_count_);
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      if (auto ok = tensor(i); !ok) return std::unexpected(ok.error());
    }
    // at_ is at most the size of the image, and the alignment is small. So this cannot overflow.
    index_.data_begin = round_up<std::uint64_t>(at_, index_.alignment);
    if (auto ok = tensor_data(); !ok) return std::unexpected(ok.error());
    return std::move(index_);
  }

 private:
  std::uint64_t left() const { return image_.size() - at_; }

  std::unexpected<Error> refuse(std::string_view what, std::uint64_t offset, std::string_view why) const {
    return fail(fmt::format("{}: {} at byte {}: {}", name_, what, offset, why));
  }

  std::unexpected<Error> ends(std::string_view what, std::uint64_t offset) const {
    return refuse(what, offset,
                  fmt::format("the file ends here ({} bytes); it is cut short or damaged", image_.size()));
  }

  template <typename T>
  std::optional<T> take() {
    if (left() < sizeof(T)) return std::nullopt;
    const T value = detail::load<T>(image_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  Result<void> room(std::uint64_t count, std::uint64_t each, std::string_view of_what) const {
    if (count <= left() / each) return {};
    return refuse("header", 8,
                  fmt::format("claims {} {}, more than fit into the {} bytes left", count, of_what, left()));
  }

  Result<void> header() {
    const std::string_view start(reinterpret_cast<const char*>(image_.data()),
                                 std::min<std::size_t>(image_.size(), 64));
    if (start.empty()) return fail(fmt::format("{}: is empty", name_));
    if (start.starts_with("version https://git-lfs")) {
      return fail(fmt::format("{}: is a Git LFS pointer, not the model itself", name_));
    }
    if (start.starts_with("FUGG")) return refuse("header", 0, "the file is big-endian, which is not supported");
    if (!start.starts_with(kMagic)) {
      return refuse("header", 0, fmt::format("not a GGUF file: it begins with {}", quoted(start.substr(0, 4))));
    }
    at_ = kMagic.size();
    const auto version = take<std::uint32_t>();
    if (!version) return ends("version", at_);
    if ((*version & 0xFFFF) == 0 && *version != 0) {
      return refuse("version", 4, "the file is big-endian, which is not supported");
    }
    if (*version != 2 && *version != 3) {
      return refuse("version", 4, fmt::format("GGUF version {} is not supported, only 2 and 3 are", *version));
    }
    index_.version = *version;
    const auto tensors = take<std::uint64_t>();
    if (!tensors) return ends("number of tensors", at_);
    const auto entries = take<std::uint64_t>();
    if (!entries) return ends("number of metadata entries", at_);
    entry_count_ = *entries;
    tensor_count_ = *tensors;
    if (auto ok = room(entry_count_, kMinEntryBytes, "metadata entries"); !ok) return ok;
    if (auto ok = room(tensor_count_, kMinTensorBytes, "tensors"); !ok) return ok;
    if (std::max(entry_count_, tensor_count_) > std::numeric_limits<std::uint32_t>::max()) {
      return refuse("header", 8, "claims more than 4294967295 entries or tensors");
    }
    index_.entries.reserve(entry_count_);
    return {};
  }

  // A key or the name of a tensor.
  Result<std::string_view> name(std::string_view what) {
    const std::uint64_t begin = at_;
    const auto length = take<std::uint64_t>();
    if (!length) return ends(what, begin);
    if (*length == 0) return refuse(what, begin, "the name is empty");
    if (*length > left()) {
      return refuse(what, begin, fmt::format("a name of {} bytes, but only {} are left in the file", *length, left()));
    }
    if (*length > kMaxNameBytes) {
      return refuse(what, begin, fmt::format("a name of {} bytes; the longest allowed is {}", *length, kMaxNameBytes));
    }
    at_ += *length;
    return detail::load_string(image_.data() + begin);
  }

  Result<void> entry(std::uint64_t number) {
    const std::uint64_t begin = at_;
    const auto key = name(fmt::format("metadata entry {} of {}", number + 1, entry_count_));
    if (!key) return std::unexpected(key.error());
    index_.entries.push_back(begin);
    subject_ = *key;
    const auto type = take<std::uint32_t>();
    if (!type) return ends(metadata(), at_);
    if (*type > kLastValueType) return refuse(metadata(), at_ - 4, fmt::format("unknown value type {}", *type));
    return value(static_cast<ValueType>(*type), 0);
  }

  std::string metadata() const { return fmt::format("metadata {}", quoted(subject_)); }

  // Skips a value, `depth` arrays deep.
  Result<void> value(ValueType type, int depth) {
    if (type == ValueType::array) return array(depth);
    if (type == ValueType::string) {
      const std::uint64_t begin = at_;
      const auto length = take<std::uint64_t>();
      if (!length) return ends(metadata(), begin);
      if (*length > left()) {
        return refuse(metadata(), begin,
                      fmt::format("a string of {} bytes, but only {} are left in the file", *length, left()));
      }
      at_ += *length;
      return {};
    }
    if (left() < fixed_size(type)) return ends(metadata(), at_);
    if (type == ValueType::boolean && std::to_integer<int>(image_[at_]) > 1) {
      return refuse(metadata(), at_, fmt::format("a bool is 0 or 1, not {}", std::to_integer<int>(image_[at_])));
    }
    at_ += fixed_size(type);
    return {};
  }

  Result<void> array(int depth) {
    const std::uint64_t begin = at_;
    if (depth >= kMaxArrayDepth) {
      return refuse(metadata(), begin, fmt::format("arrays nested more than {} deep", kMaxArrayDepth));
    }
    const auto raw_type = take<std::uint32_t>();
    const auto count = take<std::uint64_t>();
    if (!raw_type || !count) return ends(metadata(), begin);
    if (*raw_type > kLastValueType) {
      return refuse(metadata(), begin, fmt::format("an array of unknown value type {}", *raw_type));
    }
    const auto type = static_cast<ValueType>(*raw_type);
    if (*count > left() / min_size(type)) {
      return refuse(
          metadata(), begin,
          fmt::format("an array of {} {}, but only {} bytes are left in the file", *count, name_of(type), left()));
    }
    if (fixed_size(type) != 0 && type != ValueType::boolean) {
      at_ += *count * fixed_size(type);  // no overflow: compared with left() above
      return {};
    }
    for (std::uint64_t i = 0; i < *count; ++i) {
      if (auto ok = value(type, depth + 1); !ok) return ok;
    }
    return {};
  }

  Result<void> unique_keys() {
    index_.by_key = sorted_by_name(index_.entries.size(), [&](std::size_t i) { return index_.key(i); });
    for (std::size_t i = 1; i < index_.by_key.size(); ++i) {
      const std::uint32_t first = index_.by_key[i - 1], second = index_.by_key[i];
      if (index_.key(first) != index_.key(second)) continue;
      subject_ = index_.key(second);
      return refuse(metadata(), index_.entries[second],
                    fmt::format("the same key stands at byte {} already", index_.entries[first]));
    }
    return {};
  }

  Result<void> alignment() {
    index_.alignment = kDefaultAlignment;
    const std::optional<Entry> entry = index_.find(kAlignmentKey);
    if (!entry) return {};
    const auto claimed = entry->value.as<std::uint64_t>();
    if (!claimed || !valid_alignment(*claimed)) {
      subject_ = kAlignmentKey;
      return refuse(
          metadata(), entry->offset,
          fmt::format("wanted a power of two from 8 to {}, found {}", kMaxAlignment, entry->value.describe()));
    }
    index_.alignment = *claimed;
    return {};
  }

  std::string tensor_called(std::string_view name) const { return fmt::format("tensor {}", quoted(name)); }

  // Checks the description of a tensor, except for its offset.
  Result<void> tensor(std::uint64_t number) {
    const std::uint64_t begin = at_;
    const auto name = this->name(fmt::format("tensor {} of {}", number + 1, tensor_count_));
    if (!name) return std::unexpected(name.error());
    const auto dims = take<std::uint32_t>();
    if (!dims) return ends(tensor_called(*name), at_);
    if (*dims > kMaxDims) {
      return refuse(tensor_called(*name), at_ - 4,
                    fmt::format("{} dimensions; at most {} are allowed", *dims, kMaxDims));
    }
    std::uint64_t elements = 1;
    std::uint64_t row = 1;
    for (std::uint32_t d = 0; d < *dims; ++d) {
      const auto length = take<std::uint64_t>();
      if (!length) return ends(tensor_called(*name), at_);
      if (*length == 0) return refuse(tensor_called(*name), at_ - 8, fmt::format("dimension {} is 0", d));
      const auto product = checked_mul(elements, *length);
      if (!product) return refuse(tensor_called(*name), at_ - 8, "the number of elements overflows 64 bits");
      elements = *product;
      if (d == 0) row = *length;
    }
    const auto raw_type = take<std::uint32_t>();
    if (!raw_type) return ends(tensor_called(*name), at_);
    const TypeInfo* type = find_type(*raw_type);
    if (type == nullptr) return refuse(tensor_called(*name), at_ - 4, fmt::format("unknown tensor type {}", *raw_type));
    if (type->block_size == 0) {
      return refuse(tensor_called(*name), at_ - 4,
                    fmt::format("tensor type {} (number {}) is not supported", type->name, *raw_type));
    }
    if (row % type->block_size != 0) {
      return refuse(tensor_called(*name), begin,
                    fmt::format("rows of {} elements are not whole blocks of {} ({} elements each)", row, type->name,
                                type->block_size));
    }
    if (!byte_size(type->type, elements)) {
      return refuse(tensor_called(*name), begin, fmt::format("the size of {} elements overflows 64 bits", elements));
    }
    if (!take<std::uint64_t>()) return ends(tensor_called(*name), at_);
    index_.tensors.push_back(begin);
    return {};
  }

  // Checks that every tensor is within the file, aligned, and overlaps no other.
  Result<void> tensor_data() {
    const std::uint64_t data_bytes = image_.size() - std::min<std::uint64_t>(index_.data_begin, image_.size());
    bool ascending = true;
    std::uint64_t previous_end = 0;
    for (std::size_t i = 0; i < index_.tensors.size(); ++i) {
      const Description place = description(index_, i);
      if (place.offset % index_.alignment != 0) {
        return refuse(tensor_called(index_.tensor_name(i)), index_.tensors[i],
                      fmt::format("offset {} is not a multiple of the alignment {}", place.offset, index_.alignment));
      }
      if (place.offset > data_bytes || place.bytes > data_bytes - place.offset) {
        return refuse(
            tensor_called(index_.tensor_name(i)), index_.tensors[i],
            fmt::format("its {} bytes at offset {} of the data (from byte {}) reach behind the end of the file "
                        "({} bytes); it is cut short or damaged",
                        place.bytes, place.offset, index_.data_begin, image_.size()));
      }
      ascending = ascending && place.offset >= previous_end;
      previous_end = place.offset + place.bytes;
    }
    if (ascending) return {};  // the usual case; nothing can overlap then
    return no_overlap();
  }

  Result<void> no_overlap() const {
    std::vector<std::uint32_t> order(index_.tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, {}, [&](std::uint32_t i) { return description(index_, i).offset; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const Description before = description(index_, order[i - 1]);
      if (description(index_, order[i]).offset >= before.offset + before.bytes) continue;
      return refuse(tensor_called(index_.tensor_name(order[i])), index_.tensors[order[i]],
                    fmt::format("its data overlap those of {}", tensor_called(index_.tensor_name(order[i - 1]))));
    }
    return {};
  }

  std::span<const std::byte> image_;
  const std::string& name_;
  std::uint64_t at_ = 0;
  std::uint64_t entry_count_ = 0, tensor_count_ = 0;
  std::string_view subject_;  // the key of the current entry
  Index index_;
};

}  // namespace

std::string_view Index::key(std::size_t i) const { return detail::load_string(image.data() + entries[i]); }

std::string_view Index::tensor_name(std::size_t i) const { return detail::load_string(image.data() + tensors[i]); }

Entry Index::entry(std::size_t i) const {
  const std::byte* at = image.data() + entries[i];
  const std::string_view name = detail::load_string(at);
  at += kStringHeader + name.size();
  return {name, Value(static_cast<ValueType>(detail::load<std::uint32_t>(at)), at + 4), entries[i]};
}

Tensor Index::tensor(std::size_t i) const {
  const Description found = description(*this, i);
  Tensor tensor = found.tensor;
  tensor.offset = data_begin + found.offset;
  tensor.data = image.subspan(tensor.offset, found.bytes);
  return tensor;
}

std::optional<Entry> Index::find(std::string_view wanted) const {
  const auto found = find_by_name(by_key, wanted, [&](std::size_t i) { return key(i); });
  if (!found) return std::nullopt;
  return entry(*found);
}

Result<Index> parse(std::span<const std::byte> image, const std::string& name) { return Parser(image, name).run(); }

std::vector<std::uint32_t> sorted_by_name(std::size_t count,
                                          const std::function<std::string_view(std::size_t)>& name_of) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
    const std::string_view name_a = name_of(a), name_b = name_of(b);
    return name_a != name_b ? name_a < name_b : a < b;
  });
  return order;
}

std::optional<std::uint32_t> find_by_name(std::span<const std::uint32_t> sorted, std::string_view name,
                                          const std::function<std::string_view(std::size_t)>& name_of) {
  const auto found = std::ranges::lower_bound(sorted, name, {}, name_of);
  if (found == sorted.end() || name_of(*found) != name) return std::nullopt;
  return *found;
}

bool valid_alignment(std::uint64_t alignment) {
  return std::has_single_bit(alignment) && alignment >= 8 && alignment <= kMaxAlignment;
}

}  // namespace quire::gguf

#include "quire/gguf/gguf.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "quire/base/check.h"
#include "quire/gguf/mapping.h"
#include "quire/gguf/message.h"
#include "quire/gguf/parse.h"
#include "quire/gguf/split.h"

namespace quire::gguf {

struct File::Impl {
  struct Loaded {
    Mapping mapping;  // empty for from_memory
    Index index;
    std::uint64_t first_tensor = 0;  // the number of tensors in the parts before
  };

  std::vector<Loaded> loaded;
  std::vector<Part> parts;             // the same for the caller
  std::vector<std::uint32_t> by_name;  // indices of the tensors, sorted by name
  std::uint64_t tensors = 0;

  static Result<Loaded> load(const std::string& path) {
    auto mapping = Mapping::open(path);
    if (!mapping) return std::unexpected(mapping.error());
    auto index = parse(mapping->bytes(), shown_path(path));
    if (!index) return std::unexpected(index.error());
    return Loaded{std::move(*mapping), std::move(*index)};
  }

  void add(Loaded part, std::string path) {
    part.first_tensor = tensors;
    tensors += part.index.tensors.size();
    parts.push_back({std::move(path), part.index.image.size(), part.index.data_begin, part.index.tensors.size()});
    loaded.push_back(std::move(part));
  }

  // Opens all parts of the model that `opened` belongs to.
  Result<void> add_all(Loaded opened, const std::string& path) {
    const std::string shown = shown_path(path);
    const auto count = split_count(opened.index, shown);
    if (!count) return std::unexpected(count.error());
    if (*count == 1) {
      add(std::move(opened), path);
      return {};
    }
    const std::optional<SplitName> name = parse_split_name(path);
    if (!name || name->count != *count) {
      return fail(
          fmt::format("{}: is one of {} parts (metadata 'split.count'), but is not named so: NAME{} is expected", shown,
                      *count, split_path("", 1, *count)));
    }
    for (std::uint32_t number = 1; number <= *count; ++number) {
      const std::string part_path = split_path(name->prefix, number, *count);
      auto part = load(part_path);  // opens the first file again, which is simpler and costs a millisecond
      if (!part) return fail(fmt::format("part {} of {}: {}", number, *count, part.error().message));
      if (auto ok = check_part(part->index, shown_path(part_path), number, *count); !ok) return ok;
      add(std::move(*part), part_path);
    }
    for (std::size_t i = 0; i < loaded.size(); ++i) {
      if (auto ok = check_tensor_count(loaded[i].index, shown_path(parts[i].path), tensors); !ok) return ok;
    }
    return {};
  }

  std::uint32_t part_of(std::size_t tensor) const {
    const auto after = std::ranges::upper_bound(loaded, tensor, {}, &Loaded::first_tensor);
    return static_cast<std::uint32_t>(after - loaded.begin() - 1);
  }

  std::string_view tensor_name(std::size_t i) const {
    const Loaded& part = loaded[part_of(i)];
    return part.index.tensor_name(i - part.first_tensor);
  }

  Result<void> unique_tensor_names() {
    if (tensors > std::numeric_limits<std::uint32_t>::max()) {
      return fail(fmt::format("{}: the parts have more than 4294967295 tensors", shown_path(parts[0].path)));
    }
    by_name = sorted_by_name(tensors, [&](std::size_t i) { return tensor_name(i); });
    for (std::size_t i = 1; i < by_name.size(); ++i) {
      const std::uint32_t first = by_name[i - 1], second = by_name[i];
      if (tensor_name(first) != tensor_name(second)) continue;
      const auto place = [&](std::uint32_t tensor) {
        const Loaded& part = loaded[part_of(tensor)];
        return part.index.tensors[tensor - part.first_tensor];
      };
      return fail(fmt::format("{}: tensor {} at byte {}: the same name stands at byte {} of {} already",
                              shown_path(parts[part_of(second)].path), quoted(tensor_name(second)), place(second),
                              place(first), shown_path(parts[part_of(first)].path)));
    }
    return {};
  }
};

File::File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

Result<File> File::open(const std::string& path) {
  auto opened = Impl::load(path);
  if (!opened) return std::unexpected(opened.error());
  auto impl = std::make_unique<Impl>();
  if (auto ok = impl->add_all(std::move(*opened), path); !ok) return std::unexpected(ok.error());
  if (auto ok = impl->unique_tensor_names(); !ok) return std::unexpected(ok.error());
  return File(std::move(impl));
}

Result<File> File::from_memory(std::span<const std::byte> image, std::string name) {
  const std::string shown = shown_path(name);
  auto index = parse(image, shown);
  if (!index) return std::unexpected(index.error());
  const auto count = split_count(*index, shown);
  if (!count) return std::unexpected(count.error());
  if (*count != 1) {
    return fail(fmt::format("{}: is one of {} parts (metadata 'split.count'), and was given alone", shown, *count));
  }
  auto impl = std::make_unique<Impl>();
  impl->add({Mapping(), std::move(*index)}, std::move(name));
  if (auto ok = impl->unique_tensor_names(); !ok) return std::unexpected(ok.error());
  return File(std::move(impl));
}

const std::string& File::path() const { return impl_->parts.front().path; }
std::uint32_t File::version() const { return impl_->loaded.front().index.version; }
std::uint64_t File::alignment() const { return impl_->loaded.front().index.alignment; }
std::span<const File::Part> File::parts() const { return impl_->parts; }

std::size_t File::entry_count() const { return impl_->loaded.front().index.entries.size(); }
Entry File::entry(std::size_t index) const {
  QUIRE_CHECK(index < entry_count(), "no such metadata entry");
  return impl_->loaded.front().index.entry(index);
}
std::optional<Entry> File::find(std::string_view key) const { return impl_->loaded.front().index.find(key); }

std::size_t File::tensor_count() const { return impl_->tensors; }

Tensor File::tensor(std::size_t index) const {
  QUIRE_CHECK(index < tensor_count(), "no such tensor");
  const std::uint32_t number = impl_->part_of(index);
  const Impl::Loaded& part = impl_->loaded[number];
  Tensor tensor = part.index.tensor(index - part.first_tensor);
  tensor.part = number;
  return tensor;
}

std::optional<Tensor> File::find_tensor(std::string_view name) const {
  const auto found = find_by_name(impl_->by_name, name, [&](std::size_t i) { return impl_->tensor_name(i); });
  if (!found) return std::nullopt;
  return tensor(*found);
}

Result<Tensor> File::tensor(std::string_view name) const {
  if (const std::optional<Tensor> found = find_tensor(name)) return *found;
  return fail(fmt::format("{}: has no tensor {}", shown_path(path()), quoted(name)));
}

std::unexpected<Error> File::missing(std::string_view key) const {
  return fail(fmt::format("{}: has no metadata {}", shown_path(path()), quoted(key)));
}

std::unexpected<Error> File::mismatch(const Entry& entry, std::string_view wanted) const {
  return fail(fmt::format("{}: metadata {} at byte {}: wanted {}, found {}", shown_path(path()), quoted(entry.key),
                          entry.offset, wanted, entry.value.describe()));
}

void File::forget(std::span<const std::byte> data) const {
  for (const Impl::Loaded& part : impl_->loaded) part.mapping.forget(data);
}

}  // namespace quire::gguf

#include "quire/gguf/writer.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quire/base/numbers.h"
#include "quire/gguf/gguf.h"
#include "quire/gguf/message.h"
#include "quire/gguf/parse.h"

namespace quire::gguf {

namespace {

constexpr std::size_t kFileBuffer = 1 << 20;

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out.append(text);
}

class MemorySink final : public Sink {
 public:
  Result<void> write(std::span<const std::byte> bytes) override {
    if (bytes.empty()) return {};
    const std::size_t before = image.size();
    image.resize(before + bytes.size());
    std::memcpy(image.data() + before, bytes.data(), bytes.size());
    return {};
  }
  std::vector<std::byte> image;
};

// Writes to path + ".partial". The file is removed again unless finish() has renamed it.
class FileSink final : public Sink {
 public:
  explicit FileSink(std::string path) : path_(std::move(path)), partial_(path_ + ".partial") {}

  ~FileSink() override {
    if (file_ != nullptr) std::fclose(file_);
    if (created_) ::unlink(partial_.c_str());
  }

  Result<void> open() {
    // A rename would replace a device or a directory by a file.
    struct stat status = {};
    if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
      return fail(fmt::format("{}: is there already and is not a regular file", shown_path(path_)));
    }
    const int fd = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0) return failure("cannot be created");
    created_ = true;
    file_ = ::fdopen(fd, "wb");
    if (file_ == nullptr) {
      ::close(fd);
      return failure("cannot be created");
    }
    buffer_ = std::make_unique<char[]>(kFileBuffer);
    std::setvbuf(file_, buffer_.get(), _IOFBF, kFileBuffer);
    return {};
  }

  Result<void> write(std::span<const std::byte> bytes) override {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return failure("cannot be written");
    return {};
  }

  Result<void> finish() {
    // fsync, since some file systems report a full disk only then.
    if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) return failure("cannot be written");
    if (std::fclose(std::exchange(file_, nullptr)) != 0) return failure("cannot be written");
    if (::rename(partial_.c_str(), path_.c_str()) != 0) return failure("cannot be renamed from '.partial'");
    created_ = false;
    return {};
  }

  // The failure of the file itself, if there was one.
  const std::optional<Error>& failed() const { return failed_; }

 private:
  std::unexpected<Error> failure(std::string_view what) {
    failed_ = Error{fmt::format("{}: {}: {}", shown_path(path_), what, std::generic_category().message(errno))};
    return std::unexpected(*failed_);
  }

  std::string path_, partial_;
  std::FILE* file_ = nullptr;
  bool created_ = false;
  std::unique_ptr<char[]> buffer_;
  std::optional<Error> failed_;
};

// Passes on what a Fill writes, up to the size of the tensor, and counts only what was written.
class TensorSink final : public Sink {
 public:
  TensorSink(Sink& to, std::uint64_t bytes) : to_(to), left_(bytes) {}

  Result<void> write(std::span<const std::byte> bytes) override {
    if (bytes.size() > left_) return fail(fmt::format("{} bytes more than it has", bytes.size() - left_));
    if (auto ok = to_.write(bytes); !ok) return ok;
    left_ -= bytes.size();
    return {};
  }

  std::uint64_t left() const { return left_; }

 private:
  Sink& to_;
  std::uint64_t left_;
};

}  // namespace

void Writer::mistake(std::string message) {
  if (!mistake_) mistake_ = Error{std::move(message)};
}

void Writer::append(std::span<const std::byte> bytes) {
  entries_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void Writer::append(std::string_view value) { put(entries_, value); }

void Writer::begin_entry(std::string_view key, ValueType type) {
  entry_begin_ = entries_.size();
  if (key.empty() || key.size() > kMaxNameBytes) {
    mistake(fmt::format("metadata {}: a key has 1 to {} bytes", quoted(key), kMaxNameBytes));
  } else if (!keys_.emplace(key).second) {
    mistake(fmt::format("metadata {}: was added before", quoted(key)));
  }
  append(key);
  append(static_cast<std::uint32_t>(type));
}

void Writer::end_entry() {
  if (mistake_) {
    entries_.resize(entry_begin_);
    return;
  }
  ++entry_count_;
  const std::byte* at = std::as_bytes(std::span(entries_)).data() + entry_begin_;
  const std::string_view key = detail::load_string(at);
  if (key != kAlignmentKey) return;
  at += kStringHeader + key.size();
  const Value value(static_cast<ValueType>(detail::load<std::uint32_t>(at)), at + 4);
  const auto alignment = value.as<std::uint64_t>();
  if (!alignment || !valid_alignment(*alignment)) {
    return mistake(fmt::format("metadata '{}': {} is not an alignment", kAlignmentKey, value.describe()));
  }
  alignment_ = *alignment;
}

void Writer::add(std::string_view key, std::string_view value) {
  begin_entry(key, ValueType::string);
  append(value);
  end_entry();
}

void Writer::add_value(std::string_view key, const Value& value) {
  begin_entry(key, value.type());
  append(value.encoded());
  end_entry();
}

void Writer::add_tensor(std::string_view name, Type type, std::vector<std::uint64_t> shape,
                        std::span<const std::byte> data) {
  const std::size_t before = tensors_.size();
  add_tensor(name, type, std::move(shape), [data](Sink& sink) { return sink.write(data); });
  if (tensors_.size() == before || tensors_.back().bytes == data.size()) return;
  mistake(fmt::format("tensor {}: {} bytes of data, where type and shape need {}", quoted(name), data.size(),
                      tensors_.back().bytes));
}

void Writer::add_tensor(std::string_view name, Type type, std::vector<std::uint64_t> shape, Fill fill) {
  if (mistake_) return;
  const auto wrong = [&](std::string_view why) { mistake(fmt::format("tensor {}: {}", quoted(name), why)); };
  if (name.empty() || name.size() > kMaxNameBytes) {
    return wrong(fmt::format("a name has 1 to {} bytes", kMaxNameBytes));
  }
  if (!names_.emplace(name).second) return wrong("was added before");
  if (shape.size() > kMaxDims) return wrong(fmt::format("has more than {} dimensions", kMaxDims));
  std::uint64_t elements = 1;
  for (const std::uint64_t length : shape) {
    const auto product = checked_mul(elements, length);
    if (!product || *product == 0) return wrong("has a dimension that is 0, or too many elements");
    elements = *product;
  }
  const TypeInfo* info = find_type(static_cast<std::uint32_t>(type));
  if (info == nullptr || info->block_size == 0) return wrong("has a type that files cannot have");
  const std::uint64_t row = shape.empty() ? 1 : shape[0];
  const auto bytes = byte_size(type, elements);
  if (row % info->block_size != 0 || !bytes) {
    return wrong(fmt::format("rows of {} elements are not whole blocks of {}", row, info->name));
  }
  // A file has less than 2^63 bytes, which leaves room for any padding.
  const auto total = checked_add(total_bytes_, *bytes);
  if (!total || *total >> 62 != 0) return wrong("is too large for a file together with those before");
  total_bytes_ = *total;
  tensors_.push_back({std::string(name), type, std::move(shape), *bytes, std::move(fill)});
}

std::string Writer::directory() const {
  std::string out(kMagic);
  put(out, std::uint32_t{3});
  put(out, static_cast<std::uint64_t>(tensors_.size()));
  put(out, entry_count_);
  out += entries_;
  std::uint64_t offset = 0;
  for (const PendingTensor& tensor : tensors_) {
    put(out, std::string_view(tensor.name));
    put(out, static_cast<std::uint32_t>(tensor.shape.size()));
    for (const std::uint64_t length : tensor.shape) put(out, length);
    put(out, static_cast<std::uint32_t>(tensor.type));
    put(out, offset);
    offset += round_up(tensor.bytes, alignment_);  // no overflow: see add_tensor()
  }
  out.resize(round_up<std::uint64_t>(out.size(), alignment_));
  return out;
}

Result<void> Writer::write(Sink& sink) const {
  if (mistake_) return std::unexpected(*mistake_);
  const std::string opening = directory();
  if (auto ok = sink.write(std::as_bytes(std::span(opening))); !ok) return ok;
  const std::vector<std::byte> zeros(alignment_);
  for (const PendingTensor& tensor : tensors_) {
    TensorSink to(sink, tensor.bytes);
    if (auto ok = tensor.fill(to); !ok) {
      return fail(fmt::format("tensor {}: {}", quoted(tensor.name), ok.error().message));
    }
    if (to.left() != 0) {
      return fail(
          fmt::format("tensor {}: {} of its {} bytes were not written", quoted(tensor.name), to.left(), tensor.bytes));
    }
    const std::uint64_t padding = round_up(tensor.bytes, alignment_) - tensor.bytes;
    if (auto ok = sink.write(std::span(zeros).first(padding)); !ok) return ok;
  }
  return {};
}

Result<void> Writer::write(const std::string& path) const {
  // A mistake is reported before any file is touched.
  if (mistake_) return fail(fmt::format("{}: {}", shown_path(path), mistake_->message));
  FileSink sink(path);
  if (auto ok = sink.open(); !ok) return ok;
  if (auto ok = write(sink); !ok) {
    // An error of the disk is reported without the name of the tensor.
    if (const auto& failed = sink.failed()) return std::unexpected(*failed);
    return fail(fmt::format("{}: {}", shown_path(path), ok.error().message));
  }
  return sink.finish();
}

Result<std::vector<std::byte>> Writer::to_memory() const {
  MemorySink sink;
  if (auto ok = write(sink); !ok) return std::unexpected(ok.error());
  return std::move(sink.image);
}

}  // namespace quire::gguf

// libFuzzer target: reads any bytes as a GGUF file, and everything in it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "quire/gguf/gguf.h"
#include "quire/gguf/writer.h"

namespace {

using namespace quire::gguf;

// Reads all bytes of a value, so that the sanitizers check them.
std::uint64_t look_at(const Value& value) {
  std::uint64_t sum = value.encoded().size() + value.describe().size();
  if (const auto number = value.as<std::int16_t>()) sum += static_cast<std::uint64_t>(*number);
  if (const auto number = value.as<float>()) sum += *number > 0 ? 1 : 0;
  if (const auto strings = value.as_array<std::string_view>()) {
    for (const std::string_view string : *strings) {
      for (const char c : string) sum += static_cast<unsigned char>(c);
    }
  }
  if (const auto numbers = value.as_array<std::int64_t>()) {
    for (const std::int64_t number : *numbers) sum += static_cast<std::uint64_t>(number);
  }
  if (const auto numbers = value.as_array<float>()) {
    for (const float number : *numbers) sum += number > 0 ? 1 : 0;
  }
  for (const Value element : value.elements()) sum += look_at(element);
  return sum;
}

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = File::from_memory(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file) {
    require(!file.error().message.empty() && file.error().message.find('\n') == std::string::npos);
    return 0;
  }
  std::uint64_t sum = 0;
  Writer writer;
  for (std::size_t i = 0; i < file->entry_count(); ++i) {
    const Entry entry = file->entry(i);
    require(file->find(entry.key)->offset == entry.offset);
    sum += look_at(entry.value);
    writer.add_value(entry.key, entry.value);
  }
  std::vector<float> floats;
  for (std::size_t i = 0; i < file->tensor_count(); ++i) {
    const Tensor tensor = file->tensor(i);
    require(file->tensor(tensor.name)->data.data() == tensor.data.data());
    for (const std::byte byte : tensor.data) sum += std::to_integer<std::uint64_t>(byte);
    writer.add_tensor(tensor.name, tensor.type, {tensor.shape.begin(), tensor.shape.begin() + tensor.n_dims},
                      tensor.data);
    if (tensor.elements() > 1 << 16) continue;
    floats.resize(tensor.elements());
    require(dequantize(tensor.type, tensor.data, floats).has_value() == type_info(tensor.type).dequantizable);
  }
  // The content can be written, and reads back as the same.
  const auto written = writer.to_memory();
  require(written.has_value());
  const auto again = File::from_memory(*written, "written");
  require(again.has_value() && again->entry_count() == file->entry_count() &&
          again->tensor_count() == file->tensor_count());
  // Never true, but the compiler does not know that.
  require(sum != 0x5EED5EED5EED5EED);
  return 0;
}

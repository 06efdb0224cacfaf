// Models in several files: model-00001-of-00003.gguf and so on. Internal to gguf.
//
// Each part is a GGUF file with tensors of its own. The first also has all the metadata. Each has these keys: split.no
// (from 0), split.count, and split.tensors.count, the number of tensors in all parts together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/gguf/parse.h"

namespace quire::gguf {

struct SplitName {
  std::string prefix;    // before "-00001-of-00003.gguf"
  std::uint32_t number;  // from 1
  std::uint32_t count;
};

// The parts of a path; empty if it does not end like the name of a part.
std::optional<SplitName> parse_split_name(std::string_view path);
std::string split_path(std::string_view prefix, std::uint32_t number, std::uint32_t count);

// The number of parts according to the file; 1 if it does not say.
Result<std::uint32_t> split_count(const Index& part, const std::string& name);

// Checks that the file says it is part `number` (from 1) of `count`. `name` is for messages.
Result<void> check_part(const Index& part, const std::string& name, std::uint32_t number, std::uint32_t count);

// Checks that all parts together have as many tensors as this part says, if it says so.
Result<void> check_tensor_count(const Index& part, const std::string& name, std::uint64_t tensors);

}  // namespace quire::gguf

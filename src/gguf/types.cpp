#include "quire/gguf/types.h"

#include <algorithm>
#include <array>

#include "quire/base/check.h"
#include "quire/base/numbers.h"

namespace quire::gguf {

namespace {

constexpr TypeInfo only_named(std::uint32_t id, std::string_view name) {
  return {static_cast<Type>(id), name, 0, 0, false};
}

// In the order of ids: the index is the id.
constexpr std::array kTypes = {
    TypeInfo{Type::F32, "F32", 1, 4, true},
    TypeInfo{Type::F16, "F16", 1, 2, true},
    TypeInfo{Type::Q4_0, "Q4_0", 32, 18, true},
    TypeInfo{Type::Q4_1, "Q4_1", 32, 20, true},
    only_named(4, "Q4_2"),
    only_named(5, "Q4_3"),
    TypeInfo{Type::Q5_0, "Q5_0", 32, 22, true},
    TypeInfo{Type::Q5_1, "Q5_1", 32, 24, true},
    TypeInfo{Type::Q8_0, "Q8_0", 32, 34, true},
    TypeInfo{Type::Q8_1, "Q8_1", 32, 36, false},
    TypeInfo{Type::Q2_K, "Q2_K", 256, 84, true},
    TypeInfo{Type::Q3_K, "Q3_K", 256, 110, true},
    TypeInfo{Type::Q4_K, "Q4_K", 256, 144, true},
    TypeInfo{Type::Q5_K, "Q5_K", 256, 176, true},
    TypeInfo{Type::Q6_K, "Q6_K", 256, 210, true},
    TypeInfo{Type::Q8_K, "Q8_K", 256, 292, false},
    TypeInfo{Type::IQ2_XXS, "IQ2_XXS", 256, 66, true},
    TypeInfo{Type::IQ2_XS, "IQ2_XS", 256, 74, true},
    TypeInfo{Type::IQ3_XXS, "IQ3_XXS", 256, 98, true},
    TypeInfo{Type::IQ1_S, "IQ1_S", 256, 50, true},
    TypeInfo{Type::IQ4_NL, "IQ4_NL", 32, 18, true},
    TypeInfo{Type::IQ3_S, "IQ3_S", 256, 110, true},
    TypeInfo{Type::IQ2_S, "IQ2_S", 256, 82, true},
    TypeInfo{Type::IQ4_XS, "IQ4_XS", 256, 136, true},
    TypeInfo{Type::I8, "I8", 1, 1, false},
    TypeInfo{Type::I16, "I16", 1, 2, false},
    TypeInfo{Type::I32, "I32", 1, 4, false},
    TypeInfo{Type::I64, "I64", 1, 8, false},
    TypeInfo{Type::F64, "F64", 1, 8, false},
    TypeInfo{Type::IQ1_M, "IQ1_M", 256, 56, true},
    TypeInfo{Type::BF16, "BF16", 1, 2, true},
    only_named(31, "Q4_0_4_4"),
    only_named(32, "Q4_0_4_8"),
    only_named(33, "Q4_0_8_8"),
    TypeInfo{Type::TQ1_0, "TQ1_0", 256, 54, true},
    TypeInfo{Type::TQ2_0, "TQ2_0", 256, 66, true},
    only_named(36, "IQ4_NL_4_4"),
    only_named(37, "IQ4_NL_4_8"),
    only_named(38, "IQ4_NL_8_8"),
    TypeInfo{Type::MXFP4, "MXFP4", 32, 17, true},
    TypeInfo{Type::NVFP4, "NVFP4", 64, 36, false},
    only_named(41, "Q1_0"),
};

constexpr bool in_order() {
  for (std::size_t id = 0; id < kTypes.size(); ++id) {
    if (kTypes[id].type != static_cast<Type>(id)) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

const TypeInfo* find_type(std::uint32_t id) { return id < kTypes.size() ? &kTypes[id] : nullptr; }

const TypeInfo* find_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &TypeInfo::name);
  return found == kTypes.end() ? nullptr : found;
}

const TypeInfo& type_info(Type type) {
  const TypeInfo* info = find_type(static_cast<std::uint32_t>(type));
  QUIRE_CHECK(info != nullptr, "a Type that is not in the enum");
  return *info;
}

std::string_view type_name(Type type) { return type_info(type).name; }

std::optional<std::uint64_t> byte_size(Type type, std::uint64_t elements) {
  const TypeInfo& info = type_info(type);
  if (info.block_size == 0 || elements % info.block_size != 0) return std::nullopt;
  return checked_mul<std::uint64_t>(elements / info.block_size, info.block_bytes);
}

}  // namespace quire::gguf

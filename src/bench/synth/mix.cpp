#include "quire/bench/synth/mix.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>

#include <fmt/format.h>

#include "quire/bench/synth/synth.h"

namespace quire::synth {
namespace {

using gguf::Type;

// general.file_type has a number for each mix. A plain type with blocks of 256 that has no number uses that of its
// smallest mix. MXFP4_MOE is how gpt-oss is published: experts in MXFP4, all else in Q8_0.
constexpr Mix kMixes[] = {
    {"F32", Type::F32, 0},      {"F16", Type::F16, 1},        {"BF16", Type::BF16, 32},      {"Q8_0", Type::Q8_0, 7},
    {"Q4_0", Type::Q4_0, 2},    {"Q4_1", Type::Q4_1, 3},      {"Q5_0", Type::Q5_0, 8},       {"Q5_1", Type::Q5_1, 9},
    {"Q2_K", Type::Q2_K, 10},   {"Q3_K", Type::Q3_K, 11},     {"Q4_K", Type::Q4_K, 14},      {"Q5_K", Type::Q5_K, 16},
    {"Q6_K", Type::Q6_K, 18},   {"IQ4_NL", Type::IQ4_NL, 25}, {"IQ4_XS", Type::IQ4_XS, 30},  {"Q3_K_S", Type::Q3_K, 11},
    {"Q3_K_M", Type::Q3_K, 12}, {"Q3_K_L", Type::Q3_K, 13},   {"Q4_K_S", Type::Q4_K, 14},    {"Q4_K_M", Type::Q4_K, 15},
    {"Q5_K_S", Type::Q5_K, 16}, {"Q5_K_M", Type::Q5_K, 17},   {"MXFP4_MOE", Type::Q8_0, 38},
};

bool is_float(Type type) { return type == Type::F32 || type == Type::F16 || type == Type::BF16; }

// The first and the last eighth of the layers, and every third one between them.
bool more_bits(std::uint32_t index, std::uint32_t count) {
  return index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2;
}

bool whole_blocks(Type type, std::uint64_t columns) { return columns % gguf::type_info(type).block_size == 0; }

}  // namespace

Type Mix::choose(Role role, std::uint32_t index, std::uint32_t count, bool stacked) const {
  if (stacked && name == "MXFP4_MOE") return Type::MXFP4;
  if (role == Role::output) return is_float(type) || type == Type::Q8_0 ? type : Type::Q6_K;
  const bool value = role == Role::attention_value, down = role == Role::feed_forward_down;
  if (name == "Q3_K_M") {
    if (value) return index < 2 ? Type::Q5_K : Type::Q4_K;
    if (down) return index < count / 16 ? Type::Q5_K : Type::Q4_K;
    if (role == Role::attention_output) return Type::Q4_K;
  } else if (name == "Q3_K_L") {
    if (value || down || role == Role::attention_output) return Type::Q5_K;
  } else if (name == "Q4_K_S") {
    if ((value && index < 4) || (down && index < count / 8)) return Type::Q5_K;
  } else if (name == "Q4_K_M" || name == "Q5_K_M") {
    if ((value || down) && more_bits(index, count)) return Type::Q6_K;
  }
  return type;
}

const Mix* find_mix(std::string_view name) {
  std::string upper(name);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const Mix* found = std::ranges::find(kMixes, upper, &Mix::name);
  return found == std::end(kMixes) ? nullptr : found;
}

const std::vector<std::string>& type_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Mix& mix : kMixes) all.emplace_back(mix.name);
    return all;
  }();
  return names;
}

Result<Type> fit(Type wanted, Role role, std::uint64_t columns) {
  if (whole_blocks(wanted, columns)) return wanted;
  Type instead = wanted;
  if (role == Role::output) {
    instead = Type::Q8_0;
  } else {
    switch (wanted) {
      case Type::IQ4_XS: instead = Type::IQ4_NL; break;
      case Type::Q2_K:
      case Type::Q3_K: instead = Type::Q4_0; break;
      case Type::Q4_K: instead = Type::Q5_0; break;
      case Type::Q5_K: instead = Type::Q5_1; break;
      case Type::Q6_K: instead = Type::Q8_0; break;
      default: break;
    }
  }
  if (gguf::type_info(wanted).block_size == 256) return whole_blocks(instead, columns) ? instead : Type::F16;
  return fail(fmt::format("rows of {} elements are not whole blocks of {}, which have {}", columns,
                          gguf::type_name(wanted), gguf::type_info(wanted).block_size));
}

}  // namespace quire::synth

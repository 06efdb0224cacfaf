// Numbers formatted for people.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

// "8,735,104"
std::string grouped(std::uint64_t number);

// "8.3 MiB"; below a KiB "312 bytes".
std::string in_units(std::uint64_t bytes);

// "8.1 M", "7.2 B": the usual form for parameter counts.
std::string in_millions(std::uint64_t number);

}  // namespace quire

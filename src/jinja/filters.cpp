#include "quire/jinja/filters.h"

#include <algorithm>

namespace quire::jinja {

const Filter* find_filter(std::string_view name) {
  for (const auto filters : {text_filters(), number_filters(), sequence_filters(), selection_filters()}) {
    const auto found = std::ranges::find(filters, name, &Filter::name);
    if (found != filters.end()) return &*found;
  }
  return nullptr;
}

}  // namespace quire::jinja

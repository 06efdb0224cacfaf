#include "quire/jinja/filters.h"

#include <algorithm>

#include <fmt/format.h>

#include "quire/jinja/left_out.h"
#include "quire/jinja/print.h"

namespace quire::jinja {

const Filter* find_filter(std::string_view name) {
  for (const auto filters : {text_filters(), number_filters(), sequence_filters(), selection_filters()}) {
    const auto found = std::ranges::find(filters, name, &Filter::name);
    if (found != filters.end()) return &*found;
  }
  return nullptr;
}

void fail_no_filter(std::string_view name) {
  fail_operation(is_left_out(kLeftOutFilters, name) ? left_out_message("the filter", name)
                                                    : fmt::format("No filter named {}.", quoted(name)));
}

}  // namespace quire::jinja

// The page of docs/ that a report of the benchmark is written into.
//
// Who may call: anyone. What holds: nothing of the page but what is between the two lines (quire/bench/report.h) is
//   changed, and the page is either the old or the new one whatever happens.
// How it fails: with one line that names the page: it has not both lines once and in their order, or cannot be written.
#pragma once

#include <string>
#include <string_view>

#include "quire/base/error.h"

namespace quire::cli {

Result<void> check_report_page(const std::string& path);
Result<void> write_report_page(const std::string& path, std::string_view report);

}  // namespace quire::cli

// Writes the report of the benchmark into a page of docs/.
//
// Who may call: anyone.
// What holds: only the text between the two marker lines (quire/bench/report.h) changes. After a failure the page is
//   either the old or the new one, never a mixture.
// How it fails: with one line that names the page: the two marker lines are not there exactly once and in order, or the
//   page cannot be written.
#pragma once

#include <string>
#include <string_view>

#include "quire/base/error.h"

namespace quire::cli {

Result<void> check_report_page(const std::string& path);
Result<void> write_report_page(const std::string& path, std::string_view report);

}  // namespace quire::cli

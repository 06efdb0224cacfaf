#include "quire/cli/report_page.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "quire/bench/report.h"
#include "quire/cli/input.h"
#include "quire/cli/printable.h"

namespace quire::cli {
namespace {

constexpr std::size_t kMostPageBytes = std::size_t{16} << 20;

Result<std::string> read_with_report(const std::string& path, std::string_view report) {
  const auto page = read_input(path, kMostPageBytes);
  if (!page) return page;
  auto text = bench::with_report(*page, report);
  if (!text) return fail(fmt::format("{}: {}", text::printable(path), text.error().message));
  return text;
}

}  // namespace

Result<void> check_report_page(const std::string& path) {
  const auto page = read_with_report(path, "");
  if (!page) return std::unexpected(page.error());
  return {};
}

Result<void> write_report_page(const std::string& path, std::string_view report) {
  // Read again: the page may have changed during the long measurement.
  const auto page = read_with_report(path, report);
  if (!page) return std::unexpected(page.error());
  const std::string partial = path + ".partial";
  const auto give_up = [&] {
    const std::string why = std::generic_category().message(errno);
    std::remove(partial.c_str());
    return fail(fmt::format("{}: cannot be written: {}", text::printable(path), why));
  };
  {
    std::ofstream out(partial, std::ios::binary);
    out << *page;
    if (!out.flush()) return give_up();
  }
  if (std::rename(partial.c_str(), path.c_str()) != 0) return give_up();
  return {};
}

}  // namespace quire::cli

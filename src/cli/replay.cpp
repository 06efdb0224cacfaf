#include "quire/cli/replay.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include "quire/base/readable.h"
#include "quire/journal/replay.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using journal::ReplayReport;

std::string summary(const ReplayReport& report) {
  std::string out;
  if (report.header) {
    const auto& [config, geometry] = *report.header;
    out += fmt::format("pool        {}, {} sequences of {} tokens\n", in_units(geometry.slab_bytes * geometry.slabs),
                       config.max_sequences, grouped(config.max_tokens));
  }
  out += fmt::format("records     {} ({} bytes)\n", grouped(report.records), grouped(report.bytes));
  for (std::size_t k = 0; k < report.operations.size(); ++k) {
    if (report.operations[k] == 0) continue;
    out += fmt::format("  {:<11} {:>13}\n", name(static_cast<PoolOperation::Kind>(k)), grouped(report.operations[k]));
  }
  out += fmt::format("sequences   {}\n", grouped(report.sequences));
  const double reused = report.prompt_tokens == 0 ? 0
                                                  : 100.0 * static_cast<double>(report.hit_tokens) /
                                                        static_cast<double>(report.prompt_tokens);
  out +=
      fmt::format("tokens      {} in prompts, {} of them reused ({:.1f} %), {} computed\n",
                  grouped(report.prompt_tokens), grouped(report.hit_tokens), reused, grouped(report.committed_tokens));
  out += fmt::format("refusals    {}\n", grouped(report.refusals));
  if (report.unchecked > 0) {
    out += fmt::format("unchecked   {} (after a device error, or beside plain pages)\n", grouped(report.unchecked));
  }
  return out;
}

json::object as_json(const ReplayOptions& options, const ReplayReport& report) {
  json::object operations;
  for (std::size_t k = 0; k < report.operations.size(); ++k) {
    operations[name(static_cast<PoolOperation::Kind>(k))] = report.operations[k];
  }
  json::object out = {{"file", options.path},
                      {"records", report.records},
                      {"bytes", report.bytes},
                      {"operations", std::move(operations)},
                      {"sequences", report.sequences},
                      {"prompt_tokens", report.prompt_tokens},
                      {"hit_tokens", report.hit_tokens},
                      {"computed_tokens", report.committed_tokens},
                      {"refusals", report.refusals},
                      {"device_errors", report.device_errors},
                      {"unchecked", report.unchecked},
                      {"difference", nullptr},
                      {"damage", nullptr}};
  if (const auto& found = report.difference) {
    out["difference"] = {{"record", found->record},
                         {"offset", found->offset},
                         {"operation", found->operation},
                         {"pool", found->pool},
                         {"reference", found->reference}};
  }
  if (const auto& found = report.damage) {
    out["damage"] = {
        {"record", found->record}, {"offset", found->offset}, {"truncated", found->at_end}, {"what", found->what}};
  }
  return out;
}

}  // namespace

Result<std::string> replay(const ReplayOptions& options, const Console& console) {
  std::error_code unknown;
  if (std::filesystem::is_directory(options.path, unknown)) {
    return fail(fmt::format("{}: is a directory, not a file", options.path));
  }
  errno = 0;
  std::vector<char> buffer(std::size_t{1} << 20);
  std::ifstream in;
  in.rdbuf()->pubsetbuf(buffer.data(), static_cast<std::streamsize>(buffer.size()));
  in.open(options.path, std::ios::binary);
  if (!in) return fail(fmt::format("{}: {}", options.path, std::generic_category().message(errno)));

  const ReplayReport report = journal::replay(in);
  const std::string text = options.json ? json::serialize(as_json(options, report)) + "\n" : summary(report);
  if (report.clean()) return options.json ? text : text + "no difference\n";
  if (report.header || options.json) (void)console.out.write(text);  // of a file that is no journal, nothing is known
  if (const auto& found = report.difference) {
    return fail(fmt::format("{}: record {} at byte {}: {}: the pool said: {}; the reference model: {}", options.path,
                            found->record, found->offset, found->operation, found->pool, found->reference));
  }
  const journal::JournalDamage& damage = *report.damage;
  if (damage.record == 0) return fail(fmt::format("{}: {}", options.path, damage.what));
  return fail(fmt::format("{}: record {} at byte {} is {}: {}; no difference before it", options.path, damage.record,
                          damage.offset, damage.at_end ? "incomplete" : "damaged", damage.what));
}

std::function<Result<std::string>(const Style&)> add_replay(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("replay", "Check the journal of a server's pool against the reference model");
  auto options = std::make_shared<ReplayOptions>();
  command->add_option("FILE", options->path, "The journal: a file that 'quire serve --journal FILE' has written")
      ->required()
      ->type_name(std::string());
  command->add_flag("--json", options->json, "Print one line of JSON");
  command->footer(
      "Runs every operation of the journal on a simple model of the pool, and compares\n"
      "each answer and the number of pages, checkpoints and known blocks after it.\n"
      "Prints a summary and 'no difference', or fails with the first record that differs\n"
      "or is damaged. A journal that ends within a record is incomplete: the server was\n"
      "killed, or the disk was full. Everything before that record is checked.\n\n"
      "  quire serve --journal pool.journal\n"
      "  quire replay pool.journal");
  return [options, &console](const Style&) { return replay(*options, console); };
}

}  // namespace quire::cli

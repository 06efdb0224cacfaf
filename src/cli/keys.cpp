#include "quire/cli/keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/base/readable.h"
#include "quire/cli/options.h"
#include "quire/cli/printable.h"
#include "quire/cli/sizes.h"
#include "quire/engine/request.h"
#include "quire/server/key_file.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using server::KeyFile;
using server::StoredKey;
using server::Tenant;
using server::to_json;

void change(Tenant& tenant, const KeysOptions& options) {
  tenant.weight = options.weight.value_or(tenant.weight);
  tenant.max_sequences = options.max_sequences.value_or(tenant.max_sequences);
  tenant.tokens_per_minute = options.tokens_per_minute.value_or(tenant.tokens_per_minute);
  tenant.max_priority = options.max_priority.value_or(tenant.max_priority);
  tenant.floor_bytes = options.floor_bytes.value_or(tenant.floor_bytes);
  tenant.cap_bytes = options.cap_bytes.value_or(tenant.cap_bytes);
  tenant.admin = options.admin.value_or(tenant.admin);
}

bool changes_anything(const KeysOptions& options) {
  return options.weight || options.max_sequences || options.tokens_per_minute || options.max_priority ||
         options.floor_bytes || options.cap_bytes || options.admin;
}

std::string listed(const std::vector<StoredKey>& keys) {
  using Row = std::array<std::string, 10>;
  const auto or_dash = [](auto value) { return value == 0 ? std::string("-") : fmt::format("{}", value); };
  const auto bytes = [](std::uint64_t value) { return value == 0 ? std::string("-") : in_units(value); };
  std::vector<Row> rows = {
      {"ID", "NAME", "WEIGHT", "SEQUENCES", "TOKENS/MIN", "PRIORITY", "FLOOR", "CAP", "ADMIN", "CREATED"}};
  for (const StoredKey& key : keys) {
    const Tenant& tenant = key.tenant;
    rows.push_back({fmt::format("{}", tenant.id), printable(tenant.name), fmt::format("{:g}", tenant.weight),
                    or_dash(tenant.max_sequences), or_dash(tenant.tokens_per_minute),
                    fmt::format("{}", tenant.max_priority), bytes(tenant.floor_bytes), bytes(tenant.cap_bytes),
                    tenant.admin ? "yes" : "no", printable(key.created, {.limit = 40})});
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const Row& other : rows) width = std::max(width, other[column].size());
      fmt::format_to(std::back_inserter(line), "{:<{}}", row[column], width + 2);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

Result<std::string> list(const KeysOptions& options) {
  const auto file = KeyFile::read(options.file);
  if (!file) return std::unexpected(file.error());
  if (!options.json) return listed(file->keys());
  json::array all;
  for (const StoredKey& key : file->keys()) {
    json::object one = to_json(key.tenant);
    one["created"] = key.created;
    all.push_back(std::move(one));
  }
  return json_line(json::object{{"keys", std::move(all)}});
}

Result<std::string> add(const KeysOptions& options, const Console& console) {
  std::string key;
  Tenant tenant{.name = options.name};
  change(tenant, options);
  const auto done = server::edit_key_file(options.file, true, [&](KeyFile& file) -> Result<void> {
    auto added = file.add(tenant);
    if (!added) return std::unexpected(added.error());
    key = std::move(*added);
    tenant = file.keys().back().tenant;
    return {};
  });
  if (!done) return std::unexpected(done.error());
  (void)console.err.write(
      fmt::format("quire: {} has the id {}. Its key is shown only now; servers know it after SIGHUP\n",
                  printable(tenant.name), tenant.id));
  if (!options.json) return key + "\n";
  json::object out = to_json(tenant);
  out["key"] = key;
  return json_line(out);
}

// set and revoke
Result<std::string> edit(const KeysOptions& options) {
  Tenant tenant;
  const auto done = server::edit_key_file(options.file, false, [&](KeyFile& file) -> Result<void> {
    auto edited = options.action == "revoke" ? file.revoke(options.name)
                                             : file.change(options.name, [&](Tenant& one) { change(one, options); });
    if (!edited) return std::unexpected(edited.error());
    tenant = std::move(*edited);
    return {};
  });
  if (!done) return std::unexpected(done.error());
  if (options.json) return json_line(to_json(tenant));
  return fmt::format("{} (id {}) is {}; servers know it after SIGHUP\n", printable(tenant.name), tenant.id,
                     options.action == "revoke" ? "revoked" : "changed");
}

// An option whose value may be missing: then `value` stays empty.
template <typename T>
void add_optional(CLI::App& command, const std::string& name, std::optional<T>& value, Range<T> range,
                  const std::string& help) {
  command
      .add_option_function<std::string>(
          name,
          [name, range, &value](const std::string& text) {
            T given{};
            const char* const end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, given);
            if (rest != end || error != std::errc() || !(given >= range.least && given <= range.most)) {
              refuse(name, text, fmt::format("is not a number from {} to {}", range.least, range.most));
            }
            value = given;
          },
          help)
      ->type_name("N");
}

void add_size(CLI::App& command, const std::string& name, std::optional<std::uint64_t>& value,
              const std::string& help) {
  command
      .add_option_function<std::string>(
          name,
          [name, &value](const std::string& text) {
            value = text == "0" ? 0 : parse_bytes(text);
            if (!value) refuse(name, text, "is not an amount of memory like 512M, 2G or 0");
          },
          help)
      ->type_name("SIZE");
}

// Whether the arguments go with the action. The action itself was checked.
void check(const KeysOptions& options) {
  const bool named = options.action != "list";
  if (named && options.name.empty()) throw CLI::RequiredError("NAME");
  if (!named && !options.name.empty()) throw CLI::ValidationError("NAME", "'list' shows all keys and takes no name");
  if (options.action == "set" && !changes_anything(options)) {
    throw CLI::ValidationError("set", "nothing to change is given");
  }
  if ((options.action == "list" || options.action == "revoke") && changes_anything(options)) {
    throw CLI::ValidationError(options.action, "options that change a key go with 'add' and 'set'");
  }
}

}  // namespace

Result<std::string> keys(const KeysOptions& options, const Console& console) {
  if (options.action == "list") return list(options);
  return options.action == "add" ? add(options, console) : edit(options);
}

std::function<Result<std::string>(const Style&)> add_keys(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("keys", "Give, list, change and revoke the API keys of a server");
  auto options = std::make_shared<KeysOptions>();
  command
      ->add_option_function<std::string>(
          "ACTION",
          [options](const std::string& text) {
            check_name("ACTION", text, text, {"add", "list", "set", "revoke"});
            options->action = text;
          },
          "add: give a new key; list: show all; set: change one;\nrevoke: take one back")
      ->required()
      ->type_name(std::string());
  command->add_option("NAME", options->name, "Whose key it is; set and revoke also take its id")
      ->type_name(std::string());
  command->add_option("--keys", options->file, "The file of keys; add creates it")->required()->type_name("FILE");
  add_optional<double>(*command, "--weight", options->weight, {1e-6, 1e6},
                       "Share of the tokens, compared with the weights of others\n(default: 1)");
  add_optional<std::uint32_t>(*command, "--max-sequences", options->max_sequences, {},
                              "Sequences that run at once; 0: no limit of its own\n(default: 0)");
  add_optional<std::uint32_t>(*command, "--tokens-per-minute", options->tokens_per_minute, {},
                              "Tokens computed and generated a minute; 0: no limit\n(default: 0)");
  add_optional<std::int32_t>(*command, "--max-priority", options->max_priority,
                             {-engine::kMostPriority, engine::kMostPriority},
                             "Highest 'priority' of its requests (default: 0)");
  add_size(*command, "--floor", options->floor_bytes, "Cached bytes that others do not evict, e.g. 64M (default: 0)");
  add_size(*command, "--cap", options->cap_bytes, "Most cached bytes it may have; 0: no limit (default: 0)");
  auto* admin = command->add_flag_callback(
      "--admin", [options] { options->admin = true; }, "Sees the sequences and the usage of all tenants");
  command
      ->add_flag_callback(
          "--no-admin", [options] { options->admin = false; }, "Does not (the default)")
      ->excludes(admin);
  command->add_flag("--json", options->json, "Print one line of JSON");
  command->footer(
      "The key is printed once, by add. The file has only a hash of it. A server that\n"
      "runs with --keys FILE reads the file again when it gets SIGHUP.\n\n"
      "  quire keys add ann --weight 2 --keys keys.json\n"
      "  quire serve --keys keys.json\n"
      "  quire keys revoke ann --keys keys.json && kill -HUP PID");
  command->callback([options] { check(*options); });
  return [options, &console](const Style&) { return keys(*options, console); };
}

}  // namespace quire::cli

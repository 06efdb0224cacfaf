#include "quire/cli/serve.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/cli/input.h"
#include "quire/cli/option_sources.h"
#include "quire/cli/options.h"
#include "quire/cli/printable.h"
#include "quire/engine/hosted_model.h"
#include "quire/jinja/template.h"
#include "quire/journal/journal_writer.h"
#include "quire/server/keys.h"

namespace quire::cli {
namespace {

constexpr std::size_t kMaxKeyFileBytes = std::size_t{1} << 20;

// Every connection needs a descriptor, and the default limit of a shell is low.
void raise_descriptor_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

// Null if no journal is wanted.
Result<std::unique_ptr<journal::JournalWriter>> open_journal(const std::string& path, const Console& console) {
  if (path.empty()) return nullptr;
  const auto report = [&console](const std::string& line) {
    (void)console.err.write(fmt::format("quire: {}\n", printable(line)));
  };
  return journal::JournalWriter::create(path, {.on_error = report});
}

// An option with a time in seconds.
void add_seconds(CLI::App& command, const std::string& name, std::chrono::milliseconds& value,
                 const std::string& help) {
  command
      .add_option_function<std::string>(
          name,
          [name, &value](const std::string& text) {
            double seconds = -1;
            const char* const end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, seconds);
            constexpr double kMost = 1e6;
            if (rest != end || error != std::errc() || !(seconds >= 0 && seconds <= kMost)) {
              refuse(name, text, "is not a number of seconds from 0 to 1000000");
            }
            value = std::chrono::milliseconds(std::llround(seconds * 1000));
          },
          help)
      ->type_name("SECONDS");
}

// Where else the server listens, for which hosts it answers, and what it logs.
void add_edge_options(CLI::App& command, ServeOptions& options) {
  server::HttpOptions& http = options.server.http;
  command
      .add_option("--unix", http.unix_path, "Listen on a Unix socket, and on no port unless --host or --port is\ngiven")
      ->type_name("PATH");
  command
      .add_option_function<std::string>(
          "--unix-mode",
          [&http](const std::string& text) {
            const char* const end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, http.unix_mode, 8);
            if (rest != end || error != std::errc() || http.unix_mode > 0777) {
              refuse("--unix-mode", text, "is not an octal number from 0 to 777");
            }
          },
          "Permissions of that socket (default: 600)")
      ->type_name("MODE");
  CLI::Option* const certificate =
      command.add_option("--tls-cert", http.tls_certificate, "Speak TLS, with the certificates in this PEM file")
          ->type_name("FILE");
  CLI::Option* const key =
      command.add_option("--tls-key", http.tls_key, "The certificate's private key, a PEM file")->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  command
      .add_option("--allowed-host", http.allowed_hosts,
                  "Answer requests for this host too (may be given several times).\nOn loopback the default is "
                  "localhost and the address; *: any host")
      ->allow_extra_args(false)
      ->type_name("NAME");
  command
      .add_option_function<std::string>(
          "--log-format",
          [&options](const std::string& text) {
            check_name("--log-format", text, text, {"text", "json", "none"});
            options.log_format = text == "text"   ? ServeLog::Format::Text
                                 : text == "json" ? ServeLog::Format::Json
                                                  : ServeLog::Format::None;
          },
          "Log each request as text or json, or none (default: text)")
      ->type_name("FORMAT");
}

// Names the variable of each option in its help.
void name_variables(CLI::App& command) {
  constexpr std::size_t kColumns = 70;
  for (CLI::Option* option : command.get_options([](const CLI::Option*) { return true; })) {
    if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
    const std::string about = option->get_description();
    const std::string variable = fmt::format("[{}]", variable_of("--" + option->get_lnames().front()));
    const std::size_t last = about.size() - (about.rfind('\n') == std::string::npos ? 0 : about.rfind('\n') + 1);
    option->description(fmt::format("{}{}{}", about, last + 1 + variable.size() > kColumns ? '\n' : ' ', variable));
  }
}

}  // namespace

Result<std::string> serve(ServeOptions options, const Console& console) {
  for (const std::string& file : options.key_files) {
    const auto text = read_input(file, kMaxKeyFileBytes);
    if (!text) return std::unexpected(text.error());
    auto keys = server::keys_in(*text);
    // Without keys the server would accept everyone, which is not what a key file is for.
    if (keys.empty()) return fail(fmt::format("{}: there is no key in this file", file));
    options.server.keys.insert(options.server.keys.end(), keys.begin(), keys.end());
  }
  if (!options.template_path.empty()) {
    auto source = read_input(options.template_path, jinja::Template::kMaxSourceBytes);
    if (!source) return std::unexpected(source.error());
    options.server.chat_template = {.source = std::move(*source), .name = input_name(options.template_path)};
  }
  std::optional<std::chrono::microseconds> target_itl;
  if (options.target_itl >= 0) target_itl = std::chrono::milliseconds(options.target_itl);
  const auto journal = open_journal(options.journal, console);  // outlives the pool
  if (!journal) return std::unexpected(journal.error());
  const auto tiers = open_tiers(options.tiers, [&console](const std::string& line) {
    (void)console.err.write(fmt::format("quire: {}\n", printable(line)));
  });
  if (!tiers) return std::unexpected(tiers.error());
  if (*tiers != nullptr && options.no_cache) return fail("--no-prefix-cache leaves nothing that a cache could keep");
  auto host =
      load(options.model,
           {.max_sequences = options.max_sequences,
            .step_tokens = options.step_tokens,
            .prefix_cache = !options.no_cache,
            .journal = journal->get(),
            .tiers = *tiers,
            .engine = {.queue_limit = options.queue, .target_itl = target_itl, .host_cache_bytes = options.tiers.host}},
           console);
  if (!host) return std::unexpected(host.error());
  auto left = serve(std::move(*host), std::move(options), console);
  if (*journal != nullptr) (void)(*journal)->close();  // an error has been reported when it happened
  return left;
}

Result<std::string> serve(std::unique_ptr<engine::HostedModel> host, ServeOptions options, const Console& console) {
  const auto mebibytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const std::size_t count = host->model().adapters().size();
  const std::string adapters = count == 0 ? ""
                                          : fmt::format(" {} adapter{} {:.1f} MiB,", count, count == 1 ? "" : "s",
                                                        mebibytes(host->model().adapter_bytes()));
  // The device comes first: a GPU that the server may not open is otherwise seen only by the time that answers take.
  const BackendFacts device = host->backend().facts();
  const std::string threads =
      device.threads == 0 ? "" : fmt::format(" {} thread{},", device.threads, device.threads == 1 ? "" : "s");
  const std::string facts =
      fmt::format("device {} ({}),{} context {} tokens, weights {:.1f} MiB,{} pool {:.1f} MiB, {} sequences at once",
                  device.device, device.variant, threads, host->context(), mebibytes(host->model().weight_bytes()),
                  adapters, mebibytes(host->pool().stats().arena_bytes), options.max_sequences);

  raise_descriptor_limit();
  ServeLog log(console.err, options.log_format);
  const bool has_keys = !options.server.keys.empty() || !options.server.key_file.empty();
  options.server.http.signals = true;
  options.server.http.on_note = [&log](const std::string& line) { log.note(line); };
  options.server.http.on_request = [&log](const server::AccessRecord& record) { log.request(record); };
  auto server = server::Server::create(std::move(host), std::move(options.server));
  if (!server) return std::unexpected(server.error());
  log.note(fmt::format("{}, {}", printable((*server)->model_name()), facts));
  for (const std::string& warning : warnings((*server)->addresses(), has_keys, ::geteuid() == 0)) log.warn(warning);
  // The parent process may wait for these lines. If nobody reads them, the server runs all the same.
  for (const server::ListenAddress& address : (*server)->addresses()) {
    (void)console.out.write(fmt::format("quire: listening on {}\n", printable(address.url)));
  }
  const auto ended = (*server)->run();
  server->reset();
  log.note("stopped");
  if (!ended) return fail(fmt::format("{}; restart the server", ended.error().message));
  return "";
}

std::function<Result<std::string>(const Style&)> add_serve(CLI::App& app, const Console& console) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model: the OpenAI API, and a page that shows the pool");
  auto options = std::make_shared<ServeOptions>();
  server::ServerOptions& server = options->server;
  server::HttpOptions& http = server.http;
  command->add_option("-m,--model", options->model.model, kBundledHelp)->type_name("FILE");
  command->add_option("--alias", server.alias, "Name of the model in the API (default: from its file)")
      ->type_name("TEXT");
  command->add_flag(
      "--any-model", server.any_model,
      "Answer whatever model a request names, with this one (default: an\nunknown name is refused with 404)");
  command->add_option("--chat-template-file", options->template_path, "Use the chat template in this file")
      ->type_name("FILE");
  command
      ->add_option_function<std::string>(
          "--pooling",
          [&server](const std::string& text) {
            for (const auto pooling : {engine::Pooling::Mean, engine::Pooling::First, engine::Pooling::Last}) {
              if (text == name(pooling)) server.pooling = pooling;
            }
            if (!server.pooling) refuse("--pooling", text, "is not one of mean, cls, last");
          },
          "Embeddings: the mean of all positions, the first one (cls) or the\nlast one (default: as the model's file "
          "says, or else last)")
      ->type_name("KIND");
  const CLI::Option* const tcp_host =
      command
          ->add_option("--host", http.host,
                       "Name or address to listen on, e.g. localhost; 0.0.0.0: all\naddresses (default: 127.0.0.1)")
          ->type_name("ADDRESS");
  const CLI::Option* const tcp_port =
      add_number<std::uint16_t>(*command, "--port", http.port, {}, "Port to listen on; 0: a free one (default: 8080)");
  add_edge_options(*command, *options);

  add_model_options(
      *command, options->model,
      "Size of the pool that holds all sequences, e.g. 512M or 2G\n(default: enough for 16 full contexts, "
      "at most half of the free memory)");
  add_adapter_options(*command, options->model, false);
  add_speculation_options(*command, options->model);
  add_number<std::uint32_t>(*command, "--max-sequences", options->max_sequences, {1, 4096},
                            "Sequences in one batch (default: 64)");
  add_number<std::uint32_t>(*command, "--step-tokens", options->step_tokens, {1, 65536},
                            "Tokens in one step, prefill and decode together (default: 256)");
  add_number<std::int32_t>(*command, "--target-itl", options->target_itl, {0, 600'000},
                           "Milliseconds between two tokens of an answer: prompts of others make\na step no longer "
                           "than this. 0: throughput at any price\n(default: twice a step without prompts, at least "
                           "100)");
  add_number<std::uint32_t>(*command, "--queue", options->queue, {0, 1'000'000},
                            "Requests that may wait; further ones are refused with 429\n(default: 256)");
  add_number<std::uint64_t>(*command, "--parse-queue", server.parse_queue, {1, 1'000'000},
                            "Requests that may wait to be parsed; further ones are refused with\n503 (default: 256)");
  command
      ->add_option("--journal", options->journal,
                   "Write every operation on the pool to this file, for 'quire replay'.\nIt holds the tokens of all "
                   "requests")
      ->type_name("FILE");
  add_tier_options(*command, options->tiers);
  command->add_flag("--no-prefix-cache", options->no_cache, "Do not reuse prefixes; compute every prompt in full");

  command
      ->add_option(
          "--api-key", server.keys,
          "Accept only requests with this key (may be given several times).\nKeys do not share cached prefixes")
      ->allow_extra_args(false)
      ->type_name("KEY");
  command->add_option("--api-key-file", options->key_files, "Accept the keys in this file, one per line")
      ->allow_extra_args(false)
      ->type_name("FILE");
  command
      ->add_option("--keys", server.key_file,
                   "Accept the keys in this file, which 'quire keys' writes: each has a\nname, a weight and limits. "
                   "SIGHUP reads it again")
      ->type_name("FILE");
  command
      ->add_option("--cors", server.origins,
                   "Let pages of this origin call the API, e.g. https://example.com;\n*: all origins (default: only "
                   "the server's own)")
      ->allow_extra_args(false)
      ->type_name("ORIGIN");

  add_bytes(*command, "--max-body", http.max_body, "Maximum size of a request body (default: 8M)");
  add_bytes(*command, "--max-header", http.max_header, "Maximum size of a request header (default: 16K)");
  add_number<std::uint64_t>(*command, "--max-connections", http.max_connections, {1, 1'000'000},
                            "Connections at the same time; further ones are refused with 503\n(default: 4096)");
  add_bytes(*command, "--stream-buffer", server.stream_buffer,
            "Bytes buffered for a client that does not read its stream; if there\nare more, its request is cancelled "
            "(default: 1M)");
  add_bytes(
      *command, "--responses-bytes", server.responses_bytes,
      "Memory for the responses of each key, which later ones can continue\n(/v1/responses); 0: none (default: 64M)",
      Zero::Allowed);
  add_seconds(*command, "--responses-age", server.responses_age,
              "Forget a response that was not used for this long (default: 86400)");
  add_number<std::uint32_t>(*command, "--max-sessions", server.max_sessions, {0, 1'000'000},
                            "Sessions of each key (/v1/sessions), and its session files\n(default: 64)");
  add_number<std::uint64_t>(*command, "--session-tokens", server.session_tokens, {},
                            "Tokens of all sessions of a key (default: 1048576)");
  add_seconds(*command, "--session-age", server.session_age,
              "Forget a session that was not used for this long (default: 86400)");
  command
      ->add_option("--session-dir", server.session_dir,
                   "Save sessions in this folder and restore them from there (default:\nsessions cannot be saved)")
      ->type_name("DIR");
  add_seconds(*command, "--header-timeout", http.header_timeout, "Time for a request header to arrive (default: 10)");
  add_seconds(*command, "--body-timeout", http.body_timeout, "Time for a request body to arrive (default: 60)");
  add_seconds(*command, "--idle-timeout", http.idle_timeout,
              "Close a connection that sends no new request for this long\n(default: 75)");
  add_seconds(*command, "--write-timeout", http.write_timeout,
              "Time that a client may go without reading any output (default: 30)");
  add_seconds(*command, "--stream-keep-alive", server.stream_keep_alive,
              "Send a comment in a stream that has been silent for this long, so\nthat proxies keep it open; 0: never "
              "(default: 10)");
  add_seconds(*command, "--request-timeout", server.request_timeout,
              "Time for an answer to be complete (default: 600)");
  add_seconds(
      *command, "--grace", server.grace,
      "Time for running requests to finish after SIGTERM or SIGINT; a\nsecond signal stops at once (default: 10)");
  auto config = std::make_shared<std::string>();  // app.cpp has read it already
  command
      ->add_option("--config", *config,
                   "Read options from this file (default: quire/config.toml below\n$XDG_CONFIG_HOME or ~/.config, if "
                   "it is there)")
      ->type_name("FILE");
  name_variables(*command);
  command->footer(
      "Every option has a variable, in brackets above. In the file, an option is a key\n"
      "without its dashes: port = 8081. The command line goes first, then variables, then\n"
      "the file. A comma separates several keys, hosts or origins in a variable; in the\n"
      "file they are a list: api-key = [\"one\", \"two\"].\n\n"
      "Other users of the machine can see keys on the command line, so prefer a file.\n"
      "Without a key, the server answers everyone who can reach it.\n\n"
      "  quire serve\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d \\\n"
      "    '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'");
  return [options, config, tcp_host, tcp_port, &console](const Style&) {
    // A Unix socket alone is enough, unless TCP is asked for too.
    server::HttpOptions& asked = options->server.http;
    asked.tcp = asked.unix_path.empty() || tcp_host->count() > 0 || tcp_port->count() > 0;
    return serve(std::move(*options), console);
  };
}

}  // namespace quire::cli

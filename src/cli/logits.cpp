#include "quire/cli/logits.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/cli/printable.h"
#include "quire/cli/token_ids.h"
#include "quire/text/tokenizer.h"

namespace quire::cli {

namespace {

namespace json = boost::json;

static_assert(std::endian::native == std::endian::little, "files are written as the machine has the floats");

// A file that gets its name when it is complete. If it fails, nothing is left behind. If the path exists and is not a
// regular file (/dev/stdout, a pipe), the data is written to it directly.
class FloatFile {
 public:
  static Result<FloatFile> create(const std::string& path) {
    FloatFile file;
    file.path_ = path;
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    const bool plain = !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
    file.temporary_ = plain ? path + ".part" : path;
    file.stream_.reset(std::fopen(file.temporary_.c_str(), "wbe"));
    if (file.stream_ == nullptr) return file.failure();
    return file;
  }
  FloatFile(FloatFile&&) = default;
  ~FloatFile() {
    if (stream_ != nullptr) {
      stream_.reset();
      if (temporary_ != path_) std::remove(temporary_.c_str());
    }
  }

  Result<void> write(std::span<const float> floats) {
    if (std::fwrite(floats.data(), sizeof(float), floats.size(), stream_.get()) != floats.size()) return failure();
    return {};
  }
  Result<void> finish() {
    if (std::fflush(stream_.get()) != 0) return failure();
    if (temporary_ != path_ && std::rename(temporary_.c_str(), path_.c_str()) != 0) return failure();
    stream_.reset();
    return {};
  }

 private:
  FloatFile() : stream_(nullptr, std::fclose) {}
  std::unexpected<Error> failure() const {
    return fail(fmt::format("{}: cannot be written: {}", printable(path_), std::generic_category().message(errno)));
  }

  std::string path_, temporary_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream_;
};

struct Likely {
  text::TokenId id = 0;
  float logit = 0;
  double log_probability = 0;
};

std::vector<Likely> likeliest(std::span<const float> row, std::uint32_t count) {
  std::vector<text::TokenId> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [row](text::TokenId id) { return row[static_cast<std::size_t>(id)]; };
  const auto end = order.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end(), [&](text::TokenId a, text::TokenId b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  double sum = 0;
  const double highest = *std::ranges::max_element(row);
  for (const float x : row) sum += std::exp(x - highest);
  std::vector<Likely> out;
  for (auto id = order.begin(); id != end; ++id) {
    out.push_back({*id, logit(*id), logit(*id) - highest - std::log(sum)});
  }
  return out;
}

// The printed output, position by position.
struct Report {
  const LogitsOptions& options;
  const Style& style;
  const std::optional<text::Tokenizer>& tokenizer;
  std::string text;
  json::array positions;

  std::string piece(text::TokenId id) const {
    if (!tokenizer) return "";
    return "  " + printable(tokenizer->piece(id), {.ascii = !style.utf8, .quotes = true});
  }

  void add(std::size_t position, text::TokenId token, std::span<const float> row) {
    if (options.json) {
      json::array tokens;
      for (const Likely& likely : likeliest(row, options.top)) {
        tokens.push_back({{"id", likely.id}, {"logit", likely.logit}, {"logprob", likely.log_probability}});
      }
      positions.push_back({{"position", position}, {"token", token}, {"top", std::move(tokens)}});
      return;
    }
    fmt::format_to(std::back_inserter(text), "{}position {}, after token {}{}\n", text.empty() ? "" : "\n", position,
                   token, piece(token));
    for (const Likely& likely : likeliest(row, options.top)) {
      fmt::format_to(std::back_inserter(text), "{:>9}  {:>11.5f}  {:>6.2f}%{}\n", likely.id, likely.logit,
                     100 * std::exp(likely.log_probability), piece(likely.id));
    }
  }
};

// Takes the rows while they are computed. A failure to write is reported at the end.
class Rows final : public engine::Listener {
 public:
  using Take = std::function<Result<void>(std::size_t position, std::span<const float> row)>;
  explicit Rows(Take take) : take_(std::move(take)) {}

  void on_event(const engine::Event& event) override {
    if (event.kind == engine::Event::Kind::PromptLogits && result) result = take_(event.index, event.logits);
    if (event.kind == engine::Event::Kind::Finished && event.finish == engine::Finish::Failed) {
      result = fail(std::string(event.error));
    }
  }

  Result<void> result;

 private:
  Take take_;
};

}  // namespace

Result<std::string> logits(const LogitsOptions& options, const Console& console) {
  const auto adapter = chosen_adapter(options.model);
  if (!adapter) return std::unexpected(adapter.error());
  engine::HostOptions host_options = one_sequence();
  if (options.all) {
    // The rows of a chunk stay in memory until it is done. With a large vocabulary, short chunks save memory.
    host_options.step_tokens = host_options.max_logits = 32;
  }
  auto host = load(options.model, std::move(host_options), console);
  if (!host) return std::unexpected(host.error());
  const std::size_t vocabulary = (*host)->model().hyperparameters().vocabulary;
  const auto ids = parse_token_ids(options.ids, vocabulary);
  if (!ids) return std::unexpected(ids.error());
  if (ids->empty()) return fail("--ids is an empty list");

  // A test model may have no tokenizer, or an unsupported one. Then only ids are printed.
  std::optional<text::Tokenizer> tokenizer;
  if (auto made = text::Tokenizer::from_gguf((*host)->model().file())) tokenizer.emplace(std::move(*made));
  Report report{.options = options, .style = console.out_style, .tokenizer = tokenizer, .text = {}, .positions = {}};
  std::optional<FloatFile> file;
  if (!options.output.empty()) {
    auto created = FloatFile::create(options.output);
    if (!created) return std::unexpected(created.error());
    file.emplace(std::move(*created));
  }
  const auto rows = std::make_shared<Rows>([&](std::size_t position, std::span<const float> row) -> Result<void> {
    if (file) return file->write(row);
    report.add(position, (*ids)[position], row);
    return {};
  });
  engine::Request request{.prompt = {ids->begin(), ids->end()}, .max_tokens = 0};
  request.adapter = *adapter;
  request.prompt_logits = options.all ? Logits::All : Logits::Last;
  if (const auto id = (*host)->engine().submit(std::move(request), rows); !id) return fail(id.error().message);
  while (rows->result && (*host)->engine().step()) {
  }
  if (!rows->result) return std::unexpected(rows->result.error());
  if (file) {
    if (auto ok = file->finish(); !ok) return std::unexpected(ok.error());
  }
  if (!options.json) return report.text;
  json::object out{
      {"positions", ids->size()}, {"vocabulary", vocabulary}, {"variant", (*host)->backend().facts().variant}};
  if (file) {
    out["file"] = options.output;
    out["rows"] = options.all ? ids->size() : 1;
  } else {
    out["logits"] = std::move(report.positions);
  }
  return json_line(out);
}

}  // namespace quire::cli

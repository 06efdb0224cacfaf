#include "quire/simulate/trace.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <optional>
#include <system_error>
#include <unordered_map>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/base/numbers.h"

namespace quire::simulate {
namespace {

namespace json = boost::json;

// Far more than any model's context, and far later than any trace ends.
constexpr std::uint64_t kMostTokens = 1 << 24;
constexpr double kMostMilliseconds = 1e12;
// Ids of a file are below this; the file's number is above.
constexpr std::uint64_t kMostIds = std::uint64_t{1} << 48;

std::optional<std::uint64_t> whole_number(const json::value& value, std::uint64_t most) {
  std::error_code error;
  const auto number = value.to_number<std::uint64_t>(error);
  if (error || number > most) return std::nullopt;
  return number;
}

// Adds the request of a line to the trace. Returns what is wrong with it.
Result<void> add_line(const std::string& line, std::uint64_t file, Trace& trace) {
  std::error_code error;
  const json::value parsed = json::parse(line, error);
  if (error) return fail(fmt::format("is not JSON ({})", error.message()));
  const json::object* const object = parsed.if_object();
  if (object == nullptr) return fail("is not a JSON object");
  const auto field = [&](const char* name) { return object->if_contains(name); };
  for (const char* name : {"timestamp", "input_length", "output_length", "hash_ids"}) {
    if (field(name) == nullptr) return fail(fmt::format("has no {}", name));
  }
  TraceRequest request{.first_id = trace.ids.size()};
  const auto time = field("timestamp")->to_number<double>(error);
  if (error || !(time >= 0 && time <= kMostMilliseconds)) return fail("timestamp is not a number of milliseconds");
  request.seconds = time / 1e3;
  const auto input = whole_number(*field("input_length"), kMostTokens);
  if (!input || *input == 0) return fail(fmt::format("input_length is not a whole number from 1 to {}", kMostTokens));
  const auto output = whole_number(*field("output_length"), kMostTokens);
  if (!output) return fail(fmt::format("output_length is not a whole number from 0 to {}", kMostTokens));
  request.input = static_cast<std::uint32_t>(*input);
  request.output = static_cast<std::uint32_t>(*output);
  const json::array* const ids = field("hash_ids")->if_array();
  if (ids == nullptr) return fail("hash_ids is not an array");
  if (const std::uint32_t wanted = divide_up(request.input, kTokensOfId); ids->size() != wanted) {
    return fail(fmt::format("{} hash_ids for a prompt of {} tokens; each stands for {} tokens, so there must be {}",
                            ids->size(), request.input, kTokensOfId, wanted));
  }
  for (const json::value& id : *ids) {
    const auto number = whole_number(id, kMostIds - 1);
    if (!number) return fail(fmt::format("hash_ids has something else than whole numbers below {}", kMostIds));
    trace.ids.push_back(file * kMostIds + *number);
  }
  trace.requests.push_back(request);
  return {};
}

Result<void> read_file(const std::string& path, std::uint64_t file, Trace& trace) {
  std::ifstream in(path);
  if (!in) return fail(fmt::format("{}: {}", path, std::generic_category().message(errno)));
  std::string line;
  for (std::uint64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (auto ok = add_line(line, file, trace); !ok) {
      return fail(fmt::format("{}:{}: {}", path, number, ok.error().message));
    }
  }
  if (in.bad()) return fail(fmt::format("{}: cannot be read", path));
  return {};
}

// The finalizer of SplitMix64: a different result for every x.
std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

std::span<const std::uint64_t> Trace::ids_of(const TraceRequest& request) const {
  return std::span(ids).subspan(request.first_id, divide_up(request.input, kTokensOfId));
}

std::vector<Token> Trace::prompt_of(const TraceRequest& request) const {
  constexpr std::uint32_t kTokensOfNumber = 4;  // 16 bits each
  std::vector<Token> prompt;
  prompt.reserve(request.input);
  for (const std::uint64_t id : ids_of(request)) {
    for (std::uint32_t i = 0; i < kTokensOfId / kTokensOfNumber; ++i) {
      std::uint64_t bits = mix_bits(id * (kTokensOfId / kTokensOfNumber) + i);
      for (std::uint32_t t = 0; t < kTokensOfNumber; ++t, bits /= kVocabulary) {
        if (prompt.size() == request.input) return prompt;
        prompt.push_back(static_cast<Token>(bits % kVocabulary));
      }
    }
  }
  return prompt;
}

Result<Trace> read_trace(std::span<const std::string> paths, std::uint64_t limit) {
  Trace trace;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (auto ok = read_file(paths[i], i, trace); !ok) return std::unexpected(ok.error());
  }
  std::ranges::stable_sort(trace.requests, {}, &TraceRequest::seconds);
  if (limit != 0 && trace.requests.size() > limit) trace.requests.resize(limit);
  if (trace.requests.empty()) return fail(fmt::format("{}: has no requests", paths.empty() ? "" : paths.front()));
  return trace;
}

TraceFacts facts_of(const Trace& trace) {
  TraceFacts facts;
  // All prompts as a tree of ids: a node is its parent and an id. The value is the node's own number and how many
  // tokens of the id have been seen; a last id has fewer than 512.
  struct Edge {
    std::uint64_t parent, id;
    bool operator==(const Edge&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Edge& edge) const { return mix_bits(mix_bits(edge.parent) + edge.id); }
  };
  struct Node {
    std::uint64_t number = 0;
    std::uint32_t tokens = 0;
  };
  std::unordered_map<Edge, Node, Hash> nodes;
  for (const TraceRequest& request : trace.requests) {
    std::uint64_t parent = 0;
    std::uint32_t left = request.input, common = 0;
    bool repeats = true;
    for (const std::uint64_t id : trace.ids_of(request)) {
      const std::uint32_t tokens = std::min(left, kTokensOfId);
      Node& node = nodes[{parent, id}];
      if (node.number == 0) node.number = nodes.size();
      if (repeats) common += std::min(tokens, node.tokens);
      repeats = repeats && node.tokens == kTokensOfId;
      node.tokens = std::max(node.tokens, tokens);
      parent = node.number;
      left -= tokens;
    }
    facts.prompt_tokens += request.input;
    facts.output_tokens += request.output;
    facts.repeated_tokens += std::min(common, request.input - 1);
    facts.longest = std::max(facts.longest, request.input + request.output);
  }
  facts.seconds = trace.requests.back().seconds - trace.requests.front().seconds;
  return facts;
}

}  // namespace quire::simulate

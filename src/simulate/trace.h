// A trace: when which requests came to a server, with their lengths and with what their prompts have in common. The
// format is the public one of Mooncake, JSON lines:
//
//   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353, 2354]}
//
// The timestamp is in milliseconds. An id stands for 512 tokens of the prompt; the last one may stand for fewer. Two
// prompts with the same first ids have the same first tokens. Other fields are ignored.
//
// Who may call: anyone, from any thread; a trace does not change.
// What holds: requests are in the order of their time. Only ids are kept, not tokens: a trace takes about as much
//   memory as its file. Ids of different files are different.
// How it fails: read_trace() returns one line with the file, the number of the line and what is wrong there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/state/ids.h"

namespace quire::simulate {

inline constexpr std::uint32_t kTokensOfId = 512;
inline constexpr std::uint32_t kVocabulary = 1 << 16;  // of the made-up tokens

struct TraceRequest {
  double seconds = 0;  // when it came
  std::uint32_t input = 0;
  std::uint32_t output = 0;
  std::uint64_t first_id = 0;  // in Trace::ids; there are ceil(input / 512)
};

struct Trace {
  std::vector<TraceRequest> requests;
  std::vector<std::uint64_t> ids;

  std::span<const std::uint64_t> ids_of(const TraceRequest& request) const;
  // The prompt. Each id gives its own tokens, so equal ids give equal tokens and others do not.
  std::vector<Token> prompt_of(const TraceRequest& request) const;
};

// The first `limit` requests of these files by time; 0: all.
Result<Trace> read_trace(std::span<const std::string> paths, std::uint64_t limit = 0);

struct TraceFacts {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  // Tokens of prompts that an earlier prompt began with too. A pool of any size finds at most these. (The last token
  // of a prompt is never reused. Answers count for nothing: the trace does not say which prompt continues which.)
  std::uint64_t repeated_tokens = 0;
  std::uint32_t longest = 0;  // prompt and answer
  double seconds = 0;         // from the first request to the last
};
TraceFacts facts_of(const Trace& trace);

}  // namespace quire::simulate

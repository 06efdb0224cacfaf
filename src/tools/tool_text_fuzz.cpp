// Reads any text as an answer, in any format, with any cuts. What comes out does not depend on the cuts, and nothing is
// lost: every byte that is not content or reasoning belongs to a call or to the space or marks beside one. Arguments of
// calls that are complete are JSON.
//
// The first bytes say which format, reasoning and options, the next ones where to cut; the rest is the text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

#include "quire/base/check.h"
#include "quire/tools/answer_parser.h"

namespace {

using namespace quire::tools;

const ToolList& tools() {
  static const ToolList kTools = *ToolList::parse(
      boost::json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}}}, {"type": "function", "function": {"name": "g"}}])")
          .get_array());
  return kTools;
}

struct Answer {
  std::string content, reasoning;
  std::vector<Call> calls;
};

Answer read(const ParserOptions& options, std::string_view text, std::string_view cuts, bool cut) {
  AnswerParser parser(options);
  std::vector<Delta> deltas;
  // The bytes of `cuts` are the lengths of the pieces, again and again. None: one piece.
  for (std::size_t i = 0; !text.empty(); ++i) {
    std::size_t length = cuts.empty() ? text.size() : static_cast<unsigned char>(cuts[i % cuts.size()]) % 16;
    if (length == 0) parser.push({}, deltas);
    length = std::clamp<std::size_t>(length, 1, text.size());
    parser.push(text.substr(0, length), deltas);
    text.remove_prefix(length);
  }
  parser.finish(cut, deltas);
  Answer answer;
  for (const Delta& delta : deltas) {
    switch (delta.kind) {
      case Delta::Kind::Content: answer.content += delta.text; break;
      case Delta::Kind::Reasoning: answer.reasoning += delta.text; break;
      case Delta::Kind::Call:
        QUIRE_CHECK(delta.call == answer.calls.size() && !delta.name.empty(), "calls are counted and named");
        answer.calls.push_back({delta.name, delta.id, ""});
        break;
      case Delta::Kind::Arguments:
        QUIRE_CHECK(delta.call + 1 == answer.calls.size(), "arguments belong to the last call");
        answer.calls.back().arguments += delta.text;
        break;
    }
  }
  QUIRE_CHECK(parser.calls() == answer.calls.size(), "calls are counted");
  return answer;
}

std::string without_space(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!std::string_view(" \t\r\n").contains(c)) out += c;
  }
  return out;
}

// Whether `part` is what is left of `whole` when some of its bytes are taken out.
bool is_part(std::string_view part, std::string_view whole) {
  for (const char c : whole) {
    if (!part.empty() && part.front() == c) part.remove_prefix(1);
  }
  return part.empty();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const bool cut = (data[2] & 1) != 0;
  ParserOptions options{.format = &formats()[data[0] % formats().size()],
                        .tools = &tools(),
                        .reading = {.progressive = (data[2] & 2) != 0},
                        .one_call = (data[2] & 4) != 0};
  const std::size_t reasoning = data[1] % (reasonings().size() + 1);
  if (reasoning > 0) options.reasoning = &reasonings()[reasoning - 1];
  const std::size_t many = std::min<std::size_t>(data[3] % 8, size - 4);
  const std::string_view rest(reinterpret_cast<const char*>(data) + 4, size - 4);
  const std::string_view text = rest.substr(many);

  const Answer whole = read(options, text, {}, cut);
  for (const std::string_view cuts : {rest.substr(0, many), std::string_view("\1"), std::string_view("\3\1")}) {
    const Answer other = read(options, text, cuts, cut);
    QUIRE_CHECK(whole.content == other.content, "content does not depend on the cuts");
    QUIRE_CHECK(whole.reasoning == other.reasoning, "reasoning does not depend on the cuts");
    QUIRE_CHECK(whole.calls.size() == other.calls.size(), "calls do not depend on the cuts");
    for (std::size_t i = 0; i < whole.calls.size(); ++i) {
      const Call &a = whole.calls[i], &b = other.calls[i];
      QUIRE_CHECK(a.name == b.name && a.id == b.id && a.arguments == b.arguments, "calls do not depend on the cuts");
    }
  }

  if (!options.one_call) {
    // Without calls all of the text is there, but for the marks of reasoning and the space around it.
    QUIRE_CHECK(is_part(whole.content, text) && is_part(whole.reasoning, text), "nothing is made up");
    if (whole.calls.empty() && options.reasoning == nullptr && options.format->silent.empty()) {
      QUIRE_CHECK(whole.content == text, "without a call the answer is the text");
    }
    if (whole.calls.empty() && options.reasoning != nullptr) {
      std::size_t marks = 0;
      for (const std::string_view mark : quire::tools::marks(options.format, options.reasoning)) {
        for (std::size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + 1)) {
          marks += without_space(mark).size();
        }
      }
      const std::size_t kept = without_space(whole.content).size() + without_space(whole.reasoning).size();
      QUIRE_CHECK(kept + marks >= without_space(text).size(), "only marks and space are left out");
    }
  }
  for (std::size_t i = 0; i < whole.calls.size() && !cut && !options.reading.progressive; ++i) {
    boost::system::error_code error;
    boost::json::parse_options limits;
    limits.max_depth = 200;
    const boost::json::value value = boost::json::parse(whole.calls[i].arguments, error, {}, limits);
    // Boost refuses what it cannot represent: half of a surrogate pair, text that is not UTF-8.
    const bool text_fault =
        error && (error == boost::json::error::illegal_leading_surrogate ||
                  error == boost::json::error::illegal_trailing_surrogate ||
                  error == boost::json::error::expected_utf16_escape || error == boost::json::error::syntax);
    QUIRE_CHECK(text_fault || (!error && value.is_object()), "arguments are a JSON object");
  }
  return 0;
}

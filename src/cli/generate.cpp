#include "quire/cli/generate.h"

#include <chrono>
#include <string>

#include "quire/text/stream_decoder.h"

namespace quire::cli {

std::string_view reason(Ending ending) {
  switch (ending) {
    case Ending::end_of_text: return "the model ended it";
    case Ending::limit: return "the limit of tokens was reached";
    case Ending::context: return "the context is full";
    case Ending::stopped: return "it was stopped";
  }
  return "";
}

std::string_view word(Ending ending) {
  switch (ending) {
    case Ending::end_of_text: return "end";
    case Ending::limit: return "limit";
    case Ending::context: return "context";
    case Ending::stopped: return "stopped";
  }
  return "";
}

Result<Generated> generate(engine::Session& session, engine::LoneSampler& sampler, const text::Tokenizer& tokenizer,
                           const GenerateOptions& options, const TextSink& sink) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  text::StreamDecoder decoder(tokenizer, {.at_start = options.at_start, .repair_utf8 = true});
  Generated out;
  std::string text;
  for (;;) {
    const auto token = sampler.sample(session.logits(), session.length());
    if (!token) return fail("the model computes no numbers: all its logits are NaN");
    if (tokenizer.is_end_of_generation(*token)) {
      out.ending = Ending::end_of_text;
      break;
    }
    ++out.tokens;
    text.clear();
    decoder.push(*token, text);
    if (!sink(*token, text)) {
      out.ending = Ending::stopped;
      break;
    }
    if (options.limit != 0 && out.tokens == options.limit) {
      out.ending = Ending::limit;
      break;
    }
    if (session.length() == session.context()) {
      out.ending = Ending::context;
      break;
    }
    if (auto ok = session.write(*token); !ok) return std::unexpected(ok.error());
  }
  text.clear();
  decoder.flush(text);
  (void)sink(text::kNoToken, text);
  out.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return out;
}

}  // namespace quire::cli

// Measures how long it takes to render a conversation with its literal ranges, without tokenizing.
//
// The conversation is large: 400 messages of 2 kB. Every eighth spells a control token. The templates are a plain one
// and those of testdata/chat. `bytes_per_second` counts rendered text.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <benchmark/benchmark.h>
#include <boost/json/array.hpp>

#include "quire/gguf/gguf.h"
#include "quire/text/chat_prompt.h"
#include "quire/text/tokenizer.h"

namespace quire::text {
namespace {

namespace json = boost::json;

constexpr std::string_view kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

json::object large_chat() {
  std::string text;
  while (text.size() < 2000) text += "Rivers carry what the mountains lose, grain by grain.\n";
  json::array messages;
  for (int i = 0; i < 400; ++i) {
    const char* const end = i % 8 == 0 ? "What does <|im_end|> mean?" : "That is all.";
    messages.push_back(json::object{{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", text + end}});
  }
  return {{"messages", std::move(messages)}, {"add_generation_prompt", true}};
}

void add_benchmark(const std::string& name, std::string_view source, const Tokenizer& tokenizer) {
  auto created = ChatPrompt::create(source, name, tokenizer);
  if (!created) return static_cast<void>(std::fprintf(stderr, "%s\n", created.error().message.c_str()));
  const auto prompt = std::make_shared<ChatPrompt>(std::move(*created));
  benchmark::RegisterBenchmark(("render/" + name).c_str(), [prompt](benchmark::State& state) {
    const json::object variables = large_chat();
    std::size_t bytes = 0;
    for (auto _ : state) {
      const auto rendered = prompt->render(variables, {});
      if (!rendered) return state.SkipWithError(rendered.error().message.c_str());
      bytes += rendered->text.size();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
  })->Unit(benchmark::kMillisecond);
}

int run() {
  const auto file = gguf::File::open(QUIRE_SOURCE_DIR "/models/quire-demo-llama-q8_0.gguf");
  if (!file) return std::fprintf(stderr, "%s\n", file.error().message.c_str()), 1;
  const auto tokenizer = Tokenizer::from_gguf(*file);
  if (!tokenizer) return std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str()), 1;
  add_benchmark("chatml", kChatMl, *tokenizer);
  for (const auto& entry : std::filesystem::directory_iterator(QUIRE_SOURCE_DIR "/testdata/chat")) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string source{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    add_benchmark(entry.path().stem().string(), source, *tokenizer);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace quire::text

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const int status = quire::text::run();
  benchmark::Shutdown();
  return status;
}

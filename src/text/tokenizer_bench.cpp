// Measures encode and decode on one core. `bytes_per_second` counts text.
//
// The prose is generated: sentences of common English words with realistic frequencies, with names, numbers and
// punctuation. One word in 25 is made of random syllables, so that no two megabytes are alike. The licence is eleven
// kilobytes of real English. Tokenizers have no cache, so repeating a text does not make it faster.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "quire/gguf/gguf.h"
#include "quire/text/tokenizer.h"

namespace quire::text {
namespace {

// Most frequent first.
constexpr std::string_view kWords[] = {
    "the",        "of",        "and",      "to",        "a",         "in",         "is",          "that",
    "it",         "was",       "for",      "on",        "are",       "with",       "as",          "his",
    "they",       "be",        "at",       "one",       "have",      "this",       "from",        "or",
    "had",        "by",        "not",      "but",       "what",      "some",       "we",          "can",
    "out",        "other",     "were",     "all",       "there",     "when",       "up",          "use",
    "your",       "how",       "said",     "an",        "each",      "she",        "which",       "do",
    "their",      "time",      "if",       "will",      "way",       "about",      "many",        "then",
    "them",       "write",     "would",    "like",      "so",        "these",      "her",         "long",
    "make",       "thing",     "see",      "him",       "two",       "has",        "look",        "more",
    "day",        "could",     "go",       "come",      "did",       "number",     "sound",       "no",
    "most",       "people",    "my",       "over",      "know",      "water",      "than",        "call",
    "first",      "who",       "may",      "down",      "side",      "been",       "now",         "find",
    "any",        "new",       "work",     "part",      "take",      "place",      "made",        "live",
    "where",      "after",     "back",     "little",    "only",      "round",      "man",         "year",
    "came",       "show",      "every",    "good",      "give",      "our",        "under",       "name",
    "very",       "through",   "just",     "form",      "sentence",  "great",      "think",       "say",
    "help",       "low",       "line",     "differ",    "turn",      "cause",      "much",        "mean",
    "before",     "move",      "right",    "boy",       "old",       "too",        "same",        "tell",
    "does",       "set",       "three",    "want",      "air",       "well",       "also",        "play",
    "small",      "end",       "put",      "home",      "read",      "hand",       "port",        "large",
    "spell",      "add",       "even",     "land",      "here",      "must",       "big",         "high",
    "such",       "follow",    "harbour",  "measure",   "physics",   "quarrel",    "remember",    "silence",
    "theory",     "umbrella",  "velocity", "whisper",   "against",   "building",   "certain",     "distant",
    "evening",    "fortunate", "garden",   "history",   "important", "journey",    "kingdom",     "language",
    "mountain",   "necessary", "opinion",  "pleasure",  "question",  "reasonable", "several",     "thousand",
    "understand", "village",   "window",   "yesterday", "although",  "beautiful",  "consequence", "difference",
};

std::string made_up_word(std::mt19937& random) {
  constexpr std::string_view kSyllables[] = {"ba",  "kor", "lin", "vea", "tru", "mo",
                                             "sep", "dra", "ni",  "ulf", "gos", "ery"};
  std::string word;
  for (std::size_t left = 2 + random() % 3; left > 0; --left) word += kSyllables[random() % std::size(kSyllables)];
  return word;
}

std::string prose(std::size_t bytes) {
  std::mt19937 random(1);
  // The frequency of a word falls with its rank, about as in real text.
  std::vector<double> weights;
  for (std::size_t i = 0; i < std::size(kWords); ++i) weights.push_back(1.0 / (static_cast<double>(i) + 2.7));
  std::discrete_distribution<std::size_t> pick(weights.begin(), weights.end());
  std::string text;
  while (text.size() < bytes) {
    const std::size_t words = 5 + random() % 18;
    for (std::size_t i = 0; i < words; ++i) {
      std::string word = random() % 25 == 0 ? made_up_word(random) : std::string(kWords[pick(random)]);
      if (random() % 60 == 0) word = std::to_string(random() % 3000);
      if (i == 0 || random() % 30 == 0) word[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(word[0])));
      if (i > 0) text += random() % 12 == 0 ? ", " : " ";
      text += word;
      if (random() % 40 == 0) text += "'s";
    }
    text += random() % 8 == 0 ? "?" : ".";
    text += random() % 6 == 0 ? "\n\n" : " ";
  }
  return text;
}

std::string licence() {
  std::ifstream file(QUIRE_SOURCE_DIR "/LICENSE", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void set_rate(benchmark::State& state, std::size_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(bytes));
}

void encode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  std::size_t tokens = 0;
  for (auto _ : state) {
    auto ids = tokenizer.encode(text);
    if (!ids) return state.SkipWithError(ids.error().message.c_str());
    tokens = ids->size();
    benchmark::DoNotOptimize(ids);
  }
  set_rate(state, text.size());
  state.counters["bytes/token"] = static_cast<double>(text.size()) / static_cast<double>(tokens);
}

void decode(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text);
  if (!ids) return state.SkipWithError(ids.error().message.c_str());
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(*ids));
  set_rate(state, text.size());
}

void load(benchmark::State& state, const gguf::File& file) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::from_gguf(file));
}

struct Subject {
  std::string name;
  std::string path;
};

void register_all(const std::vector<Subject>& subjects) {
  const auto made = std::make_shared<std::string>(prose(1'000'000));
  const auto real = std::make_shared<std::string>(licence());
  const auto letters = std::make_shared<std::string>(std::string(1'000'000, 'a'));
  for (const Subject& subject : subjects) {
    auto opened = gguf::File::open(subject.path);
    if (!opened) {
      std::fprintf(stderr, "%s\n", opened.error().message.c_str());
      continue;
    }
    const auto file = std::make_shared<gguf::File>(std::move(*opened));
    auto read = Tokenizer::from_gguf(*file);
    if (!read) {
      std::fprintf(stderr, "%s\n", read.error().message.c_str());
      continue;
    }
    const auto tokenizer = std::make_shared<Tokenizer>(std::move(*read));
    const auto add = [&](const char* what, auto function) {
      benchmark::RegisterBenchmark((std::string(what) + "/" + subject.name).c_str(), function)
          ->Unit(benchmark::kMillisecond);
    };
    add("encode_prose", [=](benchmark::State& state) { encode(state, *tokenizer, *made); });
    add("encode_licence", [=](benchmark::State& state) { encode(state, *tokenizer, *real); });
    add("encode_one_letter", [=](benchmark::State& state) { encode(state, *tokenizer, *letters); });
    add("decode_prose", [=](benchmark::State& state) { decode(state, *tokenizer, *made); });
    add("load", [=](benchmark::State& state) { load(state, *file); });
  }
}

}  // namespace
}  // namespace quire::text

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::vector<quire::text::Subject> subjects = {
      {"demo", QUIRE_SOURCE_DIR "/models/quire-demo-llama-q8_0.gguf"},
      {"byte-level", QUIRE_SOURCE_DIR "/testdata/vocab/byte-level.gguf"},
      {"sentencepiece", QUIRE_SOURCE_DIR "/testdata/vocab/sentencepiece.gguf"},
  };
  // Published vocabularies are larger. Paths of more files may be given.
  for (int i = 1; i < argc; ++i) subjects.push_back({std::filesystem::path(argv[i]).stem(), argv[i]});
  quire::text::register_all(subjects);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

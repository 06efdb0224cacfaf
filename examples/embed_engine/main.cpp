// A program that embeds Quire's engine: one model answers three questions with the same beginning at the same time.
//
//   embed_engine MODEL.gguf
//
// Prints the answers. For each it prints how many prompt tokens were reused from the cache, and why not more.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <quire/engine/hosted_model.h>
#include <quire/text/stream_decoder.h>
#include <quire/text/tokenizer.h>

namespace {

// Turns the tokens of an answer into text. The engine asks for one per answer.
class Text final : public quire::engine::TextStream {
 public:
  explicit Text(const quire::text::Tokenizer& tokenizer) : decoder_(tokenizer) {}
  void push(quire::Token token, std::string& out) override { decoder_.push(token, out); }
  void flush(std::string& out) override { decoder_.flush(out); }

 private:
  quire::text::StreamDecoder decoder_;
};

// Receives the events of one request.
class Answer final : public quire::engine::Listener {
 public:
  void on_event(const quire::engine::Event& event) override {
    text += event.text;
    if (event.kind == quire::engine::Event::Kind::Finished) usage = *event.usage;
  }
  std::string text;
  quire::engine::Usage usage;
};

int fail(const std::string& why) {
  std::fprintf(stderr, "embed_engine: %s\n", why.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage: embed_engine MODEL.gguf");
  auto model = quire::model::Model::load(argv[1]);
  if (!model) return fail(model.error().message);
  const auto tokenizer = quire::text::Tokenizer::from_gguf((*model)->file());
  if (!tokenizer) return fail(tokenizer.error().message);
  auto host = quire::engine::HostedModel::create(std::move(*model), {.context = 512, .max_sequences = 4});
  if (!host) return fail(host.error().message);

  // The tokenizer knows which tokens end an answer.
  std::vector<quire::Token> ends;
  for (quire::Token id = 0; id < static_cast<quire::Token>((*host)->engine().vocabulary()); ++id) {
    if (tokenizer->is_end_of_generation(id)) ends.push_back(id);
  }

  const std::string story = "Once upon a time there was a little fox who lived in a forest by the sea. ";
  const std::vector<std::string> endings = {"One day the fox", "The fox had a friend", "At night"};
  std::vector<std::shared_ptr<Answer>> answers;
  for (const std::string& ending : endings) {
    const auto prompt = tokenizer->encode(story + ending);
    if (!prompt) return fail(prompt.error().message);
    quire::engine::Request request{.prompt = *prompt, .max_tokens = 24};
    request.sampling.temperature = 0;
    request.stop_tokens = ends;
    request.stop_strings = {"\n"};
    request.text = [&] { return std::make_unique<Text>(*tokenizer); };
    answers.push_back(std::make_shared<Answer>());
    if (auto id = (*host)->engine().submit(std::move(request), answers.back()); !id) return fail(id.error().message);
  }
  while ((*host)->engine().step()) {
  }
  for (std::size_t i = 0; i < endings.size(); ++i) {
    const quire::engine::Usage& usage = answers[i]->usage;
    std::printf("%s%s\n    %u of %u prompt tokens were found in the cache (%s), %u generated\n", endings[i].c_str(),
                answers[i]->text.c_str(), usage.hit.tokens, usage.prompt_tokens, quire::name(usage.hit.end),
                usage.completion_tokens);
  }
}

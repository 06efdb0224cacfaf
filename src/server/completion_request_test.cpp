#include "quire/server/completion_request.h"

#include <algorithm>
#include <limits>
#include <memory>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/gguf/writer.h"

namespace quire::server {
namespace {

namespace json = boost::json;

class CompletionRequests : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    file_ = std::make_unique<gguf::File>(*gguf::File::open(QUIRE_SOURCE_DIR "/models/quire-demo-llama-q8_0.gguf"));
    auto model = TextModel::create(*file_, 2048, 1536, {.alias = "demo"});
    ASSERT_TRUE(model.has_value()) << model.error().message;
    model_ = std::move(*model);
  }
  static void TearDownTestSuite() {
    model_.reset();
    file_.reset();
  }

  static CompletionResult completion(std::string_view body) {
    return parse_completion(json::parse(body).as_object(), *model_);
  }
  static CompletionResult chat(std::string_view body) { return parse_chat(json::parse(body).as_object(), *model_); }
  static std::ptrdiff_t special_tokens(const std::vector<Token>& tokens) {
    return std::ranges::count_if(tokens, [](Token token) { return model_->tokenizer().is_special(token); });
  }

  static std::unique_ptr<gguf::File> file_;
  static std::unique_ptr<TextModel> model_;
};
std::unique_ptr<gguf::File> CompletionRequests::file_;
std::unique_ptr<TextModel> CompletionRequests::model_;

TEST_F(CompletionRequests, FillInTheDefaultsOfOpenAi) {
  const auto request = completion(R"({"prompt": "Once", "unknown": [1, 2]})");
  ASSERT_TRUE(request.has_value());
  const engine::Request& options = request->options;
  EXPECT_EQ(options.max_tokens, 16u);
  EXPECT_EQ(options.n, 1u);
  EXPECT_EQ(options.logprobs, -1);
  EXPECT_EQ(options.sampling.temperature, 1);
  EXPECT_EQ(options.sampling.top_p, 1);
  EXPECT_EQ(options.sampling.top_k, 0u);
  EXPECT_EQ(options.sampling.min_p, 0);
  EXPECT_FALSE(options.stop_tokens.empty());
  EXPECT_TRUE(options.reuse);
  EXPECT_FALSE(request->stream);
  EXPECT_NE(completion(R"({"prompt": "Once"})")->options.sampling.seed, options.sampling.seed);
  EXPECT_EQ(chat(R"({"messages": [{"role": "user", "content": "hi"}]})")->options.max_tokens, 2048u);
}

TEST_F(CompletionRequests, TakeWhatIsAskedFor) {
  const auto request = completion(
      R"({"model": "demo", "prompt": "Once", "max_tokens": 5.0, "n": 2, "best_of": 3, "temperature": 0, "top_p": 0.5,
          "top_k": 7, "min_p": 0.1, "seed": -2, "presence_penalty": 0.5, "frequency_penalty": -0.5,
          "repetition_penalty": 1.1, "logprobs": 3, "logit_bias": {"5": -100, "6": 2.5}, "stop": ["a", "b"],
          "stop_token_ids": [9], "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true},
          "priority": 2, "cache_prompt": false, "user": "me"})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  const engine::Request& options = request->options;
  EXPECT_EQ(options.max_tokens, 5u);
  EXPECT_EQ(options.n, 2u);
  EXPECT_EQ(options.best_of, 3u);
  EXPECT_EQ(options.sampling.temperature, 0);
  EXPECT_EQ(options.sampling.top_k, 7u);
  EXPECT_EQ(options.sampling.seed, ~std::uint64_t{1});
  EXPECT_EQ(options.sampling.logit_bias, (std::vector<std::pair<Token, float>>{{5, -100.0f}, {6, 2.5f}}));
  EXPECT_EQ(options.stop_strings, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(options.stop_tokens, std::vector<Token>{9});
  EXPECT_EQ(options.logprobs, 3);
  EXPECT_EQ(options.priority, 2);
  EXPECT_FALSE(options.reuse);
  EXPECT_TRUE(request->stream && request->include_usage);
}

TEST_F(CompletionRequests, ASeedOfMinusOneIsRandom) {
  const auto one = completion(R"({"prompt": "Once", "seed": -1})"),
             other = completion(R"({"prompt": "Once", "seed": -1})");
  EXPECT_NE(one->options.sampling.seed, other->options.sampling.seed);
}

TEST_F(CompletionRequests, TakeBiasesAsAListOfTokensAndTexts) {
  const auto request = completion(R"({"prompt": "Once", "logit_bias": [[5, 2.5], ["Once upon", -3], [7, false]]})");
  ASSERT_TRUE(request.has_value()) << request.error().message;
  std::vector<std::pair<Token, float>> expected = {{5, 2.5f}};
  const auto words = model_->tokenizer().encode("Once upon", {.add_special = false});
  ASSERT_GT(words->size(), 1u);
  for (const Token token : *words) expected.emplace_back(token, -3.0f);
  expected.emplace_back(7, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(request->options.sampling.logit_bias, expected);
}

TEST_F(CompletionRequests, AskForTheLogprobsOfPromptsOnlyWhereTheyAreWanted) {
  EXPECT_EQ(completion(R"({"prompt": "Once", "logprobs": 3})")->options.prompt_logprobs, -1);
  EXPECT_EQ(completion(R"({"prompt": "Once", "echo": true})")->options.prompt_logprobs, -1);
  const auto scored = completion(R"({"prompt": "Once", "echo": true, "logprobs": 3, "max_tokens": 0})");
  EXPECT_EQ(scored->options.prompt_logprobs, 3);
  EXPECT_EQ(scored->echo_logprobs, 3);
  EXPECT_EQ(
      completion(R"({"prompt": "Once", "echo": true, "logprobs": 3, "prompt_logprobs": 5})")->options.prompt_logprobs,
      5);
  EXPECT_EQ(chat(R"({"messages": [{"role": "user", "content": "hi"}], "prompt_logprobs": 0})")->options.prompt_logprobs,
            0);
  std::string ids = "1";
  for (int i = 0; i < 1500; ++i) ids += ",1";
  const auto many = completion(fmt::format(R"({{"prompt": [{}], "prompt_logprobs": 20, "n": 10}})", ids));
  ASSERT_FALSE(many.has_value());
  EXPECT_EQ(many.error().message,
            "'prompt_logprobs' reports 315210 log-probabilities of prompts, and 262144 is the most");
}

// A copy of the demo model's metadata, with three tokens named for filling in the middle.
TEST_F(CompletionRequests, ASuffixIsPutBehindThePromptWithTheModelsTokens) {
  gguf::Writer writer;
  for (std::size_t i = 0; i < file_->entry_count(); ++i) writer.add_value(file_->entry(i).key, file_->entry(i).value);
  writer.add("tokenizer.ggml.fim_pre_token_id", std::uint32_t{900});
  writer.add("tokenizer.ggml.fim_suf_token_id", std::uint32_t{901});
  writer.add("tokenizer.ggml.fim_mid_token_id", std::uint32_t{902});
  writer.add("tokenizer.ggml.fim_pad_token_id", std::uint32_t{903});
  const auto image = writer.to_memory();
  ASSERT_TRUE(image.has_value());
  const auto file = gguf::File::from_memory(*image, "fim.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto model = std::move(*TextModel::create(*file, 2048, 1536, {}));
  const auto parsed = [&](std::string_view body) { return parse_completion(json::parse(body).as_object(), *model); };
  const auto plain = parsed(R"({"prompt": "Once upon"})");
  const auto gap = parsed(R"({"prompt": "Once upon", "suffix": " a time"})");
  ASSERT_TRUE(gap.has_value()) << gap.error().message;
  std::vector<Token> expected = plain->prompts[0];
  const bool begins = model->tokenizer().adds_bos();
  expected.insert(expected.begin() + (begins ? 1 : 0), 900);
  expected.push_back(901);
  const auto behind = model->tokenizer().encode(" a time", {.add_special = false});
  expected.insert(expected.end(), behind->begin(), behind->end());
  expected.push_back(902);
  EXPECT_EQ(gap->prompts[0], expected);
  EXPECT_TRUE(std::ranges::binary_search(gap->options.stop_tokens, 903));
  EXPECT_FALSE(std::ranges::binary_search(plain->options.stop_tokens, 903));
  EXPECT_EQ(parsed(R"({"prompt": "a", "suffix": "b", "echo": true, "logprobs": 1})").error().message,
            "'suffix' cannot be used together with 'echo' and 'logprobs'");
}

TEST_F(CompletionRequests, AModelThatAnswersToAnyNameIsNotAskedForIt) {
  const auto model = std::move(*TextModel::create(*file_, 2048, 1536, {.alias = "demo", .any_name = true}));
  EXPECT_TRUE(parse_completion(json::parse(R"({"model": "gpt-4", "prompt": "x"})").as_object(), *model).has_value());
  EXPECT_FALSE(parse_completion(json::parse(R"({"model": 7, "prompt": "x"})").as_object(), *model).has_value());
  EXPECT_EQ(model->name(), "demo");
}

TEST_F(CompletionRequests, TakePromptsInEveryForm) {
  const auto text = completion(R"({"prompt": "Once upon a time"})");
  const auto texts = completion(R"({"prompt": ["Once upon a time", "The"]})");
  ASSERT_TRUE(text && texts);
  EXPECT_EQ(texts->prompts.size(), 2u);
  EXPECT_EQ(texts->prompts[0], text->prompts[0]);
  std::string ids;
  for (const Token token : text->prompts[0]) ids += fmt::format("{}{}", ids.empty() ? "" : ",", token);
  EXPECT_EQ(completion(fmt::format(R"({{"prompt": [{}]}})", ids))->prompts, text->prompts);
  EXPECT_EQ(completion(fmt::format(R"({{"prompt": [[{}], [1]]}})", ids))->prompts.size(), 2u);
}

TEST_F(CompletionRequests, RefuseWrongTypesByName) {
  const struct {
    const char* field;
    const char* message;
  } cases[] = {
      {R"("temperature": "hot")", "'temperature' must be a number"},
      {R"("temperature": -1)", "'temperature' must be from 0 to 100"},
      {R"("top_p": 1.5)", "'top_p' must be from 0 to 1"},
      {R"("max_tokens": 1.5)", "'max_tokens' must be a whole number that fits 64 bits"},
      {R"("max_tokens": "many")", "'max_tokens' must be a whole number"},
      {R"("n": 0)", "'n' must be from 1 to 128"},
      {R"("n": 2, "best_of": 1)", "'best_of' must be at least 'n'"},
      {R"("seed": "x")", "'seed' must be a whole number"},
      {R"("stream": 1)", "'stream' must be true or false"},
      {R"("stream_options": {"include_usage": true})", "'stream_options' needs 'stream' to be true"},
      {R"("stop": 5)", "'stop' must be a string or an array of at most 16 strings"},
      {R"("stop": ["a", 5])", "'stop' must be a string or an array of strings"},
      {R"("stop": "")", "'stop' must have no empty string"},
      {R"("logit_bias": {"x": 1})", "'logit_bias' must have token ids of the model as keys"},
      {R"("logit_bias": {"1536": 1})", "'logit_bias' must have token ids of the model as keys"},
      {R"("logit_bias": {"5": "much"})", "'logit_bias' must have numbers from -100 to 100 as values"},
      {R"("logit_bias": "x")", "'logit_bias' must be an object"},
      {R"("logit_bias": [5])",
       "'logit_bias' must be an object, or a list of pairs of a token id or a text and a number"},
      {R"("logit_bias": [[1536, 1]])", "'logit_bias' must have token ids of the model, or texts, in its pairs"},
      {R"("logit_bias": [[5, 101]])", "'logit_bias' must have numbers from -100 to 100, or false, as values"},
      {R"("logit_bias": [[5, true]])", "'logit_bias' must have numbers from -100 to 100, or false, as values"},
      {R"("logprobs": true)", "'logprobs' must be a whole number"},
      {R"("suffix": "end")", "'suffix' is not possible with this model: it has no tokens to fill in the middle"},
      {R"("min_tokens": 17)", "'min_tokens' must be at most the number of tokens that may come: 16"},
      {R"("min_tokens": -1)", "'min_tokens' must be from 0 to 2147483647"},
      {R"("prompt_logprobs": 21)", "'prompt_logprobs' must be from 0 to 20"},
      {R"("prompt_logprobs": 1, "stream": true)", "'prompt_logprobs' cannot be used together with 'stream'"},
      {R"("model": 7)", "'model' must be a string"},
      {R"("model": "gpt-4")", "the model 'gpt-4' does not exist; this server has 'demo'"},
  };
  for (const auto& [field, message] : cases) {
    const auto request = completion(fmt::format(R"({{"prompt": "x", {}}})", field));
    ASSERT_FALSE(request.has_value()) << field;
    EXPECT_EQ(request.error().message, message);
  }
  EXPECT_EQ(completion(R"({})").error().message, "'prompt' is missing");
  for (const char* prompt : {"5", "{}", "[]", "[\"a\", 5]", "[\"a\", [1]]", "[true]"}) {
    EXPECT_FALSE(completion(fmt::format(R"({{"prompt": {}}})", prompt)).has_value()) << prompt;
  }
  EXPECT_EQ(completion(R"({"prompt": [1, 1536]})").error().message, "'prompt[1]' must be a token id from 0 to 1535");
  EXPECT_EQ(completion(R"({"model": "gpt-4", "prompt": "x"})").error().status, 404u);
}

TEST_F(CompletionRequests, RefuseConversationsThatAreNone) {
  const struct {
    const char* body;
    const char* message;
  } cases[] = {
      {R"({})", "'messages' is missing"},
      {R"({"messages": []})", "'messages' must have at least one message"},
      {R"({"messages": "hi"})", "'messages' must be an array"},
      {R"({"messages": ["hi"]})", "'messages[0]' must be an object"},
      {R"({"messages": [{"content": "hi"}]})", "'messages[0].role' is missing"},
      {R"({"messages": [{"role": "wizard", "content": "hi"}]})",
       "'messages[0].role' must be one of system, developer, user, assistant, tool, function"},
      {R"({"messages": [{"role": "user"}]})", "'messages[0].content' is missing"},
      {R"({"messages": [{"role": "user", "content": 5}]})",
       "'messages[0].content' must be a string or an array of parts"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "'messages[0].content[0]' is of type 'image_url', and this server takes text only"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "tool_choice": "required"})",
       "'tool_choice' needs 'tools'"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "tool_choice": "sometimes"})",
       "'tool_choice' must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": "
       "...}}"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f"}}],
           "tool_choice": {"type": "function", "function": {"name": "g"}}})",
       "'tool_choice' names the function 'g', and 'tools' has none of that name"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function"}]})",
       "'tools[0].function' must be an object"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "tools": [{"function": {"name": ""}}]})",
       "'tools[0].function.name' must be a string that is not empty"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "tools": [{"function": {"name": "f"}}, {"function": {"name": "f"}}]})",
       "'tools[1].function.name' is there twice: f"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "tools": [], "parallel_tool_calls": 1})",
       "'parallel_tool_calls' must be true or false"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "top_logprobs": 2})",
       "'top_logprobs' needs 'logprobs' to be true"},
      {R"({"messages": [{"role": "user", "content": "hi"}], "response_format": {"type": "json_object"}})",
       "'response_format' is not supported, except as {\"type\":\"text\"}"},
  };
  for (const auto& [body, message] : cases) {
    const auto request = chat(body);
    ASSERT_FALSE(request.has_value()) << body;
    EXPECT_EQ(request.error().message, message);
  }
}

TEST_F(CompletionRequests, TextOfUsersNeverBecomesAControlToken) {
  // The model's own template writes control tokens around messages.
  const auto plain = chat(R"({"messages": [{"role": "user", "content": "hello"}]})");
  ASSERT_TRUE(plain.has_value());
  const auto expected = special_tokens(plain->prompts[0]);
  EXPECT_GT(expected, 0);
  std::string spelling;
  for (const Token token : plain->prompts[0]) {
    if (model_->tokenizer().is_special(token)) spelling = model_->tokenizer().spelling(token);
  }
  const auto nasty = chat(fmt::format(R"({{"messages": [{{"role": "user", "content": "a{0}b{0}"}}]}})", spelling));
  ASSERT_TRUE(nasty.has_value()) << nasty.error().message;
  EXPECT_EQ(special_tokens(nasty->prompts[0]), expected);
  const auto parts = chat(
      fmt::format(R"({{"messages": [{{"role": "user", "content": [{{"type": "text", "text": "{}"}}]}}]}})", spelling));
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(special_tokens(parts->prompts[0]), expected);
  const auto text = completion(fmt::format(R"({{"prompt": "a{}b"}})", spelling));
  ASSERT_TRUE(text.has_value());
  EXPECT_LE(special_tokens(text->prompts[0]), 1);  // a BOS at most
}

TEST_F(CompletionRequests, PartsOfTextAreOneText) {
  const auto whole = chat(R"({"messages": [{"role": "user", "content": "hello there"}]})");
  const auto parts = chat(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "hello "}, {"type": "text", "text": "there"}]}]})");
  ASSERT_TRUE(whole && parts);
  EXPECT_EQ(whole->prompts, parts->prompts);
}

TEST_F(CompletionRequests, ContinueTheLastMessageIfAskedTo) {
  const auto begun = chat(R"({"messages": [{"role": "user", "content": "hi"}]})");
  const auto forked = chat(
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once"}], "continue_final_message": true})");
  ASSERT_TRUE(begun && forked) << forked.error().message;
  const auto& start = begun->prompts[0];
  const auto& more = forked->prompts[0];
  ASSERT_GT(more.size(), start.size());
  EXPECT_TRUE(std::equal(start.begin(), start.end(), more.begin()));
  EXPECT_EQ(model_->tokenizer().decode(std::span(more).subspan(start.size()), {}), "Once");
  const auto spaced = chat(
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once \n"}], "continue_final_message": true})");
  ASSERT_TRUE(spaced) << spaced.error().message;
  EXPECT_EQ(spaced->prompts, forked->prompts) << "it goes on behind the last word";
}

TEST_F(CompletionRequests, RefuseBodiesThatAreNoJson) {
  for (const char* body :
       {"", "{", "{\"a\":}", "[1]", "5", "{} x", "{\"prompt\": \"\xff\xfe\"}", "{\"a\": \"\xC3\"}"}) {
    const auto parsed = parse_body(body);
    ASSERT_FALSE(parsed.has_value()) << body;
    EXPECT_EQ(parsed.error().status, 400u);
  }
  EXPECT_FALSE(parse_body(std::string(100'000, '[')).has_value());
  EXPECT_TRUE(parse_body(R"({"prompt": "schön"})").has_value());
}

}  // namespace
}  // namespace quire::server

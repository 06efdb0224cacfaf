// docs/api.md and the code agree. The tests read the page's tables and try what they say: every field with its range
// and its default, every limit, every field that is refused, every endpoint and every error. They also read the
// sources: a field or an error code that the page does not have fails too.
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "quire/server/api.h"
#include "quire/server/completion_request.h"
#include "quire/server/server_testing.h"
#include "quire/server/unsupported.h"

namespace quire::server {
namespace {

namespace json = boost::json;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}
const std::string& page() {
  static const std::string text = read(QUIRE_SOURCE_DIR "/docs/api.md");
  return text;
}

std::vector<std::string> matches(const std::string& text, const std::regex& pattern, int group = 1) {
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at)
    found.push_back(at->str(group));
  return found;
}
std::vector<std::string> in_backticks(const std::string& text) { return matches(text, std::regex("`([^`]+)`")); }

// A table's rows as cells, without its two header rows.
using Row = std::vector<std::string>;
std::vector<Row> table_in(const std::string& heading) {
  const std::size_t begin = heading.empty() ? 0 : page().find("\n" + heading + "\n");
  EXPECT_NE(begin, std::string::npos) << heading;
  std::vector<Row> rows;
  std::size_t at = page().find("\n|", begin) + 1;
  while (page()[at] == '|') {
    const std::size_t end = page().find('\n', at);
    Row cells;
    std::string cell;
    bool code = false;
    for (std::size_t i = at + 1; i < end; ++i) {
      const char c = page()[i];
      if (c == '`') code = !code;
      if (c == '|' && !code) {
        const std::size_t first = cell.find_first_not_of(' ');
        cells.push_back(first == std::string::npos ? "" : cell.substr(first, cell.find_last_not_of(' ') + 1 - first));
        cell.clear();
      } else {
        cell += c;
      }
    }
    rows.push_back(std::move(cells));
    at = end + 1;
  }
  EXPECT_GT(rows.size(), 2u) << heading;
  rows.erase(rows.begin(), rows.begin() + 2);
  return rows;
}

class ApiPage : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    file_ = std::make_unique<gguf::File>(*gguf::File::open(QUIRE_SOURCE_DIR "/models/quire-demo-llama-q8_0.gguf"));
    model_ = std::move(*TextModel::create(*file_, 2048, 1536, {.alias = "demo"}));
  }
  static void TearDownTestSuite() {
    model_.reset();
    file_.reset();
  }

  // A request with nothing but this, and what it needs.
  static json::object base(bool chat) {
    json::object body = chat ? json::parse(R"({"messages": [{"role": "user", "content": "x"}]})").as_object()
                             : json::parse(R"({"prompt": "x"})").as_object();
    body["seed"] = 5;
    return body;
  }
  static CompletionResult parse(json::object body, bool chat) {
    return chat ? parse_chat(std::move(body), *model_) : parse_completion(std::move(body), *model_);
  }
  // Sets a field, which may be inside an object: "stream_options.include_usage".
  static json::object with(json::object body, const std::string& field, json::value value) {
    if (const std::size_t dot = field.find('.'); dot != std::string::npos) {
      body["stream"] = true;
      body[field.substr(0, dot)] = json::object{{field.substr(dot + 1), std::move(value)}};
      return body;
    }
    // What some fields need beside them.
    if (field == "top_logprobs") body["logprobs"] = true;
    if (field == "best_of") body["n"] = 1;
    body[field] = std::move(value);
    return body;
  }
  static std::string param(const CompletionResult& result) { return result ? "(it was taken)" : result.error().param; }

  // Everything that a field can change.
  static std::string digest(const CompletionRequest& request) {
    const engine::Request& o = request.options;
    const engine::SamplerOptions& s = o.sampling;
    std::string text;
    o.text()->push(*model_->tokenizer().eos(), text);
    std::string out =
        fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", o.max_tokens, o.n, o.best_of,
                    o.logprobs, o.priority, o.reuse, request.stream, request.include_usage, s.temperature, s.top_k,
                    s.top_p, s.min_p, s.seed, s.repetition_penalty, s.presence_penalty, s.frequency_penalty,
                    s.logit_bias.size(), text, o.stop_strings.size());
    for (const Token token : o.stop_tokens) out += fmt::format(" {}", token);
    for (const auto& prompt : request.prompts) {
      for (const Token token : prompt) out += fmt::format(" {}", token);
    }
    for (const std::string& echo : request.echoes) out += echo;
    return out;
  }

  static void check_row(const std::string& field, const Row& row, bool chat) {
    SCOPED_TRACE(fmt::format("{} of {}", field, chat ? "chats" : "completions"));
    // A value of a wrong type is refused by name.
    const bool object = field == "logit_bias" || field == "chat_template_kwargs";
    EXPECT_EQ(
        param(parse(with(base(chat), field, object ? json::value("wrong") : json::object{{"wrong", true}}), chat)),
        field);
    // The range is the range, to its last number.
    std::smatch range;
    const bool number = std::regex_search(row[1], range, std::regex(R"(^(-?\d[\d.]*) (?:\([^)]*\) )?to (-?\d[\d.]*))"));
    if (number) {
      const double least = std::stod(range.str(1)), most = std::stod(range.str(2));
      for (const double inside : {least, most}) {
        const auto taken = parse(with(base(chat), field, inside), chat);
        EXPECT_TRUE(taken) << inside << ": " << taken.error().message;
      }
      const double step = least == std::trunc(least) ? 1 : least / 2;
      for (const double outside : {least - step, most + 1}) {
        EXPECT_EQ(param(parse(with(base(chat), field, outside), chat)), field) << outside;
      }
    }
    check_default(field, row[2], number, chat);
  }

  static void check_default(const std::string& field, const std::string& says, bool number, bool chat) {
    json::object without = base(chat);
    without.erase(field);
    if (field == "top_logprobs") without["logprobs"] = true;
    if (field.find('.') != std::string::npos) without["stream"] = true;
    std::string literal = says;
    std::erase(literal, '`');
    json::error_code error;
    const json::value value = json::parse(literal, error);
    // null means the same as leaving a field out.
    if (says != "required" && says != "random") {
      const auto null = parse(with(base(chat), field, nullptr), chat);
      ASSERT_TRUE(null) << null.error().message;
      EXPECT_EQ(digest(*null), digest(*parse(without, chat)));
    }
    if (!error) {
      const auto missing = parse(without, chat);
      const auto given = parse(with(base(chat), field, value), chat);
      ASSERT_TRUE(missing) << missing.error().message;
      ASSERT_TRUE(given) << given.error().message;
      EXPECT_EQ(digest(*missing), digest(*given)) << "the default is not " << says;
    } else if (says == "required") {
      EXPECT_EQ(param(parse(without, chat)), field);
    } else if (says == "the rest of the context") {
      EXPECT_EQ(parse(without, chat)->options.max_tokens, model_->context());
    } else if (says == "random") {
      EXPECT_NE(parse(without, chat)->options.sampling.seed, parse(without, chat)->options.sampling.seed);
    } else if (says == "`n`") {
      EXPECT_EQ(parse(without, chat)->options.best_of, 0u);  // the engine's word for it
    } else if (says == "the served model") {
      EXPECT_TRUE(parse(without, chat));
    } else {
      const bool known = says == "none" || says == "`true`, unless the last message is continued";
      EXPECT_TRUE(known) << "the test does not know the default '" << says << "'";
      EXPECT_TRUE(parse(without, chat)) << "it is not required";
      EXPECT_FALSE(says == "none" && number && parse(without, chat)->options.logprobs >= 0);
    }
  }

  static std::unique_ptr<gguf::File> file_;
  static std::unique_ptr<TextModel> model_;
};
std::unique_ptr<gguf::File> ApiPage::file_;
std::unique_ptr<TextModel> ApiPage::model_;

const struct {
  const char* heading;
  bool chat, completion;
} kFieldTables[] = {{"## Chats", true, false}, {"## Completions", false, true}, {"## Fields of both", true, true}};

TEST_F(ApiPage, EveryFieldHasTheRangeAndTheDefaultThatThePageSays) {
  std::size_t ranges = 0;
  for (const auto& [heading, chat, completion] : kFieldTables) {
    for (const Row& row : table_in(heading)) {
      ASSERT_EQ(row.size(), 3u) << row[0];
      ranges += row[1].find(" to ") != std::string::npos;
      for (const std::string& field : in_backticks(row[0])) {
        if (chat) check_row(field, row, true);
        if (completion) check_row(field, row, false);
      }
    }
  }
  EXPECT_GE(ranges, 14u) << "the page writes ranges as 'A to B'";
}

TEST_F(ApiPage, EveryFieldThatTheServerReadsIsOnThePage) {
  std::set<std::string> named;
  // Without the blocks of examples, whose fences are backticks too.
  std::string prose;
  bool example = false;
  std::istringstream lines(page());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) example = !example;
    if (!example && !line.starts_with("```")) prose += line + "\n";
  }
  for (const std::string& words : in_backticks(prose)) {
    for (const std::string& word : matches(words, std::regex(R"(([a-z_]+))"))) named.insert(word);
  }
  std::set<std::string> found;
  for (const char* file : {"completion_request.cpp", "chat_messages.cpp", "api.cpp", "constraint_fields.cpp",
                           "messages_request.cpp", "responses_request.cpp"}) {
    const std::string source = read(std::string(QUIRE_SOURCE_DIR "/src/server/") + file);
    const std::regex reads(
        R"re((?:fields|inner)\.(?:boolean|number|integer|string|object|array|any)\(\s*"([a-z_]+)")re");
    for (const std::string& name : matches(source, reads)) found.insert(name);
  }
  EXPECT_GE(found.size(), 40u) << "the pattern finds the fields";
  for (const std::string& name : found) EXPECT_TRUE(named.contains(name)) << name << " is not on the page";
}

TEST_F(ApiPage, FieldsAreRefusedAsThePageSays) {
  using Taken = std::set<std::string>;
  std::map<std::string, Taken> on_page, in_code;
  for (const Row& row : table_in("### Fields that are refused")) {
    const std::string in = row[0].substr(row[0].rfind('`') + 1);
    for (const std::string& name : in_backticks(row[0])) {
      Taken& taken = on_page[name + in];
      for (const std::string& value : in_backticks(row[1])) taken.insert(json::serialize(json::parse(value)));
    }
  }
  for (const UnsupportedField& field : unsupported_fields()) {
    using In = UnsupportedField::In;
    static const std::map<unsigned, std::string> kWords = {{In::All, ""},
                                                           {In::Completions, " (completions)"},
                                                           {In::Conversations, " (chats)"},
                                                           {In::Responses, " (responses)"},
                                                           {In::Messages, " (messages)"},
                                                           {In::Responses | In::Messages, " (responses, messages)"},
                                                           {In::All & ~In::Responses, " (not responses)"},
                                                           {In::All & ~In::Messages, " (not messages)"}};
    Taken& taken = in_code[std::string(field.name) + kWords.at(field.in)];
    const json::array neutral = json::parse(field.neutral).as_array();
    for (const json::value& value : neutral) taken.insert(json::serialize(value));
  }
  EXPECT_EQ(on_page, in_code);
}

TEST_F(ApiPage, TheLimitsAreThoseOfThePage) {
  testing::Running server;
  const auto many = [](std::size_t count, std::string_view piece) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", piece);
    return out;
  };
  Token longest = 0;
  for (Token id = 0; id < 1536; ++id) {
    if (model_->tokenizer().piece(id).size() > model_->tokenizer().piece(longest).size()) longest = id;
  }
  const std::size_t longest_bytes = model_->tokenizer().piece(longest).size();
  using Answer = std::function<std::string(std::size_t)>;  // the field that is refused, or ""
  const auto completion = [&](const std::string& body) {
    const auto result = parse_completion(json::parse(body).as_object(), *model_);
    return result ? "" : result.error().param;
  };
  const auto posted = [&](const char* path, const std::string& body) {
    const auto reply = server.post(path, body);
    if (reply.status == 200) return std::string();
    return std::string(reply.parsed().at("error").at("param").as_string());
  };
  const std::map<std::string, Answer> asks = {
      {"`prompt`", [&](std::size_t n) { return completion(fmt::format(R"({{"prompt": [{}]}})", many(n, "\"x\""))); }},
      {"`n`",
       [&](std::size_t n) {
         return completion(
             fmt::format(R"({{"prompt": [{}], "n": {}}})", many(n / 128 + (n % 128 != 0), "\"x\""), n < 128 ? n : 128));
       }},
      {"`echo`",
       [&](std::size_t n) {
         // As many bytes as one choice can have, times 128.
         return completion(
             fmt::format(R"({{"prompt": "{}", "n": 128, "echo": true}})", std::string((n + 127) / 128, 'x')));
       }},
      {"`stop`",
       [&](std::size_t n) { return completion(fmt::format(R"({{"prompt": "x", "stop": [{}]}})", many(n, "\"x\""))); }},
      {"`stop` (each)",
       [&](std::size_t n) {
         return completion(fmt::format(R"({{"prompt": "x", "stop": "{}"}})", std::string(n, 'x')));
       }},
      {"`stop_token_ids`",
       [&](std::size_t n) {
         return completion(fmt::format(R"({{"prompt": "x", "stop_token_ids": [{}]}})", many(n, "7")));
       }},
      {"`logit_bias`",
       [&](std::size_t n) {
         json::object biases;
         for (std::size_t i = 0; i < n; ++i) biases[std::string(i / 1000, '0') + std::to_string(i % 1000)] = 1;
         return completion(json::serialize(json::object{{"prompt", "x"}, {"logit_bias", biases}}));
       }},
      {"`logit_bias` (a text)",
       [&](std::size_t n) {
         return completion(fmt::format(R"({{"prompt": "x", "logit_bias": [["{}", 1]]}})", std::string(n, 'x')));
       }},
      {"`prompt_logprobs`, `echo` with `logprobs`",
       [&](std::size_t n) {
         return completion(
             fmt::format(R"({{"prompt": [{}], "n": 128, "prompt_logprobs": 1}})", many((n + 255) / 256, "7")));
       }},
      {"`input` (`/v1/embeddings`)",
       [&](std::size_t n) {
         const auto result =
             parse_embeddings(json::parse(fmt::format(R"({{"input": [{}]}})", many(n, "\"x\""))).as_object(), *model_);
         return result ? "" : result.error().param;
       }},
      {"`messages`",
       [&](std::size_t n) {  // an array, a message with three members, and an array with the rest
         const auto result =
             parse_chat(json::parse(fmt::format(R"({{"messages": [{{"role": "user", "content": "x", "name": [{}]}}]}})",
                                                many(n - 5, "1")))
                            .as_object(),
                        *model_);
         return result ? "" : result.error().param;
       }},
      {"`with_pieces` (`/tokenize`)",
       [&](std::size_t n) {
         return posted("/tokenize", fmt::format(R"({{"content": "{}", "with_pieces": true}})", std::string(n, '\x7f')));
       }},
      {"`tokens` (`/detokenize`)",
       [&](std::size_t n) {
         return posted("/detokenize", fmt::format(R"({{"tokens": [{}]}})", many((n + longest_bytes - 1) / longest_bytes,
                                                                                std::to_string(longest))));
       }},
  };
  ASSERT_EQ(model_->tokenizer().encode(std::string(100, '\x7f'), {.add_special = false})->size(), 100u);
  const auto rows = table_in("### Limits");
  EXPECT_EQ(rows.size(), asks.size());
  for (const Row& row : rows) {
    const auto ask = asks.find(row[0]);
    ASSERT_NE(ask, asks.end()) << row[0] << " has no test";
    const std::size_t most = std::stoul(row[1]);
    // Whole tokens of the longest kind need not meet the limit exactly.
    const std::size_t fits = row[0].starts_with("`tokens`") ? most / longest_bytes * longest_bytes : most;
    EXPECT_EQ(ask->second(fits), "") << row[0];
    EXPECT_EQ(ask->second(most + 1), in_backticks(row[0])[0]) << row[0];
  }
}

TEST_F(ApiPage, TheEndpointsAreThoseOfThePage) {
  std::set<std::string> on_page;
  for (const Row& row : table_in("")) {
    for (const std::string& endpoint : in_backticks(row[0])) on_page.insert(endpoint);
  }
  const auto all = Api::endpoints();
  EXPECT_EQ(on_page, std::set<std::string>(all.begin(), all.end()));
}

TEST_F(ApiPage, TheErrorsAreThoseOfThePage) {
  std::map<std::string, std::set<std::string>> statuses;  // by code; "" has the statuses without one
  for (const Row& row : table_in("## Errors")) {
    ASSERT_EQ(row.size(), 4u) << row[0];
    const auto codes = in_backticks(row[2]);
    for (const std::string& status : matches(row[0], std::regex(R"((\d+))"))) {
      statuses[codes.empty() ? "" : codes[0]].insert(status);
    }
  }
  std::string sources;
  for (const auto& entry : std::filesystem::directory_iterator(QUIRE_SOURCE_DIR "/src/server")) {
    const std::string name = entry.path().filename();
    if (name.ends_with("_test.cpp") || name.ends_with("_testing.h")) continue;
    if (name.ends_with(".cpp") || name.ends_with(".h")) sources += read(entry.path());
  }
  for (const std::string& code : matches(sources, std::regex(R"re(\.code = "(\w+)")re"))) {
    EXPECT_TRUE(statuses.contains(code)) << code << " is not in the table of errors";
  }
  const std::regex both(R"re(\.status = (\d+),[^;]*?\.code = "(\w+)")re");
  std::size_t pairs = 0;
  for (std::sregex_iterator at(sources.begin(), sources.end(), both), end; at != end; ++at, ++pairs) {
    EXPECT_TRUE(statuses[at->str(2)].contains(at->str(1))) << at->str(2) << " has the status " << at->str(1);
  }
  EXPECT_GE(pairs, 8u) << "the pattern finds the errors";
  for (const auto& [code, of] : statuses) {
    if (!code.empty()) {
      EXPECT_NE(sources.find('"' + code + '"'), std::string::npos) << code << " is nowhere in the code";
    }
    for (const std::string& status : of) {
      EXPECT_TRUE(std::regex_search(sources, std::regex("\\b" + status + "\\b")))
          << status << " is nowhere in the code";
    }
  }
}

}  // namespace
}  // namespace quire::server

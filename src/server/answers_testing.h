// For tests of the shapes of answers: a server whose model writes given texts, and streams with named events.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include "quire/server/scripted_model_testing.h"
#include "quire/server/server_testing.h"

namespace quire::server::testing {

// The last message chooses the script. After a result of a tool it is that for results.
inline constexpr std::string_view kAnswersTemplate =
    "{# <think></think> #}{% for t in tools or [] %}{{ t|tojson }}\n{% endfor %}{% for m in messages %}[{{ m.role "
    "}}]{% if "
    "m.tool_calls %}{% for c in m.tool_calls %}<tool_call>\n{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": "
    "' + "
    "c.function.arguments|tojson + '}' }}\n</tool_call>\n{% endfor %}{% else %}{{ m.content }}{% endif %}\n{% endfor "
    "%}{% "
    "if add_generation_prompt %}{% set last = messages[-1] %}{% if last.role == 'tool' %}<|result|>{% elif "
    "last.content.startswith('think') %}<|think|>{% elif last.content.startswith('plain') %}<|plain|>{% else "
    "%}<|call|>{% "
    "endif %}{% endif %}";

inline const std::map<std::string, std::string> kAnswersScripts = {
    {"<|call|>",
     "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"days\": "
     "3}}\n</tool_call>"},
    {"<|think|>", "<think>Hmm, it is warm there, surely\n\t</think>\n\nIt will be warm!"},
    {"<|plain|>", "Just words; no more."},
    {"<|result|>", "It is sunny in Rome, 24 degrees."},
};

// What the call of the script has as arguments.
inline constexpr const char* kAnswersArguments = R"({"city": "Rome", "days": 3})";

inline std::unique_ptr<Running> serve_answers(ServerOptions options = {}, const engine::HostOptions& host = {}) {
  static int count = 0;
  const ScriptedModel model(kAnswersScripts, kAnswersTemplate, {"<think>", "</think>"});
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("quire-answers-{}-{}.gguf", ::getpid(), count++);
  const auto written = model.file().write(path.string());
  EXPECT_TRUE(written) << written.error().message;
  auto running =
      std::make_unique<Running>(std::move(options), host, std::filesystem::relative(path, models_dir()).string());
  std::filesystem::remove(path);
  return running;
}

// The events of a stream: their names and data. Expects the name to be the type.
inline std::vector<std::pair<std::string, json::value>> named_events(std::string_view stream) {
  std::vector<std::pair<std::string, json::value>> out;
  while (!stream.empty()) {
    const std::size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << "an incomplete event: " << stream;
    if (end == std::string_view::npos) break;
    const std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    if (!event.starts_with("event: ")) continue;
    const std::size_t line = event.find("\ndata: ");
    EXPECT_NE(line, std::string_view::npos) << event;
    out.emplace_back(event.substr(7, line - 7), json::parse(event.substr(line + 7)));
    EXPECT_EQ(out.back().first, out.back().second.at("type").as_string());
  }
  return out;
}

}  // namespace quire::server::testing

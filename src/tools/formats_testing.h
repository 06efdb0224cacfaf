// For each format: how a call looks in it, and a chat template that writes it. The templates are made for the tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <boost/json/parse.hpp>

#include "quire/tools/tool_list.h"

namespace quire::tools::testing {

// The calls of all examples.
inline constexpr std::string_view kFirstName = "get_weather", kSecondName = "find_place";
inline constexpr std::string_view kFirstArguments = R"({"city": "Rome", "days": 3})",
                                  kSecondArguments = R"({"query": "12"})";

inline ToolList example_tools() {
  return *ToolList::parse(boost::json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "find_place", "parameters": {"type": "object",
      "properties": {"query": {"type": "string"}}}}}])")
                              .get_array());
}

struct Example {
  std::string_view format;
  std::string one;     // the first call
  std::string two;     // both calls
  std::string broken;  // begins like the first call, and is none
  // Jinja for the calls of a message `m`. `f` is the function of a call. Empty: the format has no template here.
  std::string calls;
  bool bare = false;  // the call has no mark: what stands before it on the same line makes it content
};

inline std::vector<Example> examples() {
  const std::string object = R"({"name": "get_weather", "arguments": {"city": "Rome", "days": 3}})";
  const std::string second = R"({"name": "find_place", "arguments": {"query": "12"}})";
  const std::string llama = R"({"name": "get_weather", "parameters": {"city": "Rome", "days": 3}})";
  const std::string llama_second = R"({"name": "find_place", "parameters": {"query": "12"}})";
  const std::string broken = R"({"name": "get_weather", "arguments": {"city": "Rome", days: 3}})";
  const std::string arguments(kFirstArguments), second_arguments(kSecondArguments);
  const std::string each = "{% for c in m.tool_calls %}{% set f = c.function %}";
  const std::string json = "{{ '{\"name\": \"' + f.name + '\", \"arguments\": ' + f.arguments|tojson + '}' }}";
  const std::string list =
      "{% for c in m.tool_calls %}{% set f = c.function %}" + json + "{% if not loop.last %}, {% endif %}{% endfor %}";
  const std::string llama_json = "{{ '{\"name\": \"' + f.name + '\", \"parameters\": ' + f.arguments|tojson + '}' }}";
  const auto fenced = [](const std::string& inner) { return "```json\n" + inner + "\n```"; };
  const auto deepseek = [&](const std::string& name, const std::string& inner) {
    return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + name + "\n" + fenced(inner) + "<｜tool▁call▁end｜>";
  };
  const auto deepseek31 = [](const std::string& name, const std::string& inner) {
    return "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + inner + "<｜tool▁call▁end｜>";
  };
  const auto kimi = [](const std::string& name, const std::string& inner) {
    return "<|tool_call_begin|>functions." + name + "<|tool_call_argument_begin|>" + inner + "<|tool_call_end|>";
  };
  const auto channel = [](const std::string& name, const std::string& inner) {
    return "<|channel|>commentary to=functions." + name + " <|constrain|>json<|message|>" + inner + "<|call|>";
  };
  const std::string coder =
      "<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n";
  const std::string coder_second = "<function=find_place>\n<parameter=query>\n12\n</parameter>\n</function>\n";
  const std::string coder_broken = "<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</funktion>\n";
  const std::string coder_calls =
      "<function={{ f.name }}>\n{% for k, v in f.arguments.items() %}<parameter={{ k }}>\n{{ v if v is string else "
      "v|tojson }}\n"
      "</parameter>\n{% endfor %}</function>\n";
  const std::string invoke =
      "<invoke name=\"get_weather\">\n<parameter name=\"city\">Rome</parameter>\n<parameter "
      "name=\"days\">3</parameter>\n</invoke>\n";
  const std::string python = "get_weather(city=\"Rome\", days=3)", python_second = "find_place(query='12')";
  const std::string python_calls =
      "{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}={{ v|tojson }}{% if not loop.last %}, {% endif %}{% "
      "endfor %})";
  const auto cohere = [](const std::string& id, const std::string& name, const std::string& inner) {
    return "{\"tool_call_id\": \"" + id + "\", \"tool_name\": \"" + name + "\", \"parameters\": " + inner + "}";
  };
  const std::string cohere_calls =
      "[\n{% for c in m.tool_calls %}{% set f = c.function %}    {{ '{\"tool_name\": \"' + f.name + '\", "
      "\"parameters\": ' + "
      "f.arguments|tojson + '}' }}{% if not loop.last %},\n{% endif %}{% endfor %}\n]";
  return {
      {"hermes", "<tool_call>\n" + object + "\n</tool_call>",
       "<tool_call>\n" + object + "\n</tool_call>\n<tool_call>\n" + second + "\n</tool_call>",
       "<tool_call>\n" + broken + "\n</tool_call>",
       each + "<tool_call>\n" + json + "\n</tool_call>{{ '\\n' }}{% endfor %}"},
      {"mistral", "[TOOL_CALLS] [" + object + "]", "[TOOL_CALLS][" + object + ", " + second + "]",
       "[TOOL_CALLS] [" + broken + "]", "[TOOL_CALLS] [" + list + "]"},
      {"mistral-args", "[TOOL_CALLS]get_weather[ARGS]" + arguments,
       "[TOOL_CALLS]get_weather[ARGS]" + arguments + "[TOOL_CALLS]find_place[CALL_ID]abc123def[ARGS]" +
           second_arguments,
       "[TOOL_CALLS]get_weather[ARGS]{city}",
       each + "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments|tojson }}{% endfor %}"},
      {"granite", "<|tool_call|>[" + object + "]", "<tool_call>[" + object + ", " + second + "]",
       "<|tool_call|>[" + broken + "]", "<|tool_call|>[" + list + "]"},
      {"phi4", "<|tool_call|>[" + object + "]<|/tool_call|>",
       "<|tool_call|>[" + object + "," + second + "]<|/tool_call|>", "<|tool_call|>[" + broken + "]<|/tool_call|>",
       "<|tool_call|>[" + list + "]<|/tool_call|>"},
      {"deepseek", "<｜tool▁calls▁begin｜>" + deepseek("get_weather", arguments) + "<｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜>" + deepseek("get_weather", arguments) + "\n" + deepseek("find_place", second_arguments) +
           "<｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜>" + deepseek("get_weather", "{\"city\": }") + "<｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜>" + each +
           "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ f.name }}\n```json\n{{ f.arguments + '\\n```' "
           "}}<｜tool▁call▁end｜>{% endfor "
           "%}<｜tool▁calls▁end｜>"},
      {"deepseek-v3.1", "<｜tool▁calls▁begin｜>" + deepseek31("get_weather", arguments) + "<｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜>" + deepseek31("get_weather", arguments) + deepseek31("find_place", second_arguments) +
           "<｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜>" + deepseek31("get_weather", "{\"city\": }") + "<｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜>" + each +
           "<｜tool▁call▁begin｜>{{ f.name }}<｜tool▁sep｜>{{ '' + f.arguments }}<｜tool▁call▁end｜>{% endfor "
           "%}<｜tool▁calls▁end｜>"},
      {"channels", channel("get_weather", arguments),
       channel("get_weather", arguments) +
           "<|start|>assistant to=functions.find_place<|channel|>commentary json<|message|>" + second_arguments +
           "<|call|>",
       channel("get_weather", "{\"city\": Rome}"),
       each + "<|start|>assistant to=functions.{{ f.name }}<|channel|>commentary json<|message|>{{ f.arguments|tojson "
              "}}<|call|>{% endfor %}"},
      {"qwen3-coder", "<tool_call>\n" + coder + "</tool_call>",
       "<tool_call>\n" + coder + "</tool_call>\n<tool_call>\n" + coder_second + "</tool_call>",
       "<tool_call>\n" + coder_broken + "</tool_call>",
       each + "<tool_call>\n" + coder_calls + "</tool_call>{{ '\\n' }}{% endfor %}"},
      {"seed", "<seed:tool_call>\n" + coder + "</seed:tool_call>",
       "<seed:tool_call>\n" + coder + "</seed:tool_call>\n<seed:tool_call>\n" + coder_second + "</seed:tool_call>",
       "<seed:tool_call>\n" + coder_broken + "</seed:tool_call>",
       each + "<seed:tool_call>\n" + coder_calls + "</seed:tool_call>{{ '\\n' }}{% endfor %}"},
      {"minimax", "<minimax:tool_call>\n" + invoke + "</minimax:tool_call>",
       "<minimax:tool_call>\n" + invoke +
           "<invoke name=\"find_place\">\n<parameter name=\"query\">12</parameter>\n</invoke>\n</minimax:tool_call>",
       "<minimax:tool_call>\n<invoke name=get_weather>\n</invoke>\n</minimax:tool_call>",
       "<minimax:tool_call>\n" + each +
           "<invoke name=\"{{ f.name }}\">\n{% for k, v in f.arguments.items() %}<parameter name=\"{{ k }}\">{{ v if v "
           "is string "
           "else v|tojson }}</parameter>\n{% endfor %}</invoke>\n{% endfor %}</minimax:tool_call>"},
      {"glm",
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</"
       "arg_key>\n<arg_value>3</"
       "arg_value>\n</tool_call>",
       "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</"
       "arg_key><arg_value>3</"
       "arg_value></tool_call>\n<tool_call>find_place\n<arg_key>query</arg_key>\n<arg_value>12</arg_value>\n</"
       "tool_call>",
       "<tool_call>get_weather\n<arg_key>city</arg_key>\nRome\n</tool_call>",
       each + "<tool_call>{{ f.name }}\n{% for k, v in f.arguments.items() %}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ "
              "v if v is "
              "string else v|tojson }}</arg_value>\n{% endfor %}</tool_call>{{ '\\n' }}{% endfor %}"},
      {"kimi", "<|tool_calls_section_begin|>" + kimi("get_weather:0", arguments) + "<|tool_calls_section_end|>",
       "<|tool_calls_section_begin|>" + kimi("get_weather:0", arguments) + kimi("find_place:1", second_arguments) +
           "<|tool_calls_section_end|>",
       "<|tool_calls_section_begin|>" + kimi("get_weather:0", "{\"city\"; 1}") + "<|tool_calls_section_end|>",
       "<|tool_calls_section_begin|>" + each +
           "<|tool_call_begin|>functions.{{ f.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>{{ "
           "f.arguments|tojson "
           "}}<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>"},
      {"lfm2", "<|tool_call_start|>[" + python + "]<|tool_call_end|>",
       "<|tool_call_start|>[" + python + ", " + python_second + "]<|tool_call_end|>",
       "<|tool_call_start|>[get_weather(city=Rome)]<|tool_call_end|>",
       "<|tool_call_start|>[" + each + python_calls +
           "{% if not loop.last %}, {% endif %}{% endfor %}]<|tool_call_end|>"},
      {"olmo3", "<function_calls>\n" + python + "\n</function_calls>",
       "<function_calls>" + python + "\n" + python_second + "</function_calls>",
       "<function_calls>get_weather(Rome)</function_calls>",
       "<function_calls>" + each + python_calls +
           "{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}</function_calls>"},
      {"functionary-v3.1", "<function=get_weather>" + arguments + "</function>",
       "<function=get_weather>" + arguments + "</function><function=find_place>" + second_arguments + "</function>",
       "<function=get_weather>{\"city\": Rome}</function>",
       each + "<function={{ f.name }}>{{ f.arguments|tojson }}</function>{{ '\\n' }}{% endfor %}"},
      {"functionary-v3.2", ">>>get_weather\n" + arguments,
       ">>>get_weather\n" + arguments + ">>>find_place\n" + second_arguments, ">>>get_weather\n{city: 1}",
       each + ">>>{{ f.name }}\n{{ f.arguments|tojson }}{% endfor %}"},
      {"command-r7b", "<|START_ACTION|>[\n    " + cohere("0", "get_weather", arguments) + "\n]<|END_ACTION|>",
       "<|START_ACTION|>[\n    " + cohere("0", "get_weather", arguments) + ",\n    " +
           cohere("1", "find_place", second_arguments) + "\n]<|END_ACTION|>",
       "<|START_ACTION|>[\n    {\"tool_name\": 3}\n]<|END_ACTION|>",
       "<|START_ACTION|>" + cohere_calls + "<|END_ACTION|>"},
      {"command-r",
       "Action: ```json\n[\n    {\"tool_name\": \"get_weather\", \"parameters\": " + arguments + "}\n]\n```",
       "Action:```json\n[{\"tool_name\": \"get_weather\", \"parameters\": " + arguments +
           "}, {\"tool_name\": \"find_place\", \"parameters\": " + second_arguments + "}]```",
       "Action: ```json\n[\n    {\"tool_name\": }\n]\n```", "Action: ```json\n" + cohere_calls + "\n```"},
      {"hunyuan", "<tool_calls><tool_call>get_weather\n" + fenced(arguments) + "</tool_call></tool_calls>",
       "<tool_calls><tool_call>get_weather\n" + fenced(arguments) + "</tool_call>\n<tool_call>find_place\n" +
           fenced(second_arguments) + "</tool_call></tool_calls>",
       "<tool_calls><tool_call>get_weather\n" + fenced("{\"city\"}") + "</tool_call></tool_calls>",
       "<tool_calls>" + each +
           "<tool_call>{{ f.name }}\n```json\n{{ f.arguments|tojson }}{{ '\\n' }}```</tool_call>{% endfor "
           "%}</tool_calls>"},
      {"jamba", "<tool_calls>[\n" + object + "\n]</tool_calls>",
       "<tool_calls>[\n" + object + ",\n" + second + "\n]</tool_calls>",
       "<tool_calls>[\n" + broken + "\n]</tool_calls>", "<tool_calls>[" + list + "]</tool_calls>"},
      {"minimax-m1", "<tool_calls>\n" + object + "\n</tool_calls>",
       "<tool_calls>\n" + object + "\n" + second + "\n</tool_calls>", "<tool_calls>\n" + broken + "\n</tool_calls>",
       "<tool_calls>\n" + each + json + "{{ '\\n' }}{% endfor %}</tool_calls>"},
      {"nemotron", "<TOOLCALL>[" + object + "]</TOOLCALL>", "<TOOLCALL>[" + object + ", " + second + "]</TOOLCALL>",
       "<TOOLCALL>[" + broken + "]</TOOLCALL>", "<TOOLCALL>[" + list + "]</TOOLCALL>"},
      {"functools", "functools[" + object + "]", "functools[" + object + ", " + second + "]",
       "functools[" + broken + "]", "functools[" + list + "]"},
      {"apertus", "<|tools_prefix|>[{\"get_weather\": " + arguments + "}]<|tools_suffix|>",
       "<|tools_prefix|>[{\"get_weather\": " + arguments + "}, {\"find_place\": " + second_arguments +
           "}]<|tools_suffix|>",
       "<|tools_prefix|>[{\"get_weather\": {,}}]<|tools_suffix|>",
       "<|tools_prefix|>[" + each +
           "{{ '{\"' + f.name + '\": ' + f.arguments|tojson + '}' }}{% if not loop.last %}, {% endif "
           "%}{% endfor %}]<|tools_suffix|>"},
      {"internlm2", "<|action_start|><|plugin|>\n" + llama + "<|action_end|>",
       "<|action_start|><|plugin|>" + llama + "<|action_end|>\n<|action_start|><|plugin|>" + llama_second +
           "<|action_end|>",
       "<|action_start|><|plugin|>\n{name}<|action_end|>",
       each + "<|action_start|><|plugin|>\n" + llama_json + "<|action_end|>{{ '\\n' }}{% endfor %}"},
      {"pythonic", "[" + python + "]", "[" + python + ", " + python_second + "]", "[get_weather(city)]",
       "[" + each + python_calls + "{% if not loop.last %}, {% endif %}{% endfor %}]", true},
      {"llama3", llama, llama + "; " + llama_second, R"({"name": "get_weather", "parameters": {"city": }})",
       each + llama_json + "{% if not loop.last %}; {% endif %}{% endfor %}", true},
      {"llama3", "<|python_tag|>" + llama, "<|python_tag|>" + llama + ";" + llama_second,
       "<|python_tag|>print('hello')", each + "<|python_tag|>" + llama_json + "{% endfor %}"},
      {"json", object, "```json\n" + object + "\n```\n" + second, broken, "", true},
      {"json", "[" + object + "]", "[" + object + ",\n" + second + "]", "[" + broken + "]", "", true},
  };
}

}  // namespace quire::tools::testing

#include "quire/tools/format.h"

namespace quire::tools {
namespace {

using Kind = Part::Kind;
using Where = Shape::Where;

constexpr Part mark(std::string_view text) { return {Kind::Mark, text}; }
constexpr Part skip(std::string_view text) { return {Kind::Skip, text}; }
constexpr Part maybe(std::string_view text) { return {Kind::Maybe, text}; }
constexpr Part kSpace{Kind::Space}, kName{Kind::Name}, kObject{Kind::Object}, kJson{Kind::Json}, kTagged{Kind::Tagged},
    kKeywords{Kind::Keywords};

constexpr Part kSpacedObject[] = {kSpace, kObject};
constexpr Part kComma[] = {mark(",")};
constexpr Part kCloseList[] = {mark("]")};

// --- JSON objects between tags

constexpr Part kHermesCall[] = {mark("<tool_call>"), kSpace, kObject, kSpace, mark("</tool_call>")};
constexpr Shape kHermes[] = {{.call = kHermesCall, .keys = {.also_arguments = "parameters"}}};

constexpr Part kInternCall[] = {mark("<|action_start|>"), kSpace, mark("<|plugin|>"), kSpace, kObject,
                                mark("<|action_end|>")};
constexpr Shape kIntern[] = {{.call = kInternCall, .keys = {.arguments = "parameters", .also_arguments = "arguments"}}};

// --- lists of JSON objects behind a mark

constexpr Part kMistralBegin[] = {mark("[TOOL_CALLS]"), kSpace, mark("[")};
constexpr Shape kMistral[] = {{.begin = kMistralBegin,
                               .call = kSpacedObject,
                               .between = kComma,
                               .end = kCloseList,
                               .several = true,
                               .keys = {.keeps_id = true}}};

constexpr Part kGraniteBegin[] = {mark("<|tool_call|>"), kSpace, mark("[")};
constexpr Part kGraniteTagBegin[] = {mark("<tool_call>"), kSpace, mark("[")};
constexpr Part kGraniteTagEnd[] = {mark("]"), kSpace, maybe("</tool_call>")};
constexpr Shape kGranite[] = {
    {.begin = kGraniteBegin, .call = kSpacedObject, .between = kComma, .end = kCloseList, .several = true},
    {.begin = kGraniteTagBegin, .call = kSpacedObject, .between = kComma, .end = kGraniteTagEnd, .several = true}};

constexpr Part kPhiEnd[] = {mark("]"), kSpace, mark("<|/tool_call|>")};
constexpr Shape kPhi[] = {
    {.begin = kGraniteBegin, .call = kSpacedObject, .between = kComma, .end = kPhiEnd, .several = true}};

constexpr Part kNemotronBegin[] = {mark("<TOOLCALL>"), kSpace, mark("[")};
constexpr Part kNemotronEnd[] = {mark("]"), kSpace, mark("</TOOLCALL>")};
constexpr Shape kNemotron[] = {
    {.begin = kNemotronBegin, .call = kSpacedObject, .between = kComma, .end = kNemotronEnd, .several = true}};

constexpr Part kJambaBegin[] = {mark("<tool_calls>"), kSpace, mark("[")};
constexpr Part kJambaEnd[] = {mark("]"), kSpace, mark("</tool_calls>")};
constexpr Shape kJamba[] = {
    {.begin = kJambaBegin, .call = kSpacedObject, .between = kComma, .end = kJambaEnd, .several = true}};

constexpr Part kObjectsBegin[] = {mark("<tool_calls>"), kSpace};
constexpr Part kObjectsEnd[] = {mark("</tool_calls>")};
constexpr Shape kObjects[] = {{.begin = kObjectsBegin, .call = kSpacedObject, .end = kObjectsEnd, .several = true}};

constexpr Part kFunctoolsBegin[] = {mark("functools["), kSpace};
constexpr Shape kFunctools[] = {
    {.begin = kFunctoolsBegin, .call = kSpacedObject, .between = kComma, .end = kCloseList, .several = true}};

constexpr Part kApertusBegin[] = {mark("<|tools_prefix|>"), kSpace, mark("[")};
constexpr Part kApertusEnd[] = {mark("]"), kSpace, mark("<|tools_suffix|>")};
constexpr Shape kApertus[] = {{.begin = kApertusBegin,
                               .call = kSpacedObject,
                               .between = kComma,
                               .end = kApertusEnd,
                               .several = true,
                               .keys = {.name_is_key = true}}};

constexpr Part kActionBegin[] = {mark("<|START_ACTION|>"), kSpace, mark("[")};
constexpr Part kActionEnd[] = {kSpace, mark("]"), kSpace, mark("<|END_ACTION|>")};
constexpr Keys kCohereKeys = {.name = "tool_name", .arguments = "parameters", .id = "tool_call_id"};
constexpr Shape kCommandR7b[] = {{.begin = kActionBegin,
                                  .call = kSpacedObject,
                                  .between = kComma,
                                  .end = kActionEnd,
                                  .several = true,
                                  .keys = kCohereKeys}};
constexpr std::string_view kCohereSilent[] = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
                                              "<|END_TEXT|>"};
constexpr TextMarks kCohereTexts[] = {{.begin = "<|START_RESPONSE|>", .end = "<|END_RESPONSE|>"},
                                      {.begin = "<|START_TEXT|>", .end = "<|END_TEXT|>"}};

constexpr Part kCommandRBegin[] = {mark("Action:"), kSpace, mark("```json"), kSpace, mark("[")};
constexpr Part kCommandREnd[] = {mark("]"), kSpace, mark("```")};
constexpr Shape kCommandR[] = {{.begin = kCommandRBegin,
                                .call = kSpacedObject,
                                .between = kComma,
                                .end = kCommandREnd,
                                .several = true,
                                .keys = kCohereKeys}};

// --- a name, then JSON

constexpr Part kMistralNamedCall[] = {mark("[TOOL_CALLS]"), kSpace, kName, {Kind::MaybeId, "[CALL_ID]"},
                                      mark("[ARGS]"),       kSpace, kJson};
constexpr Shape kMistralNamed[] = {{.call = kMistralNamedCall}};

constexpr Part kDeepSeekSection[] = {mark("<｜tool▁calls▁begin｜>"), kSpace};
constexpr Part kDeepSeekCall[] = {mark("<｜tool▁call▁begin｜>"),
                                  mark("function"),
                                  mark("<｜tool▁sep｜>"),
                                  kName,
                                  kSpace,
                                  mark("```json"),
                                  kSpace,
                                  kJson,
                                  kSpace,
                                  mark("```"),
                                  kSpace,
                                  mark("<｜tool▁call▁end｜>")};
constexpr Part kDeepSeekEnd[] = {mark("<｜tool▁calls▁end｜>")};
constexpr Shape kDeepSeek[] = {
    {.begin = kDeepSeekSection, .call = kDeepSeekCall, .end = kDeepSeekEnd, .several = true}};

constexpr Part kDeepSeek31Call[] = {mark("<｜tool▁call▁begin｜>"), kName, mark("<｜tool▁sep｜>"), kSpace, kJson, kSpace,
                                    mark("<｜tool▁call▁end｜>")};
constexpr Shape kDeepSeek31[] = {
    {.begin = kDeepSeekSection, .call = kDeepSeek31Call, .end = kDeepSeekEnd, .several = true}};

constexpr Part kKimiSection[] = {mark("<|tool_calls_section_begin|>"), kSpace};
constexpr Part kKimiCall[] = {mark("<|tool_call_begin|>"),
                              kSpace,
                              maybe("functions."),
                              kName,
                              kSpace,
                              mark("<|tool_call_argument_begin|>"),
                              kSpace,
                              kJson,
                              kSpace,
                              mark("<|tool_call_end|>")};
constexpr Part kKimiEnd[] = {mark("<|tool_calls_section_end|>")};
constexpr Shape kKimi[] = {
    {.begin = kKimiSection, .call = kKimiCall, .end = kKimiEnd, .several = true, .numbered = "functions."}};

constexpr Part kFunctionTagCall[] = {mark("<function="), kName, mark(">"), kSpace, kJson, kSpace, mark("</function>")};
constexpr Shape kFunctionTag[] = {{.call = kFunctionTagCall}};

constexpr Part kArrowsCall[] = {mark(">>>"), kName, mark("\n"), kSpace, kJson};
constexpr Shape kArrows[] = {{.call = kArrowsCall}};
constexpr std::string_view kArrowsSilent[] = {">>>all\n"};
constexpr TextMarks kArrowsTexts[] = {{.begin = "all\n"}};

constexpr Part kHunyuanSection[] = {mark("<tool_calls>"), kSpace};
constexpr Part kHunyuanCall[] = {
    mark("<tool_call>"), kName, kSpace, mark("```json"), kSpace, kJson, kSpace, mark("```"), kSpace,
    mark("</tool_call>")};
constexpr Part kHunyuanEnd[] = {mark("</tool_calls>")};
constexpr Shape kHunyuan[] = {{.begin = kHunyuanSection, .call = kHunyuanCall, .end = kHunyuanEnd, .several = true}};

// --- channels

constexpr Part kChannelCall[] = {mark("<|channel|>commentary to=functions."),
                                 kName,
                                 skip(" <|constrain|>json"),
                                 mark("<|message|>"),
                                 kSpace,
                                 kJson,
                                 maybe("<|call|>")};
constexpr Part kAnalysisCall[] = {mark("<|channel|>analysis to=functions."),
                                  kName,
                                  skip(" <|constrain|>json"),
                                  mark("<|message|>"),
                                  kSpace,
                                  kJson,
                                  maybe("<|call|>")};
constexpr Part kRecipientCall[] = {mark("<|start|>assistant to=functions."),
                                   kName,
                                   mark("<|channel|>"),
                                   skip("commentary json"),
                                   mark("<|message|>"),
                                   kSpace,
                                   kJson,
                                   maybe("<|call|>")};
constexpr Shape kChannels[] = {{.call = kChannelCall}, {.call = kAnalysisCall}, {.call = kRecipientCall}};
constexpr std::string_view kChannelsHeader = "<|start|>assistant";
constexpr std::string_view kChannelsSilent[] = {kChannelsHeader,
                                                "<|channel|>final<|message|>",
                                                "<|channel|>final <|constrain|>json<|message|>",
                                                "<|channel|>commentary<|message|>",
                                                "<|end|>",
                                                "<|return|>"};
constexpr TextMarks kChannelsTexts[] = {{.begin = "<|channel|>final<|message|>"},
                                        {.begin = "<|channel|>final <|constrain|>json<|message|>"},
                                        {.begin = "<|channel|>commentary<|message|>", .end = "<|end|>", .aside = true}};

// --- parameters between tags

constexpr Tags kParameterTags = {.open = "<parameter=", .middle = ">", .close = "</parameter>", .trims_line = true};
constexpr Part kCoderCall[] = {
    mark("<tool_call>"), kSpace, mark("<function="),  kName, mark(">"), kSpace, kTagged, kSpace,
    mark("</function>"), kSpace, mark("</tool_call>")};
// The models sometimes leave out the outer tag.
constexpr Part kCoderBareCall[] = {
    mark("<function="), kName, mark(">"), kSpace, kTagged, kSpace, mark("</function>"), kSpace, maybe("</tool_call>")};
constexpr Shape kCoder[] = {{.call = kCoderCall, .tags = kParameterTags},
                            {.call = kCoderBareCall, .tags = kParameterTags}};

constexpr Part kSeedCall[] = {
    mark("<seed:tool_call>"), kSpace, mark("<function="),       kName, mark(">"), kSpace, kTagged, kSpace,
    mark("</function>"),      kSpace, mark("</seed:tool_call>")};
constexpr Shape kSeed[] = {{.call = kSeedCall, .tags = kParameterTags}};

constexpr Part kMiniMaxSection[] = {mark("<minimax:tool_call>"), kSpace};
constexpr Part kMiniMaxCall[] = {mark("<invoke name=\""), kName, mark("\">"), kSpace, kTagged, kSpace,
                                 mark("</invoke>")};
constexpr Part kMiniMaxEnd[] = {mark("</minimax:tool_call>")};
constexpr Shape kMiniMax[] = {{.begin = kMiniMaxSection,
                               .call = kMiniMaxCall,
                               .end = kMiniMaxEnd,
                               .several = true,
                               .tags = {.open = "<parameter name=\"", .middle = "\">", .close = "</parameter>"}}};

constexpr Part kGlmCall[] = {mark("<tool_call>"), kSpace, kName, kSpace, kTagged, kSpace, mark("</tool_call>")};
constexpr Shape kGlm[] = {
    {.call = kGlmCall,
     .tags = {
         .open = "<arg_key>", .middle = "</arg_key>\n<arg_value>", .close = "</arg_value>", .space_inside = true}}};

// --- as Python calls functions

constexpr Part kPythonCall[] = {kSpace, kName, mark("("), kKeywords, mark(")")};
constexpr Part kLfmBegin[] = {mark("<|tool_call_start|>"), kSpace, mark("[")};
constexpr Part kLfmEnd[] = {mark("]"), kSpace, mark("<|tool_call_end|>")};
constexpr Shape kLfm[] = {
    {.begin = kLfmBegin, .call = kPythonCall, .between = kComma, .end = kLfmEnd, .several = true}};

constexpr Part kOlmoBegin[] = {mark("<function_calls>"), kSpace};
constexpr Part kOlmoEnd[] = {mark("</function_calls>")};
constexpr Shape kOlmo[] = {{.begin = kOlmoBegin, .call = kPythonCall, .end = kOlmoEnd, .several = true}};

constexpr Part kPythonTagBegin[] = {mark("<|python_start|>"), kSpace, mark("[")};
constexpr Part kPythonTagEnd[] = {mark("]"), kSpace, maybe("<|python_end|>")};
constexpr Part kOpenList[] = {mark("[")};
constexpr Shape kPythonic[] = {
    {.begin = kPythonTagBegin, .call = kPythonCall, .between = kComma, .end = kPythonTagEnd, .several = true},
    {.begin = kOpenList,
     .call = kPythonCall,
     .between = kComma,
     .end = kCloseList,
     .several = true,
     .where = Where::Line}};

// --- bare JSON

constexpr Keys kLlamaKeys = {.arguments = "parameters", .also_arguments = "arguments"};
constexpr Part kLlamaTagBegin[] = {mark("<|python_tag|>"), kSpace};
constexpr Part kBareObject[] = {kObject};
constexpr Part kSemicolon[] = {mark(";"), kSpace};
constexpr Shape kLlama[] = {
    {.begin = kLlamaTagBegin, .call = kBareObject, .between = kSemicolon, .several = true, .keys = kLlamaKeys},
    {.call = kBareObject, .between = kSemicolon, .several = true, .where = Where::Line, .keys = kLlamaKeys}};

constexpr Keys kAnyKeys = {.also_arguments = "parameters"};
constexpr Part kFencedCall[] = {mark("```json"), kSpace, kObject, kSpace, mark("```")};
constexpr Shape kFallback[] = {
    {.call = kHermesCall, .keys = kAnyKeys},
    {.call = kFencedCall, .where = Where::Line, .keys = kAnyKeys},
    {.begin = kOpenList,
     .call = kSpacedObject,
     .between = kComma,
     .end = kCloseList,
     .several = true,
     .where = Where::Line,
     .keys = kAnyKeys},
    {.call = kBareObject, .where = Where::Line, .keys = kAnyKeys},
};

constexpr Format kFormats[] = {
    {.name = "hermes", .shapes = kHermes},
    {.name = "mistral", .shapes = kMistral},
    {.name = "mistral-args", .shapes = kMistralNamed},
    {.name = "granite", .shapes = kGranite},
    {.name = "phi4", .shapes = kPhi},
    {.name = "deepseek", .shapes = kDeepSeek},
    {.name = "deepseek-v3.1", .shapes = kDeepSeek31},
    {.name = "channels",
     .shapes = kChannels,
     .silent = kChannelsSilent,
     .header = kChannelsHeader,
     .texts = kChannelsTexts},
    {.name = "qwen3-coder", .shapes = kCoder},
    {.name = "seed", .shapes = kSeed},
    {.name = "minimax", .shapes = kMiniMax},
    {.name = "glm", .shapes = kGlm},
    {.name = "kimi", .shapes = kKimi},
    {.name = "lfm2", .shapes = kLfm},
    {.name = "olmo3", .shapes = kOlmo},
    {.name = "functionary-v3.1", .shapes = kFunctionTag},
    {.name = "functionary-v3.2", .shapes = kArrows, .silent = kArrowsSilent, .header = ">>>", .texts = kArrowsTexts},
    {.name = "command-r7b", .shapes = kCommandR7b, .silent = kCohereSilent, .texts = kCohereTexts},
    {.name = "command-r", .shapes = kCommandR},
    {.name = "hunyuan", .shapes = kHunyuan},
    {.name = "jamba", .shapes = kJamba},
    {.name = "minimax-m1", .shapes = kObjects},
    {.name = "nemotron", .shapes = kNemotron},
    {.name = "functools", .shapes = kFunctools},
    {.name = "apertus", .shapes = kApertus},
    {.name = "internlm2", .shapes = kIntern},
    {.name = "pythonic", .shapes = kPythonic},
    {.name = "llama3", .shapes = kLlama},
    {.name = "json", .shapes = kFallback},
};

constexpr Reasoning kReasonings[] = {
    {.name = "think", .begin = "<think>", .end = "</think>"},
    {.name = "channels",
     .begin = "<|channel|>analysis<|message|>",
     .end = "<|end|>",
     .anywhere = true,
     .silent = kChannelsSilent,
     .header = kChannelsHeader,
     .texts = kChannelsTexts},
    {.name = "command-r7b",
     .begin = "<|START_THINKING|>",
     .end = "<|END_THINKING|>",
     .silent = kCohereSilent,
     .texts = kCohereTexts},
    {.name = "mistral", .begin = "[THINK]", .end = "[/THINK]"},
    {.name = "seed", .begin = "<seed:think>", .end = "</seed:think>"},
    {.name = "thinking", .begin = "<thinking>", .end = "</thinking>"},
    {.name = "thought", .begin = "<thought>", .end = "</thought>"},
    {.name = "reasoning", .begin = "<reasoning>", .end = "</reasoning>"},
    {.name = "apertus", .begin = "<|inner_prefix|>", .end = "<|inner_suffix|>"},
};

}  // namespace

std::span<const Format> formats() { return kFormats; }
const Format& fallback_format() { return kFormats[std::size(kFormats) - 1]; }
std::span<const Reasoning> reasonings() { return kReasonings; }

}  // namespace quire::tools

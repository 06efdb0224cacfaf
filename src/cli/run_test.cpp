// `quire run`, called in this process.
#include "quire/cli/run.h"

#include <cmath>
#include <fstream>
#include <string>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/backend/cpu/kernels.h"
#include "quire/cli/cli_testing.h"
#include "quire/gguf/gguf_testing.h"
#include "quire/model/head_testing.h"

namespace quire::cli {
namespace {

namespace json = boost::json;
using testing::call;
using testing::demo_model;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using ::testing::StartsWith;

constexpr const char* kPrompt = "Once upon a time there was";
constexpr std::string_view kStory =
    " a grumpy boy named Oscar. Oscar lived near the harbour. Oscar wanted to bring plums to a brave boy named Arthur "
    "who "
    "lived at the old mill. On the way the sky turned dark and the wind began to blow. \"I must hurry,\" said Oscar. "
    "Soon "
    "he could not see the path. Then he heard a bell. It was Arthur, who stood in the rain with a grey lantern. \"I "
    "knew "
    "you would come,\" said Arthur. \"Follow my light.\" Inside it was warm. They ate the plums and told stories until "
    "the "
    "storm was over. In the morning Arthur gave Oscar a hat. \"So that you remember this night,\" he said. Oscar was "
    "delighted and carried the hat home. The end.\n";

json::value json_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "run");
  arguments.insert(arguments.end(), {"--json", "--threads", "2"});
  const Outcome ran = call(arguments);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  return json::parse(ran.out);
}

std::string text_of(std::vector<std::string> arguments) {
  return std::string(json_of(std::move(arguments)).at("text").as_string());
}

TEST(Run, TheBundledModelTellsAStory) {
  const Outcome ran = call({"run", "-p", kPrompt, "--temp", "0"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out, kStory);
  EXPECT_THAT(ran.err, HasSubstr("prefill  6 tokens in "));
  EXPECT_THAT(ran.err, HasSubstr("the model ended it\npool     10 pages held, 640.0 KiB of 8.0 MiB\n"));
  EXPECT_THAT(ran.err, Not(HasSubstr("seed"))) << "none was used";
}

TEST(Run, AConstraintIsKept) {
  for (const char* seed : {"1", "2", "3"}) {
    const std::string text = text_of({"-p", kPrompt, "--regex", "[a-c]{3,5}!", "-s", seed});
    EXPECT_THAT(text, ::testing::MatchesRegex("[a-c]+!")) << text;
    EXPECT_GE(text.size(), 4U);
    EXPECT_LE(text.size(), 6U);
  }
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "flag.json") << R"({"type": "object", "properties": {"flag": {"type": "boolean"}},
      "required": ["flag"], "additionalProperties": false})";
  const std::string text = text_of({"-p", kPrompt, "--schema", folder + "flag.json", "--compact", "--temp", "0"});
  EXPECT_TRUE(text == R"({"flag":true})" || text == R"({"flag":false})") << text;

  const Outcome wrong = call({"run", "-p", kPrompt, "--regex", "(a"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("--regex: regular expression, byte 0"));
  const Outcome missing = call({"run", "-p", kPrompt, "--grammar", folder + "none.gbnf"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("none.gbnf"));
}

TEST(Run, TheStoryIsTheSameWithEveryInstructionSet) {
  for (const char* variant : cpu::kVariants) {
    if (cpu::kernels_by_name(variant) == nullptr) {
      std::printf("this machine has no %s: left out\n", variant);
      continue;
    }
    RunOptions options;
    options.prompt = kPrompt;
    options.sampler.temperature = 0;
    options.model.variant = variant;
    StringOutput out, err;
    const auto ran = run_prompt(options, {.out = out, .err = err, .out_style = {}, .err_style = {}});
    ASSERT_TRUE(ran) << ran.error().message;
    EXPECT_EQ(out.text(), kStory) << variant;
  }
}

TEST(Run, ASeedGivesTheSameTextAndAnotherAnother) {
  const auto story = [](const char* seed, const char* threads) {
    const Outcome ran = call({"run", "-p", kPrompt, "-n", "60", "--temp", "1.5", "--seed", seed, "--threads", threads});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(std::string("seed     ") + seed));
    return ran.out;
  };
  const std::string first = story("1", "1");
  EXPECT_EQ(story("1", "3"), first);
  EXPECT_NE(story("2", "1"), first);
}

TEST(Run, WithoutASeedTwoRunsDifferAndTheReportSaysHowToRepeatThem) {
  const json::value one =
      json_of({"-p", kPrompt, "-n", "40", "--temp", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0"});
  const json::value other =
      json_of({"-p", kPrompt, "-n", "40", "--temp", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0"});
  EXPECT_NE(one.at("text"), other.at("text"));
  const std::string seed = std::to_string(one.at("seed").to_number<std::uint64_t>());
  EXPECT_EQ(text_of({"-p", kPrompt, "-n", "40", "--temp", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed",
                     seed}),
            one.at("text").as_string());
}

TEST(Run, JsonSaysItAll) {
  const json::value out = json_of({"-p", kPrompt, "-n", "5", "--temp", "0", "--ctx", "64"});
  EXPECT_THAT(std::string(kStory), StartsWith(std::string(out.at("text").as_string())));
  EXPECT_EQ(out.at("ids").as_array().size(), 5u);
  EXPECT_EQ(out.at("ending"), "limit");
  EXPECT_EQ(out.at("context"), 64);
  EXPECT_EQ(out.at("threads"), 2);
  EXPECT_EQ(out.at("prefill").at("tokens"), 6);
  EXPECT_EQ(out.at("decode").at("tokens"), 5);
  EXPECT_EQ(out.at("pool").at("pages"), 1);
  EXPECT_EQ(out.at("pool").at("pool_bytes"), 4 * 64 * 1024);
}

TEST(Run, TheRateCountsTheTokensOfItsTime) {
  const auto timed = [](const json::value& timing) {
    return timing.at("tokens_per_second").to_number<double>() * timing.at("seconds").to_number<double>();
  };
  // The first token comes with the prefill, so N tokens take N - 1 steps of decode.
  const json::value cut = json_of({"-p", kPrompt, "-n", "5", "--temp", "0"});
  EXPECT_NEAR(timed(cut.at("decode")), 4, 1e-6);
  EXPECT_NEAR(timed(cut.at("prefill")), 6, 1e-6);
  EXPECT_NEAR(timed(json_of({"-p", kPrompt, "-n", "1", "--temp", "0"}).at("decode")), 0, 1e-6);
  // The token that ends the answer takes a step too, though it is not part of the answer.
  const json::value whole = json_of({"-p", kPrompt, "--temp", "0"});
  ASSERT_EQ(whole.at("ending"), "end");
  EXPECT_NEAR(timed(whole.at("decode")), whole.at("decode").at("tokens").to_number<double>(), 1e-6);
}

TEST(Run, AModelsOwnHeadChangesNoText) {
  const std::string file = ::testing::TempDir() + "head.gguf";
  const auto image = model::testing::HeadModel("qwen35").knowing().image();
  testing::write_file(file, {reinterpret_cast<const char*>(image.data()), image.size()});
  for (const char* temperature : {"0", "1"}) {
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), {"-m", file, "-p", kPrompt, "-n", "60", "--temp", temperature, "-s", "3"});
      return json_of(std::move(more));
    };
    const json::value off = with({"--speculate", "off"});
    for (const char* way : {"auto", "heads", "ngram"}) {
      const json::value on = with({"--speculate", way, "--draft-tokens", "3"});
      EXPECT_EQ(on.at("text"), off.at("text")) << way;
      // It knows what comes next, which looking up does not. Only behind the end of the answer guesses are in vain.
      if (way != std::string("ngram") && temperature == std::string("0")) {
        EXPECT_LE(on.at("drafted").as_int64() - on.at("accepted").as_int64(), 3) << way;
      }
    }
  }
}

TEST(Run, AHeadThatIsBrokenIsRefusedOnlyWhereItIsUsed) {
  const std::string file = ::testing::TempDir() + "broken_head.gguf";
  const auto image = model::testing::HeadModel("qwen35").remove("nextn.enorm.weight").image();
  testing::write_file(file, {reinterpret_cast<const char*>(image.data()), image.size()});
  const std::vector<std::string> asked = {"run", "-m", file, "-p", kPrompt, "-n", "3"};
  for (const char* way : {"off", "ngram"}) {
    std::vector<std::string> arguments = asked;
    arguments.insert(arguments.end(), {"--speculate", way});
    const auto outcome = call(arguments);
    EXPECT_EQ(outcome.exit_code, kSuccess) << outcome.err;
  }
  for (const char* way : {"auto", "heads"}) {
    std::vector<std::string> arguments = asked;
    arguments.insert(arguments.end(), {"--speculate", way});
    const auto outcome = call(arguments);
    EXPECT_EQ(outcome.exit_code, kFailure);
    EXPECT_THAT(outcome.err, HasSubstr("nextn.enorm.weight"));
    EXPECT_THAT(outcome.err, HasSubstr("'--speculate ngram' does without"));
  }
}

TEST(Run, SpeculationChangesNoTextAndSaysHowOftenItWasRight) {
  for (const char* model : {"llama", "mamba2", "hybrid"}) {
    for (const char* temperature : {"0", "1"}) {
      const std::vector<std::string> asked = {"-m", demo_model(model), "-p", kPrompt, "--temp", temperature, "-s", "3"};
      const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), asked.begin(), asked.end());
        return json_of(std::move(more));
      };
      const json::value off = with({"--speculate", "off"});
      EXPECT_EQ(off.at("drafted"), 0);
      for (const auto& more : std::vector<std::vector<std::string>>{
               {}, {"--speculate", "ngram", "--draft-tokens", "3"}, {"--draft", demo_model("llama")}}) {
        const json::value on = with(more);
        EXPECT_EQ(on.at("text"), off.at("text"));
        EXPECT_LE(on.at("accepted").as_int64(), on.at("drafted").as_int64());
      }
    }
  }
}

TEST(Run, TheDeviceMayBeNamed) {
  const std::string best = known_devices().usable.front().name;
  for (const auto& [device, name] : {std::pair<std::string, std::string>{"auto", best}, {"cpu", "cpu"}}) {
    const json::value out = json_of({"-p", kPrompt, "-n", "1", "--device", device});
    EXPECT_EQ(std::string(out.at("device").as_string()), name) << device;
  }
}

TEST(Run, EndsWhereTheContextDoes) {
  for (const char* kind : {"llama", "mamba2", "hybrid"}) {
    const json::value out = json_of({"-m", demo_model(kind), "-p", kPrompt, "--temp", "0", "--ctx", "20"});
    EXPECT_EQ(out.at("ending"), "context") << kind;
    EXPECT_EQ(out.at("decode").at("tokens"), 20 - 6) << kind;
  }
}

TEST(Run, EchoWritesThePromptToo) {
  const Outcome ran = call({"run", "-p", kPrompt, "-n", "4", "--temp", "0", "--echo"});
  EXPECT_THAT(ran.out, StartsWith("Once upon a time there was a grumpy"));
}

TEST(Run, ControlTokensInThePromptAreTextUnlessAskedFor) {
  const std::string chat = "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n";
  const json::value parsed = json_of({"-p", chat, "--special", "--temp", "0"});
  EXPECT_EQ(parsed.at("text"), "5");
  EXPECT_EQ(parsed.at("ending"), "end");
  const json::value literal = json_of({"-p", chat, "-n", "1", "--temp", "0"});
  EXPECT_GT(literal.at("prefill").at("tokens").to_number<int>(), parsed.at("prefill").at("tokens").to_number<int>());
}

TEST(Run, TheKindOfKeysAndValuesDecidesHowMuchThePoolTakes) {
  const auto bytes = [](const char* type) {
    return json_of({"-p", "a", "-n", "1", "--ctx", "64", "--kv-type", type})
        .at("pool")
        .at("pool_bytes")
        .to_number<int>();
  };
  EXPECT_EQ(bytes("f32"), 2 * bytes("f16"));
}

TEST(Run, TheTypeOfRecurrentStatesDecidesHowMuchThePoolTakes) {
  const auto bytes = [](const char* model, const char* type) {
    return json_of({"-m", demo_model(model), "-p", "a", "-n", "1", "--ctx", "64", "--state-type", type})
        .at("pool")
        .at("pool_bytes")
        .to_number<double>();
  };
  // All but the convolution states, which stay f32.
  for (const char* type : {"bf16", "f16"}) {
    EXPECT_LT(bytes("mamba2", type), 0.6 * bytes("mamba2", "f32")) << type;
    EXPECT_GT(bytes("mamba2", type), 0.5 * bytes("mamba2", "f32")) << type;
    EXPECT_EQ(bytes("llama", type), bytes("llama", "f32")) << "no recurrent states";
  }
}

TEST(Run, MemoryDecidesHowLongTheContextIs) {
  const json::value out = json_of({"-p", "a", "-n", "1", "--memory", "2M"});
  EXPECT_EQ(out.at("context"), 512);
  EXPECT_EQ(out.at("pool").at("pool_bytes"), 2 << 20);
}

TEST(Run, NothingOfTheModelsReachesATerminalAsAnOrder) {
  Style terminal;
  terminal.terminal = terminal.utf8 = true;
  const Outcome ran = call({"run", "-p", "\x1b[31m\u202e", "-n", "1", "--echo", "--temp", "0"}, terminal);
  EXPECT_EQ(ran.out.find('\x1b'), std::string::npos) << ran.out;
  EXPECT_THAT(ran.out, StartsWith("\\x1b[31m\\u{202e}"));
}

// One clear line, and an exit code that is not 0.
struct Refused {
  std::vector<std::string> arguments;
  int code;
  std::string message;
};

TEST(Run, WhatCannotBeDoneIsOneLineThatSaysWhy) {
  const gguf::testing::TemporaryFolder folder;
  const std::string broken = folder / "broken.gguf", half = folder / "half.gguf";
  std::ofstream(broken) << "this is no model";
  std::ofstream(half, std::ios::binary) << testing::read_file(demo_model("llama")).substr(0, 3'000'000);
  const Refused cases[] = {
      {{"-p", "a", "--ctx", "4096"},
       1,
       "a context of 4096 tokens is longer than the 2048 that the model was trained for"},
      {{"-p", "a", "--memory", "10K"}, 1, "a pool of 0.01 MiB is too small for one sequence: 16 tokens take 0.06 MiB"},
      {{"-p", "a", "--memory", "1M", "--ctx", "2048"},
       1,
       "a pool of 1.0 MiB is too small for one sequence of 2048 tokens, which takes 8.0 MiB"},
      {{"-p", "a", "--memory", "900000G"}, 1, "more memory than the device has"},
      {{"-p", "a", "-m", broken}, 1, "broken.gguf"},
      {{"-p", "a", "-m", half}, 1, "half.gguf"},
      {{"-p", "a", "-m", folder / "none.gguf"}, 1, "none.gguf"},
      {{"-p", "one two three four five six seven eight nine ten", "--ctx", "4"}, 1, "tokens, and the context only 4"},
      {{"-p", ""}, 1, "the prompt is empty"},
      {{"-p", "a", "--memory", "lots"}, 2, "--memory: \"lots\" is not an amount of memory like 512M, 2G or 100000000"},
      {{"-p", "a", "--memory", "0"}, 2, "--memory: \"0\""},
      {{"-p", "a", "--memory", "-5"}, 2, "--memory"},
      {{"-p", "a", "--ctx", "0"}, 2, "--ctx: \"0\" is not a whole number from 1"},
      {{"-p", "a", "--ctx", "many"}, 2, "--ctx: \"many\""},
      {{"-p", "a", "--threads", "0"}, 2, "--threads: \"0\""},
      {{"-p", "a", "--threads", "100000"}, 2, "--threads"},
      {{"-p", "a", "--pin", "nodes"}, 2, "--pin: \"nodes\" is not one of auto, cores, off"},
      {{"-p", "a", "--numa", "near"}, 2, "--numa: \"near\" is not one of auto, interleave, local, off"},
      {{"-p", "a", "-n", "0"}, 2, "--tokens: \"0\""},
      {{"-p", "a", "--device", "tpu"}, 1, "there is no device 'tpu' (auto, cpu, cuda and cuda:N are known)"},
      {{"-p", "a", "--kv-type", "q8"}, 2, "--kv-type: \"q8\" is not one of f16, bf16, f32, q8_0"},
      {{"-p", "a", "--block-size", "0"}, 2, "--block-size"},
      {{"-p", "a", "--speculate", "often"}, 2, "--speculate: \"often\" is not one of auto, off, ngram, heads"},
      {{"-p", "a", "--speculate", "heads"}, 1, "has no next-token head; auto takes what there is"},
      {{"-p", "a", "--draft-tokens", "17"}, 2, "--draft-tokens: \"17\" is not a whole number from 1 to 16"},
      {{"-p", "a", "--draft", broken}, 1, "broken.gguf"},
      {{"-p", "a", "--draft", QUIRE_SOURCE_DIR "/testdata/golden/llama/model.gguf"}, 1, "cannot draft for one of"},
      {{"-p", "a", "--draft", broken, "--speculate", "ngram"}, 1, "would not be used with '--speculate ngram'"},
      {{"-p", "a", "--draft", broken, "--speculate", "heads"}, 1, "would not be used with '--speculate heads'"},
      {{"-p", "a", "--state-type", "q8_0"}, 2, "--state-type: \"q8_0\" is not one of f32, bf16, f16"},
      {{"-p", "a", "--temp", "-1"}, 2, "a temperature of -1 is not between 0 and 100"},
      {{"-p", "a", "--temp", "hot"}, 2, "hot"},
      {{"-p", "a", "--top-p", "1.5"}, 2, "a top-p of 1.5"},
      {{"-p", "a", "--min-p", "2"}, 2, "a min-p of 2"},
      {{}, 2, "--prompt or --file is required"},
  };
  for (const Refused& refused : cases) {
    std::vector<std::string> arguments = {"run"};
    arguments.insert(arguments.end(), refused.arguments.begin(), refused.arguments.end());
    const Outcome ran = call(arguments);
    EXPECT_EQ(ran.exit_code, refused.code) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, StartsWith("quire: "));
    EXPECT_THAT(ran.err, HasSubstr(refused.message));
    EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
  }
}

}  // namespace
}  // namespace quire::cli

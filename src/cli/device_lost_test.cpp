// The device is lost under a command: the command ends and says why.
#include <future>
#include <memory>
#include <string>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/bench/workloads.h"
#include "quire/cli/ask.h"
#include "quire/cli/chat.h"
#include "quire/cli/cli_testing.h"
#include "quire/cli/dialogue.h"
#include "quire/cli/line_reader.h"
#include "quire/cli/serve.h"
#include "quire/server/server_testing.h"
#include "quire/state/losable_device_testing.h"

namespace quire::cli {
namespace {

using namespace std::chrono_literals;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kLost = "the device losable is lost: somebody pulled it out";

bench::BenchHost host_on(LosableDevice& device, std::uint32_t sequences = 1) {
  auto backend = std::make_unique<CpuBackend>(1, cpu::best_kernels(), &device);
  ThreadTeam* const team = &backend->team();
  auto host = engine::HostedModel::create(std::move(*model::Model::load(testing::demo_model("llama"))),
                                          std::move(backend), {.max_sequences = sequences});
  EXPECT_TRUE(host.has_value());
  return {std::move(*host), team};
}

TEST(DeviceLost, EndsAnAnswerWithTheDevicesError) {
  LosableDevice device;
  const auto host = host_on(device);
  const auto tokenizer = *text::Tokenizer::from_gguf(host->model().file());
  int tokens = 0;
  const auto answered = ask(*host, tokenizer, {.prompt = {5, 6, 7}, .limit = 100}, {}, [&](text::TokenId, auto) {
    if (++tokens == 3) device.lose();
    return true;
  });
  ASSERT_FALSE(answered.has_value());
  EXPECT_EQ(answered.error().message, kLost);
}

// Most failures concern one message, and a person may write another one. This one does not.
TEST(DeviceLost, EndsAChatWithAPerson) {
  class OneLine final : public LineReader {
   public:
    Line read() override {
      EXPECT_EQ(++reads, 1) << "the conversation goes on";
      return reads == 1 ? Line{Line::Kind::text, "Hello!"} : Line{};
    }
    int reads = 0;
  };
  LosableDevice device;
  StringOutput out, err;
  const Console console{.out = out, .err = err, .out_style = {}, .err_style = {}};
  const auto chat = Chat::create({}, console, std::move(host_on(device).hosted));
  ASSERT_TRUE(chat.has_value()) << chat.error().message;
  device.lose();
  OneLine lines;
  Interrupt interrupt;
  const auto left = converse(**chat, lines, console, &interrupt);
  ASSERT_FALSE(left.has_value());
  EXPECT_EQ(left.error().message, kLost);
}

TEST(DeviceLost, EndsABenchmark) {
  for (const char* workload : {"prefill", "decode", "shared-prefix", "chat", "mixed", "serve"}) {
    std::vector<std::unique_ptr<LosableDevice>> devices;  // outlive the hosts
    const auto make = [&](const bench::HostNeeds&) -> Result<bench::BenchHost> {
      devices.push_back(std::make_unique<LosableDevice>());
      auto host = host_on(*devices.back(), 8);
      devices.back()->lose();
      return host;
    };
    const bench::Told tell{.row = [&](const auto&) { ADD_FAILURE() << workload << " reports a result"; },
                           .note = [](const std::string&) {},
                           .prefill = {},
                           .read_rate = [](ThreadTeam&) { return 1.0; }};
    const auto ok = bench::run_workload(workload, {.repeat = 1, .batches = {2}, .tokens = 8}, make, tell);
    ASSERT_FALSE(ok.has_value()) << workload;
    EXPECT_EQ(ok.error().message, kLost) << workload;
  }
}

TEST(DeviceLost, EndsTheServerWithALineThatSaysWhatToDo) {
  LosableDevice device;
  int pipe[2] = {-1, -1};
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  DescriptorOutput out(pipe[1]);
  StringOutput err;
  const Console console{.out = out, .err = err, .out_style = {}, .err_style = {}};
  ServeOptions options;
  options.server.http.port = 0;
  auto ended = std::async(std::launch::async, [&, host = std::move(host_on(device).hosted)]() mutable {
    return serve(std::move(host), std::move(options), console);
  });
  std::string line;
  for (char c = 0; c != '\n' && ::read(pipe[0], &c, 1) == 1;) line += c;
  ASSERT_NE(line.find("127.0.0.1:"), std::string::npos) << line;
  const auto port = static_cast<std::uint16_t>(std::stoi(line.substr(line.find("127.0.0.1:") + 10)));
  device.lose();
  const auto reply = server::testing::post(port, "/v1/completions", R"({"prompt": "Hello", "max_tokens": 4})");
  EXPECT_EQ(reply.status, 500u) << reply.body;
  EXPECT_EQ(reply.error_message(), kLost);
  ASSERT_EQ(ended.wait_for(60s), std::future_status::ready);
  const auto left = ended.get();
  ASSERT_FALSE(left.has_value());
  EXPECT_EQ(left.error().message, std::string(kLost) + "; restart the server");
  EXPECT_THAT(err.text(), HasSubstr(std::string("quire: ") + kLost + "; the server stops\n"));
  EXPECT_THAT(err.text(), EndsWith("quire: stopped\n"));
  ::close(pipe[0]);
  ::close(pipe[1]);
}

}  // namespace
}  // namespace quire::cli

// The device is lost while the server runs: clients get the error, and run() ends and says why.
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/cpu/cpu_backend.h"
#include "quire/server/server.h"
#include "quire/server/server_testing.h"
#include "quire/state/losable_device_testing.h"

namespace quire::server {
namespace {

using namespace std::chrono_literals;
using testing::Client;
using testing::kLong;
using testing::Reply;
using testing::streamed;

constexpr const char* kLost = "the device losable is lost: somebody pulled it out";

struct Losing {
  Losing() {
    auto model = model::Model::load(testing::models_dir() + "/quire-demo-llama-q8_0.gguf");
    EXPECT_TRUE(model.has_value());
    auto host =
        engine::HostedModel::create(std::move(*model), std::make_unique<CpuBackend>(1, cpu::best_kernels(), &device),
                                    engine::HostOptions{.max_sequences = 2});
    EXPECT_TRUE(host.has_value()) << host.error().message;
    ServerOptions options;
    options.http.port = 0;
    options.http.on_note = [this](const std::string& note) { notes.push_back(note); };
    auto made = Server::create(std::move(*host), std::move(options));
    EXPECT_TRUE(made.has_value()) << made.error().message;
    server = std::move(*made);
    port = server->port();
    ended = std::async(std::launch::async, [this] { return server->run(); });
  }
  ~Losing() {
    if (ended.valid()) server->stop();
  }

  LosableDevice device;            // the server uses it until it is destroyed
  std::vector<std::string> notes;  // of the loop's thread: to be read after run()
  std::unique_ptr<Server> server;
  std::uint16_t port = 0;
  std::future<Result<void>> ended;
};

TEST(ServerLost, EveryClientGetsTheErrorAndRunEndsWithIt) {
  Losing losing;
  std::vector<std::unique_ptr<Client>> clients;  // two run, two wait
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(losing.port));
    clients.back()->post("/v1/completions", fmt::format("{{{}, \"stream\": {}}}", kLong, i % 2 == 0));
  }
  const auto has_all = [&] {
    const auto stats = testing::get(losing.port, "/pool").parsed().at("stats");
    return stats.at("running").as_int64() == 2 && stats.at("waiting").as_int64() == 2;
  };
  ASSERT_TRUE(testing::eventually(has_all));
  losing.device.lose();
  for (int i = 0; i < 4; ++i) {
    const Reply reply = clients[i]->read_reply();
    EXPECT_TRUE(reply.complete) << i;
    if (i % 2 == 0) {
      EXPECT_EQ(streamed(reply.body).error, kLost) << i;
      EXPECT_TRUE(streamed(reply.body).done) << i;
    } else {
      EXPECT_EQ(reply.status, 500u) << i;
      EXPECT_EQ(reply.error_message(), kLost) << i;
    }
  }
  ASSERT_EQ(losing.ended.wait_for(60s), std::future_status::ready) << "the server goes on and fails every request";
  const auto ended = losing.ended.get();
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().message, kLost);
  EXPECT_EQ(losing.notes, std::vector<std::string>{std::string(kLost) + "; the server stops"});
  EXPECT_FALSE(Client(losing.port).connected()) << "it listens no more";
}

TEST(ServerLost, AServerThatIsStoppedEndsWithoutAnError) {
  Losing losing;
  losing.server->stop();
  ASSERT_EQ(losing.ended.wait_for(60s), std::future_status::ready);
  EXPECT_TRUE(losing.ended.get().has_value());
}

}  // namespace
}  // namespace quire::server

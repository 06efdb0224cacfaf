#include "quire/cli/serve.h"

#include <csignal>
#include <string>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "quire/cli/program_testing.h"

namespace quire::cli {
namespace {

using testing::call;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::kProgram;
using testing::TemporaryFolder;

TEST(Serve, RefusesOptionsThatCannotBeMeant) {
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{{"--port", "70000"},
                                                                                       {"--port", "http"},
                                                                                       {"--grace", "-1"},
                                                                                       {"--idle-timeout", "soon"},
                                                                                       {"--max-body", "0"},
                                                                                       {"--max-connections", "0"},
                                                                                       {"--memory", "lots"}}) {
    std::vector<std::string> arguments = {"serve"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const auto outcome = call(arguments);
    expect_refusal(outcome, kUsage);
    EXPECT_THAT(outcome.err, HasSubstr(options[0]));
  }
}

TEST(Serve, RefusesKeyFilesWithoutAKey) {
  const TemporaryFolder folder;
  const std::string path = folder / "keys";
  testing::write_file(path, "# none yet\n");
  const auto outcome = call({"serve", "--port", "0", "--api-key-file", path});
  expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("there is no key in this file"));
  expect_refusal(call({"serve", "--port", "0", "--api-key-file", folder / "absent"}));
  expect_refusal(call({"serve", "--port", "0", "--api-key", "two words"}));
}

TEST(Serve, SaysWhereItListensInOneLineAndEndsWithASignal) {
  int out[2] = {-1, -1};
  ASSERT_EQ(::pipe2(out, O_CLOEXEC), 0);
  const testing::MemoryFile err;
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err.fd(), STDERR_FILENO);
    testing::become(kProgram, {"serve", "--port", "0", "--threads", "1", "--grace", "1"});
  }
  ::close(out[1]);
  std::string line;
  for (char c = 0; c != '\n' && ::read(out[0], &c, 1) == 1;) line += c;
  const std::string_view begin = "quire: listening on http://127.0.0.1:";
  ASSERT_TRUE(line.starts_with(begin)) << line << err.text();

  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(line.substr(begin.size()))));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::string_view request = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(::send(client, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  std::string reply;
  char buffer[1024];
  for (ssize_t count = 0; (count = ::recv(client, buffer, sizeof(buffer), 0)) > 0;) {
    reply.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(client);
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 OK\r\n")) << reply;

  ::kill(child, SIGTERM);
  std::string more;
  for (char c = 0; ::read(out[0], &c, 1) == 1;) more += c;
  ::close(out[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(testing::exit_code(status), 0) << err.text();
  EXPECT_EQ(more, "");
}

}  // namespace
}  // namespace quire::cli

// `quire serve --journal`, as a program: the journal of a server that has answered replays without a difference, and a
// full disk does not disturb the server.
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
using ::testing::HasSubstr;
using testing::kProgram;
using testing::TemporaryFolder;

class Server {
 public:
  explicit Server(const std::string& journal) {
    int out[2] = {-1, -1};
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err_.fd(), STDERR_FILENO);
      testing::become(kProgram, {"serve", "--port", "0", "--threads", "1", "--grace", "1", "--journal", journal});
    }
    ::close(out[1]);
    std::string line;
    for (char c = 0; c != '\n' && ::read(out[0], &c, 1) == 1;) line += c;
    ::close(out[0]);
    const std::string_view begin = "quire: listening on http://127.0.0.1:";
    EXPECT_TRUE(line.starts_with(begin)) << line << err_.text();
    if (line.starts_with(begin)) port_ = static_cast<std::uint16_t>(std::stoi(line.substr(begin.size())));
  }

  std::string ask(const std::string& method_and_path, const std::string& body = "") const {
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const std::string request = method_and_path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                                "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                                "\r\n\r\n" + body;
    EXPECT_EQ(::send(client, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string reply;
    char buffer[1024];
    for (ssize_t count = 0; (count = ::recv(client, buffer, sizeof(buffer), 0)) > 0;) {
      reply.append(buffer, static_cast<std::size_t>(count));
    }
    ::close(client);
    return reply;
  }
  void expect_answers() const {
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(ask("POST /v1/completions", R"({"prompt": "Once upon a time there was a", "max_tokens": 12})"),
                  HasSubstr("200 OK"));
    }
  }
  // Returns the exit code.
  int stop() const {
    ::kill(child_, SIGTERM);
    int status = 0;
    ::waitpid(child_, &status, 0);
    return testing::exit_code(status);
  }
  std::string err() const { return err_.text(); }

 private:
  testing::MemoryFile err_;
  pid_t child_ = -1;
  std::uint16_t port_ = 0;
};

TEST(Journal, OfAServerReplaysWithoutADifference) {
  const TemporaryFolder folder;
  const std::string path = folder / "pool.journal";
  const Server server(path);
  server.expect_answers();
  const std::string metrics = server.ask("GET /metrics");
  EXPECT_THAT(metrics, HasSubstr("\nquire_journal_failed 0\n"));
  EXPECT_EQ(metrics.find("\nquire_journal_records_total 0\n"), std::string::npos);
  EXPECT_EQ(server.stop(), 0) << server.err();
  const auto outcome = call({"replay", path});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("sequences   3\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\nno difference\n"));
}

TEST(Journal, OnAFullDiskStopsAndTheServerGoesOn) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  const Server server("/dev/full");
  server.expect_answers();
  std::string metrics;
  for (int i = 0; i < 600 && metrics.find("\nquire_journal_failed 1\n") == std::string::npos; ++i) {
    metrics = server.ask("GET /metrics");
  }
  EXPECT_THAT(metrics, HasSubstr("\nquire_journal_failed 1\n"));
  server.expect_answers();
  EXPECT_EQ(server.stop(), 0) << server.err();
  EXPECT_THAT(server.err(), HasSubstr("quire: /dev/full: the journal stops here: No space left on device\n"));
}

TEST(Journal, ThatCannotBeWrittenIsRefusedBeforeTheServerListens) {
  const auto outcome = call({"serve", "--port", "0", "--journal", "/nowhere/pool.journal"});
  testing::expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("/nowhere/pool.journal"));
}

}  // namespace
}  // namespace quire::cli

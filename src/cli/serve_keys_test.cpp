// `quire keys` and a running `quire serve --keys`: SIGHUP makes the server read the file again.
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "quire/cli/program_testing.h"

namespace quire::cli {
namespace {

using testing::call;
using testing::expect_refusal;
using ::testing::HasSubstr;
using testing::kProgram;
using testing::TemporaryFolder;

// The program, serving on a free port.
class Serving {
 public:
  explicit Serving(const std::string& keys) {
    int out[2] = {-1, -1};
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err_.fd(), STDERR_FILENO);
      testing::become(kProgram, {"serve", "--port", "0", "--threads", "1", "--grace", "1", "--keys", keys});
    }
    ::close(out[1]);
    std::string line;
    for (char c = 0; c != '\n' && ::read(out[0], &c, 1) == 1;) line += c;
    ::close(out[0]);
    const std::size_t port = line.rfind(':');
    EXPECT_NE(port, std::string::npos) << line << err_.text();
    if (port != std::string::npos) port_ = static_cast<std::uint16_t>(std::stoi(line.substr(port + 1)));
  }
  ~Serving() {
    ::kill(child_, SIGTERM);
    int status = 0;
    ::waitpid(child_, &status, 0);
    EXPECT_EQ(testing::exit_code(status), 0) << err_.text();
  }
  void signal(int which) const { ::kill(child_, which); }
  std::string log() const { return err_.text(); }

  // The status of GET /v1/models with this key.
  int status(const std::string& key) const {
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const std::string request =
        "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer " + key + "\r\n\r\n";
    EXPECT_EQ(::send(client, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string reply;
    char buffer[1024];
    for (ssize_t count = 0; (count = ::recv(client, buffer, sizeof(buffer), 0)) > 0;) {
      reply.append(buffer, static_cast<std::size_t>(count));
    }
    ::close(client);
    return reply.size() > 12 ? std::stoi(reply.substr(9, 3)) : 0;
  }
  // Waits until the log has this text so many times.
  ::testing::AssertionResult says(const std::string& text, std::size_t times = 1) const {
    for (int i = 0; i < 2000; ++i) {
      std::size_t found = 0;
      const std::string all = log();
      for (std::size_t at = 0; (at = all.find(text, at)) != std::string::npos; ++at) ++found;
      if (found >= times) return ::testing::AssertionSuccess();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return ::testing::AssertionFailure() << log();
  }

 private:
  testing::MemoryFile err_;
  pid_t child_ = -1;
  std::uint16_t port_ = 0;
};

std::string added(const std::string& name, const std::string& path) {
  std::string key = call({"keys", "add", name, "--keys", path}).out;
  EXPECT_TRUE(key.ends_with('\n'));
  key.pop_back();
  return key;
}

TEST(ServeKeys, AHangUpReadsTheFileAgain) {
  const TemporaryFolder folder;
  const std::string path = folder / "keys.json";
  const std::string ann = added("ann", path);
  const Serving server(path);
  EXPECT_EQ(server.status(ann), 200);
  const std::string bob = added("bob", path);
  EXPECT_EQ(server.status(bob), 401);
  ASSERT_EQ(call({"keys", "revoke", "ann", "--keys", path}).exit_code, kSuccess);
  server.signal(SIGHUP);
  ASSERT_TRUE(server.says("read the keys"));
  EXPECT_EQ(server.status(ann), 401);
  EXPECT_EQ(server.status(bob), 200);

  testing::write_file(path, "{");
  server.signal(SIGHUP);
  ASSERT_TRUE(server.says("the keys stay as they were"));
  EXPECT_EQ(server.status(bob), 200);
}

TEST(ServeKeys, AFileThatIsMissingOrBadIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "keys.json";
  expect_refusal(call({"serve", "--port", "0", "--keys", path}));
  testing::write_file(path, R"({"next_id": 1, "keys": [], "extra": 1})");
  const auto outcome = call({"serve", "--port", "0", "--keys", path});
  expect_refusal(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("there is no field 'extra'"));
}

}  // namespace
}  // namespace quire::cli

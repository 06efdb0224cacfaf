// For tests: `quire serve` as a program, on a free port of this machine.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "quire/cli/program_testing.h"

namespace quire::cli::testing {

class ServingProgram {
 public:
  // Returns when the server listens. It has one thread and a short grace time.
  explicit ServingProgram(std::vector<std::string> options) {
    options.insert(options.begin(), {"serve", "--port", "0", "--threads", "1", "--grace", "1"});
    int out[2] = {-1, -1};
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err_.fd(), STDERR_FILENO);
      become(kProgram, options);
    }
    ::close(out[1]);
    std::string line;
    for (char c = 0; c != '\n' && ::read(out[0], &c, 1) == 1;) line += c;
    ::close(out[0]);
    const std::string begin = "quire: listening on http://127.0.0.1:";
    EXPECT_TRUE(line.starts_with(begin)) << line << err_.text();
    if (line.starts_with(begin)) port_ = static_cast<std::uint16_t>(std::stoi(line.substr(begin.size())));
  }
  ServingProgram(const ServingProgram&) = delete;
  ServingProgram& operator=(const ServingProgram&) = delete;
  ~ServingProgram() {
    if (child_ <= 0) return;
    EXPECT_EQ(stop(), 0) << log();
  }

  void signal(int which) const { ::kill(child_, which); }
  // Ends the server and returns its exit code.
  int stop() {
    ::kill(child_, SIGTERM);
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return exit_code(status);
  }
  std::string log() const { return err_.text(); }

  // Sends a request ("GET /metrics") with a JSON body and returns the whole reply. `header`: further lines, each with
  // its end of line.
  std::string ask(const std::string& method_and_path, const std::string& body = "",
                  const std::string& header = "") const {
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const std::string request = method_and_path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                                "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                                "\r\n" + header + "\r\n" + body;
    EXPECT_EQ(::send(client, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string reply;
    char buffer[1024];
    for (ssize_t count = 0; (count = ::recv(client, buffer, sizeof(buffer), 0)) > 0;) {
      reply.append(buffer, static_cast<std::size_t>(count));
    }
    ::close(client);
    return reply;
  }

 private:
  MemoryFile err_;
  pid_t child_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace quire::cli::testing

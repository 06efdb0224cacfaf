#include "quire/cli/serve.h"

#include <csignal>
#include <string>

#include <arpa/inet.h>
#include <boost/json/parse.hpp>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "quire/cli/program_testing.h"
#include "quire/cli/serving_testing.h"

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
                                                                                       {"--responses-bytes", "none"},
                                                                                       {"--max-connections", "0"},
                                                                                       {"--unix-mode", "9"},
                                                                                       {"--unix-mode", "1777"},
                                                                                       {"--log-format", "xml"},
                                                                                       {"--tls-cert", "only.pem"},
                                                                                       {"--tls-key", "only.pem"},
                                                                                       {"--parse-queue", "0"},
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

TEST(Serve, AnotherTemplateCanBeUsed) {
  const TemporaryFolder folder;
  testing::write_file(folder / "shout.jinja",
                      "{%- for m in messages -%}<|im_start|>{{ m.role }}\nRepeat: {{ m.content }}<|im_end|>\n"
                      "{% endfor %}<|im_start|>assistant{{ '\\n' }}");
  testing::write_file(folder / "config.toml", "chat-template-file = \"" + (folder / "shout.jinja") + "\"\n");
  const std::string body = R"({"messages": [{"role": "user", "content": "red kite owl"}], "temperature": 0})";
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"--chat-template-file", folder / "shout.jinja"}, {"--config", folder / "config.toml"}}) {
    const testing::ServingProgram server(options);
    EXPECT_THAT(server.ask("POST /v1/chat/completions", body), HasSubstr("\"content\":\"red kite owl\""));
    EXPECT_THAT(server.ask("GET /props"), HasSubstr("Repeat: {{ m.content }}"));
  }
  testing::write_file(folder / "broken.jinja", "{% for %}");
  const auto broken = call({"serve", "--port", "0", "--chat-template-file", folder / "broken.jinja"});
  expect_refusal(broken);
  EXPECT_THAT(broken.err, HasSubstr("broken.jinja: line 1: "));
  const auto absent = call({"serve", "--port", "0", "--chat-template-file", folder / "absent.jinja"});
  expect_refusal(absent);
  EXPECT_THAT(absent.err, HasSubstr("absent.jinja"));
}

TEST(Serve, WithoutMemoryForResponsesNoneIsKept) {
  const testing::ServingProgram server({"--responses-bytes", "0"});
  EXPECT_THAT(server.ask("POST /v1/responses", R"({"input": "What is 2 + 3?", "temperature": 0})"),
              HasSubstr("\"text\":\"5\""));
  EXPECT_THAT(server.ask("GET /metrics"), HasSubstr("\nquire_responses 0\n"));
}

TEST(Serve, SaysOnWhichDeviceItComputes) {
  const testing::ServingProgram server({"--device", "cpu", "--alias", "demo"});
  EXPECT_THAT(server.log(),
              ::testing::ContainsRegex("quire: demo, device cpu \\([a-z0-9]+\\), 1 thread, context 2048 "));
}

TEST(Serve, StartsInAPodWhoseServiceHasItsName) {
  // Kubernetes gives every container of the namespace such a variable.
  ::setenv("QUIRE_PORT", "tcp://10.0.0.1:8080", 1);
  const auto outcome = call({"serve", "--config", "/dev/null", "--model", "/no/such/model"});
  ::unsetenv("QUIRE_PORT");
  EXPECT_EQ(outcome.exit_code, kFailure);
  EXPECT_THAT(outcome.err, HasSubstr("/no/such/model")) << "it came as far as the model";
}

TEST(Serve, NamesTheTlsFileThatIsMissing) {
  const auto outcome = call({"serve", "--port", "0", "--tls-cert", "/no/such.pem", "--tls-key", "/no/such.key"});
  expect_refusal(outcome);
  EXPECT_THAT(outcome.err, ::testing::AnyOf(HasSubstr("/no/such.pem: No such file or directory"),
                                            HasSubstr("this build of quire has no TLS")));
}

TEST(ServeLog, WarnsOfAddressesThatOthersReachWithoutAKeyAndOfRoot) {
  const std::vector<server::ListenAddress> own = {
      {.url = "http://127.0.0.1:8080/", .address = "127.0.0.1", .loopback = true},
      {.url = "unix:/run/q", .loopback = true, .is_unix = true}};
  const std::vector<server::ListenAddress> open = {{.url = "http://0.0.0.0:8080/", .address = "0.0.0.0"}};
  EXPECT_THAT(warnings(own, false, false), ::testing::IsEmpty());
  EXPECT_THAT(warnings(open, true, false), ::testing::IsEmpty());
  EXPECT_THAT(warnings(open, false, false), ::testing::ElementsAre(HasSubstr("everyone who can reach 0.0.0.0")));
  EXPECT_THAT(warnings(own, true, true), ::testing::ElementsAre(HasSubstr("runs as root")));
}

// A log that can be made to refuse lines, like a pipe that nobody reads.
class StuckOutput final : public Output {
 public:
  std::error_code write(std::string_view written) override {
    text += written;
    return {};
  }
  bool ready() override { return !stuck; }
  std::string text;
  bool stuck = false;
};

TEST(ServeLog, LeavesLinesOutInsteadOfWaitingForAReader) {
  StuckOutput out;
  ServeLog log(out, ServeLog::Format::Text);
  const server::AccessRecord record{.client = "unix", .method = "GET", .path = "/health", .status = 200};
  out.stuck = true;
  for (int i = 0; i < 3; ++i) log.request(record);
  EXPECT_EQ(out.text, "");
  out.stuck = false;
  log.request(record);
  EXPECT_THAT(out.text, HasSubstr("quire: warning: nobody read the log: 3 lines are missing here\n"));
  EXPECT_THAT(out.text, HasSubstr("\"GET /health\" 200"));
}

TEST(ServeLog, InJsonEveryLineIsAnObject) {
  StuckOutput out;
  ServeLog log(out, ServeLog::Format::Json);
  log.note("ready");
  log.warn("odd \"name\"");
  log.request({.client = "unix", .method = "GET", .path = "/health", .status = 200});
  std::size_t lines = 0;
  for (std::size_t at = 0; at < out.text.size(); ++lines) {
    const std::size_t end = out.text.find('\n', at);
    EXPECT_TRUE(boost::json::parse(out.text.substr(at, end - at)).is_object());
    at = end + 1;
  }
  EXPECT_EQ(lines, 3u);
  StuckOutput none;
  ServeLog(none, ServeLog::Format::None).request({.method = "GET"});
  EXPECT_EQ(none.text, "");
}

TEST(ServeLog, AFullPipeIsNotReady) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  DescriptorOutput out(ends[1]);
  EXPECT_TRUE(out.ready());
  while (::write(ends[1], "xxxxxxxx", 8) > 0) {
  }
  EXPECT_FALSE(out.ready());
  ::close(ends[0]);
  ::close(ends[1]);
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
  const std::string_view request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
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
  EXPECT_THAT(err.text(), HasSubstr(" \"GET /health\" 200 "));
}

}  // namespace
}  // namespace quire::cli

#include <csignal>

#include <unistd.h>

#include "quire/cli/app.h"
#include "quire/cli/output.h"
#include "quire/cli/style.h"

int main(int argc, char** argv) {
  // A closed pipe becomes an error of write(), which the program can recognize.
  std::signal(SIGPIPE, SIG_IGN);
  quire::cli::DescriptorOutput out(STDOUT_FILENO), err(STDERR_FILENO);
  return quire::cli::run(argc, argv, out, err, quire::cli::detect_style(STDOUT_FILENO),
                         quire::cli::detect_style(STDERR_FILENO));
}

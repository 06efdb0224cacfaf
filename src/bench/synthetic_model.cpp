#include "quire/bench/synthetic_model.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "quire/text/printable.h"

namespace quire::bench {
namespace {

// A signal handler can use only globals: the folder, and the names of the file while it is written.
constexpr const char* kEndings[] = {"/model.gguf", "/model.gguf.partial", ""};
std::array<std::array<char, PATH_MAX>, std::size(kEndings)> names;
std::atomic<bool> to_remove = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void remove_all() {
  if (!to_remove.exchange(false)) return;
  for (std::size_t i = 0; i + 1 < names.size(); ++i) ::unlink(names[i].data());
  ::rmdir(names.back().data());
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

void remove_and_end(int signal) {
  remove_all();
  // Then the signal does what it would have done without us.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// A temporary folder. It is removed with its contents by the destructor, or when a signal ends the program.
class TemporaryFolder {
 public:
  TemporaryFolder() = default;
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    if (!made_) return;
    remove_all();
    for (std::size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }

  Result<void> make() {
    const char* const chosen = std::getenv("TMPDIR");
    const std::string parent = chosen != nullptr && *chosen != '\0' ? chosen : "/tmp";
    std::string folder = parent + "/quire-bench-XXXXXX";
    errno = ENAMETOOLONG;
    if (folder.size() + std::strlen(kEndings[1]) >= PATH_MAX || ::mkdtemp(folder.data()) == nullptr) {
      return fail(fmt::format("{}: cannot hold a temporary model: {}", text::printable(parent),
                              std::generic_category().message(errno)));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      *fmt::format_to_n(names[i].data(), names[i].size() - 1, "{}{}", folder, kEndings[i]).out = '\0';
    }
    made_ = true;
    to_remove = true;
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
      struct sigaction action = {};
      action.sa_handler = remove_and_end;
      ::sigemptyset(&action.sa_mask);
      ::sigaction(kSignals[i], nullptr, &before_[i]);
      // If the program was started with the signal ignored, it stays ignored.
      if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
    return {};
  }
  std::string file() const { return names.front().data(); }

 private:
  bool made_ = false;
  struct sigaction before_[std::size(kSignals)] = {};
};

}  // namespace

SyntheticModel::SyntheticModel(int descriptor)
    : descriptor_(descriptor), path_(fmt::format("/proc/self/fd/{}", descriptor)) {}

SyntheticModel::~SyntheticModel() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<SyntheticModel> SyntheticModel::create(const synth::Shape& shape, const std::string& type,
                                              const synth::Progress& progress) {
  TemporaryFolder folder;
  if (auto ok = folder.make(); !ok) return std::unexpected(ok.error());
  const std::string file = folder.file();
  constexpr std::uint64_t kSeed = 1;
  if (auto ok = synth::write_model(shape, type, kSeed, file, progress); !ok) return std::unexpected(ok.error());
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return fail(fmt::format("{}: {}", text::printable(file), std::generic_category().message(errno)));
  return SyntheticModel(descriptor);
}

}  // namespace quire::bench

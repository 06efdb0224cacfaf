// Put and get of the disk tier beside sequential writing and reading of a plain file on the same disk, in turns,
// because the speed of a shared disk changes within seconds. Both go past the page cache where the disk allows it.
//
//   disk_tier_bench DIRECTORY [MIB] [BYTES]...     how much each turn writes (1024), sizes of objects (100000 500000
//   2000000)
//
// A line for each size and turn: MB/s of the file, of the tier, and the tier's share. "put" ends when everything is on
// the disk. The last lines of a size are the medians, and the CPU time of the tier.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "quire/tiers/disk_tier.h"
#include "quire/tiers/disk_tier_testing.h"

namespace quire::tiers {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPiece = 1 << 20;
constexpr int kTurns = 5;

double since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Speeds {
  double write = 0, read = 0;          // bytes per second
  double write_cpu = 0, read_cpu = 0;  // seconds of CPU time for each GB
};

int open_direct(const fs::path& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_DIRECT | O_CLOEXEC, 0600);
  return file >= 0 ? file : ::open(path.c_str(), flags | O_CLOEXEC, 0600);
}

Speeds plain_file(const fs::path& path, std::size_t bytes) {
  auto* piece = static_cast<std::byte*>(std::aligned_alloc(4096, kPiece));
  const auto random = testing::bytes_of_object(1, kPiece);
  std::copy(random.begin(), random.end(), piece);
  Speeds speeds;
  auto began = Clock::now();
  int file = open_direct(path, O_WRONLY | O_CREAT | O_TRUNC);
  for (std::size_t done = 0; done < bytes; done += kPiece) {
    if (::write(file, piece, kPiece) != static_cast<ssize_t>(kPiece)) std::perror("write");
  }
  ::fdatasync(file);
  ::close(file);
  speeds.write = static_cast<double>(bytes) / since(began);
  file = open_direct(path, O_RDONLY);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  began = Clock::now();
  while (::read(file, piece, kPiece) > 0) {
  }
  speeds.read = static_cast<double>(bytes) / since(began);
  ::close(file);
  ::unlink(path.c_str());
  std::free(piece);
  return speeds;
}

class CountingListener : public TierListener {
 public:
  void done(const TierJob&, TierOutcome outcome) noexcept override {
    if (outcome != TierOutcome::Done) ++others;
    ++answered;
  }
  std::atomic<std::size_t> answered = 0, others = 0;
};

void run_all(Tier& tier, CountingListener& listener, std::span<const TierJob> jobs) {
  listener.answered = 0;
  for (std::size_t taken = 0; taken < jobs.size();) {
    taken += tier.submit(jobs.subspan(taken));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  while (listener.answered < jobs.size()) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

Speeds tier(const fs::path& path, std::size_t bytes, std::size_t object) {
  DiskTierOptions options;
  options.path = path;
  options.limit_bytes = 4 * bytes + (std::uint64_t{1} << 30);
  options.keep_free_bytes = 0;
  CountingListener listener;
  const std::size_t count = bytes / object;
  // A ring of buffers, as a pool has them.
  std::vector<std::vector<std::byte>> memory;
  for (std::size_t i = 0; i < std::min<std::size_t>(count, 64); ++i)
    memory.push_back(testing::bytes_of_object(i, object));
  std::vector<TierJob> jobs;
  for (std::size_t i = 0; i < count; ++i) {
    jobs.push_back({TierJob::Kind::Put, testing::key_of(i), memory[i % memory.size()].data(), object, i});
  }
  Speeds speeds;
  {
    auto opened = open_disk_tier(options, listener);
    if (!opened) {
      fmt::print(stderr, "{}\n", opened.error().message);
      std::exit(1);
    }
    const auto began = Clock::now();
    const double cpu = cpu_seconds();
    run_all(**opened, listener, jobs);
    opened->reset();  // flushes
    speeds.write = static_cast<double>(count * object) / since(began);
    speeds.write_cpu = (cpu_seconds() - cpu) / static_cast<double>(count * object) * 1e9;
  }
  auto opened = open_disk_tier(options, listener);
  for (TierJob& job : jobs) job.kind = TierJob::Kind::Get;
  const auto began = Clock::now();
  const double cpu = cpu_seconds();
  run_all(**opened, listener, jobs);
  speeds.read = static_cast<double>(count * object) / since(began);
  speeds.read_cpu = (cpu_seconds() - cpu) / static_cast<double>(count * object) * 1e9;
  if (listener.others > 0) fmt::print(stderr, "{} jobs did not succeed\n", listener.others.load());
  opened->reset();
  fs::remove_all(path);
  return speeds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const fs::path& directory, std::size_t bytes, std::size_t object) {
  std::vector<double> writes, reads, write_shares, read_shares, write_cpu, read_cpu;
  for (int turn = 0; turn < kTurns; ++turn) {
    const Speeds plain = plain_file(directory / "plain", bytes);
    const Speeds ours = tier(directory / "tier", bytes, object);
    fmt::print("{:>8}  put {:5.0f} of {:5.0f} MB/s ({:4.2f})   get {:5.0f} of {:5.0f} MB/s ({:4.2f})\n", object,
               ours.write / 1e6, plain.write / 1e6, ours.write / plain.write, ours.read / 1e6, plain.read / 1e6,
               ours.read / plain.read);
    std::fflush(stdout);
    writes.push_back(ours.write);
    reads.push_back(ours.read);
    write_shares.push_back(ours.write / plain.write);
    read_shares.push_back(ours.read / plain.read);
    write_cpu.push_back(ours.write_cpu);
    read_cpu.push_back(ours.read_cpu);
  }
  fmt::print("{:>8}  median: put {:.0f} MB/s, {:.2f} of the file; get {:.0f} MB/s, {:.2f} of the file\n", object,
             median(writes) / 1e6, median(write_shares), median(reads) / 1e6, median(read_shares));
  fmt::print("{:>8}  CPU time: put {:.2f} s/GB, get {:.2f} s/GB\n", object, median(write_cpu), median(read_cpu));
}

}  // namespace
}  // namespace quire::tiers

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: disk_tier_bench DIRECTORY [MIB] [BYTES]...\n");
    return 2;
  }
  const std::size_t bytes = (argc > 2 ? std::stoull(argv[2]) : 1024) << 20;
  std::vector<std::size_t> objects;
  for (int i = 3; i < argc; ++i) objects.push_back(std::stoull(argv[i]));
  if (objects.empty()) objects = {100'000, 500'000, 2'000'000};
  for (const std::size_t object : objects) quire::tiers::measure(argv[1], bytes, object);
}

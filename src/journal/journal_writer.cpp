#include "quire/journal/journal_writer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include "quire/state/out_of_memory.h"

namespace quire::journal {
namespace {

constexpr std::chrono::milliseconds kPeriod{50};

std::string system_message(int error) { return std::generic_category().message(error); }

}  // namespace

JournalWriter::JournalWriter(int fd, std::string path, Options options)
    : fd_(fd), path_(std::move(path)), options_(std::move(options)) {}

JournalWriter::~JournalWriter() { (void)close(); }

Result<std::unique_ptr<JournalWriter>> JournalWriter::create(const std::string& path, Options options) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return fail(fmt::format("{}: cannot write the journal: {}", path, system_message(errno)));
  return std::unique_ptr<JournalWriter>(new JournalWriter(fd, path, std::move(options)));
}

PoolResult<void> JournalWriter::begin(const SequencePool& pool) {
  if (encoder_) return std::unexpected(PoolError::invalid_argument("a journal is for one pool"));
  const PoolConfig& config = pool.config();
  return or_out_of_memory("the buffers of a journal", [&]() -> PoolResult<void> {
    // The longest operations have all tokens and all pages of a sequence, or an entry for every sequence.
    const std::vector<Token> tokens(config.max_tokens);
    const std::vector<BatchEntry> entries(config.max_sequences);
    const std::vector<std::uint32_t> blocks(config.layout.groups.size());
    const std::size_t most_blocks = divide_up(config.max_tokens, config.layout.block_size);
    const std::vector<HostArena::Object> pages(most_blocks * config.layout.groups.size());
    const std::vector<std::byte> header = encode(JournalHeader{config, PoolGeometry::of(pool)});
    const std::size_t longest = OperationEncoder::most_bytes(
        {.tokens = tokens, .entries = entries, .first_blocks = blocks, .not_copied = pages});
    capacity_ = std::max({options_.buffer_bytes, header.size(), 2 * longest});
    for (Buffer* buffer : {&front_, &back_}) {
      buffer->bytes = std::make_unique<std::byte[]>(capacity_);  // zeroed, so that a step touches no new page
    }
    std::memcpy(front_.bytes.get(), header.data(), header.size());
    front_.size = header.size();
    bytes_ = header.size();
    encoder_.emplace(config.max_sequences);
    (void)::ftruncate(fd_, 0);  // now that there is a pool; a pipe cannot be truncated, and need not be
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      return std::unexpected(PoolError::out_of_memory("the thread of a journal"));
    }
    return {};
  });
}

void JournalWriter::record(const PoolOperation& operation) noexcept {
  if (failed_.load(std::memory_order_relaxed)) return;
  std::unique_lock lock(mutex_);
  const std::size_t most = OperationEncoder::most_bytes(operation);
  drain_.wait(lock, [&] { return failed_ || capacity_ - front_.size >= most; });
  if (failed_) return;
  const std::uint64_t number = records_.fetch_add(1, std::memory_order_relaxed) + 1;  // the header is record 0
  const std::size_t before = front_.size;
  front_.size += encoder_->encode(operation, number, front_.bytes.get() + front_.size);
  bytes_.fetch_add(front_.size - before, std::memory_order_relaxed);
  const bool half_full = before < capacity_ / 2 && front_.size >= capacity_ / 2;
  lock.unlock();
  if (half_full) wake_.notify_one();
}

// The writer's thread.
void JournalWriter::run() {
  // Signals are for other threads. A file over the size limit would otherwise end the process with SIGXFSZ.
  sigset_t all;
  ::sigfillset(&all);
  (void)::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait_for(lock, kPeriod, [&] { return ending_ || front_.size >= capacity_ / 2; });
    if (front_.size == 0) {
      if (ending_) return;
      continue;
    }
    std::swap(front_, back_);
    lock.unlock();
    drain_.notify_one();
    if (!write_all(back_)) return;
    lock.lock();
    back_.size = 0;
  }
}

bool JournalWriter::write_all(const Buffer& buffer) {
  for (std::size_t done = 0; done < buffer.size;) {
    const ssize_t written = ::write(fd_, buffer.bytes.get() + done, buffer.size - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      fail_with(system_message(errno));
      return false;
    }
    done += static_cast<std::size_t>(written);
  }
  return true;
}

void JournalWriter::fail_with(const std::string& what) {
  const std::string line = fmt::format("{}: the journal stops here: {}", path_, what);
  {
    const std::scoped_lock lock(mutex_);
    error_ = line;
    failed_ = true;
  }
  drain_.notify_all();
  if (options_.on_error) options_.on_error(line);
}

Result<void> JournalWriter::close() {
  if (thread_.joinable()) {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  // Network file systems report some errors only here.
  if (const int fd = std::exchange(fd_, -1); fd >= 0 && ::close(fd) != 0 && !failed_) fail_with(system_message(errno));
  if (failed_) return fail(error_);
  return {};
}

PoolJournal::Status JournalWriter::status() const noexcept { return {records_, bytes_, failed_}; }

}  // namespace quire::journal

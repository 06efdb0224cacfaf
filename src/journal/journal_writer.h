// Writes the journal of a pool to a file.
//
//   auto writer = JournalWriter::create("pool.journal", {});
//   config.journal = writer->get();                          // then SequencePool::create(device, config)
//   (*writer)->close();                                      // after the pool is gone, or not used any more
//
// The pool's thread encodes a record into a buffer; a thread of the writer writes full buffers, and what there is every
//   50 ms. There are two buffers, allocated in begin(). If the file cannot be written as fast as records come, the
//   pool's thread waits for it: no record is lost.
// If writing fails (a full disk), the journal stops: it says so once through `on_error`, status() says `failed`, and
//   the pool goes on without it. What was written until then can be replayed.
// After a crash of the process the records of the last 50 ms are missing, and the last one may be incomplete.
// Who may call: record() and begin() are for the pool. status() from any thread. The rest: one thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "quire/base/error.h"
#include "quire/journal/journal_format.h"

namespace quire::journal {

class JournalWriter final : public PoolJournal {
 public:
  struct Options {
    std::size_t buffer_bytes = std::size_t{1} << 20;  // of each buffer; raised to hold the longest record
    // Called once, on the writer's thread, with one line that names the file.
    std::function<void(const std::string&)> on_error = {};
  };

  // Opens the file. begin() empties it if it is an old one. Only its owner can read a new file: it holds the tokens of
  // all requests.
  static Result<std::unique_ptr<JournalWriter>> create(const std::string& path, Options options);
  ~JournalWriter() override;

  // Writes what is buffered and ends the thread. Returns the error that stopped the journal, if there was one.
  Result<void> close();

  PoolResult<void> begin(const SequencePool& pool) override;
  void record(const PoolOperation& operation) noexcept override;
  Status status() const noexcept override;

 private:
  struct Buffer {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };

  JournalWriter(int fd, std::string path, Options options);
  void run();
  bool write_all(const Buffer& buffer);
  void fail_with(const std::string& what);

  int fd_;
  std::string path_;
  Options options_;
  std::optional<OperationEncoder> encoder_;
  std::size_t capacity_ = 0;  // of each buffer

  std::mutex mutex_;
  std::condition_variable wake_;   // the writer's thread: a buffer is half full, or it is time to end
  std::condition_variable drain_;  // the pool's thread: there is an empty buffer again
  Buffer front_, back_;            // filled by the pool; being written
  bool ending_ = false;
  std::string error_;

  std::atomic<std::uint64_t> records_ = 0, bytes_ = 0;
  std::atomic<bool> failed_ = false;
  std::thread thread_;
};

}  // namespace quire::journal

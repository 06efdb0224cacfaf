// The program's output: standard output and standard error, or a string in tests.
//
// How it fails: write() returns the system's error. A part of the text may have been written.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <system_error>

namespace quire::cli {

class Output {
 public:
  Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  virtual ~Output() = default;
  virtual std::error_code write(std::string_view text) = 0;
  // Whether write() takes a line of up to 4 KiB without waiting for a reader.
  virtual bool ready() { return true; }
};

// Writes everything immediately, without a buffer. Threads may write at the same time; their texts do not mix.
class DescriptorOutput : public Output {
 public:
  explicit DescriptorOutput(int fd) : fd_(fd) {}
  std::error_code write(std::string_view text) override;
  bool ready() override;

 private:
  std::mutex writing_;
  int fd_;
};

class StringOutput : public Output {
 public:
  std::error_code write(std::string_view text) override {
    text_ += text;
    return {};
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace quire::cli

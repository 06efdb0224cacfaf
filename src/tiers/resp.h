// The Redis protocol (RESP2): commands as bytes, bytes as replies, and what an error reply means.
//
// Small replies go through hiredis' reader, with limits of our own: what does not look like RESP, is nested too deep or
// is too long is an error, and the connection must be closed. Payloads do not: the reader would copy each of them twice
// (into its buffer and into a string), about a tenth of the time of a GET on loopback. ReplyParser reads a bulk reply
// straight into the memory that waits for it.
//
// Who may call: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/tiers/redis_url.h"

struct redisReader;

namespace quire::tiers {

// A command in RESP, by hiredis' formatter.
std::string format_command(std::initializer_list<std::string_view> words);
// A command with a payload of `length` bytes as one of its words: what comes before the payload, and what comes behind
// it.
struct FramedCommand {
  std::string head, tail;
};
FramedCommand frame_command(std::initializer_list<std::string_view> before, std::uint64_t length,
                            std::initializer_list<std::string_view> after);

struct Reply {
  enum class Kind : std::uint8_t { Status, Error, Integer, Nil, String, Array, Payload };
  Kind kind = Kind::Nil;
  std::string text;             // Status, Error, String
  std::int64_t integer = 0;     // Integer; Payload: its length
  std::vector<Reply> elements;  // Array
  bool whole = false;           // Payload: it had the expected length, and all of it is in place

  bool is_error() const { return kind == Kind::Error; }
};

// What a client does about an error reply.
enum class RedisFault : std::uint8_t {
  Moved,      // the slot is at another node from now on
  Ask,        // this one key is at another node
  Loading,    // the server is starting
  ReadOnly,   // it is a replica
  NoAuth,     // the password is missing or wrong
  NoRoom,     // it takes no writes: memory or disk is full
  Down,       // the cluster, or the master of this replica, is down
  WrongType,  // the key holds something else than a string
  Other,
};
struct RedisError {
  RedisFault fault = RedisFault::Other;
  std::uint16_t slot = 0;  // Moved, Ask
  RedisAddress address;    // Moved, Ask; an empty host means the one that answered
};
RedisError understand_error(std::string_view text);
// An error reply, or anything else that a server said, as part of a line for a person: short, printable.
std::string printable(std::string_view text);

// Where the bytes of a payload go: `first`, then `second`. Together they have the expected length.
struct PayloadSink {
  std::span<std::byte> first, second;

  std::size_t size() const { return first.size() + second.size(); }
};

class ReplyParser {
 public:
  static constexpr std::size_t kLongestReply = 4 << 20;  // of those that are not payloads
  static constexpr std::size_t kMostElements = 1 << 17;
  static constexpr std::size_t kLongestPayload = std::size_t{512} << 20;

  ReplyParser();
  ~ReplyParser();
  ReplyParser(const ReplyParser&) = delete;
  ReplyParser& operator=(const ReplyParser&) = delete;

  // Says what the next reply is for. With a sink, a bulk reply is a Payload: if it has the expected length it goes to
  // the sink. If not, its first bytes go to sink->first, as many as there is room for, and the rest is skipped.
  void expect(std::optional<PayloadSink> sink);

  // Consumes bytes from the front of `input` until the reply is complete or the input is empty. nullopt: more is
  // needed.
  Result<std::optional<Reply>> parse(std::span<const std::byte>& input);

  // While a payload is being received: the rest of its place, so that bytes can be read there directly. The caller must
  // first parse() what it has, and then say how much it read with filled(). Empty spans: nothing to read directly.
  PayloadSink direct() const;
  void filled(std::size_t bytes);

 private:
  enum class State : std::uint8_t { Start, Length, Small, Body, End };

  Result<std::optional<Reply>> parse_small(std::span<const std::byte>& input);
  Result<void> begin_payload();
  Reply finish(Reply reply);

  struct FreeReader {
    void operator()(redisReader* reader) const;
  };
  std::unique_ptr<redisReader, FreeReader> reader_;
  std::optional<PayloadSink> sink_;
  State state_ = State::Start;
  std::string line_;     // Length: the line so far
  std::size_t fed_ = 0;  // Small: bytes of this reply
  std::size_t elements_left_ = kMostElements;
  std::uint64_t length_ = 0, done_ = 0;  // Body: of the payload; how much of it has come
  unsigned end_ = 0;                     // End: of "\r\n"
};

}  // namespace quire::tiers

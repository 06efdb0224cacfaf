#include "quire/tiers/resp.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>

#include <fmt/format.h>
#include <hiredis/hiredis.h>

namespace quire::tiers {
namespace {

// hiredis' reader builds replies with the functions below. A null pointer ends the parsing with an error. No exception
// may pass through the reader.
//
// The elements that a reply may still have. A few bytes announce large arrays, so they are counted before they come.
std::size_t& budget(const redisReadTask* task) { return *static_cast<std::size_t*>(task->privdata); }

template <typename Fill>
void* create(const redisReadTask* task, Reply::Kind kind, Fill fill) {
  try {
    if (task->parent != nullptr) {
      // The parent owns it.
      Reply& reply = static_cast<Reply*>(task->parent->obj)->elements[static_cast<std::size_t>(task->idx)];
      reply.kind = kind;
      fill(reply);
      return &reply;
    }
    auto reply = std::make_unique<Reply>();
    reply->kind = kind;
    fill(*reply);
    return reply.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* create_string(const redisReadTask* task, char* text, std::size_t length) {
  const Reply::Kind kind = task->type == REDIS_REPLY_ERROR    ? Reply::Kind::Error
                           : task->type == REDIS_REPLY_STATUS ? Reply::Kind::Status
                                                              : Reply::Kind::String;
  return create(task, kind, [&](Reply& reply) { reply.text.assign(text, length); });
}

void* create_array(const redisReadTask* task, int elements) {
  const auto count = static_cast<std::size_t>(elements);
  if (elements < 0 || count > budget(task)) return nullptr;
  budget(task) -= count;
  return create(task, Reply::Kind::Array, [&](Reply& reply) { reply.elements.resize(count); });
}

void* create_integer(const redisReadTask* task, long long value) {
  return create(task, Reply::Kind::Integer, [&](Reply& reply) { reply.integer = value; });
}

void* create_nil(const redisReadTask* task) {
  return create(task, Reply::Kind::Nil, [](Reply&) {});
}

void free_reply(void* reply) { delete static_cast<Reply*>(reply); }

redisReplyObjectFunctions kFunctions = {create_string, create_array, create_integer, create_nil, free_reply};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string format_command(std::initializer_list<std::string_view> words) {
  std::vector<const char*> texts;
  std::vector<std::size_t> lengths;
  for (const std::string_view word : words) {
    texts.push_back(word.data());
    lengths.push_back(word.size());
  }
  char* command = nullptr;
  const int length = redisFormatCommandArgv(&command, static_cast<int>(texts.size()), texts.data(), lengths.data());
  if (length < 0) throw std::bad_alloc();
  std::string result(command, static_cast<std::size_t>(length));
  redisFreeCommand(command);
  return result;
}

FramedCommand frame_command(std::initializer_list<std::string_view> before, std::uint64_t length,
                            std::initializer_list<std::string_view> after) {
  FramedCommand command;
  command.head = fmt::format("*{}\r\n", before.size() + 1 + after.size());
  for (const std::string_view word : before) command.head += fmt::format("${}\r\n{}\r\n", word.size(), word);
  command.head += fmt::format("${}\r\n", length);
  command.tail = "\r\n";
  for (const std::string_view word : after) command.tail += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return command;
}

RedisError understand_error(std::string_view text) {
  RedisError error;
  const std::string_view code = text.substr(0, text.find(' '));
  if (code == "MOVED" || code == "ASK") {
    // MOVED 3999 127.0.0.1:6381
    std::string_view rest = text.substr(std::min(text.size(), code.size() + 1));
    unsigned slot = 0;
    const auto [end, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), slot);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (problem != std::errc{} || slot >= 16384 || !rest.starts_with(' ')) return error;
    auto address = parse_redirect_address(rest.substr(1));
    if (!address) return error;
    error.fault = code == "MOVED" ? RedisFault::Moved : RedisFault::Ask;
    error.slot = static_cast<std::uint16_t>(slot);
    error.address = std::move(*address);
    return error;
  }
  if (code == "LOADING" || code == "BUSY") error.fault = RedisFault::Loading;
  if (code == "READONLY") error.fault = RedisFault::ReadOnly;
  if (code == "NOAUTH" || code == "WRONGPASS") error.fault = RedisFault::NoAuth;
  if (code == "OOM" || code == "MISCONF" || code == "NOREPLICAS") error.fault = RedisFault::NoRoom;
  if (code == "CLUSTERDOWN" || code == "MASTERDOWN") error.fault = RedisFault::Down;
  if (code == "WRONGTYPE") error.fault = RedisFault::WrongType;
  return error;
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 120;
  std::string result(text.substr(0, kMost));
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > kMost) result += "...";
  return result;
}

void ReplyParser::FreeReader::operator()(redisReader* reader) const { redisReaderFree(reader); }

ReplyParser::ReplyParser() : reader_(redisReaderCreateWithFunctions(&kFunctions)) {
  if (reader_ == nullptr) throw std::bad_alloc();
  reader_->privdata = &elements_left_;
}

ReplyParser::~ReplyParser() = default;

void ReplyParser::expect(std::optional<PayloadSink> sink) {
  sink_ = sink;
  state_ = State::Start;
  line_.clear();
  fed_ = 0;
  elements_left_ = kMostElements;
  length_ = done_ = 0;
  end_ = 0;
}

Reply ReplyParser::finish(Reply reply) {
  expect(std::nullopt);
  return reply;
}

// The reader is fed line by line. A reply ends with a line, so the reader never has bytes of the next one. It does not
// look at the two bytes behind a string. If they are others, what follows would be understood as something else.
Result<std::optional<Reply>> ReplyParser::parse_small(std::span<const std::byte>& input) {
  while (!input.empty()) {
    const auto* const newline = static_cast<const std::byte*>(std::memchr(input.data(), '\n', input.size()));
    const std::size_t length = newline == nullptr ? input.size() : static_cast<std::size_t>(newline - input.data()) + 1;
    const bool line_ends = newline != nullptr;
    fed_ += length;
    if (fed_ > kLongestReply) return fail("a reply of over 4 MiB");
    redisReaderFeed(reader_.get(), reinterpret_cast<const char*>(input.data()), length);
    input = input.subspan(length);
    void* complete = nullptr;
    if (redisReaderGetReply(reader_.get(), &complete) != REDIS_OK) {
      return fail(fmt::format("not the Redis protocol: {}", printable(reader_->errstr)));
    }
    if (complete != nullptr) {
      const std::unique_ptr<Reply> reply(static_cast<Reply*>(complete));
      if (!line_ends || reader_->pos != reader_->len) {
        return fail("not the Redis protocol: no end of line behind a string");
      }
      return finish(std::move(*reply));
    }
  }
  return std::nullopt;
}

// line_ is "$123\r\n". A length that is not a plain number is not RESP.
Result<void> ReplyParser::begin_payload() {
  const std::string_view digits(line_.data() + 1, line_.size() - 3);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length_);
  const bool plain = error == std::errc{} && end == digits.data() + digits.size() && !digits.empty();
  if (!plain || line_[line_.size() - 2] != '\r')
    return fail("not the Redis protocol: the length of a value is no number");
  if (length_ > kLongestPayload) return fail("not the Redis protocol: a value of over 512 MiB");
  state_ = length_ > 0 ? State::Body : State::End;
  return {};
}

Result<std::optional<Reply>> ReplyParser::parse(std::span<const std::byte>& input) {
  while (!input.empty()) {
    switch (state_) {
      case State::Start: state_ = sink_ && input[0] == std::byte{'$'} ? State::Length : State::Small; break;
      case State::Small: return parse_small(input);
      case State::Length: {
        const char next = text_of(input)[0];
        input = input.subspan(1);
        line_ += next;
        if (next != '\n') {
          if (line_.size() > 24) return fail("not the Redis protocol: the length of a value is no number");
          break;
        }
        if (line_ == "$-1\r\n") return finish(Reply{});
        if (line_.size() < 4) return fail("not the Redis protocol: the length of a value is no number");
        if (auto begun = begin_payload(); !begun) return std::unexpected(begun.error());
        break;
      }
      case State::Body: {
        const std::size_t taken = std::min<std::uint64_t>(input.size(), length_ - done_);
        const PayloadSink place = direct();
        const std::size_t first = std::min(taken, place.first.size());
        const std::size_t second = std::min(taken - first, place.second.size());
        if (first > 0) std::memcpy(place.first.data(), input.data(), first);
        if (second > 0) std::memcpy(place.second.data(), input.data() + first, second);
        filled(taken);
        input = input.subspan(taken);
        break;
      }
      case State::End:
        if (text_of(input)[0] != "\r\n"[end_]) return fail("not the Redis protocol: no end of line behind a value");
        input = input.subspan(1);
        if (++end_ < 2) break;
        Reply reply{.kind = Reply::Kind::Payload, .integer = static_cast<std::int64_t>(length_)};
        reply.whole = length_ == sink_->size();
        return finish(std::move(reply));
    }
  }
  return std::nullopt;
}

PayloadSink ReplyParser::direct() const {
  PayloadSink place;
  if (state_ != State::Body) return place;
  const bool fits = length_ == sink_->size();
  const std::size_t first_end = std::min<std::uint64_t>(sink_->first.size(), length_);
  if (done_ < first_end) place.first = sink_->first.subspan(done_, first_end - done_);
  if (fits) place.second = sink_->second.subspan(done_ > first_end ? done_ - first_end : 0);
  return place;
}

void ReplyParser::filled(std::size_t bytes) {
  done_ += bytes;
  if (done_ >= length_) state_ = State::End;
}

}  // namespace quire::tiers

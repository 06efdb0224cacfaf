#include "quire/tools/call_matcher.h"

#include <algorithm>
#include <utility>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_to.hpp>

namespace quire::tools {
namespace {

namespace json = boost::json;
using Kind = Part::Kind;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

bool is_name(char c) {
  return static_cast<unsigned char>(c) > 0x20 && c != 0x7F && !std::string_view("<>()[]{}\"'=,;|`\\").contains(c);
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<json::value> parsed(std::string_view text) {
  json::error_code error;
  json::parse_options options;
  options.max_depth = JsonScanner::kMostDepth;
  json::value value = json::parse(text, error, {}, options);
  return error ? std::nullopt : std::optional(std::move(value));
}

// The text of a JSON string.
std::optional<std::string> unquoted(std::string_view text) {
  if (!text.starts_with('"')) return std::nullopt;
  const auto value = parsed(text);
  return value && value->is_string() ? std::optional<std::string>(value->get_string()) : std::nullopt;
}

enum class Match : std::uint8_t { Yes, No, Open };
Match match(std::string_view rest, std::string_view mark) {
  if (rest.starts_with(mark)) return Match::Yes;
  return mark.starts_with(rest) ? Match::Open : Match::No;
}

// The first mark of these parts, if only white space may stand before it.
std::string_view first_mark(std::span<const Part> parts) {
  for (const Part& part : parts) {
    if (part.kind == Kind::Space) continue;
    return part.kind == Kind::Mark ? part.text : std::string_view();
  }
  return {};
}

// What a key between tags ends at: `middle`, or what stands before the white space in it.
std::string_view end_of_key(const Tags& tags) {
  return tags.middle.substr(0, tags.space_inside ? tags.middle.find('\n') : std::string_view::npos);
}

}  // namespace

bool is_function_name(const Shape& shape, std::string_view name) {
  const std::size_t most = kMostNameBytes - (shape.numbered.empty() ? 0 : kMostNumberBytes);
  return !name.empty() && name.size() <= most && std::ranges::all_of(name, is_name);
}

bool is_tagged_key(const Tags& tags, std::string_view key) {
  const std::string_view end = end_of_key(tags);
  return !key.empty() && key.size() <= kMostNameBytes && trim(key) == key &&
         (std::string(key) + std::string(end)).find(end) == key.size();
}

void CallMatcher::enter(Phase phase, std::span<const Part> parts) {
  phase_ = phase;
  parts_ = parts;
  index_ = 0;
  if (phase != Phase::Call) return;
  call_ = {};
  named_ = arguments_done_ = has_arguments_ = in_value_ = false;
}

CallMatcher::Status CallMatcher::run(std::string_view text, bool last) {
  if (failed_) return Status::Failed;
  last_ = last;
  while (true) {
    const Step stepped = phase_ == Phase::Decide ? decide(text) : advance(text);
    if (stepped == Step::More) return Status::More;
    if (stepped == Step::Failed) {
      failed_ = true;
      return Status::Failed;
    }
    const bool ended = phase_ == Phase::End && index_ == parts_.size();
    if (ended || phase_ == Phase::Over) return Status::Done;
  }
}

// Reads one part, or goes on to the next phase.
CallMatcher::Step CallMatcher::advance(std::string_view text) {
  if (index_ < parts_.size()) {
    const Step stepped = step(parts_[index_], text);
    if (stepped == Step::Next) {
      ++index_;
      scanned_ = 0;
    }
    return stepped;
  }
  if (phase_ == Phase::Call) {
    complete();
  } else {
    enter(Phase::Call, shape_->call);
  }
  return Step::Next;
}

void CallMatcher::complete() {
  if (call_.arguments.empty()) call_.arguments = "{}";
  calls_.push_back({std::exchange(call_, {}), position_});
  named_ = arguments_done_ = false;
  phase_ = Phase::Decide;
}

// After a call: another one, or the end of the section.
CallMatcher::Step CallMatcher::decide(std::string_view text) {
  std::size_t at = position_;
  while (at < text.size() && is_space(text[at])) ++at;
  const std::string_view rest = text.substr(at);
  const std::string_view end = first_mark(shape_->end);
  const std::string_view between = first_mark(shape_->between);
  const auto over = [this] {
    phase_ = Phase::Over;
    return Step::Next;
  };
  if (end.empty() && !shape_->several) return over();
  if (!end.empty()) {
    const Match found = match(rest, end);
    if (found == Match::Open) return Step::More;
    if (found == Match::Yes || !shape_->several) {
      position_ = at;
      enter(Phase::End, shape_->end);
      return Step::Next;
    }
  }
  if (!between.empty()) {
    const Match found = match(rest, between);
    if (found == Match::Open) return Step::More;
    if (found == Match::No) return end.empty() ? over() : Step::Failed;
  }
  position_ = at;
  enter(Phase::Between, shape_->between);
  return Step::Next;
}

CallMatcher::Step CallMatcher::step(const Part& part, std::string_view text) {
  switch (part.kind) {
    case Kind::Mark: return read_mark(part.text, text);
    case Kind::Maybe: {
      const Match found = match(text.substr(position_), part.text);
      if (found == Match::Yes) position_ += part.text.size();
      return found == Match::Open ? Step::More : Step::Next;
    }
    case Kind::Space:
      while (position_ < text.size() && is_space(text[position_])) ++position_;
      return position_ == text.size() ? Step::More : Step::Next;
    case Kind::Skip: return read_skip(text);
    case Kind::Name: return read_name(text);
    case Kind::MaybeId: return read_id(part, text);
    case Kind::Object: return read_object(text);
    case Kind::Json: return read_json(text);
    case Kind::Tagged: return read_tagged(text);
    case Kind::Keywords: return read_keywords(text);
  }
  return Step::Failed;
}

CallMatcher::Step CallMatcher::read_mark(std::string_view mark, std::string_view text) {
  const Match found = match(text.substr(position_), mark);
  if (found == Match::Yes) position_ += mark.size();
  return found == Match::Yes ? Step::Next : found == Match::Open ? Step::More : Step::Failed;
}

CallMatcher::Step CallMatcher::read_skip(std::string_view text) {
  const std::string_view mark = parts_[index_ + 1].text;
  const std::size_t found = text.substr(0, position_ + kMostSkipped + mark.size()).find(mark, position_);
  if (found != std::string_view::npos) {
    position_ = found;
    return Step::Next;
  }
  return text.size() - position_ >= kMostSkipped + mark.size() ? Step::Failed : Step::More;
}

// A name ends at the first byte that cannot be part of one.
CallMatcher::Step CallMatcher::read_name(std::string_view text) {
  std::size_t end = position_ + scanned_;
  while (end < text.size() && end - position_ <= kMostNameBytes && is_name(text[end])) ++end;
  scanned_ = end - position_;
  if (scanned_ > kMostNameBytes) return Step::Failed;
  if (end == text.size()) return Step::More;
  if (scanned_ == 0) return Step::Failed;
  std::string name(text.substr(position_, scanned_));
  if (!shape_->numbered.empty()) {
    const std::size_t colon = name.rfind(':');
    if (colon != std::string::npos && colon > 0 &&
        name.find_first_not_of("0123456789", colon + 1) == std::string::npos) {
      call_.id = std::string(shape_->numbered) + name;
      name.resize(colon);
    }
  }
  if (!set_name(std::move(name))) return Step::Failed;
  position_ = end;
  return Step::Next;
}

bool CallMatcher::set_name(std::string name) {
  if (name.empty() || name.size() > kMostNameBytes) return false;
  if (shape_->where == Shape::Where::Line && tools_->find(name) == nullptr) return false;
  call_.name = std::move(name);
  named_ = true;
  return true;
}

CallMatcher::Step CallMatcher::read_id(const Part& part, std::string_view text) {
  const Match found = match(text.substr(position_), part.text);
  if (found == Match::No) return Step::Next;
  if (found == Match::Open) return Step::More;
  const std::size_t begin = position_ + part.text.size();
  std::size_t end = begin;
  while (end < text.size() && end - begin <= kMostNameBytes && is_name(text[end])) ++end;
  if (end - begin > kMostNameBytes) return Step::Failed;
  if (end == text.size()) return Step::More;
  call_.id = text.substr(begin, end - begin);
  position_ = end;
  return Step::Next;
}

// --- arguments as JSON

CallMatcher::Step CallMatcher::read_json(std::string_view text) {
  if (!scanner_) scanner_.emplace();
  while (position_ + scanned_ < text.size()) {
    const char c = text[position_ + scanned_];
    const JsonScanner::Status status = scanner_->push(c);
    if (status == JsonScanner::Status::Bad) {
      position_ += scanned_;
      return Step::Failed;
    }
    ++scanned_;
    call_.arguments += c;
    if (status != JsonScanner::Status::Done) continue;
    scanner_.reset();
    position_ += scanned_;
    arguments_done_ = true;
    return Step::Next;
  }
  return Step::More;
}

CallMatcher::Step CallMatcher::read_object(std::string_view text) {
  if (!scanner_) {
    scanner_.emplace();
    arguments_begin_ = 0;
  }
  while (position_ + scanned_ < text.size()) {
    const JsonScanner::Status status = scanner_->push(text[position_ + scanned_]);
    if (status == JsonScanner::Status::Bad) {
      position_ += scanned_;
      return Step::Failed;
    }
    ++scanned_;
    const std::string_view object = text.substr(position_, scanned_);
    if (scanner_->changed() && !take_members(object)) {
      position_ += scanned_;
      return Step::Failed;
    }
    // The arguments are passed on while they come, if they come after the name and are an object.
    if (arguments_begin_ != 0) call_.arguments += object.back();
    if (status != JsonScanner::Status::Done) continue;
    scanner_.reset();
    position_ += scanned_;
    arguments_done_ = true;
    return named_ ? Step::Next : Step::Failed;
  }
  return Step::More;
}

// Looks at the member that has just changed. Returns false if it cannot be part of a call.
bool CallMatcher::take_members(std::string_view object) {
  const Keys& keys = shape_->keys;
  const JsonScanner::Member& member = scanner_->members().back();
  const std::string_view quoted = object.substr(member.key_begin, member.key_end - member.key_begin);
  const std::string_view key = quoted.substr(1, quoted.size() - 2);
  const bool arguments =
      keys.name_is_key || key == keys.arguments || (!keys.also_arguments.empty() && key == keys.also_arguments);
  const bool ended = member.value_end != 0;
  if (member.value_begin == 0) {
    if (keys.name_is_key) {
      const auto name = unquoted(quoted);
      return scanner_->members().size() == 1 && name && set_name(*name);
    }
    if (arguments) return !std::exchange(has_arguments_, true);
    if (key == keys.name) return !named_;
    return key == keys.id || key == "type";
  }
  if (arguments) {
    if (!ended) {
      if (named_ && object.back() == '{') arguments_begin_ = member.value_begin;
      return true;
    }
    if (arguments_begin_ != 0) {
      // The last byte of an object belongs to it.
      call_.arguments += object.back();
      arguments_begin_ = 0;
      return true;
    }
    return take_arguments(object.substr(member.value_begin, member.value_end - member.value_begin));
  }
  if (!ended) return true;
  const std::string_view value = object.substr(member.value_begin, member.value_end - member.value_begin);
  if (key == keys.name) {
    auto name = unquoted(value);
    return name && set_name(std::move(*name));
  }
  if (key == keys.id && keys.keeps_id && (late_ids_ || !has_arguments_)) call_.id = unquoted(value).value_or("");
  return true;
}

// Arguments that are complete: an object, an object written as a string, or none.
bool CallMatcher::take_arguments(std::string_view text) {
  if (text == "null") return true;
  if (text.starts_with('{')) {
    call_.arguments = text;
    return true;
  }
  auto inner = unquoted(text);
  if (!inner) return false;
  const auto value = parsed(*inner);
  if (!value || !value->is_object()) return false;
  call_.arguments = std::move(*inner);
  return true;
}

// --- arguments one by one

void CallMatcher::add_argument(std::string_view key, std::string_view value) {
  call_.arguments += call_.arguments.empty() ? "{" : ", ";
  call_.arguments += json_string(key);
  call_.arguments += ": ";
  call_.arguments += value;
}

// Whether the schema says that this parameter is a string. Then it stands between its tags as it is.
bool CallMatcher::is_text(std::string_view key) const {
  const Tool* const tool = tools_->find(call_.name);
  if (tool == nullptr) return false;
  const auto known = tool->strings.find(key);
  return known != tool->strings.end() && known->second;
}

std::string CallMatcher::tagged_value(std::string_view key, std::string_view raw) const {
  if (shape_->tags.trims_line) {
    if (raw.starts_with('\n')) raw.remove_prefix(1);
    if (raw.ends_with('\n')) raw.remove_suffix(1);
  }
  if (is_text(key)) return json_string(raw);
  const std::string_view core = trim(raw);
  if (parsed(core)) return std::string(core);
  if (core == "True") return "true";
  if (core == "False") return "false";
  if (core == "None") return "null";
  return json_string(raw);
}

void CallMatcher::begin_value() {
  in_value_ = true;
  scanned_ = 0;
  first_close_.reset();
  json_end_.reset();
  scanner_.reset();
  if (is_text(key_)) return;
  // The scanner takes objects: the value is the one of a member.
  scanner_.emplace();
  for (const char c : std::string_view("{\"\":")) scanner_->push(c);
}

// Where the closing tag of a value begins; npos: more text decides. It is the first one, unless that stands in a string
// of a JSON value which another one closes.
std::size_t CallMatcher::value_end(std::string_view text) {
  const std::string_view close = shape_->tags.close;
  while (scanner_ && position_ + scanned_ < text.size()) {
    const JsonScanner::Status status = scanner_->push(text[position_ + scanned_]);
    ++scanned_;
    const std::size_t behind = position_ + scanned_;
    if (status != JsonScanner::Status::More || scanner_->members().front().value_end != 0) {
      if (status != JsonScanner::Status::Bad && first_close_) json_end_ = behind;
      if (!first_close_) scanned_ = 0;  // the tag may have begun already
      scanner_.reset();
    } else if (!first_close_ && text.substr(position_, scanned_).ends_with(close)) {
      first_close_ = behind - close.size();
    }
  }
  if (json_end_) {
    std::size_t at = *json_end_;
    while (at < text.size() && is_space(text[at])) ++at;
    json_end_ = at;
    const Match found = match(text.substr(at), close);
    if (found == Match::Yes) return at;
    if (found == Match::Open && !last_) return std::string_view::npos;
  }
  if (first_close_ && (!scanner_ || last_)) return *first_close_;
  if (scanner_) return std::string_view::npos;
  const std::size_t found = text.find(close, position_ + scanned_);
  if (found == std::string_view::npos) {
    const std::size_t keep = std::min(text.size() - position_, close.size() - 1);
    scanned_ = std::max(scanned_, text.size() - position_ - keep);
  }
  return found;
}

CallMatcher::Step CallMatcher::read_tagged(std::string_view text) {
  const Tags& tags = shape_->tags;
  while (true) {
    if (!in_value_) {
      std::size_t at = position_;
      while (at < text.size() && is_space(text[at])) ++at;
      const Match open = match(text.substr(at), tags.open);
      if (open == Match::Open) return Step::More;
      if (open == Match::No) {
        if (call_.arguments.empty()) call_.arguments = "{";
        call_.arguments += '}';
        arguments_done_ = true;
        return Step::Next;
      }
      // The key ends where `middle` begins.
      const std::size_t begin = at + tags.open.size();
      const std::string_view first = end_of_key(tags);
      const std::size_t end = text.substr(0, begin + kMostNameBytes + first.size()).find(first, begin);
      if (end == std::string_view::npos) {
        return text.size() >= begin + kMostNameBytes + first.size() ? Step::Failed : Step::More;
      }
      std::size_t behind = end + first.size();
      if (tags.space_inside) {
        while (behind < text.size() && is_space(text[behind])) ++behind;
        const std::string_view second = tags.middle.substr(first.size() + 1);
        const Match found = match(text.substr(behind), second);
        if (found != Match::Yes) return found == Match::Open ? Step::More : Step::Failed;
        behind += second.size();
      }
      key_ = trim(text.substr(begin, end - begin));
      if (key_.empty()) return Step::Failed;
      position_ = behind;
      begin_value();
    }
    const std::size_t close = value_end(text);
    if (close == std::string_view::npos) return Step::More;
    add_argument(key_, tagged_value(key_, text.substr(position_, close - position_)));
    position_ = close + tags.close.size();
    scanned_ = 0;
    in_value_ = false;
    scanner_.reset();
  }
}

CallMatcher::Step CallMatcher::read_keywords(std::string_view text) {
  while (position_ + scanned_ < text.size()) {
    const char c = text[position_ + scanned_];
    if (!keyword_end_.push(c)) {
      ++scanned_;
      continue;
    }
    keyword_end_ = {};
    const std::string_view one = text.substr(position_, scanned_);
    const bool last = c == ')';
    position_ += scanned_;
    if (const auto keyword = read_keyword(one)) {
      add_argument(keyword->key, keyword->value);
    } else if (!last || !trim(one).empty()) {
      return Step::Failed;
    }
    scanned_ = 0;
    if (last) {
      if (call_.arguments.empty()) call_.arguments = "{";
      call_.arguments += '}';
      arguments_done_ = true;
      return Step::Next;
    }
    ++position_;  // the comma
  }
  return Step::More;
}

// --- the end of the text

bool CallMatcher::finish(std::string_view text) {
  if (failed_) return false;
  const std::string_view rest = trim(text.substr(std::min(position_, text.size())));
  if (phase_ == Phase::Call && arguments_done_ && named_ && index_ < parts_.size()) {
    while (index_ < parts_.size() && parts_[index_].kind == Kind::Space) ++index_;
    if (!rest.empty() && (index_ == parts_.size() || !parts_[index_].text.starts_with(rest))) return false;
    position_ = text.size();
    complete();
    return true;
  }
  if (phase_ == Phase::Call && arguments_done_ && named_) complete();
  return !calls_.empty() && (phase_ == Phase::Decide || phase_ == Phase::End);
}

}  // namespace quire::tools

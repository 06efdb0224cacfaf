#include "quire/tools/answer_parser.h"

#include <algorithm>
#include <utility>

namespace quire::tools {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// How many bytes at the end of `text` may be the beginning of `mark`.
std::size_t open_end(std::string_view text, std::string_view mark) {
  for (std::size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length) {
    if (mark.starts_with(text.substr(text.size() - length))) return length;
  }
  return 0;
}

}  // namespace

AnswerParser::AnswerParser(const ParserOptions& options) : options_(options) {
  using Kind = Trigger::Kind;
  const auto silent = [this](std::span<const std::string_view> marks) {
    for (const std::string_view mark : marks) {
      if (std::ranges::find(triggers_, mark, &Trigger::text) == triggers_.end()) {
        triggers_.push_back({mark, Kind::Silent});
      }
    }
  };
  if (options.reasoning != nullptr) {
    triggers_.push_back({options.reasoning->begin, Kind::Reasoning});
    silent(options.reasoning->silent);
  }
  if (options.format != nullptr) {
    silent(options.format->silent);
  }
  if (options.format != nullptr && options.tools != nullptr) {
    for (const Shape& shape : options.format->shapes) {
      if (shape.where == Shape::Where::Line && options.reading.bare == Reading::Bare::Never) continue;
      triggers_.push_back({trigger(shape), Kind::Shape, &shape});
    }
  }
  for (const Trigger& each : triggers_) begins_[static_cast<unsigned char>(each.text.front())] = true;
}

void AnswerParser::push(std::string_view text, std::vector<Delta>& out) {
  if (mode_ == Mode::Over) return;
  if (at_ > buffer_.size() / 2) {
    buffer_.erase(0, at_);
    at_ = 0;
  }
  buffer_ += text;
  pump(false, out);
}

void AnswerParser::finish(bool cut, std::vector<Delta>& out) {
  cut_ = cut;
  pump(true, out);
  if (mode_ == Mode::Section) finish_section(cut, out);
  if (mode_ == Mode::Content && !drops_space_ && !space_.empty()) {
    out.push_back({.kind = Delta::Kind::Content, .text = std::exchange(space_, {})});
  }
}

void AnswerParser::pump(bool last, std::vector<Delta>& out) {
  bool more = true;
  while (more) {
    switch (mode_) {
      case Mode::Content: more = read_content(last, out); break;
      case Mode::Reasoning: more = read_reasoning(last, out); break;
      case Mode::Check: more = read_check(last); break;
      case Mode::Section: more = read_section(last && !cut_, out); break;
      case Mode::Over: more = false; break;
    }
  }
}

// White space is held back: it is left out if a call follows it.
void AnswerParser::add_text(Delta::Kind kind, std::string_view text, std::vector<Delta>& out) {
  for (const char c : text) {
    if (c == '\n') line_ = true;
    if (!is_space(c)) line_ = false;
  }
  std::size_t end = text.size();
  while (end > 0 && is_space(text[end - 1])) --end;
  std::string_view core = text.substr(0, end);
  if (!core.empty()) {
    if (drops_space_) {
      while (is_space(core.front())) core.remove_prefix(1);
      space_.clear();
      drops_space_ = false;
    }
    std::string whole = std::exchange(space_, {});
    whole += core;
    out.push_back({.kind = kind, .text = std::move(whole)});
    fresh_ = false;
    has_text_ |= kind == Delta::Kind::Content;
  }
  space_ += text.substr(end);
}

// A call or reasoning begins or ends here.
void AnswerParser::border() {
  space_.clear();
  fresh_ = true;
  drops_space_ = true;
  line_ = true;
}

bool AnswerParser::at_line(std::size_t at) const {
  const std::string_view text = rest();
  while (at > 0) {
    const char c = text[--at];
    if (c == '\n') return true;
    if (!is_space(c)) return false;
  }
  return line_;
}

bool AnswerParser::may_begin(const Trigger& trigger, std::size_t at) const {
  const auto is_first = [&] { return !has_text_ && std::ranges::all_of(rest().substr(0, at), is_space); };
  if (trigger.kind == Trigger::Kind::Shape) {
    const bool line = trigger.shape->where == Shape::Where::Line;
    const bool first = options_.reading.calls_first || (line && options_.reading.bare == Reading::Bare::First);
    return first ? is_first() : !line || at_line(at);
  }
  if (trigger.kind == Trigger::Kind::Silent || options_.reasoning->anywhere) return true;
  return fresh_ && std::ranges::all_of(rest().substr(0, at), is_space);
}

bool AnswerParser::read_content(bool last, std::vector<Delta>& out) {
  const std::string_view text = rest();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!begins_[static_cast<unsigned char>(text[i])]) continue;
    const std::string_view from = text.substr(i);
    const Trigger* longest = nullptr;
    bool open = false;  // more text decides
    for (const Trigger& each : triggers_) {
      if (!from.starts_with(each.text) && !(each.text.starts_with(from) && !last)) continue;
      if (!may_begin(each, i)) continue;
      if (!from.starts_with(each.text)) {
        open = true;
      } else if (longest == nullptr || each.text.size() > longest->text.size()) {
        longest = &each;
      }
    }
    if (!open && longest == nullptr) continue;
    std::vector<CallMatcher> matchers;
    if (!open && longest->kind == Trigger::Kind::Shape) {
      for (const Trigger& each : triggers_) {
        if (each.kind == Trigger::Kind::Shape && from.starts_with(each.text) && may_begin(each, i)) {
          matchers.emplace_back(*each.shape, *options_.tools, !options_.reading.progressive);
        }
      }
    }
    add_text(Delta::Kind::Content, text.substr(0, i), out);
    at_ += i;
    if (open) return false;
    switch (longest->kind) {
      case Trigger::Kind::Silent: at_ += longest->text.size(); break;
      case Trigger::Kind::Reasoning:
        at_ += longest->text.size();
        border();
        mode_ = Mode::Reasoning;
        break;
      case Trigger::Kind::Shape:
        if (options_.reading.check && !passed_) {
          check_ = options_.reading.check();
          checked_ = 0;
          mode_ = Mode::Check;
          break;
        }
        matchers_ = std::move(matchers);
        emitted_ = 0;
        mode_ = Mode::Section;
        break;
    }
    return true;
  }
  add_text(Delta::Kind::Content, text, out);
  at_ = buffer_.size();
  return false;
}

// Nothing is passed on before it is known what it is. Then it is read again.
bool AnswerParser::read_check(bool last) {
  const bool possible = check_->push(rest().substr(checked_));
  checked_ = rest().size();
  if (possible && !last) return false;
  passed_ = possible && (cut_ || check_->complete());
  // Calls come only before the first text.
  has_text_ |= !passed_;
  check_.reset();
  mode_ = Mode::Content;
  return true;
}

bool AnswerParser::read_reasoning(bool last, std::vector<Delta>& out) {
  const std::string_view text = rest();
  const std::string_view end = options_.reasoning->end;
  const std::size_t found = text.find(end);
  if (found == std::string_view::npos) {
    const std::size_t ready = text.size() - (last ? 0 : open_end(text, end));
    add_text(Delta::Kind::Reasoning, text.substr(0, ready), out);
    at_ += ready;
    return false;
  }
  add_text(Delta::Kind::Reasoning, text.substr(0, found), out);
  at_ += found + end.size();
  border();
  mode_ = Mode::Content;
  return true;
}

void AnswerParser::emit_open(const Call& call, std::vector<Delta>& out) {
  if (!std::exchange(open_emitted_, true)) {
    border();
    out.push_back({.kind = Delta::Kind::Call, .call = calls_, .name = call.name, .id = call.id});
    ++calls_;
    open_bytes_ = 0;
  }
  if (call.arguments.size() == open_bytes_) return;
  out.push_back({.kind = Delta::Kind::Arguments, .call = calls_ - 1, .text = call.arguments.substr(open_bytes_)});
  open_bytes_ = call.arguments.size();
}

void AnswerParser::emit_calls(const CallMatcher& matcher, std::vector<Delta>& out) {
  while (emitted_ < matcher.calls().size() && mode_ != Mode::Over) {
    emit_open(matcher.calls()[emitted_++].call, out);
    open_emitted_ = false;
    if (options_.one_call) mode_ = Mode::Over;
  }
}

// All shapes that may begin here are read side by side. The first that has a call wins.
bool AnswerParser::read_section(bool last, std::vector<Delta>& out) {
  const std::string_view text = rest();
  std::vector<CallMatcher::Status> statuses;
  statuses.reserve(matchers_.size());
  for (CallMatcher& each : matchers_) statuses.push_back(each.run(text, last));
  if (emitted_ == 0) {
    const CallMatcher* first = nullptr;
    std::size_t index = 0;
    for (std::size_t i = 0; i < matchers_.size(); ++i) {
      const CallMatcher& each = matchers_[i];
      if (each.calls().empty()) continue;
      if (first != nullptr && each.calls().front().end >= first->calls().front().end) continue;
      first = &each;
      index = i;
    }
    if (first != nullptr) {
      CallMatcher winner = std::move(matchers_[index]);
      statuses = {statuses[index]};
      matchers_.clear();
      matchers_.push_back(std::move(winner));
    }
  }
  if (std::ranges::all_of(statuses, [](auto status) { return status == CallMatcher::Status::Failed; })) {
    fail_section(out);
    return mode_ != Mode::Over;
  }
  emit_calls(matchers_.front(), out);
  if (mode_ == Mode::Over) return false;
  if (statuses.front() == CallMatcher::Status::Done) {
    at_ += matchers_.front().position();
    matchers_.clear();
    mode_ = Mode::Content;
    return true;
  }
  if (options_.reading.progressive && matchers_.size() == 1 && matchers_.front().streams()) {
    emit_open(*matchers_.front().open(), out);
  }
  return false;
}

// The text is no call. It becomes content up to where reading failed, and is read on from there.
void AnswerParser::fail_section(std::vector<Delta>& out) {
  const CallMatcher& furthest = *std::ranges::max_element(matchers_, {}, &CallMatcher::position);
  emit_calls(furthest, out);
  if (mode_ == Mode::Over) return;
  std::size_t begin = furthest.calls().empty() ? 0 : furthest.calls().back().end;
  const std::size_t end = std::max<std::size_t>(furthest.position(), 1);
  if (options_.reading.progressive && matchers_.size() == 1 && furthest.streams()) {
    emit_open(*furthest.open(), out);
    open_emitted_ = false;
    begin = end;
  }
  mode_ = Mode::Content;
  add_text(Delta::Kind::Content, rest().substr(begin, end - begin), out);
  at_ += end;
  matchers_.clear();
}

void AnswerParser::finish_section(bool cut, std::vector<Delta>& out) {
  const std::string_view text = rest();
  for (CallMatcher& each : matchers_) {
    if (!each.finish(text)) continue;
    emit_calls(each, out);
    if (mode_ == Mode::Over) return;
    mode_ = Mode::Content;
    at_ = buffer_.size();
    return;
  }
  // The first that knows a name: the shapes that remain agree on what has been written so far.
  for (const CallMatcher& each : matchers_) {
    if (each.failed() || each.open() == nullptr) continue;
    if (!cut && !(options_.reading.progressive && matchers_.size() == 1 && each.streams())) continue;
    emit_open(*each.open(), out);
    open_emitted_ = false;
    mode_ = Mode::Content;
    at_ = buffer_.size();
    return;
  }
  const CallMatcher& furthest = *std::ranges::max_element(matchers_, {}, &CallMatcher::position);
  const std::size_t begin = furthest.calls().empty() ? 0 : furthest.calls().back().end;
  mode_ = Mode::Content;
  add_text(Delta::Kind::Content, text.substr(begin), out);
  at_ = buffer_.size();
}

}  // namespace quire::tools

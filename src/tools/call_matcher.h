// Reads one section of calls in one shape, from text that comes piece by piece.
//
// Who may call: one thread at a time. The shape and the tools must outlive it.
// What holds: what it reads does not depend on how the text was cut. Each byte is looked at a bounded number of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/tools/format.h"
#include "quire/tools/json_scanner.h"
#include "quire/tools/pythonic.h"
#include "quire/tools/tool_list.h"

namespace quire::tools {

struct Call {
  std::string name;
  std::string id;         // empty: the model wrote none, or one that is not unique
  std::string arguments;  // JSON
};

// Whether a matcher reads this name where the shape has a Part::Kind::Name, and this key between tags. Others are read
// as something else, or not at all.
bool is_function_name(const Shape& shape, std::string_view name);
bool is_tagged_key(const Tags& tags, std::string_view key);

class CallMatcher {
 public:
  enum class Status : std::uint8_t { More, Done, Failed };

  // `late_ids`: an id that comes behind the arguments is the call's. Then the call is known only when it is complete.
  CallMatcher(const Shape& shape, const ToolList& tools, bool late_ids = true)
      : shape_(&shape), tools_(&tools), late_ids_(late_ids), parts_(shape.begin) {}

  // Reads on. `text` begins where the section begins, and is the text of the last call with more behind it. `last`: the
  // answer ends with it.
  Status run(std::string_view text, bool last = false);  // after Failed: Failed

  // The text has ended. Returns whether the section may end here: a call is complete, and of the rest only closing
  // marks are missing. Then calls() has that call too.
  bool finish(std::string_view text);

  // The calls that are complete, and where each ends.
  struct Complete {
    Call call;
    std::size_t end = 0;
  };
  const std::vector<Complete>& calls() const { return calls_; }
  // The call that is being read, as soon as its name is known. Its arguments only ever grow.
  const Call* open() const { return named_ ? &call_ : nullptr; }

  // Whether the open call has begun with its arguments, and nothing but arguments of it is still to come.
  bool streams() const {
    return named_ && !call_.arguments.empty() && (!late_ids_ || !shape_->keys.keeps_id || !call_.id.empty());
  }

  // How far it has read. After Done: where the section ends. After Failed: from where on the text may be read again.
  std::size_t position() const { return position_; }
  bool failed() const { return failed_; }

 private:
  enum class Phase : std::uint8_t { Begin, Call, Decide, Between, End, Over };
  enum class Step : std::uint8_t { Next, More, Failed };

  Step step(const Part& part, std::string_view text);
  Step read_mark(std::string_view mark, std::string_view text);
  Step read_name(std::string_view text);
  Step read_id(const Part& part, std::string_view text);
  Step read_skip(std::string_view text);
  Step read_object(std::string_view text);
  Step read_json(std::string_view text);
  Step read_tagged(std::string_view text);
  Step read_keywords(std::string_view text);
  bool take_members(std::string_view object);
  bool take_arguments(std::string_view json);
  void add_argument(std::string_view key, std::string_view value);
  bool is_text(std::string_view key) const;
  void begin_value();
  std::size_t value_end(std::string_view text);
  std::string tagged_value(std::string_view key, std::string_view raw) const;
  bool set_name(std::string name);
  void enter(Phase phase, std::span<const Part> parts);
  Step decide(std::string_view text);
  Step advance(std::string_view text);
  void complete();

  const Shape* shape_;
  const ToolList* tools_;
  bool late_ids_;
  Phase phase_ = Phase::Begin;
  std::span<const Part> parts_;
  std::size_t index_ = 0;  // of the part that is being read
  std::size_t position_ = 0;
  std::vector<Complete> calls_;
  bool failed_ = false;

  // Of the call that is being read.
  Call call_;
  bool named_ = false;
  bool arguments_done_ = false;
  bool has_arguments_ = false;  // Object: the member has come

  // Of the part that is being read.
  std::size_t scanned_ = 0;  // bytes behind position_ that were looked at
  std::optional<JsonScanner> scanner_;
  std::size_t arguments_begin_ = 0;  // Object: offset of the arguments, once their value has begun
  bool in_value_ = false;            // Tagged: the key is read
  std::string key_;
  // Tagged: the first closing tag, if it may stand in a string of JSON, and where that JSON has ended.
  std::optional<std::size_t> first_close_, json_end_;
  bool last_ = false;  // the answer ends with this text
  KeywordEnd keyword_end_;
};

}  // namespace quire::tools

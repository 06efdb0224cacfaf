// Keyword arguments as Python writes them (`city="Rome", days=3, tags=['a']`), converted to JSON.
//
// Who may call: any thread; there is no state.
// How it fails: std::nullopt for what is not a literal: names, operators, calls, positional arguments, f-strings.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace quire::tools {

// Finds the end of one keyword argument in text that comes piece by piece: the first comma or closing parenthesis that
// is in no string and no bracket.
class KeywordEnd {
 public:
  // Whether this byte is the end. It is not part of the argument.
  bool push(char c);

 private:
  char quote_ = 0;
  bool escaped_ = false;
  std::size_t depth_ = 0;
};

struct Keyword {
  std::string key;
  std::string value;  // JSON
};
// One argument, `key = value`, with free white space around it.
std::optional<Keyword> read_keyword(std::string_view text);

// Whether read_keyword() reads an argument with this key. It need not be an identifier: models write keywords of Python
// (`from="Rome"`) and what begins with a digit.
bool is_keyword_key(std::string_view text);

// `text` as a JSON string.
std::string json_string(std::string_view text);

}  // namespace quire::tools

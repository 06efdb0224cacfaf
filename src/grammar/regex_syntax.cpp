#include "quire/grammar/regex_syntax.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "quire/base/utf8.h"
#include "quire/grammar/char_set.h"
#include "quire/grammar/regex_parser.h"

namespace quire::grammar {
namespace {

using Node = RegexNode;
using Kind = RegexNode::Kind;

// What may come from a place in the expression to the end of the text: if nothing came before it, and if something did.
// They differ only because of "^". An anchor or a look-ahead is an intersection with what follows it, so expressions
// that have them are built from their ends.
struct Rest {
  RegexId at_start, later;
  bool operator==(const Rest&) const = default;
};

class Builder {
 public:
  Builder(RegexSet& regexes, bool json_string) : regexes_(regexes), json_string_(json_string) {}

  Result<RegexId> whole(const Node& tree) {
    const auto rest = before(tree, {RegexSet::kEmpty, RegexSet::kEmpty});
    if (!rest) return std::unexpected(rest.error());
    return rest->at_start;
  }

  Result<RegexId> anywhere(const Node& tree) {
    const RegexId any = any_character(regexes_, json_string_);
    const RegexId anything = regexes_.repeat(any, 0);
    const auto rest = before(tree, {anything, anything});
    if (!rest) return std::unexpected(rest.error());
    if (rest->at_start == rest->later) return regexes_.concat({anything, rest->later});
    return regexes_.any_of({rest->at_start, regexes_.concat({regexes_.repeat(any, 1), rest->later})});
  }

 private:
  // A tree without anchors and look-ahead.
  RegexId plain(const Node& node) {
    switch (node.kind) {
      case Kind::Set: return set(node.set);
      case Kind::Sequence: {
        std::vector<RegexId> parts;
        parts.reserve(node.parts.size());
        for (const auto& part : node.parts) parts.push_back(plain(*part));
        return regexes_.concat(parts);
      }
      case Kind::Choice: {
        std::vector<RegexId> parts;
        CharSet characters;  // alternatives of one character are one class
        for (const auto& part : node.parts) {
          const Node* only = part->kind == Kind::Sequence && part->parts.size() == 1 ? part->parts[0].get() : nullptr;
          if (only != nullptr && only->kind == Kind::Set) {
            characters.add(only->set);
          } else {
            parts.push_back(plain(*part));
          }
        }
        if (!characters.empty()) parts.push_back(set(characters));
        return regexes_.any_of(parts);
      }
      case Kind::Repeat: return regexes_.repeat(plain(*node.parts[0]), node.least, node.most);
      case Kind::Start:
      case Kind::End:
      case Kind::Look: break;
    }
    return RegexSet::kNothing;
  }

  RegexId set(const CharSet& set) {
    const auto [known, is_new] = sets_.try_emplace(set, RegexSet::kNothing);
    if (is_new) known->second = regex_of(regexes_, set, json_string_);
    return known->second;
  }

  // `node`, then `rest`.
  Result<Rest> before(const Node& node, Rest rest) {
    if (node.plain) return before_plain(plain(node), rest);
    switch (node.kind) {
      case Kind::Start: return Rest{rest.at_start, RegexSet::kNothing};
      case Kind::End: return Rest{end_of(rest.at_start), end_of(rest.later)};
      case Kind::Look: {
        const auto inside = before(*node.parts[0], {RegexSet::kEverything, RegexSet::kEverything});
        if (!inside) return inside;
        if (!node.negative) {
          return Rest{regexes_.all_of({rest.at_start, inside->at_start}), regexes_.all_of({rest.later, inside->later})};
        }
        return Rest{regexes_.minus(rest.at_start, inside->at_start), regexes_.minus(rest.later, inside->later)};
      }
      case Kind::Sequence:
        for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) {
          const auto next = before(**part, rest);
          if (!next) return next;
          rest = *next;
        }
        return rest;
      case Kind::Choice: {
        std::vector<RegexId> at_start, later;
        for (const auto& part : node.parts) {
          const auto way = before(*part, rest);
          if (!way) return way;
          at_start.push_back(way->at_start);
          later.push_back(way->later);
        }
        return Rest{regexes_.any_of(at_start), regexes_.any_of(later)};
      }
      case Kind::Repeat: return before_repeat(node, rest);
      case Kind::Set: break;
    }
    return rest;
  }

  Rest before_plain(RegexId regex, Rest rest) {
    const RegexId later = regexes_.concat({regex, rest.later});
    if (rest.at_start == rest.later || !regexes_.matches_empty(regex)) return {later, later};
    const RegexId something = regexes_.minus(regex, RegexSet::kEmpty);
    return {regexes_.any_of({rest.at_start, regexes_.concat({something, rest.later})}), later};
  }

  RegexId end_of(RegexId rest) const {
    return ends_hold_ && regexes_.matches_empty(rest) ? RegexSet::kEmpty : RegexSet::kNothing;
  }

  Result<Rest> before_repeat(const Node& node, Rest rest) {
    const Node& inside = *node.parts[0];
    if (node.most == 0) return rest;
    if (node.least == 1 && node.most == 1) return before(inside, rest);
    if (node.least == 0 && node.most == 1) {
      const auto with = before(inside, rest);
      if (!with) return with;
      return Rest{regexes_.any_of({rest.at_start, with->at_start}), regexes_.any_of({rest.later, with->later})};
    }
    if (const auto tempered = before_tempered(node, rest); !tempered || *tempered) {
      if (!tempered) return std::unexpected(tempered.error());
      return **tempered;
    }
    if (has(inside, Kind::Look)) {
      return fail("regular expression: a look-ahead inside of a repetition is not supported");
    }
    return before_anchored(node, rest);
  }

  static bool has(const Node& node, Kind kind) {
    return node.kind == kind || std::ranges::any_of(node.parts, [&](const auto& part) { return has(*part, kind); });
  }

  // A repetition of something with anchors in it. "$" can hold only in the last time that is not empty, "^" only in the
  // first.
  Result<Rest> before_anchored(const Node& node, Rest rest) {
    // What is inside is built three times, so nested repetitions take many steps.
    if (!regexes_.budget().take(100)) return fail("the regular expression is too large");
    const Node& inside = *node.parts[0];
    const Rest nothing_more{RegexSet::kEmpty, RegexSet::kEmpty};
    const auto at_end = before(inside, nothing_more);
    if (!at_end) return at_end;
    const bool held = std::exchange(ends_hold_, false);
    const auto within = before(inside, nothing_more);
    ends_hold_ = held;
    if (!within) return within;
    const auto later = [&](std::uint32_t least, std::uint32_t most) {
      const RegexId through = regexes_.concat({regexes_.repeat(within->later, least, most), rest.later});
      if (most == 0 || !regexes_.matches_empty(rest.later)) return through;
      // At the end of the text, times that are empty may follow if there can be any.
      const std::uint32_t before_last = regexes_.matches_empty(at_end->later) || least == 0 ? 0 : least - 1;
      const RegexId times = regexes_.repeat(within->later, before_last, fewer(most));
      return regexes_.any_of({through, regexes_.concat({times, at_end->later})});
    };
    const RegexId anywhere = later(node.least, node.most);
    if (rest.at_start == rest.later && !has(inside, Kind::Start)) return Rest{anywhere, anywhere};
    if (regexes_.matches_empty(at_end->at_start)) {
      return fail("regular expression: an anchor inside of a repetition that may be empty is not supported");
    }
    const RegexId others = later(node.least == 0 ? 0 : node.least - 1, fewer(node.most));
    const auto first = before(inside, {RegexSet::kNothing, others});
    if (!first) return first;
    const RegexId none = node.least == 0 ? rest.at_start : RegexSet::kNothing;
    return Rest{regexes_.any_of({none, first->at_start}), anywhere};
  }
  static std::uint32_t fewer(std::uint32_t times) { return times == kUnbounded ? kUnbounded : times - 1; }

  // "((?!x)[set])*" at the end of a text: characters of the set, without x anywhere.
  Result<std::optional<Rest>> before_tempered(const Node& node, Rest rest) {
    const Node& inside = *node.parts[0];
    const bool fits = inside.kind == Kind::Sequence && node.most == kUnbounded && inside.parts.size() >= 2 &&
                      inside.parts.back()->kind == Kind::Set && rest == Rest{RegexSet::kEmpty, RegexSet::kEmpty};
    if (!fits) return std::nullopt;
    RegexId regex = regexes_.repeat(set(inside.parts.back()->set), node.least);
    const RegexId anything = regexes_.repeat(any_character(regexes_, json_string_), 0);
    for (std::size_t i = 0; i + 1 < inside.parts.size(); ++i) {
      const Node& look = *inside.parts[i];
      if (look.kind != Kind::Look || !look.negative) return std::nullopt;
      const auto found = before(*look.parts[0], {RegexSet::kEverything, RegexSet::kEverything});
      if (!found) return std::unexpected(found.error());
      // At the end of the text there is no character for it, so x must not match the empty text.
      if (found->at_start != found->later || regexes_.matches_empty(found->later)) return std::nullopt;
      regex = regexes_.minus(regex, regexes_.concat({anything, found->later}));
    }
    return Rest{regex, regex};
  }

  RegexSet& regexes_;
  bool json_string_;
  bool ends_hold_ = true;  // false: "$" does not match
  std::map<CharSet, RegexId> sets_;
};

}  // namespace

Result<RegexId> parse_regex(RegexSet& regexes, std::string_view pattern, const RegexOptions& options) {
  const auto tree = parse_pattern(pattern, options, regexes.budget());
  if (!tree) return std::unexpected(tree.error());
  Builder builder(regexes, options.json_string);
  return options.whole ? builder.whole(**tree) : builder.anywhere(**tree);
}

RegexId character_class(RegexSet& regexes, char32_t first, char32_t last, bool json_string) {
  return regex_of(regexes, CharSet(first, last), json_string);
}

RegexId any_character(RegexSet& regexes, bool json_string) { return regex_of(regexes, CharSet::all(), json_string); }

RegexId spelled(RegexSet& regexes, std::string_view text, bool json_string) {
  if (!json_string) return regexes.text(text);
  std::vector<RegexId> parts;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Kind::valid) return RegexSet::kNothing;
    const char32_t character = utf8_decode(text.substr(0, step.length));
    parts.push_back(character_class(regexes, character, character, true));
    text.remove_prefix(step.length);
  }
  return regexes.concat(parts);
}

}  // namespace quire::grammar

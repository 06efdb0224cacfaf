#include "quire/cli/thinking.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

// The answer with the reasoning in brackets.
std::string marked(const std::vector<std::string>& pieces, bool thinking = false) {
  ThinkingText text(thinking);
  std::string out;
  bool open = false;
  const auto sink = [&](std::string_view piece, bool thought) {
    if (thought != open) out += thought ? "[" : "]";
    open = thought;
    out += piece;
  };
  for (const std::string& piece : pieces) text.push(piece, sink);
  text.flush(sink);
  return open ? out + "]" : out;
}

TEST(Thinking, TheReasoningIsFoundHoweverTheTextIsCut) {
  const std::string answer = "<think>\nfirst < second\n</think>\n\nThe </think answer <thin";
  const std::string whole = "[<think>\nfirst < second\n</think>]\n\nThe </think answer <thin";
  EXPECT_EQ(marked({answer}), whole);
  for (std::size_t cut = 0; cut <= answer.size(); ++cut) {
    EXPECT_EQ(marked({answer.substr(0, cut), answer.substr(cut)}), whole) << cut;
  }
  std::vector<std::string> letters;
  for (const char c : answer) letters.emplace_back(1, c);
  EXPECT_EQ(marked(letters), whole);
}

TEST(Thinking, ThePromptMayHaveOpenedIt) {
  EXPECT_EQ(marked({"so ", "then</th", "ink> Yes"}, true), "[so then</think>] Yes");
  EXPECT_EQ(marked({"cut off"}, true), "[cut off]");
}

TEST(Thinking, TextWithoutItStaysAsItIs) {
  EXPECT_EQ(marked({"a < b", " <t", "able>"}), "a < b <table>");
  EXPECT_EQ(marked({}), "");
}

}  // namespace
}  // namespace quire::cli

#include "quire/server/completion_format.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <gtest/gtest.h>

namespace quire::server {
namespace {

namespace json = boost::json;

TEST(UsageSum, SaysHowManyGuessesWereRightAndHowManyWrong) {
  UsageSum usage;
  usage.add({.prompt_tokens = 10, .completion_tokens = 9, .drafted_tokens = 11, .accepted_tokens = 4}, "complete");
  usage.add({.prompt_tokens = 10, .completion_tokens = 8, .drafted_tokens = 6, .accepted_tokens = 1}, "complete");
  EXPECT_EQ(usage.rejected_tokens(), 12u);
  const json::value told = json::parse(to_json(usage));
  EXPECT_EQ(told.at("completion_tokens_details"),
            json::parse(R"({"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 12})"));
  EXPECT_EQ(told.at("completion_tokens"), 17);
}

}  // namespace
}  // namespace quire::server

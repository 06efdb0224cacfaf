// On the three demo models: what a session computes does not depend on how it got there.
#include "quire/engine/session.h"

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::engine {
namespace {

std::string demo(const std::string& kind) { return QUIRE_SOURCE_DIR "/models/quire-demo-" + kind + "-q8_0.gguf"; }

Result<std::unique_ptr<Session>> open(const std::string& path, SessionOptions options) {
  auto model = model::Model::load(path);
  if (!model) return std::unexpected(model.error());
  if (options.threads == 0) options.threads = 1;
  return Session::create(std::move(*model), options);
}

std::string refusal(const std::string& path, SessionOptions options) {
  const auto session = open(path, options);
  return session ? std::string() : session.error().message;
}

std::vector<Token> some_tokens(std::size_t count, Token first = 20) {
  std::vector<Token> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<Token>(first + (i * i * 7 + i * 13) % 600);
  return tokens;
}

std::vector<float> copy(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

testing::AssertionResult same_bits(const std::vector<float>& a, std::span<const float> b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " and " << b.size() << " logits";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return testing::AssertionFailure() << a[i] << " != " << b[i];
  }
  return testing::AssertionSuccess();
}

class DemoSession : public testing::TestWithParam<std::string> {};

TEST_P(DemoSession, ReadsInChunksOfAnySizeToTheSameBits) {
  const auto tokens = some_tokens(100);
  auto whole = *open(demo(GetParam()), {.context = 256});
  ASSERT_TRUE(whole->read(tokens));
  for (const std::uint32_t chunk : {1u, 7u, 16u, 64u}) {
    auto parts = *open(demo(GetParam()), {.context = 256, .chunk = chunk, .rewinds = chunk % 2 == 1});
    ASSERT_TRUE(parts->read(tokens));
    EXPECT_TRUE(same_bits(copy(whole->logits()), parts->logits())) << chunk;
  }
  auto written = *open(demo(GetParam()), {.context = 256});
  ASSERT_TRUE(written->read(std::span(tokens).first(90)));
  for (std::size_t i = 90; i < tokens.size(); ++i) ASSERT_TRUE(written->write(tokens[i]));
  EXPECT_TRUE(same_bits(copy(whole->logits()), written->logits()));
  EXPECT_EQ(written->length(), 100u);
}

TEST_P(DemoSession, ReadingOnComputesOnlyWhatIsNew) {
  const auto tokens = some_tokens(200);
  auto session = *open(demo(GetParam()), {.context = 256, .rewinds = true});
  ASSERT_TRUE(session->read(std::span(tokens).first(150)));
  const auto reading = session->read(tokens);
  ASSERT_TRUE(reading) << reading.error().message;
  EXPECT_EQ(reading->reused, 150u);
  EXPECT_EQ(reading->computed, 50u);
  auto fresh = *open(demo(GetParam()), {.context = 256});
  ASSERT_TRUE(fresh->read(tokens));
  EXPECT_TRUE(same_bits(copy(fresh->logits()), session->logits()));
}

TEST_P(DemoSession, ADifferentEndGoesBackAsFarAsItMust) {
  auto one = some_tokens(200);
  auto other = one;
  for (std::size_t i = 170; i < other.size(); ++i) other[i] = 333;
  auto session = *open(demo(GetParam()), {.context = 256, .rewinds = true});
  ASSERT_TRUE(session->read(std::span(one).first(165)));  // a checkpoint is kept at 160
  for (std::size_t i = 165; i < one.size(); ++i) ASSERT_TRUE(session->write(one[i]));
  const auto reading = session->read(other);
  ASSERT_TRUE(reading) << reading.error().message;
  EXPECT_EQ(reading->reused, GetParam() == "llama" ? 170u : 160u);
  EXPECT_EQ(reading->reused + reading->computed, 200u);
  auto fresh = *open(demo(GetParam()), {.context = 256});
  ASSERT_TRUE(fresh->read(other));
  EXPECT_TRUE(same_bits(copy(fresh->logits()), session->logits()));
  EXPECT_TRUE(session->pool().check_integrity());
}

TEST_P(DemoSession, TheSameTextAgainComputesItsEndForItsLogits) {
  const auto tokens = some_tokens(64);
  auto session = *open(demo(GetParam()), {.context = 128, .rewinds = true});
  ASSERT_TRUE(session->read(tokens));
  const auto first = copy(session->logits());
  const auto again = session->read(tokens);
  ASSERT_TRUE(again);
  EXPECT_GT(again->reused, 0u);
  EXPECT_GT(again->computed, 0u);
  EXPECT_TRUE(same_bits(first, session->logits()));
}

TEST_P(DemoSession, AfterAResetTheBeginningIsFoundInThePool) {
  const auto tokens = some_tokens(100);
  auto session = *open(demo(GetParam()), {.context = 256, .rewinds = true});
  ASSERT_TRUE(session->read(tokens));
  const auto first = copy(session->logits());
  session->reset();
  EXPECT_EQ(session->length(), 0u);
  const auto again = session->read(tokens);
  ASSERT_TRUE(again);
  EXPECT_GE(again->reused, 96u);
  EXPECT_TRUE(same_bits(first, session->logits()));
}

TEST_P(DemoSession, TheWholeContextCanBeUsedAndNotATokenMore) {
  auto session = *open(demo(GetParam()), {.context = 40, .rewinds = true});
  const auto tokens = some_tokens(41);
  const auto refused = session->read(tokens);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "41 tokens do not fit the context of 40");
  ASSERT_TRUE(session->read(std::span(tokens).first(39)));
  EXPECT_TRUE(session->write(30));
  const auto full = session->write(31);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().message, "the context of 40 tokens is full");
  EXPECT_EQ(session->length(), 40u);
  EXPECT_TRUE(session->pool().check_integrity());
}

TEST_P(DemoSession, AReadingCanBeStoppedAndTakenUpAgain) {
  const auto tokens = some_tokens(100);
  auto session = *open(demo(GetParam()), {.context = 128, .chunk = 16, .rewinds = true});
  std::vector<std::uint32_t> seen;
  const auto stopped = session->read(tokens, [&](std::uint32_t done, std::uint32_t total) {
    EXPECT_EQ(total, 100u);
    seen.push_back(done);
    return done < 48;
  });
  ASSERT_TRUE(stopped);
  EXPECT_FALSE(stopped->complete);
  EXPECT_TRUE(session->logits().empty());
  EXPECT_THAT(seen, testing::ElementsAre(0, 16, 32, 48));
  const auto rest = session->read(tokens);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->reused, 48u);
  auto fresh = *open(demo(GetParam()), {.context = 128});
  ASSERT_TRUE(fresh->read(tokens));
  EXPECT_TRUE(same_bits(copy(fresh->logits()), session->logits()));
}

TEST_P(DemoSession, AllLogitsComeInOrderAndTheLastIsTheLast) {
  const auto tokens = some_tokens(70);
  auto session = *open(demo(GetParam()), {.context = 128, .chunk = 32, .max_logits = 32});
  std::vector<std::vector<float>> rows;
  ASSERT_TRUE(session->read_all(tokens, [&](const Rows& logits) -> Result<void> {
    for (std::uint32_t i = 0; i < logits.rows; ++i) rows.push_back(copy(std::span(logits.row(i), logits.cols)));
    return {};
  }));
  ASSERT_EQ(rows.size(), tokens.size());
  auto other = *open(demo(GetParam()), {.context = 128});
  for (const std::size_t count : {1, 33, 70}) {
    ASSERT_TRUE(other->read(std::span(tokens).first(count)));
    EXPECT_TRUE(same_bits(rows[count - 1], other->logits())) << count;
  }
}

TEST_P(DemoSession, SizesThatDoNotGoTogetherAreRefused) {
  const std::string path = demo(GetParam());
  EXPECT_THAT(refusal(path, {.context = 2'000'000}), testing::HasSubstr("longer than the"));
  EXPECT_THAT(refusal(path, {.memory = 1000}), testing::HasSubstr("too small for one sequence"));
  EXPECT_THAT(refusal(path, {.memory = std::uint64_t{1} << 60}),
              testing::HasSubstr("more memory than this machine has"));
  if (GetParam() != "mamba2") {
    EXPECT_THAT(refusal(path, {.context = 2048, .memory = 1 << 20}),
                testing::HasSubstr("too small for one sequence of 2048 tokens"));
  }
}

INSTANTIATE_TEST_SUITE_P(Demo, DemoSession, testing::Values("llama", "mamba2", "hybrid"),
                         [](const auto& kind) { return kind.param; });

TEST(Session, TheContextIsTheModelsOrWhatTheMemoryHolds) {
  auto whole = *open(demo("llama"), {});
  EXPECT_EQ(whole->context(), 2048u);
  auto half = *open(demo("llama"), {.memory = whole->pool().stats().arena_bytes / 2});
  EXPECT_EQ(half->context(), 1024u);
  EXPECT_LE(half->pool().stats().arena_bytes, whole->pool().stats().arena_bytes / 2);
  ASSERT_TRUE(half->read(some_tokens(1024)));
}

TEST(Session, WiderKeysAndValuesTakeTwiceTheMemory) {
  auto narrow = *open(demo("llama"), {.context = 512});
  auto wide = *open(demo("llama"), {.context = 512, .kv_type = ElementType::F32});
  EXPECT_EQ(wide->pool().stats().arena_bytes, 2 * narrow->pool().stats().arena_bytes);
}

TEST(Session, NothingToReadOrToContinueIsAnError) {
  auto session = *open(demo("llama"), {.context = 64});
  EXPECT_FALSE(session->read({}));
  EXPECT_FALSE(session->write(5));
  const Token none[] = {1'000'000};
  EXPECT_FALSE(session->read(none));
}

// Models with sliding windows: their pages are given back, and still a conversation can go on.
TEST(Session, AModelWithWindowsGoesOnAndGoesBackToTheSameBits) {
  const std::string path = QUIRE_SOURCE_DIR "/testdata/golden/gemma3/model.gguf";
  auto session = open(path, {.context = 128, .chunk = 16, .rewinds = true});
  ASSERT_TRUE(session) << session.error().message;
  const auto tokens = some_tokens(120);
  auto other = std::vector<Token>(tokens.begin(), tokens.begin() + 100);
  other.back() = 77;
  ASSERT_TRUE((*session)->read(tokens));
  const auto reading = (*session)->read(other);
  ASSERT_TRUE(reading) << reading.error().message;
  auto fresh = *open(path, {.context = 128});
  ASSERT_TRUE(fresh->read(other));
  EXPECT_TRUE(same_bits(copy(fresh->logits()), (*session)->logits()));
  EXPECT_TRUE((*session)->pool().check_integrity());
}

}  // namespace
}  // namespace quire::engine

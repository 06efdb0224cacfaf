// The engine with prompts that share a prefix.
#include <algorithm>

#include <gtest/gtest.h>

#include "quire/engine/engine.h"
#include "quire/engine/engine_testing.h"

namespace quire::engine::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(Models, EngineOnEachKind, ::testing::ValuesIn(kAllKinds), kind_name);

TEST_P(EngineOnEachKind, APromptThatWasComputedBeforeIsReused) {
  Fixture fixture({.kind = GetParam()});
  const Request request = greedy(some_tokens(100), 5);
  fixture.submit(request);
  fixture.run();
  const std::uint64_t cold = fixture.model->tokens_computed;
  const auto heard = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
  EXPECT_GE(heard->usage.hit.tokens, 96u);
  EXPECT_LE(fixture.model->tokens_computed - cold, 4u + 4u);
}

TEST_P(EngineOnEachKind, TheSecondOfTwoEqualPromptsWaitsForTheFirstOnesPages) {
  Fixture fixture({.kind = GetParam(), .engine = {.step_tokens = 16, .check_integrity = true}});
  Request request = seeded(some_tokens(100), 4, 1);
  const auto first = fixture.submit(request);
  request.sampling.seed = 2;
  const auto second = fixture.submit(request);
  Request other = greedy(some_tokens(20, 9), 4);
  const auto unrelated = fixture.submit(other);
  fixture.run();
  EXPECT_EQ(first->choices[0].answer(), fixture.right(seeded(some_tokens(100), 4, 1)));
  EXPECT_EQ(second->choices[0].answer(), fixture.right(seeded(some_tokens(100), 4, 2)));
  EXPECT_GE(second->usage.hit.tokens, 96u);
  EXPECT_EQ(fixture.engine->stats().prefix_waits, 1u);
  EXPECT_LE(fixture.model->tokens_computed, 100u + 4 + 20 + 3 * 3);
}

TEST_P(EngineOnEachKind, PromptsWithACommonPrefixShareItInTheSameBatch) {
  Fixture fixture({.kind = GetParam(), .engine = {.step_tokens = 16, .check_integrity = true}});
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> heard;
  for (std::uint64_t i = 0; i < 6; ++i) {
    std::vector<Token> prompt = some_tokens(80);
    for (const Token token : some_tokens(30, 100 + i)) prompt.push_back(token);
    requests.push_back(greedy(prompt, 3));
    heard.push_back(fixture.submit(requests.back()));
  }
  fixture.run();
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(heard[i]->choices[0].answer(), fixture.right(requests[i]));
    EXPECT_GE(heard[i]->usage.hit.tokens, i == 0 ? 0u : 80u) << i;
  }
}

TEST_P(EngineOnEachKind, ReuseCanBeTurnedOffAndOtherNamespacesAreNotReused) {
  Fixture fixture({.kind = GetParam()});
  Request request = greedy(some_tokens(100), 3);
  fixture.submit(request);
  fixture.run();
  request.reuse = false;
  const auto without = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(without->usage.hit.tokens, 0u);
  EXPECT_EQ(without->usage.hit.end, HitEnd::Disabled);
  request.reuse = true;
  request.name_space = 77;
  const auto stranger = fixture.submit(request);
  fixture.run();
  EXPECT_EQ(stranger->usage.hit.tokens, 0u);
  EXPECT_EQ(stranger->usage.hit.end, HitEnd::OtherNamespace);
  EXPECT_EQ(stranger->choices[0].answer(), fixture.right(request));
}

TEST_P(EngineOnEachKind, AnAnswerIsTheSameWithTheCacheColdWarmOffAndHalfEvicted) {
  const Request request = seeded(some_tokens(90), 12, 4);
  for (const bool cache : {true, false}) {
    Fixture fixture({.kind = GetParam(), .budget = 32 << 10, .prefix_cache = cache});
    for (int round = 0; round < 3; ++round) {
      const auto heard = fixture.submit(request);
      fixture.run();
      EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
      // Other requests evict part of it.
      for (std::uint64_t i = 0; i < 4; ++i) {
        fixture.submit(greedy(some_tokens(100, 50 + 10 * static_cast<std::uint64_t>(round) + i), 2));
        fixture.run();
      }
    }
    EXPECT_EQ(fixture.model->problem, "");
  }
}

// Wherever a second prompt diverges from the first, the number of reused tokens grows with the number of shared ones.
TEST_P(EngineOnEachKind, ASweepOverShiftsShowsNoCliffInWhatIsReused) {
  constexpr std::uint32_t kLength = 200;
  for (const std::uint32_t tail : {0u, 40u}) {
    std::vector<std::uint32_t> lost;
    for (std::uint32_t shift = 0; shift < 64; ++shift) {
      Fixture fixture({.kind = GetParam()});
      std::vector<Token> first = some_tokens(kLength);
      std::vector<Token> second(first.begin(), first.end() - shift);  // shares all but the last `shift` tokens
      for (const Token token : some_tokens(shift + tail, 7)) second.push_back((token + 1) % 32);
      fixture.submit(greedy(first, 1));
      fixture.run();
      const Request request = greedy(second, 2);
      const auto heard = fixture.submit(request);
      fixture.run();
      EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
      const std::uint32_t shared =
          std::min<std::uint32_t>(kLength - shift, static_cast<std::uint32_t>(second.size()) - 1);
      ASSERT_LE(heard->usage.hit.tokens, shared + 1);  // the next token may be equal by chance
      lost.push_back(shared - std::min(shared, heard->usage.hit.tokens));
    }
    for (std::uint32_t shift = 0; shift < 64; ++shift) {
      // Attention to all tokens loses nothing, at any boundary. Recurrent models lose at most a block more than twice
      // the shift.
      const bool recurrent = std::ranges::find(kKindsWithStates, GetParam()) != std::end(kKindsWithStates);
      const std::uint32_t allowed = GetParam() == Kind::Windowed ? 8 : recurrent ? shift + 8 : 0;
      EXPECT_LE(lost[shift], allowed) << "shift " << shift << ", tail " << tail;
    }
  }
}

// What requests find whose prompts share random parts with earlier ones, one after the other.
std::vector<std::uint32_t> found_with_blocks_of(std::uint32_t block_size, Kind kind) {
  Fixture fixture({.kind = kind, .block_size = block_size, .checkpoint_unit = 8});
  std::vector<std::vector<Token>> prompts{some_tokens(120)};
  std::vector<std::uint32_t> found;
  for (std::uint64_t i = 0; i < 40; ++i) {
    const std::vector<Token>& earlier = prompts[scramble(i) % prompts.size()];
    const auto shared = static_cast<std::ptrdiff_t>(scramble(i + 100) % (earlier.size() + 1));
    std::vector<Token> prompt(earlier.begin(), earlier.begin() + shared);
    const auto more = static_cast<std::uint32_t>(1 + scramble(i + 200) % 100);
    for (const Token token : some_tokens(more, 1000 + i)) prompt.push_back(token);
    prompt.resize(std::min<std::size_t>(prompt.size(), 230));
    const auto heard = fixture.submit(greedy(prompt, 5));
    fixture.run();
    EXPECT_EQ(heard->choices[0].answer(), fixture.right(greedy(prompt, 5)));
    found.push_back(heard->usage.hit.tokens);
    prompts.push_back(std::move(prompt));
  }
  return found;
}

// Checkpoints lie at the same positions with pages of any size, so that later prompts find the same.
TEST(EngineBlocks, ARecurrentModelFindsNoLessWithLargerBlocks) {
  for (const Kind kind : kKindsWithStates) {
    const std::vector<std::uint32_t> small = found_with_blocks_of(8, kind);
    EXPECT_GT(std::ranges::count_if(small, [](std::uint32_t tokens) { return tokens % 64 != 0; }), 20);
    for (const std::uint32_t block_size : {16u, 32u, 64u}) {
      const std::vector<std::uint32_t> large = found_with_blocks_of(block_size, kind);
      for (std::size_t i = 0; i < small.size(); ++i) {
        EXPECT_GE(large[i], small[i]) << name(kind) << ", blocks of " << block_size << ", request " << i;
      }
    }
  }
}

// Two prompts that part after 45 tokens come together. Both answers must be right. Returns what the second one found.
std::uint32_t hit_of_the_second(Fixture& fixture) {
  std::vector<Token> other = some_tokens(45);
  for (const Token token : some_tokens(30, 7)) other.push_back(token);
  const auto first = fixture.submit(greedy(some_tokens(100), 4));
  const auto second = fixture.submit(greedy(other, 4));
  fixture.run();
  EXPECT_EQ(first->choices[0].answer(), fixture.right(greedy(some_tokens(100), 4)));
  EXPECT_EQ(second->choices[0].answer(), fixture.right(greedy(other, 4)));
  return second->usage.hit.tokens;
}

// The second waits until the first has computed what they share, and the first keeps its state there, inside a block.
TEST(EngineBlocks, PromptsInTheSameBatchShareWhatTheyHaveInCommonToTheUnit) {
  for (const std::uint32_t block_size : {8u, 64u}) {
    Fixture fixture({.kind = Kind::Hybrid,
                     .block_size = block_size,
                     .checkpoint_unit = 8,
                     .engine = {.step_tokens = 16, .check_integrity = true}});
    EXPECT_EQ(hit_of_the_second(fixture), 40u) << "blocks of " << block_size;
  }
}

// Without recurrent layers the second waits for the end of the block, and shares what they have in common to the token.
TEST(EngineBlocks, PromptsInTheSameBatchShareTheBlockInWhichTheyPart) {
  for (const Kind kind : kKindsWithoutStates) {
    Fixture fixture(
        {.kind = kind, .block_size = 64, .checkpoint_unit = 8, .engine = {.step_tokens = 16, .check_integrity = true}});
    EXPECT_GE(hit_of_the_second(fixture), 45u) << name(kind);
  }
}

// A conversation goes on: all that was computed of it is reused, though it does not fill a block. Only a last page with
// fewer tokens than a unit is not kept.
TEST(EngineBlocks, AModelWithoutRecurrentLayersContinuesAConversationToTheToken) {
  for (const Kind kind : kKindsWithoutStates) {
    Fixture fixture({.kind = kind, .block_size = 64, .checkpoint_unit = 8});
    std::vector<Token> conversation = some_tokens(40);
    std::uint32_t computed = 0;
    for (std::uint64_t turn = 0; turn < 6; ++turn) {
      const Request request = greedy(conversation, 5);
      const auto heard = fixture.submit(request);
      fixture.run();
      EXPECT_EQ(heard->choices[0].answer(), fixture.right(request));
      const std::uint32_t kept = computed % 64 < 8 ? computed / 64 * 64 : computed;
      EXPECT_EQ(heard->usage.hit.tokens, kept) << name(kind) << ", turn " << turn;
      for (const Token token : heard->choices[0].answer().tokens) conversation.push_back(token);
      computed = static_cast<std::uint32_t>(conversation.size()) - 1;  // the last token was not computed
      for (const Token token : some_tokens(20, 50 + turn)) conversation.push_back(token);
    }
  }
}

}  // namespace
}  // namespace quire::engine::testing

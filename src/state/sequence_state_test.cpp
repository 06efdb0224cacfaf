// Tests of SequenceState and SequenceSlot.
#include "quire/state/sequence_state.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "quire/state/behaviour_testing.h"
#include "quire/state/counting_device_testing.h"

namespace quire {
namespace {

using testing::all_zero;
using testing::bytes_at;
using testing::Code;
using testing::done;
using testing::pattern;
using testing::refused;
using testing::refused_with;

constexpr StateShape kShape{.num_layers = 2, .conv_bytes = 100, .ssm_bytes = 200, .capacity = 10};
constexpr std::size_t kBytes = 2 * (128 + 256);

SequenceState make(Device& device, const StateShape& shape = kShape) {
  return std::move(*SequenceState::create(device, shape));
}
void fill(const SequenceState& state, unsigned salt) {
  const auto bytes = pattern(state.shape().bytes(), salt);
  std::copy(bytes.begin(), bytes.end(), state.data());
}
std::vector<std::byte> content(const SequenceState& state) { return bytes_at(state.data(), state.shape().bytes()); }

TEST(SequenceState, StartsZeroedAtPositionZero) {
  CountingDevice device;
  const SequenceState state = make(device);
  EXPECT_EQ(kShape.bytes(), kBytes);
  EXPECT_EQ(device.counts().live_bytes, kBytes);
  EXPECT_EQ(state.position(), 0u);
  EXPECT_EQ(state.capacity(), 10u);
  EXPECT_TRUE(all_zero(content(state)));
}

TEST(SequenceState, AdvanceMovesThePosition) {
  HostDevice device;
  SequenceState state = make(device);
  ASSERT_TRUE(done(state.advance(1)));
  ASSERT_TRUE(done(state.advance(4)));
  EXPECT_EQ(state.position(), 5u);
  EXPECT_EQ(state.view().position, 5u);
}

TEST(SequenceState, TheCapacityIsHonoured) {
  HostDevice device;
  SequenceState state = make(device);
  ASSERT_TRUE(done(state.advance(10)));
  EXPECT_TRUE(refused_with(state.advance(1), Code::TooLong, 11, 10));
  EXPECT_EQ(state.position(), 10u);
  ASSERT_TRUE(done(state.advance(0)));

  StateShape unlimited = kShape;
  unlimited.capacity = 0;
  SequenceState other = make(device, unlimited);
  ASSERT_TRUE(done(other.advance(UINT32_MAX)));
  EXPECT_TRUE(refused(other.advance(1), Code::TooLong));  // never wraps around
  EXPECT_EQ(other.position(), UINT32_MAX);
}

TEST(SequenceState, ResetZeroesBytesAndPosition) {
  HostDevice device;
  SequenceState state = make(device);
  fill(state, 1);
  ASSERT_TRUE(done(state.advance(3)));
  ASSERT_TRUE(done(state.reset()));
  EXPECT_EQ(state.position(), 0u);
  EXPECT_TRUE(all_zero(content(state)));
}

TEST(SequenceState, ARefusedResetChangesNothing) {
  CountingDevice device;
  SequenceState state = make(device);
  fill(state, 1);
  ASSERT_TRUE(done(state.advance(3)));
  device.fail_after(0);
  EXPECT_TRUE(refused(state.reset(), Code::DeviceFailure));
  EXPECT_EQ(state.position(), 3u);
  EXPECT_EQ(content(state), pattern(kBytes, 1));
}

TEST(SequenceState, SnapshotAndRestoreMoveEverything) {
  HostDevice device;
  SequenceState state = make(device), other = make(device);
  fill(state, 1);
  ASSERT_TRUE(done(state.advance(7)));
  const auto snapshot = state.snapshot();
  ASSERT_TRUE(done(snapshot));
  EXPECT_EQ(snapshot->position, 7u);
  EXPECT_EQ(snapshot->bytes, pattern(kBytes, 1));

  fill(state, 2);  // a snapshot is a copy
  ASSERT_TRUE(done(state.advance(1)));
  ASSERT_TRUE(done(other.restore(*snapshot)));
  EXPECT_EQ(other.position(), 7u);
  EXPECT_EQ(content(other), pattern(kBytes, 1));
  ASSERT_TRUE(done(state.restore(*snapshot)));
  EXPECT_EQ(state.position(), 7u);
  EXPECT_EQ(content(state), pattern(kBytes, 1));
}

TEST(SequenceState, ASnapshotOfAnotherShapeIsRefusedAndChangesNothing) {
  HostDevice device;
  SequenceState state = make(device);
  fill(state, 1);
  ASSERT_TRUE(done(state.advance(2)));
  for (StateShape shape :
       {StateShape{.num_layers = 1, .conv_bytes = 100, .ssm_bytes = 200},
        StateShape{.num_layers = 2, .conv_bytes = 99, .ssm_bytes = 200},  // padded to the same size
        StateShape{.num_layers = 2, .conv_bytes = 100, .ssm_bytes = 201},
        StateShape{.num_layers = 2, .conv_bytes = 100, .ssm_bytes = 200, .type = ElementType::F16}}) {
    SequenceState other = make(device, shape);
    const auto snapshot = other.snapshot();
    EXPECT_TRUE(refused(state.restore(*snapshot), Code::ShapeMismatch));
    EXPECT_TRUE(refused(state.copy_from(other), Code::ShapeMismatch));
  }
  StateSnapshot cut = *state.snapshot();
  cut.bytes.pop_back();
  EXPECT_TRUE(refused(state.restore(cut), Code::ShapeMismatch));
  EXPECT_EQ(state.position(), 2u);
  EXPECT_EQ(content(state), pattern(kBytes, 1));
}

TEST(SequenceState, ASnapshotFromBeyondTheCapacityIsRefused) {
  HostDevice device;
  SequenceState state = make(device);
  StateShape longer = kShape;
  longer.capacity = 20;
  SequenceState other = make(device, longer);
  ASSERT_TRUE(done(other.advance(11)));
  EXPECT_TRUE(refused_with(state.restore(*other.snapshot()), Code::TooLong, 11, 10));
  EXPECT_TRUE(refused_with(state.copy_from(other), Code::TooLong, 11, 10));
  EXPECT_EQ(state.position(), 0u);
}

TEST(SequenceState, CopyingIsOneCopyOfEverything) {
  CountingDevice device;
  SequenceState from = make(device), to = make(device);
  fill(from, 1);
  ASSERT_TRUE(done(from.advance(6)));
  device.reset_counts();
  ASSERT_TRUE(done(to.copy_from(from)));
  device.settle();
  EXPECT_EQ(device.counts().copies, 1u);
  EXPECT_EQ(device.counts().copied_bytes, kBytes);
  EXPECT_EQ(to.position(), 6u);
  EXPECT_EQ(content(to), pattern(kBytes, 1));
  ASSERT_TRUE(done(to.advance(1)));
  EXPECT_EQ(from.position(), 6u);
}

TEST(SequenceState, ConvWindowAndStateOfEachLayerLieApartInOneRun) {
  HostDevice device;
  const SequenceState state = make(device);
  const StateView view = state.view();
  EXPECT_EQ(view.num_layers, 2u);
  EXPECT_EQ(view.conv(0), state.data());
  EXPECT_EQ(view.ssm(0), state.data() + 128);
  EXPECT_EQ(view.conv(1), state.data() + 384);
  EXPECT_EQ(view.ssm(1), state.data() + 384 + 128);
}

TEST(SequenceState, AStateInSomebodyElsesMemoryDoesNotOwnIt) {
  CountingDevice device;
  auto memory = DeviceBuffer::create(device, kBytes);
  {
    SequenceState state(device, kShape, memory->data());
    fill(state, 1);
  }
  EXPECT_EQ(device.counts().live_bytes, kBytes);
  EXPECT_EQ(bytes_at(memory->data(), kBytes), pattern(kBytes, 1));
}

TEST(SequenceState, AnImpossibleShapeIsRefused) {
  CountingDevice device;
  EXPECT_TRUE(refused(SequenceState::create(device, StateShape{}), Code::InvalidArgument));
  EXPECT_EQ(device.counts().allocations, 0u);
}

TEST(SequenceSlot, AStepAdvancesTheStateAndTheVisiblePositionTogether) {
  HostDevice device;
  SequenceSlot slot(make(device));
  EXPECT_EQ(slot.position(), 0u);
  for (std::uint32_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(done(slot.step()));
    EXPECT_EQ(slot.position(), i);
    EXPECT_EQ(slot.state().position(), i);
    EXPECT_EQ(slot.state().view().position, i);
  }
  ASSERT_TRUE(done(slot.step(4)));
  EXPECT_EQ(slot.position(), 7u);
  EXPECT_EQ(slot.state().position(), 7u);
}

TEST(SequenceSlot, AStepBeyondTheCapacityMovesNeither) {
  HostDevice device;
  SequenceSlot slot(make(device));
  ASSERT_TRUE(done(slot.step(9)));
  EXPECT_TRUE(refused_with(slot.step(2), Code::TooLong, 11, 10));
  EXPECT_EQ(slot.position(), 9u);
  EXPECT_EQ(slot.state().position(), 9u);
}

TEST(SequenceSlot, AResetPutsStatePositionAndRequestAtZero) {
  HostDevice device;
  SequenceSlot slot(make(device));
  EXPECT_EQ(slot.request(), 0u);
  slot.bind(42);
  fill(slot.state(), 1);
  ASSERT_TRUE(done(slot.step(5)));
  EXPECT_EQ(slot.request(), 42u);
  ASSERT_TRUE(done(slot.reset()));
  EXPECT_EQ(slot.request(), 0u);
  EXPECT_EQ(slot.position(), 0u);
  EXPECT_EQ(slot.state().position(), 0u);
  EXPECT_TRUE(all_zero(content(slot.state())));
}

TEST(SequenceSlot, RestoringTheStateMovesTheVisiblePositionToo) {
  HostDevice device;
  SequenceSlot slot(make(device));
  ASSERT_TRUE(done(slot.step(5)));
  const auto snapshot = slot.state().snapshot();
  ASSERT_TRUE(done(slot.step(3)));
  ASSERT_TRUE(done(slot.state().restore(*snapshot)));
  EXPECT_EQ(slot.position(), 5u);
}

TEST(SequenceSlot, ARefusedResetKeepsRequestAndPosition) {
  CountingDevice device;
  SequenceSlot slot(make(device));
  slot.bind(42);
  ASSERT_TRUE(done(slot.step(5)));
  device.fail_after(0);
  EXPECT_TRUE(refused(slot.reset(), Code::DeviceFailure));
  EXPECT_EQ(slot.request(), 42u);
  EXPECT_EQ(slot.position(), 5u);
}

}  // namespace
}  // namespace quire

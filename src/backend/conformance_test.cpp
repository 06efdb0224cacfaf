// What a backend promises for steps: order, what the host can see and when, errors; and how backends are created.
#include <cstring>

#include <gmock/gmock.h>

#include "quire/backend/conformance_batches_testing.h"
#include "quire/state/counting_device_testing.h"

namespace quire::conformance {
namespace {

TEST_P(Conformance, SaysWhatItIs) {
  const BackendFacts facts = backend().facts();
  EXPECT_FALSE(facts.device.empty());
  EXPECT_FALSE(facts.variant.empty());
  const std::string kind = facts.device.substr(0, facts.device.find(':'));  // "cuda:0" is a cuda
  EXPECT_TRUE(GetParam().name.starts_with(kind)) << facts.device;
}

TEST_P(Conformance, StoresHalvesAndRefusesIntegers) {
  EXPECT_TRUE(backend().stores(ElementType::F16)) << "the type of caches where nobody says another";
  EXPECT_FALSE(backend().stores(ElementType::I8));
}

TEST_P(Conformance, AnEmptyStepIsAStep) {
  step(Batch(), [] {});
  step(Batch(), [] {});
}

TEST_P(Conformance, OperationsAreDoneInTheOrderOfTheCalls) {
  const Matrix x = random_matrix(7, 30, 1), y = random_matrix(7, 30, 2), ones(1, 30, 1.0f);
  const Tensor a = tensors().put(x), b = tensors().put(y), by = tensors().put(ones);
  step(rows_alone(7), [&] {
    backend().add(a, b, 1);  // x + y
    backend().add(b, a, 2);  // 2 x + 3 y
    backend().rms_norm(a, b, by, 0);
    backend().cap_and_scale(b, 0, 0.5f);
  });
  Matrix sum(7, 30), half(7, 30);
  for (std::size_t i = 0; i < sum.values.size(); ++i) {
    sum.values[i] = 2 * x.values[i] + 3 * y.values[i];
    half.values[i] = sum.values[i] / 2;
  }
  expect_close(tensors().get(a), reference::rms_norm(sum, ones, 0), 10 * tolerance().floats);
  expect_close(tensors().get(b), reference::add(half, Matrix(7, 30), 0), 10 * tolerance().floats);
}

// The device uses the same stream, also in a step of single tokens, whose operations a backend may collect.
TEST_P(Conformance, CopiesOfTheDeviceAreInOrderWithOperations) {
  const Matrix x = random_matrix(7, 30, 1), y = random_matrix(7, 30, 2);
  const std::size_t bytes = x.values.size() * sizeof(float);
  for (const Batch& batch : {rows_alone(7), make_batch(std::vector<Part>(7))}) {
    const Tensor a = tensors().put(x), b = tensors().put(y), between = tensors().room(7, 30);
    step(batch, [&] {
      backend().cap_and_scale(a, 0, 2);
      must(backend().device().copy(between.data, a.data, bytes));
      must(backend().device().upload(b.data, x.values.data(), bytes));
      backend().add(a, b, 1);
      must(backend().device().zero(b.data, bytes));
    });
    const Matrix copied = tensors().get(between), added = tensors().get(a);
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      EXPECT_EQ(copied.values[i], 2 * x.values[i]);
      EXPECT_EQ(added.values[i], 3 * x.values[i]);
    }
    EXPECT_EQ(tensors().get(b).values, Matrix(7, 30).values);
  }
}

// A device may collect small transfers from and to its own host memory. Nobody can tell.
TEST_P(Conformance, ManySmallTransfersAreInOrderWithOperationsAndWithEachOther) {
  constexpr std::size_t kPiece = 64;  // bytes
  const Matrix x = random_matrix(7, 1024, 1), y = random_matrix(7, 1024, 2), z = random_matrix(7, 1024, 3);
  const std::size_t bytes = x.values.size() * sizeof(float);
  Device& device = backend().device();
  const HostBuffer host = must(HostBuffer::create(device, 4 * bytes));
  std::byte* const twice = host.data();
  std::byte* const four_times = twice + bytes;
  std::byte* const of_y = four_times + bytes;
  std::byte* const of_z = of_y + bytes;
  for (const Batch& batch : {rows_alone(7), make_batch(std::vector<Part>(7))}) {
    const Tensor a = tensors().put(x), b = tensors().put(z);
    std::memset(twice, 0xAB, 2 * bytes);
    std::memcpy(of_y, y.values.data(), bytes);
    std::memcpy(of_z, z.values.data(), bytes);
    auto* const at = reinterpret_cast<std::byte*>(a.data);
    step(batch, [&] {
      backend().cap_and_scale(a, 0, 2);
      for (std::size_t i = 0; i < bytes; i += kPiece) must(device.download(twice + i, at + i, kPiece));
      backend().cap_and_scale(a, 0, 2);
      for (std::size_t i = 0; i < bytes; i += kPiece) must(device.download(four_times + i, at + i, kPiece));
      for (std::size_t i = 0; i < bytes; i += kPiece) must(device.upload(at + i, of_z + i, kPiece));
      for (std::size_t i = 0; i < bytes; i += kPiece) must(device.upload(at + i, of_y + i, kPiece));  // once more
      backend().add(b, a, 1);
      must(device.zero(a.data, bytes));
    });
    const Matrix sum = tensors().get(b);
    EXPECT_EQ(tensors().get(a).values, Matrix(7, 1024).values);
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      float first, second;
      std::memcpy(&first, twice + i * sizeof(float), sizeof(float));
      std::memcpy(&second, four_times + i * sizeof(float), sizeof(float));
      ASSERT_EQ(first, 2 * x.values[i]) << i;
      ASSERT_EQ(second, 4 * x.values[i]) << i;
      ASSERT_EQ(sum.values[i], z.values[i] + y.values[i]) << i;
    }
  }
}

TEST_P(Conformance, TheHostSeesWhatItReadAfterTheStep) {
  const Matrix x = random_matrix(9, 30, 1), y = random_matrix(5, 17, 2);
  const Tensor a = tensors().put_within(x, 3, 4), b = tensors().put(y);
  HostRows first, second, some;
  step(rows_alone(9), [&] {
    backend().cap_and_scale(a, 0, 2);
    first = backend().read(a);
    second = backend().read(b);
    some = backend().read(a.row_range(4, 2).columns(10, 5));
  });
  ASSERT_EQ(first.rows, 9u);
  ASSERT_EQ(first.cols, 30u);
  for (std::uint32_t i = 0; i < 9; ++i) {
    for (std::uint32_t k = 0; k < 30; ++k) EXPECT_EQ(first.row(i)[k], 2 * x.at(i, k));
  }
  ASSERT_EQ(second.rows, 5u);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(second.row(i), y.row(i)));
  ASSERT_EQ(some.rows, 2u);
  ASSERT_EQ(some.cols, 5u);
  for (std::uint32_t k = 0; k < 5; ++k) EXPECT_EQ(some.row(1)[k], 2 * x.at(5, 10 + k));
}

TEST_P(Conformance, TheHostSeesTheRowsThatItReadAndTheyKeepTheirNumbers) {
  const Matrix x = random_matrix(12, 30, 1);
  const Tensor a = tensors().put_within(x, 3, 4);
  const std::vector<std::uint32_t> rows = {0, 3, 4, 5, 9, 11};
  HostRows some, none;
  step(rows_alone(12), [&] {
    some = backend().read_rows(a, rows);
    none = backend().read_rows(a, {});
  });
  ASSERT_EQ(some.rows, 12u);
  ASSERT_EQ(some.cols, 30u);
  for (const std::uint32_t i : rows) EXPECT_TRUE(same_bits(some.row(i), x.row(i))) << i;
}

// Tensors stay valid for the next step. Only the rows for the host end with their step.
TEST_P(Conformance, TensorsOutliveSteps) {
  const Matrix x = random_matrix(3, 30, 1);
  const Tensor a = tensors().put(x);
  step(rows_alone(3), [&] { backend().cap_and_scale(a, 0, 2); });
  step(rows_alone(3), [&] { backend().cap_and_scale(a, 0, 2); });
  const Matrix got = tensors().get(a);
  for (std::size_t i = 0; i < x.values.size(); ++i) EXPECT_EQ(got.values[i], 4 * x.values[i]);
}

TEST_P(Conformance, StepsMayBeAsLargeAsTheyWerePreparedFor) {
  const std::uint32_t rows = kSizes.rows, cols = kSizes.cols;
  const Matrix x = random_matrix(rows, cols, 1);
  const Tensor in = tensors().put(x), norm = tensors().put(Matrix(1, cols, 1.0f));
  for (const gguf::Type type : {gguf::Type::F32, gguf::Type::F16, gguf::Type::Q8_0, gguf::Type::Q2_K}) {
    const FileWeight file = random_weight(type, 50, cols, 2);
    const Loaded loaded = load(backend(), file);
    const Tensor out = tensors().room(rows, 50);
    const Product product{.out = out, .weight = &loaded.weight};
    step(rows_alone(rows), [&] { backend().matmul({&product, 1}, Input::normed(in, norm, 1e-6f)); });
    reference::Row row = reference::input_row(
        {.kind = Input::Kind::Normed, .x = x, .weight = Matrix(1, cols, 1.0f), .epsilon = 1e-6f}, rows - 1);
    if (GetParam().inputs_rounded) row = reference::rounded_input(type, row);
    expect_close(tensors().get(out.row_range(rows - 1, 1)), reference::product(file.values(), std::span(&row, 1)),
                 reference::is_float(type) ? tolerance().products : tolerance().quantised_after);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, ::testing::ValuesIn(backends_under_test()), name_of);

// --- errors, with a device of the test

class ConformanceOfErrors : public ::testing::TestWithParam<BackendUnderTest> {
 protected:
  ConformanceOfErrors() : backend_(GetParam().make_on(device_)), tensors_(device_) { must(backend_->prepare(kSizes)); }

  // Runs a step that uses the device. Returns its result.
  PoolResult<void> step() {
    x_ = tensors_.put(Matrix(3, 30, 1.0f));
    const Batch batch = rows_alone(3);
    const Tensor y = tensors_.room(1, 30);
    backend_->begin(batch);
    if (before_work) before_work();
    if (const auto done = device_.upload(y.data, two_.values.data(), 30 * sizeof(float)); !done) return done;
    if (before_finish) before_finish();
    backend_->cap_and_scale(x_, 0, 2);
    return backend_->finish();
  }
  void expect_fine() {
    before_work = before_finish = nullptr;
    const PoolResult<void> done = step();
    ASSERT_TRUE(done.has_value()) << done.error().message();
    EXPECT_EQ(tensors_.get(x_).values, Matrix(3, 30, 2.0f).values);
  }

  const Matrix two_ = Matrix(1, 30, 2.0f);  // must live until the device is done with it
  CountingDevice device_;
  std::unique_ptr<Backend> backend_;
  Tensors tensors_;
  Tensor x_;
  std::function<void()> before_work, before_finish;
};

TEST_P(ConformanceOfErrors, WorksOnTheDeviceThatItIsGiven) {
  EXPECT_EQ(&backend_->device(), &device_);
  expect_fine();
}

TEST_P(ConformanceOfErrors, WorkThatFailedShowsAtTheEndOfItsStepAndOnce) {
  expect_fine();
  before_work = [&] { device_.fail_work_after(0); };
  const PoolResult<void> done = step();
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, PoolError::Code::WorkFailed);
  expect_fine();
}

TEST_P(ConformanceOfErrors, AFenceThatFailsShowsAtTheEndOfItsStepAndOnce) {
  before_finish = [&] { device_.fail_after(0); };
  const PoolResult<void> done = step();
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, PoolError::Code::WorkFailed);
  expect_fine();
}

std::vector<BackendUnderTest> backends_on_any_device() {
  std::vector<BackendUnderTest> all = backends_under_test();
  std::erase_if(all, [](const BackendUnderTest& one) { return one.make_on == nullptr; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Backends, ConformanceOfErrors, ::testing::ValuesIn(backends_on_any_device()), name_of);

// --- by name

TEST(BackendsByName, AutoIsTheBestThereIs) {
  const auto backend = make_backend({});
  ASSERT_TRUE(backend.has_value()) << backend.error().message;
  EXPECT_FALSE((*backend)->facts().device.empty());
}

TEST(BackendsByName, TheCpuHasAsManyThreadsAsAreAskedForAndTheKernelsThatAreNamed) {
  const auto backend = make_backend({.device = "cpu", .threads = 2, .variant = "scalar"});
  ASSERT_TRUE(backend.has_value()) << backend.error().message;
  EXPECT_EQ((*backend)->facts().device, "cpu");
  EXPECT_EQ((*backend)->facts().variant, "scalar");
  EXPECT_EQ((*backend)->facts().threads, 2u);
  EXPECT_GE((*make_backend({.device = "cpu"}))->facts().threads, 1u);
}

// The error is one line that lists the choices.
TEST(BackendsByName, UnknownNamesAreRefused) {
  const auto device = make_backend({.device = "toaster"});
  ASSERT_FALSE(device.has_value());
  EXPECT_THAT(device.error().message, ::testing::HasSubstr("'toaster'"));
  EXPECT_THAT(device.error().message, ::testing::HasSubstr("cpu"));
  const auto variant = make_backend({.variant = "sse9"});
  ASSERT_FALSE(variant.has_value());
  EXPECT_THAT(variant.error().message, ::testing::HasSubstr("'sse9'"));
  EXPECT_THAT(variant.error().message, ::testing::HasSubstr("scalar"));
  for (const auto* message : {&device.error().message, &variant.error().message}) {
    EXPECT_EQ(message->find('\n'), std::string::npos);
  }
}

TEST(BackendsByName, AGpuIsNamedByItsNumber) {
  for (const char* name : {"cuda:", "cuda:x", "cuda:1x", "cuda1", "cuda:-1", "CUDA"}) {
    const auto backend = make_backend({.device = name});
    ASSERT_FALSE(backend.has_value()) << name;
    EXPECT_THAT(backend.error().message, ::testing::HasSubstr("are known")) << name;
  }
  // The name is right. What is missing is said, and is the same that the list of devices says.
  const auto far = make_backend({.device = "cuda:99"});
  ASSERT_FALSE(far.has_value());
  EXPECT_THAT(far.error().message, ::testing::HasSubstr("device 'cuda:99': "));
  const DeviceChoices choices = known_devices();
  EXPECT_EQ(choices.usable.back().name, "cpu");
  EXPECT_EQ(choices.why_no_gpu.empty(), make_backend({.device = "cuda"}).has_value()) << choices.why_no_gpu;
}

}  // namespace
}  // namespace quire::conformance

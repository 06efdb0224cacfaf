// The conformance suite: tests that say what a backend must do. They are in conformance_*_test.cpp, one test per
// promise. The same test bodies run on every backend of the list below and compare it with reference_testing.h. A new
// kind of device is one more entry in the list.
//
// The suite reaches device memory only through Device and Backend::read(). It never dereferences a device pointer.
// Memory that must not be read holds NaN. Memory that must not be written is checked afterwards.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/backend/backend.h"
#include "quire/backend/cpu/cpu_backend.h"
#include "quire/backend/cpu/kernels_testing.h"
#include "quire/backend/factory.h"
#include "quire/backend/reference_testing.h"
#include "quire/base/check.h"
#include "quire/state/batch.h"
#include "quire/state/device.h"

namespace quire::conformance {

using reference::Expected;
using reference::FileWeight;
using reference::Matrix;
using reference::random_matrix;
using reference::random_weight;

// --- the backends under test

// How far a result may be from the reference, relative to the magnitude of the terms it was computed from.
struct Tolerance {
  double floats = 0;     // sums and functions in f32
  double products = 0;   // products with weights in f16, bf16 and f32
  double quantised = 0;  // products with quantised weights
  // The same after a norm or gate on the input: a value halfway between two 8-bit steps may round to either.
  double quantised_after = 0;
  double attention = 0;
};

struct BackendUnderTest {
  std::string name;    // for test names: letters, digits and _
  std::string family;  // all backends of a family give the same bits
  Tolerance tolerance;
  // Rounds inputs of products: to 8 bits with one scale per 32 columns where weights are quantised, to BF16 where they
  // are BF16.
  bool inputs_rounded = false;
  std::function<std::unique_ptr<Backend>()> make;
  // Builds the backend on a device of the test, where that is possible.
  std::function<std::unique_ptr<Backend>(Device&)> make_on;

  friend void PrintTo(const BackendUnderTest& backend, std::ostream* out) { *out << backend.name; }
};

// Every backend that this machine can run.
inline std::vector<BackendUnderTest> backends_under_test() {
  std::vector<BackendUnderTest> all;
  for (const cpu::Kernels* kernels : cpu::all_kernels()) {
    for (const std::uint32_t threads : {1u, 3u}) {
      const std::string variant = kernels->name;
      all.push_back(
          {.name = "cpu_" + variant + (threads == 1 ? "" : "_" + std::to_string(threads) + "_threads"),
           .family = variant == "scalar" ? "cpu_scalar" : "cpu_fused",
           .tolerance =
               {.floats = 2e-5, .products = 2e-5, .quantised = 2e-5, .quantised_after = 2e-3, .attention = 2e-5},
           .inputs_rounded = true,
           .make = [=] { return std::make_unique<CpuBackend>(threads, *kernels); },
           .make_on = [=](Device& device) { return std::make_unique<CpuBackend>(threads, *kernels, &device); }});
    }
  }
  // A GPU multiplies in halves. Quantised weights are rounded to halves too, and those with a minimum are differences
  // of two of them.
  const BackendOptions cuda{.device = "cuda"};
  if (make_backend(cuda)) {
    all.push_back(
        {.name = "cuda",
         .family = "cuda",
         .tolerance = {.floats = 2e-5, .products = 6e-4, .quantised = 4e-3, .quantised_after = 4e-3, .attention = 2e-3},
         .make = [cuda] { return std::move(*make_backend(cuda)); },
         .make_on = nullptr});
  }
  return all;
}

inline std::string name_of(const ::testing::TestParamInfo<BackendUnderTest>& info) { return info.param.name; }

// How many of `all` repetitions to run. Sanitizers are slow, so their runs set QUIRE_PROPERTY_PERCENT below 100.
inline std::uint32_t repetitions(std::uint32_t all) {
  const char* percent = std::getenv("QUIRE_PROPERTY_PERCENT");
  if (percent == nullptr) return all;
  return std::max(1u, static_cast<std::uint32_t>(all * std::strtoull(percent, nullptr, 10) / 100));
}

// --- tensors on a device

template <typename T>
T must(PoolResult<T> result) {
  QUIRE_CHECK(result.has_value(), "a device of a test has memory and does what it is told");
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// Fills memory that has not been written.
inline float poison() { return std::numeric_limits<float>::quiet_NaN(); }

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}
inline bool same_bits(const Matrix& a, const Matrix& b) {
  return a.rows == b.rows && a.cols == b.cols && same_bits(a.values, b.values);
}

// Creates tensors on a device and owns them.
class Tensors {
 public:
  explicit Tensors(Device& device) : device_(device) {}

  Tensor put(const Matrix& values) { return put_within(values, 0, 0); }
  // A tensor that is some columns of wider rows, with `before` and `after` columns around it.
  Tensor put_within(const Matrix& values, std::uint32_t before, std::uint32_t after) {
    Whole whole{.before = before, .rows = Matrix(values.rows, before + values.cols + after, poison())};
    for (std::uint32_t i = 0; i < values.rows; ++i) {
      std::ranges::copy(values.row(i), whole.rows.values.begin() + std::ptrdiff_t{i} * whole.rows.cols + before);
    }
    const std::size_t bytes = whole.rows.values.size() * sizeof(float);
    whole.memory = must(DeviceBuffer::create(device_, bytes));
    must(device_.upload(whole.memory.data(), whole.rows.values.data(), bytes));
    must(device_.fence());
    const Tensor all{whole.memory.data(), values.rows, whole.rows.cols, whole.rows.cols};
    wholes_.push_back(std::move(whole));
    return all.columns(before, values.cols);
  }
  Tensor room(std::uint32_t rows, std::uint32_t cols) { return put(Matrix(rows, cols, poison())); }
  Tensor room_within(std::uint32_t rows, std::uint32_t cols, std::uint32_t before, std::uint32_t after) {
    return put_within(Matrix(rows, cols, poison()), before, after);
  }

  Matrix get(Tensor x) {
    std::vector<float> all((x.rows - 1) * x.stride + x.cols);
    must(device_.download(all.data(), x.data, all.size() * sizeof(float)));
    must(device_.fence());
    Matrix values(x.rows, x.cols);
    for (std::uint32_t i = 0; i < x.rows; ++i) {
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(i * x.stride), x.cols,
                  values.values.begin() + std::ptrdiff_t{i} * x.cols);
    }
    return values;
  }

  // Whether the columns around a tensor from put_within() or room_within() are unchanged.
  bool surroundings_are_untouched(Tensor x) {
    for (const Whole& whole : wholes_) {
      if (whole.memory.data() + whole.before * sizeof(float) != x.data) continue;
      const Matrix now = get({whole.memory.data(), whole.rows.rows, whole.rows.cols, whole.rows.cols});
      for (std::uint32_t i = 0; i < now.rows; ++i) {
        const std::uint32_t end = whole.before + x.cols;
        if (!same_bits(now.row(i).first(whole.before), whole.rows.row(i).first(whole.before))) return false;
        if (!same_bits(now.row(i).subspan(end), whole.rows.row(i).subspan(end))) return false;
      }
      return true;
    }
    return false;
  }

 private:
  struct Whole {
    std::uint32_t before = 0;
    Matrix rows;  // as uploaded
    DeviceBuffer memory = {};
  };
  Device& device_;
  std::vector<Whole> wholes_;
};

// A weight on the device. The file's bytes must live as long, since a backend may use them in place.
struct Loaded {
  DeviceBuffer memory;
  Weight weight;
};
inline Loaded load(Backend& backend, const FileWeight& from, WeightUse use = WeightUse::Product) {
  Loaded loaded{must(DeviceBuffer::create(backend.device(), backend.weight_bytes(from.file(), use))), {}};
  loaded.weight = must(backend.load(from.file(), use, loaded.memory.data()));
  must(backend.device().fence());
  return loaded;
}

// --- the suite

// The largest step of the suite.
inline constexpr Backend::Sizes kSizes{.rows = 256,
                                       .cols = 3072,
                                       .heads = 16,
                                       .attention_cols = 1024,
                                       .groups = 2,
                                       .recurrent_heads = 16,
                                       .experts = 160,
                                       .experts_used = 8,
                                       .expert_inner = 2880,
                                       .expert_width = 1088,
                                       .rank = 64,
                                       .read = 256 * 1024,
                                       .sampling = {.vocabulary = 9000, .jobs = 64, .listed = 4096, .reported = 1600}};

class Conformance : public ::testing::TestWithParam<BackendUnderTest> {
 protected:
  Conformance() : backend_(GetParam().make()), tensors_(backend_->device()) { must(backend_->prepare(kSizes)); }

  Backend& backend() { return *backend_; }
  Tensors& tensors() { return tensors_; }
  const Tolerance& tolerance() const { return GetParam().tolerance; }

  // One step: the operations between begin() and finish().
  void step(const Batch& batch, const std::function<void()>& operations) {
    backend().begin(batch);
    operations();
    const PoolResult<void> done = backend().finish();
    ASSERT_TRUE(done.has_value()) << done.error().message();
  }

  static void expect_close(const Matrix& got, const Expected& expected, double tolerance) {
    ASSERT_EQ(got.rows, expected.rows);
    ASSERT_EQ(got.cols, expected.cols);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.values.size(); ++i) {
      const double error = std::fabs(got.values[i] - expected.values[i]);
      if (error <= tolerance * expected.sizes[i] + 1e-30) continue;  // false for NaN
      if (wrong++ == 0) {
        ADD_FAILURE() << "row " << i / got.cols << ", column " << i % got.cols << ": " << got.values[i] << ", expected "
                      << expected.values[i] << " within " << tolerance * expected.sizes[i];
      }
    }
    EXPECT_EQ(wrong, 0u) << "elements of " << got.values.size() << " are wrong";
  }

 private:
  std::unique_ptr<Backend> backend_;
  Tensors tensors_;
};

}  // namespace quire::conformance

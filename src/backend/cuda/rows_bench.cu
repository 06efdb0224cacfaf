// Checks the kernels for rows and recurrent layers against double-precision code on the host, checks that results do not
// depend on how sequences are cut into chunks, and times the shapes of mamba2-370m. Exit status 1 if anything differs.
// The conformance suite compares lookups of all types to the bit.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "quire/backend/cuda/lookup_kernels.h"
#include "quire/backend/cuda/recurrent_kernels.h"
#include "quire/backend/cuda/row_kernels.h"
#include "quire/gguf/half.h"

namespace quire::cuda {
namespace {

int failures = 0;

void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}
void report(bool ok, const std::string& what, double error = 0) {
  if (!ok) ++failures;
  std::printf("%-62s %8.1e  %s\n", what.c_str(), error, ok ? "ok" : "WRONG");
}

// Device memory.
template <typename T>
class Array {
 public:
  explicit Array(std::size_t count) : count_(count) {
    must(cudaMalloc(&data_, count * sizeof(T)));
    must(cudaMemset(data_, 0, count * sizeof(T)));
  }
  explicit Array(const std::vector<T>& from) : Array(from.size()) {
    must(cudaMemcpy(data_, from.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  T* data() const { return data_; }
  std::vector<T> get() const {
    std::vector<T> to(count_);
    must(cudaMemcpy(to.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

// Normally distributed values; long arrays repeat themselves.
std::vector<float> normal(std::size_t count, unsigned seed) {
  constexpr std::size_t kPeriod = 1'000'003;
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = i < kPeriod ? distribution(random) : values[i - kPeriod];
  return values;
}

// Rows on the device, as columns of wider rows.
struct Rows {
  std::uint32_t rows, cols, before, stride;
  Array<float> memory;

  Rows(std::uint32_t r, std::uint32_t c, const std::vector<float>& values, std::uint32_t more = 0)
      : rows(r), cols(c), before(more), stride(c + 2 * more), memory(widened(values)) {}
  Tensor tensor() const { return {reinterpret_cast<std::byte*>(memory.data() + before), rows, cols, stride}; }
  std::vector<float> get() const {
    const std::vector<float> wide = memory.get();
    std::vector<float> values;
    for (std::uint32_t r = 0; r < rows; ++r) {
      const auto at = wide.begin() + std::ptrdiff_t{r} * stride + before;
      values.insert(values.end(), at, at + cols);
    }
    return values;
  }

 private:
  std::vector<float> widened(const std::vector<float>& values) const {
    std::vector<float> wide(std::size_t{rows} * stride, NAN);
    for (std::size_t i = 0; i < values.size(); ++i) wide[i / cols * stride + before + i % cols] = values[i];
    return wide;
  }
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}
// The largest error, relative to the size of the terms. NaN counts as infinite.
double error_of(const std::vector<float>& got, const std::vector<double>& expected, const std::vector<double>& sizes) {
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(got[i] - expected[i]) / (sizes[i] + 1e-30);
    most = std::isnan(error) ? INFINITY : std::max(most, error);
  }
  return most;
}

void check_norm(std::uint32_t rows, std::uint32_t cols) {
  const auto x = normal(std::size_t{rows} * cols, 1), w = normal(cols, 2);
  const Rows in(rows, cols, x, 3), out(rows, cols, x, 1), weight(1, cols, w),
      first(1, cols, {x.begin(), x.begin() + cols});
  launch_rms_norm(nullptr, out.tensor(), in.tensor(), weight.tensor(), 1e-5f);
  launch_rms_norm(nullptr, in.tensor(), in.tensor(), weight.tensor(), 1e-5f);
  launch_rms_norm(nullptr, first.tensor(), first.tensor(), weight.tensor(), 1e-5f);
  std::vector<double> expected, sizes;
  for (std::uint32_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::uint32_t c = 0; c < cols; ++c) squares += std::pow(double{x[r * cols + c]}, 2);
    for (std::uint32_t c = 0; c < cols; ++c) {
      expected.push_back(x[r * cols + c] / std::sqrt(squares / cols + 1e-5) * w[c]);
      sizes.push_back(std::fabs(expected.back()));
    }
  }
  const auto got = out.get();
  const double error = error_of(got, expected, sizes);
  const bool alone = same(first.get(), {got.begin(), got.begin() + cols});
  report(error < 2e-6 && same(got, in.get()) && alone, "rms_norm, " + std::to_string(cols) + " columns", error);
}

void check_rows() {
  const std::uint32_t rows = 9, cols = 300;
  const auto x = normal(rows * cols, 1), y = normal(rows * cols, 2), f = normal(cols, 3);
  const Rows sum(rows, cols, x, 1), more(rows, cols, y, 2), capped(rows, cols, x, 3), cosines(rows, cols, x, 5),
      sines(rows, cols, x), frequencies(1, cols, f), gathered(3, cols, {});
  const std::vector<std::uint32_t> positions = {0, 1, 2, 3, 1000, 131000, 131001, 131002, 500000},
                                   rows_wanted = {8, 0, 5};
  const Array<std::uint32_t> at(positions), wanted(rows_wanted);
  const DeviceBatch batch{.positions = at.data(), .wanted = wanted.data(), .rows = rows, .wanted_count = 3};
  launch_gather_wanted(nullptr, gathered.tensor(), sum.tensor(), batch);
  launch_add(nullptr, sum.tensor(), more.tensor(), -0.3f);
  launch_cap_and_scale(nullptr, capped.tensor(), 2.5f, 1.7f);
  launch_rope_angles(nullptr, cosines.tensor(), sines.tensor(), frequencies.tensor(), 1, batch);
  std::vector<double> sums, caps, cos_values, sin_values, sizes, ones(x.size(), 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float angle = static_cast<float>(positions[i / cols]) * f[i % cols];
    sums.push_back(x[i] + double{-0.3f} * y[i]);
    caps.push_back(double{1.7f} * 2.5 * std::tanh(x[i] / 2.5));
    cos_values.push_back(std::cos(double{angle}));
    sin_values.push_back(std::sin(double{angle}));
    sizes.push_back(std::fabs(x[i]) + std::fabs(y[i]));
  }
  std::vector<float> picked;
  for (const std::uint32_t r : rows_wanted)
    picked.insert(picked.end(), x.begin() + r * cols, x.begin() + (r + 1) * cols);
  report(same(gathered.get(), picked), "gather_wanted");
  const double add = error_of(sum.get(), sums, sizes), cap = error_of(capped.get(), caps, ones);
  const double angles = std::max(error_of(cosines.get(), cos_values, ones), error_of(sines.get(), sin_values, ones));
  report(add < 1e-6, "add", add);
  report(cap < 2e-6, "cap_and_scale", cap);
  report(angles < 5e-7, "rope_angles, positions to 500,000", angles);

  std::vector<std::uint32_t> words(5000, 7);
  const Array<std::uint32_t> to(words);
  std::vector<WordWrite> writes;
  for (std::uint32_t i = 0; i < 1000; ++i) writes.push_back({(i * 7919) % 5000, i});
  for (const WordWrite& write : writes) words[write.index] = write.value;
  launch_write_words(nullptr, to.data(), Array<WordWrite>(writes).data(), 1000);
  report(to.get() == words, "write_words");
}

// --- recurrent layers

std::uint64_t round_up(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// The states of some sequences.
struct States {
  StatesView view;
  std::uint64_t bytes;  // of a sequence
  Array<std::byte> memory;

  States(const RecurrentShape& shape, std::uint32_t layers, std::uint32_t sequences, ElementType type)
      : view{.unit = 64,
             .layer_stride =
                 round_up((shape.conv_width - 1) * shape.conv_channels() * 4) +
                 round_up(std::uint64_t{shape.heads} * shape.head_dim * shape.state_dim * element_bytes(type)),
             .ssm_offset = round_up((shape.conv_width - 1) * shape.conv_channels() * 4),
             .num_layers = layers,
             .type = type},
        bytes(view.layer_stride * layers),
        memory(bytes * sequences) {
    view.base = memory.data();
  }
  std::uint32_t place(std::uint32_t sequence) const { return static_cast<std::uint32_t>(bytes / 64 * sequence); }
};

struct Layer {
  Rows conv_weight, conv_bias, dt_bias, a, d;

  // Weights of the convolution are small, so that convolving the same rows again and again does not overflow.
  explicit Layer(const RecurrentShape& s)
      : conv_weight(s.conv_width, s.conv_channels(), mapped(s.conv_width * s.conv_channels(), 11, 0.2f)),
        conv_bias(1, s.conv_channels(), normal(s.conv_channels(), 12)),
        dt_bias(1, s.heads, normal(s.heads, 13)),
        a(1, s.heads, mapped(s.heads, 14, -1)),
        d(1, s.heads, normal(s.heads, 15)) {}
  // Normal values times `factor`; all negative if that is.
  static std::vector<float> mapped(std::size_t count, unsigned seed, float factor) {
    std::vector<float> values = normal(count, seed);
    for (float& value : values) value = factor * (factor < 0 ? std::fabs(value) : value);
    return values;
  }
};

// Rows of the input projection without its gate: x, b and c (the convolution's channels), then dt.
std::uint32_t width(const RecurrentShape& s) { return s.conv_channels() + s.heads; }

void launch_layer(const Rows& wide, const Rows& out, const Layer& layer, const RecurrentShape& s,
                  const DeviceBatch& batch, const StatesView& states, bool convolve, bool scan) {
  const std::uint32_t inner = s.heads * s.head_dim, shared = s.groups * s.state_dim, channels = s.conv_channels();
  const Tensor all = wide.tensor();
  if (convolve) {
    launch_convolution(nullptr, all.columns(0, channels), {{}, layer.conv_weight.tensor(), layer.conv_bias.tensor()},
                       {s.layer, channels, s.conv_width}, batch, states);
  }
  if (!scan) return;
  launch_mamba2_scan(nullptr, out.tensor(),
                     {all.columns(0, inner), all.columns(inner, shared), all.columns(inner + shared, shared),
                      all.columns(channels, s.heads), layer.dt_bias.tensor(), layer.a.tensor(), layer.d.tensor()},
                     s, batch, states);
}

struct Run {
  std::vector<float> convolved, scanned;  // of sequence 0
  std::vector<std::byte> state;
};

// Computes sequence 0 in chunks of these sizes. If there is company, sequence 1 is NaN and comes along in every step.
Run run(const RecurrentShape& s, const Layer& layer, const std::vector<float>& input, ElementType type,
        const std::vector<std::uint32_t>& chunks, bool company, std::uint32_t more) {
  const States states(s, s.layer + 1, 2, type);
  const std::uint32_t inner = s.heads * s.head_dim, cols = width(s);
  Run result;
  std::uint32_t done = 0;
  for (const std::uint32_t rows : chunks) {
    std::vector<DeviceEntry> entries;
    std::vector<float> values;
    if (company) {
      entries.push_back({.first_row = 0, .rows = 3, .position = 0, .table = 1, .state = states.place(1)});
      values.assign(3 * cols, NAN);
    }
    const std::uint32_t first = company ? 3 : 0;
    entries.push_back({.first_row = first, .rows = rows, .position = done, .state = states.place(0)});
    values.insert(values.end(), input.begin() + done * cols, input.begin() + (done + rows) * cols);
    const Array<DeviceEntry> on_device(entries);
    const Rows wide(first + rows, cols, values, more), out(first + rows, inner, {}, more);
    const DeviceBatch batch{
        .entries = on_device.data(), .rows = first + rows, .entry_count = static_cast<std::uint32_t>(entries.size())};
    launch_layer(wide, out, layer, s, batch, states.view, true, true);
    const auto got = wide.get(), scanned = out.get();
    result.convolved.insert(result.convolved.end(), got.begin() + first * cols, got.end());
    result.scanned.insert(result.scanned.end(), scanned.begin() + first * inner, scanned.end());
    done += rows;
  }
  const auto all = states.memory.get();
  result.state.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(states.bytes));
  return result;
}

float as_stored(ElementType type, float v) {
  if (type == ElementType::F16) return gguf::f16_to_f32(gguf::f32_to_f16(std::clamp(v, -65504.0f, 65504.0f)));
  return type == ElementType::BF16 ? gguf::bf16_to_f32(gguf::f32_to_bf16(v)) : v;
}

double conv_error(const RecurrentShape& s, const Layer& layer, const std::vector<float>& input, const Run& got) {
  const auto weight = layer.conv_weight.get(), bias = layer.conv_bias.get();
  const std::uint32_t cols = width(s), channels = s.conv_channels();
  std::vector<float> values;
  std::vector<double> expected, sizes;
  for (std::uint32_t t = 0; t < input.size() / cols; ++t) {
    for (std::uint32_t c = 0; c < channels; ++c) {
      double sum = bias[c], size = std::fabs(sum);
      for (std::uint32_t j = 0; j < s.conv_width; ++j) {
        if (t + j + 1 < s.conv_width) continue;
        const double term = double{weight[j * channels + c]} * input[(t + j + 1 - s.conv_width) * cols + c];
        sum += term;
        size += std::fabs(term);
      }
      values.push_back(got.convolved[t * cols + c]);
      expected.push_back(sum / (1 + std::exp(-sum)));
      sizes.push_back(size);
    }
  }
  return error_of(values, expected, sizes);
}

// From the convolved inputs that the GPU has computed.
double scan_error(const RecurrentShape& s, const Layer& layer, ElementType type, const Run& got) {
  const auto bias = layer.dt_bias.get(), a = layer.a.get(), d = layer.d.get();
  const std::uint32_t cols = width(s), inner = s.heads * s.head_dim, tokens = got.convolved.size() / cols;
  std::vector<double> expected(got.scanned.size()), sizes(got.scanned.size());
  for (std::uint32_t channel = 0; channel < inner; ++channel) {
    const std::uint32_t head = channel / s.head_dim, group = head / (s.heads / s.groups);
    std::vector<double> state(s.state_dim), state_sizes(s.state_dim);
    for (std::uint32_t t = 0; t < tokens; ++t) {
      const float* row = got.convolved.data() + t * cols;
      const float *b = row + inner + group * s.state_dim, *c = b + s.groups * s.state_dim;
      const double step = std::log1p(std::exp(double{row[s.conv_channels() + head]} + bias[head]));
      const double decay = std::exp(step * a[head]);
      double sum = double{d[head]} * row[channel], size = std::fabs(sum);
      for (std::uint32_t n = 0; n < s.state_dim; ++n) {
        const double added = step * row[channel] * b[n];
        state[n] = state[n] * decay + added;
        state_sizes[n] = state_sizes[n] * decay + std::fabs(added);
        sum += state[n] * c[n];
        size += state_sizes[n] * std::fabs(c[n]);
        if (type != ElementType::F32) state[n] = as_stored(type, static_cast<float>(state[n]));
      }
      expected[t * inner + channel] = sum;
      sizes[t * inner + channel] = size;
    }
  }
  return error_of(got.scanned, expected, sizes);
}

void check_recurrent(const RecurrentShape& s) {
  const Layer layer(s);
  const std::uint32_t tokens = 300, cols = width(s);
  std::vector<float> input = normal(std::size_t{tokens} * cols, 21);
  input[cols - 1] = 30;
  const std::vector<std::uint32_t> singly(tokens, 1), mixed = {1, 2, 17, 128, 7, 9, 8, 1, 127};
  for (const ElementType type : {ElementType::F32, ElementType::F16, ElementType::BF16}) {
    const Run whole = run(s, layer, input, type, {tokens}, false, 0);
    const auto equal = [&](const Run& other) {
      return same(other.convolved, whole.convolved) && same(other.scanned, whole.scanned) && other.state == whole.state;
    };
    const bool exact =
        equal(run(s, layer, input, type, singly, false, 0)) && equal(run(s, layer, input, type, mixed, false, 1)) &&
        equal(run(s, layer, input, type, mixed, true, 4)) && equal(run(s, layer, input, type, {tokens}, true, 0));
    const double conv = conv_error(s, layer, input, whole), scan = scan_error(s, layer, type, whole);
    const double most = 2e-5 + (type == ElementType::F16 ? 0x1p-10 : type == ElementType::BF16 ? 0x1p-7 : 0);
    char what[128];
    std::snprintf(what, sizeof what, "mamba2 %ux%u, state %u %s, %u taps%s", s.heads, s.head_dim, s.state_dim,
                  name(type), s.conv_width, exact ? "" : ": bits depend on chunks");
    report(exact && conv < 2e-6 && scan < most, what, std::max(conv, scan));
  }
}

// --- times

// Microseconds of one launch: the best of three series.
double time_of(const std::function<void(int)>& launch) {
  constexpr int kLaunches = 20;
  cudaEvent_t start, stop;
  must(cudaEventCreate(&start));
  must(cudaEventCreate(&stop));
  float best = INFINITY;
  for (int series = 0; series < 4; ++series) {
    must(cudaEventRecord(start));
    for (int i = 0; i < kLaunches; ++i) launch(i);
    must(cudaEventRecord(stop));
    must(cudaEventSynchronize(stop));
    float ms = 0;
    must(cudaEventElapsedTime(&ms, start, stop));
    if (series > 0) best = std::min(best, ms);
  }
  must(cudaEventDestroy(start));
  must(cudaEventDestroy(stop));
  return best * 1e3 / kLaunches;
}

void time_recurrent(std::uint32_t sequences, std::uint32_t tokens, ElementType type) {
  RecurrentShape s{.heads = 32, .head_dim = 64, .groups = 1, .state_dim = 128, .conv_width = 4};
  constexpr std::uint32_t kLayers = 4;
  const Layer layer(s);
  const States states(s, kLayers, sequences, type);
  std::vector<DeviceEntry> entries;
  for (std::uint32_t i = 0; i < sequences; ++i) {
    entries.push_back({.first_row = i * tokens, .rows = tokens, .table = i, .state = states.place(i)});
  }
  const Array<DeviceEntry> on_device(entries);
  // Rows as wide as the input projection, gate included.
  const Rows wide(sequences * tokens, width(s), normal(std::size_t{sequences} * tokens * width(s), 5), 1024);
  const Rows out(sequences * tokens, 2048, {});
  const DeviceBatch batch{.entries = on_device.data(), .rows = sequences * tokens, .entry_count = sequences};
  const auto part = [&](bool convolve, bool scan) {
    return time_of([&](int i) {
      s.layer = static_cast<std::uint32_t>(i) % kLayers;
      launch_layer(wide, out, layer, s, batch, states.view, convolve, scan);
    });
  };
  const double conv = part(true, false), scan = part(false, true);
  const double bytes = 2.0 * sequences * 2048 * 128 * element_bytes(type);
  std::printf("%3u x %4u %-4s %9.2f %9.2f %12.4f %10.0f %14.0f\n", sequences, tokens, name(type), conv, scan,
              (conv + scan) / (sequences * tokens), bytes / scan / 1e3,
              1e6 * sequences * tokens / (48 * (conv + scan)));
}

void time_rows(std::uint32_t rows) {
  const std::uint32_t cols = 1024;
  const Rows x(rows, cols, normal(std::size_t{rows} * cols, 1)), y(rows, cols, normal(std::size_t{rows} * cols, 2)),
      weight(1, cols, normal(cols, 3));
  const Array<std::byte> table(std::size_t{50288} * cols / 32 * 34);
  std::vector<std::int32_t> tokens(rows);
  for (std::uint32_t i = 0; i < rows; ++i) tokens[i] = static_cast<std::int32_t>(i * 7919 % 50288);
  const Array<std::int32_t> ids(tokens);
  const double norm = time_of([&](int) { launch_rms_norm(nullptr, y.tensor(), x.tensor(), weight.tensor(), 1e-5f); });
  const double add = time_of([&](int) { launch_add(nullptr, y.tensor(), x.tensor(), 0.5f); });
  const double embed = time_of([&](int) {
    launch_embed(nullptr, y.tensor(), {gguf::Type::Q8_0, table.data(), cols / 32 * 34}, 1, {.tokens = ids.data()});
  });
  std::printf("%4u rows of %u: rms_norm %.2f us, add %.2f us, embed of q8_0 %.2f us\n", rows, cols, norm, add, embed);
}

int run_all() {
  for (const std::uint32_t cols : {1u, 50u, 257u, 2048u}) check_norm(7, cols);
  check_rows();
  // With more = 0 or 4, rows of b and c are aligned to 16 bytes in the first three; with 1 they are not.
  check_recurrent({.layer = 1, .heads = 4, .head_dim = 64, .groups = 1, .state_dim = 128, .conv_width = 4});
  check_recurrent({.layer = 0, .heads = 12, .head_dim = 20, .groups = 3, .state_dim = 64, .conv_width = 7});
  check_recurrent({.layer = 0, .heads = 4, .head_dim = 17, .groups = 1, .state_dim = 256, .conv_width = 4});
  check_recurrent({.layer = 1, .heads = 4, .head_dim = 3, .groups = 2, .state_dim = 18, .conv_width = 1});
  must(cudaDeviceSynchronize());
  std::printf(
      "\nmamba2-370m, a layer: sequences x tokens, us of conv and scan, us per token, GB/s of states,\n"
      "tokens per second if 48 such layers were all\n");
  for (const ElementType type : {ElementType::F32, ElementType::F16, ElementType::BF16}) {
    time_recurrent(1, 1, type);
    time_recurrent(64, 1, type);
    time_recurrent(1, 2048, type);
    time_recurrent(8, 2048, type);
  }
  time_rows(64);
  time_rows(2048);
  must(cudaDeviceSynchronize());
  must(cudaGetLastError());
  std::printf("%s\n", failures == 0 ? "all right" : "SOMETHING IS WRONG");
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace quire::cuda

int main() { return quire::cuda::run_all(); }

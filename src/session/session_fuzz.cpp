// Parses any bytes as a session file, as they are and with all checksums made right, and gives what is accepted to a
// pool. The first byte chooses a model. Nothing may crash, and the pool must stay sound.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "quire/session/session_state.h"
#include "quire/session/session_testing.h"
#include "quire/state/toy_engine_testing.h"

namespace {

using namespace quire;
using namespace quire::session;

PoolConfig config_of(const quire::testing::ToyModel& model) {
  PoolConfig config{.layout = model.layout(), .budget_bytes = 1 << 16, .max_sequences = 4, .max_tokens = 64};
  config.checkpoint_unit = 4, config.checkpoint_interval = 8;
  return config;
}

void try_file(const session::testing::Bytes& file, const PoolConfig& config) {
  auto contents = parse(file);
  if (!contents) return;
  // The fuzzer cannot guess fingerprints. What is behind them is the point.
  contents->model = config.model;
  contents->layout = fingerprint_of(config.layout);
  CountingDevice device;
  const auto pool = SequencePool::create(device, config);
  (void)give(**pool, *contents, 0);
  if (!(*pool)->check_integrity() || (*pool)->stats().sequences != 0) std::abort();
  const auto again = take(**pool, contents->tokens, 0);
  if (!again) return;
  if (!parse(session::testing::bytes_of(encode(contents->tokens, *again, contents->metadata)))) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const PoolConfig configs[] = {
      config_of(quire::testing::ToyModel::attention()), config_of(quire::testing::ToyModel::windowed(7)),
      config_of(quire::testing::ToyModel::recurrent()), config_of(quire::testing::ToyModel::everything(7))};
  const PoolConfig& config = configs[data[0] % 4];
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  session::testing::Bytes file(bytes + 1, bytes + size);
  try_file(file, config);
  session::testing::seal(file);
  try_file(file, config);
  return 0;
}

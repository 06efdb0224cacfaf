// Hosted models with heads, for engine tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "quire/engine/hosted_testing.h"
#include "quire/model/head_testing.h"

namespace quire::engine::testing {

// On the best device.
inline BackendOptions head_backend(const BackendKind& kind = best_backends().back(), std::uint32_t threads = 1) {
  BackendOptions options = kind.options;
  options.threads = threads;
  return options;
}

// A hosted model and the file that it is in. `heads`: its head drafts.
class HeadHost {
 public:
  HeadHost(const model::testing::HeadModel& test, HostOptions options, bool heads,
           const BackendKind& kind = best_backends().back(), std::uint32_t threads = 1)
      : image_(test.image()) {
    options.backend = head_backend(kind, threads);
    options.heads = heads;
    auto model = model::Model::create(*gguf::File::from_memory(image_, "test"));
    EXPECT_TRUE(model.has_value()) << model.error().message;
    auto made = HostedModel::create(std::move(*model), options);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    host_ = std::move(*made);
  }
  HostedModel* operator->() { return host_.get(); }
  HostedModel& operator*() { return *host_; }

 private:
  std::vector<std::byte> image_;
  std::unique_ptr<HostedModel> host_;
};

}  // namespace quire::engine::testing

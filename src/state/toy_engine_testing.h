// For tests: an engine without a model. It drives a SequencePool as a real engine would and fills every position of
// every page, and every recurrent state, with bytes derived from all tokens up to there. Reading them back through the
// table on the device shows whether a page was shared, moved, copied or reused wrongly.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "quire/state/counting_device_testing.h"
#include "quire/state/sequence_pool.h"

namespace quire::testing {

struct ToyModel {
  std::vector<LayerDesc> layers;
  std::uint32_t block_size = 4;

  static ToyModel attention(std::uint32_t block_size = 4) {
    return {{LayerDesc::attention(1, 4), LayerDesc::attention(1, 4)}, block_size};
  }
  // Keys and values in one row: pages of one plane.
  static ToyModel latent(std::uint32_t block_size = 4) {
    return {{LayerDesc::latent(6), LayerDesc::latent(6)}, block_size};
  }
  static ToyModel windowed(std::uint32_t window, std::uint32_t block_size = 4) {
    return {{LayerDesc::attention(1, 4), LayerDesc::attention(2, 4, ElementType::F16, window)}, block_size};
  }
  // No layer has full attention: two windows, the smaller one half as long.
  static ToyModel windows_only(std::uint32_t window, std::uint32_t block_size = 4) {
    return {{LayerDesc::attention(1, 4, ElementType::F16, window),
             LayerDesc::attention(2, 4, ElementType::F16, (window + 1) / 2)},
            block_size};
  }
  static ToyModel recurrent(std::uint32_t block_size = 4) {
    return {{LayerDesc::recurrent(64, 128), LayerDesc::recurrent(64, 128)}, block_size};
  }
  static ToyModel hybrid(std::uint32_t block_size = 4) {
    return {{LayerDesc::attention(1, 4), LayerDesc::recurrent(64, 256)}, block_size};
  }
  static ToyModel everything(std::uint32_t window, std::uint32_t block_size = 4) {
    return {{LayerDesc::attention(1, 4), LayerDesc::attention(1, 4, ElementType::F16, window),
             LayerDesc::recurrent(64, 320)},
            block_size};
  }

  StateLayout layout() const { return *StateLayout::from_layers(layers, block_size); }
};

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15 + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9;
  return x ^ (x >> 29);
}

class ToyEngine {
 public:
  ToyEngine(Device& device, const PoolConfig& config)
      : pool_(*SequencePool::create(device, config)), lazy_(dynamic_cast<CountingDevice*>(&device)) {}

  SequencePool& pool() { return *pool_; }

  // What the pool was told. Every byte can be predicted from it.
  struct Sequence {
    SequenceId id;
    Namespace name_space = 0;
    std::vector<Token> tokens;              // committed
    std::vector<Token> pending;             // prompt tokens still to be computed
    std::vector<std::uint64_t> digests{0};  // digests[n]: digest of the first n tokens
  };

  // Whether values have a place of their own.
  static bool has_values(const KvView& view) { return view.v_offset != view.k_offset; }

  static std::uint64_t digest(std::uint64_t before, Token token) {
    return mix(before, static_cast<std::uint64_t>(token) + 1);
  }

  PoolResult<Sequence> create(const std::vector<Token>& prompt, Namespace name_space = 0, bool reuse = true) {
    return begin(prompt, name_space, pool_->create({.prompt = prompt, .name_space = name_space, .reuse = reuse}));
  }
  PoolResult<Sequence> admit(const SequencePool::Request& request, std::uint32_t tokens, std::uint32_t chunk,
                             std::span<const BatchEntry> others) {
    return begin({request.prompt.begin(), request.prompt.end()}, request.name_space,
                 pool_->admit(request, tokens, chunk, others));
  }
  PoolResult<Sequence> begin(const std::vector<Token>& prompt, Namespace name_space,
                             const PoolResult<SequencePool::Created>& created) {
    if (!created) return std::unexpected(created.error());
    Sequence sequence{.id = created->id, .name_space = name_space};
    sequence.digests[0] = mix(0, name_space);
    last_hit_ = created->hit;
    const auto reused = prompt.begin() + created->hit.tokens;
    remember(sequence, {prompt.begin(), reused});
    sequence.pending.assign(reused, prompt.end());
    return sequence;
  }
  const Hit& last_hit() const { return last_hit_; }

  // Reserves, writes what a model would write, and commits.
  PoolResult<void> append(Sequence& sequence, const std::vector<Token>& tokens, bool checkpoint = false) {
    if (auto ok = pool_->reserve(sequence.id, static_cast<std::uint32_t>(tokens.size())); !ok) return ok;
    return write_and_commit(sequence, tokens, checkpoint);
  }

  PoolResult<void> write_and_commit(Sequence& sequence, const std::vector<Token>& tokens, bool checkpoint = false) {
    if (auto ok = write(sequence, tokens, {}); !ok) return ok;
    if (auto ok = pool_->commit(sequence.id, tokens, checkpoint); !ok) return ok;
    remember(sequence, tokens);
    return {};
  }

  // A step with drafts, for which draft() has made room. Of the drafts the first `right` turn out right.
  PoolResult<void> write_and_accept(Sequence& sequence, const std::vector<Token>& certain,
                                    const std::vector<Token>& drafts, std::size_t right) {
    if (auto ok = write(sequence, certain, drafts); !ok) return ok;
    if (auto ok = pool_->commit(sequence.id, certain); !ok) return ok;
    remember(sequence, certain);
    const bool whole = pool_->layout().has_recurrent();
    for (std::size_t i = 0; i < right; i += whole ? right : 1) {
      const auto from = drafts.begin() + static_cast<long>(i);
      const std::vector<Token> accepted(from, from + static_cast<long>(whole ? right : 1));
      if (auto ok = pool_->commit(sequence.id, accepted); !ok) return ok;
      remember(sequence, accepted);
    }
    return pool_->end_draft(sequence.id);
  }

  // Writes what a model would write for the certain tokens and the drafts after them.
  PoolResult<void> write(Sequence& sequence, const std::vector<Token>& certain, const std::vector<Token>& drafts) {
    const auto from = static_cast<std::uint32_t>(sequence.tokens.size());
    std::vector<Token> tokens = certain;
    tokens.insert(tokens.end(), drafts.begin(), drafts.end());
    std::vector<std::uint64_t> digests = sequence.digests;
    for (const Token token : tokens) digests.push_back(digest(digests.back(), token));
    const StateLayout& layout = pool_->layout();
    for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
      for (std::uint32_t layer = 0; layer < layout.groups[g].num_layers; ++layer) {
        const auto view = pool_->kv_view(sequence.id, g, layer);
        if (!view) return std::unexpected(view.error());
        run_kernel();
        if (view->capacity < from + tokens.size())
          return std::unexpected(PoolError::invalid_argument("a view too short"));
        for (std::uint32_t p = from; p < from + tokens.size(); ++p) {
          for (std::uint32_t head = 0; head < view->num_kv_heads; ++head) {
            const std::uint64_t k = stamp(digests[p + 1], g, layer, head, 0),
                                v = stamp(digests[p + 1], g, layer, head, 1);
            std::memcpy(view->k(head, p), &k, sizeof k);
            if (has_values(*view)) std::memcpy(view->v(head, p), &v, sizeof v);
          }
        }
      }
    }
    if (layout.has_recurrent() && !tokens.empty()) {
      const auto view = pool_->state_view(sequence.id);
      if (!view) return std::unexpected(view.error());
      run_kernel();
      const std::uint64_t own = digests[from + certain.size()];
      for (std::uint32_t layer = 0; layer < view->num_layers; ++layer) write_state(*view, layer, own);
    }
    if (layout.has_recurrent() && !drafts.empty()) {
      const auto view = pool_->scratch_view(sequence.id);
      if (!view) return std::unexpected(view.error());
      run_kernel();
      for (std::uint32_t layer = 0; layer < view->num_layers; ++layer) write_state(*view, layer, digests.back());
    }
    return {};
  }

  PoolResult<Sequence> fork(const Sequence& parent, std::uint32_t position) {
    const auto forked = pool_->fork(parent.id, position);
    if (!forked) return std::unexpected(forked.error());
    Sequence child{.id = forked->id, .name_space = parent.name_space};
    child.digests[0] = parent.digests[0];
    remember(child, {parent.tokens.begin(), parent.tokens.begin() + forked->position});
    child.pending.assign(parent.tokens.begin() + forked->position, parent.tokens.begin() + position);
    return child;
  }

  PoolResult<void> rewind(Sequence& sequence, std::uint32_t position) {
    const auto now = pool_->rewind(sequence.id, position);
    if (!now) return std::unexpected(now.error());
    sequence.pending.assign(sequence.tokens.begin() + *now, sequence.tokens.begin() + position);
    sequence.tokens.resize(*now);
    sequence.digests.resize(*now + 1);
    return {};
  }

  // Empty if every byte of the sequence matches its tokens; otherwise says what is wrong.
  std::string verify(const Sequence& sequence) {
    const auto length = pool_->length(sequence.id);
    if (!length || *length != sequence.tokens.size()) return "the pool has another length";
    const auto tokens = pool_->tokens(sequence.id);
    if (!std::equal(tokens->begin(), tokens->end(), sequence.tokens.begin())) return "the pool has other tokens";
    const StateLayout& layout = pool_->layout();
    for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
      for (std::uint32_t layer = 0; layer < layout.groups[g].num_layers; ++layer) {
        const auto view = pool_->kv_view(sequence.id, g, layer);
        if (!view) return "no view: " + view.error().message();
        run_kernel();
        const std::uint32_t window = layout.groups[g].window;
        const std::uint32_t needed = window == 0 || *length + 1 <= window ? 0 : *length + 1 - window;
        if (view->first > needed) return "part of the window is gone";
        for (std::uint32_t p = view->first; p < *length; ++p) {
          for (std::uint32_t head = 0; head < view->num_kv_heads; ++head) {
            const std::uint64_t k = stamp(sequence.digests[p + 1], g, layer, head, 0);
            const std::uint64_t v = stamp(sequence.digests[p + 1], g, layer, head, 1);
            if (std::memcmp(view->k(head, p), &k, sizeof k) != 0 ||
                (has_values(*view) && std::memcmp(view->v(head, p), &v, sizeof v) != 0)) {
              return "group " + std::to_string(g) + ", layer " + std::to_string(layer) + ", position " +
                     std::to_string(p) + " holds other bytes";
            }
          }
        }
      }
    }
    if (layout.has_recurrent()) {
      const auto view = pool_->state_view(sequence.id);
      run_kernel();
      if (!view || view->position != *length) return "the state stands elsewhere";
      std::vector<std::byte> expected(layout.recurrent.bytes());
      if (*length > 0) {
        StateView copy = *view;
        copy.base = expected.data();
        for (std::uint32_t layer = 0; layer < view->num_layers; ++layer)
          write_state(copy, layer, sequence.digests.back());
      }
      if (std::memcmp(expected.data(), view->base, expected.size()) != 0) return "the state holds other bytes";
    }
    return "";
  }

 private:
  static std::uint64_t stamp(std::uint64_t digest, std::uint64_t group, std::uint64_t layer, std::uint64_t head,
                             std::uint64_t v) {
    return mix(digest, group * 1000 + layer * 100 + head * 10 + v);
  }
  void write_state(const StateView& view, std::uint32_t layer, std::uint64_t digest) const {
    const StateShape& shape = pool_->layout().recurrent;
    const auto fill = [&](std::byte* to, std::uint64_t bytes, std::uint64_t salt) {
      for (std::uint64_t i = 0; i + 8 <= bytes; i += 8) {
        const std::uint64_t value = mix(digest, salt * 100000 + i);
        std::memcpy(to + i, &value, 8);
      }
    };
    fill(view.conv(layer), shape.conv_bytes, 2 * layer);
    fill(view.ssm(layer), shape.ssm_bytes, 2 * layer + 1);
  }
  static void remember(Sequence& sequence, const std::vector<Token>& tokens) {
    for (const Token token : tokens) {
      sequence.tokens.push_back(token);
      sequence.digests.push_back(digest(sequence.digests.back(), token));
    }
  }

  // The loops above play kernels: submitted work must be carried out before them.
  void run_kernel() {
    if (lazy_ != nullptr) lazy_->settle();
  }

  std::unique_ptr<SequencePool> pool_;
  CountingDevice* lazy_;  // the device, if it delays work
  Hit last_hit_;
};

}  // namespace quire::testing

#include "quire/bench/synth/numbers.h"

namespace quire::synth {
namespace {

Need must_if(bool condition) { return condition ? Need::must : Need::none; }
Need may_if(bool condition) { return condition ? Need::may : Need::none; }

Need always(const Family&, const Shape&) { return Need::must; }
Need with_attention(const Family& family, const Shape&) { return must_if(family.has_attention()); }
Need with_scan(const Family& family, const Shape&) { return must_if(family.has_scan()); }
Need with_ssm_heads(const Family& family, const Shape&) { return must_if(family.has_ssm_heads()); }
Need with_recurrence(const Family& family, const Shape&) { return must_if(family.recurrence != Recurrence::none); }
Need with_mamba1(const Family& family, const Shape&) { return must_if(family.recurrence == Recurrence::mamba1); }
Need with_latent(const Family& family, const Shape&) { return must_if(family.latent); }
Need with_q_rank(const Family& family, const Shape&) { return may_if(family.latent); }
Need with_rotation(const Family& family, const Shape&) { return must_if(family.partial_rotation); }
Need with_window(const Family& family, const Shape&) { return must_if(family.window); }
Need with_interval(const Family& family, const Shape&) { return must_if(family.attention == Attention::interval); }

// Where experts replace the block in all layers, the number is only written to the file.
Need with_feed_forward(const Family& family, const Shape& shape) {
  if (!family.has_feed_forward()) return Need::none;
  return shape.experts != 0 && shape.dense_layers == 0 ? may_if(!family.expert_width_is_ff) : Need::must;
}
Need of_experts(const Family& family, const Shape&) {
  return family.experts == Experts::optional ? Need::may : must_if(family.experts == Experts::always);
}
Need with_experts(const Family&, const Shape& shape) { return must_if(shape.experts != 0); }
Need with_shared_expert(const Family& family, const Shape& shape) {
  return may_if(family.shared_expert && shape.experts != 0);
}
Need with_dense_layers(const Family& family, const Shape&) { return may_if(family.dense_first); }

constexpr Number kNumbers[] = {
    {"layers", &Shape::layers, 1024, always},
    {"embedding", &Shape::embedding, 1 << 20, always},
    {"vocabulary", &Shape::vocabulary, 1 << 24, always},
    {"context", &Shape::context, 1 << 30, always},
    {"heads", &Shape::heads, 1 << 14, with_attention},
    {"kv-heads", &Shape::kv_heads, 1 << 14, with_attention},
    {"head-dim", &Shape::head_dim, 1 << 16, with_attention},
    {"rope-dim", &Shape::rope_dim, 1 << 16, with_rotation},
    {"window", &Shape::window, 1 << 30, with_window},
    {"kv-rank", &Shape::kv_rank, 1 << 16, with_latent},
    {"q-rank", &Shape::q_rank, 1 << 16, with_q_rank},
    {"value-dim", &Shape::value_dim, 1 << 16, with_latent},
    {"experts", &Shape::experts, 1 << 12, of_experts},
    {"experts-used", &Shape::experts_used, 1 << 12, with_experts},
    {"expert-feed-forward", &Shape::expert_feed_forward, 1 << 20, with_experts},
    {"shared-feed-forward", &Shape::shared_feed_forward, 1 << 20, with_shared_expert},
    {"dense-layers", &Shape::dense_layers, 1024, with_dense_layers},
    {"feed-forward", &Shape::feed_forward, 1 << 20, with_feed_forward},
    {"inner", &Shape::inner, 1 << 20, with_scan},
    {"state", &Shape::state, 1 << 14, with_scan},
    {"groups", &Shape::groups, 1 << 14, with_ssm_heads},
    {"ssm-heads", &Shape::ssm_heads, 1 << 14, with_ssm_heads},
    {"conv", &Shape::conv, 256, with_recurrence},
    {"dt-rank", &Shape::dt_rank, 1 << 16, with_mamba1},
    {"attention-interval", &Shape::attention_interval, 1024, with_interval},
};

}  // namespace

std::span<const Number> numbers() { return kNumbers; }

}  // namespace quire::synth

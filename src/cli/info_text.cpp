#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "quire/base/readable.h"
#include "quire/cli/info.h"
#include "quire/cli/layer_map.h"
#include "quire/cli/printable.h"
#include "quire/model/state_layout.h"

namespace quire::cli {

namespace {

using model::Layer;

constexpr std::size_t kLabel = 16;

// Writes headings and lines with a label and a value, in the given style.
class Page {
 public:
  explicit Page(const Style& style) : style_(style) {}

  void heading(std::string_view text) {
    if (!out_.empty()) out_ += '\n';
    append(style_.colour ? "\x1b[1m{}\x1b[0m\n" : "{}\n", text);
  }
  void line(std::string_view label, std::string_view value) { append("  {:<{}}{}\n", label, kLabel, value); }
  void raw(std::string_view text) { out_ += text; }

  // Text from the file, cut to the rest of the line.
  std::string shown(std::string_view text) const {
    const std::size_t room = style_.width > kLabel + 26 ? style_.width - kLabel - 6 : 20;
    return printable(text, {.limit = std::min(room, kMaxShown), .ascii = !style_.utf8});
  }

  template <typename... Args>
  void append(std::string_view format, const Args&... args) {
    fmt::format_to(std::back_inserter(out_), fmt::runtime(format), args...);
  }

  std::string take() { return std::move(out_); }

 private:
  const Style& style_;
  std::string out_;
};

// "4", or "2 to 8" if layers differ. Of the attention layers only, or of all layers.
std::string range_of(const model::Hyperparameters& model, std::uint32_t Layer::*member) {
  std::uint32_t least = UINT32_MAX, most = 0;
  for (const Layer& layer : model.layers) {
    if (layer.kv_heads == 0 && member != &Layer::feed_forward) continue;
    least = std::min(least, layer.*member);
    most = std::max(most, layer.*member);
  }
  return least == most ? grouped(most) : fmt::format("{} to {}", grouped(least), grouped(most));
}

std::string both_units(std::uint64_t bytes) {
  return bytes < 1024 ? in_units(bytes) : fmt::format("{} bytes ({})", grouped(bytes), in_units(bytes));
}

// Empty: the model has no recurrent layers.
std::string recurrent_line(const model::Hyperparameters& model) {
  const model::BlockKind kind = model.architecture->recurrent_kind();
  if (!model::is_recurrent(kind) || model.count(kind) == 0) return {};
  const model::RecurrentShape& shape = model.recurrent;
  switch (kind) {
    case model::BlockKind::Mamba1:
      return fmt::format("Mamba-1, {} channels, state size {}, steps of rank {}, convolution {}", shape.inner,
                         shape.state, shape.rank, shape.conv_kernel);
    case model::BlockKind::ShortConv:
      return fmt::format("short convolution {} of {} channels", shape.conv_kernel, shape.inner);
    case model::BlockKind::DeltaRule:
      return fmt::format("gated delta rule, {} heads of {} x {}, {} of keys, convolution {}", shape.heads, shape.state,
                         shape.inner / shape.heads, shape.groups, shape.conv_kernel);
    default:
      return fmt::format("Mamba-2, {} heads of {} channels, state size {}, convolution {}", shape.heads,
                         shape.inner / shape.heads, shape.state, shape.conv_kernel);
  }
}

void add_experts(Page& page, const model::Hyperparameters& model) {
  const model::ExpertShape& experts = model.experts;
  if (experts.count == 0) return;
  page.line("experts", fmt::format("{}, {} for each token", experts.count, experts.used));
  std::string router(experts.scores == Router::Scores::Softmax   ? "softmax"
                     : experts.scores == Router::Scores::Sigmoid ? "sigmoid"
                                                                 : "softmax over the chosen experts");
  if (experts.groups > 1) router += fmt::format(", {} of {} groups", experts.groups_used, experts.groups);
  if (experts.normed) router += ", weights add up to 1";
  page.line("router", router);
  if (experts.shared_inner == 0) return;
  page.line("shared expert", fmt::format("{}{}", grouped(experts.shared_inner),
                                         model.architecture->shared_expert_gate ? ", with a gate" : ""));
}

// How the model knows where a token is, unless it is plain rotary embeddings in every layer.
void add_positions(Page& page, const ModelFacts& facts) {
  const model::Hyperparameters& model = facts.model;
  const auto unrotated = std::ranges::count_if(model.layers, &Layer::unrotated);
  const std::uint32_t layers = model.count(model::BlockKind::Attention);
  if (model.architecture->learned_positions) {
    page.line("positions", fmt::format("learned, a table of {}", grouped(model.context_length)));
  } else if (unrotated > 0) {
    page.line("positions", fmt::format("rotary, in {} of {} layers with attention", layers - unrotated, layers));
  }
  using Kind = model::RopeScaling::Kind;
  const model::RopeScaling& scaling = facts.rope_scaling;
  const std::string original = grouped(scaling.original_length);
  switch (scaling.kind) {
    case Kind::None: break;
    case Kind::Linear: page.line("rotary scaling", fmt::format("linear, by {}", scaling.factor)); break;
    case Kind::Yarn:
      page.line("rotary scaling", fmt::format("YaRN, by {} from {} tokens", scaling.factor, original));
      break;
    case Kind::LongRope:
      page.line("rotary scaling",
                scaling.long_factors
                    ? fmt::format("longrope, long factors (short ones with --ctx {} or less)", original)
                    : fmt::format("longrope, short factors (long ones with --ctx above {})", original));
      break;
  }
}

void add_model(Page& page, const ModelFacts& facts) {
  const model::Hyperparameters& model = facts.model;
  page.line("architecture", fmt::format("{} ({})", model.architecture->name, model.architecture->title));
  page.line("parameters", facts.tensors == 0
                              ? "none: the file has no tensors"
                              : fmt::format("{} ({})", grouped(facts.parameters), in_millions(facts.parameters)));
  page.line("file", fmt::format("{}, GGUF version {}", both_units(facts.bytes), facts.version));
  page.line("context", fmt::format("{} tokens", grouped(model.context_length)));
  page.line("vocabulary", fmt::format("{} tokens", grouped(model.vocabulary)));
  page.line("embedding", grouped(model.embedding));
  const std::string feed_forward = range_of(model, &Layer::feed_forward);
  if (feed_forward != "0") page.line("feed-forward", feed_forward);
  add_experts(page, model);
  const std::uint32_t unused = model.extra_layers - (model.head ? 1 : 0);
  if (model.head && facts.head_problem.empty()) {
    page.line("head", "1 layer after the last guesses further tokens (--speculate heads)");
  } else if (model.head) {
    page.line("head", "1 layer after the last, which cannot be used: " + page.shown(facts.head_problem));
  }
  if (unused > 0) {
    page.line("not used", fmt::format("{} layer{} after the last that predict{} further tokens", unused,
                                      unused == 1 ? "" : "s", unused == 1 ? "s" : ""));
  }
  if (model.count(model::BlockKind::Attention) > 0) {
    std::string size = grouped(model.key_length);
    if (model.value_length != model.key_length) size += fmt::format(" (values {})", grouped(model.value_length));
    page.line("attention", fmt::format("{} heads, {} for keys and values, of {} elements{}",
                                       range_of(model, &Layer::heads), range_of(model, &Layer::kv_heads), size,
                                       model.architecture->gated_attention   ? "; outputs have gates"
                                       : model.architecture->attention_sinks ? "; heads have sinks"
                                                                             : ""));
  }
  if (model.count(model::BlockKind::LatentAttention) > 0) {
    const model::LatentShape& latent = model.latent;
    page.line("attention", fmt::format("latent, {} heads of {} elements ({} rotated), values {}",
                                       range_of(model, &Layer::heads), latent.query(), latent.rotated, latent.value));
    page.line("latent", fmt::format("{} elements, and {} rotated, for all heads", latent.kv_rank, latent.rotated));
  }
  if (model.attends()) add_positions(page, facts);
  if (const std::string recurrent = recurrent_line(model); !recurrent.empty()) {
    page.line("recurrent", recurrent);
    page.line("checkpoints", fmt::format("at multiples of {} tokens", model::checkpoint_unit_for(facts.block_size)));
  }
}

void add_parts(Page& page, const ModelFacts& facts) {
  if (facts.parts.size() < 2) return;
  page.heading(fmt::format("Files: {}", facts.parts.size()));
  for (const gguf::File::Part& part : facts.parts) {
    page.append("  {:>10}  {:>6} tensors  {}\n", in_units(part.bytes), grouped(part.tensors), page.shown(part.path));
  }
}

void add_tensors(Page& page, const ModelFacts& facts) {
  if (facts.tensors == 0) return;
  page.heading(fmt::format("Tensors: {}", grouped(facts.tensors)));
  for (const ModelFacts::TensorType& type : facts.types) {
    page.append("  {:<8}{:>8} x {:>18} bytes\n", gguf::type_name(type.type), grouped(type.tensors),
                grouped(type.bytes));
  }
}

void add_text(Page& page, const ModelFacts& facts) {
  page.heading("Text");
  if (facts.tokenizer) {
    const ModelFacts::TokenizerFacts& tokenizer = *facts.tokenizer;
    std::string kind = page.shown(tokenizer.model);
    if (!tokenizer.kind.empty()) kind = fmt::format("{} ({})", tokenizer.kind, kind);
    if (!tokenizer.pre.empty()) kind += fmt::format(", pre-tokenizer {}", page.shown(tokenizer.pre));
    if (!tokenizer.supported) kind += ", which Quire cannot use";
    page.line("tokenizer", kind);
    for (const ModelFacts::SpecialToken& token : tokenizer.special) {
      page.line(token.role, fmt::format("{} {}", token.id, page.shown(token.spelling)));
    }
  } else {
    page.line("tokenizer", "none");
  }
  page.line("chat template", facts.chat_template_bytes ? in_units(*facts.chat_template_bytes) : "none");
}

void add_state(Page& page, const ModelFacts& facts) {
  const auto line = [&](std::string_view label, auto value) {
    page.append("  {:<24}", label);
    for (const ModelFacts::KvChoice& choice : facts.states) page.append("{:>16}", value(choice));
    page.append("\n");
  };
  const auto bytes = [&](std::string_view label, auto of_cost) {
    line(label, [&](const ModelFacts::KvChoice& choice) { return grouped(of_cost(choice.cost)); });
  };
  page.heading("State, in bytes");
  line("keys and values as", [](const ModelFacts::KvChoice& choice) {
    return choice.type == ElementType::F16 ? "f16, bf16" : name(choice.type);
  });
  bytes("per token", [](const model::StateCost& cost) { return cost.bytes_per_token + cost.window_bytes_per_token; });
  if (facts.states.front().cost.window_bytes_per_token > 0)
    bytes("  only in the window", [](const model::StateCost& cost) { return cost.window_bytes_per_token; });
  bytes("per sequence", [](const model::StateCost& cost) { return cost.fixed_bytes; });
  bytes(fmt::format("{} tokens", grouped(facts.model.context_length)),
        [](const model::StateCost& cost) { return cost.total_bytes; });
  if (facts.states.front().cost.unfilled_bytes > 0) {
    bytes("  of it empty, at most", [](const model::StateCost& cost) { return cost.unfilled_bytes; });
    page.append("  Pages of {} tokens. The last page of a sequence is half empty on average.\n", facts.block_size);
  }
  if (facts.recurrent_bytes.empty()) return;
  page.append("  {:<24}", "recurrent states as");
  for (const auto& [type, size] : facts.recurrent_bytes) page.append("{:>16}", name(type));
  page.append("\n  {:<24}", "per sequence");
  for (const auto& [type, size] : facts.recurrent_bytes) page.append("{:>16}", grouped(size));
  page.append("\n");
}

}  // namespace

std::string info_text(const ModelFacts& facts, const Style& style) {
  Page page(style);
  page.heading(facts.name.empty() ? "(no name)" : page.shown(facts.name));
  add_model(page, facts);
  page.heading(fmt::format("Layers: {}", facts.model.layers.size()));
  page.raw(layer_map(facts.model.layers, style));
  add_state(page, facts);
  add_text(page, facts);
  add_tensors(page, facts);
  add_parts(page, facts);
  return page.take();
}

}  // namespace quire::cli

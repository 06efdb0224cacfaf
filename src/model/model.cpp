#include "quire/model/model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "quire/model/loader.h"
#include "quire/model/state_layout.h"

namespace quire::model {
namespace {

// Declares the tensors of the blocks of each layer.
void declare_layers(TensorTable& table, const Hyperparameters& model, std::vector<JoinedBlock>& blocks) {
  auto block = blocks.begin();
  for (std::uint32_t i = 0; i < model.layers.size(); ++i) {
    table.enter(model.head_layer + i);
    for (const BlockSpec& spec : model.architecture->blocks) {
      if (!model.layers[i].has(spec.kind)) continue;
      if (!spec.norm.empty()) table.vector(spec.norm, model.embedding, block->norm);
      if (!spec.norm_bias.empty()) table.vector(spec.norm_bias, model.embedding, block->norm_bias);
      block->block->declare(table);
      if (!spec.post_norm.empty()) table.vector(spec.post_norm, model.embedding, block->post_norm);
      ++block;
    }
  }
}

// Declares all tensors: those of the model itself, then those of the blocks of each layer.
void declare(TensorTable& table, const Hyperparameters& model, std::vector<JoinedBlock>& blocks, ModelTensors& own) {
  const bool tied = !table.file_has("output.weight");
  table.matrix("token_embd.weight", model.vocabulary, model.embedding, own.embedding, Presence::Required,
               tied ? WeightUse::Both : WeightUse::Lookup);
  if (model.architecture->learned_positions) {
    table.matrix("position_embd.weight", model.context_length, model.embedding, own.positions, Presence::Required,
                 WeightUse::Lookup);
  }
  table.vector(model.architecture->final_norm, model.embedding, own.norm);
  if (model.architecture->norm_biases()) table.vector("output_norm.bias", model.embedding, own.norm_bias);
  table.matrix("output.weight", model.vocabulary, model.embedding, own.output, Presence::Optional);
  table.vector("output.bias", model.vocabulary, own.output_bias, Presence::Optional);
  if (model.attends()) {
    // Read by constants.cpp.
    table.known("rope_freqs.weight");
    table.known("rope_factors_long.weight");
    table.known("rope_factors_short.weight");
  }
  declare_layers(table, model, blocks);
}

// Declares the tensors of a head. What it shares with the model is not in its layer.
void declare_head(TensorTable& table, const Hyperparameters& head, std::vector<JoinedBlock>& blocks,
                  ModelTensors& own) {
  table.enter(head.head_layer);
  table.matrix("nextn.eh_proj.weight", head.embedding, 2 * std::uint64_t{head.embedding}, own.joined);
  table.vector("nextn.enorm.weight", head.embedding, own.token_norm);
  table.vector("nextn.hnorm.weight", head.embedding, own.hidden_norm);
  table.matrix("nextn.embed_tokens.weight", head.vocabulary, head.embedding, own.embedding, Presence::Optional,
               WeightUse::Lookup);
  table.matrix("nextn.shared_head_head.weight", head.vocabulary, head.embedding, own.output, Presence::Optional);
  table.vector("nextn.shared_head_norm.weight", head.embedding, own.norm, Presence::Optional);
  declare_layers(table, head, blocks);
}

// The hyperparameters of a model's head.
Hyperparameters of_head(const Hyperparameters& model) {
  Hyperparameters head = model;
  head.layers = {*model.head};
  head.head_layer = static_cast<std::uint32_t>(model.layers.size());
  head.extra_layers = 0;
  head.head.reset();
  return head;
}

// Every layer has a tensor. A number of layers that cannot be right is refused before memory is taken for their blocks.
Result<void> check_layers(const gguf::File& file, const Hyperparameters& model) {
  if (model.layers.size() <= file.tensor_count()) return {};
  return fail(fmt::format("{}: metadata '{}.block_count': {} layers, but the file has {} tensors", file.path(),
                          model.architecture->name, model.layers.size() + model.extra_layers, file.tensor_count()));
}

// A step in which every row of logits gives a token. Penalties and biases can be long lists, so the first ones have
// more room than the others.
sampling::Limits limits_for(std::uint32_t max_logits, std::uint32_t vocabulary) {
  constexpr std::uint32_t kListed = 1024, kFirstListed = 1 << 16, kReported = 32, kFirstReported = 1024;
  if (vocabulary > sampling::kMostTokens) return {};
  return {.vocabulary = vocabulary,
          .jobs = max_logits,
          .listed = kFirstListed + max_logits * kListed,
          .reported = kFirstReported + max_logits * kReported};
}

}  // namespace

std::vector<JoinedBlock> make_blocks(const Hyperparameters& model) {
  std::vector<JoinedBlock> blocks;
  // Blocks must not move later: tables point to their tensors.
  blocks.reserve(model.layers.size() * model.architecture->blocks.size());
  for (const Layer& layer : model.layers) {
    const std::size_t first = blocks.size();
    for (const BlockSpec& spec : model.architecture->blocks) {
      if (!layer.has(spec.kind)) continue;
      JoinedBlock& to = blocks.emplace_back();
      to.join = spec.join;
      to.post_normed = !spec.post_norm.empty();
      to.block = make_block(spec.kind, model, layer);
      if (spec.join == Join::Beside && blocks.size() - first > 1) blocks[blocks.size() - 2].shares_input = true;
    }
  }
  return blocks;
}

Result<void> check_tensors(const gguf::File& file, const Hyperparameters& model) {
  if (file.tensor_count() == 0) return {};  // a file of metadata only
  if (auto ok = check_layers(file, model); !ok) return ok;
  std::vector<JoinedBlock> blocks = make_blocks(model);
  ModelTensors own;
  TensorTable table(file);
  declare(table, model, blocks, own);
  return table.check(static_cast<std::uint32_t>(model.layers.size()), model.architecture->name, model.extra_layers);
}

Result<void> check_head(const gguf::File& file, const Hyperparameters& model) {
  if (!model.head) {
    return fail(fmt::format("{}: has no layer that guesses further tokens ('{}.nextn_predict_layers')", file.path(),
                            model.architecture->name));
  }
  // Together with the model's, since an optional tensor is in all layers or in none.
  std::vector<JoinedBlock> blocks = make_blocks(model);
  ModelTensors own;
  TensorTable table(file);
  declare(table, model, blocks, own);
  const Hyperparameters head = of_head(model);
  std::vector<JoinedBlock> head_blocks = make_blocks(head);
  ModelTensors head_own;
  declare_head(table, head, head_blocks, head_own);
  return table.check(static_cast<std::uint32_t>(model.layers.size()) + 1, model.architecture->name,
                     model.extra_layers - 1);
}

Result<std::unique_ptr<Model>> Model::load(const std::string& path, std::uint32_t context) {
  auto file = gguf::File::open(path);
  if (!file) return std::unexpected(file.error());
  return create(std::move(*file), nullptr, context);
}

Result<std::unique_ptr<Model>> Model::create(gguf::File file, const Architecture* row, std::uint32_t context) {
  std::unique_ptr<Model> model(new Model(std::make_shared<const gguf::File>(std::move(file))));
  auto hyperparameters = read_hyperparameters(*model->file_, row);
  if (!hyperparameters) return std::unexpected(hyperparameters.error());
  model->hyperparameters_ = std::move(*hyperparameters);
  auto constants = read_constants(*model->file_, model->hyperparameters_, context);
  if (!constants) return std::unexpected(constants.error());
  model->constants_ = std::move(*constants);
  if (auto ok = check_layers(*model->file_, model->hyperparameters_); !ok) return std::unexpected(ok.error());
  if (const auto layout = model->layout(kDefaultBlockSize, ElementType::F16); !layout) {
    return std::unexpected(layout.error());
  }

  if (auto ok = check_tensors(*model->file_, model->hyperparameters_); !ok) return std::unexpected(ok.error());
  model->blocks_ = make_blocks(model->hyperparameters_);
  TensorTable table(*model->file_);
  model->tied_ = !table.file_has("output.weight");
  declare(table, model->hyperparameters_, model->blocks_, model->tensors_);
  auto bindings = table.bind();
  if (!bindings) return std::unexpected(bindings.error());
  model->bindings_ = std::move(*bindings);
  return model;
}

Result<std::unique_ptr<Model>> Model::head() const {
  if (auto ok = check_head(*file_, hyperparameters_); !ok) return std::unexpected(ok.error());
  std::unique_ptr<Model> head(new Model(file_));
  head->whole_ = this;
  head->hyperparameters_ = of_head(hyperparameters_);
  head->constants_ = constants_;
  if (const auto layout = head->layout(kDefaultBlockSize, ElementType::F16); !layout) {
    return std::unexpected(layout.error());
  }
  head->blocks_ = make_blocks(head->hyperparameters_);
  TensorTable table(*file_);
  declare_head(table, head->hyperparameters_, head->blocks_, head->tensors_);
  auto bindings = table.bind();
  if (!bindings) return std::unexpected(bindings.error());
  head->bindings_ = std::move(*bindings);
  return head;
}

const char* Model::arithmetic() const {
  if (constants_.rope_scaling.kind != RopeScaling::Kind::LongRope) return "";
  return constants_.rope_scaling.long_factors ? ", long factors" : ", short factors";
}

Result<StateLayout> Model::layout(std::uint32_t block_size, ElementType kv_type, ElementType state_type) const {
  auto layout = state_layout(hyperparameters_, block_size, kv_type, state_type);
  if (!layout) return fail(file_->path() + ": " + layout.error().message);
  return layout;
}

Result<void> Model::prepare(Backend& backend, std::uint32_t max_rows, std::uint32_t max_logits) {
  const auto layout = this->layout(kDefaultBlockSize, ElementType::F16);
  if (!layout) return std::unexpected(layout.error());
  max_rows_ = max_logits_ = 0;  // nothing can be run until everything is there
  sampling_limits_ = limits_for(max_logits, hyperparameters_.vocabulary);
  backend_ = &backend;
  Backend::Sizes sizes{.rows = std::max(max_rows, max_logits),
                       .cols = hyperparameters_.embedding,
                       .groups = static_cast<std::uint32_t>(layout->groups.size()),
                       .rank = 0,
                       .read = std::uint64_t{max_logits} * (hyperparameters_.vocabulary + hyperparameters_.embedding),
                       .sampling = sampling_limits_};
  if (hyperparameters_.head) sizes.read += std::uint64_t{max_rows} * hyperparameters_.embedding;
  if (whole_ != nullptr) sizes.cols = 2 * hyperparameters_.embedding;
  for (const Adapter& adapter : adapters_) sizes.rank = std::max(sizes.rank, adapter.rank());
  auto place = layout->places.begin();
  for (JoinedBlock& joined : blocks_) {
    const bool has_state = joined.block->state(ElementType::F16, ElementType::F32).kind != LayerDesc::Kind::Stateless;
    joined.block->place(backend, has_state ? *place++ : StateLayout::Place{});
    joined.block->widen(sizes);
  }
  if (auto ok = backend.prepare(sizes); !ok) return refuse(ok.error());
  if (auto ok = take_buffers(max_rows, max_logits); !ok) return ok;

  auto computed = compute_vectors();
  if (!computed) return std::unexpected(computed.error());
  weights_ = {};
  auto weights = load_weights(backend, *file_, bindings_, *computed);
  if (!weights) return std::unexpected(weights.error());
  weights_ = std::move(*weights);
  if (tied_) tensors_.output = tensors_.embedding;
  if (whole_ != nullptr) borrow();
  if (auto ok = load_adapters(); !ok) return ok;
  max_rows_ = max_rows;
  max_logits_ = max_logits;
  return {};
}

// What a head has no tensors for is the model's. Adapters are not: they are chosen for the model's rows.
void Model::borrow() {
  const ModelTensors& whole = whole_->tensors_;
  if (!tensors_.embedding.valid()) tensors_.embedding = whole.embedding;
  if (!tensors_.output.valid()) {
    tensors_.output = whole.output;
    tensors_.output_bias = whole.output_bias;
  }
  if (!tensors_.norm.valid()) tensors_.norm = whole.norm;
  tensors_.embedding.adapters = tensors_.output.adapters = nullptr;
}

Result<std::vector<HostVector>> Model::compute_vectors() {
  std::vector<HostVector> computed = {{constants_.frequencies, &frequencies_},
                                      {constants_.window_frequencies, &window_frequencies_}};
  const FileSources sources(*file_, bindings_);
  const Tensor* norm = nullptr;  // of two blocks side by side, the first has it
  for (JoinedBlock& joined : blocks_) {
    if (joined.join == Join::After) norm = &joined.norm;
    if (auto ok = joined.block->compute(sources, *norm, constants_, computed); !ok) {
      return fail(file_->path() + ": " + ok.error().message);
    }
  }
  return computed;
}

std::unexpected<Error> Model::refuse(const PoolError& error) const {
  return fail(file_->path() + ": " + error.message());
}

Result<void> Model::take_buffers(std::uint32_t max_rows, std::uint32_t max_logits) {
  const std::uint32_t width = hyperparameters_.embedding;
  const auto angles = static_cast<std::uint32_t>(constants_.frequencies.size());
  const bool shares = std::ranges::any_of(blocks_, &JoinedBlock::shares_input);
  const bool post_norms = std::ranges::any_of(blocks_, &JoinedBlock::post_normed);
  const std::uint32_t cols[kBuffers] = {width,
                                        shares ? width : 0,
                                        post_norms ? width : 0,
                                        angles,
                                        angles,
                                        angles,
                                        angles,
                                        width,
                                        width,
                                        hyperparameters_.vocabulary,
                                        hyperparameters_.head ? width : 0,
                                        whole_ != nullptr ? width : 0,
                                        whole_ != nullptr ? 2 * width : 0};
  for (std::uint8_t which = 0; which < kBuffers; ++which) {
    const std::uint64_t rows = which >= kLast && which <= kLogits ? max_logits : max_rows;
    auto memory = DeviceBuffer::create(backend_->device(), rows * cols[which] * sizeof(float));
    if (!memory) return refuse(memory.error());
    buffers_[which] = std::move(*memory);
  }
  std::uint64_t scratch = 0;
  for (const JoinedBlock& joined : blocks_) scratch = std::max(scratch, joined.block->scratch_bytes(max_rows));
  auto memory = DeviceBuffer::create(backend_->device(), scratch);
  if (!memory) return refuse(memory.error());
  scratch_ = std::move(*memory);
  return {};
}

PoolResult<StepOutput> Model::forward(const Batch& batch, const StepWants& wants) {
  if (auto ok = check_positions(batch); !ok) return std::unexpected(ok.error());
  if (auto ok = check_adapters(batch); !ok) return std::unexpected(ok.error());
  const std::uint32_t width = hyperparameters_.embedding;
  const Tensor x = buffer(kResidual, batch.rows(), width);
  if (whole_ != nullptr) {
    if (wants.given.size() != std::size_t{batch.rows()} * width) {
      return std::unexpected(PoolError::invalid_argument("a head needs a hidden state for each row"));
    }
    const auto ok = backend_->device().upload(buffers_[kGiven].data(), wants.given.data(), wants.given.size_bytes());
    if (!ok) return std::unexpected(ok.error());
  }
  backend_->begin(batch);
  backend_->embed(x, tensors_.embedding, constants_.embedding_scale);
  if (tensors_.positions.valid()) backend_->add_positions(x, tensors_.positions);
  if (whole_ != nullptr) join_inputs(x);
  walk_layers(begin_step(batch), x);

  const auto wanted = static_cast<std::uint32_t>(batch.wanted().size());
  StepOutput output{.picked = {}, .logits = {.cols = hyperparameters_.vocabulary}};
  if (wanted > 0) {
    const Tensor last = buffer(kLast, wanted, width), logits = buffer(kLogits, wanted, hyperparameters_.vocabulary);
    backend_->gather_wanted(last, x);
    if (!wants.hidden.empty()) {
      const Tensor hidden = buffer(kHidden, wanted, width);
      norm(hidden, last, tensors_.norm, tensors_.norm_bias);
      output.hidden = backend_->read_rows(hidden, wants.hidden);
    }
    const bool only_hidden = !wants.hidden.empty() && wants.jobs.empty() && wants.logits.empty();
    if (!only_hidden) compute_logits(last, logits);
    if (!wants.jobs.empty()) output.picked = backend_->sample(logits, wants.jobs, wants.masks);
    if (!wants.logits.empty()) output.logits = backend_->read_rows(logits, wants.logits);
  }
  if (wants.every_hidden && hyperparameters_.head) {
    const Tensor every = buffer(kEvery, batch.rows(), width);
    norm(every, x, tensors_.norm, tensors_.norm_bias);
    output.every_hidden = backend_->read(every);
  }
  if (auto ok = backend_->finish(); !ok) return std::unexpected(ok.error());
  return output;
}

// The input of a head's layer, from the embeddings in x and the hidden states that were given.
void Model::join_inputs(Tensor x) {
  const std::uint32_t width = x.cols;
  const Tensor given = buffer(kGiven, x.rows, width), joined = buffer(kJoined, x.rows, 2 * width);
  norm(joined.columns(0, width), x, tensors_.token_norm, {});
  norm(joined.columns(width, width), given, tensors_.hidden_norm, {});
  const Product product{.out = x, .weight = &tensors_.joined};
  backend_->matmul({&product, 1}, Input::plain(joined));
}

void Model::compute_logits(Tensor rows, Tensor logits) {
  const Product product{.out = logits, .weight = &tensors_.output, .bias = tensors_.output_bias};
  backend_->matmul({&product, 1}, normed(rows, tensors_.norm, tensors_.norm_bias));
  backend_->cap_and_scale(logits, constants_.logit_cap, constants_.logit_scale);
}

// Learned positions end where their table does.
PoolResult<void> Model::check_positions(const Batch& batch) const {
  if (!tensors_.positions.valid()) return {};
  for (const BatchEntry& entry : batch.entries()) {
    const std::uint64_t tokens = std::uint64_t{entry.position} + entry.rows;
    if (tokens > tensors_.positions.rows) {
      return std::unexpected(PoolError::too_long("tokens of a sequence", tokens, tensors_.positions.rows));
    }
  }
  return {};
}

PoolResult<void> Model::check_adapters(const Batch& batch) const {
  for (const BatchEntry& entry : batch.entries()) {
    if (entry.adapter <= adapters_.size()) continue;
    return std::unexpected(PoolError::invalid_argument("an adapter that the model does not have"));
  }
  return {};
}

Input Model::normed(Tensor x, Tensor weight, Tensor bias) const {
  if (hyperparameters_.architecture->norm == NormKind::Rms) return Input::normed(x, weight, constants_.epsilon);
  return Input::layer_normed(x, weight, bias, constants_.epsilon);
}

void Model::norm(Tensor out, Tensor x, Tensor weight, Tensor bias) {
  if (hyperparameters_.architecture->norm == NormKind::Rms) {
    backend_->rms_norm(out, x, weight, constants_.epsilon);
  } else {
    backend_->layer_norm(out, x, weight, bias, constants_.epsilon);
  }
}

// What all layers share: the rotary angles of the step's positions.
BlockStep Model::begin_step(const Batch& batch) {
  BlockStep step{.constants = constants_, .scratch = scratch_.data()};
  const auto angles = static_cast<std::uint32_t>(constants_.frequencies.size());
  if (angles == 0) return step;
  step.cosines = buffer(kCos, batch.rows(), angles);
  step.sines = buffer(kSin, batch.rows(), angles);
  step.window_cosines = buffer(kWindowCos, batch.rows(), angles);
  step.window_sines = buffer(kWindowSin, batch.rows(), angles);
  backend_->rope_angles(step.cosines, step.sines, frequencies_, constants_.rope_magnitude);
  backend_->rope_angles(step.window_cosines, step.window_sines, window_frequencies_, constants_.window_rope_magnitude);
  return step;
}

// The output of a block is added to the residual stream x. If it has a post-norm, it goes through a buffer first. Two
// blocks side by side read a normed copy of the stream, since the first adds to the stream before the second reads.
void Model::walk_layers(const BlockStep& step, Tensor x) {
  const Tensor shared = buffer(kNormed, x.rows, x.cols), output = buffer(kOutput, x.rows, x.cols);
  Input in = Input::plain(x);
  for (const JoinedBlock& joined : blocks_) {
    if (joined.join == Join::After) {
      in = joined.norm.valid() ? normed(x, joined.norm, joined.norm_bias) : Input::plain(x);
      if (joined.shares_input) {
        norm(shared, x, joined.norm, joined.norm_bias);
        in = Input::plain(shared);
      }
    }
    const bool post = joined.post_normed;
    joined.block->forward(step, in, {.out = post ? output : x, .add = !post, .scale = constants_.residual_scale});
    if (!post) continue;
    norm(output, output, joined.post_norm, {});
    backend_->add(x, output, constants_.residual_scale);
  }
}

}  // namespace quire::model

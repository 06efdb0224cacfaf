#include "quire/engine/model_drafter.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "quire/engine/request.h"
#include "quire/gguf/gguf.h"

namespace quire::engine {
namespace {

constexpr double kMemory = 0.9;  // weight of earlier calls in what a guess costs

}  // namespace

// A choice's sequence in the pool of the smaller model.
class ModelDrafter::Sequence final : public DrafterMemory {
 public:
  explicit Sequence(ModelDrafter& drafter) : drafter_(&drafter) {}
  ~Sequence() override {
    close();
    drafter_->forget(*this);
  }
  void close_copy() {
    if (copy.valid()) (void)drafter_->hosted_->pool().release(copy);
    copy = SequenceId{};
  }
  void close() {
    close_copy();
    if (id.valid()) (void)drafter_->hosted_->pool().release(id);
    id = SequenceId{};
  }
  SequenceId id;
  SequenceId copy;         // of recurrent models, during a call
  std::uint64_t used = 0;  // the last call that drafted with it

 private:
  ModelDrafter* drafter_;
};

Result<void> same_vocabulary(const model::Model& main, const model::Model& draft) {
  const std::string& file = draft.file().path();
  const std::uint32_t ours = main.hyperparameters().vocabulary, theirs = draft.hyperparameters().vocabulary;
  if (ours != theirs) {
    return fail(fmt::format("{}: a vocabulary of {} tokens cannot draft for one of {}", file, theirs, ours));
  }
  const auto tokens_of = [](const model::Model& model) {
    const auto entry = model.file().find("tokenizer.ggml.tokens");
    const auto tokens = entry ? entry->value.as_array<std::string_view>() : std::nullopt;
    return tokens ? tokens->to_vector() : std::vector<std::string_view>();
  };
  const auto a = tokens_of(main), b = tokens_of(draft);
  if (a.empty() || b.empty()) return {};
  const auto [at, other] = std::ranges::mismatch(a, b);
  if (at == a.end() && other == b.end()) return {};
  return fail(fmt::format("{}: another vocabulary than the model's: token {} is another one", file, at - a.begin()));
}

ModelDrafter::ModelDrafter(std::unique_ptr<HostedModel> hosted) : hosted_(std::move(hosted)) {
  keeps_states_ = hosted_->pool().layout().has_recurrent();
  most_ = hosted_->pool().config().max_sequences / (keeps_states_ ? 2 : 1);
  batch_ =
      Batch(hosted_->executor().max_rows(), most_, static_cast<std::uint32_t>(hosted_->pool().layout().groups.size()));
  open_.reserve(most_);
  writing_.reserve(most_);
  in_step_.reserve(most_);
  jobs_.reserve(most_);
}

ModelDrafter::~ModelDrafter() = default;

void ModelDrafter::forget(const Sequence& sequence) {
  std::erase(open_, &sequence);
  std::erase_if(writing_, [&](const Writing& each) { return each.sequence == &sequence; });
}

ModelDrafter::Sequence* ModelDrafter::sequence_of(Drafts& drafts) {
  if (!drafts.memory) {
    try {
      drafts.memory = std::make_unique<Sequence>(*this);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  auto& sequence = static_cast<Sequence&>(*drafts.memory);
  sequence.used = calls_;
  return sequence.id.valid() || open(sequence) ? &sequence : nullptr;
}

bool ModelDrafter::open(Sequence& sequence) {
  if (open_.size() == most_ && !give_up_one(sequence)) return false;
  for (;;) {
    if (const auto created = hosted_->pool().create({})) {
      sequence.id = created->id;
      open_.push_back(&sequence);
      return true;
    }
    if (!give_up_one(sequence)) return false;
  }
}

// The sequence that has not drafted for longest leaves. None that drafts in this call does.
bool ModelDrafter::give_up_one(const Sequence& but) {
  Sequence* oldest = nullptr;
  for (Sequence* each : open_) {
    if (each == &but || each->used == calls_) continue;
    if (oldest == nullptr || each->used < oldest->used) oldest = each;
  }
  if (oldest == nullptr) return false;
  oldest->close();
  std::erase(open_, oldest);
  return true;
}

bool ModelDrafter::reserve(const Sequence& sequence, SequenceId id, std::uint32_t rows) {
  while (!hosted_->pool().reserve(id, rows)) {
    if (!give_up_one(sequence)) return false;
  }
  return true;
}

// The sequence ends where it and the text part.
bool ModelDrafter::rewind(const Drafts& drafts, Sequence& sequence) {
  SequencePool& pool = hosted_->pool();
  const std::span<const Token> known = *pool.tokens(sequence.id);
  const auto part = std::ranges::mismatch(known, drafts.text.first(drafts.text.size() - 1)).in1;
  return part == known.end() || pool.rewind(sequence.id, static_cast<std::uint32_t>(part - known.begin()));
}

// Adds rows for a sequence to the batch. With `last`, a token is sampled after them.
void ModelDrafter::add(const Writing& writing, SequenceId id, std::span<const Token> tokens, bool last) {
  batch_.add(id, tokens, last ? Logits::Last : Logits::None);
  if (!last) return;
  jobs_.push_back({.row = static_cast<std::uint32_t>(jobs_.size()), .rule = sampling::rule_of(0, 0, 1, 0)});
  in_step_.push_back(writing);
}

void ModelDrafter::begin_batch() {
  batch_.clear();
  jobs_.clear();
  in_step_.clear();
}

// Computes the batch and takes the guesses. False: there was none, or the device has failed.
bool ModelDrafter::compute() {
  if (batch_.empty()) return false;
  const auto output = hosted_->executor().forward(batch_, {.jobs = jobs_, .logits = {}});
  broken_ = !output || !hosted_->pool().commit(batch_);
  if (broken_) return false;
  for (std::size_t i = 0; i < in_step_.size(); ++i) {
    Drafts& drafts = *in_step_[i].drafts;
    const Token token = output->picked[i].token;
    if (token < 0) {
      drafts.most = drafts.count;  // all logits are NaN
    } else {
      drafts.tokens[drafts.count++] = token;
    }
  }
  return true;
}

// A part of what the sequences lack of their texts. Whoever gets to the end has its first guess.
bool ModelDrafter::catch_up() {
  begin_batch();
  std::uint32_t room = hosted_->executor().max_rows();
  for (const Writing& each : writing_) {
    const std::uint32_t at = *hosted_->pool().length(each.sequence->id);
    const auto left = static_cast<std::uint32_t>(each.drafts->text.size()) - at, rows = std::min(left, room);
    if (rows == 0 || each.drafts->most == 0) continue;
    if (!reserve(*each.sequence, each.sequence->id, rows)) {
      each.drafts->most = 0;
      continue;
    }
    add(each, each.sequence->id, each.drafts->text.subspan(at, rows), rows == left);
    room -= rows;
  }
  return compute();
}

// One guess more for all that want one.
bool ModelDrafter::step() {
  begin_batch();
  for (const Writing& each : writing_) {
    Drafts& drafts = *each.drafts;
    if (drafts.count == 0 || drafts.count >= drafts.most) continue;
    Sequence& sequence = *each.sequence;
    // A recurrent state cannot be taken back, so guesses are written to a copy.
    if (keeps_states_ && !sequence.copy.valid()) {
      const auto forked = hosted_->pool().fork(sequence.id, *hosted_->pool().length(sequence.id));
      if (forked) sequence.copy = forked->id;
    }
    const SequenceId id = keeps_states_ ? sequence.copy : sequence.id;
    if (!id.valid() || !reserve(sequence, id, 1)) {
      drafts.most = drafts.count;
      continue;
    }
    add(each, id, std::span(&drafts.tokens[drafts.count - 1], 1), true);
  }
  return compute();
}

void ModelDrafter::propose(std::span<Drafts* const> wanted) {
  auto start = Clock::now();
  ++calls_;
  writing_.clear();
  for (Drafts* drafts : wanted) {
    drafts->count = 0;
    drafts->kind = 0;
    const std::size_t end = drafts->text.size() + drafts->most;
    if (broken_ || drafts->most == 0 || writing_.size() == most_ || end > hosted_->context()) continue;
    Sequence* sequence = sequence_of(*drafts);
    if (sequence != nullptr && rewind(*drafts, *sequence)) writing_.push_back({drafts, sequence});
  }
  std::uint64_t rows = 0;
  while (catch_up()) rows += batch_.rows();
  // A prompt is computed once. What guesses cost is what they cost from then on.
  if (rows > writing_.size() * (kMostDrafts + 1)) start = Clock::now();
  while (!broken_ && step()) {
  }
  std::uint32_t tokens = 0;
  for (const Writing& each : writing_) {
    each.sequence->close_copy();
    if (broken_) each.drafts->count = 0;
    tokens += each.drafts->count;
  }
  writing_.clear();
  if (tokens == 0) return;
  const double each = std::chrono::duration<double>(Clock::now() - start).count() / tokens;
  seconds_per_token_ = kMemory * seconds_per_token_ + (1 - kMemory) * each;
}

}  // namespace quire::engine

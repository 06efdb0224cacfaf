#include "quire/server/text_model.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>

#include "quire/base/utf8.h"
#include "quire/text/stream_decoder.h"

namespace quire::server {
namespace {

// Templates of published models take a few thousand steps for a probe.
constexpr std::uint64_t kMostProbeSteps = 100'000;

class Decoding final : public engine::TextStream {
 public:
  Decoding(const text::Tokenizer& tokenizer, text::DecodeOptions options) : decoder_(tokenizer, options) {}
  void push(Token token, std::string& out) override { decoder_.push(token, out); }
  void flush(std::string& out) override { decoder_.flush(out); }

 private:
  text::StreamDecoder decoder_;
};

// Metadata may be any bytes, and JSON is UTF-8.
std::string repaired(std::string_view text) {
  std::string out;
  append_repaired(out, text);
  return out;
}

// The numbers of the key. A model that says nothing, or that it does not pool, was trained to predict tokens: what it
// knows of a text is in its last position.
engine::Pooling pooling_of(const gguf::File& file, const std::string& architecture) {
  enum : std::uint32_t { kNone, kMean, kCls, kLast, kRank };
  switch (file.get_or<std::uint32_t>(architecture + ".pooling_type", kNone).value_or(kNone)) {
    case kMean: return engine::Pooling::Mean;
    case kCls: return engine::Pooling::First;
    case kRank: return engine::Pooling::None;
    default: return engine::Pooling::Last;
  }
}

ModelFacts facts_of(const gguf::File& file) {
  ModelFacts facts;
  facts.file = repaired(std::filesystem::path(file.path()).filename().string());
  facts.architecture = repaired(file.get_or<std::string_view>("general.architecture", "").value_or(""));
  facts.context = file.get_or<std::uint32_t>(facts.architecture + ".context_length", 0).value_or(0);
  facts.embedding = file.get_or<std::uint32_t>(facts.architecture + ".embedding_length", 0).value_or(0);
  facts.pooling = pooling_of(file, facts.architecture);
  facts.chat_template = repaired(file.get_or<std::string_view>("tokenizer.chat_template", "").value_or(""));
  for (std::size_t i = 0; i < file.tensor_count(); ++i) {
    const gguf::Tensor tensor = file.tensor(i);
    facts.parameters += tensor.elements();
    facts.bytes += tensor.data.size();
  }
  return facts;
}

}  // namespace

Result<std::unique_ptr<TextModel>> TextModel::create(const gguf::File& file, std::uint32_t context,
                                                     std::uint32_t vocabulary, const TextModelOptions& options) {
  auto tokenizer = text::Tokenizer::from_gguf(file);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  std::unique_ptr<TextModel> model(new TextModel(std::move(*tokenizer)));
  auto chat = options.chat_template ? text::ChatPrompt::create(options.chat_template->source,
                                                               options.chat_template->name, model->tokenizer_)
                                    : text::ChatPrompt::create(file, model->tokenizer_);
  if (chat) {
    model->chat_.emplace(std::move(*chat));
    model->detect_style();
  } else {
    std::string_view why = chat.error().message;
    const std::string place = file.path() + ": ";
    if (why.starts_with(place)) why.remove_prefix(place.size());
    model->why_no_chat_ = why;
  }
  // Names are sent as JSON, which is UTF-8. The name of a file may be any bytes.
  const std::filesystem::path path(file.path());
  for (const std::string& name :
       {options.alias, path.stem().string(), path.filename().string(), std::string("default")}) {
    if (!name.empty()) model->names_.push_back(repaired(name));
  }
  model->any_name_ = options.any_name;
  model->adapters_ = options.adapters;
  model->facts_ = facts_of(file);
  if (options.pooling) model->facts_.pooling = *options.pooling;
  if (options.chat_template) model->facts_.chat_template = repaired(options.chat_template->source);
  model->infill_ = text::find_infill_tokens(file, model->tokenizer_);
  model->context_ = context;
  model->vocabulary_ = vocabulary;
  model->constraints_ = std::make_unique<GrammarConstraints>(model->tokenizer_, vocabulary);
  if (const std::size_t bytes = model->tokenizer_.max_token_bytes(); bytes > 0) model->most_bytes_ = bytes * context;
  model->created_ = std::time(nullptr);
  return model;
}

void TextModel::detect_style() {
  style_ = tools::detect(
      [this](boost::json::object variables) -> std::optional<std::string> {
        auto rendered = chat_->render(std::move(variables), {}, kMostProbeSteps);
        return rendered ? std::optional(std::move(rendered->text)) : std::nullopt;
      },
      [this](std::string_view spelling) { return tokenizer_.find(spelling).has_value(); });
  // Control tokens that are spelled in a mark.
  const auto spelled = [this](const std::vector<std::string_view>& marks) {
    std::vector<Token> ids;
    for (std::size_t id = 0; id < tokenizer_.size(); ++id) {
      const auto token = static_cast<Token>(id);
      const std::string_view spelling = tokenizer_.spelling(token);
      if (!tokenizer_.is_special(token) || spelling.empty()) continue;
      if (std::ranges::any_of(marks, [&](std::string_view mark) { return mark.find(spelling) != mark.npos; })) {
        ids.push_back(token);
      }
    }
    return ids;
  };
  reasoning_marks_ = spelled(tools::marks(nullptr, style_.reasoning));
  all_marks_ = spelled(tools::marks(style_.format, style_.reasoning));
}

std::vector<std::string> TextModel::mark_tokens() const {
  std::vector<std::string> out;
  out.reserve(all_marks_.size());
  for (const Token token : all_marks_) out.emplace_back(tokenizer_.spelling(token));
  return out;
}

bool TextModel::answers_to(std::string_view name) const { return std::ranges::find(names_, name) != names_.end(); }

// The model's name may have a colon itself. With any_name(), whatever does not end in the name of an adapter is the
// model, unless it is the model's own name with an adapter that there is not.
std::optional<std::uint32_t> TextModel::find(std::string_view name) const {
  if (answers_to(name)) return 0;
  if (const std::size_t colon = name.rfind(':'); colon != name.npos) {
    const bool own = answers_to(name.substr(0, colon));
    const auto adapter = std::ranges::find(adapters_, name.substr(colon + 1), &AdapterName::name);
    if (adapter != adapters_.end() && (own || any_name_)) {
      return static_cast<std::uint32_t>(adapter - adapters_.begin()) + 1;
    }
    if (own) return std::nullopt;
  }
  return any_name_ ? std::optional(0u) : std::nullopt;
}

std::string TextModel::name_of(std::uint32_t adapter) const {
  return adapter == 0 ? name() : name() + ":" + adapters_[adapter - 1].name;
}

std::string TextModel::token_text(Token token) const {
  return repaired(tokenizer_.is_special(token) ? tokenizer_.spelling(token) : tokenizer_.piece(token));
}

std::unique_ptr<engine::TextStream> TextModel::text_stream(bool at_start, bool render_special, Marks marks) const {
  text::DecodeOptions options{.render_special = render_special, .at_start = at_start, .repair_utf8 = true};
  if (marks != Marks::None) options.shown = marks == Marks::All ? all_marks_ : reasoning_marks_;
  return std::make_unique<Decoding>(tokenizer_, options);
}

}  // namespace quire::server

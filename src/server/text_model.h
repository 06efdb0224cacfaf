// The text side of the model: its names, its tokenizer, its chat template.
//
// Who may call: any thread; it does not change after creation.
// How it fails: create() returns one line if the file's tokenizer cannot be used. A model without a usable template
//   is served all the same; chats are then refused with why_no_chat().
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/engine/request.h"
#include "quire/gguf/gguf.h"
#include "quire/server/grammar_constraints.h"
#include "quire/state/saved_sequence.h"
#include "quire/text/chat_prompt.h"
#include "quire/text/infill.h"
#include "quire/text/tokenizer.h"
#include "quire/tools/detect.h"

namespace quire::server {

// What the model's file says of itself, for /props and /v1/models.
struct ModelFacts {
  std::string file;           // its name, without folders
  std::string architecture;   // "llama"
  std::uint32_t context = 0;  // that it was trained for; 0: the file does not say
  std::uint32_t embedding = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;    // of its tensors
  std::string chat_template;  // as the file has it, or the one that is used instead
  // How a text becomes a vector: as the file says, or else that of the last position. None: it has no embeddings.
  engine::Pooling pooling = engine::Pooling::Last;
};

// An adapter of the model. Their numbers in the engine are their places in the list, from 1.
struct AdapterName {
  std::string name;
  Fingerprint fingerprint;
};

struct TextModelOptions {
  std::string alias = {};                       // the model's name; empty: the name of its file
  bool any_name = false;                        // it answers whatever model a request names
  std::optional<engine::Pooling> pooling = {};  // of embeddings; empty: as its file says
  std::vector<AdapterName> adapters = {};
  struct Template {
    std::string source, name;  // the name is for error messages
  };
  std::optional<Template> chat_template = {};  // instead of the file's
};

class TextModel {
 public:
  static Result<std::unique_ptr<TextModel>> create(const gguf::File& file, std::uint32_t context,
                                                   std::uint32_t vocabulary, const TextModelOptions& options);

  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  const text::ChatPrompt* chat() const { return chat_ ? &*chat_ : nullptr; }
  // How it writes calls of tools and reasoning. Only if it can chat.
  const tools::Detected& style() const { return style_; }
  // The spellings of the control tokens that its marks have.
  std::vector<std::string> mark_tokens() const;
  // For clients: it names no file.
  const std::string& why_no_chat() const { return why_no_chat_; }
  const std::string& name() const { return names_.front(); }
  bool answers_to(std::string_view name) const;  // whether this is one of its names
  bool any_name() const { return any_name_; }
  const std::vector<AdapterName>& adapters() const { return adapters_; }
  // The adapter that a request with this model gets: the number of NAME in "model:NAME", 0 for the model itself.
  // Empty: there is no such model, or no such adapter.
  std::optional<std::uint32_t> find(std::string_view name) const;
  std::string name_of(std::uint32_t adapter) const;  // of the model with this adapter
  const ModelFacts& facts() const { return facts_; }
  // Null: it cannot fill in the middle.
  const text::InfillTokens* infill() const { return infill_ ? &*infill_ : nullptr; }
  std::uint32_t context() const { return context_; }
  std::uint32_t vocabulary() const { return vocabulary_; }
  std::int64_t created() const { return created_; }  // when the server started, in Unix time

  // Texts of more bytes have more tokens than the context.
  std::size_t most_bytes() const { return most_bytes_; }
  // The text of a token as well-formed UTF-8.
  std::string token_text(Token token) const;

  // Constraints of answers, made for this vocabulary. It locks by itself.
  GrammarConstraints& constraints() const { return *constraints_; }

  // For a Request: turns tokens into well-formed text as they come. `at_start`: the answer begins a new text; it does
  // not continue one. `marks`: the control tokens that are text even so, for who reads calls or reasoning.
  enum class Marks : std::uint8_t { None, Reasoning, All };
  std::unique_ptr<engine::TextStream> text_stream(bool at_start, bool render_special, Marks marks = Marks::None) const;

 private:
  TextModel(text::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  void detect_style();

  text::Tokenizer tokenizer_;
  std::optional<text::ChatPrompt> chat_;  // refers to the tokenizer
  std::string why_no_chat_;
  tools::Detected style_;
  std::vector<Token> reasoning_marks_, all_marks_;  // control tokens; sorted
  std::vector<std::string> names_;
  bool any_name_ = false;
  std::vector<AdapterName> adapters_;
  ModelFacts facts_;
  std::optional<text::InfillTokens> infill_;
  std::unique_ptr<GrammarConstraints> constraints_;  // refers to the tokenizer
  std::uint32_t context_ = 0;
  std::uint32_t vocabulary_ = 0;
  std::size_t most_bytes_ = std::numeric_limits<std::size_t>::max();
  std::int64_t created_ = 0;
};

}  // namespace quire::server

#include "quire/cli/tokenize.h"

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <fmt/format.h>

#include "quire/base/utf8.h"
#include "quire/cli/printable.h"
#include "quire/cli/token_ids.h"
#include "quire/gguf/gguf.h"
#include "quire/text/tokenizer.h"

namespace quire::cli {

namespace {

namespace json = boost::json;
using text::TokenId;
using text::Tokenizer;

Result<std::string> decode(const Tokenizer& tokenizer, const TokenizeOptions& options, const Style& style) {
  const auto ids = parse_token_ids(options.text, tokenizer.size());
  if (!ids) return std::unexpected(ids.error());
  std::string text = tokenizer.decode(*ids, {.render_special = options.special});
  if (options.json) return json_line(json::object{{"text", text}});
  return style.terminal ? printable(text, {.lines = true}) : std::move(text);
}

std::string id_line(const std::vector<TokenId>& ids) { return fmt::format("{}\n", fmt::join(ids, " ")); }

// A token may be part of a character, which a JSON string cannot hold. Then it is an array of bytes.
json::value piece_json(std::string_view piece) {
  if (utf8_valid_prefix(piece) == piece.size()) return json::value(piece);
  json::array bytes;
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

json::object ids_json(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  json::array numbers, pieces;
  for (const TokenId id : ids) {
    numbers.push_back(id);
    pieces.push_back(piece_json(tokenizer.piece(id)));
  }
  json::object out;
  out["count"] = ids.size();
  out["ids"] = std::move(numbers);
  out["pieces"] = std::move(pieces);
  return out;
}

std::string table(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, const Style& style) {
  const std::size_t width = fmt::formatted_size("{}", tokenizer.size() - 1);
  std::string out;
  for (const TokenId id : ids) {
    const std::string piece = printable(tokenizer.piece(id), {.ascii = !style.utf8, .quotes = true});
    fmt::format_to(std::back_inserter(out), "{:>{}}  {}{}\n", id, width, piece,
                   tokenizer.is_special(id) ? "  special" : "");
  }
  return out;
}

}  // namespace

Result<std::string> tokenize(const TokenizeOptions& options, const Style& style) {
  const auto file = gguf::File::open(options.model);
  if (!file) return std::unexpected(file.error());
  const auto tokenizer = Tokenizer::from_gguf(*file);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  if (options.decode) return decode(*tokenizer, options, style);
  const auto ids = tokenizer->encode(options.text, {.add_special = !options.no_bos, .parse_special = options.special});
  if (!ids) return std::unexpected(ids.error());
  if (options.json) return json_line(ids_json(*tokenizer, *ids));
  return options.ids ? id_line(*ids) : table(*tokenizer, *ids, style);
}

}  // namespace quire::cli

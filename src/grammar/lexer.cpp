#include "quire/grammar/lexer.h"

#include <algorithm>

namespace quire::grammar {

const std::uint8_t* Lexer::classes(std::uint32_t class_set, std::uint32_t& count) {
  if (classes_.size() <= class_set) classes_.resize(class_set + 1);
  std::unique_ptr<RegexSet::Classes>& copy = classes_[class_set];
  if (!copy) copy = std::make_unique<RegexSet::Classes>(regexes_.class_set_at(class_set));
  count = copy->count;
  return copy->of.data();
}

std::uint32_t Lexer::accept_list_of(std::span<const std::uint32_t> terminals) {
  if (terminals.empty()) return kNoAccept;
  std::uint64_t hash = 1;
  for (const std::uint32_t terminal : terminals) hash = hash_mix(hash, terminal);
  return accept_lists_by_terminals_.find(
      hash, [&](std::uint32_t id) { return std::ranges::equal(accept_lists_[id], terminals); },
      [&] {
        accept_lists_.emplace_back(terminals.begin(), terminals.end());
        return static_cast<std::uint32_t>(accept_lists_.size() - 1);
      });
}

LexState Lexer::state(std::span<const Part> parts) {
  std::uint64_t hash = 2;
  for (const Part& part : parts) hash = hash_mix(hash, std::uint64_t{part.terminal} << 32 | part.rest);
  return states_by_parts_.find(
      hash, [&](std::uint32_t id) { return std::ranges::equal(this->parts(id), parts); },
      [&] {
        Info info{.begin = static_cast<std::uint32_t>(parts_.size()),
                  .count = static_cast<std::uint32_t>(parts.size())};
        parts_.insert(parts_.end(), parts.begin(), parts.end());
        std::vector<std::uint32_t> accepted;
        for (const Part& part : parts) {
          info.class_set = regexes_.combined_class_set(info.class_set, regexes_.class_set(part.rest));
          if (regexes_.matches_empty(part.rest)) accepted.push_back(part.terminal);
        }
        info.accepts = accept_list_of(accepted);
        std::uint32_t count = 0;
        info.classes = classes(info.class_set, count);
        info.next = static_cast<std::uint32_t>(next_.size());
        next_.resize(next_.size() + count, parts.empty() ? kDead : kUnknown);
        infos_.push_back(info);
        return static_cast<std::uint32_t>(infos_.size() - 1);
      });
}

LexState Lexer::compute(LexState at, std::uint8_t byte) {
  std::vector<Part> after;
  for (std::uint32_t i = 0; i < infos_[at].count; ++i) {
    const Part part = parts_[infos_[at].begin + i];
    const RegexId rest = regexes_.derivative(part.rest, byte);
    if (rest != RegexSet::kNothing && !regexes_.matches_nothing(rest)) after.push_back({part.terminal, rest});
  }
  const LexState next = state(after);
  next_[infos_[at].next + infos_[at].classes[byte]] = next;
  return next;
}

bool Lexer::compute_extends(LexState at) {
  bool found = false;
  for (const Part& part : parts(at)) found = found || regexes_.surely_extends(part.rest);
  for (unsigned byte = 0; byte < 256 && !found; ++byte) found = step(at, static_cast<std::uint8_t>(byte)) != kDead;
  infos_[at].extends = found ? Extends::Yes : Extends::No;
  return found;
}

LexState Lexer::within(LexState at, std::uint32_t horizon) {
  if (infos_[at].within != kUnknown) return infos_[at].within;
  std::vector<Part> near;
  for (const Part& part : parts(at)) near.push_back(part);
  for (Part& part : near) part.rest = regexes_.within(part.rest, horizon);
  const LexState result = state(near);
  infos_[at].within = result;
  return result;
}

std::size_t Lexer::bytes() const {
  return regexes_.bytes_used() + infos_.capacity() * sizeof(Info) + next_.capacity() * sizeof(LexState) +
         parts_.capacity() * sizeof(Part) + accept_lists_.size() * 64 + classes_.size() * 8 + states_by_parts_.bytes() +
         accept_lists_by_terminals_.bytes();
}

}  // namespace quire::grammar

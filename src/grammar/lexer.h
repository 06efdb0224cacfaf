// Reads several terminals at once: a state is the set of terminals that may still match, each with what is left of its
// expression. States and transitions are made when they are first needed, and kept.
//
// Who may call: one thread at a time.
// What holds: a state's id stays valid. From every state but kDead a text exists that some terminal accepts.
// How it fails: when the expressions' budget is exhausted, results are kDead and must not be used.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "quire/grammar/interner.h"
#include "quire/grammar/regex_set.h"

namespace quire::grammar {

using LexState = std::uint32_t;

class Lexer {
 public:
  static constexpr LexState kDead = 0;
  static constexpr std::uint32_t kNoAccept = 0;

  struct Part {
    std::uint32_t terminal;
    RegexId rest;
    bool operator==(const Part&) const = default;
  };

  explicit Lexer(RegexSet regexes) : regexes_(std::move(regexes)) {
    accept_lists_.emplace_back();
    state({});
  }

  // `parts` sorted by terminal, without expressions that match nothing.
  LexState state(std::span<const Part> parts);
  LexState step(LexState at, std::uint8_t byte) {
    const Info& info = infos_[at];
    const LexState next = next_[info.next + info.classes[byte]];
    return next != kUnknown ? next : compute(at, byte);
  }
  // Whether any byte may follow.
  bool extends(LexState at) {
    const Extends known = infos_[at].extends;
    return known != Extends::Unknown ? known == Extends::Yes : compute_extends(at);
  }
  // The terminals that match what was read, as the number of a list; kNoAccept: none.
  std::uint32_t accepts(LexState at) const { return infos_[at].accepts; }
  std::span<const std::uint32_t> accept_list(std::uint32_t list) const { return accept_lists_[list]; }
  std::uint32_t accept_list_of(std::span<const std::uint32_t> terminals);
  std::span<const Part> parts(LexState at) const { return {parts_.data() + infos_[at].begin, infos_[at].count}; }
  std::uint32_t class_set(LexState at) const { return infos_[at].class_set; }
  // The classes of a set; the address stays valid.
  const std::uint8_t* classes(std::uint32_t class_set, std::uint32_t& count);
  // A state that cannot be told from `at` by reading at most `horizon` bytes, the same for many.
  LexState within(LexState at, std::uint32_t horizon);

  RegexSet& regexes() { return regexes_; }
  const RegexSet& regexes() const { return regexes_; }
  std::size_t bytes() const;

 private:
  static constexpr LexState kUnknown = 0xFFFFFFFF;
  enum class Extends : std::uint8_t { Unknown, No, Yes };
  struct Info {
    const std::uint8_t* classes = nullptr;
    std::uint32_t next = 0;  // where its transitions begin, one for each class
    std::uint32_t accepts = kNoAccept;
    std::uint32_t begin = 0, count = 0;
    std::uint32_t class_set = 0;
    LexState within = kUnknown;
    Extends extends = Extends::Unknown;
  };

  LexState compute(LexState at, std::uint8_t byte);
  bool compute_extends(LexState at);

  RegexSet regexes_;
  std::vector<Info> infos_;
  std::vector<LexState> next_;
  std::vector<Part> parts_;
  std::vector<std::vector<std::uint32_t>> accept_lists_;
  std::vector<std::unique_ptr<RegexSet::Classes>> classes_;  // by class set; null: not asked for yet
  Interner states_by_parts_, accept_lists_by_terminals_;
};

}  // namespace quire::grammar

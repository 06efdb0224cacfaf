// In which order the members of an object may be written.
//
// Every list of `properties` keeps its own order. Where several lists hold together (allOf, $ref, anyOf beside
// properties, ...), nothing says which of them comes first: their members may interleave. A member of two lists stands
// in the order of both; if the lists contradict each other, that of the first holds.
//
// A place is where a writer stands in every list at once. The number of places is the product of the lists' lengths;
// if it would be too large, lists are joined: then their members have one order, that of reading as far as the lists
// leave it open.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace quire::grammar {

class MemberOrder {
 public:
  using Place = std::uint32_t;
  using List = std::vector<std::uint32_t>;  // members by their number

  // A step along one list: `member` is written, or it is passed over if it is not required.
  struct Step {
    std::uint32_t member;
    Place behind;
    std::optional<Place> without;
  };

  MemberOrder() = default;
  // Members have the numbers 0 to required.size() - 1 in the order of reading. Those in no list stand in one of their
  // own.
  MemberOrder(std::span<const List> lists, const std::vector<bool>& required, std::uint64_t most_places);

  std::size_t lists() const { return chains_.size(); }
  std::uint64_t places() const { return places_; }
  // The first member of this list that may be written from here on.
  std::optional<Step> next(Place place, std::size_t list) const;
  // Whether no required member is left.
  bool complete(Place place) const;

 private:
  struct Chain {
    List members;
    std::vector<std::uint32_t> next_required;  // by position: the first required one from there on, or the length
    std::uint32_t stride = 1;
  };
  struct Position {
    std::uint32_t chain, index;
  };

  std::uint32_t position(Place place, std::size_t chain) const;
  // The place behind a member. Nothing: it cannot be written here.
  std::optional<Place> behind(Place place, std::uint32_t member) const;

  std::vector<Chain> chains_;
  std::uint64_t places_ = 1;
  std::vector<std::vector<Position>> positions_;  // by member
};

}  // namespace quire::grammar

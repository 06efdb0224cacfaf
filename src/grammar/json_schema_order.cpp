#include "quire/grammar/json_schema_order.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <queue>
#include <utility>

namespace quire::grammar {

namespace {

// Comparing lists costs as many steps as there are members. Those behind continue the last one.
constexpr std::size_t kMostLists = 16;

using List = MemberOrder::List;

// One order for all members that keeps that of every list, and that of their numbers where it can. Shorter than `count`
// if the lists contradict each other.
List one_order(const std::vector<List>& lists, std::size_t count) {
  std::vector<List> followers(count);
  std::vector<std::uint32_t> open(count, 0);
  for (const List& list : lists) {
    for (std::size_t i = 1; i < list.size(); ++i) {
      followers[list[i - 1]].push_back(list[i]);
      ++open[list[i]];
    }
  }
  std::priority_queue<std::uint32_t, List, std::greater<>> ready;
  for (std::uint32_t member = 0; member < count; ++member) {
    if (open[member] == 0) ready.push(member);
  }
  List result;
  while (!ready.empty()) {
    const std::uint32_t member = ready.top();
    ready.pop();
    result.push_back(member);
    for (const std::uint32_t follower : followers[member]) {
      if (--open[follower] == 0) ready.push(follower);
    }
  }
  return result;
}

bool is_part_of(const List& part, const List& whole) {
  auto from = whole.begin();
  return std::all_of(part.begin(), part.end(), [&](std::uint32_t member) {
    from = std::find(from, whole.end(), member);
    if (from == whole.end()) return false;
    ++from;
    return true;
  });
}

std::uint64_t places_of(const std::vector<List>& lists) {
  std::uint64_t product = 1;
  for (const List& list : lists) product = std::min<std::uint64_t>(product * (list.size() + 1), UINT32_MAX);
  return product;
}

}  // namespace

MemberOrder::MemberOrder(std::span<const List> lists, const std::vector<bool>& required, std::uint64_t most_places) {
  const std::size_t count = required.size();
  std::vector<bool> listed(count, false);
  std::vector<List> kept;
  std::size_t compared = 0;
  const auto keep = [&](const List& list) {
    List fresh;
    std::copy_if(list.begin(), list.end(), std::back_inserter(fresh),
                 [&](std::uint32_t member) { return !listed[member]; });
    for (const std::uint32_t member : fresh) listed[member] = true;
    if (fresh.empty() && list.size() < 2) return;
    if (++compared > kMostLists) {
      kept.back().insert(kept.back().end(), fresh.begin(), fresh.end());
      return;
    }
    if (fresh.empty() &&
        std::any_of(kept.begin(), kept.end(), [&](const List& other) { return is_part_of(list, other); })) {
      return;
    }
    std::erase_if(kept, [&](const List& other) { return is_part_of(other, list); });
    kept.push_back(list);
    if (kept.size() > 1 && one_order(kept, count).size() < count) kept.back() = std::move(fresh);
    if (kept.back().empty()) kept.pop_back();
  };
  for (const List& list : lists) keep(list);
  List others;
  for (std::uint32_t member = 0; member < count; ++member) {
    if (!listed[member]) others.push_back(member);
  }
  keep(others);

  if (kept.size() > 1 && places_of(kept) > most_places) {
    List rank(count);
    const List order = one_order(kept, count);
    for (std::uint32_t i = 0; i < count; ++i) rank[order[i]] = i;
    while (kept.size() > 1 && places_of(kept) > most_places) {
      const List last = std::move(kept.back());
      kept.pop_back();
      List& joined = kept.back();
      joined.insert(joined.end(), last.begin(), last.end());
      std::sort(joined.begin(), joined.end(), [&](auto a, auto b) { return rank[a] < rank[b]; });
      joined.erase(std::unique(joined.begin(), joined.end()), joined.end());
    }
  }

  places_ = places_of(kept);
  positions_.resize(count);
  std::uint32_t stride = 1;
  for (List& list : kept) {
    const auto length = static_cast<std::uint32_t>(list.size());
    Chain chain{.members = std::move(list), .next_required = List(length + 1, length), .stride = stride};
    for (std::uint32_t i = length; i-- > 0;) {
      const std::uint32_t member = chain.members[i];
      chain.next_required[i] = required[member] ? i : chain.next_required[i + 1];
      positions_[member].push_back({.chain = static_cast<std::uint32_t>(chains_.size()), .index = i});
    }
    stride *= length + 1;
    chains_.push_back(std::move(chain));
  }
}

std::uint32_t MemberOrder::position(Place place, std::size_t chain) const {
  return place / chains_[chain].stride % static_cast<std::uint32_t>(chains_[chain].members.size() + 1);
}

std::optional<MemberOrder::Place> MemberOrder::behind(Place place, std::uint32_t member) const {
  Place result = place;
  for (const Position& one : positions_[member]) {
    const std::uint32_t here = position(place, one.chain);
    if (here > one.index || chains_[one.chain].next_required[here] < one.index) return std::nullopt;
    result += (one.index + 1 - here) * chains_[one.chain].stride;
  }
  return result;
}

std::optional<MemberOrder::Step> MemberOrder::next(Place place, std::size_t list) const {
  const Chain& chain = chains_[list];
  const std::uint32_t here = position(place, list);
  for (std::uint32_t i = here; i < chain.members.size() && i <= chain.next_required[here]; ++i) {
    const std::uint32_t member = chain.members[i];
    // A member of several lists is a step of the first.
    if (positions_[member].front().chain != list) continue;
    if (const auto after = behind(place, member)) {
      Step step{.member = member, .behind = *after, .without = {}};
      if (i != chain.next_required[here]) step.without = place + (i + 1 - here) * chain.stride;
      return step;
    }
  }
  return std::nullopt;
}

bool MemberOrder::complete(Place place) const {
  for (std::size_t i = 0; i < chains_.size(); ++i) {
    const Chain& chain = chains_[i];
    if (chain.next_required[position(place, i)] < chain.members.size()) return false;
  }
  return true;
}

}  // namespace quire::grammar

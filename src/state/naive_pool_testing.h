// For tests: what an attention pool with a prefix cache does, written with maps and vectors as plainly as possible. It
// foretells every hit, every refusal and every count of a SequencePool with one group of full attention layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "quire/state/ids.h"

namespace quire::testing {

class NaivePool {
 public:
  using Key = std::pair<Namespace, std::vector<Token>>;  // all tokens up to the end of a block

  NaivePool(std::uint32_t pages, std::uint32_t block_size, std::uint32_t max_sequences, std::uint32_t max_tokens)
      : total_(pages), block_(block_size), max_sequences_(max_sequences), max_tokens_(max_tokens) {}

  struct Sequence {
    Namespace name_space = 0;
    std::vector<Token> tokens;
    std::vector<int> pages;
    std::vector<Key> path;  // published blocks
  };

  // The tokens reused, or nothing where the pool must refuse.
  std::optional<std::uint32_t> create(int name, const std::vector<Token>& prompt, Namespace name_space) {
    if (prompt.size() > max_tokens_ || sequences_.size() == max_sequences_) return std::nullopt;
    Sequence s{.name_space = name_space};
    const std::size_t usable = prompt.empty() ? 0 : prompt.size() - 1;
    while ((s.path.size() + 1) * block_ <= usable) {
      Key key = key_of(name_space, prompt, s.path.size() + 1);
      if (!cache_.contains(key)) break;
      s.path.push_back(std::move(key));
    }
    const std::size_t whole = s.path.size() * block_;
    const std::size_t limit = std::min<std::size_t>(usable - whole, block_ - 1);
    std::pair<std::size_t, std::uint64_t> best{0, 0};  // tokens in common, then the latest
    std::optional<Key> partial;
    for (const auto& [key, entry] : cache_) {
      if (key.first != name_space || key.second.size() != whole + block_) continue;
      if (!std::equal(prompt.begin(), prompt.begin() + static_cast<long>(whole), key.second.begin())) continue;
      std::size_t same = 0;
      while (same < limit && key.second[whole + same] == prompt[whole + same]) ++same;
      if (same > 0 && std::pair(same, entry.inserted) > best) {
        best = {same, entry.inserted};
        partial = key;
      }
    }
    std::vector<int> shared;
    for (const Key& key : s.path) shared.push_back(cache_[key].page);
    if (partial) shared.push_back(cache_[*partial].page);
    const auto revived =
        std::count_if(shared.begin(), shared.end(), [&](int page) { return pages_[page].references == 0; });
    if (held() + static_cast<std::uint32_t>(revived) <= total_) {
      for (const Key& key : s.path) ++cache_[key].holders;
      for (const int page : shared) ++pages_[page].references;
      s.pages = shared;
      s.tokens.assign(prompt.begin(), prompt.begin() + static_cast<long>(whole + best.first));
    } else {
      s.path.clear();
    }
    const auto hit = static_cast<std::uint32_t>(s.tokens.size());
    sequences_[name] = std::move(s);
    return hit;
  }

  bool reserve(const std::vector<std::pair<int, std::uint32_t>>& demands) {
    std::uint32_t need = 0, need_without_copies = 0;
    std::map<int, int> left, left_without;  // holders of a page that have not copied it yet
    std::vector<int> only_published;        // half-full pages that are copied for the index's sake alone
    for (const auto& [name, tokens] : demands) {
      const Sequence& s = sequences_[name];
      if (s.tokens.size() + tokens > max_tokens_) return false;
      const std::size_t blocks = (s.tokens.size() + tokens + block_ - 1) / block_;
      const auto missing = static_cast<std::uint32_t>(blocks > s.pages.size() ? blocks - s.pages.size() : 0);
      need += missing;
      need_without_copies += missing;
      if (tokens == 0 || !must_copy(s, true)) continue;
      const int page = half_full_page(s);
      left.try_emplace(page, pages_[page].references);
      left_without.try_emplace(page, pages_[page].references);
      if (left[page] > 1 || pages_[page].published) ++need, --left[page];
      if (left_without[page] > 1) {
        ++need_without_copies, --left_without[page];
      } else if (pages_[page].published) {
        only_published.push_back(page);
      }
    }
    if (held() + need > total_) {
      if (held() + need_without_copies > total_) return false;
      for (const int page : only_published) {
        if (pages_[page].published) forget_from(*pages_[page].published);
      }
      need = need_without_copies;
    }
    while (held() + cached() + need > total_) evict_one();
    for (const auto& [name, tokens] : demands) {
      Sequence& s = sequences_[name];
      if (tokens > 0 && must_copy(s, true)) {
        const int replaced = half_full_page(s);
        s.pages[s.tokens.size() / block_] = take();
        give(replaced);
      }
      while (s.pages.size() * block_ < s.tokens.size() + tokens) s.pages.push_back(take());
    }
    return true;
  }

  void commit(int name, const std::vector<Token>& tokens) {
    Sequence& s = sequences_[name];
    s.tokens.insert(s.tokens.end(), tokens.begin(), tokens.end());
    while ((s.path.size() + 1) * block_ <= s.tokens.size()) {
      const Key key = key_of(s.name_space, s.tokens, s.path.size() + 1);
      int& page = s.pages[s.path.size()];
      if (const auto known = cache_.find(key); known == cache_.end()) {
        cache_[key] = {.page = page, .holders = 1, .inserted = ++clock_, .unheld_since = 0};
        pages_[page].published = key;
      } else {
        ++known->second.holders;
        if (known->second.page != page) {
          ++pages_[known->second.page].references;
          give(page);
          page = known->second.page;
        }
      }
      s.path.push_back(key);
    }
  }

  void fork(int name, int child, std::uint32_t position) {
    const Sequence& s = sequences_[name];
    Sequence c{.name_space = s.name_space};
    c.tokens.assign(s.tokens.begin(), s.tokens.begin() + position);
    c.pages.assign(s.pages.begin(), s.pages.begin() + (position + block_ - 1) / block_);
    c.path.assign(s.path.begin(), s.path.begin() + position / block_);
    for (const int page : c.pages) ++pages_[page].references;
    for (const Key& key : c.path) ++cache_[key].holders;
    sequences_[child] = std::move(c);
  }
  bool can_fork() const { return sequences_.size() < max_sequences_; }

  void rewind(int name, std::uint32_t position) {
    Sequence& s = sequences_[name];
    if (position == s.tokens.size()) return;  // reserved pages stay
    while (s.pages.size() > (position + block_ - 1) / block_) {
      give(s.pages.back());
      s.pages.pop_back();
    }
    while (s.path.size() > position / block_) {
      let_go(s.path.back());
      s.path.pop_back();
    }
    s.tokens.resize(position);
  }

  void release(int name) {
    Sequence& s = sequences_[name];
    for (const int page : s.pages) give(page);
    while (!s.path.empty()) {
      let_go(s.path.back());
      s.path.pop_back();
    }
    sequences_.erase(name);
  }

  // A sequence that was released comes back with its bytes; blocks that are still known are shared.
  bool restore(int name, const std::vector<Token>& tokens, Namespace name_space) {
    if (sequences_.size() == max_sequences_) return false;
    Sequence s{.name_space = name_space, .tokens = tokens};
    const std::size_t blocks = (tokens.size() + block_ - 1) / block_;
    while ((s.path.size() + 1) * block_ <= tokens.size()) {
      Key key = key_of(name_space, tokens, s.path.size() + 1);
      if (!cache_.contains(key)) break;
      s.pages.push_back(cache_[key].page);
      s.path.push_back(std::move(key));
    }
    const auto shared = std::count_if(s.pages.begin(), s.pages.end(), [&](int p) { return pages_[p].references > 0; });
    if (held() + blocks - static_cast<std::size_t>(shared) > total_) return false;
    for (const Key& key : s.path) ++cache_[key].holders;
    for (const int page : s.pages) ++pages_[page].references;
    while (held() + cached() + blocks - s.pages.size() > total_) evict_one();
    while (s.pages.size() < blocks) s.pages.push_back(take());
    sequences_[name] = std::move(s);
    commit(name, {});
    return true;
  }

  void drop_cache() {
    while (evict_one()) {
    }
  }

  std::uint32_t held() const {
    return count([](const Page& p) { return p.references > 0; });
  }
  std::uint32_t cached() const {
    return count([](const Page& p) { return p.references == 0; });
  }
  std::uint32_t total() const { return total_; }
  std::size_t known_blocks() const { return cache_.size(); }

 private:
  struct Page {
    int references = 0;
    std::optional<Key> published;
  };
  struct Entry {
    int page = 0;
    int holders = 0;
    std::uint64_t inserted = 0;
    std::uint64_t unheld_since = 0;
  };

  Key key_of(Namespace name_space, const std::vector<Token>& tokens, std::size_t blocks) const {
    return {name_space, {tokens.begin(), tokens.begin() + static_cast<long>(blocks * block_)}};
  }
  template <typename Predicate>
  std::uint32_t count(Predicate predicate) const {
    std::uint32_t n = 0;
    for (const auto& [id, page] : pages_) n += predicate(page);
    return n;
  }
  int half_full_page(const Sequence& s) const { return s.pages[s.tokens.size() / block_]; }
  bool must_copy(const Sequence& s, bool copy_published) const {
    if (s.tokens.size() % block_ == 0 || s.tokens.size() / block_ >= s.pages.size()) return false;
    const Page& page = pages_.at(half_full_page(s));
    return page.references > 1 || (copy_published && page.published.has_value());
  }
  int take() {
    pages_[++last_page_] = {.references = 1, .published = std::nullopt};
    return last_page_;
  }
  void give(int page) {
    if (--pages_[page].references == 0 && !pages_[page].published) pages_.erase(page);
  }
  void let_go(const Key& key) {
    Entry& entry = cache_[key];
    if (--entry.holders == 0) entry.unheld_since = ++clock_;
  }
  void forget(const Key& key) {
    const int page = cache_[key].page;
    pages_[page].published.reset();
    if (pages_[page].references == 0) pages_.erase(page);
    cache_.erase(key);
  }
  void forget_from(Key root) {  // by value: it names itself by what it erases
    std::vector<Key> below;
    for (const auto& [key, entry] : cache_) {
      if (key.first == root.first && key.second.size() >= root.second.size() &&
          std::equal(root.second.begin(), root.second.end(), key.second.begin())) {
        below.push_back(key);
      }
    }
    for (const Key& key : below) forget(key);
  }
  bool evict_one() {
    const Key* oldest = nullptr;
    for (const auto& [key, entry] : cache_) {
      if (entry.holders == 0 && (oldest == nullptr || entry.unheld_since < cache_[*oldest].unheld_since)) oldest = &key;
    }
    if (oldest != nullptr) forget(Key(*oldest));
    return oldest != nullptr;
  }

  std::uint32_t total_, block_, max_sequences_, max_tokens_;
  std::map<int, Sequence> sequences_;
  std::map<int, Page> pages_;  // held or cached
  std::map<Key, Entry> cache_;
  int last_page_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace quire::testing

// A list that copies share. It never changes, so copying it costs a reference count, however long it is.
//
// Who may call: any thread; copies may be used and dropped on different threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace quire {

template <typename T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = const T*;

  SharedList() = default;
  SharedList(std::vector<T> items)
      : items_(items.empty() ? nullptr : std::make_shared<const std::vector<T>>(std::move(items))) {}
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}
  template <std::input_iterator It>
  SharedList(It begin, It end) : SharedList(std::vector<T>(begin, end)) {}

  std::size_t size() const { return items_ ? items_->size() : 0; }
  bool empty() const { return items_ == nullptr; }
  const T* data() const { return items_ ? items_->data() : nullptr; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T& operator[](std::size_t i) const { return (*items_)[i]; }
  operator std::span<const T>() const { return {data(), size()}; }

  friend bool operator==(const SharedList& a, const SharedList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::shared_ptr<const std::vector<T>> items_;  // null: the list is empty
};

}  // namespace quire

#include "quire/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "quire/jinja/access.h"
#include "quire/jinja/scope.h"
#include "quire/jinja/unicode.h"

namespace quire::jinja {
namespace {

std::string_view symbol(Comparison operation) {
  switch (operation) {
    case Comparison::less: return "<";
    case Comparison::less_equal: return "<=";
    case Comparison::greater: return ">";
    case Comparison::greater_equal: return ">=";
    default: return "==";
  }
}

bool is_number(const Value& value) {
  return value.boolean() != nullptr || value.integer() != nullptr || value.real() != nullptr;
}

struct Number {
  Int integer = 0;
  double real = 0;
  bool exact = true;
};

Number number(const Value& value) {
  if (const double* real = value.real()) return {0, *real, false};
  const Int integer = as_index(value).value_or(0);
  return {integer, static_cast<double>(integer), true};
}

template <typename Operation>
bool compare_numbers(const Value& a, const Value& b, Operation operation) {
  const Number x = number(a);
  const Number y = number(b);
  return x.exact && y.exact ? operation(x.integer, y.integer) : operation(x.real, y.real);
}

bool equal_dicts(Meter& meter, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::ranges::all_of(a.entries, [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(meter, entry.second, *other);
  });
}

bool equal_sequences(Meter& meter, const Sequence& a, const Sequence& b) {
  if (a.is_tuple() != b.is_tuple() || (!a.is_tuple() && a.kind != b.kind) || a.items.size() != b.items.size()) {
    return false;
  }
  return std::ranges::equal(a.items, b.items, [&](const Value& x, const Value& y) { return equal(meter, x, y); });
}

bool equal_ranges(const Range& a, const Range& b) {
  const Int length = a.length();
  if (length != b.length()) return false;
  return length == 0 || (a.start == b.start && (length == 1 || a.step == b.step));
}

template <typename Operation>
bool order(Meter& meter, Comparison which, const Value& a, const Value& b, Operation operation) {
  meter.step();
  if (is_number(a) && is_number(b)) return compare_numbers(a, b, operation);
  if (a.text() != nullptr && b.text() != nullptr) {
    // The order of UTF-8 bytes is the order of code points.
    meter.copied(std::min(a.text()->bytes.size(), b.text()->bytes.size()));
    return operation(a.text()->bytes.compare(b.text()->bytes), 0);
  }
  const Sequence* x = a.sequence();
  const Sequence* y = b.sequence();
  if (x != nullptr && y != nullptr && x->indexable() && y->indexable() && x->is_tuple() == y->is_tuple()) {
    for (std::size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
      if (!equal(meter, x->items[i], y->items[i])) return order(meter, which, x->items[i], y->items[i], operation);
    }
    return operation(x->items.size(), y->items.size());
  }
  require_defined(a);
  require_defined(b);
  fail_operation(fmt::format("'{}' not supported between instances of '{}' and '{}'", symbol(which), a.type_name(),
                             b.type_name()));
}

}  // namespace

void fail_undefined(const Undefined& undefined) { fail_operation(undefined.message); }

void require_defined(const Value& value) {
  if (const Undefined* undefined = value.undefined()) fail_undefined(*undefined);
}

bool truthy(const Value& value) {
  if (const bool* flag = value.boolean()) return *flag;
  if (const Int* integer = value.integer()) return *integer != 0;
  if (const double* real = value.real()) return *real != 0;
  if (const Text* text = value.text()) return !text->bytes.empty();
  if (const Sequence* sequence = value.sequence()) return !sequence->items.empty();
  if (const Dict* dict = value.dict()) return !dict->entries.empty();
  if (const Range* range = value.range()) return range->length() > 0;
  if (Loop* loop = value.loop()) return loop->length() > 0;
  return !value.is_none() && value.undefined() == nullptr;
}

bool same_object(const Value& a, const Value& b) {
  if (a.data().index() != b.data().index()) return false;
  return std::visit(
      [&b](const auto& data) {
        using Type = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<Type, None>) {
          return true;
        } else {
          return data == std::get<Type>(b.data());
        }
      },
      a.data());
}

bool equal(Meter& meter, const Value& a, const Value& b) {
  meter.step();
  if (is_number(a) && is_number(b)) return compare_numbers(a, b, std::equal_to<>{});
  if (a.data().index() != b.data().index()) return false;
  if (const Text* text = a.text()) {
    meter.copied(text->bytes.size());
    return text->bytes == b.text()->bytes;
  }
  if (same_object(a, b)) return true;
  if (const Sequence* sequence = a.sequence()) return equal_sequences(meter, *sequence, *b.sequence());
  if (const Dict* dict = a.dict()) return equal_dicts(meter, *dict, *b.dict());
  if (const Range* range = a.range()) return equal_ranges(*range, *b.range());
  return a.undefined() != nullptr;
}

bool less(Meter& meter, const Value& a, const Value& b) { return order(meter, Comparison::less, a, b, std::less<>{}); }

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    const Text* part = item.text();
    if (part == nullptr) {
      fail_operation(fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
    }
    runtime.meter.copied(text->bytes.size());
    return find_part(text->bytes, part->bytes) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(require_hashable(item)) != nullptr;
  if (const Range* range = container.range(); range != nullptr && item.integer() != nullptr) {
    Int offset = 0;
    if (__builtin_sub_overflow(*item.integer(), range->start, &offset)) return false;
    return offset % range->step == 0 && offset / range->step >= 0 && offset / range->step < range->length();
  }
  if (!iterable(container)) {
    fail_operation(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  }
  Cursor cursor(runtime, container);
  for (Value candidate; cursor.next(candidate);) {
    if (equal(runtime.meter, candidate, item)) return true;
  }
  return false;
}

bool compare(Runtime& runtime, Comparison operation, const Value& a, const Value& b) {
  Meter& meter = runtime.meter;
  switch (operation) {
    case Comparison::equal: return equal(meter, a, b);
    case Comparison::not_equal: return !equal(meter, a, b);
    case Comparison::less: return order(meter, operation, a, b, std::less<>{});
    case Comparison::less_equal: return order(meter, operation, a, b, std::less_equal<>{});
    case Comparison::greater: return order(meter, operation, a, b, std::greater<>{});
    case Comparison::greater_equal: return order(meter, operation, a, b, std::greater_equal<>{});
    case Comparison::in: return contains(runtime, b, a);
    case Comparison::not_in: return !contains(runtime, b, a);
  }
  return false;
}

}  // namespace quire::jinja

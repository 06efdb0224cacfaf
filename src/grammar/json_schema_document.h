// A schema's text: which draft it is of, what its references mean, where a part of it stands.
//
// Who may call: one thread. The schema outlives it.
// What holds: only the schema itself is looked into. A reference to another document is an error, unless a part of the
//   schema has that name ($id).
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <boost/json/value.hpp>

#include "quire/base/error.h"
#include "quire/grammar/budget.h"

namespace quire::grammar {

class SchemaDocument {
 public:
  SchemaDocument(const boost::json::value& root, Budget& budget);

  const boost::json::value& root() const { return root_; }
  // Draft 7 and before: what stands beside $ref is not looked at.
  bool reference_stands_alone() const { return draft_ != 0 && draft_ < 8; }
  // 4, 6, 7, 8 (2019-09), 9 (2020-12); 0 if the schema does not say.
  int draft() const { return draft_; }

  // What `reference`, a string of `from`, refers to.
  Result<const boost::json::value*> resolve(const boost::json::object& from, std::string_view reference) const;
  // Whether the schema uses $dynamicAnchor or $recursiveAnchor: then dynamic references are not plain ones.
  bool has_dynamic_anchors() const { return dynamic_anchors_; }

  // "#/properties/a/not": where `keyword` of `part` stands. The schema is searched for it.
  std::string place(const boost::json::object& part, std::string_view keyword = {}) const;

 private:
  struct Resource {
    const boost::json::value* root;
    std::string uri;
    std::unordered_map<std::string, const boost::json::value*> anchors;
  };

  void collect(const boost::json::value& schema, std::size_t resource, int depth);
  void collect_children(const boost::json::object& schema, std::size_t resource, int depth);
  Result<const boost::json::value*> look_up(const boost::json::object& from, std::string_view reference) const;
  Result<const boost::json::value*> resolve_in(const Resource& resource, std::string_view fragment) const;

  const boost::json::value& root_;
  Budget& budget_;
  int draft_ = 0;
  bool dynamic_anchors_ = false;
  std::vector<Resource> resources_;
  // Parts of the first resource are not in it.
  std::unordered_map<const boost::json::object*, std::size_t> resource_of_;
  // Targets by where the reference stands.
  mutable std::unordered_map<const char*, const boost::json::value*> resolved_;
};

// RFC 3986, section 5: an absolute reference, as far as schemas need it.
std::string resolve_uri(std::string_view base, std::string_view reference);

}  // namespace quire::grammar

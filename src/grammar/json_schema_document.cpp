#include "quire/grammar/json_schema_document.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace quire::grammar {

namespace json = boost::json;

namespace {

constexpr int kMaximumDepth = 500;

// Keywords whose value is a schema, a list of schemas, or (the second list) an object of schemas.
constexpr std::array<std::string_view, 20> kSchemas = {"additionalItems",
                                                       "additionalProperties",
                                                       "allOf",
                                                       "anyOf",
                                                       "contains",
                                                       "contentSchema",
                                                       "else",
                                                       "if",
                                                       "items",
                                                       "not",
                                                       "oneOf",
                                                       "prefixItems",
                                                       "propertyNames",
                                                       "then",
                                                       "unevaluatedItems",
                                                       "unevaluatedProperties",
                                                       "extends",
                                                       "disallow",
                                                       "type",
                                                       "targetSchema"};
constexpr std::array<std::string_view, 6> kSchemaMaps = {
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const json::string* string_at(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_string();
}

int draft_of(const json::value& root) {
  const json::object* object = root.if_object();
  const json::string* name = object == nullptr ? nullptr : string_at(*object, "$schema");
  if (name == nullptr) return 0;
  const std::string_view text = *name;
  const std::array<std::pair<std::string_view, int>, 6> drafts = {
      {{"draft-03", 4}, {"draft-04", 4}, {"draft-06", 6}, {"draft-07", 7}, {"2019-09", 8}, {"2020-12", 9}}};
  for (const auto& [part, draft] : drafts) {
    if (text.find(part) != std::string_view::npos) return draft;
  }
  return 0;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string percent_decoded(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 && hex_value(text[i + 2]) >= 0) {
      result += static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

// One step of a JSON pointer.
const json::value* child(const json::value& value, std::string_view step) {
  std::string key;
  for (std::size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '~' && i + 1 < step.size() && (step[i + 1] == '0' || step[i + 1] == '1')) {
      key += step[++i] == '0' ? '~' : '/';
    } else {
      key += step[i];
    }
  }
  if (const json::object* object = value.if_object()) return object->if_contains(key);
  if (const json::array* array = value.if_array()) {
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
    if (error != std::errc() || end != key.data() + key.size() || index >= array->size()) return nullptr;
    return &(*array)[index];
  }
  return nullptr;
}

const json::value* at_pointer(const json::value& root, std::string_view pointer) {
  const json::value* value = &root;
  while (!pointer.empty() && value != nullptr) {
    pointer.remove_prefix(1);  // the slash
    const std::size_t end = std::min(pointer.find('/'), pointer.size());
    value = child(*value, pointer.substr(0, end));
    pointer.remove_prefix(end);
  }
  return value;
}

std::string pointer_step(std::string_view key) {
  std::string result = "/";
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return result;
}

bool find_part(const json::value& value, const json::object& part, std::string& path, int depth) {
  if (depth > kMaximumDepth) return false;
  const std::size_t length = path.size();
  if (const json::object* object = value.if_object()) {
    if (object == &part) return true;
    for (const auto& [key, member] : *object) {
      if (!member.is_structured()) continue;
      path += pointer_step(key);
      if (find_part(member, part, path, depth + 1)) return true;
      path.resize(length);
    }
  } else if (const json::array* array = value.if_array()) {
    for (std::size_t i = 0; i < array->size(); ++i) {
      path += fmt::format("/{}", i);
      if (find_part((*array)[i], part, path, depth + 1)) return true;
      path.resize(length);
    }
  }
  return false;
}

std::string_view scheme_of(std::string_view uri) {
  const std::size_t colon = uri.find(':');
  if (colon == std::string_view::npos || colon == 0) return {};
  for (const char c : uri.substr(0, colon)) {
    if (!(std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '-' || c == '.')) return {};
  }
  return uri.substr(0, colon + 1);
}

std::string without_dot_segments(std::string_view path) {
  std::vector<std::string_view> parts;
  bool ends_in_slash = false;
  std::string_view rest = path;
  while (!rest.empty()) {
    if (rest.front() == '/') rest.remove_prefix(1);
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(end);
    ends_in_slash = part == "." || part == "..";
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (part != ".") {
      parts.push_back(part);
    }
  }
  std::string result;
  for (const std::string_view part : parts) {
    result += '/';
    result += part;
  }
  if (ends_in_slash) result += '/';
  return result;
}

}  // namespace

std::string resolve_uri(std::string_view base, std::string_view reference) {
  if (reference.empty()) return std::string(base);
  if (!scheme_of(reference).empty() || base.empty()) return std::string(reference);
  const std::string_view scheme = scheme_of(base);
  std::string_view authority;
  std::string_view path = base.substr(scheme.size());
  if (path.starts_with("//")) {
    const std::size_t end = std::min(path.find('/', 2), path.size());
    authority = path.substr(0, end);
    path.remove_prefix(end);
  }
  if (reference.starts_with("//")) return fmt::format("{}{}", scheme, reference);
  if (reference.starts_with("/")) return fmt::format("{}{}{}", scheme, authority, without_dot_segments(reference));
  const std::size_t slash = path.rfind('/');
  // A path without a slash (urn:a:b) has nothing that a relative reference could go on from.
  if (slash == std::string_view::npos && authority.empty()) return std::string(reference);
  const std::string_view folder = slash == std::string_view::npos ? "/" : path.substr(0, slash + 1);
  return fmt::format("{}{}{}", scheme, authority, without_dot_segments(fmt::format("{}{}", folder, reference)));
}

SchemaDocument::SchemaDocument(const json::value& root, Budget& budget)
    : root_(root), budget_(budget), draft_(draft_of(root)) {
  resources_.push_back({.root = &root, .uri = {}, .anchors = {}});
  collect(root, 0, 0);
}

void SchemaDocument::collect(const json::value& schema, std::size_t resource, int depth) {
  if (depth > kMaximumDepth || !budget_.take(1)) return;
  if (const json::array* list = schema.if_array()) {
    for (const json::value& one : *list) collect(one, resource, depth + 1);
    return;
  }
  const json::object* object = schema.if_object();
  if (object == nullptr) return;
  const json::string* id = string_at(*object, draft_ == 4 ? "id" : "$id");
  if (reference_stands_alone() && object->contains("$ref")) id = nullptr;
  if (id != nullptr) {
    std::string_view uri = *id;
    const std::size_t hash = std::min(uri.find('#'), uri.size());
    const std::string_view fragment = uri.substr(std::min(hash + 1, uri.size()));
    uri = uri.substr(0, hash);
    if (&schema == &root_) {
      resources_[0].uri = uri;
    } else if (!uri.empty()) {
      resources_.push_back({.root = &schema, .uri = resolve_uri(resources_[resource].uri, uri), .anchors = {}});
      resource = resources_.size() - 1;
    }
    if (!fragment.empty()) resources_[resource].anchors.emplace(fragment, &schema);
  }
  for (const std::string_view keyword : {"$anchor", "$dynamicAnchor"}) {
    if (const json::string* anchor = string_at(*object, keyword)) {
      resources_[resource].anchors.emplace(std::string_view(*anchor), &schema);
      if (keyword == "$dynamicAnchor") dynamic_anchors_ = true;
    }
  }
  if (object->contains("$recursiveAnchor")) dynamic_anchors_ = true;
  if (resource != 0) resource_of_.emplace(object, resource);
  collect_children(*object, resource, depth);
}

void SchemaDocument::collect_children(const json::object& schema, std::size_t resource, int depth) {
  for (const auto& [key, member] : schema) {
    if (!member.is_structured()) continue;
    if (is_one_of(kSchemas, key)) {
      collect(member, resource, depth + 1);
    } else if (is_one_of(kSchemaMaps, key) && member.is_object()) {
      for (const auto& [name, one] : member.get_object()) collect(one, resource, depth + 1);
    }
  }
}

Result<const json::value*> SchemaDocument::resolve_in(const Resource& resource, std::string_view fragment) const {
  if (fragment.empty()) return resource.root;
  const std::string decoded = percent_decoded(fragment);
  if (decoded.front() == '/') {
    if (const json::value* value = at_pointer(*resource.root, decoded)) return value;
    // Schemas in the wild give parts an $id and still count from the top.
    if (const json::value* value = at_pointer(root_, decoded)) return value;
    return fail(fmt::format("there is no #{} in the schema", decoded));
  }
  const auto anchor = resource.anchors.find(decoded);
  if (anchor != resource.anchors.end()) return anchor->second;
  return fail(fmt::format("there is no anchor #{} in the schema", decoded));
}

Result<const json::value*> SchemaDocument::resolve(const json::object& from, std::string_view reference) const {
  const auto known = resolved_.find(reference.data());
  if (known != resolved_.end()) return known->second;
  const auto target = look_up(from, reference);
  if (target) resolved_.emplace(reference.data(), *target);
  return target;
}

Result<const json::value*> SchemaDocument::look_up(const json::object& from, std::string_view reference) const {
  const auto found = resource_of_.find(&from);
  const Resource& here = resources_[found == resource_of_.end() ? 0 : found->second];
  const std::size_t hash = std::min(reference.find('#'), reference.size());
  const std::string_view fragment = reference.substr(std::min(hash + 1, reference.size()));
  const std::string_view uri = reference.substr(0, hash);
  if (uri.empty()) return resolve_in(here, fragment);
  const std::string absolute = resolve_uri(here.uri, uri);
  for (const Resource& resource : resources_) {
    if (resource.uri == absolute) return resolve_in(resource, fragment);
  }
  return fail(fmt::format("{} is another document, and only the schema itself is looked into", reference));
}

std::string SchemaDocument::place(const json::object& part, std::string_view keyword) const {
  std::string path = "#";
  find_part(root_, part, path, 0);
  if (!keyword.empty()) path += pointer_step(keyword);
  return path;
}

}  // namespace quire::grammar

#include "quire/server/session_store.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <random>
#include <utility>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "quire/server/fields.h"

namespace quire::server {
namespace {

namespace json = boost::json;

ApiError unknown(std::string_view id) {
  return {.status = 404,
          .message = fmt::format("there is no session {}", in_quotes(id)),
          .param = "session",
          .code = "session_not_found"};
}

ApiError in_use(std::string_view id) {
  return {.status = 409,
          .message = fmt::format("another call works on the session {}; wait until it has ended", in_quotes(id)),
          .param = "session",
          .code = "session_busy"};
}

std::string new_id() {
  thread_local std::random_device device;
  std::string id = "sess_";
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

}  // namespace

std::uint64_t SessionRecord::cost() const {
  std::uint64_t text = 0;
  if (messages) text += json::serialize(*messages).size();
  if (!tools.empty()) text += json::serialize(tools).size();
  if (!options.empty()) text += json::serialize(options).size();
  if (answer) text += json::serialize(answer->options).size();
  return tokens.size() + text / 4;
}

void SessionRecord::rewind(std::size_t to) {
  if (to >= tokens.size()) return;
  tokens.resize(to);
  std::erase_if(marks, [&](const Mark& mark) { return mark.tokens > to; });
  if (messages && !marks.empty() && marks.back().tokens == to) {
    messages->resize(marks.back().messages);
  } else if (messages && to == 0) {
    messages->clear();
  } else {
    messages.reset();
    marks.clear();
  }
  if (answer && answer->begin > to) answer.reset();
}

void SessionRecord::set_conversation(json::array all, std::vector<Token> rendered) {
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(tokens, rendered).in1 - tokens.begin());
  std::erase_if(marks, [&](const Mark& mark) { return mark.tokens > same; });
  tokens = std::move(rendered);
  messages = std::move(all);
  marks.push_back({messages->size(), tokens.size()});
  answer.reset();
}

std::string metadata_of(const SessionRecord& record) {
  json::object out{{"created", record.created}};
  if (record.messages) out["messages"] = *record.messages;
  if (!record.tools.empty()) out["tools"] = record.tools;
  if (!record.marks.empty()) {
    json::array marks;
    for (const SessionRecord::Mark& mark : record.marks) marks.push_back(json::array{mark.messages, mark.tokens});
    out["marks"] = std::move(marks);
  }
  if (!record.options.empty()) out["options"] = record.options;
  if (!record.adapter.name.empty()) {
    out["adapter"] = json::object{{"name", record.adapter.name}, {"fingerprint", record.adapter.fingerprint}};
  }
  if (record.answer) out["answer"] = json::object{{"begin", record.answer->begin}, {"options", record.answer->options}};
  return json::serialize(out);
}

std::optional<SessionRecord> record_from(std::string_view metadata, std::vector<Token> tokens) {
  json::error_code error;
  const json::value value = json::parse(json::string_view(metadata), error);
  if (error || !value.is_object()) return std::nullopt;
  const json::object& object = value.get_object();
  SessionRecord record{.tokens = std::move(tokens)};
  const auto field = [&](std::string_view name) { return object.if_contains(name); };
  const auto place = [&](const json::value& number, std::size_t most) -> std::optional<std::size_t> {
    const auto whole = whole_number(number);
    if (!whole || *whole < 0 || static_cast<std::uint64_t>(*whole) > most) return std::nullopt;
    return static_cast<std::size_t>(*whole);
  };
  if (const json::value* const created = field("created")) {
    record.created = whole_number(*created).value_or(0);
  }
  if (const json::value* const messages = field("messages")) {
    if (!messages->is_array()) return std::nullopt;
    record.messages = messages->get_array();
  }
  if (const json::value* const tools = field("tools")) {
    if (!tools->is_array()) return std::nullopt;
    record.tools = tools->get_array();
  }
  if (const json::value* const marks = field("marks")) {
    if (!marks->is_array() || !record.messages) return std::nullopt;
    for (const json::value& each : marks->get_array()) {
      if (!each.is_array() || each.get_array().size() != 2) return std::nullopt;
      const auto spoken = place(each.at(0), record.messages->size()), at = place(each.at(1), record.tokens.size());
      if (!spoken || !at || (!record.marks.empty() && record.marks.back().tokens > *at)) return std::nullopt;
      record.marks.push_back({*spoken, *at});
    }
  }
  if (const json::value* const options = field("options")) {
    if (!options->is_object()) return std::nullopt;
    record.options = options->get_object();
  }
  if (const json::value* const adapter = field("adapter")) {
    const auto text = [&](std::string_view name) {
      const json::value* const found = adapter->is_object() ? adapter->get_object().if_contains(name) : nullptr;
      return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
    };
    record.adapter = {0, text("name"), text("fingerprint")};
    if (record.adapter.name.empty()) return std::nullopt;
  }
  if (const json::value* const answer = field("answer")) {
    if (!answer->is_object()) return std::nullopt;
    const json::value* const begin = answer->get_object().if_contains("begin");
    const json::value* const options = answer->get_object().if_contains("options");
    if (begin == nullptr || options == nullptr || !options->is_object()) return std::nullopt;
    const auto at = place(*begin, record.tokens.size());
    if (!at || *at == 0) return std::nullopt;
    record.answer = {*at, options->get_object()};
  }
  return record;
}

// --- the store

std::uint64_t SessionStore::cost_of(const Sessions& sessions) {
  std::uint64_t cost = 0;
  for (const auto& [id, entry] : sessions) cost += entry.cost;
  return cost;
}

// The sessions of a tenant, after those that are too old are gone.
SessionStore::Sessions& SessionStore::living(Namespace tenant, Clock::time_point now) {
  Sessions& sessions = tenants_[tenant];
  std::erase_if(sessions, [&](const auto& each) { return !each.second.busy && now - each.second.used > limits_.age; });
  return sessions;
}

std::expected<SessionStore::Listed, ApiError> SessionStore::find(Namespace tenant, std::string_view id,
                                                                 Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Sessions& sessions = living(tenant, now);
  const auto found = sessions.find(id);
  if (found == sessions.end() || found->second.fresh) return std::unexpected(unknown(id));
  found->second.used = now;
  return Listed{found->second.record, found->second.busy};
}

void SessionStore::list(Namespace tenant, const Visit& visit, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  std::vector<const Entry*> all;
  for (const auto& [id, entry] : living(tenant, now)) {
    if (!entry.fresh) all.push_back(&entry);
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, [](const Entry* entry) { return entry->record.created; });
  for (const Entry* entry : all) visit(entry->record, entry->busy);
}

std::optional<ApiError> SessionStore::erase(Namespace tenant, std::string_view id, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Sessions& sessions = living(tenant, now);
  const auto found = sessions.find(id);
  if (found == sessions.end() || found->second.fresh) return unknown(id);
  if (found->second.busy) return in_use(id);
  sessions.erase(found);
  return std::nullopt;
}

SessionStore::Turn SessionStore::begin(Namespace tenant, std::string_view id, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Sessions& sessions = living(tenant, now);
  const auto found = sessions.find(id);
  if (found == sessions.end() || found->second.fresh) return std::unexpected(unknown(id));
  if (found->second.busy) return std::unexpected(in_use(id));
  auto turn = std::make_shared<SessionTurn>(shared_from_this(), tenant, found->second.record);
  found->second.busy = true;
  found->second.used = now;
  return turn;
}

SessionStore::Turn SessionStore::make(Namespace tenant, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Sessions& sessions = living(tenant, now);
  if (sessions.size() >= limits_.sessions) {
    return std::unexpected(
        ApiError{.message = fmt::format("there are {} sessions already, and that is the most; delete one (see "
                                        "--max-sessions)",
                                        sessions.size()),
                 .code = "too_many_sessions"});
  }
  SessionRecord record{.id = new_id(), .created = static_cast<std::int64_t>(std::time(nullptr))};
  sessions[record.id] = {.record = record, .used = now, .busy = true, .fresh = true};
  return std::make_shared<SessionTurn>(shared_from_this(), tenant, std::move(record));
}

std::uint64_t SessionStore::room(Namespace tenant) const {
  const std::lock_guard lock(mutex_);
  const auto found = tenants_.find(tenant);
  const std::uint64_t used = found == tenants_.end() ? 0 : cost_of(found->second);
  return limits_.tokens - std::min(limits_.tokens, used);
}

std::optional<ApiError> SessionStore::commit(Namespace tenant, const SessionRecord& record, bool within_limit) {
  const std::uint64_t cost = record.cost();
  const std::lock_guard lock(mutex_);
  Sessions& sessions = tenants_[tenant];
  Entry& entry = sessions[record.id];
  const std::uint64_t others = cost_of(sessions) - entry.cost;
  if (within_limit && cost > entry.cost && others + cost > limits_.tokens) {
    return ApiError{.message = fmt::format("the sessions would have {} tokens together, and {} is the most; delete or "
                                           "rewind one (see --session-tokens)",
                                           others + cost, limits_.tokens),
                    .code = "too_many_session_tokens"};
  }
  entry.record = record;
  entry.cost = cost;
  entry.used = Clock::now();
  entry.fresh = false;
  return std::nullopt;
}

void SessionStore::end(Namespace tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  Sessions& sessions = tenants_[tenant];
  const auto found = sessions.find(id);
  if (found == sessions.end()) return;
  found->second.busy = false;
  if (found->second.fresh) sessions.erase(found);
}

SessionStore::Count SessionStore::count() const {
  const std::lock_guard lock(mutex_);
  Count count;
  for (const auto& [tenant, sessions] : tenants_) {
    count.sessions += sessions.size();
    count.tokens += cost_of(sessions);
  }
  return count;
}

// --- a turn

SessionTurn::~SessionTurn() {
  if (!over_) store_->end(tenant_, record.id);
}

std::optional<ApiError> SessionTurn::commit() {
  if (auto error = store_->commit(tenant_, record, true)) return error;
  store_->end(tenant_, record.id);
  over_ = true;
  return std::nullopt;
}

void SessionTurn::begin_answer(std::vector<Token> prompt, bool chat, json::object options, bool continues) {
  record.tokens = std::move(prompt);
  begin_ = continues ? record.answer->begin : record.tokens.size();
  chat_ = chat;
  options_ = std::move(options);
  continues_ = continues;
}

void SessionTurn::add(Token token, std::string_view text) {
  record.tokens.push_back(token);
  text_ += text;
  ++came_;
}

void SessionTurn::end_answer(bool ended, bool cut_off, std::optional<json::object> message) {
  if (over_) return;
  over_ = true;
  if (!cut_off || came_ > 0) {
    if (record.messages) {
      json::array& all = *record.messages;
      if (continues_ && !all.empty() && all.back().is_object() && all.back().get_object()["content"].is_string()) {
        all.back().get_object()["content"].get_string() += text_;
      } else {
        all.push_back(message ? std::move(*message) : json::object{{"role", "assistant"}, {"content", text_}});
      }
      std::erase_if(record.marks, [&](const auto& mark) { return mark.messages >= all.size(); });
      record.marks.push_back({all.size(), record.tokens.size()});
    }
    record.answer.reset();
    if (!ended && !chat_ && begin_ > 0) record.answer = {begin_, std::move(options_)};
    (void)store_->commit(tenant_, record, false);  // what was generated is not lost to a limit
  }
  store_->end(tenant_, record.id);
}

}  // namespace quire::server

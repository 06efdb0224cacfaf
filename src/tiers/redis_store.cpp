#include "quire/tiers/redis_store.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

namespace quire::tiers {
namespace {

constexpr unsigned kMostRedirections = 5;
constexpr std::chrono::milliseconds kBetweenLooks{200}, kWhileDown{1000};

const std::string& asking_command() {
  static const std::string command = format_command({"ASKING"});
  return command;
}

bool valid_port(const Reply& reply, std::uint16_t& port) {
  std::int64_t number = reply.integer;
  if (reply.kind == Reply::Kind::String) {
    auto address = parse_redirect_address(":" + reply.text);
    if (!address) return false;
    number = address->port;
  } else if (reply.kind != Reply::Kind::Integer) {
    return false;
  }
  if (number < 1 || number > 65535) return false;
  port = static_cast<std::uint16_t>(number);
  return true;
}

}  // namespace

// A command of the store's own. Its end is posted, so that the next question may be asked from there.
class RedisStore::Question : public RedisRequest {
 public:
  using Then = void (RedisStore::*)(const RedisAddress&, const Reply*);
  Question(RedisStore& store, RedisAddress asked, Then then) : store_(store), asked_(std::move(asked)), then_(then) {}

  void answered(Reply reply) override {
    boost::asio::post(store_.io_, [&store = store_, asked = asked_, then = then_, reply = std::move(reply)] {
      (store.*then)(asked, &reply);
    });
  }
  void lost() override {
    boost::asio::post(store_.io_, [&store = store_, asked = asked_, then = then_] { (store.*then)(asked, nullptr); });
  }

 private:
  RedisStore& store_;
  const RedisAddress asked_;
  const Then then_;
};

RedisStore::RedisStore(boost::asio::io_context& io, RedisSettings settings) : io_(io), settings_(std::move(settings)) {}

// Connections end the requests that they have, and question_ may be one of them: so they go before it.
RedisStore::~RedisStore() { abandon(); }

void RedisStore::start() { look(); }

RedisNode& RedisStore::node_at(const RedisAddress& address) {
  auto& node = nodes_[address];
  if (node == nullptr) node = std::make_unique<RedisNode>(io_, settings_, address, *this);
  return *node;
}

RedisNode* RedisStore::master_of(std::uint16_t slot) const {
  const RedisAddress* const address = map_.master_of(slot);
  const auto found = address == nullptr ? nodes_.end() : nodes_.find(*address);
  return found == nodes_.end() ? nullptr : found->second.get();
}

bool RedisStore::send(StoreRequest& request, bool first) {
  if (map_.empty()) {
    if (failed_) return false;
    if (waiting_.empty()) waiting_since_ = RedisClock::now();
    waiting_.push_back(&request);
    return true;
  }
  RedisNode* const node = master_of(request.slot);
  if (node == nullptr) {
    look_soon();
    return false;
  }
  return send_to(*node, request, first);
}

bool RedisStore::send_to(RedisNode& node, StoreRequest& request, bool first) {
  request.node = &node;
  return node.send(request, request.lane, first);
}

bool RedisStore::redirect(StoreRequest& request, const Reply& reply) {
  if (std::exchange(request.asking, false)) {
    request.head.erase(0, asking_command().size());
    request.replies_before = 0;
  }
  RedisNode& node = *request.node;
  if (!reply.is_error()) {
    node.answered();
    complaint_.clear();
    return false;
  }
  RedisError error = understand_error(reply.text);
  if (error.fault != RedisFault::Moved && error.fault != RedisFault::Ask) {
    complaint_ = fmt::format("{}: {}", to_text(node.address()), printable(reply.text));
  }
  switch (error.fault) {
    case RedisFault::Moved:
    case RedisFault::Ask: {
      node.answered();
      if (++request.redirected > kMostRedirections) return false;
      if (error.address.host.empty()) error.address.host = node.address().host;
      if (error.fault == RedisFault::Moved) {
        if (kind_ != Kind::Cluster) kind_ = Kind::Unknown;  // it has become one
        map_.move(error.slot, error.address);
        look_soon();
      } else {
        request.head.insert(0, asking_command());
        request.replies_before = 1;
        request.asking = true;
      }
      return send_to(node_at(error.address), request, true);
    }
    case RedisFault::Loading:
    case RedisFault::NoAuth: node.trip(printable(reply.text)); return false;
    case RedisFault::ReadOnly:
    case RedisFault::Down: look_soon(); return false;
    case RedisFault::NoRoom:
    case RedisFault::WrongType:
    case RedisFault::Other: return false;
  }
  return false;
}

bool RedisStore::refuses_writes(std::uint16_t slot, RedisClock::time_point now) const {
  const RedisNode* const node = master_of(slot);
  return node != nullptr && node->refuses_writes(now);
}

void RedisStore::node_down(RedisNode&) { look_soon(); }

void RedisStore::node_up(RedisNode&) { look_now_ = true; }

bool RedisStore::down() const {
  if (map_.empty()) return failed_;
  return std::all_of(map_.masters().begin(), map_.masters().end(), [&](const RedisAddress& address) {
    const auto found = nodes_.find(address);
    return found != nodes_.end() && found->second->down();
  });
}

std::string RedisStore::problem() const {
  for (const RedisAddress& address : map_.masters()) {
    const auto found = nodes_.find(address);
    if (found != nodes_.end() && !found->second->problem().empty()) return found->second->problem();
  }
  if (!map_.empty()) return complaint_;
  return problem_.empty() ? "not connected yet" : problem_;
}

void RedisStore::drop_queued() {
  const auto waiting = std::exchange(waiting_, {});
  for (StoreRequest* const request : waiting) request->lost();
  for (const auto& [address, node] : nodes_) node->drop_queued();
}

void RedisStore::abandon() {
  drop_queued();
  leaving_.clear();
  const auto nodes = std::exchange(nodes_, {});
}

bool RedisStore::time_to_look(RedisClock::time_point now) const {
  if (looking_) return false;
  if (look_now_) return true;
  if (now - last_look_ < kBetweenLooks || (pause_.open() && !pause_.may_try(now))) return false;
  if (look_ || map_.empty()) return true;
  const bool some_down = std::any_of(map_.masters().begin(), map_.masters().end(), [&](const RedisAddress& address) {
    const auto found = nodes_.find(address);
    return found != nodes_.end() && found->second->down();
  });
  return some_down && now - last_look_ > kWhileDown;
}

void RedisStore::tick(RedisClock::time_point now) {
  leaving_.clear();
  for (const auto& [address, node] : nodes_) node->tick(now);
  if (!waiting_.empty() && now - waiting_since_ > 2 * settings_.url.timeout) {
    if (problem_.empty()) problem_ = fmt::format("{}: no answer", to_text(settings_.url.hosts.front()));
    found_nothing();
  }
  if (time_to_look(now)) look();
}

// --- finding out what is there ---

void RedisStore::look() {
  looking_ = true;
  look_ = look_now_ = false;
  last_look_ = RedisClock::now();
  asked_.clear();
  candidates_.assign(map_.masters().begin(), map_.masters().end());
  candidates_.insert(candidates_.end(), settings_.url.hosts.begin(), settings_.url.hosts.end());
  candidates_.insert(candidates_.end(), map_.replicas().begin(), map_.replicas().end());
  ask_next();
}

void RedisStore::ask_next() {
  while (!candidates_.empty()) {
    const RedisAddress address = candidates_.front();
    candidates_.pop_front();
    if (!asked_.insert(address).second) continue;
    RedisNode& node = node_at(address);
    if (node.down()) {
      problem_ = node.problem();
      continue;
    }
    const bool may_be_cluster = kind_ != Kind::Single && settings_.url.cluster != RedisUrl::Cluster::No;
    if (may_be_cluster) {
      put_question(node, {"CLUSTER", "SLOTS"}, &RedisStore::slots_told);
    } else {
      ask_role(node);
    }
    return;
  }
  looking_ = false;
  pause_.failed(RedisClock::now());
  if (map_.empty()) found_nothing();
}

void RedisStore::found_nothing() {
  failed_ = true;
  const auto waiting = std::exchange(waiting_, {});
  for (StoreRequest* const request : waiting) request->lost();
}

void RedisStore::put_question(RedisNode& node, std::initializer_list<std::string_view> words,
                              void (RedisStore::*then)(const RedisAddress&, const Reply*)) {
  question_ = std::make_unique<Question>(*this, node.address(), then);
  question_->head = format_command(words);
  if (!node.send(*question_, RedisLane::Read, true)) question_->lost();
}

void RedisStore::ask_role(RedisNode& node) { put_question(node, {"ROLE"}, &RedisStore::role_told); }

void RedisStore::candidate_failed(const std::string& why) {
  problem_ = why;
  ask_next();
}

void RedisStore::slots_told(const RedisAddress& asked, const Reply* reply) {
  RedisNode& node = node_at(asked);
  if (reply == nullptr) {
    candidate_failed(node.problem());
    return;
  }
  if (reply->is_error()) {
    const RedisFault fault = understand_error(reply->text).fault;
    if (fault == RedisFault::Loading || fault == RedisFault::NoAuth) {
      node.trip(printable(reply->text));
      candidate_failed(node.problem());
    } else if (settings_.url.cluster == RedisUrl::Cluster::Yes || kind_ == Kind::Cluster) {
      candidate_failed(fmt::format("{}: not a cluster: {}", to_text(asked), printable(reply->text)));
    } else {
      ask_role(node);
    }
    return;
  }
  auto map = SlotMap::from_reply(*reply, asked);
  if (!map || map->empty()) {
    candidate_failed(fmt::format("{}: {}", to_text(asked), map ? "a cluster without slots" : map.error().message));
    return;
  }
  if (settings_.url.db != 0) {
    candidate_failed(fmt::format("{}: a cluster has no databases but 0", to_text(asked)));
    return;
  }
  kind_ = Kind::Cluster;
  found(std::move(*map));
}

void RedisStore::role_told(const RedisAddress& asked, const Reply* reply) {
  if (reply == nullptr) {
    candidate_failed(node_at(asked).problem());
    return;
  }
  if (reply->is_error()) {
    // A user who may not ask for the role. If it is a replica, writing will tell.
    kind_ = Kind::Single;
    found(SlotMap::single(asked));
    return;
  }
  const auto& elements = reply->elements;
  if (reply->kind != Reply::Kind::Array || elements.empty()) {
    candidate_failed(fmt::format("{}: ROLE: not a list", to_text(asked)));
    return;
  }
  kind_ = Kind::Single;
  if (elements[0].text == "master") {
    std::vector<RedisAddress> replicas;
    for (const Reply& replica : elements.size() > 2 ? elements[2].elements : std::vector<Reply>{}) {
      std::uint16_t port = 0;
      if (replica.elements.size() >= 2 && !replica.elements[0].text.empty() && valid_port(replica.elements[1], port)) {
        replicas.push_back({replica.elements[0].text, port});
      }
    }
    found(SlotMap::single(asked, std::move(replicas)));
    return;
  }
  std::uint16_t port = 0;
  if (elements[0].text == "slave" && elements.size() >= 3 && !elements[1].text.empty() &&
      valid_port(elements[2], port)) {
    candidates_.push_front({elements[1].text, port});
  }
  candidate_failed(fmt::format("{}: it is not a master", to_text(asked)));
}

void RedisStore::found(SlotMap map) {
  looking_ = false;
  failed_ = false;
  problem_.clear();
  pause_.connected();
  pause_.answered();
  map_ = std::move(map);
  const auto wanted = [&](const RedisAddress& address) {
    const auto is = [&](const std::vector<RedisAddress>& list) {
      return std::find(list.begin(), list.end(), address) != list.end();
    };
    return is(map_.masters()) || is(settings_.url.hosts);
  };
  for (auto node = nodes_.begin(); node != nodes_.end();) {
    if (wanted(node->first)) {
      ++node;
    } else {
      leaving_.push_back(std::move(node->second));
      node = nodes_.erase(node);
    }
  }
  for (const RedisAddress& master : map_.masters()) node_at(master);
  const auto waiting = std::exchange(waiting_, {});
  for (StoreRequest* const request : waiting) {
    if (!send(*request)) request->lost();
  }
}

}  // namespace quire::tiers

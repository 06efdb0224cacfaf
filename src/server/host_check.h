// Which hosts a request may name. A web page whose name resolves to this machine (DNS rebinding) is of the server's
// origin for the browser, so the Host header is the only thing that tells it apart.
//
// Who may call: any thread; it does not change after creation.
// What holds: where the server listens on loopback, it answers only for "localhost", the address that the client
//   connected to, and the allowed names. On other addresses it cannot know its own names, so there it checks only if
//   names were given. Unix sockets are not checked: pages cannot reach them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire::server {

class HostCheck {
 public:
  HostCheck() = default;
  // `allowed`: names or addresses without a port; "*": any.
  explicit HostCheck(const std::vector<std::string>& allowed);

  // `host`: the Host header. `address`: where the client connected to, without a port.
  bool allows(std::string_view host, std::string_view address) const;

 private:
  std::vector<std::string> allowed_;  // in lower case
  bool any_ = false;
};

bool is_loopback(std::string_view address);

}  // namespace quire::server

#include "quire/state/tier.h"

namespace quire {

const char* name(TierKind kind) {
  switch (kind) {
    case TierKind::Host: return "host";
    case TierKind::Disk: return "disk";
    case TierKind::Shared: return "shared";
  }
  return "unknown";
}

}  // namespace quire

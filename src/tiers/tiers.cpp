namespace quire::tiers {}

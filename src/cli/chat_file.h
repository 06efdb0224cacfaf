// A conversation as a file: JSON with an array "messages", as `quire render --messages` reads it.
//
// How it fails: with one line that names the file and what is wrong in it. A file that exists is replaced only when the
//   new one is complete.
#pragma once

#include <string>

#include <boost/json/array.hpp>

#include "quire/base/error.h"

namespace quire::cli {

Result<void> save_messages(const std::string& path, const boost::json::array& messages);

// The messages of a file: an object with "messages", or an array. Each has a role (system, user, assistant or tool) and
// a text as content, and may have a text as reasoning_content. Other fields are dropped.
Result<boost::json::array> load_messages(const std::string& path);

}  // namespace quire::cli

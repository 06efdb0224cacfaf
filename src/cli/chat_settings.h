// The settings that can be changed during a conversation: /set NAME VALUE. Their names are those of the options.
//
// How it fails: with one line that names the setting; the options are unchanged then.
#pragma once

#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/cli/chat.h"

namespace quire::cli {

// `name` is e.g. "temp" or "top-k"; two dashes before it are allowed. For "stop", a value adds a string, none removes
// all.
Result<void> change_setting(ChatOptions& options, std::string_view name, std::string_view value);

// One line for each setting.
std::string describe_settings(const ChatOptions& options);

}  // namespace quire::cli

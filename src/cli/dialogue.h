// What the user of `quire chat` sees: the answers as they are written, the commands, Ctrl-C.
//
// What holds: lines that begin with a slash are commands (/help); // begins a text with a slash. A line that ends in a
//   backslash goes on in the next one; """ begins and ends a text of several lines.
//   Ctrl-C stops the answer and shows its figures. The part that was written stays in the conversation. Twice in a row
//   it ends the program.
//   On a terminal with colours, reasoning (<think>) is dim.
// How it fails: if a turn cannot be answered, standard error says why and the message is removed from the conversation.
//   In a pipe it ends the program, because nobody can change the message. If the device is lost, the program ends in
//   any case.
#pragma once

#include <string>
#include <string_view>

#include "quire/base/error.h"
#include "quire/cli/chat.h"
#include "quire/cli/console.h"
#include "quire/cli/interrupt.h"
#include "quire/cli/line_reader.h"

namespace quire::cli {

// Runs the conversation until the lines end. `interrupt` stops an answer; it is null if the lines come from a pipe.
// Returns what is left to print.
Result<std::string> converse(Chat& chat, LineReader& lines, const Console& console, Interrupt* interrupt);

// Answers one question. It must be UTF-8. If it is stopped, standard error has the figures. Returns what is left to
// print.
Result<std::string> answer_once(Chat& chat, std::string_view question, const Console& console, Interrupt& interrupt);

}  // namespace quire::cli

// Lines for the transform's log, and the way out when the ABI is broken.
#pragma once

#include <unistd.h>

#include <string>
#include <string_view>

namespace wasmline {

// Writes one line to the transform's log. A line that the host does not take is lost.
inline void log(std::string_view line) {
  std::string text(line);
  text += '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

// Logs why, and traps: the host gives up the record at hand and goes on with a fresh instance.
[[noreturn]] inline void fail(std::string_view why) {
  log(why);
  __builtin_trap();
}

}  // namespace wasmline

/** The newest log lines of a transform's guests. */

import { path } from "../api.js";
import { element, memo } from "../elements.js";
import { failure, section, waiting } from "../facts.js";
import { count, truncated } from "../texts.js";
import { timeOfDay } from "../time.js";

/** Describe the log; it is read while it is open. */
export function logsSection(page, name) {
  const url = path("transforms", name, "logs");
  const opened = page.section(`logs of ${name}`, false, () => page.stopReading(url));
  return section("Logs", { ...opened, note: "the last 500 lines" }, opened.open && logs(page.reading(url)));
}

function logs(reading) {
  if (reading.value === null) return waiting(reading, "the log");
  const { lines, dropped } = reading.value;
  if (lines.length === 0) {
    return [failure(reading), element("p", { key: "none", class: "empty" },
      "Its guests have logged nothing lately. What a guest writes to standard output or error is shown here.")];
  }
  const keys = keysOf(lines);
  return [
    failure(reading),
    dropped > 0 && element("p", { key: "dropped", class: "quiet" }, `${count(dropped)} lines were dropped.`),
    element("div", { key: "lines", class: "log", tabindex: "0", role: "region", "aria-label": "Log lines" },
      element("ol", null, lines.map((each, index) => logLine(each, keys[index])))),
  ];
}

function logLine({ time_ms, text }, key) {
  return memo(key, [text], () => element("li", null, timeOfDay(time_ms, { seconds: true }),
    element("bdi", null, truncated(text))));
}

/** Return a key for each line: its time, and its number among those of the same time. */
function keysOf(lines) {
  const seen = new Map();
  return lines.map(({ time_ms }) => {
    const number = seen.get(time_ms) ?? 0;
    seen.set(time_ms, number + 1);
    return `${time_ms} ${number}`;
  });
}

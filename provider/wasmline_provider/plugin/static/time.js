/** Times: Unix milliseconds of the server's clock, shown as ages with the full time in a title. */

import { element } from "./elements.js";
import { unknown } from "./texts.js";

const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const MAX_DATE_MS = 8.64e15;
const UNITS = [["d", 86_400], ["h", 3_600], ["min", 60]];

/** Milliseconds by which the server's clock is ahead of the browser's. */
let ahead_ms = 0;

export function setServerTime(now_ms) {
  ahead_ms = now_ms - Date.now();
}

export function serverNow() {
  return Date.now() + ahead_ms;
}

/** Return a duration in its largest unit: "3 min". */
export function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  for (const [unit, length] of UNITS) if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  return `${seconds} s`;
}

/** Return how long ago a time is, in steps that keep a row the same for a while: "now", "20 s ago", "3 min ago". */
export function age(time_ms) {
  if (!isTime(time_ms)) return "";
  const passed_ms = serverNow() - time_ms;
  if (passed_ms < 10_000) return "now";
  return passed_ms < 60_000 ? `${Math.floor(passed_ms / 10_000)}0 s ago` : `${duration(passed_ms)} ago`;
}

export function fullTime(time_ms) {
  return isTime(time_ms) ? `${FULL.format(time_ms)} (${new Date(time_ms).toISOString()})` : "unknown";
}

/** Describe a time by its age. */
export function ago(time_ms) {
  if (!isTime(time_ms)) return unknown();
  return element("time", { datetime: new Date(time_ms).toISOString(), title: fullTime(time_ms) }, age(time_ms));
}

/** Describe a time of day, to the minute, or to the second. */
export function timeOfDay(time_ms, { seconds = false } = {}) {
  if (!isTime(time_ms)) return unknown();
  const text = (seconds ? SECONDS : CLOCK).format(time_ms);
  return element("time", { datetime: new Date(time_ms).toISOString(), title: fullTime(time_ms) }, text);
}

function isTime(time_ms) {
  return Number.isFinite(time_ms) && Math.abs(time_ms) <= MAX_DATE_MS;
}

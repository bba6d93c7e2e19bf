/** States as badges: a colour, and always the word. */

import { element } from "./elements.js";
import { titleOf, truncated, unknown } from "./texts.js";

const TONES = {
  good: ["running", "connected", "agrees", "succeeded", "done", "promote", "deploy", "ready", "champion"],
  busy: ["starting", "ordered", "reading", "resume", "asked"],
  calm: ["replaced", "keep", "stopped", "unknown", "not met", "stop", "challenger", "not measured"],
  warning: ["paused", "pause", "rollback", "silent"],
  bad: ["failed", "away"],
};

const EXPLANATIONS = {
  silent: "its driver counts as dead: no heartbeat",
  ordered: "the run is ordered; no driver has claimed it yet",
  unknown: "nothing is known of its run",
  replaced: "another generation runs",
};

const TONE_OF = new Map(Object.entries(TONES).flatMap(([tone, states]) => states.map((state) => [state, tone])));

/** Describe a state; null is unknown. */
export function badge(state, { tone = null, title = null } = {}) {
  if (state === null || state === undefined || state === "") return unknown();
  const explanation = title ?? EXPLANATIONS[state] ?? state;
  const attributes = { class: `badge ${tone ?? TONE_OF.get(state) ?? "calm"}`, title: titleOf(explanation) };
  return element("bdi", attributes, truncated(state));
}

/** Describe how many partitions run of all. */
export function partitionsRunning(row) {
  if (!Number.isFinite(row.partitions)) return unknown();
  const isShort = row.running < row.partitions;
  return element("span", { class: isShort ? "number short" : "number" }, `${row.running ?? "–"} / ${row.partitions}`);
}

/** Redrives: what was written again, how far they are, and what was skipped. */

import { badge } from "../badges.js";
import { element } from "../elements.js";
import { note, section } from "../facts.js";
import { table } from "../tables.js";
import { count, number, plural, text } from "../texts.js";
import { age, ago } from "../time.js";

/** Describe redrives; `problem` is why the last one of this page has failed, or empty. */
export function redrivesSection(page, redrives, problem = "") {
  const size = plural(redrives.length, "redrive");
  return section("Redrives", { note: size }, note("The last one failed", problem, "bad"), table({
    caption: "Redrives",
    state: page.tableState("redrives"),
    columns: [
      { name: "id", label: "Redrive", cell: (row) => text(row.id, { className: "short-text" }) },
      { name: "state", label: "State",
        cell: (row) => badge(row.state, { tone: row.state === "running" ? "busy" : null }) },
      { name: "where", label: "Where to", cell: (row) => element("span", null, where(row)) },
      { name: "dead_letters", label: "Dead letters", numeric: true, cell: (row) => number(row.dead_letters) },
      { name: "outputs", label: "Outputs", numeric: true, cell: (row) => number(row.outputs) },
      { name: "failed", label: "Failed again", numeric: true,
        cell: (row) => number(row.failed_again, { alarm: true }) },
      { name: "skipped", label: "Skipped", className: "wide", cell: (row) => skipped(row.skipped) },
      { name: "by", label: "By", cell: (row) => text(row.by) },
      { name: "reason", label: "Reason", className: "wide", cell: (row) => text(row.reason) },
      { name: "started", label: "Started", cell: (row) => ago(row.started_ms) },
    ],
    rows: redrives,
    keyOf: (row) => row.id,
    inputsOf: (row) => [age(row.started_ms)],
    empty: "No dead letters were redriven. Once the cause of the failures is mended, redrive them.",
    redraw: page.redraw,
  }));
}

function where({ through, to_topic }) {
  if (through !== null) return ["through ", text(through)];
  return to_topic === null ? "to their topics" : ["to ", text(to_topic)];
}

function skipped(reasons) {
  const entries = Object.entries(reasons);
  if (entries.length === 0) return "none";
  return text(entries.map(([why, each]) => `${count(each)} ${why}`).join(", "));
}

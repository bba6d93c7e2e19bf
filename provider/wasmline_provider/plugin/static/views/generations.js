/** The generations of a transform: what ran, who deployed it, when and why, and the offsets it ran on. */

import { badge } from "../badges.js";
import { element } from "../elements.js";
import { button, section } from "../facts.js";
import { table } from "../tables.js";
import { count, digest, number, plural, text, unknown } from "../texts.js";
import { age, ago } from "../time.js";
import { rollBack } from "../transform_actions.js";

export function generationsSection(page, row, generations, mayAct) {
  const canRollBack = (each) => mayAct && each.state === "replaced";
  return section("Generations", { note: plural(generations.length, "generation") }, table({
    caption: "Generations",
    state: page.tableState(`generations of ${row.name}`),
    columns: [
      { name: "number", label: "Gen.", title: "Generation", cell: (each) => number(each.number) },
      { name: "state", label: "State", cell: (each) => badge(each.state) },
      { name: "version", label: "Version", cell: (each) => element("span", { class: "states" }, text(each.version),
        each.model !== null && element("span", { class: "quiet" }, "model ", text(each.model))) },
      { name: "digest", label: "Digest", cell: (each) => digest(each.digest) },
      { name: "changes", label: "Changes", className: "wide", cell: (each) => changes(each.changes) },
      { name: "offsets", label: "Offsets", cell: (each) => offsets(each.offsets) },
      ...(mayAct ? [{ name: "act", label: "Action", cell: (each) => canRollBack(each)
        && button("Roll back to it…", () => rollBack(page, row, each.number),
          { name: `Roll back to generation ${each.number}`, className: "small" }) }] : []),
    ],
    rows: generations,
    keyOf: (each) => String(each.number),
    inputsOf: (each) => [mayAct, ...each.changes.map((change) => age(change.time_ms))],
    empty: "No generation is known.",
    redraw: page.redraw,
  }));
}

function changes(list) {
  if (list.length === 0) return unknown();
  return element("ul", { class: "changes" }, list.map((each, index) => element("li", { key: `change ${index}` },
    badge(each.action), " by ", text(each.by), " ", ago(each.time_ms),
    each.restored_generation && element("span", { class: "quiet" }, ` from generation ${each.restored_generation}`),
    each.reason && element("span", null, ": ", text(each.reason, { className: "whole" })),
    each.run && element("div", { class: "quiet" }, "run ", text(each.run)))));
}

function offsets(list) {
  if (list.length === 0) return unknown();
  return element("details", null,
    element("summary", null, plural(list.reduce((sum, each) => sum + each.partitions.length, 0), "partition")),
    list.map((each, index) => element("div", { key: `offsets ${index}` },
      element("p", { class: "quiet" }, text(each.topic), " in job ", text(each.job), " ", ago(each.started_ms)),
      element("ul", { class: "offsets" }, each.partitions.map(([partition, begin, end]) => element("li",
        { key: String(partition) }, `${partition}: ${count(begin)} – ${end === null ? "now" : count(end)}`))))));
}

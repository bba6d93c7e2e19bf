/** Lines of the last hour: one number a minute, oldest first; null leaves a gap. */

import { element } from "./elements.js";
import { count, unknown } from "./texts.js";

const WIDTH = 120;
const HEIGHT = 28;
const MARGIN = 2;

/** Describe a line with its text alternative; `name` is the noun of the numbers, such as "records/s". */
export function line(values, name) {
  const known = (values ?? []).filter(Number.isFinite);
  if (known.length === 0) return unknown();
  const [least, most, newest] = [Math.min(...known), Math.max(...known), known.at(-1)];
  const label = `${name} in the last hour: now ${count(newest)}, least ${count(least)}, most ${count(most)}`;
  const runs = unbroken(values.map((value, index) => point(value, index, values.length, Math.max(most, 0))));
  return element("svg", {
    class: "line", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label,
  },
  element("path", { class: "area", d: runs.map(area).join("") }),
  element("path", { class: "stroke", d: runs.map(stroke).join("") }));
}

/** Describe a line under its name, with the newest and the greatest number. */
export function namedLine(values, name, title) {
  const known = (values ?? []).filter(Number.isFinite);
  return element("figure", { key: name, class: "named-line" },
    element("figcaption", null, element("span", { class: "quiet" }, title),
      element("strong", null, known.length ? count(known.at(-1)) : "–"),
      element("span", { class: "quiet" }, known.length ? `most ${count(Math.max(...known))}` : "")),
    line(values, name));
}

function point(value, index, length, most) {
  if (!Number.isFinite(value)) return null;
  const x = (index / Math.max(length - 1, 1)) * WIDTH;
  const y = HEIGHT - MARGIN - (most > 0 ? Math.max(value, 0) / most : 0) * (HEIGHT - 2 * MARGIN);
  return [x.toFixed(1), y.toFixed(1)];
}

/** Return the runs of points between gaps. */
function unbroken(points) {
  const runs = [];
  let run = [];
  for (const each of [...points, null]) {
    if (each !== null) run.push(each);
    else if (run.length > 0) {
      runs.push(run);
      run = [];
    }
  }
  return runs;
}

function stroke(run) {
  if (run.length === 1) return `M${run[0].join(" ")}h1`;
  return `M${run.map((each) => each.join(" ")).join("L")}`;
}

function area(run) {
  return `M${run[0][0]} ${HEIGHT}L${run.map((each) => each.join(" ")).join("L")}L${run.at(-1)[0]} ${HEIGHT}Z`;
}

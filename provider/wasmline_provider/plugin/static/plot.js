/** A plot of figures over versions, with axes, a legend and a text alternative. */

import { element } from "./elements.js";
import { truncated } from "./texts.js";

const WIDTH = 720;
const HEIGHT = 240;
const LEFT = 48;
const RIGHT = 12;
const TOP = 12;
const BOTTOM = 34;
const TICKS = 4;
const MAX_LABELS = 12;
const LABEL_LETTERS = 12;

/**
 * Describe a plot.
 *
 * @param {{label: string, versions: string[], series: {name: string, className: string, values: (?number)[]}[],
 *   marked: ?string, markedLabel: string}} options `marked` is the version with a vertical line, such as the champion
 */
export function plot({ label, versions, series, marked, markedLabel }) {
  const shown = series.filter(({ values }) => values.some(Number.isFinite));
  const known = shown.flatMap(({ values }) => values.filter(Number.isFinite));
  if (known.length === 0) return element("p", { class: "empty" }, "No version has an error yet.");
  const scale = scaleOf(known, versions.length);
  const viewBox = `0 0 ${WIDTH} ${HEIGHT}`;
  const isMarked = versions.includes(marked);
  return element("figure", { class: "plot" },
    element("ul", { class: "legend" },
      shown.map(({ name, className }) => element("li", { key: name, class: className }, name)),
      isMarked && element("li", { key: "marked", class: "marked" }, markedLabel)),
    element("div", { class: "drawing", tabindex: "0", role: "group", "aria-label": label },
      element("svg", { viewBox, role: "img", "aria-label": described(label, versions, shown) },
        ticks(scale), labels(versions, scale), marker(versions.indexOf(marked), scale),
        shown.map((each) => curve(each, scale)))));
}

/** Return where a version and a value are: the values' range with some room, from zero where that is near. */
function scaleOf(known, length) {
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const room = (most - least || Math.abs(most) || 1) * 0.1;
  const low = least >= 0 ? Math.max(0, least - room) : least - room;
  const high = most + room;
  const step = (WIDTH - LEFT - RIGHT) / Math.max(length, 1);
  return {
    low, high,
    x: (index) => LEFT + step * (index + 0.5),
    y: (value) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM),
  };
}

function ticks({ low, high, y }) {
  const values = Array.from({ length: TICKS + 1 }, (_, index) => low + ((high - low) * index) / TICKS);
  return values.map((value) => element("g", { key: `tick ${value}` },
    element("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
    element("text", { class: "tick end", x: LEFT - 6, y: y(value) + 4 }, String(Number(value.toPrecision(3))))));
}

function labels(versions, { x }) {
  const every = Math.ceil(versions.length / MAX_LABELS);
  return versions.map((version, index) => (versions.length - 1 - index) % every === 0 && element("text",
    { key: `label ${version}`, class: "tick middle", x: x(index), y: HEIGHT - 12 }, truncated(version, LABEL_LETTERS)));
}

function marker(index, { x }) {
  if (index < 0) return null;
  return element("line", { key: "marker", class: "marker", x1: x(index), x2: x(index), y1: TOP, y2: HEIGHT - BOTTOM });
}

function curve({ name, className, values }, { x, y }) {
  const known = [...values.entries()].filter(([, value]) => Number.isFinite(value));
  const points = known.map(([index, value]) => [x(index), y(value)]);
  return element("g", { key: name, class: className },
    element("path", { class: "stroke", d: `M${points.map((each) => each.join(" ")).join("L")}` }),
    points.map(([cx, cy]) => element("circle", { key: `at ${cx}`, cx, cy, r: 3.5 })));
}

function described(label, versions, shown) {
  const parts = shown.map(({ name, values }) => {
    const last = values.findLastIndex(Number.isFinite);
    return `${name}: ${Number(values[last].toPrecision(4))} at ${truncated(versions[last], LABEL_LETTERS)}`;
  });
  return `${label}, ${versions.length} versions. ${parts.join("; ")}. The table has all figures.`;
}

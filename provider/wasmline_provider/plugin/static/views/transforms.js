/** All transforms: what runs, how far behind it is, and what it could not do. */

import { badge, partitionsRunning } from "../badges.js";
import { element } from "../elements.js";
import { askedFor, button } from "../facts.js";
import { line } from "../lines.js";
import { to } from "../route.js";
import { table } from "../tables.js";
import { link, number, text, unknown } from "../texts.js";
import { pauseOrResume } from "../transform_actions.js";

const PAGE_ROWS = 250;

export function transformsView(page) {
  return {
    title: "Transforms",
    draw: () => [
      element("h1", { tabindex: "-1", class: "unseen" }, "Transforms"),
      transformsTable(page, [...page.store.transforms.values()], { filter: true, empty: empty(page) }),
    ],
  };
}

/** Describe a table of transforms. */
export function transformsTable(page, rows, { filter = false, empty: nothing }) {
  return table({
    caption: "Transforms",
    state: page.tableState("transforms", { sort: "name" }),
    columns: columns(page),
    rows,
    keyOf: (row) => row.name,
    inputsOf: (row) => [page.lines[row.name], page.asked.of("transforms", row.name), page.may_act],
    ...(filter && { nameOf: (row) => row.name, stateOf: (row) => row.state }),
    empty: nothing,
    redraw: page.redraw,
    page_rows: PAGE_ROWS,
  });
}

function columns(page) {
  const asked = (row) => page.asked.of("transforms", row.name);
  return [
    { name: "name", label: "Transform", value: (row) => row.name,
      cell: (row) => link(to("transforms", row.name), row.name) },
    {
      name: "state", label: "State", value: (row) => row.state,
      cell: (row) => element("span", { class: "states" }, badge(row.state, { title: row.reason || null }),
        askedFor(asked(row))),
    },
    { name: "version", label: "Version", cell: (row) => element("span", { class: "states" }, text(row.version),
      element("span", { class: "quiet", title: `generation ${row.generation}` }, `gen. ${row.generation}`)) },
    { name: "partitions", label: "Partitions", title: "Running of all", numeric: true, value: (row) => row.partitions,
      cell: partitionsRunning },
    { name: "lag", label: "Lag", numeric: true, value: (row) => row.lag, cell: (row) => number(row.lag) },
    { name: "rate", label: "Records/s", numeric: true, value: (row) => row.rate, cell: (row) => number(row.rate) },
    { name: "hour", label: "Last hour", className: "line-cell", title: "Records/s in the last hour",
      cell: (row) => line(page.lines[row.name]?.rate, "records/s") },
    { name: "dead_letters", label: "Dead letters", numeric: true, value: (row) => row.dead_letters,
      cell: (row) => number(row.dead_letters, { alarm: true }) },
    { name: "job", label: "Job", value: (row) => row.job, cell: jobCell },
    ...(page.may_act ? [{ name: "act", label: "Action", cell: (row) => actionCell(page, row) }] : []),
  ];
}

function jobCell(row) {
  if (row.job === null) return unknown();
  return element("span", { class: "states" }, link(to("jobs", row.job), row.job), badge(row.condition));
}

function actionCell(page, row) {
  const { label, act } = pauseOrResume(page, row);
  return button(label, act, { key: "pause", name: `${label} ${row.name}`, className: "small" });
}

function empty({ store }) {
  const { state, connection } = store.head.cluster;
  if (state === "starting") return element("p", null, "The control topics are being read.");
  if (state === "away") return element("p", null, "No transform is known: the cluster is away.");
  return [
    element("h2", null, "No transform is deployed on this cluster"),
    element("p", null, "Deploy a published version from a DAG, with ", element("code", null, "WasmDeployOperator"),
      ", or from a terminal: ", element("code", null, "wasmline deploy NAME@VERSION"), "."),
    element("p", { class: "quiet" }, "This page follows the connection ", text(connection), "."),
  ];
}

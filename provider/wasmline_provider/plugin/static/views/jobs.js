/** All jobs: what runs where, and which DAG run started it. */

import { runLink } from "../airflow_links.js";
import { badge, partitionsRunning } from "../badges.js";
import { element } from "../elements.js";
import { askedFor, button } from "../facts.js";
import { to } from "../route.js";
import { table } from "../tables.js";
import { link, number, plural, text, titleOf } from "../texts.js";
import { age, ago } from "../time.js";
import { stopJob } from "../job_actions.js";

const PAGE_ROWS = 250;
const FINAL = ["succeeded", "stopped", "failed"];

export function jobsView(page) {
  return {
    title: "Jobs",
    draw: () => [
      element("h1", { tabindex: "-1", class: "unseen" }, "Jobs"),
      jobsTable(page, [...page.store.jobs.values()], { filter: true, empty: empty(page) }),
    ],
  };
}

/** Describe a table of jobs. */
export function jobsTable(page, rows, { filter = false, empty: nothing }) {
  return table({
    caption: "Jobs",
    state: page.tableState("jobs", { sort: "name" }),
    columns: columns(page),
    rows,
    keyOf: (row) => row.job,
    inputsOf: (row) => [page.asked.of("jobs", row.job), page.may_act, age(row.reported_ms)],
    ...(filter && { nameOf: (row) => `${row.job} ${row.transform ?? ""}`, stateOf: (row) => row.condition }),
    empty: nothing,
    redraw: page.redraw,
    page_rows: PAGE_ROWS,
  });
}

function columns(page) {
  return [
    { name: "name", label: "Job", value: (row) => row.job, cell: (row) => link(to("jobs", row.job), row.job) },
    { name: "condition", label: "State", value: (row) => row.condition, cell: (row) => states(page, row) },
    { name: "work", label: "Work", value: (row) => row.work, cell: work },
    { name: "mode", label: "Mode", value: (row) => row.mode,
      cell: (row) => element("span", { title: mode(row) }, row.mode) },
    { name: "partitions", label: "Partitions", title: "Running of all", numeric: true, value: (row) => row.partitions,
      cell: partitionsRunning },
    { name: "lag", label: "Lag", numeric: true, value: (row) => row.lag, cell: (row) => number(row.lag) },
    { name: "rate", label: "Records/s", numeric: true, value: (row) => row.rate, cell: (row) => number(row.rate) },
    { name: "stuck", label: "Stuck keys", numeric: true, value: (row) => row.stuck_keys,
      cell: (row) => number(row.stuck_keys, { alarm: true }) },
    { name: "hosts", label: "Hosts", cell: (row) => hosts(row.hosts) },
    { name: "started", label: "Started by",
      cell: (row) => (row.started_by ? runLink(row.started_by, { isShort: true }) : text(row.by)) },
    { name: "reported", label: "Reported", value: (row) => row.reported_ms, cell: (row) => ago(row.reported_ms) },
    ...(page.may_act ? [{ name: "act", label: "Action", cell: (row) => row.wanted !== "stopped"
      && button("Stop…", () => stopJob(page, row), { name: `Stop ${row.job}`, className: "small" }) }] : []),
  ];
}

/** Describe the condition of a job's run, and what is wanted of it where that is another one. */
export function states(page, row) {
  const title = [row.message, row.problem].filter(Boolean).join("; ") || null;
  return element("span", { key: "states", class: "states" }, badge(row.condition, { title }),
    isOpen(row) && element("span", { class: "quiet" }, `wanted: ${row.wanted}`),
    row.problem && element("span", { class: "badge bad", title: "The job has a problem" }, "problem"),
    askedFor(page.asked.of("jobs", row.job)));
}

/** Return whether something is wanted of a job that is not so yet. */
function isOpen({ wanted, condition }) {
  return wanted !== "running" && wanted !== condition && !FINAL.includes(condition);
}

export function work(row) {
  return row.transform === null ? text(row.work) : link(to("transforms", row.transform), row.transform);
}

function hosts(names) {
  if (names.length < 2) return text(names[0]);
  return element("span", { title: titleOf(names.join(", ")) }, plural(names.length, "host"));
}

export function mode(row) {
  return [row.mode, row.delivery].filter(Boolean).join(", ").replaceAll("_", " ");
}

function empty({ store }) {
  const { state, connection } = store.head.cluster;
  if (state === "starting") return element("p", null, "The control topics are being read.");
  if (state === "away") return element("p", null, "No job is known: the cluster is away.");
  return [
    element("h2", null, "No job was ordered on this cluster"),
    element("p", null, "A job runs a transform on Spark, or trains a model. Order one from a DAG, with ",
      element("code", null, "SparkStreamOperator"), " or ", element("code", null, "TrainModelOperator"), "."),
    element("p", { class: "quiet" }, "This page follows the connection ", text(connection), "."),
  ];
}

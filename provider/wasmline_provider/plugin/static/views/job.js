/** One job: its run, its driver and leases, its partitions, and what was asked of it. */

import { runLink } from "../airflow_links.js";
import { path } from "../api.js";
import { badge, partitionsRunning } from "../badges.js";
import { element } from "../elements.js";
import { button, facts, failure, heading, note, section, waiting } from "../facts.js";
import { pauseOrResumeJob, stopJob } from "../job_actions.js";
import { table } from "../tables.js";
import { count, number, plural, prose, text, unknown } from "../texts.js";
import { age, ago } from "../time.js";
import { mode, states, work } from "./jobs.js";
import { partitionsSection } from "./partitions.js";

const ORDER_FIELDS = [
  "storage", "ordering", "max_concurrency", "tasks", "trigger_interval", "starting_offsets", "lease_seconds",
  "max_offsets_per_trigger", "shards",
];

export function jobView(page, name) {
  const url = path("jobs", name);
  page.reading(url);
  const mayAct = () => page.reading(url).value?.may_act ?? page.may_act;
  return { title: name, mayAct, draw: () => job(page, name, page.reading(url), mayAct()) };
}

function job(page, name, reading, mayAct) {
  const back = { back: "#/jobs", backLabel: "All jobs", name };
  const row = page.store.jobs.get(name) ?? reading.value?.row;
  if (row === undefined) {
    if (reading.problem?.status !== 404) return [heading(back), waiting(reading, "the job")];
    return [heading(back), element("p", { class: "empty" }, "No job of this name was ordered on the cluster.")];
  }
  return [
    heading({ ...back, states: states(page, row), buttons: mayAct ? buttons(page, row) : [] }),
    note("Problem", row.problem, "bad"),
    note("Report", row.message, row.condition === "failed" ? "bad" : "calm"),
    summary(row),
    ...(reading.value === null ? [waiting(reading, "its details")] : details(page, row, reading)),
  ];
}

function buttons(page, row) {
  if (row.wanted === "stopped") return [];
  const { label, act } = pauseOrResumeJob(page, row);
  const isFunction = row.mode !== "training" && row.transform === null; // a transform is paused itself
  return [
    isFunction && button(label, act, { key: "pause" }),
    button("Stop…", () => stopJob(page, row), { className: "danger" }),
  ];
}

function summary(row) {
  return facts([
    ["Work", work(row)],
    ["Mode", mode(row)],
    ["Records/s", number(row.rate)],
    ["Lag", number(row.lag)],
    ["Partitions running", partitionsRunning(row)],
    ["In flight", number(row.in_flight)],
    ["Retries", number(row.retries)],
    ["Stuck keys", number(row.stuck_keys, { alarm: true })],
    ["Reported", ago(row.reported_ms)],
    ["Run", text(row.run)],
    ["Started by", row.started_by ? runLink(row.started_by) : text(row.by)],
    ["Hosts", element("span", { class: "list" }, row.hosts.map((host) => text(host)))],
    ["Spark UI", row.spark_ui ? text(row.spark_ui, { className: "selectable" }) : undefined],
  ]);
}

function details(page, row, reading) {
  const { claim, launcher, partitions, report, events } = reading.value;
  return [
    failure(reading),
    partitionsSection(page, `partitions of job ${row.job}`, partitions),
    report !== null && reportSection(page, row, report),
    section("Driver and leases", {}, facts([
      ["Driver", claim === null ? "no driver has claimed it" : text(claim.driver)],
      ["Epoch", claim === null ? undefined : number(claim.epoch)],
      ["Topic", claim === null ? undefined : text(claim.topic)],
      ["Claimed run", claim === null ? undefined : text(claim.run)],
      ["Launcher", launcher === null ? "none: spark-submit" : text(launcher)],
    ])),
    eventsSection(page, row, events),
    section("Order", { open: false }, facts(orderOf(reading.value))),
  ];
}

function orderOf(details) {
  return ORDER_FIELDS.filter((name) => name in details).map((name) => [name.replaceAll("_", " "), text(details[name])]);
}

function reportSection(page, row, report) {
  const batches = [...report.batches].reverse();
  return section("Report", { note: age(report.updated_ms) },
    facts([
      ["State", badge(report.state)],
      ["Updated", ago(report.updated_ms)],
      ["Records in", number(report.records_in)],
      ["Records out", number(report.records_out)],
      ["Lost offsets", number(report.lost_offsets, { alarm: true })],
      ["Dead letters", deadLetters(report.dead_letters)],
    ]),
    report.error && element("pre", { key: "error", tabindex: "0" }, prose(report.error)),
    batches.length > 0 && table({
      caption: "Newest batches",
      state: page.tableState(`batches of ${row.job}`),
      columns: [
        { name: "id", label: "Batch", cell: (each) => number(each.batch_id) },
        { name: "records", label: "Records", numeric: true, cell: (each) => number(each.records_in) },
        { name: "duration", label: "Duration", numeric: true, cell: (each) => `${count(each.duration_ms)} ms` },
      ],
      rows: batches,
      keyOf: (each) => String(each.batch_id),
      redraw: page.redraw,
    }));
}

/** Describe dead letters by reason in one line, or their number. */
export function deadLetters(reasons) {
  if (typeof reasons === "number") return number(reasons, { alarm: true });
  if (reasons === null || reasons === undefined) return unknown();
  const entries = Object.entries(reasons);
  return entries.length === 0 ? "none" : text(entries.map(([reason, each]) => `${count(each)} ${reason}`).join(", "));
}

function eventsSection(page, row, events) {
  return section("History", { note: plural(events.length, "change") }, table({
    caption: "History",
    state: page.tableState(`events of ${row.job}`),
    columns: [
      { name: "action", label: "Change", cell: (each) => badge(each.action) },
      { name: "time", label: "When", cell: (each) => ago(each.time_ms) },
      { name: "by", label: "By", cell: (each) => text(each.by) },
      { name: "run", label: "Run", cell: (each) => text(each.run) },
      { name: "reason", label: "Reason", className: "wide", cell: (each) => text(each.reason) },
    ],
    rows: events,
    keyOf: (each) => `${each.time_ms} ${each.action}`,
    inputsOf: (each) => [age(each.time_ms)],
    empty: "Nobody has paused, resumed or stopped it.",
    redraw: page.redraw,
  }));
}

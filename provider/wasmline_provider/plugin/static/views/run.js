/** What one DAG run, or one task of it, did on the cluster, and the live state of its streams. */

import { namedByTasks } from "../airflow_api.js";
import { runLink } from "../airflow_links.js";
import { get, inPieces, path } from "../api.js";
import { badge } from "../badges.js";
import { element } from "../elements.js";
import { facts, failure, note, section, waiting } from "../facts.js";
import { rarely } from "../reading.js";
import { to } from "../route.js";
import { table } from "../tables.js";
import { link, number, plural, text } from "../texts.js";
import { age, ago } from "../time.js";
import { deadLetters } from "./job.js";
import { jobsTable } from "./jobs.js";
import { redrivesSection } from "./redrives.js";
import { transformsTable } from "./transforms.js";

const NAMES_AGE_MS = 10_000;

const IDENTITY = {
  jobs: ({ job }) => job,
  reports: ({ job }) => job,
  changes: JSON.stringify,
  transforms: ({ name }) => name,
  redrives: ({ topic, id }) => JSON.stringify([topic, id]),
};

export function runView(page, run) {
  const reading = page.reading("the run of the address", { read: runReader(run) });
  return { title: run.task ?? run.run, draw: () => whatItDid(page, run, reading) };
}

/** Return a function that reads what a run did. The names that its tasks have are read from time to time. */
function runReader(at) {
  const { dag, run, task, map_index } = at;
  const readNames = rarely((signal) => namedByTasks(at, signal), NAMES_AGE_MS);
  return async (signal) => {
    const named = await readNames(signal);
    const whose = [["task", task], ["map_index", map_index]].filter(([, value]) => value !== null);
    const names = [...named.jobs.map((each) => ["job", each]), ...named.transforms.map((each) => ["transform", each])];
    const pieces = names.length > 0 ? inPieces(names) : [[]];
    return together(await Promise.all(pieces.map((piece) =>
      get(`${path("runs", dag, run)}?${new URLSearchParams([...whose, ...piece])}`, signal))));
  };
}

/** Return several answers about a run as one: each of them has what the run itself has ordered. */
function together([first, ...others]) {
  const joined = ([name, rows]) => {
    const all = [rows, ...others.map((other) => other[name])].flat();
    return [name, [...new Map(all.map((row) => [IDENTITY[name](row), row])).values()]];
  };
  return Object.fromEntries(Object.entries(first).map(joined));
}

function whatItDid(page, { dag, run, task, map_index }, reading) {
  const head = element("div", { key: "heading", class: "heading" },
    element("h1", { tabindex: "-1", class: "small-title" }, task === null ? "Run " : "Task ",
      runLink({ dag_id: dag, run_id: run, task_id: task, map_index }, { className: "text" })));
  if (reading.value === null) return [head, waiting(reading, "what it did")];
  const parts = sections(page, reading.value).filter(Boolean);
  return [head, failure(reading), ...(parts.length > 0 ? parts : [nothing(task)])];
}

function nothing(task) {
  return element("div", { key: "nothing", class: "empty" },
    element("h2", null, `This ${task === null ? "run" : "task"} has changed nothing on the cluster yet`),
    element("p", null,
      "Once it deploys a transform, orders a job or redrives dead letters, that is shown here."));
}

function sections(page, { jobs, reports, changes, transforms, redrives }) {
  const rows = (kind, list, id) => list.map((row) => page.store[kind].get(row[id]) ?? row);
  return [
    reports.length > 0 && section("Report", {}, reports.map((each) => report(each))),
    transforms.length > 0 && section("Transforms, as they are now", {},
      transformsTable(page, rows("transforms", transforms, "name"), { empty: "" })),
    jobs.length > 0 && section("Jobs, as they are now", {}, jobsTable(page, rows("jobs", jobs, "job"), { empty: "" })),
    changes.length > 0 && changesSection(page, changes),
    redrives.length > 0 && redrivesSection(page, redrives),
  ];
}

function report(each) {
  return element("div", { key: `report ${each.job} ${each.run}`, class: "card" },
    element("h3", null, link(to("jobs", each.job), each.job), " ", badge(each.state)),
    note("Message", [each.error, each.message].filter(Boolean).join(": "), each.state === "failed" ? "bad" : "calm"),
    facts([
      ["Records in", number(each.records_in)],
      ["Records out", number(each.records_out)],
      ["Dead letters", deadLetters(each.dead_letters)],
      ["Updated", ago(each.updated_ms)],
    ]));
}

function changesSection(page, changes) {
  return section("Changes", { note: plural(changes.length, "change") }, table({
    caption: "Changes",
    state: page.tableState("changes of the run"),
    columns: [
      { name: "transform", label: "Transform", cell: (each) => link(to("transforms", each.transform), each.transform) },
      { name: "action", label: "Change", cell: (each) => badge(each.action) },
      { name: "generation", label: "Gen.", title: "Generation", numeric: true,
        cell: (each) => number(each.generation) },
      { name: "version", label: "Version", cell: (each) => text(each.version) },
      { name: "time", label: "When", cell: (each) => ago(each.time_ms) },
      { name: "reason", label: "Reason", className: "wide", cell: (each) => text(each.reason) },
    ],
    rows: changes,
    keyOf: (each) => `${each.transform} ${each.generation} ${each.action} ${each.time_ms}`,
    inputsOf: (each) => [age(each.time_ms)],
    redraw: page.redraw,
  }));
}

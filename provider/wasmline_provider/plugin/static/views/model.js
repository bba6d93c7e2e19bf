/** One model: its champion and challengers, the decisions on them, and what would start a retraining. */

import { retrainingsReader } from "../airflow_api.js";
import { runLink } from "../airflow_links.js";
import { path } from "../api.js";
import { badge } from "../badges.js";
import { element } from "../elements.js";
import { askedFor, button, facts, failure, heading, note, section, waiting } from "../facts.js";
import { markdown } from "../markdown.js";
import { answer, retrain } from "../model_actions.js";
import { plot } from "../plot.js";
import { table } from "../tables.js";
import { digest, errorFigure, number, plural, prose, text, unknown } from "../texts.js";
import { age, ago, duration } from "../time.js";
import { serving } from "./models.js";

const MET = new Map([[true, "met"], [false, "not met"]]);
const AIRFLOW_INTERVAL_MS = 5_000;

export function modelView(page, name) {
  const url = path("models", name);
  page.reading(url);
  return { title: name, draw: () => model(page, name, page.reading(url)) };
}

/** Return the reading of what Airflow knows of a model: its DAGs and pending approvals; null until its URI is known. */
function airflowOf(page, details) {
  const asset_uri = details?.asset_uri;
  if (!asset_uri) return null;
  return page.reading(`Airflow ${asset_uri}`, {
    read: retrainingsReader(asset_uri), interval_ms: AIRFLOW_INTERVAL_MS,
  });
}

function model(page, name, reading) {
  const back = { back: "#/models", backLabel: "All models", name };
  const row = page.store.models.get(name) ?? reading.value?.row;
  if (row === undefined) {
    if (reading.problem?.status !== 404) return [heading(back), waiting(reading, "the model")];
    return [heading(back), element("p", { class: "empty" }, "No model of this name is known.")];
  }
  const states = [serving(row), askedFor(page.asked.of("models", name))];
  const airflow = airflowOf(page, reading.value);
  const dags = (airflow?.value?.dags ?? []).filter((dag) => dag.trains && dag.may_trigger);
  const buttons = dags.length > 0 ? [button("Retrain now…", () => retrain(page, row, dags))] : [];
  return [
    heading({ ...back, states, buttons }),
    note("Problem", row.problem, "bad"),
    row.serving !== "agrees" && note("Serving", row.serving_text),
    facts([
      ["Champion", text(row.champion)],
      ["RMSE", errorFigure(row.rmse)],
      ["Versions", number(row.versions)],
      ["Retraining", text(row.trigger?.state_text ?? "no trigger observes it", { className: "whole" }), "broad"],
    ]),
    ...(reading.value === null ? [waiting(reading, "its versions")] : details(page, row, reading, airflow)),
  ];
}

function details(page, row, reading, airflow) {
  const { state, problem, versions } = reading.value;
  if (state === "reading" && versions.length === 0) return [waiting({ problem: null }, "its versions")];
  return [
    failure(reading),
    note("The models cannot be read now", problem, "bad"),
    airflow && failure(airflow),
    ...(airflow?.value?.approvals ?? []).map((each) => approval(page, row, each)),
    ...(state === "failed" && versions.length === 0 ? [] : versionsAndDecisions(page, row, reading.value)),
  ];
}

function versionsAndDecisions(page, row, { versions, decisions, trigger }) {
  return [
    section("Errors over versions", { note: "of the target's unit; less is better" }, plot({
      label: `Errors of ${row.model}`,
      versions: versions.map((each) => each.version),
      marked: row.champion,
      markedLabel: "champion",
      series: [
        { name: "RMSE on held-out rows", className: "series-a", values: versions.map((each) => each.rmse) },
        { name: "forward error", className: "series-b", values: versions.map((each) => each.forward_rmse) },
        { name: "live error", className: "series-c", values: versions.map((each) => each.live_rmse) },
        { name: "baseline", className: "series-d", values: versions.map((each) => each.baseline_rmse) },
      ],
    })),
    trigger !== null && triggerSection(trigger),
    decisionsSection(page, row, decisions),
    versionsSection(page, row, versions),
  ];
}

function approval(page, row, each) {
  const key = `approval ${each.dag_id} ${each.run_id} ${each.task_id} ${each.map_index}`;
  return element("section", { key, class: "approval", "aria-label": "Pending approval" },
    element("h2", { class: "prose" }, prose(each.subject)),
    each.body && markdown(each.body, "What is asked"),
    element("p", { class: "quiet" }, "Asked ", ago(each.created_ms), " by ", runLink(each)),
    each.may_answer && each.takes_options
      ? element("div", { class: "buttons" }, each.options.map((option, index) => button(option,
        () => answer(page, row, each, option), { className: index === 0 ? "primary" : null })))
      : element("p", { class: "quiet" }, "It is answered at its task in Airflow."));
}

function triggerSection({ observed_ms, topic, checks, new_records, age_s }) {
  return section("What starts a retraining", { note: `observed ${age(observed_ms)}` },
    facts([
      ["New records", number(new_records)],
      ["Topic", text(topic)],
      ["Age of the champion", Number.isFinite(age_s) ? duration(age_s * 1000) : unknown()],
    ]),
    element("ul", { class: "checks" }, checks.map((each) => element("li", { key: each.condition },
      badge(MET.get(each.is_met) ?? "not measured", { tone: each.is_met ? "busy" : "calm" }),
      element("strong", null, text(each.condition)), text(each.text, { className: "whole" })))));
}

function decisionsSection(page, row, decisions) {
  return section("Decisions", { note: plural(decisions.length, "decision") }, table({
    caption: "Decisions",
    state: page.tableState(`decisions on ${row.model}`),
    columns: [
      { name: "number", label: "No.", cell: (each) => number(each.number) },
      { name: "decision", label: "Decision", cell: (each) => badge(each.decision) },
      { name: "version", label: "Version", cell: (each) => text(each.version) },
      { name: "rmse", label: "RMSE", numeric: true, cell: (each) => errorFigure(each.rmse) },
      { name: "champion", label: "Champion then", cell: (each) => text(each.champion) },
      { name: "champion_rmse", label: "Its RMSE", numeric: true, cell: (each) => errorFigure(each.champion_rmse) },
      { name: "reason", label: "Reason", className: "wide", cell: (each) => text(each.refusal || each.reason) },
      { name: "by", label: "By", cell: (each) => text(each.by) },
      { name: "time", label: "When", cell: (each) => ago(each.time_ms) },
    ],
    rows: decisions,
    keyOf: (each) => String(each.number),
    inputsOf: (each) => [age(each.time_ms)],
    empty: "No version was compared with a champion yet.",
    redraw: page.redraw,
  }));
}

function versionsSection(page, row, versions) {
  const role = (each) => (each.version === row.champion ? "champion" : "challenger");
  const error = (field, label) => ({ name: field, label, numeric: true, value: (each) => each[field],
    cell: (each) => errorFigure(each[field]) });
  return section("Versions", { note: plural(versions.length, "version") }, table({
    caption: "Versions",
    state: page.tableState(`versions of ${row.model}`),
    columns: [
      { name: "version", label: "Version", cell: (each) => element("span", { class: "states" }, text(each.version),
        badge(role(each))) },
      { name: "created", label: "Created", value: (each) => each.created_ms, cell: (each) => ago(each.created_ms) },
      error("rmse", "RMSE"), error("baseline_rmse", "Baseline"), error("forward_rmse", "Forward error"),
      error("live_rmse", "Live error"),
      { name: "rows", label: "Rows", numeric: true, value: (each) => each.rows, cell: (each) => number(each.rows) },
      { name: "digest", label: "Digest", cell: (each) => digest(each.digest) },
      { name: "run", label: "Run", cell: (each) => text(each.run) },
    ],
    rows: [...versions].reverse(),
    keyOf: (each) => each.version,
    inputsOf: (each) => [row.champion, age(each.created_ms)],
    empty: "No version was trained yet.",
    redraw: page.redraw,
  }));
}

/** The provenance of a record: what wrote it from which record, and that one's, and so on. */

import { path } from "../api.js";
import { element } from "../elements.js";
import { facts, failure, heading, note, waiting } from "../facts.js";
import { payload } from "../payload.js";
import { toPosition } from "../route.js";
import { digest, errorFigure, link, number, text } from "../texts.js";
import { ago } from "../time.js";

const MAX_STEPS = 50;

export function recordView(page, topic, partition, offset) {
  const url = path("records", topic, partition, offset);
  const name = `${topic}-${partition}@${offset}`;
  page.reading(url);
  return { title: name, draw: () => record(page, name, url) };
}

function record(page, name, url) {
  const reading = page.reading(url);
  const parts = [heading({ back: "#/transforms", backLabel: "All transforms", name })];
  if (reading.value === null) return [...parts, waiting(reading, "the record")];
  const { state, problem, record: first } = reading.value;
  if (state === "ready") reading.stop(); // a record does not change
  const absent = page.shows_payloads ? "null" : "not shown";
  return [
    ...parts,
    failure(reading),
    note(state === "failed" ? "The record cannot be read" : "Note", problem, state === "failed" ? "bad" : "warning"),
    state === "reading" && element("p", { key: "reading", class: "empty", role: "status" },
      "Reading the record and its sources…"),
    first && element("ol", { key: "lineage", class: "lineage" },
      stepsOf(first).map((step, index) => element("li", { key: `step ${index}` }, card(step, index, absent)))),
  ];
}

/** Return a record, its source, that one's, and so on. */
function stepsOf(first) {
  const steps = [];
  for (let step = first; step && steps.length < MAX_STEPS; step = step.source) steps.push(step);
  return steps;
}

function card(step, index, absent) {
  const href = toPosition(step.position);
  return element("section", { class: "card" },
    element("h2", null, index === 0 ? "Record " : "Made from ",
      href && index > 0 ? link(href, step.position) : text(step.position)),
    facts([
      ["Written", ago(step.timestamp_ms)],
      ["Error", step.error ? text(step.error, { className: "alarm" }) : undefined],
      ["Reason", step.reason ? text(step.reason, { className: "whole" }) : undefined],
      ["Key", index === 0 ? payload(step.key, { absent }) : undefined],
      ["Value", index === 0 ? payload(step.value, { absent }) : undefined, "broad"],
    ]),
    element("div", { class: "makers" }, step.module && moduleOf(step.module), step.model && modelOf(step.model)),
    problemList(step.problems),
    !step.module && !step.source && element("p", { class: "quiet" },
      "It has no provenance header: no transform wrote it."));
}

function moduleOf({ name, version, digest: bytes, language, toolchain, commit, problems }) {
  return element("div", { key: "module" }, element("h3", null, "Written by the module ", text(`${name}@${version}`)),
    facts([
      ["Language", text(language)], ["Toolchain", text(toolchain)], ["Commit", text(commit)], ["Digest", digest(bytes)],
    ]),
    problemList(problems));
}

function modelOf({ name, version, digest: bytes, topic, training_rows, rmse, problems }) {
  return element("div", { key: "model" }, element("h3", null, "With the model ", text(`${name}@${version}`)),
    facts([
      ["Trained on", text(topic)], ["Rows", number(training_rows)], ["RMSE", errorFigure(rmse)],
      ["Digest", digest(bytes)],
    ]),
    problemList(problems));
}

function problemList(problems) {
  return problems.map((each, index) => element("p", { key: `problem ${index}`, class: "banner warning" },
    text(each, { className: "whole" })));
}

/** One transform: how it runs, its dead letters, its partitions, its generations, and what was asked of it. */

import { path } from "../api.js";
import { badge, partitionsRunning } from "../badges.js";
import { element } from "../elements.js";
import { askedFor, button, facts, failure, heading, note, waiting } from "../facts.js";
import { namedLine } from "../lines.js";
import { to } from "../route.js";
import { digest, link, number, text, unknown } from "../texts.js";
import { ago } from "../time.js";
import { deployVersion, pauseOrResume, redrive, rollBack } from "../transform_actions.js";
import { deadLettersSection } from "./dead_letters.js";
import { generationsSection } from "./generations.js";
import { logsSection } from "./logs.js";
import { partitionsSection } from "./partitions.js";
import { provenanceForm } from "./provenance_form.js";
import { redrivesSection } from "./redrives.js";
import { specificationSection } from "./specification.js";

export function transformView(page, name) {
  const url = path("transforms", name);
  page.reading(url);
  const mayAct = () => page.reading(url).value?.may_act ?? page.may_act;
  return { title: name, mayAct, draw: () => transform(page, name, page.reading(url), mayAct()) };
}

function transform(page, name, reading, mayAct) {
  const back = { back: "#/transforms", backLabel: "All transforms", name };
  const row = page.store.transforms.get(name) ?? reading.value?.row;
  if (row === undefined) {
    if (reading.problem?.status !== 404) return [heading(back), waiting(reading, "the transform")];
    return [heading(back), element("p", { class: "empty" }, "No transform of this name is deployed on the cluster.")];
  }
  return [
    heading({ ...back, states: states(page, row), buttons: mayAct ? buttons(page, row) : [] }),
    row.state === "paused" && note("Paused", row.reason),
    summary(row),
    ...(reading.value === null ? [waiting(reading, "its details")] : details(page, row, reading, mayAct)),
  ];
}

function states(page, row) {
  return [badge(row.state), element("span", { key: "version", class: "badge calm" }, text(row.version)),
    element("span", { key: "generation", class: "quiet" }, `generation ${row.generation}`),
    askedFor(page.asked.of("transforms", row.name))];
}

function buttons(page, row) {
  const { label, act } = pauseOrResume(page, row);
  return [
    button(label, act, { key: "pause" }),
    button("Deploy a version…", () => deployVersion(page, row)),
    button("Roll back…", () => rollBack(page, row)),
    row.dead_letter_topic !== null
      && button("Redrive dead letters…", () => redrive(page, row, knownErrors(page, row))),
  ];
}

/** Return the errors of the dead letters that are shown. */
function knownErrors(page, row) {
  const url = path("dead-letters", row.dead_letter_topic);
  const letters = page.readings.get(url)?.value?.letters ?? [];
  return [...new Set(letters.map((each) => each.error).filter(Boolean))].sort();
}

function summary(row) {
  return facts([
    ["Records/s", number(row.rate)],
    ["Lag", number(row.lag)],
    ["Partitions running", partitionsRunning(row)],
    ["Dead letters", number(row.dead_letters, { alarm: true })],
    ["Stuck keys", number(row.stuck_keys, { alarm: true })],
    ["Lost offsets", number(row.lost_offsets, { alarm: true })],
    ["Changed", ago(row.changed_ms)],
    ["Job", row.job === null ? unknown() : element("span", { class: "states" }, link(to("jobs", row.job), row.job),
      badge(row.condition))],
    ["Model", row.model === null ? undefined : text(row.model)],
    ["Input", text(row.input_topic)],
    ["Outputs", element("span", { class: "list" }, row.output_topics.map((topic) => text(topic)))],
    ["Dead-letter topic", text(row.dead_letter_topic)],
    ["Digest", digest(row.digest)],
  ]);
}

function details(page, row, reading, mayAct) {
  const { lines, partitions, generations, dead_letters, redrives, redrive_problem, spec } = reading.value;
  return [
    failure(reading),
    element("div", { key: "lines", class: "lines" }, namedLine(lines.rate, "records/s", "Records/s"),
      namedLine(lines.lag, "lag", "Lag"), namedLine(lines.dead_letters, "dead letters", "Dead letters")),
    deadLettersSection(page, row, dead_letters),
    redrivesSection(page, redrives, redrive_problem),
    generationsSection(page, row, generations, mayAct),
    partitionsSection(page, `partitions of ${row.name}`, partitions),
    logsSection(page, row.name),
    provenanceForm(row.output_topics),
    specificationSection(spec),
  ];
}

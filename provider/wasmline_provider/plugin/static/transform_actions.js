/** The actions on transforms and their dead letters, as requests of the dialog. */

import { get, path } from "./api.js";

const SHOWN_VERSIONS = 200;
const MAX_ATTEMPTS = 30;
const ATTEMPT_MS = 500;

/** Return the label and the act of a row's pause, or of its resumption. */
export function pauseOrResume(page, row) {
  const action = row.state === "paused" ? "resume" : "pause";
  const label = action === "pause" ? "Pause" : "Resume";
  const request = { action, label, title: `${label} ${row.name}`, body: { transform: row.name } };
  return { label, act: () => page.act(request, targetOf(row)) };
}

/** Roll a transform back: to a generation, or to the one before for null. */
export function rollBack(page, row, generation = null) {
  const request = {
    action: "rollback", label: "Roll back", title: `Roll back ${row.name}`, body: { transform: row.name, generation },
  };
  page.act(request, targetOf(row));
}

/** Deploy a published version, which the reader chooses. */
export function deployVersion(page, row) {
  const fields = async () => {
    const { versions, problem } = await publishedVersions(row.name);
    if (versions.length === 0) throw new Error(problem || `No version of ${row.name} is published in the registry.`);
    const options = versions.slice(0, SHOWN_VERSIONS).map((each) => ({
      value: each, label: each === row.version ? `${each} (deployed)` : each,
    }));
    return [{ name: "version", label: "Version", options, hint: problem }];
  };
  const title = `Deploy a version of ${row.name}`;
  page.act({ action: "deploy", label: "Deploy", title, body: { transform: row.name }, fields }, targetOf(row));
}

/** Return the versions of a name; a registry that takes long is asked for a while. */
async function publishedVersions(name) {
  for (let attempt = 1; ; attempt += 1) {
    const answer = await get(path("versions", name), new AbortController().signal);
    if (answer.state !== "reading" || answer.versions.length > 0 || attempt === MAX_ATTEMPTS) return answer;
    await new Promise((resolve) => { setTimeout(resolve, ATTEMPT_MS); });
  }
}

/** Redrive the dead letters of a transform: through it, or to the topics that they come from. */
export function redrive(page, row, errors) {
  const fields = async () => [
    {
      name: "through", label: "Where to", options: [
        { value: row.name, label: `through ${row.name}, as it is deployed now` },
        { value: "", label: "to the topics that they come from" },
      ], optional: true,
    },
    {
      name: "error", label: "Which dead letters", optional: true,
      options: [{ value: "", label: "all that are pending" }, ...errors.map((each) => ({ value: each, label: each }))],
    },
  ];
  const body = { topic: row.dead_letter_topic, transform: row.name, error: null, through: null };
  const title = `Redrive dead letters of ${row.name}`;
  page.act({ action: "redrive", label: "Redrive", title, body, fields }, targetOf(row));
}

function targetOf(row) {
  return { kind: "transforms", name: row.name };
}

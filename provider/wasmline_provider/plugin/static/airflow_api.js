/**
 * Requests to Airflow's own public API: it decides who may do what, and records who did.
 *
 * @typedef {{dag_id: string, run_id: string, task_id: string, map_index: number, subject: string, body: ?string,
 *   options: string[], takes_options: boolean, created_ms: number}} Approval a task that waits for an answer;
 *   `takes_options` where one option is the whole answer
 */

import { get, send } from "./api.js";

const AIRFLOW = "../api/v2";
const MAX_ASSETS = 50;
const MAX_APPROVALS = 100;
const MAX_TASKS = 1_000;
const REFUSED = 403;
const WAITING = ["deferred", "awaiting_input"];

/** Return which DAGs make the asset of a model, and what waits for an answer in their runs. */
export async function retrainings(asset_uri, signal) {
  const dags = await producingDags(asset_uri, signal);
  return { dags, approvals: (await Promise.all(dags.map((dag) => approvalsOf(dag, signal)))).flat() };
}

async function producingDags(asset_uri, signal) {
  const query = new URLSearchParams({ uri_prefix_pattern: asset_uri, limit: MAX_ASSETS });
  const { assets } = await get(`${AIRFLOW}/assets?${query}`, signal);
  const tasks = assets.filter(({ uri }) => uri === asset_uri).flatMap(({ producing_tasks }) => producing_tasks);
  return [...new Set(tasks.map(({ dag_id }) => dag_id))].sort();
}

/** @returns {Promise<Approval[]>} */
async function approvalsOf(dag, signal) {
  const query = new URLSearchParams({ response_received: "false", order_by: "-created_at", limit: MAX_APPROVALS });
  const url = `${AIRFLOW}/${escaped(["dags", dag, "dagRuns", "~", "hitlDetails"])}?${query}`;
  const { hitl_details } = await get(url, signal);
  return hitl_details.filter(({ task_instance }) => WAITING.includes(task_instance.state)).map(approvalOf);
}

function approvalOf({ task_instance, subject, body, options, multiple, params, created_at }) {
  const { dag_id, dag_run_id: run_id, task_id, map_index } = task_instance;
  const takes_options = !multiple && Object.keys(params).length === 0;
  const created_ms = Date.parse(created_at);
  return { dag_id, run_id, task_id, map_index, subject, body, options, takes_options, created_ms };
}

export function answerApproval({ dag_id, run_id, task_id, map_index }, option) {
  const parts = ["dags", dag_id, "dagRuns", run_id, "taskInstances", task_id, String(map_index), "hitlDetails"];
  return send("PATCH", `${AIRFLOW}/${escaped(parts)}`, { chosen_options: [option], params_input: {} });
}

/** Trigger a DAG now; return its run. */
export function triggerDag(dag_id, reason) {
  const note = reason || null;
  return send("POST", `${AIRFLOW}/${escaped(["dags", dag_id, "dagRuns"])}`, { logical_date: null, conf: {}, note });
}

/** Return the jobs and transforms that the tasks of a run name; none where Airflow does not let the user see them. */
export async function namedByTasks({ dag, run, task }, signal) {
  const query = new URLSearchParams({ limit: MAX_TASKS });
  const url = `${AIRFLOW}/${escaped(["dags", dag, "dagRuns", run, "taskInstances"])}?${query}`;
  const tasks = await get(url, signal).then(({ task_instances }) => task_instances, (error) => {
    if (error.status === REFUSED) return [];
    throw error;
  });
  const shown = tasks.filter(({ task_id }) => task === null || task_id === task);
  const jobs = namesOf(shown, ({ rendered_fields }) => [rendered_fields.job]);
  return { jobs, transforms: namesOf(shown, transformsOf) };
}

/** Operators of a module or a deployment have its name in `name`. */
function transformsOf({ operator_name, rendered_fields: { transform, name } }) {
  return [transform, operator_name?.startsWith("Wasm") ? name : null];
}

function namesOf(tasks, fields) {
  return [...new Set(tasks.flatMap(fields).filter((each) => typeof each === "string" && each !== ""))].sort();
}

function escaped(parts) {
  return parts.map(encodeURIComponent).join("/");
}

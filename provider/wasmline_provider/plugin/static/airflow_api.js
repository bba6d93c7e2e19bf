/**
 * Requests to Airflow's own public API: it decides who may do what, and records who did.
 *
 * @typedef {{dag_id: string, run_id: string, task_id: string, map_index: number, subject: string, body: ?string,
 *   options: string[], takes_options: boolean, created_ms: number, may_answer: boolean}} Approval a task that waits for
 *   an answer; `takes_options` where one option is the whole answer
 * @typedef {{dag_id: string, is_paused: boolean, trains: boolean, may_trigger: boolean, may_answer: boolean,
 *   user_id: string}} ModelDag a DAG that makes the asset of a model; `trains` where it has a TrainModelOperator, or
 *   one of that ending; `user_id` is who asks
 */

import { get, inPieces, send } from "./api.js";
import { rarely } from "./reading.js";

const AIRFLOW = "../api/v2";
const PAGE_ROWS = 100; // Airflow gives no more at once
const MAX_TASKS = 1_000;
const DAGS_AGE_MS = 30_000;
const ABSENT = [403, 404];
const WAITING = ["deferred", "awaiting_input"];

/**
 * Return a function that reads which DAGs make the asset of a model, and what waits for an answer in their runs.
 * The DAGs are read from time to time; one that Airflow does not let the user see is left out.
 */
export function retrainingsReader(asset_uri) {
  const readDags = rarely((signal) => producingDags(asset_uri, signal), DAGS_AGE_MS);
  return async (signal) => {
    const dags = await readDags(signal);
    return { dags, approvals: (await Promise.all(dags.map((dag) => approvalsOf(dag, signal)))).flat() };
  };
}

/** @returns {Promise<ModelDag[]>} */
async function producingDags(asset_uri, signal) {
  // Other names may begin with this one: it is the first of them.
  const query = new URLSearchParams({ uri_prefix_pattern: asset_uri, order_by: "uri", limit: PAGE_ROWS });
  const { assets } = await get(`${AIRFLOW}/assets?${query}`, signal);
  const tasks = assets.filter(({ uri }) => uri === asset_uri).flatMap(({ producing_tasks }) => producing_tasks);
  const dag_ids = [...new Set(tasks.map(({ dag_id }) => dag_id))].sort();
  if (dag_ids.length === 0) return [];
  const [permissions, ...dags] = await Promise.all([
    permissionsOf(dag_ids, signal),
    ...dag_ids.map((dag_id) => dagOf(dag_id, signal)),
  ]);
  return dags.filter((dag) => dag !== null).map((dag) => ({ ...dag, ...permissions[dag.dag_id] }));
}

async function permissionsOf(dag_ids, signal) {
  const answers = await Promise.all(inPieces(dag_ids.map((dag_id) => ["dag", dag_id])).map((piece) =>
    get(`api/permissions?${new URLSearchParams(piece)}`, signal)));
  return Object.fromEntries(answers.flatMap(({ dags, user_id }) =>
    Object.entries(dags).map(([dag_id, may]) => [dag_id, { ...may, user_id }])));
}

async function dagOf(dag_id, signal) {
  const url = `${AIRFLOW}/${escaped(["dags", dag_id])}`;
  const found = await orAbsent(Promise.all([get(url, signal), get(`${url}/tasks`, signal)]), null);
  if (found === null) return null;
  const [{ is_paused }, { tasks }] = found;
  const trains = tasks.some(({ operator_name }) => operator_name?.endsWith("TrainModelOperator"));
  return { dag_id, is_paused, trains };
}

/** @returns {Promise<Approval[]>} */
async function approvalsOf({ dag_id, may_answer, user_id }, signal) {
  const query = new URLSearchParams({ response_received: "false", order_by: "-created_at", limit: PAGE_ROWS });
  const url = `${AIRFLOW}/${escaped(["dags", dag_id, "dagRuns", "~", "hitlDetails"])}?${query}`;
  const { hitl_details } = await orAbsent(get(url, signal), { hitl_details: [] });
  return hitl_details.filter(({ task_instance }) => WAITING.includes(task_instance.state))
    .map((each) => ({ ...approvalOf(each), may_answer: may_answer && asks(each, user_id) }));
}

function asks({ assigned_users }, user_id) {
  return !assigned_users?.length || assigned_users.some(({ id }) => id === user_id);
}

function approvalOf({ task_instance, subject, body, options, multiple, params, created_at }) {
  const { dag_id, dag_run_id: run_id, task_id, map_index } = task_instance;
  const takes_options = !multiple && Object.keys(params).length === 0;
  const created_ms = Date.parse(created_at);
  return { dag_id, run_id, task_id, map_index, subject, body, options, takes_options, created_ms };
}

/** Return an answer of Airflow, or `absent` for what it does not let the user see, or does not have. */
function orAbsent(answer, absent) {
  return answer.catch((error) => {
    if (ABSENT.includes(error.status)) return absent;
    throw error;
  });
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

/**
 * Return the jobs and transforms that the tasks of a run name, or one of them; none where Airflow does not let the user
 * see them.
 */
export async function namedByTasks(run, signal) {
  const tasks = await orAbsent(taskInstances(run, signal), []);
  const jobs = namesOf(tasks, ({ rendered_fields }) => [rendered_fields.job]);
  return { jobs, transforms: namesOf(tasks, transformsOf) };
}

async function taskInstances({ dag, run, task, map_index }, signal) {
  const url = `${AIRFLOW}/${escaped(["dags", dag, "dagRuns", run, "taskInstances"])}`;
  const query = new URLSearchParams({ limit: PAGE_ROWS, order_by: "id" });
  if (task !== null) query.set("task_id", task);
  if (map_index !== null) query.set("map_index", map_index);
  const found = [];
  for (let total = 1; found.length < Math.min(total, MAX_TASKS);) {
    query.set("offset", found.length);
    const { task_instances, total_entries } = await get(`${url}?${query}`, signal);
    if (task_instances.length === 0) break; // some are gone
    found.push(...task_instances);
    total = total_entries;
  }
  return found;
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

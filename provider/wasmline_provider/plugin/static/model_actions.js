/** The actions on models, as requests of the dialog. Airflow does them: see airflow_api.js. */

import { answerApproval, triggerDag } from "./airflow_api.js";

/** Retrain a model now, by one of the DAGs that train it, which the reader chooses. @param {ModelDag[]} dags */
export function retrain(page, row, dags) {
  const labelOf = ({ dag_id, is_paused }) => (is_paused ? `${dag_id} (paused)` : dag_id);
  const options = dags.map((dag) => ({ value: dag.dag_id, label: labelOf(dag) }));
  const isPaused = (dag_id) => dags.find((each) => each.dag_id === dag_id).is_paused;
  const fields = dags.length > 1 ? async () => [{ name: "dag_id", label: "DAG", options }] : undefined;
  const plan = async (body) => ({
    title: `Retrain ${row.model}`,
    effects: [
      `The DAG ${body.dag_id} is triggered now, with its own parameters.`,
      ...(isPaused(body.dag_id) ? ["It is paused: the run starts once somebody unpauses it in Airflow."] : []),
      "What it trains becomes the champion only if it passes the gate of the DAG.",
    ],
    fields: body, needs_reason: false, is_possible: true, problem: "",
  });
  const act = async ({ dag_id }, reason) => {
    const { dag_run_id } = await triggerDag(dag_id, reason);
    return { text: `run ${dag_run_id} of ${dag_id} is triggered` };
  };
  const [{ dag_id: first }] = dags;
  const request = { action: "retrain", label: "Retrain", title: `Retrain ${row.model}`, body: { dag_id: first } };
  page.act({ ...request, fields, plan, act }, targetOf(row));
}

/** Answer a pending approval with one of its options. */
export function answer(page, row, approval, option) {
  const { dag_id, run_id, task_id, subject } = approval;
  const plan = async (body) => ({
    title: subject,
    effects: [`The task ${task_id} of the run ${run_id} of ${dag_id} goes on with the answer "${option}".`],
    fields: body, needs_reason: false, takes_reason: false, is_possible: true, problem: "",
  });
  const act = async () => {
    await answerApproval(approval, option);
    return { text: `${task_id} is answered: ${option}` };
  };
  page.act({ action: "answer", label: option, title: subject, body: {}, plan, act }, targetOf(row));
}

function targetOf(row) {
  return { kind: "models", name: row.model };
}

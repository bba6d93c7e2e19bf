/** The actions on models, as requests of the dialog. */

/** Retrain a model now, by its DAG; with several DAGs the reader chooses one. */
export function retrain(page, row, dags) {
  const options = dags.map((dag) => ({ value: dag, label: dag }));
  const fields = dags.length > 1 ? async () => [{ name: "dag_id", label: "DAG", options }] : undefined;
  const body = { model: row.model, dag_id: dags[0] };
  page.act({ action: "retrain", label: "Retrain", title: `Retrain ${row.model}`, body, fields }, targetOf(row));
}

/** Answer a pending approval with one of its options. */
export function answer(page, row, approval, option) {
  const { dag_id, run_id, task_id, map_index, subject } = approval;
  const body = { dag_id, run_id, task_id, map_index, option };
  page.act({ action: "answer", label: option, title: subject, body }, targetOf(row));
}

function targetOf(row) {
  return { kind: "models", name: row.model };
}

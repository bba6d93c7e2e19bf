/** All models: their champions, and whether the deployments run them. */

import { badge } from "../badges.js";
import { element } from "../elements.js";
import { askedFor, note } from "../facts.js";
import { to } from "../route.js";
import { table } from "../tables.js";
import { errorFigure, link, number, text, unknown } from "../texts.js";
import { age, ago } from "../time.js";

export function modelsView(page) {
  return {
    title: "Models",
    draw: () => [
      element("h1", { tabindex: "-1", class: "unseen" }, "Models"),
      page.store.models.size > 0 && note("The models cannot be read now", page.store.head.models_problem, "bad"),
      table({
        caption: "Models",
        state: page.tableState("models", { sort: "name" }),
        columns: columns(page),
        rows: [...page.store.models.values()],
        keyOf: (row) => row.model,
        inputsOf: (row) => [page.asked.of("models", row.model), age(row.trigger?.observed_ms)],
        nameOf: (row) => row.model,
        stateOf: (row) => row.serving,
        empty: empty(page.store.head),
        redraw: page.redraw,
      }),
    ],
  };
}

function columns(page) {
  return [
    { name: "name", label: "Model", value: (row) => row.model, cell: (row) => element("span", { class: "states" },
      link(to("models", row.model), row.model), askedFor(page.asked.of("models", row.model))) },
    { name: "champion", label: "Champion", value: (row) => row.champion, cell: (row) => text(row.champion) },
    { name: "versions", label: "Versions", numeric: true, value: (row) => row.versions,
      cell: (row) => number(row.versions) },
    { name: "rmse", label: "RMSE", title: "The champion's error on its held-out rows", numeric: true,
      value: (row) => row.rmse, cell: (row) => errorFigure(row.rmse) },
    { name: "serving", label: "Serving", value: (row) => row.serving,
      cell: (row) => serving(row) },
    { name: "trigger", label: "Retraining", className: "wide",
      cell: (row) => (row.trigger === null ? unknown() : trigger(row.trigger)) },
    { name: "problem", label: "Problem", className: "wide", cell: (row) => (row.problem ? text(row.problem,
      { className: "alarm" }) : element("span", { class: "quiet" }, "none")) },
  ];
}

function trigger({ state_text, observed_ms }) {
  return element("span", { class: "states" }, text(state_text), element("span", { class: "quiet" }, ago(observed_ms)));
}

/** Describe whether each deployment of a model runs its champion. */
export function serving(row) {
  if (row.serving === null) return unknown();
  return badge(row.serving, { tone: row.serving === "agrees" ? "good" : "warning", title: row.serving_text });
}

function empty({ models_state, models_problem }) {
  if (models_state === "reading") return element("p", { role: "status" }, "The models are being read.");
  return [
    note("The models cannot be read", models_problem, "bad"),
    element("h2", null, "No model is known"),
    element("p", null, "Models are read from the location of the connection ", element("code", null, "wasmline"),
      ": set it, then train one from a DAG with ", element("code", null, "TrainModelOperator"), "."),
  ];
}

/**
 * The dialog of an action: fields where it has some, then the plan's effects, the reason, and the act itself.
 *
 * A `dialog` element is no window: the sandbox of the frame allows it. It keeps the focus in itself, closes by Escape
 * and gives the focus back.
 *
 * @typedef {{name: string, label: string, options?: {value: string, label: string}[], optional?: boolean,
 *   hint?: string}} Field
 * @typedef {{action: string, label: string, title: string, body: Object, fields?: function(): Promise<Field[]>,
 *   plan?: function(Object): Promise<Object>, act?: function(Object, string): Promise<{text: string}>}} Request with
 *   `plan` and `act` it is none of the server's actions; a plan without `takes_reason` asks for none
 */

import { explained, path, post } from "./api.js";
import { draw, element } from "./elements.js";
import { prose } from "./texts.js";

const MAX_REASON_LETTERS = 1_000;

export class ActionDialog {
  /** @param {function(Request, string): void} done called with the request and the text of its result */
  constructor(node, done) {
    this.node = node;
    this.done = done;
    this.step = null;
    node.addEventListener("cancel", (event) => this.step?.name === "acting" && event.preventDefault());
    node.addEventListener("close", () => this.#closed());
  }

  /** Ask for an action. @param {Request} request */
  async open(request) {
    this.opener = document.activeElement;
    this.request = request;
    this.body = request.body;
    this.#show({ name: "waiting", text: "Reading what there is to choose from…" });
    this.node.showModal();
    if (!request.fields) return this.#plan();
    return this.#attempt(request.fields(), (fields) => this.#show({ name: "fields", fields }));
  }

  #plan() {
    this.#show({ name: "waiting", text: "Reading what this will do…" });
    const { request } = this;
    const planned = request.plan?.(this.body) ?? post(path("plans", request.action), this.body);
    return this.#attempt(planned, (plan) => {
      this.#show({ name: "plan", plan, problem: "" });
      this.node.querySelector("textarea, button.primary:enabled, button.cancel")?.focus();
    });
  }

  #act(plan, reason) {
    const { request } = this;
    this.#show({ name: "acting", plan });
    const done = ({ text }) => {
      this.node.close();
      this.done(request, text);
    };
    const failed = (error) => this.#show({ name: "plan", plan, problem: explained(error) });
    const { fields } = plan;
    const asked = request.act?.(fields, reason) ?? post(path("actions", request.action), { ...fields, reason });
    return this.#attempt(asked, done, failed);
  }

  /** Await an answer; what arrives after the dialog was closed, or opened again, is not shown. */
  async #attempt(promise, then, otherwise = (error) => this.#show({ name: "failed", text: explained(error) })) {
    const { request } = this;
    try {
      const answer = await promise;
      if (this.request === request) then(answer);
    } catch (error) {
      if (this.request === request) otherwise(error);
    }
  }

  #closed() {
    this.request = null;
    this.step = null;
    draw(this.node);
    if (this.opener?.isConnected) this.opener.focus();
    else document.getElementById("main")?.focus();
  }

  #show(step) {
    this.step = step;
    const title = step.plan?.title ?? this.request.title;
    draw(this.node, element("form", { key: "form", "aria-busy": step.name === "acting" ? "true" : null,
      on: { submit: (event) => this.#submit(event) } },
    element("h2", { id: "dialog-title", class: "prose" }, title),
    this.#content(step),
    element("div", { key: "buttons", class: "buttons" },
      ["fields", "plan", "acting"].includes(step.name) && this.#primary(step),
      element("button", { key: "cancel", type: "button", class: "cancel", disabled: step.name === "acting",
        on: { click: () => this.node.close() } }, step.name === "failed" ? "Close" : "Cancel"))));
  }

  #content(step) {
    if (step.name === "waiting") return element("p", { key: "waiting", role: "status" }, step.text);
    if (step.name === "failed") return problemText(step.text);
    if (step.name === "fields") return element("div", { key: "fields" }, step.fields.map((each) => field(each)));
    const { plan, problem } = step;
    const takesReason = plan.is_possible && plan.takes_reason !== false;
    return element("div", { key: "plan" },
      plan.effects.length > 0 && element("ul", { class: "effects" },
        plan.effects.map((effect, index) => element("li", { key: `effect ${index}` }, prose(effect)))),
      problemText(plan.is_possible ? problem : plan.problem),
      takesReason && element("label", { key: "reason" }, plan.needs_reason ? "Reason" : "Reason (optional)",
        element("textarea", { name: "reason", rows: "3", maxlength: String(MAX_REASON_LETTERS),
          required: plan.needs_reason, "aria-describedby": "reason-hint" })),
      takesReason && element("p", { key: "hint", id: "reason-hint", class: "quiet" },
        "It is recorded with your name, for whoever reads the history."));
  }

  #primary(step) {
    const label = step.name === "fields" ? "Continue" : this.request.label;
    const isOff = step.name === "acting" || step.plan?.is_possible === false;
    return element("button", { key: "primary", type: "submit", class: "primary", disabled: isOff },
      step.name === "acting" ? "Asking…" : label);
  }

  #submit(event) {
    event.preventDefault();
    const values = new FormData(event.target);
    if (this.step.name === "plan") this.#act(this.step.plan, values.get("reason") ?? "");
    if (this.step.name !== "fields") return;
    const chosen = [...values].map(([name, value]) => [name, value === "" ? null : value]);
    this.body = { ...this.request.body, ...Object.fromEntries(chosen) };
    this.#plan();
  }
}

function field({ name, label, options, optional, hint }) {
  const shown = options
    ? element("select", { name, required: !optional },
      options.map(({ value, label: shownLabel }) => element("option", { key: `is ${value}`, value }, shownLabel)))
    : element("input", { name, required: !optional });
  return element("label", { key: name }, label, shown, hint && element("span", { class: "quiet" }, hint));
}

function problemText(text) {
  return text && element("p", { key: "problem", class: "problem", role: "alert" }, prose(text));
}

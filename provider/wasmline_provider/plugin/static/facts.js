/** Facts of a thing as a list of names and values, its heading, sections and buttons. */

import { explained } from "./api.js";
import { element } from "./elements.js";
import { prose, text, titleOf, truncated } from "./texts.js";

/** Describe facts: [[name, value, "broad" or nothing], …]; one whose value is undefined is left out. */
export function facts(list) {
  return element("dl", { class: "facts" }, list.filter(([, value]) => value !== undefined)
    .map(([name, value, className = null]) =>
      element("div", { key: name, class: className }, element("dt", null, name), element("dd", null, value))));
}

/** Describe the heading of one thing: the way back, its name, its states, and its buttons. */
export function heading({ back, backLabel, name, states = [], buttons = [] }) {
  return element("div", { key: "heading", class: "heading" },
    back && element("p", { class: "back" }, element("a", { href: back }, backLabel)),
    element("div", { class: "title" },
      element("h1", { tabindex: "-1", title: titleOf(name), class: "text" }, truncated(name)),
      states,
      element("div", { key: "buttons", class: "buttons" }, buttons)));
}

/** Describe a section that can be closed; `toggle` is called with whether it is open. */
export function section(title, { open = true, note = null, toggle = null }, ...children) {
  const on = toggle ? { toggle: (event) => toggle(event.target.open) } : {};
  return element("details", { key: title, class: "section", open, on },
    element("summary", null, element("h2", null, title), note && element("span", { class: "quiet" }, note)),
    element("div", { class: "body" }, children));
}

/** Describe a button that asks for an action; one whose label changes has a key of its own, and keeps the focus. */
export function button(label, click, { key = label, name = null, className = null } = {}) {
  return element("button", { key, type: "button", class: className, "aria-label": name && titleOf(name),
    on: { click } }, label);
}

/** Describe what was asked and is not seen yet; nothing for null. */
export function askedFor(label) {
  return label && element("bdi", { key: "asked", class: "badge busy" }, `asked: ${truncated(label.toLowerCase())}`);
}

/** Describe the state of a reading without an answer: it is on its way, or failed. */
export function waiting(reading, what) {
  if (reading.problem !== null) return failure(reading);
  return element("p", { key: "waiting", class: "empty", role: "status" }, `Reading ${what}…`);
}

/** Describe a reading's problem; nothing where it has none. */
export function failure(reading) {
  if (reading.problem === null) return null;
  return element("p", { key: "failure", class: "banner bad", role: "alert" }, prose(explained(reading.problem)));
}

/** Describe a note of a few words, such as why a transform is paused. */
export function note(label, value, tone = "warning") {
  return value && element("p", { key: label, class: `banner ${tone}` }, element("strong", null, `${label}: `),
    text(value, { className: "whole" }));
}

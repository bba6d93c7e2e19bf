/** The specification of a deployment: limits, compression, and the names of its environment's variables. */

import { element } from "../elements.js";
import { facts, section } from "../facts.js";
import { number, text, unknown } from "../texts.js";

export function specificationSection(spec) {
  return section("Specification", { open: false }, facts(Object.entries(spec).map(([name, value]) => [
    name.replaceAll("_", " "), setting(value),
  ])));
}

function setting(value) {
  if (value === null || value === undefined) return unknown();
  if (Array.isArray(value)) {
    if (value.length === 0) return element("span", { class: "quiet" }, "none");
    return element("span", { class: "list" }, value.map((each) => text(each)));
  }
  if (typeof value === "number") return number(value);
  return text(typeof value === "object" ? JSON.stringify(value) : value);
}

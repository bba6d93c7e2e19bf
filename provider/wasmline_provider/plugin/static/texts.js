/** Texts of untrusted origin, numbers and what is unknown. */

import { element } from "./elements.js";

const MAX_LETTERS = 2_000;
const MAX_TITLE_LETTERS = 1_000;
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
/** Characters that disguise a text as another one: all but lines, tabs, joiners, and Arabic signs that are visible. */
const CONTROLS = /(?![\n\t\u200c\u200d\u0600-\u0605\u06dd\u070f\u08e2\u{110bd}])[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;
const DIGEST_LETTERS = "sha256:".length + 10;

/** Return at most `letters` of a text, with escapes for control characters; what was truncated ends in an ellipsis. */
export function truncated(text, letters = MAX_LETTERS) {
  const whole = String(text);
  return printable(whole.length > letters ? `${whole.slice(0, letters)}…` : whole);
}

/** Return a text with an escape such as \u202e in place of each control character but line feeds and tabs. */
export function printable(text) {
  return text.replace(CONTROLS, (control) => `\\u${control.codePointAt(0).toString(16).padStart(4, "0")}`);
}

export function titleOf(text) {
  return truncated(text, MAX_TITLE_LETTERS);
}

/** Describe an untrusted text on one line: CSS cuts it, its title has more of it; an empty one is unknown. */
export function text(value, { className = "" } = {}) {
  if (value === null || value === undefined || value === "") return unknown();
  return element("bdi", { class: `text ${className}`.trim(), title: titleOf(value) }, truncated(value));
}

/** Describe an untrusted text of several lines. */
export function prose(value, { className = "" } = {}) {
  return element("bdi", { class: `prose ${className}`.trim() }, truncated(value));
}

/** Describe a link to a view of this page. */
export function link(href, value) {
  return element("a", { href, class: "text", dir: "auto", title: titleOf(value) }, truncated(value));
}

export function unknown() {
  return element("span", { class: "unknown" }, element("span", { "aria-hidden": "true" }, "–"),
    element("span", { class: "unseen" }, "unknown"));
}

export function digest(value) {
  if (!value) return unknown();
  return element("code", { class: "text digest", title: titleOf(value) }, truncated(value, DIGEST_LETTERS));
}

/** Return a count with separators of thousands; above a million in short. */
export function count(value) {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 1_000_000) return COMPACT.format(value);
  return value.toLocaleString("en", { maximumFractionDigits: 1 });
}

/** Describe a number, with all its digits in the title; null is unknown. */
export function number(value, { alarm = false } = {}) {
  if (!Number.isFinite(value)) return unknown();
  const exact = value.toLocaleString("en", { maximumFractionDigits: 6 });
  return element("span", { class: alarm && value > 0 ? "number alarm" : "number", title: exact }, count(value));
}

/** Describe an error of a model, with four significant digits. */
export function errorFigure(value) {
  if (!Number.isFinite(value)) return unknown();
  return element("span", { class: "number", title: String(value) }, Number(value.toPrecision(4)).toString());
}

/** Return "1 partition", "2 partitions". */
export function plural(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

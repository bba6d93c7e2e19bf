/** The part of Markdown in which approvals are written: paragraphs, bold text and tables. All else is as it stands. */

import { element } from "./elements.js";
import { prose, text } from "./texts.js";

const MAX_LETTERS = 20_000;
const ESCAPED = /\\([!-/:-@[-`{-~])/g;
const BOLD = /\*\*(?! )(.+?)(?<! )\*\*/;
const DIVIDER = /^\|(\s*:?-+:?\s*\|)+$/;
const CELL = /((?:\\.|[^\\|])*)(?:\||$)/g;

/** Describe an untrusted text in Markdown; `label` names its tables. */
export function markdown(source, label) {
  const shown = source.slice(0, MAX_LETTERS).replaceAll("\r\n", "\n");
  const blocks = shown.split(/\n{2,}/).map((block) => block.trim().split("\n"));
  const elements = blocks.map((lines, index) => (lines.length > 1 && DIVIDER.test(lines[1].trim())
    ? tableOf(lines, `table ${index}`, label)
    : element("p", { key: `paragraph ${index}` }, bold(lines.join("\n")))));
  if (source.length <= MAX_LETTERS) return elements;
  const rest = `The text goes on: its last ${source.length - MAX_LETTERS} letters are on the task's own page.`;
  return [...elements, element("p", { key: "cut", class: "problem", role: "alert" }, rest)];
}

function bold(block) {
  return block.split(BOLD).map((part, index) => part && (index % 2 === 1
    ? element("strong", { key: `bold ${index}` }, prose(unescaped(part)))
    : element("span", { key: `plain ${index}` }, prose(unescaped(part)))));
}

function tableOf([head, , ...rows], key, label) {
  const row = (tag) => (line, index) => element("tr", { key: `row ${index}` },
    cells(line).map((cell, place) => element(tag, { key: `cell ${place}` }, cell && text(cell))));
  return element("div", { key, class: "scroller", role: "region", "aria-label": label, tabindex: "0" },
    element("table", null,
      element("thead", null, [head].map(row("th"))),
      element("tbody", null, rows.map(row("td")))));
}

function cells(line) {
  const found = [...line.trim().replace(/^\|/, "").matchAll(CELL)].map(([, cell]) => unescaped(cell.trim()));
  return found.slice(0, found.findLastIndex((cell) => cell !== "") + 1);
}

function unescaped(part) {
  return part.replace(ESCAPED, "$1");
}

/** The part of Markdown in which approvals are written: paragraphs, bold text and tables. All else stays as it is. */

import { element } from "./elements.js";
import { prose, text } from "./texts.js";

const MAX_LETTERS = 20_000;
const ESCAPE = /\\(?=[!-/:-@[-`{-~])/g;
const BOLD = /\*\*(.+?)\*\*/;
const DIVIDER = /^\|(\s*:?-+:?\s*\|)+$/;
const CELL_END = /(?<!\\)\|/;

/** Describe an untrusted text in Markdown; `label` names its tables. */
export function markdown(source, label) {
  const blocks = source.slice(0, MAX_LETTERS).split(/\n{2,}/).map((block) => block.trim().split("\n"));
  return blocks.map((lines, index) => (lines.length > 1 && DIVIDER.test(lines[1].trim())
    ? tableOf(lines, `table ${index}`, label)
    : element("p", { key: `paragraph ${index}` }, bold(lines.join("\n")))));
}

function bold(block) {
  return block.split(BOLD).map((part, index) => part && (index % 2 === 1
    ? element("strong", { key: `bold ${index}` }, prose(unescaped(part)))
    : element("span", { key: `plain ${index}` }, prose(unescaped(part)))));
}

function tableOf([head, , ...rows], key, label) {
  const row = (tag) => (line, index) => element("tr", { key: `row ${index}` },
    cells(line).map((cell, place) => element(tag, { key: `cell ${place}` }, text(cell))));
  return element("div", { key, class: "scroller", role: "region", "aria-label": label, tabindex: "0" },
    element("table", null,
      element("thead", null, [head].map(row("th"))),
      element("tbody", null, rows.map(row("td")))));
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split(CELL_END).map((cell) => unescaped(cell.trim()));
}

function unescaped(part) {
  return part.replace(ESCAPE, "");
}

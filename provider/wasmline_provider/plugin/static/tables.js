/**
 * Tables: rows by key, sorted and filtered, a page of them at a time. Only rows whose inputs changed are drawn again.
 *
 * @typedef {{name: string, label: string, cell: function(Object): *, value?: function(Object): *,
 *   numeric?: boolean, className?: string, title?: string}} Column a column with `value` can be sorted
 */

import { element, memo } from "./elements.js";
import { count, plural } from "./texts.js";

const PAGE_ROWS = 100;

/** What a reader chose for one table. */
export class TableState {
  constructor({ sort = null, descending = false } = {}) {
    Object.assign(this, { sort, descending, name: "", state: "", page: 0 });
  }

  sortBy(column) {
    this.descending = this.sort === column && !this.descending;
    this.sort = column;
    this.page = 0;
  }
}

/**
 * Describe a table.
 *
 * @param {{state: TableState, caption: string, columns: Column[], rows: Object[], keyOf: function(Object): string,
 *   inputsOf?: function(Object): Array, nameOf?: function(Object): string, stateOf?: function(Object): string,
 *   filter_from?: number, empty: *, redraw: function(): void, page_rows?: number}} options with `nameOf` there is a
 *   filter, from `filter_from` rows on; `inputsOf` are the values beside the row that its cells show
 */
export function table(options) {
  const { state, rows, page_rows = PAGE_ROWS } = options;
  if (rows.length === 0) return element("div", { key: options.caption, class: "empty" }, options.empty);
  const found = sorted(filtered(rows, options), options);
  state.page = Math.max(0, Math.min(state.page, Math.ceil(found.length / page_rows) - 1));
  const first = state.page * page_rows;
  const shown = found.slice(first, first + page_rows);
  return element("div", { key: options.caption, class: "table" },
    isFiltered(options) && filters(rows, found, options),
    found.length === 0 && element("p", { key: "none", class: "empty" }, "No row matches the filter."),
    shown.length > 0 && scroller(options, shown),
    found.length > page_rows && pages(options, found.length, first, shown.length));
}

function scroller({ caption, state, columns, keyOf, inputsOf, redraw }, shown) {
  return element("div", { key: "rows", class: "scroller", role: "region", "aria-label": caption, tabindex: "0" },
    element("table", null,
      element("caption", { class: "unseen" }, caption),
      element("thead", null, element("tr", null, columns.map((column) => heading(column, state, redraw)))),
      element("tbody", null, shown.map((row) => {
        const key = keyOf(row);
        return memo(`row ${key}`, [row, ...(inputsOf?.(row) ?? [])], () => tableRow(columns, row));
      }))));
}

function heading(column, state, redraw) {
  const isSorted = state.sort === column.name;
  const order = state.descending ? "descending" : "ascending";
  const attributes = {
    key: column.name, scope: "col", class: column.numeric ? "numeric" : null, title: column.title ?? null,
    "aria-sort": isSorted ? order : null,
  };
  if (!column.value) return element("th", attributes, column.label);
  const click = () => {
    state.sortBy(column.name);
    redraw();
  };
  const arrow = isSorted ? (state.descending ? "↓" : "↑") : "";
  return element("th", attributes, element("button", { type: "button", class: "sort", on: { click } },
    column.label, element("span", { "aria-hidden": "true" }, arrow)));
}

function tableRow(columns, row) {
  return element("tr", null, columns.map((column, index) => element(index === 0 ? "th" : "td", {
    key: column.name,
    scope: index === 0 ? "row" : null,
    class: [column.numeric && "numeric", column.className].filter(Boolean).join(" ") || null,
  }, column.cell(row))));
}

/** A short table has no filter, unless one is set. */
function isFiltered({ state, rows, nameOf, filter_from = 0 }) {
  return nameOf && (rows.length >= filter_from || state.name || state.state);
}

function filters(rows, found, { state, stateOf, redraw, caption, filterLabel = "Filter by name" }) {
  const set = (name) => (event) => {
    state[name] = event.target.value;
    state.page = 0;
    redraw();
  };
  const states = stateOf ? [...new Set(rows.map((row) => stateOf(row) ?? "unknown"))].sort() : [];
  if (state.state && !states.includes(state.state)) states.push(state.state);
  return element("div", { key: "filters", class: "filters", role: "search", "aria-label": `Filter: ${caption}` },
    element("input", {
      type: "search", placeholder: filterLabel, "aria-label": filterLabel, value: state.name,
      on: { input: set("name") },
    }),
    stateOf && element("select", { "aria-label": "Filter by state", on: { change: set("state") } },
      element("option", { key: "any", value: "" }, "Any state"),
      states.map((each) => element("option", { key: `is ${each}`, value: each }, each))),
    element("span", { class: "quiet", role: "status" },
      found.length === rows.length ? count(rows.length) : `${count(found.length)} of ${count(rows.length)}`));
}

function filtered(rows, { state, nameOf, stateOf }) {
  const name = state.name.trim().toLowerCase();
  return rows.filter((row) => (!name || String(nameOf(row)).toLowerCase().includes(name))
    && (!state.state || (stateOf(row) ?? "unknown") === state.state));
}

function sorted(rows, { state, columns }) {
  const value = columns.find((column) => column.name === state.sort)?.value;
  if (!value) return rows;
  const order = state.descending ? -1 : 1;
  return [...rows].sort((one, other) => compare(value(one), value(other), order));
}

/** Compare two values; what is unknown comes last in both orders. */
function compare(one, other, order) {
  const [isUnknown, isOtherUnknown] = [one === null || one === undefined, other === null || other === undefined];
  if (isUnknown || isOtherUnknown) return isUnknown - isOtherUnknown;
  if (typeof one === "number" && typeof other === "number") return order * (one - other);
  return order * String(one).localeCompare(String(other), "en", { numeric: true });
}

function pages({ state, redraw, caption, page_rows = PAGE_ROWS }, total, first, shown) {
  const turn = (by) => () => {
    state.page += by;
    redraw();
  };
  return element("div", { key: "pages", class: "pages", role: "group", "aria-label": `Pages: ${caption}` },
    element("button", { type: "button", disabled: first === 0, on: { click: turn(-1) } }, "Previous"),
    element("span", { class: "quiet", role: "status" },
      `${count(first + 1)}–${count(first + shown)} of ${plural(total, "row")}`),
    element("button", { type: "button", disabled: first + page_rows >= total, on: { click: turn(1) } }, "Next"));
}

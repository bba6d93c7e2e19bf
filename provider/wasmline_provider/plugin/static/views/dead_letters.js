/** Dead letters: how many by reason, and the newest ones of the topic with previews of their payloads. */

import { path } from "../api.js";
import { element } from "../elements.js";
import { failure, note, section, waiting } from "../facts.js";
import { headers, payload } from "../payload.js";
import { to, toPosition } from "../route.js";
import { table } from "../tables.js";
import { count, link, number, plural, prose, text, unknown } from "../texts.js";
import { ago } from "../time.js";

export function deadLettersSection(page, row, reasons) {
  const total = Object.values(reasons).reduce((sum, each) => sum + each, 0);
  const topic = row.dead_letter_topic;
  const opened = page.section(`dead letters of ${row.name}`, true, () => page.stopReading(path("dead-letters", topic)));
  return section("Dead letters", { ...opened, note: `${plural(total, "dead letter")} of this run` },
    total === 0 ? element("p", { key: "no reasons", class: "empty" },
      "No record was dead-lettered by this run of its job.") : reasonsTable(page, row, reasons),
    topic === null
      ? element("p", { key: "no topic", class: "empty" },
        "It has no dead-letter topic: a record that fails stops its partition. Deploy with one to keep such records.")
      : opened.open && newest(page, topic, page.reading(path("dead-letters", topic))));
}

function reasonsTable(page, row, reasons) {
  return table({
    caption: "Dead letters by reason",
    state: page.tableState(`reasons of ${row.name}`),
    columns: [
      { name: "reason", label: "Reason", className: "wide", cell: (each) => text(each.reason) },
      { name: "count", label: "Dead letters", numeric: true, value: (each) => each.count,
        cell: (each) => number(each.count) },
    ],
    rows: Object.entries(reasons).map(([reason, each]) => ({ reason, count: each })),
    keyOf: (each) => each.reason,
    inputsOf: (each) => [each.count],
    redraw: page.redraw,
  });
}

function newest(page, topic, reading) {
  if (reading.value === null) return waiting(reading, "the dead-letter topic");
  const { state, problem, letters } = reading.value;
  return element("div", { key: "newest" },
    failure(reading),
    note("The topic cannot be read", problem, "bad"), // what was read before is below
    state === "reading" && letters.length === 0 && element("p", { class: "empty" }, "Reading the dead-letter topic…"),
    state === "ready" && letters.length === 0 && element("p", { class: "empty" }, "The dead-letter topic ", text(topic),
      " has no records."),
    letters.length > 0 && element("h3", null, `The newest ${count(letters.length)} of the topic`),
    !page.shows_payloads && letters.length > 0 && element("p", { class: "quiet" },
      "Previews of payloads are switched off in Airflow's configuration."),
    element("ul", { class: "records" }, letters.map((letter) => deadLetter(page, topic, letter))));
}

function deadLetter(page, topic, letter) {
  const absent = page.shows_payloads ? "null" : "not shown";
  const source = toPosition(letter.source);
  const position = `${topic}-${letter.partition}@${letter.offset}`;
  return element("li", { key: position }, element("details", null,
    element("summary", null,
      element("strong", null, text(letter.error)), text(letter.reason, { className: "wide" }),
      element("span", { class: "quiet" }, ago(letter.time_ms))),
    element("dl", { class: "record" },
      entry("Reason", prose(letter.reason ?? "")),
      entry("Source", source ? link(source, letter.source) : text(letter.source)),
      entry("Dead letter", link(to("record", topic, String(letter.partition), String(letter.offset)), position)),
      entry("Transform", text(letter.transform)),
      entry("Module", letter.module ? text(letter.module) : unknown()),
      entry("Key", payload(letter.key, { absent })),
      entry("Value", payload(letter.value, { absent })),
      letter.truncated_bytes !== null && entry("Truncated", `the value of ${plural(letter.truncated_bytes, "byte")}`),
      entry("Headers", headers(letter.headers, { absent })))));
}

function entry(name, value) {
  return element("div", { key: name }, element("dt", null, name), element("dd", null, value));
}

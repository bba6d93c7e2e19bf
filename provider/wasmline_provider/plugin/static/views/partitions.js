/** The partitions of a transform or of a job. */

import { badge } from "../badges.js";
import { section } from "../facts.js";
import { table } from "../tables.js";
import { number, plural, text } from "../texts.js";
import { age, ago } from "../time.js";

const NUMBERS = [
  ["offset", "Offset"], ["lag", "Lag"], ["rate", "Records/s"], ["records_in", "In"], ["records_out", "Out"],
  ["in_flight", "In flight"],
];
/** Numbers whose columns are shown once one of them is not zero. */
const ALARMS = [
  ["retries", "Retries"], ["stuck_keys", "Stuck keys"], ["hangs", "Hangs"], ["lost_offsets", "Lost offsets"],
];

export function partitionsSection(page, name, partitions) {
  return section("Partitions", { note: plural(partitions.length, "partition") }, table({
    caption: "Partitions",
    state: page.tableState(name, { sort: "partition" }),
    columns: columns(partitions),
    rows: partitions,
    keyOf: (row) => `${row.job} ${row.topic} ${row.partition}`,
    inputsOf: (row) => [age(row.updated_ms)],
    filter_from: 10,
    filterLabel: "Filter by partition or host",
    nameOf: (row) => `${row.partition} ${row.host ?? ""} ${row.job} ${row.topic}`,
    stateOf: (row) => row.state,
    empty: "No partition has a status yet: it is written once a job runs the transform.",
    redraw: page.redraw,
  }));
}

function columns(partitions) {
  const has = (condition) => partitions.some(condition);
  const [first] = partitions;
  return [
    { name: "partition", label: "Partition", value: (row) => row.partition, cell: (row) => number(row.partition) },
    has((row) => row.topic !== first?.topic) && textual("topic", "Topic"),
    { name: "state", label: "State", value: (row) => row.state, cell: (row) => badge(row.state) },
    { name: "generation", label: "Gen.", title: "Generation", numeric: true, value: (row) => row.generation,
      cell: (row) => number(row.generation) },
    ...NUMBERS.map(([field, label]) => numeric(field, label, false)),
    { name: "dead_letters", label: "Dead letters", numeric: true, value: deadLetters,
      cell: (row) => number(deadLetters(row), { alarm: true }) },
    ...ALARMS.filter(([field]) => has((row) => row[field]))
      .map(([field, label]) => numeric(field, label, true)),
    textual("host", "Host"),
    has((row) => row.lease) && textual("lease", "Lease"),
    { name: "updated", label: "Updated", value: (row) => row.updated_ms, cell: (row) => ago(row.updated_ms) },
  ].filter(Boolean);
}

function numeric(field, label, alarm) {
  const value = (row) => row[field];
  return { name: field, label, numeric: true, value, cell: (row) => number(value(row), { alarm }) };
}

function textual(field, label) {
  return { name: field, label, value: (row) => row[field], cell: (row) => text(row[field]) };
}

function deadLetters(row) {
  return Object.values(row.dead_letters).reduce((sum, each) => sum + each, 0);
}

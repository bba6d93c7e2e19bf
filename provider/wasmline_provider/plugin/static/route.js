/**
 * The view that an address asks for.
 *
 * @typedef {{view: string, names: string[]}} Route
 */

const NAME_COUNTS = { transforms: [0, 1], jobs: [0, 1], models: [0, 1], record: [3] };

/**
 * Return the run of `page?dag=…&run=…[&task=…[&map=…]]`, or null. `map` is a number of a mapped task only.
 * @returns {?{dag: string, run: string, task: ?string, map_index: ?number}}
 */
export function runOf(search) {
  const query = new URLSearchParams(search);
  const [dag, run, task, map] = ["dag", "run", "task", "map"].map((name) => query.get(name));
  if (!dag || !run) return null;
  return { dag, run, task: task || null, map_index: task && /^\d+$/.test(map ?? "") ? Number(map) : null };
}

/** Return the route of a hash; without one the run of the address, or the transforms. @returns {Route} */
export function routeOf(hash, run) {
  if (hash.length <= 2) return run ? { view: "run", names: [] } : { view: "transforms", names: [] };
  const [view, ...names] = hash.replace(/^#\/?/, "").split("/");
  try {
    const counts = Object.hasOwn(NAME_COUNTS, view) ? NAME_COUNTS[view] : [];
    if (counts.includes(names.length)) return { view, names: names.map(decodeURIComponent) };
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
  }
  return { view: "nothing", names: [] };
}

/** Return the address of a view within the page. */
export function to(view, ...names) {
  return `#/${[view, ...names.map((name) => encodeURIComponent(name))].join("/")}`;
}

const POSITION = /^(.+)-(\d+)@(\d+)$/s;

/** Return the address of the record at a position such as "orders-0@42", or null. */
export function toPosition(position) {
  const [, topic, partition, offset] = POSITION.exec(position ?? "") ?? [];
  return topic === undefined ? null : to("record", topic, partition, offset);
}

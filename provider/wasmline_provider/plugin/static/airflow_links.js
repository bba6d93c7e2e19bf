/**
 * Links from the page's frame to Airflow's own pages.
 *
 * The frame is sandboxed without top navigation. It is of the same origin, so Airflow's router can be moved: by a new
 * entry of its history, and the event of a change of it. A page without a frame follows the link itself.
 */

import { element } from "./elements.js";
import { titleOf, truncated } from "./texts.js";

/** Describe a link to a DAG run, or to a task's instance in it; its label is the run, or in short the DAG. */
export function runLink(instance, { isShort = false, className = "text" } = {}) {
  const { dag_id, run_id, task_id = null, map_index = null } = instance;
  const mapped = map_index === null || map_index < 0 ? [] : ["mapped", String(map_index)];
  const parts = ["dags", dag_id, "runs", run_id, ...(task_id ? ["tasks", task_id, ...mapped] : [])];
  const label = [dag_id, run_id, task_id, mapped[1]].filter(Boolean).join(" · ");
  const shown = truncated(isShort ? dag_id : label);
  if (!isFollowed()) return element("bdi", { class: className, title: titleOf(label) }, shown);
  const href = `../${parts.map(encodeURIComponent).join("/")}`;
  return element("a", { href, class: className, dir: "auto", title: titleOf(label), on: { click: follow } }, shown);
}

/** Keep the address bar at the view, so that it can be copied: only where Airflow shows the page at its own route. */
export function showAddress() {
  const router = parentWindow();
  if (router === null || !router.location.pathname.endsWith(location.pathname)) return;
  router.history.replaceState(router.history.state, "", router.location.pathname + location.search + location.hash);
}

function follow(event) {
  const router = parentWindow();
  if (router === null || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const index = router.history.state?.idx ?? 0; // the router counts its entries
  router.history.pushState({ ...router.history.state, idx: index + 1 }, "", event.currentTarget.href);
  router.dispatchEvent(new PopStateEvent("popstate"));
}

/** Return the window of Airflow's interface, or null where the page is not in a frame of it. */
function parentWindow() {
  return parent !== window && isFollowed() ? parent : null;
}

function isFollowed() {
  try {
    return parent.location.origin === location.origin;
  } catch {
    return false; // a parent of another origin
  }
}

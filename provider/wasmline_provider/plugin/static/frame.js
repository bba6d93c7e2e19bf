/** What is around each view: the tabs, the cluster's state, and the banners. */

import { badge } from "./badges.js";
import { element } from "./elements.js";
import { count, prose, text } from "./texts.js";
import { age, duration, serverNow } from "./time.js";

const TABS = [["transforms", "Transforms"], ["jobs", "Jobs"], ["models", "Models"]];

/** `mayAct`: on what the view shows. */
export function tabs(page, route, mayAct) {
  const { store, run } = page;
  return element("header", { key: "header", class: "top" },
    element("nav", { "aria-label": "Wasmline" },
      run && tab({ href: "#/", label: run.task ? "This task" : "This run", isCurrent: route.view === "run" }),
      TABS.map(([view, label]) => tab({
        href: `#/${view}`, label, isCurrent: route.view === view, size: store.head && store[view].size,
      }))),
    store.head && clusterState(store.head, mayAct));
}

function tab({ href, label, isCurrent, size = null }) {
  return element("a", { key: href, href, "aria-current": isCurrent ? "page" : null },
    label, size !== null && element("span", { class: "size" }, count(size)));
}

function clusterState({ cluster, user }, mayAct) {
  return element("div", { key: "cluster", class: "cluster" },
    !mayAct && element("span", { key: "viewer", class: "quiet" },
      "Read only: ", text(user), " may see this page, not act."),
    text(cluster.connection, { className: "quiet" }),
    badge(cluster.state, { title: readAt(cluster) }));
}

function readAt({ read_ms }) {
  return read_ms === null ? "nothing was read yet" : `last read ${age(read_ms)}`;
}

export function banners({ store }, problem) {
  return element("div", { key: "banners", role: "alert" },
    problem && element("p", { key: "problem", class: "banner bad" }, prose(problem)),
    store.head && clusterBanner(store.head.cluster),
    store.head && unreadableRecords(store.head.cluster));
}

function clusterBanner({ connection, state, error, read_ms }) {
  if (state === "starting") {
    return element("p", { key: "starting", class: "banner busy" },
      "Reading the control topics of ", text(connection), "…");
  }
  if (state !== "away") return endsProblem(error);
  const known = read_ms === null
    ? "Nothing was read of it yet."
    : `Below is its state as of ${since(read_ms)} ago.`;
  return element("div", { key: "away", class: "banner bad" },
    element("p", null, element("strong", null, "The cluster of ", text(connection), " is away. "), known),
    error && element("p", null, prose(error)));
}

/** Describe why the end of some topic is not known; nothing without a problem. */
function endsProblem(error) {
  return error && element("p", { key: "ends", class: "banner warning" },
    "The end of a topic cannot be read: its lag is as it was reported last. ", prose(error));
}

function unreadableRecords({ unreadable }) {
  return unreadable > 0 && element("p", { key: "unreadable", class: "banner warning" },
    `Records of the control topics that this release cannot read: ${count(unreadable)}. `,
    "What they are about is not shown.");
}

/** Return an age in minutes: the banner is announced when its text changes. */
function since(read_ms) {
  const passed_ms = serverNow() - read_ms;
  return passed_ms < 60_000 ? "less than a minute" : duration(passed_ms);
}

/** The page: reads the state, and draws the view that the address asks for. */

import { showAddress } from "./airflow_links.js";
import { explained, get } from "./api.js";
import { ActionDialog } from "./dialog.js";
import { draw, element } from "./elements.js";
import { banners, tabs } from "./frame.js";
import { Page } from "./page.js";
import { Poller } from "./poller.js";
import { routeOf, runOf } from "./route.js";
import { shared } from "./sharing.js";
import { Store } from "./store.js";
import { setServerTime } from "./time.js";
import { jobView } from "./views/job.js";
import { jobsView } from "./views/jobs.js";
import { modelView } from "./views/model.js";
import { modelsView } from "./views/models.js";
import { recordView } from "./views/record.js";
import { runView } from "./views/run.js";
import { transformView } from "./views/transform.js";
import { transformsView } from "./views/transforms.js";

const STATE_INTERVAL_MS = 2_000;
const LINES_INTERVAL_MS = 60_000;
const HURRY_MS = 10_000;
const ANNOUNCED_MS = 15_000;

const LISTS = { transforms: transformsView, jobs: jobsView, models: modelsView };
const DETAILS = { transforms: transformView, jobs: jobView, models: modelView, record: recordView };

const store = new Store();
const run = runOf(location.search);
const page = new Page({ store, redraw, run });
const announcement = document.getElementById("announcement");
const scrolled = new Map();

let problem = null;
let route = null;
let view = null;
let isDrawing = false;
let announced = null;

/** Draw once the present task is over, however often it is asked for. */
function redraw() {
  if (isDrawing) return;
  isDrawing = true;
  queueMicrotask(() => {
    isDrawing = false;
    drawPage();
  });
}

function drawPage() {
  const isStale = store.head?.cluster.state === "away" || (problem !== null && store.head !== null);
  document.title = `${view.title} · Wasmline`;
  draw(document.getElementById("page"),
    tabs(page, route, view.mayAct?.() ?? page.may_act),
    banners(page, problem),
    element("main", { key: "main", id: "main", tabindex: "-1", class: isStale ? "stale" : null },
      store.head === null && problem === null
        ? element("p", { key: "first", class: "empty", role: "status" }, "Reading the state of the cluster…")
        : element("div", { key: location.hash || "start", class: "view" }, store.head && view.draw())));
}

function openView() {
  const isFirst = view === null;
  page.leaveView();
  route = routeOf(location.hash, run);
  view = viewOf(route);
  showAddress();
  drawPage();
  scrollTo(0, route.names.length === 0 ? scrolled.get(location.hash) ?? 0 : 0);
  if (!isFirst) document.querySelector("#main h1")?.focus({ preventScroll: true });
}

function viewOf({ view: name, names }) {
  if (name === "run") return runView(page, run);
  const open = names.length === 0 ? LISTS[name] : DETAILS[name];
  return open ? open(page, ...names) : nothing();
}

function nothing() {
  return {
    title: "Not found",
    draw: () => [
      element("h1", { tabindex: "-1" }, "There is no such view"),
      element("p", null, element("a", { href: "#/transforms" }, "All transforms")),
    ],
  };
}

function announce(text) {
  clearTimeout(announced);
  announcement.textContent = text;
  announced = setTimeout(() => {
    announcement.textContent = "";
  }, ANNOUNCED_MS);
}

const polled = new Poller(async (signal) => {
  const since = store.cursor === null ? "" : `?since=${encodeURIComponent(store.cursor)}`;
  const answer = await get(`api/state${since}`, signal);
  setServerTime(answer.now_ms);
  store.apply(answer);
}, (error) => {
  problem = error && explained(error);
  redraw();
}, STATE_INTERVAL_MS);

new Poller(async (signal) => {
  page.lines = shared(page.lines, (await get("api/lines", signal)).transforms);
}, redraw, LINES_INTERVAL_MS); // a failure is that of the state, and told there

page.dialog = new ActionDialog(document.getElementById("dialog"), ({ label, target }, text) => {
  page.asked.add(target.kind, target.name, label);
  announce(text);
  polled.hurry(HURRY_MS);
  page.hurry(HURRY_MS);
  redraw();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash is the view's
  document.getElementById("main").focus();
});
addEventListener("scroll", () => scrolled.set(location.hash, scrollY), { passive: true });
addEventListener("hashchange", openView);
openView();

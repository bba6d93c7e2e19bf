/** What the views share: the state, the tables' states, the readings of the open view, and the way to an action. */

import { get } from "./api.js";
import { Asked } from "./asked.js";
import { Reading } from "./reading.js";
import { TableState } from "./tables.js";

const HURRY_MS = 10_000;

export class Page {
  /** @param {{store: Store, redraw: function(): void, run: ?Object}} parts */
  constructor({ store, redraw, run }) {
    this.store = store;
    this.redraw = redraw;
    this.run = run;
    this.asked = new Asked(store);
    /** The lines of the last hour by transform. */
    this.lines = {};
    this.tables = new Map();
    this.sections = new Map();
    this.readings = new Map();
    this.dialog = null;
  }

  get may_act() {
    return this.store.head?.may_act ?? false;
  }

  get shows_payloads() {
    return this.store.head?.shows_payloads ?? false;
  }

  /** Return the state of a table; it outlives its view. */
  tableState(name, defaults) {
    if (!this.tables.has(name)) this.tables.set(name, new TableState(defaults));
    return this.tables.get(name);
  }

  /** Return whether a section is open, and what to call when a reader opens or closes it. */
  section(name, isOpenFirst, closed) {
    const toggle = (isOpen) => {
      if (this.sections.get(name) === isOpen) return;
      this.sections.set(name, isOpen);
      if (!isOpen) closed();
      this.redraw();
    };
    return { open: this.sections.get(name) ?? isOpenFirst, toggle };
  }

  /** Return the reading of an endpoint, or of what `read` returns; it goes on until the view is left. */
  reading(url, { read = (signal) => get(url, signal), interval_ms } = {}) {
    if (!this.readings.has(url)) this.readings.set(url, new Reading(read, this.redraw, { interval_ms }));
    return this.readings.get(url);
  }

  /** End the reading of an endpoint, such as that of a section that was closed. */
  stopReading(url) {
    this.readings.get(url)?.stop();
    this.readings.delete(url);
  }

  leaveView() {
    for (const url of [...this.readings.keys()]) this.stopReading(url);
  }

  hurry() {
    for (const reading of this.readings.values()) reading.hurry(HURRY_MS);
  }

  /** Ask for an action on a row of the state. @param {{kind: string, name: string}} target */
  act(request, target) {
    this.dialog.open({ ...request, target });
  }
}

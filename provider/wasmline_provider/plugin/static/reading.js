/** What an endpoint of one view answers, read while the view is open. */

import { get } from "./api.js";
import { Poller } from "./poller.js";
import { shared } from "./sharing.js";

const INTERVAL_MS = 2_000;

export class Reading {
  /** @param {string} url @param {function(): void} redraw */
  constructor(url, redraw, { interval_ms = INTERVAL_MS } = {}) {
    this.url = url;
    this.value = null;
    this.problem = null;
    this.poller = new Poller((signal) => this.#read(signal), (problem) => {
      this.problem = problem;
      redraw();
    }, interval_ms);
  }

  hurry(for_ms) {
    this.poller.hurry(for_ms);
  }

  stop() {
    this.poller.stop();
  }

  async #read(signal) {
    this.value = shared(this.value, await get(this.url, signal));
  }
}

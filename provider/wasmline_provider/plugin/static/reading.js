/** What one view reads, again and again while it is open. */

import { Poller } from "./poller.js";
import { shared } from "./sharing.js";

const INTERVAL_MS = 2_000;

/** Return a function that reads anew only what it read more than `max_age_ms` ago. */
export function rarely(read, max_age_ms) {
  let value = null;
  let read_at = 0;
  return async (signal) => {
    if (Date.now() - read_at > max_age_ms) {
      value = await read(signal);
      read_at = Date.now();
    }
    return value;
  };
}

export class Reading {
  /** @param {function(AbortSignal): Promise<Object>} read @param {function(): void} redraw */
  constructor(read, redraw, { interval_ms = INTERVAL_MS } = {}) {
    this.read = read;
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
    this.value = shared(this.value, await this.read(signal));
  }
}

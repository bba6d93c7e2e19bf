/** Reads again and again: one request at a time, none while the document is hidden, fewer while they fail. */

const MAX_PAUSE_MS = 30_000;
const HURRIED_MS = 500;

export class Poller {
  /**
   * @param {function(AbortSignal): Promise<void>} read
   * @param {function(?Error): void} report called with each reading's error, or null
   */
  constructor(read, report, interval_ms) {
    this.read = read;
    this.report = report;
    this.interval_ms = interval_ms;
    this.failures = 0;
    this.hurried_until = 0;
    this.stopped = new AbortController();
    this.timer = null;
    this.isReading = false;
    document.addEventListener("visibilitychange", () => this.#now(), { signal: this.stopped.signal });
    this.#now();
  }

  /** Read each 500 ms for a while, from now on. */
  hurry(for_ms) {
    this.hurried_until = Date.now() + for_ms;
    this.#now();
  }

  stop() {
    this.stopped.abort();
    clearTimeout(this.timer);
  }

  #now() {
    if (this.isReading || document.hidden || this.stopped.signal.aborted) return;
    clearTimeout(this.timer);
    this.#reading();
  }

  async #reading() {
    this.isReading = true;
    let problem = null;
    try {
      await this.read(this.stopped.signal);
    } catch (error) {
      problem = error;
    }
    this.isReading = false;
    if (this.stopped.signal.aborted) return;
    this.failures = problem === null ? 0 : this.failures + 1;
    this.report(problem);
    this.timer = setTimeout(() => this.#now(), this.#pause_ms());
  }

  #pause_ms() {
    if (this.failures > 0) return Math.min(this.interval_ms * 2 ** this.failures, MAX_PAUSE_MS);
    return Date.now() < this.hurried_until ? HURRIED_MS : this.interval_ms;
  }
}

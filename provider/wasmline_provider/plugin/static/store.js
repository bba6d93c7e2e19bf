/** The known state: transforms, jobs and models by name. An unchanged row stays the same object. */

import { shared } from "./sharing.js";

const KINDS = { transforms: "name", jobs: "job", models: "model" };

export class Store {
  constructor() {
    /** Everything of the newest answer but the rows; null before the first one. */
    this.head = null;
    this.transforms = new Map();
    this.jobs = new Map();
    this.models = new Map();
  }

  get cursor() {
    return this.head?.cursor ?? null;
  }

  /** Take an answer of api/state: everything, or the transforms and jobs that changed, and all models, or null. */
  apply(answer) {
    const { transforms, jobs, models, removed, ...head } = answer;
    const rows = { transforms, jobs, models };
    for (const [kind, id] of Object.entries(KINDS)) {
      if (rows[kind] === null) continue;
      const known = this[kind];
      const isFull = answer.full || kind === "models";
      if (isFull) this[kind] = new Map();
      for (const row of rows[kind]) this[kind].set(row[id], shared(known.get(row[id]), row));
      if (!isFull) for (const name of removed[kind]) known.delete(name);
    }
    this.head = head;
  }
}

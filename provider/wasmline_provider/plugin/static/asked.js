/** What was asked for and is not seen in the state yet. */

const EXPIRES_AFTER_MS = 30_000;

const SIGNATURES = {
  transforms: (row) => `${row.generation} ${row.state}`,
  jobs: (row) => `${row.run} ${row.wanted} ${row.condition}`,
  models: (row) => `${row.champion} ${row.versions}`,
};

export class Asked {
  constructor(store) {
    this.store = store;
    this.entries = new Map();
  }

  /** Remember that an action was asked of a row of the state. */
  add(kind, name, label) {
    const signature = this.#signature(kind, name);
    this.entries.set(`${kind}/${name}`, { label, signature, until: Date.now() + EXPIRES_AFTER_MS });
  }

  /** Return what was asked of a row, until the row has changed; null otherwise. */
  of(kind, name) {
    const key = `${kind}/${name}`;
    const entry = this.entries.get(key);
    if (entry === undefined) return null;
    if (Date.now() < entry.until && this.#signature(kind, name) === entry.signature) return entry.label;
    this.entries.delete(key);
    return null;
  }

  #signature(kind, name) {
    const row = this.store[kind].get(name);
    return row === undefined ? null : SIGNATURES[kind](row);
  }
}

// The server's pool as data: first the whole pool, then its changes. No drawing.
import { CACHED, Cells, FREE, HELD } from './cells.js';
import { keyOf } from './sequence_key.js';
import { takeTiers } from './tier.js';

const MOST_ENDED = 5;
const MOST_PAST = 256;

// The sequence after a change: its fields are replaced, the pages of its tables from `runs`.
function changed(sequence, { tables = [], ...fields }) {
  const next = { ...sequence, ...fields, tables: [...(sequence.tables ?? [])] };
  for (const { group, size, runs } of tables) {
    const pages = (next.tables[group] ?? []).slice(0, size);
    for (const [at, run] of runs) for (let i = 0; i < run.length; ++i) pages[at + i] = run[i];
    next.tables[group] = pages;
  }
  return next;
}

export class Pool {
  model = '';
  own = false;            // a plain key sees only what its own sequences hold; there are no events then
  context = null;         // tokens
  blockSize = 0;          // tokens of a page
  arenaBytes = 0;
  groups = [];            // {window, bytes, cells}: the pages of each layer group
  tiers = [];             // where content lies besides the pool
  states = null;          // {bytes, cells}: recurrent states, if the model has them
  sequences = new Map();  // key -> the sequence as the server sends it
  ended = new Map();      // the last few sequences that ended
  past = new Map();       // key -> {prompt_tokens, tables} of sequences that ended; null for pages that have other content now
  stats = {};
  connected = false;
  connection = 0;         // which connection to a server it is, or will be

  // The connection broke. The next server may be another one, or started anew: it gives the same numbers to other requests.
  disconnect() {
    if (this.connected) ++this.connection;
    this.connected = false;
  }

  // The key of the answer's sequence; null if it was not written over this connection.
  keyOfAnswer({ request, connection }) {
    return request && this.connected && connection === this.connection ? keyOf({ request }) : null;
  }

  // The cells of every kind.
  kinds() { return [...this.groups, ...(this.states ? [this.states] : [])].map(({ cells }) => cells); }

  // True: the pool has another shape than before, so its cells are new.
  takeWhole(data) {
    this.connected = true;
    this.model = data.model;
    this.own = data.scope === 'own';
    this.context = data.context;
    this.blockSize = data.block_size;
    this.arenaBytes = data.arena_bytes;
    // The ids of a kind go up to what the whole arena could hold, even if other kinds use some of that memory now.
    const limit = (kind, size) => kind.ids ?? Math.max(kind.total, data.slabs * Math.floor(data.arena_bytes / data.slabs / size));
    const limits = data.groups.map((group) => limit(group, group.page_bytes));
    const stateLimit = data.states ? limit(data.states, data.states.bytes) : 0;
    const same = data.groups.length === this.groups.length && Boolean(data.states) === Boolean(this.states)
      && data.groups.every((group, i) => limits[i] === this.groups[i].cells.total && group.window === this.groups[i].window)
      && (!data.states || stateLimit === this.states.cells.total);
    if (!same) {
      const cells = (total) => new Cells(total, Math.max(1, Math.floor(total / data.slabs)));
      this.groups = data.groups.map((group, i) => ({ window: group.window, bytes: group.page_bytes, cells: cells(limits[i]) }));
      this.states = data.states ? { bytes: data.states.bytes, cells: cells(stateLimit) } : null;
    }
    data.groups.forEach((group, i) => {
      const { state } = this.groups[i].cells;
      state.fill(FREE);
      for (const [page, , how] of group.pages) state[page] = how === 'cached' ? CACHED : HELD;
    });
    if (data.states) {
      const { state } = this.states.cells;
      state.fill(FREE);
      for (const [slot, how] of data.states.slots) state[slot] = how === 'checkpoint' ? CACHED : HELD;
    }
    const { tiers } = this;
    this.#takeSequences(new Map(data.sequences.map((sequence) => [keyOf(sequence), sequence])), data.stats);
    this.past.clear();  // what happened in between was not seen
    return !same || tiers !== this.tiers;
  }

  // A change has only what differs from the whole pool and the changes before it.
  takeChange(data) {
    for (const [kind, group, object, detail] of data.events) this.#takeEvent(kind, group, object, detail);
    const now = new Map(this.sequences);
    for (const [request, choice] of data.ended) now.delete(keyOf({ request, choice }));
    for (const sequence of data.began) now.set(keyOf(sequence), sequence);
    for (const change of data.changed) {
      const before = now.get(keyOf(change));
      if (before) now.set(keyOf(change), changed(before, change));
    }
    this.#takeSequences(now, { ...this.stats, ...data.stats });
  }

  // The cells that the sums count: pages if the model has any, else states.
  counted() {
    const kinds = this.groups.length ? this.groups : this.states ? [this.states] : [];
    return kinds.map(({ cells }) => cells);
  }

  #takeEvent(kind, group, object, detail) {
    const pages = this.groups[group]?.cells;
    const states = this.states?.cells;
    switch (kind) {
      case 'page_taken': case 'page_shared': case 'page_revived': return pages?.set(object, HELD, 'taken');
      case 'page_cached': return pages?.set(object, CACHED, 'held');
      case 'page_freed': this.#forget(group, object); return pages?.set(object, FREE, 'cached');
      case 'page_evicted':
        this.#forget(group, object);
        return pages?.set(object, pages.state[object] === CACHED ? FREE : pages.state[object], 'evicted');
      case 'page_copied': return pages?.flash(detail, 'taken');
      case 'page_moved': this.#forget(group, object, detail); return pages?.move(object, detail);
      case 'slot_moved': return states?.move(object, detail);
      case 'slot_taken': return states?.set(object, HELD, 'taken');
      case 'slot_released': return states?.set(object, FREE, 'cached');
      case 'checkpoint_stored': return states?.set(object, CACHED, 'taken');
      case 'checkpoint_dropped': return states?.set(object, FREE, 'evicted');
      case 'checkpoint_restored': return states?.flash(object, 'taken');
    }
  }

  // The page that holds the n-th token of a sequence's answer, for each group; null where it is no more or not yet. Null if
  // the sequence is not known.
  pagesOf(key, n) {
    const sequence = this.sequences.get(key) ?? this.past.get(key);
    if (!sequence) return null;
    const block = Math.floor((sequence.prompt_tokens + n) / this.blockSize);
    return this.groups.map((_, group) => sequence.tables?.[group]?.[block] ?? null);
  }

  // A page of a past sequence has other content now, or moved.
  #forget(group, page, to = null) {
    for (const { tables } of this.past.values()) {
      const at = tables[group]?.indexOf(page) ?? -1;
      if (at >= 0) tables[group][at] = to;
    }
  }

  #remember(key, { prompt_tokens: promptTokens, tables = [] }) {
    const still = (group) => (page) => (page != null && this.groups[group]?.cells.state[page] !== FREE ? page : null);
    this.past.set(key, { prompt_tokens: promptTokens, tables: tables.map((pages, group) => pages.map(still(group))) });
    if (this.past.size > MOST_PAST) this.past.delete(this.past.keys().next().value);
  }

  // How many of the counted cells are free, held and cached, for all keys.
  sums() {
    const sum = { free: 0, held: 0, cached: 0 };
    const kinds = !this.own ? this.counted().map((cells) => cells.counts())
      : this.groups.length ? this.stats.pages ?? [] : [this.stats.states ?? {}];
    for (const kind of kinds) for (const name of Object.keys(sum)) sum[name] += kind[name] ?? 0;
    return sum;
  }

  #hold(cells, holders) {
    if (this.own) cells.only(holders);
    cells.hold(holders);
  }

  #takeSequences(now, stats) {
    for (const [key, sequence] of this.sequences) {
      if (now.has(key)) continue;
      this.ended.set(key, { ...sequence, ended: Date.now() });
      this.#remember(key, sequence);
    }
    for (const key of now.keys()) this.ended.delete(key);
    while (this.ended.size > MOST_ENDED) this.ended.delete(this.ended.keys().next().value);
    this.sequences = now;
    this.stats = stats;
    this.tiers = takeTiers(this.tiers, stats.tiers);
    this.groups.forEach(({ cells }, group) => {
      const holders = new Map();
      for (const [key, sequence] of now) {
        for (const page of sequence.tables?.[group] ?? []) {
          if (page == null) continue;
          const keys = holders.get(page);
          if (keys) keys.push(key);
          else holders.set(page, [key]);
        }
      }
      this.#hold(cells, holders);
    });
    if (this.states) {
      const holders = new Map();
      for (const [key, sequence] of now) if (sequence.slot != null) holders.set(sequence.slot, [key]);
      this.#hold(this.states.cells, holders);
    }
    this.#shareSlabs();
  }

  // A slab belongs to the kind of the objects in it.
  #shareSlabs() {
    const kinds = this.kinds();
    if (kinds.length < 2) return;
    const used = new Uint8Array(Math.max(...kinds.map((cells) => cells.elsewhere.length)));
    kinds.forEach((cells, kind) => {
      for (let cell = 0; cell < cells.total; ++cell) if (cells.state[cell] !== FREE) used[Math.floor(cell / cells.perSlab)] = kind + 1;
    });
    kinds.forEach((cells, kind) => cells.yieldTo(used, kind + 1));
  }
}

// The pool that the page shows.
export const pool = new Pool();

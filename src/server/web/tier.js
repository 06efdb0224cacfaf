// A tier as a row of cells: how full it is, and what moves between it and the pool. No drawing. The server sends counters
// only; what moved is the difference between two of its updates.
import { CACHED, Cells, FREE } from './cells.js';

export const TIER_CELLS = 48;
const HUE = 205, BROUGHT_HUE = 40;

// What a cell stands for: {unit: 'bytes' or 'objects', per}; null if the tier does not say how full it is. A tier without a
// known capacity has cells of a power of two of objects, so that all of them fit.
export function scaleOf({ capacity_bytes: capacity, objects }) {
  if (capacity > 0) return { unit: 'bytes', per: capacity / TIER_CELLS };
  if (!objects) return null;
  return { unit: 'objects', per: 2 ** Math.max(0, Math.ceil(Math.log2(objects / TIER_CELLS))) };
}

export class Tier {
  cells = new Cells(TIER_CELLS);
  stats = null;        // as the server sends them
  #writes = 0;         // where the next object that is written is shown,
  #reads = 0;          // and the next that is brought

  constructor(kind) {
    this.kind = kind;
    this.cells.hue.fill(HUE);
  }

  // How many cells are filled.
  filled() { return this.cells.counts().cached; }

  take(stats) {
    const before = this.stats;
    this.stats = stats;
    const scale = scaleOf(stats);
    const used = scale ? Math.ceil(stats[scale.unit] / scale.per) : 0;
    for (let cell = 0; cell < TIER_CELLS; ++cell) this.cells.set(cell, cell < Math.min(TIER_CELLS, used) ? CACHED : FREE);
    this.cells.hold(new Map());
    // Counters that are smaller than before are those of a server that was started again.
    const moved = (name) => Math.max(0, before ? stats[name] - before[name] : 0);
    this.#writes = this.#light(this.#writes, moved('puts'), 'held', HUE);
    this.#reads = this.#light(this.#reads, moved('hits'), 'bright', BROUGHT_HUE);
  }

  // Lights a cell for each object, going round the filled ones; all, if nothing is known to be filled.
  #light(from, objects, tone, hue) {
    const round = this.filled() || TIER_CELLS;
    for (let i = 0; i < Math.min(objects, round); ++i) this.cells.flash((from + i) % round, tone, hue);
    return (from + objects) % round;
  }
}

// The tiers after an update; the same objects if they are of the same kinds as before.
export function takeTiers(tiers, stats = []) {
  const same = stats.length === tiers.length && stats.every(({ kind }, i) => kind === tiers[i].kind);
  const now = same ? tiers : stats.map(({ kind }) => new Tier(kind));
  now.forEach((tier, i) => { if (tier.stats !== stats[i]) tier.take(stats[i]); });
  return now;
}

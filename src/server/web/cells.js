// The cells of one kind (pages of a group, or recurrent states): the state of each, and the sequences that hold it. No
// drawing. The view sets `onTouch` (a cell looks different now) and `onFlash` (a cell should glow).
import { hueOfKey } from './sequence_key.js';

export const FREE = 0, HELD = 1, CACHED = 2;

export class Cells {
  onTouch = () => {};
  onFlash = () => {};

  // `perSlab`: cells in one slab of the arena. A slab holds objects of one kind at a time.
  constructor(total, perSlab = total) {
    this.total = total;
    this.perSlab = perSlab || 1;
    this.elsewhere = new Uint8Array(Math.ceil(total / this.perSlab));  // by slab: it holds objects of another kind
    this.state = new Uint8Array(total);
    this.hue = new Int16Array(total).fill(-1);  // of the last holder
    this.holders = new Map();                   // cell -> keys of the sequences that hold it
    this.look = new Int32Array(total);          // a hash of what was last shown, to see what changed
  }

  // `tone` is the kind of glow: 'taken', 'evicted', or 'held', 'bright' and 'cached' in the cell's own hue or another.
  set(cell, state, tone = null) {
    if (cell >= this.total) return;
    this.state[cell] = state;
    if (tone) this.flash(cell, tone);
  }
  flash(cell, tone, hue = this.hue[cell] ?? -1) { this.onFlash(cell, tone, hue); }

  move(from, to) {
    if (from >= this.total || to >= this.total) return;
    const state = this.state[from];
    this.hue[to] = this.hue[from];
    this.set(from, FREE);
    this.set(to, state, 'taken');
  }

  // Takes what is held from the block tables alone.
  only(holders) {
    this.state.fill(FREE);
    for (const cell of holders.keys()) this.set(cell, HELD);
  }

  // Sets the holders from the block tables. Touches the cells that look different from last time.
  hold(holders) {
    this.holders = holders;
    for (let cell = 0; cell < this.total; ++cell) {
      const keys = holders.get(cell);
      let look = this.state[cell];
      if (keys && look === HELD) {
        this.hue[cell] = hueOfKey(keys[0]);
        for (const key of keys) look = (look * 31 + hueOfKey(key) + 7) | 0;
      } else {
        look = look * 1000 + this.hue[cell];
      }
      if (look !== this.look[cell]) {
        this.look[cell] = look;
        this.onTouch(cell);
      }
    }
  }

  // A free cell does not exist at the moment if its slab holds objects of another kind.
  isElsewhere(cell) { return this.state[cell] === FREE && this.elsewhere[Math.floor(cell / this.perSlab)] === 1; }

  // Marks the slabs that other kinds use. `used` has the kind of each slab; `own` is the kind of these cells.
  yieldTo(used, own) {
    for (let slab = 0; slab < this.elsewhere.length; ++slab) {
      const away = used[slab] !== 0 && used[slab] !== own ? 1 : 0;
      if (this.elsewhere[slab] === away) continue;
      this.elsewhere[slab] = away;
      for (let cell = slab * this.perSlab; cell < Math.min(this.total, (slab + 1) * this.perSlab); ++cell) this.onTouch(cell);
    }
  }

  counts() {
    const result = [0, 0, 0];
    for (const state of this.state) ++result[state];
    for (const away of this.elsewhere) result[FREE] -= away * this.perSlab;
    return { free: result[FREE], held: result[HELD], cached: result[CACHED] };
  }
}

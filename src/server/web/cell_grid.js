// Draws cells on a canvas. It paints only visible rows, and of those only cells that changed or still glow.
import { CACHED, FREE, HELD } from './cells.js';
import { make } from './dom.js';
import { cellAt, layOut, layRow, placeOf, scrollTo, stepTo, stripes, visible } from './grid_layout.js';
import { hueOfKey } from './sequence_key.js';
import { theme } from './theme.js';

const GLOW_MS = matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : 900;

// What the user points at: a cell, and a sequence (by its key).
export const pointer = { grid: null, cell: -1, sequence: null, onMove: () => {} };

export class CellGrid {
  // `describe(cell)` returns a text about a cell. `wanted` is the preferred height of the grid in pixels; `row`: all cells are
  // in one row instead.
  constructor(cells, { title = '', describe, wanted = 210, row = false }) {
    this.cells = cells;
    this.describe = describe;
    this.wanted = wanted;
    this.row = row;
    this.layout = null;
    this.cursor = -1;
    this.marked = -1;
    this.glow = new Map();  // cell -> {since, colour}
    this.dirty = new Set();
    this.canvas = make('canvas');
    this.spacer = make('div');
    this.scroller = make('div', { className: 'scroller', tabIndex: 0, role: 'img' }, this.canvas, this.spacer);
    const heading = make('h3', { textContent: title });
    heading.hidden = title === '';
    this.root = make('div', { className: 'grid' }, heading, this.scroller);
    this.context = this.canvas.getContext('2d', { alpha: false });
    cells.onTouch = (cell) => this.touch(cell);
    cells.onFlash = (cell, tone, hue) => this.flash(cell, tone, hue);
    new ResizeObserver(() => this.lay()).observe(this.scroller);
    this.scroller.addEventListener('scroll', () => this.paintAll());
    this.canvas.addEventListener('pointermove', (event) => this.point(this.at(event)));
    this.canvas.addEventListener('pointerdown', (event) => this.point(this.at(event)));
    this.canvas.addEventListener('pointerleave', (event) => event.pointerType === 'mouse' && this.point(-1));
    this.scroller.addEventListener('keydown', (event) => this.walk(event));
    this.scroller.addEventListener('blur', () => this.point(-1));
  }

  lay() {
    const width = Math.floor(this.scroller.clientWidth);
    const layout = this.row ? layRow(width, this.cells.total) : layOut(width, this.cells.total, this.wanted);
    if (!layout) return;
    this.layout = layout;
    this.spacer.style.height = `${layout.scrolled}px`;
    const scale = devicePixelRatio || 1;
    this.canvas.style.height = `${layout.height}px`;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(layout.height * scale);
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.paintAll();
  }

  flash(cell, tone, hue) {
    if (GLOW_MS === 0) return;
    const colour = tone === 'taken' ? theme.flash : tone === 'evicted' ? theme.evicted : theme[tone](hue);
    this.glow.set(cell, { since: performance.now(), colour });
    wake();
  }

  touch(cell) { this.dirty.add(cell); wake(); }

  // Called once per frame. True: a cell still glows.
  frame(now) {
    for (const cell of this.dirty) this.paint(cell, now);
    this.dirty.clear();
    for (const [cell, { since }] of this.glow) {
      if (now - since > GLOW_MS) this.glow.delete(cell);
      this.paint(cell, now);
    }
    return this.glow.size > 0;
  }

  paintAll() {
    if (!this.layout) return;
    const now = performance.now();
    this.context.fillStyle = theme.paper;
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const { first, last } = visible(this.layout, this.cells.total, this.scroller.scrollTop);
    for (let cell = first; cell < last; ++cell) this.paint(cell, now);
    this.dirty.clear();
  }

  paint(cell, now) {
    const place = this.layout && placeOf(this.layout, cell, this.scroller.scrollTop);
    if (!place) return;
    const { x, y } = place;
    const { pitch, gap } = this.layout;
    const size = pitch - gap;
    const c = this.context;
    const keys = this.cells.holders.get(cell);
    const away = pointer.sequence !== null && !keys?.includes(pointer.sequence);
    c.globalAlpha = 1;
    c.fillStyle = theme.paper;
    c.fillRect(x, y, pitch, pitch);
    c.globalAlpha = away ? 0.3 : 1;
    if (this.cells.state[cell] === HELD && keys?.length > 1) {
      stripes(size, keys.length).forEach(([from, to], i) => {
        c.fillStyle = theme.bright(hueOfKey(keys[i]));
        c.fillRect(x + from, y, to - from, size);
      });
      if (size >= 5) {
        c.strokeStyle = theme.edge;
        c.lineWidth = 1;
        c.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      }
    } else {
      c.fillStyle = this.colour(cell, keys);
      c.fillRect(x, y, size, size);
    }
    const glow = this.glow.get(cell);
    if (glow) {
      c.globalAlpha = Math.max(0, 1 - (now - glow.since) / GLOW_MS) * 0.9;
      c.fillStyle = glow.colour;
      c.fillRect(x, y, size, size);
    }
    c.globalAlpha = 1;
    if (cell === this.cursor || cell === this.marked) {
      c.strokeStyle = theme.focus;
      c.lineWidth = 2;
      c.strokeRect(x + 1, y + 1, size - 2, size - 2);
    }
  }

  colour(cell, keys) {
    const { state, hue } = this.cells;
    if (this.cells.isElsewhere(cell)) return theme.paper;
    if (state[cell] === FREE) return theme.free;
    if (state[cell] === CACHED) return theme.cached(hue[cell]);
    return theme.held(keys ? hueOfKey(keys[0]) : hue[cell]);
  }

  at(event) {
    if (!this.layout) return -1;
    const box = this.canvas.getBoundingClientRect();
    return cellAt(this.layout, this.cells.total, event.clientX - box.left, event.clientY - box.top, this.scroller.scrollTop);
  }

  point(cell) {
    if (cell === this.cursor) return;
    const before = this.cursor;
    this.cursor = cell;
    for (const changed of [before, cell]) if (changed >= 0) this.touch(changed);
    Object.assign(pointer, { grid: cell < 0 ? null : this, cell });
    pointer.onMove();
  }

  // Marks a cell and scrolls to it; -1: none.
  mark(cell) {
    if (cell === this.marked) return;
    for (const changed of [this.marked, this.marked = cell]) if (changed >= 0) this.touch(changed);
    if (cell >= 0 && this.layout) this.scroller.scrollTop = scrollTo(this.layout, cell, this.scroller.scrollTop);
  }

  walk(event) {
    const cell = this.layout && stepTo(this.layout, this.cells.total, this.cursor, event.key);
    if (cell === null) return;
    event.preventDefault();
    this.scroller.scrollTop = scrollTo(this.layout, cell, this.scroller.scrollTop);
    this.point(cell);
  }
}

// --- the grids on the page, and the loop that paints them

export let grids = [];

export function showGrids(root, shown) {
  grids = shown;
  root.replaceChildren(...grids.map((grid) => grid.root));
  for (const grid of grids) grid.lay();
}

export function paintGrids() {
  for (const grid of grids) grid.paintAll();
}

let frameWanted = false;
function wake() {
  if (frameWanted) return;
  frameWanted = true;
  requestAnimationFrame((now) => {
    frameWanted = false;
    let more = false;
    for (const grid of grids) more = grid.frame(now) || more;
    if (more) wake();
  });
}

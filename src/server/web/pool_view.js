// Shows the pool: its cells, a text about the cell that the user points at, and its numbers.
import { CellGrid, paintGrids, pointer, showGrids } from './cell_grid.js';
import { $, make } from './dom.js';
import { pool } from './pool.js';
import { showSequences } from './sequences_view.js';
import { makeTierRows, showTiers } from './tiers_view.js';
import { aboutPool, count, describePage, describeState, groupTitle } from './words.js';

let gridOf = new Map();  // cells -> their grid

// Takes an event of the server and shows it.
export function takeWhole(data) {
  const reshaped = pool.takeWhole(data);
  $('model').textContent = pool.model;
  $('about').textContent = aboutPool(pool);
  if (reshaped) makeGrids();
  queueNumbers();
}

export function takeChange(data) {
  pool.takeChange(data);
  queueNumbers();
}

function makeGrids() {
  const grids = pool.groups.map(({ cells }, group) => new CellGrid(cells, {
    title: groupTitle(pool, group), describe: (cell) => describePage(pool, group, cell),
  }));
  if (pool.states) {
    grids.push(new CellGrid(pool.states.cells, {
      title: 'Recurrent states: slots and checkpoints', describe: (cell) => describeState(pool, cell), wanted: pool.groups.length ? 80 : 210,
    }));
  }
  grids.push(...makeTierRows(pool.tiers));
  gridOf = new Map(grids.map((grid) => [grid.cells, grid]));
  showGrids($('grids'), grids);
}

function showDetail() {
  $('detail').textContent = pointer.grid ? pointer.grid.describe(pointer.cell) : 'Point at a cell, tap it, or use the arrow keys.';
}
pointer.onMove = showDetail;

// Shows the numbers at most ten times a second. After a pause it shows them at once, so that short requests are seen too.
let numbersQueued = false;
let numbersAt = -Infinity;
function queueNumbers() {
  if (numbersQueued) return;
  numbersQueued = true;
  setTimeout(() => {
    numbersQueued = false;
    numbersAt = performance.now();
    showNumbers();
  }, Math.max(0, numbersAt + 100 - performance.now()));
}

function showNumbers() {
  const sum = pool.sums();
  let total = 0;
  for (const cells of pool.counted()) {
    const counts = cells.counts();
    total += cells.total;
    gridOf.get(cells)?.scroller.setAttribute('aria-label', `${count(cells.total)} cells: ${count(counts.held)} held, ${count(counts.cached)} cached, ${count(counts.free)} free`);
  }
  for (const name of Object.keys(sum)) $(name).textContent = count(sum[name]);
  $('meter-held').style.width = `${(100 * sum.held) / (total || 1)}%`;
  $('meter-cached').style.width = `${(100 * sum.cached) / (total || 1)}%`;
  const stats = pool.stats;
  $('hit-rate').textContent = stats.prompt_tokens ? `${Math.round((100 * stats.cached_tokens) / stats.prompt_tokens)} %` : '–';
  const rows = [
    ['in the queue', stats.waiting], ['running', stats.running], ['suspended now', stats.suspended],
    ['suspensions', (stats.suspensions_by_copy ?? 0) + (stats.suspensions_by_recompute ?? 0)],
    ['pages evicted', (stats.blocks_evicted ?? 0) + (stats.window_pages_evicted ?? 0)], ['pages copied', stats.pages_copied],
    ['waits for a prefix', stats.prefix_waits], ['waits for a tier', stats.tier_waits], ['requests finished', stats.finished], ['integrity', stats.integrity ?? 'unchecked'],
  ];
  $('numbers').replaceChildren(...rows.filter(([, value]) => value != null).map(([name, value]) => make('div', {},
    make('dt', { textContent: name }),
    make('dd', { textContent: typeof value === 'number' ? count(value) : value, className: name === 'integrity' && !['sound', 'unchecked'].includes(value) ? 'bad' : '' }))));
  showTiers();
  showSequences(pool, light);
  if (pointer.grid) showDetail();
}

// Dims the cells that the sequence does not hold; null: dims none.
function light(key) {
  pointer.sequence = key;
  paintGrids();
}

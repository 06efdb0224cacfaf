import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CACHED, FREE, HELD } from './cells.js';
import { Pool } from './pool.js';

const sequence = (request, more = {}) => ({ request, choice: 0, state: 'decode', tokens: 40, prompt_tokens: 32, computed: 39, max_tokens: 64, ...more });

// The server's first event: two slabs of four pages, of which two are in use.
const whole = (more = {}) => ({
  model: 'demo', context: 2048, block_size: 16, arena_bytes: 8 * 64, slabs: 2,
  groups: [{ window: 0, page_bytes: 64, total: 8, ids: 8, pages: [[0, 1, 'held'], [5, 0, 'cached']] }],
  states: null, sequences: [sequence(1, { tables: [[0]] })], stats: { running: 1 }, ...more,
});
const hybrid = (more = {}) => whole({
  groups: [{ window: 0, page_bytes: 64, total: 8, ids: 8, pages: [[0, 1, 'held']] }],
  states: { bytes: 128, total: 4, ids: 4, slots: [[2, 'slot'], [3, 'checkpoint']] },
  sequences: [sequence(1, { tables: [[0]], slot: 2 })], ...more,
});
const change = (events, more = {}) => ({ events, began: [], changed: [], ended: [], stats: {}, ...more });
const stateOf = (cells) => [...cells.state].join('');

test('the whole pool gives the state and the holders of each page', () => {
  const pool = new Pool();
  assert.equal(pool.takeWhole(whole()), true, 'the cells are new');
  const { cells } = pool.groups[0];
  assert.equal(stateOf(cells), `${HELD}0000${CACHED}00`);
  assert.deepEqual([...cells.holders], [[0, ['1.0']]]);
  assert.equal(pool.model, 'demo');
  assert.equal(pool.stats.running, 1);
  assert.deepEqual(pool.kinds(), [cells]);
});

test('the next whole pool keeps the cells if its shape is the same, and makes new ones if not', () => {
  const pool = new Pool();
  pool.takeWhole(whole());
  const { cells } = pool.groups[0];
  assert.equal(pool.takeWhole(whole({ sequences: [] })), false);
  assert.equal(pool.groups[0].cells, cells);
  const larger = whole();
  larger.groups[0].ids = 16;
  assert.equal(pool.takeWhole(larger), true);
  assert.equal(pool.groups[0].cells.total, 16);
  assert.equal(pool.takeWhole(hybrid()), true, 'states came along');
  assert.equal(pool.takeWhole(whole()), true, 'and went');
  assert.equal(pool.states, null);
});

test('without ids there are as many cells as the arena could hold', () => {
  const pool = new Pool();
  const data = hybrid();
  delete data.groups[0].ids;
  delete data.states.ids;
  data.groups[0].total = 4;
  pool.takeWhole(data);
  assert.equal(pool.groups[0].cells.total, 8);
  assert.equal(pool.states.cells.total, 4);
});

test('every event of a page changes its cell', () => {
  const pool = new Pool();
  pool.takeWhole(whole({ sequences: [] }));
  const { cells } = pool.groups[0];
  const flashed = [];
  cells.onFlash = (cell, tone) => flashed.push(`${cell} ${tone}`);
  const after = (...event) => { pool.takeChange(change([event])); return stateOf(cells); };
  assert.equal(after('page_taken', 0, 1), '11000200');
  assert.equal(after('page_cached', 0, 0), '21000200');
  assert.equal(after('page_revived', 0, 5), '21000100');
  assert.equal(after('page_shared', 0, 5), '21000100');
  assert.equal(after('page_freed', 0, 5), '21000000');
  assert.equal(after('page_evicted', 0, 0), '01000000');
  assert.equal(after('page_evicted', 0, 1), '01000000', 'a page that is held leaves the index, not its holder');
  assert.equal(after('page_moved', 0, 1, 7), '00000001');
  assert.equal(after('page_copied', 0, 7, 2), '00000001');
  assert.equal(after('page_taken', 3, 1), '00000001', 'a group that is not there');
  assert.equal(after('something_new', 0, 1), '00000001', 'an event of a newer server');
  assert.deepEqual(flashed, ['1 taken', '0 held', '5 taken', '5 taken', '5 cached', '0 evicted', '1 evicted', '7 taken', '2 taken']);
});

test('every event of a state changes its cell', () => {
  const pool = new Pool();
  pool.takeWhole(hybrid());
  const after = (...event) => { pool.takeChange(change([event])); return stateOf(pool.states.cells); };
  assert.equal(stateOf(pool.states.cells), '0012');
  assert.equal(after('slot_taken', 0, 1), '0112');
  assert.equal(after('slot_released', 0, 2), '0102');
  assert.equal(after('checkpoint_stored', 0, 0), '2102');
  assert.equal(after('checkpoint_restored', 0, 0), '2102');
  assert.equal(after('checkpoint_dropped', 0, 0), '0102');
  assert.equal(after('slot_moved', 0, 1, 2), '0012');
});

test('a model without states ignores their events', () => {
  const pool = new Pool();
  pool.takeWhole(whole());
  pool.takeChange(change([['slot_taken', 0, 1], ['slot_moved', 0, 1, 2], ['checkpoint_restored', 0, 1]]));
  assert.equal(pool.states, null);
});

test('a page in two tables has two holders; a block that has no page has none', () => {
  const pool = new Pool();
  pool.takeWhole(whole({ sequences: [sequence(1, { tables: [[null, 0]] }), sequence(2, { tables: [[0]] }), sequence(3)] }));
  assert.deepEqual([...pool.groups[0].cells.holders], [[0, ['1.0', '2.0']]]);
});

test('a change replaces the fields, pages and counters that it names, and nothing else', () => {
  const pool = new Pool();
  pool.takeWhole(whole({ sequences: [sequence(1, { tables: [[0, 1, 2]], slot: null }), sequence(2, { tables: [[3]] })], stats: { running: 2, waiting: 1 } }));
  const first = pool.sequences.get('1.0');
  pool.takeChange(change([], {
    changed: [{ request: 1, choice: 0, tokens: 41, tables: [{ group: 0, size: 5, runs: [[0, [null]], [3, [6, 7]]] }] }, { request: 9, choice: 0, tokens: 1 }],
    stats: { waiting: 0 },
  }));
  assert.deepEqual(pool.sequences.get('1.0').tables, [[null, 1, 2, 6, 7]]);
  assert.deepEqual([pool.sequences.get('1.0').tokens, pool.sequences.get('1.0').computed], [41, 39]);
  assert.deepEqual(pool.sequences.get('2.0').tables, [[3]]);
  assert.deepEqual(pool.stats, { running: 2, waiting: 0 });
  assert.deepEqual([...pool.sequences.keys()], ['1.0', '2.0'], 'a sequence that never began is not invented');
  assert.deepEqual([...pool.groups[0].cells.holders.keys()], [1, 2, 6, 7, 3]);
  assert.deepEqual(first.tables, [[0, 1, 2]], 'what was there before is not written to');
  pool.takeChange(change([], { changed: [{ request: 1, choice: 0, state: 'suspended', tables: [{ group: 0, size: 0, runs: [] }] }] }));
  assert.deepEqual(pool.sequences.get('1.0').tables, [[]]);
  assert.equal(pool.sequences.get('1.0').state, 'suspended');
  pool.takeChange(change([], { ended: [[1, 0]] }));
  assert.deepEqual([...pool.sequences.keys()], ['2.0']);
});

test('a slab belongs to the kind of the objects in it', () => {
  const pool = new Pool();
  pool.takeWhole(hybrid());
  const [{ cells: pages }] = pool.groups;
  const { cells: states } = pool.states;
  assert.deepEqual([...pages.elsewhere], [0, 1], 'states are in the second slab');
  assert.deepEqual([...states.elsewhere], [1, 0], 'a page is in the first');
  assert.deepEqual(pages.counts(), { free: 3, held: 1, cached: 0 });
  pool.takeChange(change([['page_freed', 0, 0]]));
  assert.deepEqual([...states.elsewhere], [0, 0]);
  assert.equal(pages.state[0], FREE);
});

test('the last five ended sequences are kept, and one that comes back is removed from them', () => {
  const pool = new Pool();
  pool.takeWhole(whole({ sequences: [1, 2, 3, 4, 5, 6, 7].map((request) => sequence(request)) }));
  pool.takeChange(change([], { ended: [1, 2, 3, 4, 5, 6, 7].map((request) => [request, 0]) }));
  assert.deepEqual([...pool.ended.keys()], ['3.0', '4.0', '5.0', '6.0', '7.0']);
  assert.ok([...pool.ended.values()].every(({ ended }) => ended > 0));
  pool.takeChange(change([], { began: [sequence(5)] }));
  assert.deepEqual([...pool.ended.keys()], ['3.0', '4.0', '6.0', '7.0']);
  assert.deepEqual([...pool.sequences.keys()], ['5.0']);
});

test('the sums count pages if there are any, else states', () => {
  const pool = new Pool();
  assert.deepEqual(pool.counted(), []);
  pool.takeWhole(hybrid());
  assert.deepEqual(pool.counted(), [pool.groups[0].cells]);
  pool.takeWhole(hybrid({ groups: [], sequences: [] }));
  assert.deepEqual(pool.counted(), [pool.states.cells]);
});

test('a plain key sees the cells of its own sequences, and sums of all', () => {
  const pool = new Pool();
  const stats = (held) => ({ pages: [{ total: 8, free: 8 - held, held, cached: 0 }] });
  const data = whole({ scope: 'own', stats: stats(5) });
  data.groups[0].pages = [[0, 1, 'held']];
  pool.takeWhole(data);
  const { cells } = pool.groups[0];
  assert.equal(stateOf(cells), `${HELD}0000000`);
  assert.deepEqual(pool.sums(), { free: 3, held: 5, cached: 0 });
  pool.takeChange(change([], { ended: [[1, 0]], began: [sequence(2, { tables: [[3, null]] })], stats: stats(6) }));
  assert.equal(stateOf(cells), `000${HELD}0000`, 'without events');
  assert.deepEqual(pool.sums(), { free: 2, held: 6, cached: 0 });
  pool.takeWhole(whole());
  assert.equal(stateOf(cells), `${HELD}0000${CACHED}00`, 'an admin sees all again');
  assert.deepEqual(pool.sums(), { free: 6, held: 1, cached: 1 });
});

test('the page of a token: while its sequence runs, after it ended, and until the page has other content', () => {
  const pool = new Pool();
  pool.takeWhole(whole({ groups: [{ window: 0, page_bytes: 64, total: 8, ids: 8, pages: [[0, 1, 'held'], [1, 1, 'held'], [2, 1, 'held']] }], sequences: [sequence(1, { tables: [[0, 1, 2]] })] }));
  assert.deepEqual(pool.pagesOf('1.0', 0), [2], 'the prompt has 32 tokens, a page 16');
  assert.deepEqual(pool.pagesOf('1.0', 20), [null], 'it has no page yet');
  assert.equal(pool.pagesOf('2.0', 0), null);
  pool.takeChange(change([['page_cached', 0, 2, 0], ['page_freed', 0, 1, 0]], { ended: [[1, 0]] }));
  assert.deepEqual(pool.pagesOf('1.0', 15), [2], 'cached');
  pool.takeChange(change([['page_moved', 0, 2, 7]]));
  assert.deepEqual(pool.pagesOf('1.0', 15), [7]);
  pool.takeChange(change([['page_evicted', 0, 7, 0]]));
  assert.deepEqual(pool.pagesOf('1.0', 15), [null]);
  pool.takeWhole(whole({ sequences: [] }));
  assert.equal(pool.pagesOf('1.0', 15), null, 'the connection was lost: what happened was not seen');
});

test('the tiers of the server come with the pool and follow its changes', () => {
  const pool = new Pool();
  const tier = (more) => ({ kind: 'disk', working: true, bytes: 0, capacity_bytes: 480, objects: 0, puts: 0, hits: 0, misses: 0, tokens: 0, ...more });
  pool.takeWhole(whole());
  assert.deepEqual(pool.tiers, []);
  assert.equal(pool.takeWhole(whole({ stats: { tiers: [tier()] } })), true, 'there is a row more');
  const [disk] = pool.tiers;
  let lit = 0;
  disk.cells.onFlash = () => ++lit;
  pool.takeChange(change([], { stats: { tiers: [tier({ bytes: 100, puts: 3 })] } }));
  assert.equal(pool.tiers[0], disk);
  assert.equal(disk.filled(), 10);
  assert.equal(lit, 3);
  pool.takeChange(change([], { stats: { running: 2 } }));
  assert.equal(lit, 3, 'nothing moved');
  assert.equal(pool.takeWhole(whole({ stats: { tiers: [tier({ bytes: 100, puts: 4 })] } })), false);
  assert.equal(lit, 4);
});

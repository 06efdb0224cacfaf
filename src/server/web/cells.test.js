import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CACHED, Cells, FREE, HELD } from './cells.js';
import { hueOfKey } from './sequence_key.js';

// Cells that record their calls of onTouch and onFlash.
function watched(...shape) {
  const cells = new Cells(...shape);
  cells.touched = [];
  cells.flashed = [];
  cells.onTouch = (cell) => cells.touched.push(cell);
  cells.onFlash = (...what) => cells.flashed.push(what);
  return cells;
}

test('at first all are free', () => {
  assert.deepEqual(new Cells(10).counts(), { free: 10, held: 0, cached: 0 });
  assert.deepEqual(new Cells(0).counts(), { free: 0, held: 0, cached: 0 });
});

test('only what looks different is touched', () => {
  const cells = watched(6);
  cells.hold(new Map());
  cells.touched = [];
  cells.set(2, HELD);
  cells.hold(new Map([[2, ['1.0']]]));
  assert.deepEqual(cells.touched, [2]);
  cells.hold(new Map([[2, ['1.0']]]));
  assert.deepEqual(cells.touched, [2], 'nothing new');
  cells.hold(new Map([[2, ['1.0', '2.0']]]));
  assert.deepEqual(cells.touched, [2, 2], 'a second holder');
});

test('a cell that is cached keeps the hue of its last holder', () => {
  const cells = watched(3);
  cells.set(1, HELD);
  cells.hold(new Map([[1, ['9.0']]]));
  cells.set(1, CACHED, 'held');
  cells.hold(new Map());
  assert.equal(cells.hue[1], hueOfKey('9.0'));
  assert.deepEqual(cells.flashed, [[1, 'held', hueOfKey('9.0')]]);
});

test('what moves takes its state and hue along, and leaves a free cell', () => {
  const cells = watched(4);
  cells.set(0, HELD);
  cells.hold(new Map([[0, ['3.0']]]));
  cells.move(0, 3);
  assert.deepEqual([...cells.state], [FREE, FREE, FREE, HELD]);
  assert.equal(cells.hue[3], hueOfKey('3.0'));
});

test('ids beyond the cells are ignored', () => {
  const cells = watched(4);
  cells.set(4, HELD, 'taken');
  cells.move(0, 7);
  cells.move(7, 0);
  assert.deepEqual(cells.counts(), { free: 4, held: 0, cached: 0 });
  assert.deepEqual(cells.flashed, []);
});

test('cells of a slab that another kind uses do not exist: not free, not counted', () => {
  const cells = watched(8, 4);
  cells.yieldTo(Uint8Array.of(0, 2), 1);
  assert.deepEqual(cells.touched, [4, 5, 6, 7]);
  assert.ok(!cells.isElsewhere(3) && cells.isElsewhere(4));
  assert.deepEqual(cells.counts(), { free: 4, held: 0, cached: 0 });
  cells.yieldTo(Uint8Array.of(0, 2), 1);
  assert.equal(cells.touched.length, 4, 'nothing new');
  cells.yieldTo(Uint8Array.of(0, 1), 1);
  assert.deepEqual(cells.counts(), { free: 8, held: 0, cached: 0 });
});

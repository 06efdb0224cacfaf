import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CACHED, FREE } from './cells.js';
import { scaleOf, takeTiers, Tier, TIER_CELLS } from './tier.js';

const stats = (more = {}) => ({
  kind: 'disk', working: true, bytes: 0, capacity_bytes: 4800, objects: 0, puts: 0, gets: 0, hits: 0, misses: 0, damaged: 0, tokens: 0, ...more,
});
// The cells that light up while `what` happens, by tone.
function lit(tier, what) {
  const seen = { held: [], bright: [] };
  tier.cells.onFlash = (cell, tone) => seen[tone].push(cell);
  what();
  return { written: seen.held, brought: seen.bright };
}

test('the cells are a meter of the bytes, as far as the capacity is known', () => {
  const tier = new Tier('disk');
  for (const [bytes, filled] of [[0, 0], [1, 1], [100, 1], [101, 2], [2400, 24], [4800, 48], [9999, 48]]) {
    tier.take(stats({ bytes }));
    assert.equal(tier.filled(), filled, `${bytes} of 4800 bytes`);
    assert.deepEqual([...tier.cells.state], Array.from({ length: TIER_CELLS }, (_, i) => (i < filled ? CACHED : FREE)));
  }
});

test('without a capacity they are a meter of the objects, and without these they are empty', () => {
  const tier = new Tier('shared');
  for (const [objects, per, filled] of [[1, 1, 1], [48, 1, 48], [49, 2, 25], [96, 2, 48], [97, 4, 25], [100_000, 4096, 25]]) {
    const now = stats({ capacity_bytes: 0, objects });
    assert.deepEqual(scaleOf(now), { unit: 'objects', per });
    tier.take(now);
    assert.equal(tier.filled(), filled, `${objects} objects`);
  }
  tier.take(stats({ capacity_bytes: 0 }));
  assert.equal(tier.filled(), 0);
});

test('what was written and brought since the last update lights up, a cell for each object, going round', () => {
  const tier = new Tier('disk');
  assert.deepEqual(lit(tier, () => tier.take(stats({ bytes: 400, puts: 7, hits: 9 }))), { written: [], brought: [] }, 'nothing is known of before');
  assert.deepEqual(lit(tier, () => tier.take(stats({ bytes: 400, puts: 10, hits: 10 }))), { written: [0, 1, 2], brought: [0] });
  assert.deepEqual(lit(tier, () => tier.take(stats({ bytes: 400, puts: 12, hits: 10 }))), { written: [3, 0], brought: [] });
  assert.deepEqual(lit(tier, () => tier.take(stats({ bytes: 400, puts: 12, hits: 90 }))), { written: [], brought: [1, 2, 3, 0] }, 'each cell once at most');
  assert.deepEqual(lit(tier, () => tier.take(stats({ bytes: 400, puts: 1, hits: 1 }))), { written: [], brought: [] }, 'the server was started again');
});

test('a tier that does not say how full it is lights up too', () => {
  const tier = new Tier('shared');
  tier.take(stats({ capacity_bytes: 0 }));
  assert.deepEqual(lit(tier, () => tier.take(stats({ capacity_bytes: 0, puts: 2 }))).written, [0, 1]);
});

test('an update keeps the tiers if their kinds are the same', () => {
  const first = takeTiers([], [stats(), stats({ kind: 'shared' })]);
  assert.deepEqual(first.map(({ kind }) => kind), ['disk', 'shared']);
  assert.equal(takeTiers(first, [stats({ puts: 1 }), stats({ kind: 'shared' })]), first);
  assert.equal(first[0].stats.puts, 1);
  const other = takeTiers(first, [stats()]);
  assert.notEqual(other, first);
  assert.equal(other.length, 1);
  assert.deepEqual(takeTiers([], undefined), [], 'a server without tiers');
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Rates, outline } from './rates.js';

const stats = (decode, prefill) => ({ generated_tokens: decode, computed_tokens: prefill });

test('a rate is the growth of a counter divided by the time', () => {
  const rates = new Rates();
  assert.equal(rates.sample({}, 0), false, 'nothing is known yet');
  assert.equal(rates.sample(stats(100, 1000), 1000), false, 'there is nothing to compare with');
  assert.equal(rates.sample(stats(150, 3000), 3000), true);
  assert.deepEqual(rates.values, { decode: [25], prefill: [1000] });
});

test('after a restart of the server the counters start at 0', () => {
  const rates = new Rates();
  rates.sample(stats(100, 100), 0);
  assert.equal(rates.sample(stats(5, 5), 1000), false);
  assert.equal(rates.sample(stats(15, 25), 2000), true);
  assert.deepEqual(rates.values, { decode: [10], prefill: [20] });
});

test('three minutes are kept', () => {
  const rates = new Rates();
  for (let i = 0; i <= 500; ++i) rates.sample(stats(i * i, i), i * 1000);
  assert.equal(rates.values.decode.length, 180);
  assert.equal(rates.values.decode.at(-1), 500 * 500 - 499 * 499);
});

test('the curve ends at the right edge, stays inside, and its largest value is the highest', () => {
  const values = [0, 50, 100, 25];
  const points = outline(values, 360, 60, 100);
  assert.deepEqual(points[0], [360 - 4 * 2, 59]);
  assert.deepEqual(points.at(-1), [360, 59]);
  assert.equal(Math.min(...points.map(([, y]) => y)), 15);
  assert.ok(points.every(([x, y]) => x >= 0 && x <= 360 && y >= 15 && y <= 59));
  assert.deepEqual(points.slice(5, 7), [[356, 15], [358, 15]], 'a value is a step');
  const full = outline(new Array(180).fill(1), 360, 60, 10);
  assert.equal(full[0][0], 0, 'all samples fill the width');
  assert.deepEqual(outline([], 360, 60, 10), [[360, 59], [360, 59]]);
});

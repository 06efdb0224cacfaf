import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hueOf, hueOfKey, keyOf, nameOfKey, nameSeveral } from './sequence_key.js';

test('a sequence has a key and a name', () => {
  assert.equal(keyOf({ request: 7 }), '7.0');
  assert.equal(keyOf({ request: 7, choice: 2 }), '7.2');
  assert.equal(nameOfKey('7.0'), '#7');
  assert.equal(nameOfKey('7.2'), '#7 (choice 3)');
});

test('several are named, many are counted', () => {
  assert.equal(nameSeveral(['1.0']), '#1');
  assert.equal(nameSeveral(['1.0', '2.0', '3.0']), '#1 and #2 and #3');
  assert.equal(nameSeveral(['1.0', '2.0', '3.0', '4.0', '5.0']), '#1, #2, #3 and 2 more');
});

test('requests that follow each other have hues far apart; choices differ too', () => {
  const apart = (a, b) => Math.min(Math.abs(a - b), 360 - Math.abs(a - b));
  for (let request = 0; request < 1000; ++request) {
    const hue = hueOf(request);
    assert.ok(Number.isInteger(hue) && hue >= 0 && hue < 360);
    assert.ok(apart(hue, hueOf(request + 1)) > 90);
    assert.ok(apart(hue, hueOf(request + 2)) > 60);
    assert.ok(apart(hue, hueOf(request, 1)) > 40);
  }
  assert.equal(hueOfKey('12.3'), hueOf(12, 3));
});

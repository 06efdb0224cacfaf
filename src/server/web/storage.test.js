import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Kept } from './storage.js';

// A storage of at most this many characters.
function fakeStorage(room = Infinity) {
  const entries = new Map();
  return {
    get length() { return entries.size; },
    key: (i) => [...entries.keys()][i] ?? null,
    getItem: (name) => entries.get(name) ?? null,
    removeItem: (name) => { entries.delete(name); },
    setItem: (name, text) => {
      const rest = [...entries].filter(([other]) => other !== name).reduce((sum, [, other]) => sum + other.length, 0);
      if (rest + text.length > room) throw new DOMException('full', 'QuotaExceededError');
      entries.set(name, text);
    },
  };
}

test('what is kept comes back', () => {
  const storage = fakeStorage();
  assert.equal(new Kept(() => storage).set('a', { x: [1] }), null);
  assert.deepEqual(new Kept(() => storage).get('a'), { x: [1] });
  assert.equal(new Kept(() => storage).get('b'), null);
  storage.setItem('broken', '{');
  assert.equal(new Kept(() => storage).get('broken'), null);
  assert.deepEqual(new Kept(() => storage).names('a'), ['a']);
});

test('a storage that is full or denied: the page works on with its memory', () => {
  const storage = fakeStorage(10);
  const full = new Kept(() => storage);
  assert.equal(full.set('a', '12345'), null);
  assert.equal(full.set('a', '1234567890'), 'full');
  assert.equal(full.get('a'), '1234567890');
  assert.equal(new Kept(() => storage).get('a'), '12345', 'what was kept before is still there');
  full.hold('b', 1);
  assert.equal(full.get('b'), 1);
  assert.deepEqual([full.has('a'), full.has('b')], [true, false]);
  full.remove('a');
  assert.equal(full.get('a'), null);
  const denied = new Kept(() => { throw new DOMException('no', 'SecurityError'); });
  assert.equal(denied.set('b', 1), 'denied');
  assert.equal(denied.get('b'), 1);
  assert.deepEqual(denied.names(''), ['b']);
  denied.remove('b');
  assert.equal(denied.get('b'), null);
});

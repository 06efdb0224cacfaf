import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { conversation, replaceWith } from './conversation.js';
import { keeping, save } from './keeping.js';

// What the page sees of the browser: a storage that all tabs share, and one of the tab. `room` is for the shared one.
let room;
function fakeStorage(limited) {
  const entries = new Map();
  return {
    get length() { return entries.size; },
    key: (i) => [...entries.keys()][i] ?? null,
    getItem: (name) => entries.get(name) ?? null,
    removeItem: (name) => { entries.delete(name); },
    setItem: (name, text) => {
      if (limited && text.length > room) throw new DOMException('full', 'QuotaExceededError');
      entries.set(name, text);
    },
  };
}
let said;
beforeEach(() => {
  room = Infinity;
  globalThis.localStorage = fakeStorage(true);
  globalThis.sessionStorage = fakeStorage(false);
  said = [];
  keeping.onProblem = (text) => said.push(text);
  replaceWith({});
});

test('a problem is told once, until it is gone', () => {
  conversation.messages = [{ role: 'user', text: 'x'.repeat(100) }];
  room = 50;
  save();
  save();
  assert.equal(said.length, 1);
  assert.match(said[0], /no room left/);
  room = Infinity;
  save();
  room = 50;
  save();
  assert.equal(said.length, 2);
});

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { conversation, isShown, replaceWith } from './conversation.js';
import { keeping, markChanged, newConversation, openConversation, resume, save, saveChanges } from './keeping.js';
import { Library } from './library.js';
import { Kept } from './storage.js';

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
  saveChanges();
  assert.equal(otherTab().list().length, 1, 'when there is room, what was not kept is');
  room = 50;
  save();
  assert.equal(said.length, 2);
});

// Another tab: it shares what the browser keeps.
const otherTab = () => new Library(new Kept(() => localStorage));

test('a tab that has changed nothing does not write: what another tab has saved or deleted stays so', () => {
  conversation.messages = [{ role: 'user', text: 'Hello' }];
  save();
  const { id } = conversation;
  const other = otherTab();
  const there = other.load(id);
  there.messages.push({ role: 'user', text: 'from the other tab' });
  other.save(there);
  saveChanges();
  assert.equal(other.load(id).messages.length, 2);
  other.remove(id);
  saveChanges();
  assert.deepEqual(other.list(), []);
  assert.deepEqual(said, []);
});

test('what has changed in both tabs is kept twice, and the user is told', () => {
  conversation.messages = [{ role: 'user', text: 'Hello' }];
  save();
  const { id } = conversation;
  const other = otherTab();
  const there = other.load(id);
  there.messages.push({ role: 'user', text: 'from the other tab' });
  other.save({ ...there });
  conversation.system = 'Be short.';
  markChanged();
  saveChanges();
  assert.notEqual(conversation.id, id);
  assert.match(said[0], /^Another tab has changed or deleted this conversation/);
  assert.equal(other.load(id).messages.length, 2);
  assert.equal(other.load(conversation.id).system, 'Be short.');
  const kept = conversation.id;
  saveChanges();
  save();
  assert.equal(conversation.id, kept);
  assert.equal(said.length, 1);
  replaceWith({});
  resume('');
  assert.equal(conversation.id, kept, 'a reload shows what this tab has');
});

test('a save that had to wait is done by saveChanges, and not for another conversation', () => {
  conversation.messages = [{ role: 'user', text: 'Hello' }, { role: 'assistant', text: 'Y' }];
  save();
  const { id, changed } = conversation;
  const [, answer] = conversation.messages;
  answer.text = 'Yes';
  save(false);
  assert.equal(otherTab().load(id).messages[1].text, 'Y');
  saveChanges();
  assert.equal(otherTab().load(id).messages[1].text, 'Yes');
  assert.ok(isShown(answer));
  newConversation('');
  assert.ok(!isShown(answer));
  openConversation(id);
  const before = conversation.changed;
  assert.ok(before >= changed);
  saveChanges();
  assert.equal(otherTab().load(id).changed, before);
});

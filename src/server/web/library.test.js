import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Library } from './library.js';
import { Kept } from './storage.js';
import { ImportError, exported, imported } from './transfer.js';

function fake(room = Infinity) {
  const entries = new Map();
  return {
    entries,
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
let clock = 1000;
const libraryOn = (storage) => new Library(new Kept(() => storage), () => (clock += 1000));
const talk = (text, more = {}) => ({ id: null, title: '', named: false, created: 0, system: '', messages: [{ role: 'user', text }, { role: 'assistant', text: 'Yes.', finish: 'stop', ...more }] });

test('conversations are listed, the newest first, renamed and deleted', () => {
  const storage = fake();
  const library = libraryOn(storage);
  const first = talk('First question'), second = talk('Second question');
  assert.equal(library.save(first), null);
  library.save(second);
  assert.deepEqual(library.list().map(({ title }) => title), ['Second question', 'First question']);
  library.save(first);
  assert.deepEqual(libraryOn(storage).list().map(({ title }) => title), ['First question', 'Second question'], 'another tab sees the same');
  library.rename(second.id, 'Mine');
  assert.equal(library.load(second.id).title, 'Mine');
  assert.equal(library.load(second.id).named, true);
  library.remove(first.id);
  assert.deepEqual(library.list().map(({ title }) => title), ['Mine']);
  assert.equal(library.load(first.id), null);
  library.save({ ...talk(''), messages: [] });
  assert.equal(library.list().length, 1, 'an empty conversation is not kept');
});

test('what belongs to the page is not kept', () => {
  const storage = fake();
  const library = libraryOn(storage);
  const running = talk('Hi', { stopper: new AbortController(), changed: () => {}, connection: 1, finish: null });
  library.save(running);
  assert.deepEqual(library.load(running.id).messages[1], { role: 'assistant', text: 'Yes.', finish: null });
});

test('a full browser loses probabilities first, the oldest before the newest, and then says so', () => {
  const tokens = Array.from({ length: 50 }, () => ['token', -1, [['token', -1]]]);
  const storage = fake(4000);
  const library = libraryOn(storage);
  const old = talk('Old', { tokens }), fresh = talk('Fresh', { tokens });
  assert.equal(library.save(old), null);
  assert.equal(library.save(fresh), null);
  const third = talk('Third', { tokens });
  assert.equal(library.save(third), null);
  assert.equal(library.load(old.id).messages[1].tokens, undefined);
  assert.equal(library.load(third.id).messages[1].tokens?.length ?? 50, 50);
  assert.equal(library.load(old.id).messages[1].text, 'Yes.', 'the text stays');
  const huge = talk('x'.repeat(5000));
  assert.match(library.save(huge), /no room left/);
  assert.match(library.save(huge), /no room left/, 'it is still so');
  assert.equal(library.load(huge.id).messages.length, 2, 'this tab still has it');
  const denied = new Library(new Kept(() => { throw new Error('denied'); }));
  assert.match(denied.save(talk('Hi')), /does not let this page keep/);
  assert.equal(denied.list().length, 1, 'the list works in this tab');
});

test('the list has no entry without messages, and there are no messages without an entry', () => {
  const storage = fake(900);
  const library = libraryOn(storage);
  const names = () => [...storage.entries.keys()].map((name) => name.slice(0, name.lastIndexOf('.'))).sort();
  const huge = talk('x'.repeat(2000));
  assert.match(library.save(huge), /no room left/);
  assert.equal(library.list().length, 1, 'this tab still has it');
  assert.deepEqual(names(), []);
  assert.deepEqual(libraryOn(storage).list(), [], 'another tab does not');
  // A conversation that has grown too long: the browser has the last version that fitted, with its own date.
  const long = talk('Long');
  assert.equal(library.save(long), null);
  const [before] = libraryOn(storage).list();
  long.messages.push({ role: 'user', text: 'y'.repeat(2000) });
  assert.match(library.save(long), /no room left/);
  assert.equal(library.load(long.id).messages.length, 3);
  assert.equal(libraryOn(storage).load(long.id).messages.length, 2);
  assert.deepEqual(libraryOn(storage).list(), [before]);
  library.remove(long.id);
  // The messages fit, and what the list shows does not.
  const { setItem } = storage;
  storage.setItem = (name, text) => { if (name.startsWith('quire.about.')) throw new DOMException('full', 'QuotaExceededError'); setItem(name, text); };
  const tight = talk('Tight');
  assert.match(library.save(tight), /no room left/);
  assert.deepEqual(names(), []);
  assert.equal(library.load(tight.id).messages.length, 2);
});

test('an import says what was not kept, takes all or none, and keeps the dates', () => {
  const storage = fake(1200);
  const library = libraryOn(storage);
  const filed = (text, changed) => ({ ...talk(text), changed, created: changed - 1 });
  assert.equal(library.add([filed('Old', 2000), filed('Older', 1000), { messages: talk('Undated').messages }]), null);
  assert.deepEqual(library.list().slice(1).map(({ title, changed }) => [title, changed]), [['Old', 2000], ['Older', 1000]]);
  const before = library.list();
  assert.equal(before[0].title, 'Undated');
  for (let i = 0; i < 2; ++i) assert.match(library.add([filed('Small', 3000), filed('z'.repeat(2000), 3000)]), /none was imported/, 'told every time');
  assert.deepEqual(library.list(), before);
  library.add([filed('From the future', clock + 1e9)]);
  assert.ok(library.list()[0].changed <= clock, 'no conversation stays on top for ever');
});

test('what was deleted comes back as it was', () => {
  const library = libraryOn(fake());
  const first = talk('First');
  library.save(first);
  library.save(talk('Second'));
  const before = library.list();
  const data = library.load(first.id);
  library.remove(first.id);
  assert.equal(library.restore(data), null);
  assert.deepEqual(library.list(), before);
});

test('two tabs with the same conversation: what one has saved is never overwritten by the other', () => {
  const storage = fake();
  const [one, other] = [libraryOn(storage), libraryOn(storage)];
  const first = talk('Hello');
  one.save(first);
  const { id } = first;
  const second = other.load(id);
  first.messages.push({ role: 'user', text: 'from the first tab' });
  one.save(first);
  assert.equal(first.id, id);
  second.messages.push({ role: 'user', text: 'from the second tab' });
  other.save(second);
  assert.notEqual(second.id, id, 'it is kept as another one');
  assert.deepEqual([id, second.id].map((each) => one.load(each).messages.at(-1).text), ['from the first tab', 'from the second tab']);
  // Both go on, each with its own.
  const own = second.id;
  other.save(second);
  one.save(first);
  assert.deepEqual([first.id, second.id], [id, own]);
  assert.equal(one.list().length, 2);
  // What was deleted does not come back under its id.
  other.remove(id);
  one.save(first);
  assert.notEqual(first.id, id);
  assert.equal(one.load(id), null);
  // A name that was given in the other tab stays.
  other.rename(first.id, 'Mine');
  one.save(first);
  assert.equal(one.load(first.id).title, 'Mine');
  assert.equal(one.list().length, 2);
});

test('damaged entries are passed over', () => {
  const storage = fake();
  const library = libraryOn(storage);
  storage.setItem('quire.conversation.a', '{"messages": 3}');
  storage.setItem('quire.about.a', '{');
  storage.setItem('quire.about.b', '{"title": "b"}');
  assert.deepEqual(library.list(), []);
  assert.equal(library.load('a'), null);
});

test('what is exported can be imported', () => {
  const fork = { role: 'assistant', kind: 'fork', prefix: 'Once', chosen: 1, branches: [{ text: ' a', label: 'first' }, { text: ' b', finish: 'length' }] };
  const whole = {
    ...talk('Hi', { reasoning: 'So', calls: [{ id: 'c', name: 'n', arguments: '{}' }], usage: { prompt_tokens: 3, completion_tokens: 4 }, tokens: [['Hi', -0.5, [['Hi', -0.5]]]], seconds: 0.5, request: 4 }),
    title: 'T', created: 5, system: 'Be short.',
  };
  whole.messages.push({ role: 'tool', text: 'r', call: 'c', name: 'n' }, fork, { kind: 'readers', notes: 'x', branches: [{ text: 'y', question: 'q' }] });
  const [again] = imported(exported([whole]));
  const { id, ...expected } = whole;
  assert.deepEqual(again, expected);
});

test('a file that is wrong is refused, and the message names what', () => {
  const file = (conversations) => JSON.stringify({ format: 'quire conversations', version: 1, conversations });
  const cases = [
    ['{', /not JSON/], ['[]', /not a file of conversations/], ['null', /not a file of conversations/], ['{"format": "x"}', /not a file of conversations/],
    [JSON.stringify({ format: 'quire conversations', version: 2 }), /version 2/],
    [file({}), /^conversations must be an array\.$/], [file([{}]), /^conversations\[0\]\.messages is missing\.$/],
    [file([{ messages: [{ role: 'root', text: '' }] }]), /^conversations\[0\]\.messages\[0\]\.role must be one of "user", "assistant", "tool"\.$/],
    [file([{ messages: [{ role: 'user' }] }]), /messages\[0\]\.text is missing/],
    [file([{ messages: [{ role: 'user', text: 3 }] }]), /messages\[0\]\.text must be a text/],
    [file([{ messages: [{ role: 'assistant', text: '', tokens: [['a', 'b', []]] }] }]), /tokens\[0\]\[1\] must be a number/],
    [file([{ messages: [{ role: 'assistant', kind: 'fork', prefix: '', branches: [], chosen: 0 }] }]), /chosen is no branch/],
    [file([{ messages: [], title: {} }]), /title must be a text/],
  ];
  for (const [text, message] of cases) assert.throws(() => imported(text), (error) => error instanceof ImportError && message.test(error.message), text);
  const [{ messages: [message] }] = imported(file([{ messages: [JSON.parse('{"role": "user", "text": "a", "__proto__": {"x": 1}, "stopper": {}, "changed": 1}')] }]));
  assert.deepEqual(message, { role: 'user', text: 'a' }, 'only known fields are taken over');
});

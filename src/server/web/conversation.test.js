import assert from 'node:assert/strict';
import { test } from 'node:test';
import { asSent, longNotes, markStopped, middleOf, openCalls, openCallsOf, spoken, titleOf } from './conversation.js';

const fork = { role: 'assistant', kind: 'fork', prefix: 'Once', chosen: 1, branches: [{ text: ' upon' }, { text: ' more' }] };

test('the request has the messages without readers and empty answers, and of a fork the chosen answer', () => {
  const messages = [{ role: 'user', text: 'Hello' }, { role: 'assistant', text: '' }, { kind: 'readers', notes: 'x', branches: [] }, { role: 'user', text: 'A story' }, fork];
  assert.deepEqual(asSent(messages), [{ role: 'user', content: 'Hello' }, { role: 'user', content: 'A story' }, { role: 'assistant', content: 'Once more' }]);
  assert.equal(spoken({ ...fork, chosen: 0 }), 'Once upon');
});

test('after a reload, running answers count as stopped; ended ones do not', () => {
  const messages = JSON.parse(JSON.stringify([
    { role: 'user', text: 'Hello' }, { role: 'assistant', text: 'Hi', finish: 'stop' }, { role: 'assistant', text: 'Hal', finish: null, error: null, stopper: {} },
    { role: 'assistant', text: '', finish: null, error: 'The server is busy.' }, { ...fork, branches: [{ text: 'a', finish: null, error: null }, { text: 'b', finish: 'length' }] }]));
  markStopped(messages);
  assert.deepEqual(messages.slice(0, 4).map(({ finish }) => finish), [undefined, 'stop', 'stopped', null]);
  assert.ok(!('stopper' in messages[2]));
  assert.deepEqual(messages[4].branches.map(({ finish }) => finish), ['stopped', 'length']);
});

test('an answer forks at the space after its middle, a short one at its beginning', () => {
  const text = 'In a little house by the lighthouse lived a girl.';
  const at = middleOf(text);
  assert.equal(text[at], ' ');
  assert.ok(at >= text.length / 2 - 1 && at < text.length / 2 + 12);
  assert.equal(middleOf('A short answer.'), 0);
  assert.equal(middleOf('x'.repeat(100)), 0, 'there is no space');
});

test('a system prompt comes first, calls and their results are sent as the API has them', () => {
  const calls = [{ id: 'c1', name: 'weather', arguments: '{"city":"Rome"}' }, { id: 'c2', name: 'time', arguments: '{}' }];
  const messages = [{ role: 'user', text: 'Rome?' }, { role: 'assistant', text: '', calls }, { role: 'tool', text: 'sunny', call: 'c1', name: 'weather' }];
  assert.deepEqual(asSent(messages, 'Be short.'), [
    { role: 'system', content: 'Be short.' }, { role: 'user', content: 'Rome?' },
    { role: 'assistant', content: '', tool_calls: [
      { id: 'c1', type: 'function', function: { name: 'weather', arguments: '{"city":"Rome"}' } },
      { id: 'c2', type: 'function', function: { name: 'time', arguments: '{}' } }] },
    { role: 'tool', tool_call_id: 'c1', name: 'weather', content: 'sunny' }]);
  assert.deepEqual(asSent([messages[0]], '  '), [{ role: 'user', content: 'Rome?' }]);
  assert.deepEqual(openCalls(messages), [calls[1]]);
  assert.deepEqual(openCalls(messages.slice(0, 2)), calls);
  assert.deepEqual(openCallsOf(messages[1], messages), [calls[1]], 'one result is given, as after a reload');
  assert.deepEqual(openCallsOf(messages[1], [...messages, { role: 'assistant', text: 'Sunny.' }]), [], 'the conversation went on');
  assert.deepEqual(openCallsOf(messages[0], messages), []);
  assert.deepEqual(openCalls([messages[0]]), []);
  assert.deepEqual(openCalls([]), []);
});

test('the title is the first line that the user wrote, cut between words', () => {
  assert.equal(titleOf([{ role: 'user', text: '  What is\na quire? ' }]), 'What is');
  const long = titleOf([{ role: 'user', text: 'word '.repeat(40) }]);
  assert.ok(long.length <= 61 && long.endsWith('word…'), long);
  assert.equal(titleOf([{ kind: 'readers', branches: [] }]), 'Three readers');
  assert.equal(titleOf([]), '');
});

test('the long text fits the context, and is the same every time', () => {
  for (const context of [64, 512, 2048, 8192, 1_000_000]) {
    const notes = longNotes(context);
    assert.ok(notes.length >= 300 && notes.length <= 5300, `${notes.length} characters`);
    assert.ok(notes.length < context * 1.9 + 100 || context < 160, `${notes.length} characters for ${context} tokens`);
    assert.equal(notes, longNotes(context));
    assert.match(notes, /^Remember these notes\. The code of Mia is \d{4}\. The \w+ \w+ holds a \w+ \w+\. /);
  }
});

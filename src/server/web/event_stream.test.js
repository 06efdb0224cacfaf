import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventParser, eventsOf } from './event_stream.js';

const text = 'event: pool\ndata: {"a": 1}\n\n: a comment\n\ndata: one\ndata: two\n\ndata:close\r\n\r\ndata: [DONE]\n\n';
const events = [{ type: 'pool', data: '{"a": 1}' }, { type: 'message', data: 'one\ntwo' }, { type: 'message', data: 'close' }, { type: 'message', data: '[DONE]' }];

test('events come out whole, wherever the pieces end', () => {
  for (let length = 1; length <= text.length; ++length) {
    const parser = new EventParser();
    const seen = [];
    for (let at = 0; at < text.length; at += length) seen.push(...parser.push(text.slice(at, at + length)));
    assert.deepEqual(seen, events, `pieces of ${length}`);
  }
});

test('an incomplete event is not returned', () => {
  const parser = new EventParser();
  assert.deepEqual(parser.push('data: half'), []);
  assert.deepEqual(parser.push('\n'), []);
  assert.deepEqual(parser.push('\n'), [{ type: 'message', data: 'half' }]);
});

test('a type counts for one event only, and an event without data is not returned', () => {
  const parser = new EventParser();
  assert.deepEqual(parser.push('event: change\n\ndata: x\n\n'), [{ type: 'message', data: 'x' }]);
  assert.deepEqual(parser.push('event: change\ndata: y\n\ndata: z\n\n'), [{ type: 'change', data: 'y' }, { type: 'message', data: 'z' }]);
});

test('one space after the colon is dropped, further spaces belong to the data', () => {
  assert.deepEqual(new EventParser().push('data:  two spaces\n\n'), [{ type: 'message', data: ' two spaces' }]);
});

test('a response is read to its end, also if a piece ends inside a character', async () => {
  const bytes = new TextEncoder().encode('data: ½ a kite 🪁\n\n: still there\n\ndata: end\n\n');
  let heard = 0;
  const response = new Response(new ReadableStream({
    start(controller) {
      for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
      controller.close();
    },
  }));
  const seen = [];
  for await (const { data } of eventsOf(response, () => { ++heard; })) seen.push(data);
  assert.deepEqual(seen, ['½ a kite 🪁', 'end']);
  assert.ok(heard > 2, 'comments are heard too');
});

test('ending the loop early cancels the response', async () => {
  let cancelled = false;
  const response = new Response(new ReadableStream({
    start(controller) { controller.enqueue(new TextEncoder().encode('data: 1\n\ndata: 2\n\n')); },
    cancel() { cancelled = true; },
  }));
  for await (const { data } of eventsOf(response)) if (data === '1') break;
  await new Promise((resolve) => setTimeout(resolve, 10));
  assert.ok(cancelled);
});

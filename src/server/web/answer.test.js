import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { running, stopAll, takeEvent, write } from './answer.js';
import { pool } from './pool.js';
import { startKeyForm } from './server.js';
import { DEFAULTS, saveSettings } from './settings.js';

const piece = (content, finish = null) => JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: finish }] });
const realFetch = globalThis.fetch;
afterEach(() => { globalThis.fetch = realFetch; });

// A fake server that answers with these events. Without an end, the stream stays open until it is aborted.
function serve(events, { status = 200, end = true, headers: answered = { 'x-request-id': '12' } } = {}) {
  const asked = [];
  globalThis.fetch = async (path, { body, headers, signal }) => {
    asked.push({ path, headers, body: JSON.parse(body) });
    const stream = new ReadableStream({
      start(controller) {
        for (const event of events) controller.enqueue(new TextEncoder().encode(`data: ${event}\n\n`));
        if (end) controller.close();
        signal.addEventListener('abort', () => controller.error(new DOMException('aborted', 'AbortError')));
      },
    });
    return new Response(stream, { status, headers: answered });
  };
  return asked;
}

test('the pieces of a stream make up the answer', () => {
  const answer = { text: '' };
  assert.equal(takeEvent(answer, piece('Once')), false);
  assert.equal(takeEvent(answer, piece(' upon', 'length')), false);
  assert.equal(takeEvent(answer, JSON.stringify({ choices: [], usage: { completion_tokens: 2 } })), false);
  assert.equal(takeEvent(answer, '[DONE]'), true);
  assert.deepEqual(answer, { text: 'Once upon', finish: 'length', usage: { completion_tokens: 2 } });
  assert.throws(() => takeEvent(answer, '{"error": {"message": "no room"}}'), /no room/);
});

test('an answer is streamed, and the request has the fields that were given', async () => {
  const asked = serve([piece('Hello'), piece('!', 'stop'), '[DONE]']);
  const answer = { role: 'assistant', text: '' };
  const seen = [];
  const counts = [];
  running.onChange = () => counts.push(running.stoppers.size);
  await write(answer, { messages: [{ role: 'user', content: 'Hi' }], seed: 3 }, () => seen.push(answer.text));
  assert.equal(answer.text, 'Hello!');
  assert.equal(answer.finish, 'stop');
  assert.equal(answer.request, 12);
  assert.equal(answer.error, null);
  assert.ok(answer.seconds >= 0 && !('stopper' in answer));
  assert.deepEqual(seen, ['', 'Hello', 'Hello!', 'Hello!']);
  assert.deepEqual(counts, [1, 0]);
  assert.equal(asked[0].path, '/v1/chat/completions');
  assert.deepEqual(asked[0].body.messages, [{ role: 'user', content: 'Hi' }]);
  assert.equal(asked[0].body.stream, true);
  assert.equal(asked[0].body.seed, 3);
});

test('a request has the settings, and what is its own', async () => {
  const asked = serve([piece('Hello', 'stop'), '[DONE]']);
  saveSettings({ min_tokens: 300, max_tokens: 400, logit_bias: '{"7": -100}' });
  try {
    await write({ text: '' }, { seed: 3, max_tokens: 200 }, () => {});
  } finally {
    saveSettings({ ...DEFAULTS, min_tokens: '' });
  }
  const [{ body: { seed, min_tokens: least, max_tokens: most, logit_bias: bias } }] = asked;
  assert.deepEqual({ seed, least, most, bias }, { seed: 3, least: 200, most: 200, bias: { 7: -100 } });
});

test('all requests of a tab name the same route, so that a proxy sends them to one server', async () => {
  const asked = serve([piece('Hello', 'stop'), '[DONE]']);
  await write({ text: '' }, {}, () => {});
  await write({ text: '' }, {}, () => {});
  const [one, other] = asked.map(({ headers }) => headers['x-quire-route']);
  assert.match(one, /^page-[a-z0-9]{5,}$/);
  assert.equal(one, other);
});

test('an answer belongs to the pool of the server that wrote it', async () => {
  const empty = { model: 'm', context: 64, block_size: 16, arena_bytes: 64, slabs: 1, groups: [], states: null, sequences: [], stats: {} };
  const answers = [];
  const known = () => answers.map((answer) => pool.keyOfAnswer(answer));
  const writeOne = async () => {
    serve([piece('Hello', 'stop'), '[DONE]']);
    await write(answers[answers.push({ text: '' }) - 1], {}, () => {});
  };
  pool.takeWhole(empty);
  await writeOne();
  assert.deepEqual(known(), ['12.0']);
  pool.takeWhole(empty);
  assert.deepEqual(known(), ['12.0'], 'the same server sends its pool again');
  pool.disconnect();
  assert.deepEqual(known(), [null]);
  await writeOne();
  assert.deepEqual(known(), [null, null], 'no server is followed');
  pool.disconnect();
  pool.takeWhole(empty);
  assert.deepEqual(known(), [null, '12.0'], 'a server that was started anew has given the number once more');
  assert.equal(pool.keyOfAnswer({ request: 12 }), null, 'an answer that was kept');
});

test('a stopped answer keeps its text', async () => {
  serve([piece('Once')], { end: false });
  const answer = { text: '' };
  await write(answer, {}, () => { if (answer.text) stopAll(); });
  assert.equal(answer.text, 'Once');
  assert.equal(answer.finish, 'stopped');
  assert.equal(answer.error, null);
});

test('errors become messages and are never thrown', async () => {
  const errorOf = async () => { const answer = { text: '' }; await write(answer, {}, () => {}); return answer.error; };
  serve([piece('Once')]);
  assert.equal(await errorOf(), 'The connection broke before the answer was complete.');
  serve(['{"error": {"message": "The pool is full."}}']);
  assert.equal(await errorOf(), 'The pool is full.');
  globalThis.fetch = async () => new Response('{"error": {"message": "the context is too short"}}', { status: 400 });
  assert.equal(await errorOf(), 'The context is too short');
  globalThis.fetch = async () => new Response('<html>', { status: 429 });
  assert.equal(await errorOf(), 'The server is busy. Try again in a moment.');
  globalThis.fetch = async () => new Response('', { status: 502 });
  assert.equal(await errorOf(), 'The server answered with status 502.');
  globalThis.fetch = async () => { throw new TypeError('fetch failed'); };
  assert.equal(await errorOf(), 'The server cannot be reached. Is it still running?');
  assert.equal(running.stoppers.size, 0);
});

test('reasoning, calls in pieces and probabilities are taken from the stream', () => {
  const answer = { text: '' };
  const delta = (fields, logprobs = null) => takeEvent(answer, JSON.stringify({ choices: [{ index: 0, delta: fields, logprobs, finish_reason: null }] }));
  delta({ reasoning_content: 'Let me ' });
  delta({ reasoning_content: 'think.' });
  delta({ tool_calls: [{ index: 0, id: 'c1', type: 'function', function: { name: 'weather', arguments: '' } }] });
  delta({ tool_calls: [{ index: 0, function: { arguments: '{"city":' } }, { index: 1, id: 'c2', function: { name: 'time', arguments: '{}' } }] });
  delta({ tool_calls: [{ index: 0, function: { arguments: '"Rome"}' } }] });
  delta({ content: 'Hi' }, { content: [{ token: 'Hi', logprob: -0.123456, bytes: [72], top_logprobs: [{ token: 'Hi', logprob: -0.123456 }, { token: 'Yo', logprob: null }] }] });
  assert.equal(answer.reasoning, 'Let me think.');
  assert.deepEqual(answer.calls, [{ id: 'c1', name: 'weather', arguments: '{"city":"Rome"}' }, { id: 'c2', name: 'time', arguments: '{}' }]);
  assert.deepEqual(answer.tokens, [['Hi', -0.1235, [['Hi', -0.1235], ['Yo', -9999]]]]);
  assert.equal(answer.text, 'Hi');
});

test('a request that needs a key is sent again when there is one; stopping ends the wait', async () => {
  const form = { hidden: true, focus() {}, value: '' };
  globalThis.document = { getElementById: () => form };
  try {
    const bodies = [];
    let allowed = false;
    globalThis.fetch = async (path, { body, headers }) => {
      bodies.push({ body, key: headers.authorization });
      if (!allowed) return new Response('', { status: 401 });
      return new Response(`data: ${piece('Hello', 'stop')}\n\ndata: [DONE]\n\n`, { status: 200 });
    };
    startKeyForm();
    const answer = { text: '' };
    const written = write(answer, { messages: ['what was typed'] }, () => {});
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.match(answer.error, /^The server needs an API key\. What you wrote is sent when/);
    assert.equal(form.hidden, false, 'the page asks');
    assert.equal(running.stoppers.size, 1);
    allowed = true;
    form.value = 'secret';
    form.onsubmit({ preventDefault() {} });
    await written;
    assert.equal(answer.text, 'Hello');
    assert.equal(answer.error, null);
    assert.equal(bodies[1].body, bodies[0].body);
    assert.equal(bodies[1].key, 'Bearer secret');
    allowed = false;
    const stopped = { text: '' };
    const waiting = write(stopped, {}, () => {});
    await new Promise((resolve) => setTimeout(resolve, 20));
    stopAll();
    await waiting;
    assert.equal(stopped.finish, 'stopped');
    assert.equal(running.stoppers.size, 0);
  } finally {
    delete globalThis.document;
  }
});

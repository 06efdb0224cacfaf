// Every feature of the API through the openai package: the same cases for each of its versions (see api.test.js).
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Server, models, notes, sleep, until } from './lib.js';

const story = [{ role: 'user', content: 'Tell me a story about a brave fox named Ruby.' }];
const code = [{ role: 'user', content: 'Remember these notes. The code of Mia is 4821. The red box holds a blue kite.' },
  { role: 'assistant', content: 'I will remember them.' }, { role: 'user', content: 'What is the code of Mia?' }];

async function gather(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}
const textOf = (chunks, index = 0) => chunks.flatMap((chunk) => chunk.choices).filter((choice) => choice.index === index)
  .map((choice) => choice.delta?.content ?? choice.text ?? '').join('');

async function refused(promise, status, pattern) {
  const error = await promise.then(() => null, (error) => error);
  assert.ok(error, 'was not refused');
  assert.equal(error.status, status, error.message);
  assert.match(error.message, pattern);
  return error;
}

// A copy of the model with another chat template. It has the length of the old one, a multiple of the file's alignment
// (32), so that nothing after it has to move.
function withTemplate(template) {
  const bytes = fs.readFileSync(models.llama);
  const key = Buffer.from('tokenizer.chat_template');
  const at = bytes.indexOf(key) + key.length + 4;
  const length = Number(bytes.readBigUInt64LE(at));
  const most = length + 32 * Math.ceil(Math.max(0, template.length + 4 - length) / 32);
  const padded = Buffer.from(`${template}{#${' '.repeat(most - template.length - 4)}#}`);
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(padded.length));
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'quire-tools-')), 'tools.gguf');
  fs.writeFileSync(file, Buffer.concat([bytes.subarray(0, at), size, padded, bytes.subarray(at + 8 + length)]));
  return file;
}

// Registers the cases for this package's client. Call it inside describe().
export function apiCases(OpenAI) {
  let server, client, model;
  before(async () => {
    server = await Server.start('-m', models.llama);
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    model = (await client.models.list()).data[0].id;
  });
  after(() => server?.stop());

  test('the models', async () => {
    const list = await client.models.list();
    assert.equal(list.object, 'list');
    assert.equal(list.data.length, 1);
    const one = await client.models.retrieve(list.data[0].id);
    assert.equal(one.id, list.data[0].id);
    assert.equal(one.object, 'model');
  });

  test('a chat answers, and says what it used', async () => {
    const answer = await client.chat.completions.create({ model, messages: code, temperature: 0 });
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.choices.length, 1);
    assert.equal(answer.choices[0].message.role, 'assistant');
    assert.equal(answer.choices[0].message.content, '4821');
    assert.equal(answer.choices[0].finish_reason, 'stop');
    const { usage } = answer;
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    assert.ok(usage.prompt_tokens > 30 && usage.completion_tokens >= 4);
    assert.equal(typeof usage.prompt_tokens_details.cached_tokens, 'number');
    assert.equal(typeof usage.prompt_tokens_details.miss_reason, 'string');
    assert.equal(typeof usage.quire.first_token_ms, 'number');
  });

  test('streamed, the answer is the same', async () => {
    const asked = { model, messages: story, temperature: 0.8, seed: 7, max_tokens: 60 };
    const whole = await client.chat.completions.create(asked);
    const chunks = await gather(await client.chat.completions.create({ ...asked, stream: true }));
    assert.equal(textOf(chunks), whole.choices[0].message.content);
    assert.equal(chunks[0].object, 'chat.completion.chunk');
    assert.equal(chunks[0].choices[0].delta.role, 'assistant');
    assert.equal(chunks.at(-1).choices[0].finish_reason, whole.choices[0].finish_reason);
    assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
    assert.ok(chunks.length > 20, 'it comes in pieces');
    assert.ok(chunks.every((chunk) => !chunk.usage), 'no usage unless asked for');
  });

  test('stream_options.include_usage: one more chunk, with the usage and no choices', async () => {
    const chunks = await gather(await client.chat.completions.create({ model, messages: code, temperature: 0, stream: true, stream_options: { include_usage: true } }));
    assert.equal(chunks.at(-1).choices.length, 0);
    assert.equal(chunks.at(-1).usage.total_tokens, chunks.at(-1).usage.prompt_tokens + chunks.at(-1).usage.completion_tokens);
  });

  test('completions continue a text', async () => {
    const asked = { model, prompt: 'Once upon a', temperature: 0, max_tokens: 8 };
    const whole = await client.completions.create(asked);
    assert.equal(whole.object, 'text_completion');
    assert.match(whole.choices[0].text, /^ time/);
    assert.equal(whole.choices[0].finish_reason, 'length');
    assert.equal(whole.usage.completion_tokens, 8);
    const chunks = await gather(await client.completions.create({ ...asked, stream: true }));
    assert.equal(textOf(chunks), whole.choices[0].text);
  });

  test('a prompt is a text, several texts, token ids or several lists of them', async () => {
    const ids = async (text) => (await server.post('/tokenize', { content: text, text, prompt: text })).json().tokens;
    const [first, second] = [await ids('Once upon a'), await ids('The red box holds')];
    const asked = { model, temperature: 0, max_tokens: 6 };
    const texts = await client.completions.create({ ...asked, prompt: ['Once upon a', 'The red box holds'] });
    assert.deepEqual(texts.choices.map((choice) => choice.index), [0, 1]);
    const alone = await client.completions.create({ ...asked, prompt: 'The red box holds' });
    assert.equal(texts.choices[1].text, alone.choices[0].text);
    const byIds = await client.completions.create({ ...asked, prompt: first });
    assert.equal(byIds.choices[0].text, texts.choices[0].text);
    const lists = await client.completions.create({ ...asked, prompt: [first, second] });
    assert.deepEqual(lists.choices.map((choice) => choice.text), texts.choices.map((choice) => choice.text));
    const echoed = await client.completions.create({ ...asked, prompt: 'Once upon a', echo: true });
    assert.ok(echoed.choices[0].text.startsWith('Once upon a'));
  });

  test('n choices: each is the answer of a request of its own with the next seed', async () => {
    const asked = { model, messages: story, temperature: 1, max_tokens: 24 };
    const three = await client.chat.completions.create({ ...asked, n: 3, seed: 40 });
    assert.deepEqual(three.choices.map((choice) => choice.index), [0, 1, 2]);
    for (const i of [0, 1, 2]) {
      const alone = await client.chat.completions.create({ ...asked, seed: 40 + i });
      assert.equal(three.choices[i].message.content, alone.choices[0].message.content);
    }
    const chunks = await gather(await client.chat.completions.create({ ...asked, n: 3, seed: 40, stream: true }));
    for (const i of [0, 1, 2]) assert.equal(textOf(chunks, i), three.choices[i].message.content);
  });

  test('a seed gives the same answer again, another seed another one', async () => {
    const ask = (seed) => client.chat.completions.create({ model, messages: story, temperature: 1, max_tokens: 40, seed });
    const [a, b, c] = [await ask(5), await ask(5), await ask(6)];
    assert.equal(a.choices[0].message.content, b.choices[0].message.content);
    assert.notEqual(a.choices[0].message.content, c.choices[0].message.content);
  });

  test('stop: a string or several; the answer ends before it', async () => {
    const asked = { model, messages: story, temperature: 0, max_tokens: 200 };
    const whole = (await client.chat.completions.create(asked)).choices[0].message.content;
    const dot = await client.chat.completions.create({ ...asked, stop: '.' });
    assert.equal(dot.choices[0].message.content, whole.slice(0, whole.indexOf('.')));
    assert.equal(dot.choices[0].finish_reason, 'stop');
    const words = whole.split(' ');
    const middle = words.slice(8, 11).join(' ');
    const several = await client.chat.completions.create({ ...asked, stop: ['never written here', middle] });
    assert.equal(several.choices[0].message.content, whole.slice(0, whole.indexOf(middle)));
    const chunks = await gather(await client.chat.completions.create({ ...asked, stop: [middle], stream: true }));
    assert.equal(textOf(chunks), whole.slice(0, whole.indexOf(middle)), 'nothing of it is streamed');
  });

  test('logprobs and top_logprobs in chats', async () => {
    const answer = await client.chat.completions.create({ model, messages: code, temperature: 0, logprobs: true, top_logprobs: 3 });
    const { content } = answer.choices[0].logprobs;
    assert.equal(content.filter((token) => token.token !== '<|im_end|>').map((token) => token.token).join(''), '4821');
    for (const token of content) {
      assert.ok(token.logprob <= 0);
      assert.equal(token.top_logprobs.length, 3);
      assert.ok(token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob);
      assert.deepEqual(Buffer.from(token.bytes).toString('utf8'), token.token);
    }
    assert.equal(content[0].top_logprobs[0].token, content[0].token, 'temperature 0 takes the most likely token');
    const none = await client.chat.completions.create({ model, messages: code, temperature: 0 });
    assert.equal(none.choices[0].logprobs ?? null, null);
    const chunks = await gather(await client.chat.completions.create({ model, messages: code, temperature: 0, logprobs: true, stream: true }));
    const streamed = chunks.flatMap((chunk) => chunk.choices.flatMap((choice) => choice.logprobs?.content ?? []));
    assert.deepEqual(streamed.map((token) => token.logprob), content.map((token) => token.logprob));
  });

  test('logprobs in completions', async () => {
    const answer = await client.completions.create({ model, prompt: 'Once upon a', temperature: 0, max_tokens: 4, logprobs: 2 });
    const { logprobs, text } = answer.choices[0];
    assert.equal(logprobs.tokens.join(''), text);
    assert.equal(logprobs.token_logprobs.length, 4);
    assert.equal(logprobs.text_offset.length, 4);
    for (const top of logprobs.top_logprobs) assert.ok(Object.keys(top).length >= 2);
  });

  test('logit_bias forbids a token, and forces one', async () => {
    const [time] = (await server.post('/tokenize', { content: ' time', text: ' time', prompt: ' time' })).json().tokens;
    const asked = { model, prompt: 'Once upon a', temperature: 0, max_tokens: 3 };
    const without = await client.completions.create({ ...asked, logit_bias: { [time]: -100 } });
    assert.doesNotMatch(without.choices[0].text, / time/);
    const only = await client.completions.create({ ...asked, logit_bias: { [time]: 100 } });
    assert.equal(only.choices[0].text, ' time time time');
  });

  test('penalties reduce repetition', async () => {
    const asked = { model, prompt: 'Say: red red red red red red red red', temperature: 0, max_tokens: 40, ignore_eos: true };
    const plain = (await client.completions.create(asked)).choices[0].text;
    const frequency = (await client.completions.create({ ...asked, frequency_penalty: 2 })).choices[0].text;
    const presence = (await client.completions.create({ ...asked, presence_penalty: 2 })).choices[0].text;
    assert.notEqual(plain, frequency);
    assert.notEqual(plain, presence);
    const kinds = (text) => new Set(text.split(/\s+/)).size;
    assert.ok(kinds(frequency) >= kinds(plain), 'more different words');
  });

  test('max_tokens, and max_completion_tokens as newer clients call it', async () => {
    for (const limit of [{ max_tokens: 5 }, { max_completion_tokens: 5 }]) {
      const answer = await client.chat.completions.create({ model, messages: story, temperature: 0, ...limit });
      assert.equal(answer.usage.completion_tokens, 5);
      assert.equal(answer.choices[0].finish_reason, 'length');
    }
  });

  test('ignore_eos generates up to the limit', async () => {
    const answer = await client.chat.completions.create({ model, messages: code, temperature: 0, max_tokens: 50, ignore_eos: true });
    assert.equal(answer.usage.completion_tokens, 50);
    assert.equal(answer.choices[0].finish_reason, 'length');
  });

  test('a repeated prompt is reused, and the answer says how much and why no more', async () => {
    const asked = { model, prompt: `${notes(30, 3)} The code of`, temperature: 0, max_tokens: 4 };
    const first = await client.completions.create(asked);
    const again = await client.completions.create(asked);
    assert.equal(first.usage.prompt_tokens_details.cached_tokens, 0);
    assert.equal(first.usage.prompt_tokens_details.miss_reason, 'never seen');
    const details = again.usage.prompt_tokens_details;
    assert.ok(details.cached_tokens >= again.usage.prompt_tokens - 16, `${details.cached_tokens} of ${again.usage.prompt_tokens}`);
    assert.ok(details.cached_tokens < again.usage.prompt_tokens, 'the last token is always computed');
    assert.equal(again.choices[0].text, first.choices[0].text);
    const off = await client.completions.create({ ...asked, cache_prompt: false });
    assert.equal(off.usage.prompt_tokens_details.cached_tokens, 0);
    assert.equal(off.choices[0].text, first.choices[0].text);
  });

  test('tools reach the template', async () => {
    const file = withTemplate("{% for t in tools or [] %}{{ t.function.name }}: {{ t.function.description }}\n{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    const other = await Server.start('-m', file);
    try {
      const tools = [{ type: 'function', function: { name: 'weather', description: 'The weather in a town', parameters: { type: 'object', properties: { town: { type: 'string' } } } } }];
      const talk = new OpenAI({ baseURL: `${other.url}/v1`, apiKey: 'none', maxRetries: 0 });
      const asked = { model: (await talk.models.list()).data[0].id, messages: story, max_tokens: 1 };
      const length = async (more) => (await talk.chat.completions.create({ ...asked, ...more })).usage.prompt_tokens;
      const { tokens } = (await other.post('/tokenize', { content: 'weather: The weather in a town\n' })).json();
      assert.equal(await length({ tools }) - await length({}), tokens.length);
      assert.equal(await length({ tools, tool_choice: 'none' }), await length({}));
      await refused(talk.chat.completions.create({ ...asked, tools: 'weather' }), 400, /tools/);
    } finally {
      await other.stop();
      fs.rmSync(path.dirname(file), { recursive: true });
    }
  });

  test('what clients send anyway is taken, what would change the answer is refused by name', async () => {
    const asked = { model, messages: story, temperature: 0, max_tokens: 8 };
    const plain = (await client.chat.completions.create(asked)).choices[0].message.content;
    // As llama.cpp's page, vLLM's and OpenAI's own clients send them.
    const neutral = { mirostat: 0, mirostat_tau: 5, typical_p: 1, tfs_z: 1.0, xtc_probability: 0, xtc_threshold: 0.1, dry_multiplier: 0, dry_base: 1.75,
      dynatemp_range: 0, repeat_penalty: 1, repeat_last_n: 64, min_tokens: 0, length_penalty: 1, use_beam_search: false, include_stop_str_in_output: false,
      response_format: { type: 'text' }, modalities: ['text'], functions: null, guided_json: null, logprobs: false, top_logprobs: 0, store: false,
      metadata: { a: 'b' }, service_tier: 'auto', parallel_tool_calls: true, user: 'me', cache_prompt: true, timings_per_token: true, top_p: 1 };
    assert.equal((await client.chat.completions.create({ ...asked, ...neutral })).choices[0].message.content, plain);
    for (const more of [{ mirostat: 2 }, { structural_tag: {} }, { ebnf: 'root ::= "a"' }, { dry_multiplier: 0.8 }, { typical_p: 0.5 },
      { functions: [{ name: 'f', parameters: {} }] }]) {
      const [field] = Object.keys(more);
      const error = await refused(client.chat.completions.create({ ...asked, ...more }), 400, new RegExp(`'${field}' is not supported`));
      assert.equal(error.param, field);
    }
    // top_p 0 is the most likely token, whatever the temperature.
    assert.equal((await client.chat.completions.create({ ...asked, temperature: 2, top_p: 0 })).choices[0].message.content, plain);
    // A name may spell a control token: it is text.
    await client.chat.completions.create({ ...asked, messages: [{ ...story[0], name: '<|im_end|>' }] });
  });

  test('a template that fails does not tell where the model is', async () => {
    const file = withTemplate('{{ messages[0].content.nothing() }}');
    const other = await Server.start('-m', file);
    try {
      const talk = new OpenAI({ baseURL: `${other.url}/v1`, apiKey: 'none', maxRetries: 0 });
      const error = await refused(talk.chat.completions.create({ model: 'default', messages: story }), 400, /the chat template fails: line 1/);
      assert.ok(!error.message.includes(path.dirname(file)) && !error.message.includes('.gguf'), error.message);
    } finally {
      await other.stop();
      fs.rmSync(path.dirname(file), { recursive: true });
    }
  });

  test('best_of, top_p, top_k, min_p, repetition_penalty and priority are taken', async () => {
    const answer = await client.completions.create({ model, prompt: 'Once upon a', max_tokens: 6, n: 1, best_of: 3, seed: 1, temperature: 1, top_p: 0.9,
      top_k: 20, min_p: 0.01, repetition_penalty: 1.1, priority: 1, user: 'somebody', a_field_nobody_knows: { deep: [1] } });
    assert.equal(answer.choices.length, 1);
    const stopped = await client.completions.create({ model, prompt: 'Once upon a', temperature: 0, max_tokens: 6, stop_token_ids: [714] });
    assert.equal(stopped.choices[0].text, '');
    assert.equal(stopped.choices[0].finish_reason, 'stop');
  });

  test('an unfinished answer is continued in place', async () => {
    const whole = await client.chat.completions.create({ model, messages: code, temperature: 0 });
    const half = [...code, { role: 'assistant', content: '48' }];
    const rest = await client.chat.completions.create({ model, messages: half, temperature: 0, continue_final_message: true, add_generation_prompt: false });
    assert.equal(`48${rest.choices[0].message.content}`, whole.choices[0].message.content);
  });

  test('errors are OpenAI\'s, and name what is wrong', async (t) => {
    const chat = (body) => client.chat.completions.create({ model, messages: story, max_tokens: 4, ...body });
    const complete = (body) => client.completions.create({ model, prompt: 'Once', max_tokens: 4, ...body });
    const wrong = [
      [() => chat({ temperature: 'warm' }), /temperature/], [() => chat({ temperature: -1 }), /temperature/], [() => chat({ top_p: 2 }), /top_p/],
      [() => chat({ n: 0 }), /\bn\b/], [() => chat({ n: 1e6 }), /\bn\b/], [() => chat({ max_tokens: -5 }), /max_tokens/], [() => chat({ max_tokens: 1.5 }), /max_tokens/],
      [() => chat({ stop: 7 }), /stop/], [() => chat({ stop: [''] }), /stop/], [() => chat({ seed: 'x' }), /seed/], [() => chat({ messages: 'hi' }), /messages/],
      [() => chat({ messages: [] }), /messages/], [() => chat({ messages: [{ role: 'user' }] }), /content/], [() => chat({ messages: [{ content: 'x' }] }), /role/],
      [() => chat({ stream: 'yes' }), /stream/], [() => chat({ logit_bias: { x: 1 } }), /logit_bias/], [() => chat({ logit_bias: { 99999999: 1 } }), /logit_bias/],
      [() => chat({ top_logprobs: 3 }), /logprobs/], [() => chat({ logprobs: true, top_logprobs: 1000 }), /logprobs/], [() => complete({ prompt: { a: 1 } }), /prompt/],
      [() => complete({ prompt: [99999999] }), /prompt|token/], [() => complete({ prompt: [1.5] }), /prompt/], [() => complete({ best_of: 1, n: 2 }), /best_of/],
    ];
    for (const [ask, pattern] of wrong) {
      await t.test(String(pattern) + String(ask).slice(5), async () => {
        const error = await refused(ask(), 400, pattern);
        assert.equal(error.type, 'invalid_request_error');
      });
    }
    await t.test('too long for the context', async () => {
      const error = await refused(complete({ prompt: notes(600) }), 400, /context/);
      assert.equal(error.code, 'context_length_exceeded');
    });
    await t.test('no such address, no such method', async () => {
      await refused(client.moderations.create({ model, input: 'x' }), 404, /./);
      assert.equal((await server.get('/v1/chat/completions')).status, 405);
      assert.equal((await server.get('/nothing')).status, 404);
      assert.equal(typeof (await server.get('/nothing')).json().error.message, 'string');
    });
    await t.test('no such model', async () => {
      await refused(client.models.retrieve('gpt-none'), 404, /gpt-none/);
      const error = await refused(chat({ model: 'gpt-none' }), 404, /gpt-none/);
      assert.equal(error.code, 'model_not_found');
    });
  });

  test('ten clients at once get what each gets alone', async () => {
    const ask = (i) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 }).chat.completions.create({
      model, messages: [{ role: 'user', content: `Tell me a story about ${['Mia', 'Tom', 'Zoe', 'Max', 'Ivy'][i % 5]}.` }], temperature: 0.9, seed: i, max_tokens: 60 });
    const alone = [];
    for (let i = 0; i < 10; ++i) alone.push((await ask(i)).choices[0].message.content);
    const together = await Promise.all(alone.map((_, i) => ask(i)));
    assert.deepEqual(together.map((answer) => answer.choices[0].message.content), alone);
  });

  test('a stream that is aborted ends the request at once', async () => {
    const stream = await client.chat.completions.create({ model, messages: story, stream: true, max_tokens: 1500, ignore_eos: true });
    let seen = 0;
    for await (const _ of stream) if (++seen === 5) break;  // breaking off aborts
    await until('the request is gone', async () => (await server.pool()).sequences.length === 0, 2000);
    const controller = new AbortController();
    const other = await client.chat.completions.create({ model, messages: story, stream: true, max_tokens: 1500, ignore_eos: true }, { signal: controller.signal });
    setTimeout(() => controller.abort(), 100);
    await assert.rejects(async () => { for await (const _ of other) /* until aborted */; if (controller.signal.aborted) throw new Error('aborted'); });
    await until('the request is gone', async () => (await server.pool()).sequences.length === 0, 2000);
    await server.comesToRest();
  });

  test('detokenize is the inverse of tokenize', async () => {
    const text = 'Once upon a time, ½ a kite 🪁.';
    const { tokens } = (await server.post('/tokenize', { content: text, text, prompt: text })).json();
    assert.ok(tokens.length > 5);
    const back = (await server.post('/detokenize', { tokens })).json();
    assert.equal(back.content ?? back.text ?? back.prompt, text);
  });

  test('health, metrics, the pool and its events', async () => {
    assert.equal((await server.get('/health')).status, 200);
    const metrics = await server.get('/metrics');
    assert.match(metrics.headers['content-type'], /text\/plain/);
    for (const word of ['pages', 'held', 'cached', 'queue', 'first_token', 'pool_sound', 'evict', 'suspen']) assert.match(metrics.text, new RegExp(word), word);
    for (const line of metrics.text.trim().split('\n')) assert.match(line, /^(#.*|[a-z_:][a-z0-9_:]*(\{[^}]*\})? [-+0-9.eInfNa]+)$/i);
    const pool = await server.pool();
    const [group] = pool.groups;
    assert.equal(group.free + group.held + group.cached, group.total);
    assert.equal(group.pages.filter(([, , state]) => state === 'cached').length, group.cached);
    const response = await fetch(`${server.url}/pool/events`);
    assert.match(response.headers.get('content-type'), /text\/event-stream/);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let seen = '';
    await until('the whole', async () => { seen += (await reader.read()).value; return /^event: pool\ndata: .*\n\n/.test(seen); });
    client.completions.create({ model, prompt: notes(10, 9), max_tokens: 30, ignore_eos: true }).catch(() => {});
    await until('a change', async () => { seen += (await reader.read()).value; return /event: change\n/.test(seen) && /page_taken/.test(seen); });
    assert.match(seen, /^event: pool\ndata: \{/);
    await reader.cancel();
    await sleep(10);
  });

  test('every answer names its request', async () => {
    const { response } = await client.completions.create({ model, prompt: 'Once', max_tokens: 2 }).withResponse();
    assert.match(response.headers.get('x-request-id'), /^\d+$/);
  });
}

// The other shapes of the API through real clients: embeddings and responses with the openai package, messages with
// Anthropic's. Streams and whole answers, tools in a loop, and ten clients at once.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Server, missingNode, models } from './lib.js';
import { scriptedModel } from './scripted_model.js';

const answers = scriptedModel({
  '<|call|>': 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>',
  '<|think|>': '<think>Hmm; it is warm there, surely\n\t</think>\n\nIt will be warm!',
  '<|result|>': 'It is sunny in Rome, 24 degrees.',
}, "{% for t in tools or [] %}{{ t|tojson }}\n{% endfor %}{% for m in messages %}[{{ m.role }}]{% if "
  + "m.tool_calls %}{% for c in m.tool_calls %}<tool_call>\n{{ '{\"name\": \"' + c.function.name + '\", \"arguments\": ' + "
  + "c.function.arguments|tojson + '}' }}\n</tool_call>\n{% endfor %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}{% if "
  + "add_generation_prompt %}{% set last = messages[-1] %}{% if last.role == 'tool' %}<|result|>{% elif "
  + "last.content.startswith('think') %}<|think|>{% else %}<|call|>{% endif %}{% endif %}{% if enable_thinking is false %}<think>\n\n</think>{% endif %}");
const parameters = { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } }, required: ['city'] };
const called = { city: 'Rome', days: 3 };

let demo, scripted;

function openaiCases(OpenAI) {
  const client = (server) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });

  test('embeddings: the package asks for base64 and gets the same floats', async () => {
    const input = ['Once upon a time', 'The cat sat.'];
    const coded = await client(demo).embeddings.create({ model: 'default', input });
    const plain = await client(demo).embeddings.create({ model: 'default', input, encoding_format: 'float' });
    assert.equal(plain.data.length, 2);
    for (const i of [0, 1]) {
      assert.deepEqual(Array.from(coded.data[i].embedding), plain.data[i].embedding.map((x) => Math.fround(x)));
      const length = Math.hypot(...plain.data[i].embedding);
      assert.ok(Math.abs(length - 1) < 1e-5, `${length}`);
    }
    const few = await client(demo).embeddings.create({ model: 'default', input: input[0], dimensions: 8, encoding_format: 'float' });
    assert.equal(few.data[0].embedding.length, 8);
    assert.ok(few.usage.total_tokens > 0);
  });

  test('responses: a conversation that the server keeps', async () => {
    const first = await client(demo).responses.create({ model: 'default', input: 'What is 2 + 3?', temperature: 0 });
    assert.equal(first.output_text, '5');
    assert.equal(first.status, 'completed');
    const second = await client(demo).responses.create({ model: 'default', input: 'What is a quire?', temperature: 0, previous_response_id: first.id });
    assert.match(second.output_text, /quire/);
    assert.ok(second.usage.input_tokens > first.usage.input_tokens);
    const again = await client(demo).responses.retrieve(second.id);
    assert.equal(again.output[0].content[0].text, second.output_text);
    const items = await client(demo).responses.inputItems.list(second.id);
    assert.equal(items.data[0].content[0].text, 'What is a quire?');
    const { responses } = client(demo);
    await (responses.delete ?? responses.del).call(responses, first.id);  // version 4 has the shorter name
    await assert.rejects(client(demo).responses.retrieve(first.id), (error) => error.status === 404);
  });

  test('responses: a stream', async () => {
    const stream = await client(demo).responses.create({ model: 'default', input: 'What is a quire?', temperature: 0, stream: true });
    let text = '', last = null, number = 0;
    for await (const event of stream) {
      assert.equal(event.sequence_number, number++);
      if (event.type === 'response.output_text.delta') text += event.delta;
      last = event;
    }
    assert.equal(last.type, 'response.completed');
    assert.equal(last.response.output[0].content[0].text, text);
    assert.match(text, /quire/);
  });

  test('responses: a tool in a loop', async () => {
    const tools = [{ type: 'function', name: 'get_weather', parameters, strict: false }];
    const input = [{ role: 'user', content: 'weather?' }];
    const first = await client(scripted).responses.create({ model: 'any', input, tools });
    const call = first.output.find((item) => item.type === 'function_call');
    assert.deepEqual(JSON.parse(call.arguments), called);
    input.push(...first.output, { type: 'function_call_output', call_id: call.call_id, output: 'sunny' });
    const second = await client(scripted).responses.create({ model: 'any', input, tools });
    assert.equal(second.output_text, 'It is sunny in Rome, 24 degrees.');
  });
}

function anthropicCases(Anthropic) {
  const client = (server) => new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
  const tools = [{ name: 'get_weather', description: 'Weather', input_schema: parameters }];

  test('messages: whole and as a stream', async () => {
    const ask = { model: 'default', max_tokens: 100, temperature: 0, system: 'Be brief.', messages: [{ role: 'user', content: 'What is a quire?' }] };
    const whole = await client(demo).messages.create(ask);
    assert.equal(whole.role, 'assistant');
    assert.equal(whole.stop_reason, 'end_turn');
    const pieces = [];
    const stream = client(demo).messages.stream(ask).on('text', (text) => pieces.push(text));
    const last = await stream.finalMessage();
    assert.equal(pieces.join(''), whole.content[0].text);
    assert.deepEqual(last.content.map((block) => block.text), whole.content.map((block) => block.text));
    assert.equal(last.usage.output_tokens, whole.usage.output_tokens);
    const counted = await client(demo).messages.countTokens({ model: 'default', system: ask.system, messages: ask.messages });
    assert.equal(counted.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
  });

  test('messages: a tool in a loop, and thinking', async () => {
    for (const streamed of [false, true]) {
      const ask = async (messages) => {
        const body = { model: 'claude-any', max_tokens: 200, messages, tools };
        return streamed ? client(scripted).messages.stream(body).finalMessage() : client(scripted).messages.create(body);
      };
      const messages = [{ role: 'user', content: 'weather?' }];
      const first = await ask(messages);
      assert.equal(first.stop_reason, 'tool_use');
      const use = first.content.find((block) => block.type === 'tool_use');
      assert.deepEqual(use.input, called);
      messages.push({ role: 'assistant', content: first.content });
      messages.push({ role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'sunny' }] });
      const second = await ask(messages);
      assert.equal(second.content[0].text, 'It is sunny in Rome, 24 degrees.');
      const thought = await ask([{ role: 'user', content: 'think!' }]);
      assert.deepEqual(thought.content.map((block) => block.type), ['thinking', 'text']);
      assert.equal(thought.content[1].text, 'It will be warm!');
    }
  });

  test('messages: errors are the package\'s own', async () => {
    const error = await client(demo).messages.create({ model: 'claude-any', max_tokens: 5, messages: [{ role: 'user', content: 'x' }] })
      .then(() => null, (failed) => failed);
    assert.ok(error instanceof Anthropic.NotFoundError, `${error}`);
    assert.equal(error.error.error.type, 'not_found_error');
    await assert.rejects(client(demo).messages.create({ model: 'default', max_tokens: 5, messages: [] }), Anthropic.BadRequestError);
  });
}

function ten() {
    test('ten clients of three shapes at once get the answers that they get alone', async () => {
    const clientOf = (wanted) => packages.find(({ name }) => name === wanted).Client;
    const OpenAI = clientOf('openai-6'), Anthropic = clientOf('@anthropic-ai/sdk');
    const openai = new OpenAI({ baseURL: `${demo.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const anthropic = new Anthropic({ baseURL: demo.url, apiKey: 'none', maxRetries: 0 });
    const ask = async (i) => {
      const content = `Tell me a story about a brave fox named Ruby and the number ${i}.`;
      const common = { model: 'default', temperature: 0 };
      if (i % 5 === 0) return (await openai.chat.completions.create({ ...common, max_tokens: 60, messages: [{ role: 'user', content }] })).choices[0].message.content;
      if (i % 5 === 1) return (await openai.responses.create({ ...common, max_output_tokens: 60, input: content })).output_text;
      if (i % 5 === 2) return (await anthropic.messages.create({ ...common, max_tokens: 60, messages: [{ role: 'user', content }] })).content[0].text;
      if (i % 5 === 3) return (await anthropic.messages.stream({ ...common, max_tokens: 60, messages: [{ role: 'user', content }] }).finalMessage()).content[0].text;
      return JSON.stringify((await openai.embeddings.create({ model: 'default', input: content, encoding_format: 'float' })).data[0].embedding);
    };
    const alone = [];
    for (let i = 0; i < 10; i++) alone.push(await ask(i));
    const together = await Promise.all(Array.from({ length: 10 }, (_, i) => ask(i)));
    assert.deepEqual(together, alone);
  });
}

// All packages are there before the first test is registered: what is registered later would run after the servers ended.
const packages = [];
for (const name of ['openai-4', 'openai-6', 'openai', '@anthropic-ai/sdk']) {
  const { version, engines } = JSON.parse(fs.readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
  const missing = missingNode(engines?.node);
  packages.push({ name, version, missing, Client: missing ? null : (await import(name)).default });
}

describe('shapes', () => {
  before(async () => {
    demo = await Server.start('-m', models.llama);
    scripted = await Server.start('-m', answers, '--any-model');
  });
  after(async () => {
    await demo?.stop();
    await scripted?.stop();
  });
  for (const { name, version, missing, Client } of packages) {
    if (missing) test(`${name} ${version}`, { skip: missing }, () => {});
    else describe(`${name} ${version}`, () => (name.startsWith('openai') ? openaiCases : anthropicCases)(Client));
  }
  ten();
});

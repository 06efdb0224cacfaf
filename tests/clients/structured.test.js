// Answers with a shape through the openai package: schemas, `parse`, streams, forced calls of tools, ten clients at once.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { z } from 'zod';
import { Server, missingNode, models } from './lib.js';

const note = z.object({ name: z.string().max(12), age: z.number().int().min(3).max(120), colour: z.enum(['red', 'green', 'dark blue']), flags: z.array(z.boolean()).min(1).max(3) });
const schema = { type: 'object', additionalProperties: false, required: ['name', 'age', 'colour', 'flags'],
  properties: { name: { type: 'string', maxLength: 12 }, age: { type: 'integer', minimum: 3, maximum: 120 }, colour: { enum: ['red', 'green', 'dark blue'] },
    flags: { type: 'array', items: { type: 'boolean' }, minItems: 1, maxItems: 3 } } };
const weather = { type: 'function', function: { name: 'get_weather', parameters: { type: 'object', additionalProperties: false, required: ['city', 'days'],
  properties: { city: { type: 'string', maxLength: 10 }, days: { type: 'integer', minimum: 1, maximum: 9 } } } } };
const messages = [{ role: 'user', content: 'Write about Mia.' }];
const format = { type: 'json_schema', json_schema: { name: 'note', strict: true, schema } };

let server;

function cases(OpenAI, zodResponseFormat) {
  const client = () => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });

  test('every answer fits the schema, streamed and not', async () => {
    for (let seed = 0; seed < 4; ++seed) {
      const whole = await client().chat.completions.create({ model: 'default', messages, seed, response_format: format });
      note.parse(JSON.parse(whole.choices[0].message.content));
      assert.equal(whole.choices[0].finish_reason, 'stop');
      let text = '';
      const stream = await client().chat.completions.create({ model: 'default', messages, seed, response_format: format, stream: true });
      for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? '';
      assert.equal(text, whole.choices[0].message.content);
    }
  });

  test('parse gives an object', async () => {
    const { completions } = client().chat;
    const parse = completions.parse?.bind(completions) ?? ((body) => client().beta.chat.completions.parse(body));  // version 4 has it under beta
    const answer = await parse({ model: 'default', messages, seed: 7, response_format: zodResponseFormat(note, 'note') });
    const parsed = answer.choices[0].message.parsed;
    assert.ok(parsed.age >= 3 && parsed.age <= 120);
    note.parse(parsed);
  });

  test('json_object is an object', async () => {
    const answer = await client().chat.completions.create({ model: 'default', messages, seed: 2, max_tokens: 300, response_format: { type: 'json_object' } });
    if (answer.choices[0].finish_reason === 'stop') assert.equal(typeof JSON.parse(answer.choices[0].message.content), 'object');
    else assert.match(answer.choices[0].message.content, /^\s*\{/);
  });

  test('a tool that is required is called, with arguments that fit', async () => {
    for (const choice of ['required', { type: 'function', function: { name: 'get_weather' } }]) {
      const answer = await client().chat.completions.create({ model: 'default', messages, seed: 3, tools: [weather], tool_choice: choice });
      assert.equal(answer.choices[0].finish_reason, 'tool_calls');
      const { name, arguments: given } = answer.choices[0].message.tool_calls[0].function;
      assert.equal(name, 'get_weather');
      const { city, days } = JSON.parse(given);
      assert.ok(typeof city === 'string' && city.length <= 10);
      assert.ok(Number.isInteger(days) && days >= 1 && days <= 9);
    }
  });

  test('responses take a schema too', async () => {
    const answer = await client().responses.create({ model: 'default', input: 'Write about Mia.', text: { format: { type: 'json_schema', name: 'note', schema, strict: true } } });
    note.parse(JSON.parse(answer.output_text));
  });

  test('what cannot be enforced is refused by its name', async () => {
    const bad = { type: 'json_schema', json_schema: { name: 'n', schema: { type: 'array', uniqueItems: true } } };
    await assert.rejects(client().chat.completions.create({ model: 'default', messages, response_format: bad }),
      (error) => error.status === 400 && /uniqueItems/.test(error.message));
  });

  test('ten at once get the answers that they get alone', async () => {
    const ask = async (seed) => (await client().chat.completions.create({ model: 'default', messages, seed, response_format: format })).choices[0].message.content;
    const alone = [];
    for (let seed = 0; seed < 10; ++seed) alone.push(await ask(seed));
    assert.deepEqual(await Promise.all(alone.map((_, seed) => ask(seed))), alone);
  });
}

// All packages are there before the first test is registered: what is registered later would run after the server ended.
const packages = [];
for (const name of ['openai-4', 'openai-6', 'openai']) {
  const { version, engines } = JSON.parse(fs.readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
  const missing = missingNode(engines?.node);
  packages.push({ name, version, missing, Client: missing ? null : (await import(name)).default, zod: missing ? null : await import(`${name}/helpers/zod`) });
}

describe('structured', () => {
  before(async () => { server = await Server.start('-m', models.llama); });
  after(() => server?.stop());
  for (const { name, version, missing, Client, zod } of packages) {
    if (missing) test(`${name} ${version}`, { skip: missing }, () => {});
    else describe(`${name} ${version}`, () => cases(Client, zod.zodResponseFormat));
  }
});

// Tools in a loop through the openai package, streamed and not, with models that write given calls (scripted_model.js).
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Server, missingNode } from './lib.js';
import { scriptedModel } from './scripted_model.js';

const weather = { type: 'function', function: { name: 'get_weather', description: 'The weather of a city',
  parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } }, required: ['city'] } } };

// The end of the prompt says which script follows: after a question, after a result, and by its first word.
const chatTemplate = (calls) => `{% for t in tools or [] %}{{ t|tojson }}\n{% endfor %}{% for m in messages %}[{{ m.role }}]{% if m.tool_calls %}`
  + `{{ m.content or '' }}${calls}{% else %}{{ m.content }}{% endif %}\n{% endfor %}{% if add_generation_prompt %}{% set last = messages[-1] %}`
  + "{% if last.role == 'tool' %}<|result|>{% elif last.content.startswith('both') %}<|both|>{% elif last.content.startswith('broken') %}<|broken|>"
  + "{% elif last.content.startswith('think') %}<|think|>{% else %}<|ask|>{% endif %}{% endif %}";
const each = '{% for c in m.tool_calls %}{% set f = c.function %}';

// One way to write calls each: how a template writes them, and how the model does. Enforced: what follows the mark of a call is one.
const formats = {
  hermes: {
    enforced: true,
    pieces: true,
    template: `${each}<tool_call>\n{{ '{"name": "' + f.name + '", "arguments": ' + f.arguments|tojson + '}' }}\n</tool_call>\n{% endfor %}`,
    ask: 'I will look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>',
    both: '<tool_call>{"name":"get_weather","arguments":{"city":"Oslo"}}</tool_call>  <tool_call>{ "name" : "get_weather" , "arguments" : { "city" : "Cairo" } }  </tool_call>',
    broken: '<tool_call>  {name: get_weather, city: Rome} </tool_call>, I think',
  },
  'qwen3-coder': {
    enforced: true,
    template: `${each}<tool_call>\n<function={{ f.name }}>\n{% for k, v in f.arguments.items() %}<parameter={{ k }}>\n{{ v }}\n</parameter>\n{% endfor %}</function>\n</tool_call>\n{% endfor %}`,
    ask: 'I will look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>',
    both: '<tool_call><function=get_weather><parameter=city>Oslo</parameter></function></tool_call>  <tool_call> <function=get_weather> <parameter=city>Cairo</parameter> </function>  </tool_call>',
    broken: '<tool_call>  <function get_weather city=Rome> </tool_call>, I think',
  },
  lfm2: {
    template: `<|tool_call_start|>[${each}{{ f.name }}({% for k, v in f.arguments.items() %}{{ k }}={{ v|tojson }}{% if not loop.last %}, {% endif %}{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]<|tool_call_end|>`,
    ask: 'I will look.\n<|tool_call_start|>[get_weather(city="Rome", days=3)]<|tool_call_end|>',
    both: "<|tool_call_start|> [ get_weather(city='Oslo') , get_weather( city = 'Cairo' ) ]  <|tool_call_end|>  ",
    broken: '<|tool_call_start|>  [get_weather(Rome, 3)] <|tool_call_end|>, I think',
  },
};
const result = 'Sunny in Rome: 24 degrees, no clouds at all.';
const thought = '<think>\nIs it warm in Rome? Yes, always!\n</think>\n\nIt will be warm there, be sure.';

async function gather(stream) {
  const out = { content: '', reasoning: '', calls: [], pieces: 0, finish: null };
  for await (const chunk of stream) {
    for (const { delta, finish_reason: finish } of chunk.choices) {
      out.content += delta.content ?? '';
      out.reasoning += delta.reasoning_content ?? '';
      for (const call of delta.tool_calls ?? []) {
        if (call.id) out.calls[call.index] = { id: call.id, type: call.type, function: { name: call.function.name, arguments: '' } };
        out.calls[call.index].function.arguments += call.function.arguments ?? '';
        if (call.function.arguments) ++out.pieces;
      }
      out.finish = finish ?? out.finish;
    }
  }
  return out;
}

function cases(OpenAI, format) {
  let server, client, file;
  const asked = (content, more = {}) => ({ model: 'default', messages: [{ role: 'user', content }], tools: [weather], ...more });
  before(async () => {
    file = scriptedModel({ '<|ask|>': format.ask, '<|both|>': format.both, '<|broken|>': format.broken, '<|think|>': thought, '<|result|>': result },
      `${chatTemplate(format.template)}{% if enable_thinking is false %}<think>\n\n</think>{% endif %}`);
    server = await Server.start('-m', file);
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  after(async () => { await server?.stop(); fs.rmSync(file, { force: true }); });

  test('tools in a loop', async () => {
    const messages = [{ role: 'user', content: 'What is the weather in Rome?' }];
    const ran = [];
    for (let turn = 0; turn < 5; ++turn) {
      const { choices: [choice] } = await client.chat.completions.create({ model: 'default', messages, tools: [weather] });
      messages.push(choice.message);
      if (choice.finish_reason !== 'tool_calls') break;
      for (const call of choice.message.tool_calls) {
        ran.push([call.function.name, JSON.parse(call.function.arguments)]);
        messages.push({ role: 'tool', tool_call_id: call.id, content: '24 degrees' });
      }
    }
    assert.deepEqual(ran, [['get_weather', { city: 'Rome', days: 3 }]]);
    assert.equal(messages[1].content, 'I will look.');
    assert.equal(messages.at(-1).content, result);
  });

  test('tools in a loop, streamed', async () => {
    const messages = [{ role: 'user', content: 'What is the weather in Rome?' }];
    const first = await gather(await client.chat.completions.create({ model: 'default', messages, tools: [weather], stream: true }));
    assert.equal(first.finish, 'tool_calls');
    assert.equal(first.content, 'I will look.');
    if (format.pieces) assert.ok(first.pieces > 3, 'the arguments come while they are written');
    assert.deepEqual(JSON.parse(first.calls[0].function.arguments), { city: 'Rome', days: 3 });
    messages.push({ role: 'assistant', content: first.content, tool_calls: first.calls }, { role: 'tool', tool_call_id: first.calls[0].id, content: '24 degrees' });
    const last = await gather(await client.chat.completions.create({ model: 'default', messages, tools: [weather], stream: true }));
    assert.equal(last.finish, 'stop');
    assert.equal(last.content, result);
  });

  test("the package's own loop", async (t) => {
    const run = client.chat.completions.runTools ?? client.beta?.chat?.completions?.runTools;
    if (!run) return t.skip('this version has none');
    const cities = [];
    const runner = run.call(client.chat.completions.runTools ? client.chat.completions : client.beta.chat.completions, { ...asked('What is the weather?'),
      tools: [{ type: 'function', function: { ...weather.function, parse: JSON.parse, function: ({ city }) => { cities.push(city); return '24 degrees'; } } }] });
    assert.equal(await runner.finalContent(), result);
    assert.deepEqual(cities, ['Rome']);
  });

  test('two calls in one answer, or one if parallel calls are not wanted', async () => {
    for (const parallel of [true, false]) {
      const whole = (await client.chat.completions.create(asked('both', { parallel_tool_calls: parallel }))).choices[0];
      const streamed = await gather(await client.chat.completions.create(asked('both', { parallel_tool_calls: parallel, stream: true })));
      for (const calls of [whole.message.tool_calls, streamed.calls]) {
        assert.deepEqual(calls.map((call) => JSON.parse(call.function.arguments).city), parallel ? ['Oslo', 'Cairo'] : ['Oslo']);
        assert.equal(new Set(calls.map((call) => call.id)).size, calls.length);
      }
      assert.equal(whole.message.content, null);
      assert.equal(whole.finish_reason, 'tool_calls');
      assert.equal(streamed.finish, 'tool_calls');
    }
  });

  test(format.enforced ? 'what begins like a call becomes one' : 'what is no call is content', async () => {
    const whole = (await client.chat.completions.create(asked('broken', { max_tokens: 200 }))).choices[0];
    const streamed = await gather(await client.chat.completions.create(asked('broken', { max_tokens: 200, stream: true })));
    if (format.enforced) {
      // The model would write something else, and writes at random instead: the call may not end within the limit.
      for (const calls of [whole.message.tool_calls ?? [], streamed.calls]) assert.ok(calls.every((call) => call.function.name === 'get_weather'));
      assert.ok(!(whole.message.content ?? '').includes('I think'));
    } else {
      assert.equal(whole.message.content, format.broken);
      assert.equal(whole.finish_reason, 'stop');
      assert.equal(streamed.content, format.broken);
      assert.equal(streamed.calls.length, 0);
    }
    const off = (await client.chat.completions.create(asked('What?', { tool_choice: 'none' }))).choices[0];
    assert.equal(off.message.content, format.ask);
  });

  test('a call that is cut', async () => {
    const { choices: [choice] } = await client.chat.completions.create(asked('both', { max_tokens: Math.floor(format.both.length / 5) }));
    assert.equal(choice.finish_reason, 'length');
    assert.ok(choice.message.tool_calls?.length > 0 || choice.message.content.length > 0);
  });

  test('reasoning is split off', async () => {
    const whole = (await client.chat.completions.create(asked('think'))).choices[0].message;
    const streamed = await gather(await client.chat.completions.create(asked('think', { stream: true })));
    for (const [reasoning, content] of [[whole.reasoning_content, whole.content], [streamed.reasoning, streamed.content]]) {
      assert.equal(reasoning, 'Is it warm in Rome? Yes, always!');
      assert.equal(content, 'It will be warm there, be sure.');
    }
  });
}

for (const name of ['openai-4', 'openai-6', 'openai']) {
  const { version, engines } = JSON.parse(fs.readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
  const missing = missingNode(engines?.node);
  if (missing) {
    test(`openai ${version}`, { skip: missing }, () => {});
    continue;
  }
  const { default: OpenAI } = await import(name);
  for (const [format, described] of Object.entries(formats)) describe(`openai ${version}, ${format}`, () => cases(OpenAI, described));
}

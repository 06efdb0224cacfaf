import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULTS, FIELDS, readBias, readField, readStops, readTools, requestFields, settingsFrom, writeStops } from './settings.js';

const field = (name) => FIELDS.find((each) => each.name === name);

test('all sampling fields of the API are there', () => {
  assert.deepEqual(FIELDS.map(({ name }) => name).sort(), ['frequency_penalty', 'max_tokens', 'min_p', 'min_tokens', 'presence_penalty', 'repetition_penalty', 'seed', 'temperature', 'top_k', 'top_p']);
});

test('a field takes a number of its range or nothing; what is wrong is named', () => {
  assert.equal(readField(field('temperature'), '0.5'), 0.5);
  assert.equal(readField(field('temperature'), ' '), '');
  assert.throws(() => readField(field('temperature'), 'warm'), /Temperature: "warm" is not a number/);
  assert.throws(() => readField(field('top_p'), '1.5'), /Top p goes from 0 to 1/);
  assert.throws(() => readField(field('top_k'), '1.5'), /Top k: "1.5" is not a whole number/);
  assert.throws(() => readField(field('max_tokens'), '0'), /Max tokens goes from 1/);
  assert.equal(readField(field('min_tokens'), '0'), 0);
  assert.throws(() => readField(field('min_tokens'), '-1'), /Min tokens goes from 0/);
  assert.throws(() => readField(field('min_tokens'), '2.5'), /Min tokens: "2.5" is not a whole number/);
});

test('stop strings stand in lines; line breaks in them are written with a backslash', () => {
  assert.deepEqual(readStops('END\n\n\\n\\n\na\\\\b'), ['END', '\n\n', 'a\\b']);
  assert.deepEqual(readStops(writeStops(['END', '\n\n', '\t', 'a\\nb'])), ['END', '\n\n', '\t', 'a\\nb']);
  assert.throws(() => readStops('x\n'.repeat(17)), /17 stop strings/);
});

test('a logit bias is an object or a list of pairs, as the API takes it', () => {
  assert.equal(readBias(' \n'), null);
  assert.deepEqual(readBias('{"15043": -100, "7": 1.5}'), { 15043: -100, 7: 1.5 });
  const pairs = [[15043, 100], [' Hello', -2.5], [7, false], ['', 0]];
  assert.deepEqual(readBias(JSON.stringify(pairs)), pairs);
  for (const [text, why] of [
    ['{"7": 1', /^The logit bias is not JSON: /],
    ['7', /must be an object, or a list of pairs/],
    ['null', /must be an object, or a list of pairs/],
    ['{" Hello": 1}', /" Hello" is not the id of a token\.$/],
    ['{"-1": 1}', /"-1" is not the id of a token/],
    ['{"2147483648": 1}', /"2147483648" is not the id/],
    ['{"7": "much"}', /that of "7" is not a number from -100 to 100\.$/],
    ['{"7": 100.5}', /that of "7" is not a number/],
    ['{"7": false}', /that of "7" is not a number/],
    ['[[7, 1], [7]]', /entry 2 is not a pair/],
    ['[7]', /entry 1 is not a pair/],
    ['[[1.5, 1]]', /1\.5 is not the id of a token, and not a text/],
    ['[[-1, 1]]', /-1 is not the id of a token/],
    ['[[null, 1]]', /null is not the id of a token/],
    ['[[7, true]]', /that of 7 is not a number from -100 to 100, and not false/],
    ['[[" Hello", -101]]', /that of " Hello" is not a number/],
    [JSON.stringify([['x'.repeat(900), 101]]), /^.{0,160}$/],
    [JSON.stringify([['é'.repeat(513), 1]]), /the text of entry 1 has more than 1024 bytes/],
    [JSON.stringify(Array(4097).fill([7, 1])), /There are 4097 logit biases; the server takes 4096/],
  ]) assert.throws(() => readBias(text), { name: 'RangeError', message: why }, text.slice(0, 40));
  assert.equal(readBias(JSON.stringify([['é'.repeat(512), 1]])).length, 1);
  assert.equal(readBias(JSON.stringify(Array(4096).fill([7, 1]))).length, 4096);
});

test('tools are an array of functions, with or without their envelope', () => {
  const weather = { name: 'weather', parameters: {} };
  assert.deepEqual(readTools(JSON.stringify([weather, { type: 'function', function: weather }])), [{ type: 'function', function: weather }, { type: 'function', function: weather }]);
  assert.deepEqual(readTools('  '), []);
  assert.throws(() => readTools('[{]'), /The tools are not JSON/);
  assert.throws(() => readTools('{}'), /must be an array/);
  assert.throws(() => readTools('[{"name": "a"}, {}]'), /Tool 2 has no name/);
});

test('what was kept is checked: wrong fields get the default', () => {
  assert.deepEqual(settingsFrom(null), DEFAULTS);
  assert.deepEqual(settingsFrom('x'), DEFAULTS);
  assert.deepEqual(settingsFrom({ temperature: 'x', top_p: 7, stop: 'no', tools: '{', logit_bias: '{"7": 101}', min_tokens: -1, system: 3 }), DEFAULTS);
  assert.deepEqual(settingsFrom({ temperature: 0, max_tokens: '', stop: ['a', 3, ''], probabilities: false }), { ...DEFAULTS, temperature: 0, max_tokens: '', stop: ['a'], probabilities: false });
});

test('a request has the fields that are filled in, and no others', () => {
  assert.deepEqual(requestFields({}, { ...DEFAULTS, probabilities: false }), { temperature: 0.8, max_tokens: 1000 });
  assert.deepEqual(requestFields({}, { ...DEFAULTS, temperature: '', max_tokens: 5, min_tokens: 2, top_k: 0, seed: 3, stop: ['x'], logit_bias: '[[" a", false]]', tools: '[{"name":"t"}]' }),
    { max_tokens: 5, min_tokens: 2, top_k: 0, stop: ['x'], logit_bias: [[' a', false]], tools: [{ type: 'function', function: { name: 't' } }], logprobs: true, top_logprobs: 5 });
});

test('what a request has of its own goes before the settings, and min_tokens is never above max_tokens', () => {
  const from = { ...DEFAULTS, min_tokens: 300, max_tokens: 400, probabilities: false };
  assert.deepEqual(requestFields({ seed: 3, temperature: 1.1 }, from), { temperature: 1.1, max_tokens: 400, min_tokens: 300, seed: 3 });
  assert.deepEqual(requestFields({ max_tokens: 200 }, from), { temperature: 0.8, max_tokens: 200, min_tokens: 200 });
  assert.equal(requestFields({}, { ...from, max_tokens: 100 }).min_tokens, 100);
  assert.equal(requestFields({}, { ...from, max_tokens: '' }).min_tokens, 300, 'without Max tokens, the context is the limit');
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULTS, FIELDS, readField, readStops, readTools, sampling, settingsFrom, writeStops } from './settings.js';

const field = (name) => FIELDS.find((each) => each.name === name);

test('all sampling fields of the API are there', () => {
  assert.deepEqual(FIELDS.map(({ name }) => name).sort(), ['frequency_penalty', 'max_tokens', 'min_p', 'presence_penalty', 'repetition_penalty', 'seed', 'temperature', 'top_k', 'top_p']);
});

test('a field takes a number of its range or nothing; what is wrong is named', () => {
  assert.equal(readField(field('temperature'), '0.5'), 0.5);
  assert.equal(readField(field('temperature'), ' '), '');
  assert.throws(() => readField(field('temperature'), 'warm'), /Temperature: "warm" is not a number/);
  assert.throws(() => readField(field('top_p'), '1.5'), /Top p goes from 0 to 1/);
  assert.throws(() => readField(field('top_k'), '1.5'), /Top k: "1.5" is not a whole number/);
  assert.throws(() => readField(field('max_tokens'), '0'), /Max tokens goes from 1/);
});

test('stop strings stand in lines; line breaks in them are written with a backslash', () => {
  assert.deepEqual(readStops('END\n\n\\n\\n\na\\\\b'), ['END', '\n\n', 'a\\b']);
  assert.deepEqual(readStops(writeStops(['END', '\n\n', '\t', 'a\\nb'])), ['END', '\n\n', '\t', 'a\\nb']);
  assert.throws(() => readStops('x\n'.repeat(17)), /17 stop strings/);
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
  assert.deepEqual(settingsFrom({ temperature: 'x', top_p: 7, stop: 'no', tools: '{', system: 3 }), DEFAULTS);
  assert.deepEqual(settingsFrom({ temperature: 0, max_tokens: '', stop: ['a', 3, ''], probabilities: false }), { ...DEFAULTS, temperature: 0, max_tokens: '', stop: ['a'], probabilities: false });
});

test('a request has the fields that are filled in, and no others', () => {
  assert.deepEqual(sampling({ ...DEFAULTS, probabilities: false }), { temperature: 0.8, max_tokens: 1000 });
  assert.deepEqual(sampling({ ...DEFAULTS, temperature: '', max_tokens: 5, top_k: 0, seed: 3, stop: ['x'], tools: '[{"name":"t"}]' }),
    { max_tokens: 5, top_k: 0, stop: ['x'], tools: [{ type: 'function', function: { name: 't' } }], logprobs: true, top_logprobs: 5 });
});

// The settings of a request as data: every sampling field of the API. A field that is empty is not sent; the server's
// default holds then.
import { kept } from './storage.js';

// Those that are a number, with their ranges. `name` is the field of the API, `hint` what an empty field means.
export const FIELDS = [
  { name: 'temperature', label: 'Temperature', min: 0, max: 100, step: 0.1, hint: '1', about: '0: always the most likely token' },
  { name: 'top_k', label: 'Top k', min: 0, max: 2147483647, step: 1, hint: 'all', whole: true, about: 'Sample from the K most likely tokens' },
  { name: 'top_p', label: 'Top p', min: 0, max: 1, step: 0.05, hint: '1', about: 'Sample from the most likely tokens whose probabilities add up to this' },
  { name: 'min_p', label: 'Min p', min: 0, max: 1, step: 0.01, hint: '0', about: 'Leave out tokens with less than this part of the highest probability' },
  { name: 'repetition_penalty', label: 'Repetition penalty', min: 0.01, max: 100, step: 0.05, hint: '1', about: 'Above 1: tokens that were there become less likely' },
  { name: 'presence_penalty', label: 'Presence penalty', min: -2, max: 2, step: 0.1, hint: '0', about: 'Once for each token of the answer so far' },
  { name: 'frequency_penalty', label: 'Frequency penalty', min: -2, max: 2, step: 0.1, hint: '0', about: 'Each time that a token was written' },
  { name: 'seed', label: 'Seed', min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, hint: 'random', whole: true, about: 'The same seed gives the same answer' },
  { name: 'max_tokens', label: 'Max tokens', min: 1, max: 2147483647, step: 1, hint: 'the context', whole: true, about: 'Of each answer' },
  { name: 'min_tokens', label: 'Min tokens', min: 0, max: 2147483647, step: 1, hint: '0', whole: true, about: 'No answer ends before, except at Max tokens' },
];

const MOST_STOPS = 16;
const MOST_BIASES = 4096;
const MOST_BIAS = 100;
const MOST_BIAS_BYTES = 1024;  // of one text
const MOST_TOKEN = 2147483647;  // how many the model has is for the server to check: it may serve another one tomorrow
export const DEFAULTS = { temperature: 0.8, max_tokens: 1000, stop: [], logit_bias: '', tools: '', system: '', probabilities: true };

// The number in a field, '' if it is empty. Throws with the field's label if it is not one, or out of range.
export function readField({ label, min, max, whole }, text) {
  if (String(text).trim() === '') return '';
  const value = Number(text);
  if (Number.isNaN(value) || (whole && !Number.isInteger(value))) throw new RangeError(`${label}: "${text}" is not a ${whole ? 'whole ' : ''}number.`);
  if (value < min || value > max) throw new RangeError(`${label} goes from ${min} to ${max >= 2147483647 ? 'very much' : max}.`);
  return value;
}

// Stop strings, one in a line. \n and \t in them are a line break and a tab.
export function readStops(text) {
  const stops = text.split('\n').filter((line) => line !== '').map((line) => line.replace(/\\(n|t|\\)/g, (_, c) => ({ n: '\n', t: '\t', '\\': '\\' })[c]));
  if (stops.length > MOST_STOPS) throw new RangeError(`There are ${stops.length} stop strings; the server takes ${MOST_STOPS}.`);
  return stops;
}
export const writeStops = (stops) => stops.map((stop) => stop.replace(/[\n\t\\]/g, (c) => ({ '\n': '\\n', '\t': '\\t', '\\': '\\\\' })[c])).join('\n');

const clipped = (text, most = 60) => (text.length > most ? `${text.slice(0, most)}…` : text);

// The logit bias as the API takes it: an object {token id: bias}, or a list of pairs [token id or text, bias or false].
// Empty: none, which is null.
export function readBias(text) {
  if (text.trim() === '') return null;
  let given;
  try { given = JSON.parse(text); } catch (error) { throw new RangeError(`The logit bias is not JSON: ${error.message}`); }
  if (given === null || typeof given !== 'object') throw new RangeError('The logit bias must be an object, or a list of pairs.');
  const list = Array.isArray(given);
  const pairs = list ? given : Object.entries(given);
  if (pairs.length > MOST_BIASES) throw new RangeError(`There are ${pairs.length} logit biases; the server takes ${MOST_BIASES}.`);
  for (const [i, pair] of pairs.entries()) {
    if (!Array.isArray(pair) || pair.length !== 2) throw new RangeError(`Logit bias: entry ${i + 1} is not a pair of a token and its bias.`);
    const [token, bias] = pair;
    const said = clipped(JSON.stringify(token));
    const isText = list && typeof token === 'string';
    if (isText && new TextEncoder().encode(token).length > MOST_BIAS_BYTES) {
      throw new RangeError(`Logit bias: the text of entry ${i + 1} has more than ${MOST_BIAS_BYTES} bytes.`);
    }
    const isId = list ? Number.isInteger(token) && token >= 0 && token <= MOST_TOKEN : /^\d+$/.test(token) && Number(token) <= MOST_TOKEN;
    if (!isText && !isId) throw new RangeError(`Logit bias: ${said} is not the id of a token${list ? ', and not a text' : ''}.`);
    if (!(typeof bias === 'number' && Math.abs(bias) <= MOST_BIAS) && !(list && bias === false)) {
      throw new RangeError(`Logit bias: that of ${said} is not a number from ${-MOST_BIAS} to ${MOST_BIAS}${list ? ', and not false' : ''}.`);
    }
  }
  return given;
}

// The tools as the API takes them: an array, of functions or of {type: 'function', function}. Empty: none.
export function readTools(text) {
  if (text.trim() === '') return [];
  let tools;
  try { tools = JSON.parse(text); } catch (error) { throw new RangeError(`The tools are not JSON: ${error.message}`); }
  if (!Array.isArray(tools)) throw new RangeError('The tools must be an array.');
  return tools.map((tool, i) => {
    const described = tool?.type === 'function' ? tool.function : tool;
    if (typeof described?.name !== 'string' || described.name === '') throw new RangeError(`Tool ${i + 1} has no name.`);
    return { type: 'function', function: described };
  });
}

// Settings from what was kept: fields that are missing or wrong get the default.
export function settingsFrom(stored) {
  const settings = { ...DEFAULTS };
  if (stored === null || typeof stored !== 'object') return settings;
  for (const field of FIELDS) {
    if (!(field.name in stored)) continue;
    try { settings[field.name] = readField(field, stored[field.name] ?? ''); } catch { /* the default */ }
  }
  if (Array.isArray(stored.stop)) settings.stop = stored.stop.filter((stop) => typeof stop === 'string' && stop !== '').slice(0, MOST_STOPS);
  for (const name of ['logit_bias', 'tools', 'system']) if (typeof stored[name] === 'string') settings[name] = stored[name];
  if (typeof stored.probabilities === 'boolean') settings.probabilities = stored.probabilities;
  for (const [name, read] of [['logit_bias', readBias], ['tools', readTools]]) try { read(settings[name]); } catch { settings[name] = ''; }
  return settings;
}

export const settings = settingsFrom(kept.get('quire.settings'));

export function saveSettings(changes) {
  Object.assign(settings, changes);
  return kept.set('quire.settings', settings);
}

const ALTERNATIVES = 5;

// The fields of a request: the settings, and `sent` with what is this request's own. The seed is not among the settings:
// each answer has its own.
export function requestFields(sent = {}, from = settings) {
  const fields = {};
  for (const { name } of FIELDS) if (name !== 'seed' && from[name] !== '' && from[name] != null) fields[name] = from[name];
  if (from.stop.length) fields.stop = from.stop;
  const bias = readBias(from.logit_bias);
  if (bias) fields.logit_bias = bias;
  const tools = readTools(from.tools);
  if (tools.length) fields.tools = tools;
  if (from.probabilities) Object.assign(fields, { logprobs: true, top_logprobs: ALTERNATIVES });
  Object.assign(fields, sent);
  if (fields.min_tokens > fields.max_tokens) fields.min_tokens = fields.max_tokens;  // the server refuses more
  return fields;
}

// The seed of the i-th answer to the same question.
export const seedFor = (i) => (settings.seed === '' || settings.seed == null ? Math.floor(Math.random() * 100_000) : Number(settings.seed) + i);

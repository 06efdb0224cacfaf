// Conversations as plain data: what is kept in the browser, exported and imported. What comes in is checked field by field,
// and only known fields are taken over.

const FORMAT = 'quire conversations';
const VERSION = 1;
const MOST_BYTES = 64 * 2 ** 20;
const FINISHES = ['stop', 'length', 'stopped', 'tool_calls', 'content_filter', null];

export class ImportError extends Error {}

const wrong = (where, what) => { throw new ImportError(`${where} ${what}.`); };

// Each check returns the value or throws. `where` names the value for the user.
const isText = (value, where) => (typeof value === 'string' ? value : wrong(where, 'must be a text'));
const isFlag = (value, where) => (typeof value === 'boolean' ? value : wrong(where, 'must be true or false'));
const isCount = (value, where) => (Number.isSafeInteger(value) && value >= 0 ? value : wrong(where, 'must be a whole number, 0 or more'));
const isNumber = (value, where) => (typeof value === 'number' && Number.isFinite(value) ? value : wrong(where, 'must be a number'));
const isObject = (value, where) => (value !== null && typeof value === 'object' && !Array.isArray(value) ? value : wrong(where, 'must be an object'));
const list = (check) => (value, where) => (Array.isArray(value) ? value.map((each, i) => check(each, `${where}[${i}]`)) : wrong(where, 'must be an array'));
const orNull = (check) => (value, where) => (value === null ? null : check(value, where));
const oneOf = (values) => (value, where) => (values.includes(value) ? value : wrong(where, `must be one of ${values.map((each) => JSON.stringify(each)).join(', ')}`));

// An object with these fields. `needed` must be there; what is not named is dropped.
const shape = (needed, optional = {}) => (value, where) => {
  const from = isObject(value, where);
  const out = {};
  for (const [name, check] of Object.entries(needed)) {
    if (!Object.hasOwn(from, name)) wrong(`${where}.${name}`, 'is missing');
    out[name] = check(from[name], `${where}.${name}`);
  }
  for (const [name, check] of Object.entries(optional)) {
    if (Object.hasOwn(from, name) && from[name] !== undefined) out[name] = check(from[name], `${where}.${name}`);
  }
  return out;
};

const usage = shape({}, {
  prompt_tokens: isCount, completion_tokens: isCount,
  prompt_tokens_details: orNull(shape({}, { cached_tokens: isCount, cached_from: orNull(shape({}, { pool: isCount, host: isCount, disk: isCount, shared: isCount })), miss_reason: isText })),
});
const likely = (value, where) => (Array.isArray(value) && value.length === 2 ? [isText(value[0], `${where}[0]`), isNumber(value[1], `${where}[1]`)] : wrong(where, 'must be a token and its log-probability'));
const token = (value, where) => (Array.isArray(value) && value.length === 3
  ? [isText(value[0], `${where}[0]`), isNumber(value[1], `${where}[1]`), list(likely)(value[2], `${where}[2]`)]
  : wrong(where, 'must be a token, its log-probability and its alternatives'));
const answered = {
  reasoning: isText, calls: list(shape({ id: isText, name: isText, arguments: isText })), request: orNull(isCount), finish: oneOf(FINISHES),
  error: orNull(isText), usage: orNull(usage), seconds: isNumber, tries: isCount, begun: isCount, tokens: list(token), promptTokens: isCount,
};
const branch = shape({ text: isText }, { ...answered, label: isText, question: isText });
const kinds = {
  user: shape({ role: isText, text: isText }),
  assistant: shape({ role: isText, text: isText }, answered),
  tool: shape({ role: isText, text: isText, call: isText }, { name: isText }),
  fork: shape({ role: isText, kind: isText, prefix: isText, branches: list(branch), chosen: isCount }),
  readers: shape({ kind: isText, notes: isText, branches: list(branch) }),
};

function message(value, where) {
  const { kind, role } = isObject(value, where);
  const name = kind === undefined ? oneOf(['user', 'assistant', 'tool'])(role, `${where}.role`) : oneOf(['fork', 'readers'])(kind, `${where}.kind`);
  const out = kinds[name](value, where);
  if (name === 'fork' && out.chosen >= out.branches.length) wrong(`${where}.chosen`, 'is no branch of the fork');
  return out;
}

const conversationShape = shape({ messages: list(message) }, { title: isText, named: isFlag, created: isNumber, changed: isNumber, system: isText });

// A copy with only what is kept. Throws ImportError if something is wrong.
export const checked = (conversation, where = 'The conversation') => conversationShape(conversation, where);

// A message without what belongs to the page: its view, its stream.
export const plain = (messages) => JSON.parse(JSON.stringify(messages, (name, value) => (['stopper', 'changed', 'connection'].includes(name) ? undefined : value)));

export function exported(conversations) {
  const entries = conversations.map((each) => checked({ ...each, messages: plain(each.messages) }));
  return JSON.stringify({ format: FORMAT, version: VERSION, conversations: entries }, null, 1);
}

// The conversations in an exported file.
export function imported(text) {
  if (text.length > MOST_BYTES) throw new ImportError('The file is larger than 64 MiB.');
  let data;
  try { data = JSON.parse(text); } catch (error) { throw new ImportError(`The file is not JSON: ${error.message}.`); }
  if (data?.format !== FORMAT) throw new ImportError(`This is not a file of conversations: its "format" is not "${FORMAT}".`);
  if (data.version !== VERSION) throw new ImportError(`The file has version ${JSON.stringify(data.version)}; this page reads version ${VERSION}.`);
  return list((each, where) => checked(each, where))(data.conversations, 'conversations');
}

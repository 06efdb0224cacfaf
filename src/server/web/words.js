// What the page says: numbers, and sentences about answers, sequences and cells. Pure functions.
import { CACHED, FREE } from './cells.js';
import { nameOfKey, nameSeveral } from './sequence_key.js';

export const count = (n) => Math.round(n).toLocaleString('en-US');

export function bytes(n) {
  if (n == null) return '';
  for (const unit of ['bytes', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024 || unit === 'GiB') return `${unit === 'bytes' || n >= 100 ? Math.round(n) : n.toFixed(1).replace(/\.0$/, '')} ${unit}`;
    n /= 1024;
  }
}

const ENDS = {
  'never seen': 'the rest was never seen',
  'evicted': 'the rest had been evicted',
  'other namespace': 'the rest was never seen with this key',
  'no checkpoint': 'no recurrent state was kept any further',
  'window gone': 'the window before the rest had been given back',
  'no room': 'there was no room to hold more of it',
};

// What was found of a prompt, and why no more.
export function hitInWords(found, prompt, end) {
  if (end === 'disabled') return `${count(prompt)} tokens, all of them computed: reuse is turned off`;
  if (found === 0) {
    if (end === 'evicted') return `${count(prompt)} tokens; what was known of them had been evicted`;
    if (end === 'never seen' || end === 'other namespace' || end === 'complete' || !end) return `${count(prompt)} tokens, none of them seen before`;
    return `${count(prompt)} tokens, none found in the pool: ${ENDS[end] ?? end}`;
  }
  const start = `${count(found)} of ${count(prompt)} tokens found in the pool`;
  return end === 'complete' || !end ? `${start}: all that can be` : `${start}; ${ENDS[end] ?? end}`;
}

// The line under an answer: an error, nothing while it is being written, else what it cost.
export function answerFacts(answer) {
  if (answer.error) return { text: answer.error, bad: true };
  if (answer.stopper) return { text: '', bad: false };
  const parts = [];
  const usage = answer.usage;
  if (usage) {
    parts.push(`${count(usage.completion_tokens)} tokens${answer.seconds ? `, ${count(usage.completion_tokens / answer.seconds)} a second` : ''}`);
    const details = usage.prompt_tokens_details;
    if (details) parts.push(hitInWords(details.cached_tokens ?? 0, usage.prompt_tokens, details.miss_reason));
  }
  if (answer.finish === 'stopped') parts.push('stopped');
  if (answer.finish === 'length') parts.push('ended at the limit of tokens');
  return { text: parts.join(' · '), bad: false };
}

export function stateInWords(sequence) {
  const read = Math.min(sequence.computed, sequence.prompt_tokens);
  const written = Math.max(0, sequence.tokens - sequence.prompt_tokens);
  if (sequence.ended) return `ended, ${count(written)} written`;
  switch (sequence.state) {
    case 'waiting': return sequence.waits_for_prefix ? 'waits: another computes the same text' : 'waiting';
    case 'prefill': return `prefill, ${count(read)} of ${count(sequence.prompt_tokens)}`;
    case 'decode': return `decode, ${count(written)} written`;
    case 'suspended': return `suspended, ${count(written)} written; will go on`;
    default: return sequence.state;
  }
}

export function describePage(pool, group, cell) {
  const { cells } = pool.groups[group];
  const name = `Page ${count(cell)}${pool.groups.length > 1 ? ` of group ${group + 1}` : ''}`;
  const keys = cells.holders.get(cell);
  if (cells.isElsewhere(cell)) return `${name} is not there now: its memory holds something else.`;
  if (cells.state[cell] === FREE) return `${name} is free.`;
  if (cells.state[cell] === CACHED) return `${name} is cached: nobody holds it, and what it remembers is kept until its room is needed.`;
  if (!keys) return `${name} is held.`;
  const block = pool.sequences.get(keys[0])?.tables?.[group]?.indexOf(cell) ?? -1;
  const tokens = block < 0 ? '' : `: tokens ${count(block * pool.blockSize + 1)} to ${count((block + 1) * pool.blockSize)}`;
  return keys.length === 1 ? `${name} is held by ${nameOfKey(keys[0])}${tokens}.`
    : `${name} is shared by ${nameSeveral(keys)}${tokens} of each, computed once.`;
}

export function describeState(pool, cell) {
  const { cells } = pool.states;
  const keys = cells.holders.get(cell);
  if (cells.isElsewhere(cell)) return `State ${cell} is not there now: its memory holds pages.`;
  if (cells.state[cell] === FREE) return `State ${cell} is free.`;
  if (cells.state[cell] === CACHED) return `State ${cell} is a checkpoint: a sequence with the same beginning can go on from it.`;
  return `State ${cell} is the slot of ${keys ? nameOfKey(keys[0]) : 'a sequence'}.`;
}

// The heading over a group's pages; none where they are all there is.
export function groupTitle(pool, group) {
  const { window } = pool.groups[group];
  if (pool.groups.length < 2) return pool.states ? 'Pages' : '';
  return window ? `Pages of layers that look back ${count(window)} tokens` : 'Pages of layers that see all tokens';
}

// The line under the pool's title: its size, and what it is cut into.
export function aboutPool(pool) {
  const most = pool.groups.length > 1 || pool.states ? 'up to ' : '';
  const kinds = pool.groups.map(({ cells, bytes: size }) => `${most}${count(cells.total)} pages of ${bytes(size)}`);
  if (pool.states) kinds.push(`${most}${count(pool.states.cells.total)} states of ${bytes(pool.states.bytes)}`);
  return `${bytes(pool.arenaBytes)}: ${kinds.join(', ')}${pool.groups.length ? `; a page holds ${pool.blockSize} tokens` : ''}`;
}

// The texts of the page: numbers, and sentences about answers, sequences and cells. Pure functions.
import { CACHED, FREE } from './cells.js';
import { nameOfKey, nameSeveral } from './sequence_key.js';
import { scaleOf } from './tier.js';

export const count = (n) => Math.round(n).toLocaleString('en-US');

export function bytes(n) {
  if (n == null) return '';
  for (const unit of ['bytes', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024 || unit === 'GiB') return `${unit === 'bytes' || n >= 100 ? Math.round(n) : n.toFixed(1).replace(/\.0$/, '')} ${unit}`;
    n /= 1024;
  }
}

// How long ago something was, in words. Times are in milliseconds.
export function ago(then, now) {
  const minutes = Math.floor((now - then) / 60_000);
  if (minutes < 1) return 'just now';
  const [n, unit] = minutes < 60 ? [minutes, 'minute'] : minutes < 24 * 60 ? [Math.floor(minutes / 60), 'hour'] : [Math.floor(minutes / 1440), 'day'];
  return `${n} ${unit}${n === 1 ? '' : 's'} ago`;
}

const ENDS = {
  'never seen': 'the rest was never seen',
  'evicted': 'the rest had been evicted',
  'other namespace': 'the rest was never seen with this key',
  'no checkpoint': 'no recurrent state was kept any further',
  'window gone': 'the window before the rest had been released',
  'no room': 'there was no memory to hold more',
};

const TIERS = { host: 'host memory', disk: 'disk', shared: 'the shared store' };

// Where reused tokens came from, if not from the pool: " (96 from disk)".
function fromInWords(from = {}) {
  const parts = Object.entries(from ?? {}).filter(([kind, n]) => kind in TIERS && n > 0).map(([kind, n]) => `${count(n)} from ${TIERS[kind]}`);
  return parts.length ? ` (${parts.join(', ')})` : '';
}

// How many tokens of a prompt were reused, where they came from, and why no more.
export function hitInWords(reused, prompt, end, from) {
  if (end === 'disabled') return `${count(prompt)} tokens, all of them computed: reuse is turned off`;
  if (reused === 0) {
    if (end === 'evicted') return `${count(prompt)} tokens, none reused: they had been evicted`;
    if (end === 'never seen' || end === 'other namespace' || end === 'complete' || !end) return `${count(prompt)} tokens, none of them seen before`;
    return `${count(prompt)} tokens, none reused: ${ENDS[end] ?? end}`;
  }
  const start = `${count(reused)} of ${count(prompt)} tokens reused${fromInWords(from)}`;
  return end === 'complete' || !end ? `${start}, the most possible` : `${start}; ${ENDS[end] ?? end}`;
}

// The line under an answer: an error, nothing while it is running, else its cost.
export function answerFacts(answer) {
  if (answer.error) return { text: answer.error, bad: true };
  if (answer.stopper) return { text: '', bad: false };
  const parts = [];
  const usage = answer.usage;
  if (usage) {
    parts.push(`${count(usage.completion_tokens)} tokens${answer.seconds ? `, ${count(usage.completion_tokens / answer.seconds)} a second` : ''}`);
    const details = usage.prompt_tokens_details;
    if (details) parts.push(hitInWords(details.cached_tokens ?? 0, usage.prompt_tokens, details.miss_reason, details.cached_from));
  }
  if (answer.finish === 'stopped') parts.push('stopped');
  if (answer.finish === 'length') parts.push('reached the token limit');
  if (answer.finish === 'tool_calls') parts.push('waits for the result');
  return { text: parts.join(' · '), bad: false };
}

// The line over the reasoning of an answer.
export function reasoningInWords({ stopper, text, reasoning }) {
  if (stopper && !text) return 'Reasoning …';
  return `Reasoning, ${count(reasoning.trim().split(/\s+/).length)} words`;
}

// The arguments of a call, in lines if they are JSON.
export function argumentsInWords(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

export function percent(logprob) {
  const share = 100 * Math.exp(logprob);
  const number = share >= 99.95 ? '100' : share >= 10 ? share.toFixed(0) : share >= 0.1 ? share.toFixed(1) : '< 0.1';
  return `${number}\u00a0%`;  // a space that does not break
}

// A token with its spaces and line breaks visible.
export const visibleToken = (token) => (token === '' ? '(nothing to see)' : token.replace(/ /g, '␣').replace(/\n/g, '⏎').replace(/\t/g, '⇥'));

// Which pages a token lies in. `pages` has one for each group, null: it is not known.
export function pageInWords(pool, pages) {
  if (pool.groups.length === 0) return 'A recurrent model keeps no pages: each token changes the one state.';
  if (pages === null) return 'Its page is not known: the answer was written before this page was opened or connected, or long ago.';
  if (pages.every((page) => page === null)) return 'Its page holds something else now, or the token was not computed into one.';
  const names = pages.map((page, group) => (page === null ? null : `page ${count(page)}${pool.groups.length > 1 ? ` of group ${group + 1}` : ''}`)).filter(Boolean);
  return `It lies in ${names.join(' and ')}.`;
}

export function stateInWords(sequence) {
  const prefilled = Math.min(sequence.computed, sequence.prompt_tokens);
  const decoded = Math.max(0, sequence.tokens - sequence.prompt_tokens);
  if (sequence.ended) return `ended, ${count(decoded)} tokens`;
  switch (sequence.state) {
    case 'waiting':
      if (sequence.waits_for_tier) return 'waiting: its prefix comes from a tier';
      return sequence.waits_for_prefix ? 'waiting: another request computes its prefix' : 'waiting';
    case 'prefill': return `prefill, ${count(prefilled)} of ${count(sequence.prompt_tokens)}${sequence.waits_for_tier ? '; the rest comes from a tier' : ''}`;
    case 'decode': return `decode, ${count(decoded)} tokens`;
    case 'suspended': return `suspended after ${count(decoded)} tokens; will resume`;
    default: return sequence.state;
  }
}

export function describePage(pool, group, cell) {
  const { cells } = pool.groups[group];
  const name = `Page ${count(cell)}${pool.groups.length > 1 ? ` of group ${group + 1}` : ''}`;
  const keys = cells.holders.get(cell);
  if (cells.isElsewhere(cell)) return `${name} does not exist now: its memory holds something else.`;
  if (cells.state[cell] === FREE) return `${name} is free.`;
  if (cells.state[cell] === CACHED) return `${name} is cached: no sequence holds it, and its content is kept until the memory is needed.`;
  if (!keys) return `${name} is held.`;
  const block = pool.sequences.get(keys[0])?.tables?.[group]?.indexOf(cell) ?? -1;
  const tokens = block < 0 ? '' : `: tokens ${count(block * pool.blockSize + 1)} to ${count((block + 1) * pool.blockSize)}`;
  return keys.length === 1 ? `${name} is held by ${nameOfKey(keys[0])}${tokens}.`
    : `${name} is shared by ${nameSeveral(keys)}${tokens} of each, computed once.`;
}

export function describeState(pool, cell) {
  const { cells } = pool.states;
  const keys = cells.holders.get(cell);
  if (cells.isElsewhere(cell)) return `State ${cell} does not exist now: its memory holds pages.`;
  if (cells.state[cell] === FREE) return `State ${cell} is free.`;
  if (cells.state[cell] === CACHED) return `State ${cell} is a checkpoint: a sequence with the same prefix can resume from it.`;
  return `State ${cell} is the slot of ${keys ? nameOfKey(keys[0]) : 'a sequence'}.`;
}

// The heading over a group's pages; empty if the pool has only these.
export function groupTitle(pool, group) {
  const { window } = pool.groups[group];
  if (pool.groups.length < 2) return pool.states ? 'Pages' : '';
  return window ? `Pages of layers that look back ${count(window)} tokens` : 'Pages of layers that see all tokens';
}

// The line under the pool's title: its size, and the objects it is divided into.
export function aboutPool(pool) {
  const most = pool.groups.length > 1 || pool.states ? 'up to ' : '';
  const kinds = pool.groups.map(({ cells, bytes: size }) => `${most}${count(cells.total)} pages of ${bytes(size)}`);
  if (pool.states) kinds.push(`${most}${count(pool.states.cells.total)} states of ${bytes(pool.states.bytes)}`);
  return `${bytes(pool.arenaBytes)}: ${kinds.join(', ')}${pool.groups.length ? `; a page holds ${pool.blockSize} tokens` : ''}`;
}

// --- tiers

export const tierTitle = ({ kind }) => ({ host: 'Host memory', disk: 'Disk', shared: 'Shared store' })[kind] ?? kind;

export function tierState({ stats }) {
  return stats.working ? { text: 'working', bad: false } : { text: stats.problem || 'not working', bad: true };
}

// The line under a tier's cells: how full it is, and what it was good for.
export function tierFacts({ stats }) {
  const { bytes: used, capacity_bytes: capacity, objects } = stats;
  const parts = [];
  if (capacity || used) parts.push(capacity ? `${bytes(used)} of ${bytes(capacity)}` : bytes(used));
  if (objects) parts.push(`${count(objects)} ${objects === 1 ? 'object' : 'objects'}`);
  const damaged = stats.damaged ? `, ${count(stats.damaged)} damaged` : '';
  parts.push(`${count(stats.hits)} hits, ${count(stats.misses)} misses${damaged}`, `${count(stats.tokens)} tokens brought`);
  return parts.join(' · ');
}

export function describeTierCell({ kind, cells, stats }, cell) {
  const scale = scaleOf(stats);
  const name = tierTitle({ kind });
  if (!scale) return `${name}: it does not say how full it is. Its cells light up when something moves.`;
  const per = scale.unit === 'bytes' ? bytes(scale.per) : `${count(scale.per)} ${scale.per === 1 ? 'object' : 'objects'}`;
  return `${name}: each cell stands for ${per}. This one is ${cells.state[cell] === FREE ? 'free' : 'filled'}.`;
}

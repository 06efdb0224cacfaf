import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Pool } from './pool.js';
import { Tier } from './tier.js';
import { aboutPool, ago, answerFacts, argumentsInWords, bytes, count, describePage, describeState, describeTierCell, groupTitle, hitInWords, pageInWords, percent, reasoningInWords, stateInWords, tierFacts, tierState, tierTitle, visibleToken } from './words.js';

test('numbers', () => {
  assert.equal(count(1234567.4), '1,234,567');
  assert.equal(count(0), '0');
});

test('sizes have the largest unit that fits', () => {
  const cases = [[0, '0 bytes'], [1023, '1023 bytes'], [1024, '1 KiB'], [1536, '1.5 KiB'], [64 * 1024, '64 KiB'], [813 * 1024, '813 KiB'],
    [1.25 * 2 ** 20, '1.3 MiB'], [128 * 2 ** 20, '128 MiB'], [3 * 2 ** 40, '3072 GiB'], [null, '']];
  for (const [n, text] of cases) assert.equal(bytes(n), text);
});

test('a hit: how many tokens were reused, and why no more', () => {
  assert.equal(hitInWords(0, 1200, 'never seen'), '1,200 tokens, none of them seen before');
  assert.equal(hitInWords(0, 1200, undefined), '1,200 tokens, none of them seen before');
  assert.equal(hitInWords(0, 12, 'evicted'), '12 tokens, none reused: they had been evicted');
  assert.equal(hitInWords(0, 12, 'disabled'), '12 tokens, all of them computed: reuse is turned off');
  assert.equal(hitInWords(0, 12, 'no checkpoint'), '12 tokens, none reused: no recurrent state was kept any further');
  assert.equal(hitInWords(8, 12, 'complete'), '8 of 12 tokens reused, the most possible');
  assert.equal(hitInWords(8, 12, 'window gone'), '8 of 12 tokens reused; the window before the rest had been released');
  assert.equal(hitInWords(8, 12, 'a new reason'), '8 of 12 tokens reused; a new reason');
  assert.equal(hitInWords(96, 100, 'complete', { pool: 96 }), '96 of 100 tokens reused, the most possible');
  assert.equal(hitInWords(96, 100, 'complete', { pool: 12, disk: 64, shared: 20 }), '96 of 100 tokens reused (64 from disk, 20 from the shared store), the most possible');
  assert.equal(hitInWords(96, 100, 'never seen', null), '96 of 100 tokens reused; the rest was never seen');
});

test('the line under an answer', () => {
  const usage = { completion_tokens: 50, prompt_tokens: 20, prompt_tokens_details: { cached_tokens: 16, miss_reason: 'never seen' } };
  assert.deepEqual(answerFacts({ usage, seconds: 2, finish: 'stop' }), { text: '50 tokens, 25 a second · 16 of 20 tokens reused; the rest was never seen', bad: false });
  assert.deepEqual(answerFacts({ usage: { completion_tokens: 5 }, finish: 'length' }), { text: '5 tokens · reached the token limit', bad: false });
  assert.deepEqual(answerFacts({ finish: 'stopped' }), { text: 'stopped', bad: false });
  assert.deepEqual(answerFacts({ usage, stopper: {} }), { text: '', bad: false }, 'it is running');
  assert.deepEqual(answerFacts({ usage, error: 'The server is busy.' }), { text: 'The server is busy.', bad: true });
});

test('the state of a sequence', () => {
  const sequence = { prompt_tokens: 1000, computed: 300, tokens: 1000, state: 'prefill' };
  assert.equal(stateInWords(sequence), 'prefill, 300 of 1,000');
  assert.equal(stateInWords({ ...sequence, state: 'waiting' }), 'waiting');
  assert.equal(stateInWords({ ...sequence, state: 'waiting', waits_for_prefix: true }), 'waiting: another request computes its prefix');
  assert.equal(stateInWords({ ...sequence, state: 'waiting', waits_for_tier: true }), 'waiting: its prefix comes from a tier');
  assert.equal(stateInWords({ ...sequence, waits_for_tier: true }), 'prefill, 300 of 1,000; the rest comes from a tier');
  assert.equal(stateInWords({ ...sequence, state: 'decode', tokens: 1050 }), 'decode, 50 tokens');
  assert.equal(stateInWords({ ...sequence, state: 'suspended', tokens: 1050 }), 'suspended after 50 tokens; will resume');
  assert.equal(stateInWords({ ...sequence, state: 'decode', tokens: 1050, ended: 1 }), 'ended, 50 tokens');
});

const base = { model: 'demo', context: 2048, block_size: 16, arena_bytes: 128 * 2 ** 20, slabs: 2, sequences: [], stats: {}, states: null };
const group = (more) => ({ window: 0, page_bytes: 65536, total: 2048, ids: 2048, pages: [], ...more });
function poolOf(data) {
  const pool = new Pool();
  pool.takeWhole({ ...base, ...data });
  return pool;
}

test('a page', () => {
  const sequences = [{ request: 1, choice: 0, tables: [[3, 4]] }, { request: 2, choice: 0, tables: [[3]] }];
  const pool = poolOf({ groups: [group({ pages: [[3, 2, 'held'], [4, 1, 'held'], [5, 0, 'cached'], [6, 1, 'held']] })], sequences });
  assert.equal(describePage(pool, 0, 3), 'Page 3 is shared by #1 and #2: tokens 1 to 16 of each, computed once.');
  assert.equal(describePage(pool, 0, 4), 'Page 4 is held by #1: tokens 17 to 32.');
  assert.match(describePage(pool, 0, 5), /^Page 5 is cached: /);
  assert.equal(describePage(pool, 0, 6), 'Page 6 is held.');
  assert.equal(describePage(pool, 0, 2000), 'Page 2,000 is free.');
  assert.equal(groupTitle(pool, 0), '');
  assert.equal(aboutPool(pool), '128 MiB: 2,048 pages of 64 KiB; a page holds 16 tokens');
});

test('groups with windows, and states', () => {
  const pool = poolOf({
    groups: [group({ pages: [[0, 1, 'held']] }), group({ window: 512, ids: 100 })],
    states: { bytes: 813 * 1024, total: 4, ids: 4, slots: [[2, 'slot'], [3, 'checkpoint']] },
    sequences: [{ request: 7, choice: 1, slot: 2 }],
  });
  assert.equal(groupTitle(pool, 0), 'Pages of layers that see all tokens');
  assert.equal(groupTitle(pool, 1), 'Pages of layers that look back 512 tokens');
  assert.equal(describePage(pool, 1, 99), 'Page 99 of group 2 does not exist now: its memory holds something else.');
  assert.equal(describeState(pool, 2), 'State 2 is the slot of #7 (choice 2).');
  assert.match(describeState(pool, 3), /^State 3 is a checkpoint: /);
  assert.match(describeState(pool, 0), /^State 0 does not exist now: /);
  assert.equal(aboutPool(pool), '128 MiB: up to 2,048 pages of 64 KiB, up to 100 pages of 64 KiB, up to 4 states of 813 KiB; a page holds 16 tokens');
  const alone = poolOf({ groups: [], states: { bytes: 1024, total: 4, ids: 4, slots: [] } });
  assert.equal(aboutPool(alone), '128 MiB: up to 4 states of 1 KiB');
  assert.equal(describeState(alone, 0), 'State 0 is free.');
});

test('reasoning, calls, tokens and times', () => {
  assert.equal(reasoningInWords({ stopper: {}, text: '', reasoning: 'Let' }), 'Reasoning …');
  assert.equal(reasoningInWords({ text: 'Yes', reasoning: 'Let me think' }), 'Reasoning, 3 words');
  assert.equal(argumentsInWords('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(argumentsInWords('{"a":'), '{"a":', 'it has not arrived as a whole');
  assert.deepEqual([0, -0.0001, Math.log(0.5), Math.log(0.05), -9999].map((logprob) => percent(logprob).replace('\u00a0', ' ')), ['100 %', '100 %', '50 %', '5.0 %', '< 0.1 %']);
  assert.equal(visibleToken(' a\n'), '␣a⏎');
  assert.equal(visibleToken(''), '(nothing to see)');
  assert.deepEqual([0, 60_000, 3 * 3600_000, 48 * 3600_000].map((time) => ago(0, time)), ['just now', '1 minute ago', '3 hours ago', '2 days ago']);
});

test('the page of a token', () => {
  const one = poolOf({ groups: [group({})] });
  assert.equal(pageInWords(one, [12]), 'It lies in page 12.');
  assert.match(pageInWords(one, [null]), /^Its page holds something else now/);
  assert.match(pageInWords(one, null), /^Its page is not known/);
  const two = poolOf({ groups: [group({}), group({ window: 512, ids: 100 })] });
  assert.equal(pageInWords(two, [12, 3]), 'It lies in page 12 of group 1 and page 3 of group 2.');
  assert.equal(pageInWords(two, [12, null]), 'It lies in page 12 of group 1.');
  assert.match(pageInWords(poolOf({ groups: [], states: { bytes: 1, total: 4, ids: 4, slots: [] } }), []), /recurrent/);
});

test('a tier: its name, whether it works, how full it is and what it was good for', () => {
  const of = (kind, stats) => {
    const tier = new Tier(kind);
    tier.take({ working: true, bytes: 0, capacity_bytes: 0, objects: 0, puts: 0, hits: 0, misses: 0, damaged: 0, tokens: 0, ...stats });
    return tier;
  };
  const disk = of('disk', { bytes: 3 * 2 ** 30, capacity_bytes: 48 * 2 ** 30, objects: 1234, hits: 120, misses: 3, damaged: 2, tokens: 4096 });
  assert.equal(tierTitle(disk), 'Disk');
  assert.equal(tierTitle(of('shared')), 'Shared store');
  assert.equal(tierFacts(disk), '3 GiB of 48 GiB · 1,234 objects · 120 hits, 3 misses, 2 damaged · 4,096 tokens brought');
  assert.equal(tierFacts(of('shared')), '0 hits, 0 misses · 0 tokens brought');
  assert.equal(tierFacts(of('shared', { objects: 1, bytes: 2048 })), '2 KiB · 1 object · 0 hits, 0 misses · 0 tokens brought');
  assert.deepEqual(tierState(disk), { text: 'working', bad: false });
  assert.deepEqual(tierState(of('disk', { working: false, problem: '/var/quire: no space left' })), { text: '/var/quire: no space left', bad: true });
  assert.deepEqual(tierState(of('disk', { working: false })), { text: 'not working', bad: true }, 'the problem is not for everybody');
  assert.equal(describeTierCell(disk, 2), 'Disk: each cell stands for 1 GiB. This one is filled.');
  assert.equal(describeTierCell(disk, 3), 'Disk: each cell stands for 1 GiB. This one is free.');
  assert.equal(describeTierCell(of('shared', { objects: 1 }), 0), 'Shared store: each cell stands for 1 object. This one is filled.');
  assert.match(describeTierCell(of('shared'), 0), /does not say how full/);
});

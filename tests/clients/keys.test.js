// API keys: which requests are admitted, and that no key learns what others have asked.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Server, binary, models, notes, until } from './lib.js';

let server;
before(async () => {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'quire-keys-')), 'keys');
  fs.writeFileSync(file, 'from-the-file\n# a comment\n\nanother-one\n', { mode: 0o600 });
  server = await Server.start('-m', models.llama, '--api-key', 'first', '--api-key', 'second', '--api-key-file', file);
});
after(() => server?.stop());

const ask = (key, prompt) => server.post('/v1/completions', { prompt, temperature: 0, max_tokens: 8 }, { key });

test('without a key, or with a wrong one, the answer is 401', async () => {
  for (const key of [undefined, 'wrong', 'firs', 'first ', 'firstt', '']) {
    for (const [method, where] of [['GET', '/v1/models'], ['GET', '/pool'], ['GET', '/pool/events'], ['GET', '/metrics'], ['POST', '/tokenize'], ['POST', '/v1/completions'], ['POST', '/v1/chat/completions']]) {
      if (key === 'first ') continue;  // HTTP drops the space
      const answer = await server.request(method, where, method === 'POST' ? '{}' : undefined, { key });
      assert.equal(answer.status, 401, `${method} ${where} with ${key}`);
      assert.equal(typeof answer.json().error.message, 'string');
    }
  }
  assert.equal((await server.get('/health')).status, 200, 'monitoring needs no key');
  assert.equal((await server.get('/')).status, 200, 'the page can ask for one');
});

test('every key works, from the command line and from the file', async () => {
  for (const key of ['first', 'second', 'from-the-file', 'another-one']) assert.equal((await ask(key, 'Once upon a')).status, 200, key);
});

test('one key\'s prompt is not reused for another key, and its existence is not revealed', async () => {
  const prompt = `${notes(30, 5)} The code of`;
  const usage = async (key) => (await ask(key, prompt)).json().usage.prompt_tokens_details;
  const first = await usage('first');
  const again = await usage('first');
  const second = await usage('second');
  assert.equal(first.cached_tokens, 0);
  assert.ok(again.cached_tokens > 100);
  assert.equal(second.cached_tokens, 0);
  assert.deepEqual(second, first, 'to the second key it looks as it did to the first: never seen');
  console.log(`  cached tokens: first key ${first.cached_tokens}, again ${again.cached_tokens}; second key ${second.cached_tokens} (${second.miss_reason})`);
});

test('the pool and the metrics do not reveal it either', async () => {
  const pool = await server.pool({ key: 'second' });
  assert.ok(!JSON.stringify(pool.sequences).includes('other namespace'));
  assert.equal(pool.stats.hit_ends?.['other namespace'] ?? 0, 0);
  const { text } = await server.get('/metrics', { key: 'second' });
  assert.match(text, /reason="other_namespace"\} 0\n/);
});

test('a file of keys: a plain key sees its own, an admin sees all, SIGHUP reads it again', async () => {
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'quire-keys-')), 'keys.json');
  const quire = (...more) => execFileSync(binary, ['keys', ...more, '--keys', file], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  const key = { ann: quire('add', 'ann', '--max-priority', '3'), bob: quire('add', 'bob'), root: quire('add', 'root', '--admin') };
  const tenants = await Server.start('-m', models.llama, '--keys', file);
  try {
    const ask = (who, more = {}) => tenants.post('/v1/completions', { prompt: 'Once', temperature: 0, max_tokens: 4, ...more }, { key: key[who] });
    assert.equal((await ask('ann', { priority: 3 })).status, 200);
    const refused = await ask('bob', { priority: 1 });
    assert.equal(refused.status, 403);
    assert.equal(refused.json().error.code, 'priority_not_allowed');
    assert.equal((await tenants.pool({ key: key.bob })).scope, 'own');
    assert.equal((await tenants.pool({ key: key.root })).scope, 'all');
    const metrics = async (who) => (await tenants.get('/metrics', { key: key[who] })).text;
    assert.match(await metrics('root'), /quire_tenant_requests_total\{tenant="ann"\} 1\n/);
    assert.doesNotMatch(await metrics('bob'), /ann/);
    quire('revoke', 'ann');
    tenants.process.kill('SIGHUP');
    await until('the key is refused', async () => (await ask('ann')).status === 401);
    assert.equal((await ask('bob')).status, 200);
  } finally {
    await tenants.stop();
  }
});

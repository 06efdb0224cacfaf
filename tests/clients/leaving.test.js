// Clients that are killed, and a server that is told to stop while it works.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';
import { Server, models, notes, seconds, sleep, stream } from './lib.js';

// Deterministic, so that a failure can be reproduced.
function random(seed) {
  let state = seed;
  return () => { state = (state * 1103515245 + 12345) % 2 ** 31; return state / 2 ** 31; };
}

for (const [name, options] of [['attention', ['-m', models.llama]], ['hybrid', ['-m', models.hybrid]]]) {
  test(`clients killed at random for ${Math.ceil(seconds / 2)} seconds (${name}): nothing is held afterwards`, { timeout: 120_000 }, async () => {
    const server = await Server.start(...options);
    try {
      const next = random(7);
      const end = Date.now() + 1000 * Math.ceil(seconds / 2);
      let killed = 0, finished = 0;
      async function client() {
        while (Date.now() < end) {
          const body = JSON.stringify({ prompt: `${notes(Math.floor(next() * 40), Math.floor(next() * 5))} Once`, max_tokens: 1 + Math.floor(next() * 200), stream: next() < 0.7, ignore_eos: next() < 0.5, n: next() < 0.2 ? 3 : 1 });
          const curl = spawn('curl', ['-sSN', '-o', '/dev/null', `${server.url}/v1/completions`, '-d', body], { stdio: 'ignore' });
          const timer = setTimeout(() => { curl.kill('SIGKILL'); ++killed; }, 20 + next() * 600);
          await new Promise((resolve) => curl.on('exit', (code) => { clearTimeout(timer); finished += code === 0; resolve(); }));
        }
      }
      await Promise.all(Array.from({ length: 24 }, client));
      await server.comesToRest();
      const { stats } = await server.pool();
      console.log(`  ${killed} clients killed, ${finished} answered; ${stats.cancelled} requests cancelled, ${await server.held()} pages or states held, integrity ${stats.integrity}`);
      assert.ok(killed > 20);
      assert.ok(stats.cancelled > 0);
      assert.equal(await server.held(), 0);
    } finally {
      await server.stop();
    }
  });
}

test('SIGTERM under load: the server ends within the grace time, and every stream ends with a reason', { timeout: 60_000 }, async () => {
  const server = await Server.start('-m', models.llama, '--grace', '2');
  let over = false;
  const results = [], refused = [];
  async function client(i) {
    while (!over) {
      try {
        const got = await stream(server, '/v1/completions', { prompt: `${notes(5, i)} Once`, max_tokens: i % 2 ? 40 : 1800, ignore_eos: true });
        results.push(got);
      } catch (error) {
        refused.push(error);
        over = true;
      }
    }
  }
  const clients = Array.from({ length: 32 }, (_, i) => client(i));
  await sleep(1500);
  const began = Date.now();
  server.process.kill('SIGTERM');
  const how = await server.ended;
  const took = Date.now() - began;
  over = true;
  await Promise.all(clients);
  const streams = results.filter((got) => got.status === 200);
  const complete = streams.filter((got) => got.done && got.finish);
  const cut = streams.filter((got) => !got.finish);
  const unexplained = cut.filter((got) => !got.error);
  console.log(`  ended after ${took} ms with code ${how.code}; ${streams.length} streams: ${complete.length} complete, ${cut.length} ended with an error that says so, ${unexplained.length} unexplained; `
    + `${results.length - streams.length} refused, ${refused.length} not connected any more`);
  assert.equal(how.signal, null);
  assert.equal(how.code, 0);
  assert.ok(took < 5000, `${took} ms`);
  assert.equal(unexplained.length, 0);
  for (const got of cut) assert.ok(got.error.message.length > 5);
  for (const error of refused) assert.match(error.code ?? error.message, /ECONNREFUSED|ECONNRESET|EPIPE|hang up/);
  for (const got of results) if (got.status !== 200) assert.equal(got.status, 503);
});

test('SIGTERM when idle ends at once, and silent connections do not delay it', async () => {
  const server = await Server.start('-m', models.llama);
  const response = await fetch(`${server.url}/pool/events`);
  const reader = response.body.getReader();
  await reader.read();
  const began = Date.now();
  assert.deepEqual(await server.stop(), { code: 0, signal: null });
  assert.ok(Date.now() - began < 3000);
  await reader.read().catch(() => {});
});

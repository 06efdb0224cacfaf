// Two hundred streaming clients: every answer is the same as without load, and memory does not grow.
// QUIRE_SECONDS (10) sets the duration; `./run --seconds 60` sets it.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { Server, models, notes, quantile, seconds, sleep, stream } from './lib.js';

const CLIENTS = 200;
let server;
before(async () => { server = await Server.start('-m', models.llama, '--queue', '512'); });
after(() => server?.stop());

// Short and long prompts, some with a common prefix, some sampled and some greedy.
const asked = Array.from({ length: 40 }, (_, i) => ({
  prompt: i % 4 === 0 ? `${notes(20)} The code of ${['Mia', 'Tom', 'Zoe', 'Max'][(i / 4) % 4]} is` : `${notes(i % 7, i)} Once upon a time there was a`,
  max_tokens: 8 + (i * 5) % 40, temperature: i % 3 === 0 ? 0 : 0.9, seed: i, ignore_eos: i % 5 === 0,
}));

test(`${CLIENTS} clients for ${seconds} seconds`, { timeout: (seconds + 240) * 1000 }, async () => {
  const alone = [];
  for (const body of asked) {
    const answer = await server.complete(body);
    alone.push({ text: answer.choices[0].text, finish: answer.choices[0].finish_reason, tokens: answer.usage.completion_tokens });
  }

  const agent = new http.Agent({ keepAlive: true, maxSockets: CLIENTS });
  const began = performance.now();
  const end = began + seconds * 1000;
  const firsts = [], problems = [];
  let answers = 0, tokens = 0, cached = 0, prompt = 0;
  async function client(number) {
    for (let turn = number; performance.now() < end; turn += 7) {
      const i = turn % asked.length;
      const started = performance.now();
      try {
        const got = await stream(server, '/v1/completions', asked[i], { agent });
        if (got.error) problems.push(`${i}: ${JSON.stringify(got.error)}`);
        else if (!got.done) problems.push(`${i}: the stream ended without [DONE]`);
        else if (got.text !== alone[i].text) problems.push(`${i}: ${JSON.stringify(got.text)} is not ${JSON.stringify(alone[i].text)}`);
        else if (got.finish !== alone[i].finish) problems.push(`${i}: ended by ${got.finish}, not ${alone[i].finish}`);
        else if (got.usage.completion_tokens !== alone[i].tokens) problems.push(`${i}: ${got.usage.completion_tokens} tokens, not ${alone[i].tokens}`);
        else {
          ++answers;
          tokens += alone[i].tokens;
          cached += got.usage.prompt_tokens_details.cached_tokens;
          prompt += got.usage.prompt_tokens;
          if (got.times.length) firsts.push(got.times[0] - started);
        }
      } catch (error) {
        problems.push(`${i}: ${error.message}`);
      }
    }
  }

  const resident = [];
  const watch = setInterval(() => resident.push({ at: (performance.now() - began) / 1000, bytes: server.resident() }), 500);
  await Promise.all(Array.from({ length: CLIENTS }, (_, i) => client(i)));
  clearInterval(watch);
  const took = (performance.now() - began) / 1000;
  agent.destroy();

  const settled = resident.filter(({ at }) => at >= Math.min(10, seconds / 2)).map(({ bytes }) => bytes);
  const least = Math.min(...settled), most = Math.max(...settled);
  const mib = (bytes) => (bytes / 2 ** 20).toFixed(1);
  console.log(`  ${answers} answers, ${tokens} tokens in ${took.toFixed(1)} s (${Math.round(tokens / took)} a second); first token after ${Math.round(quantile(firsts, 0.5))} ms, `
    + `99 of 100 within ${Math.round(quantile(firsts, 0.99))} ms; ${Math.round((100 * cached) / prompt)} % of the prompt tokens reused`);
  console.log(`  resident from second ${Math.min(10, seconds / 2)} on: ${mib(least)} to ${mib(most)} MiB`);
  assert.deepEqual(problems.slice(0, 5), [], `${problems.length} problems`);
  assert.ok(answers >= CLIENTS);
  assert.ok(most - least <= 0.03 * least + (2 << 20), `memory grew from ${mib(least)} to ${mib(most)} MiB`);
  await server.comesToRest();
  await sleep(10);
});

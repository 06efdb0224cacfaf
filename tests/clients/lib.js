// Shared by the tests: start a server, send plain requests, inspect its pool.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const binary = path.resolve(process.env.QUIRE ?? path.join(root, 'build/release/src/cli/quire'));
export const artefacts = path.resolve(process.env.QUIRE_ARTEFACTS ?? path.join(root, 'build/artefacts'));
export const models = {
  llama: path.join(root, 'models/quire-demo-llama-q8_0.gguf'),
  hybrid: path.join(root, 'models/quire-demo-hybrid-q8_0.gguf'),
  mamba2: path.join(root, 'models/quire-demo-mamba2-q8_0.gguf'),
};
export const seconds = Number(process.env.QUIRE_SECONDS ?? 10);
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Why this Node.js is too old for a package whose `engines` field is `range` (">=22.0.0"), or null. Only the form with >= is
// understood; other forms never skip a test.
export function missingNode(range, version = process.version) {
  const wanted = range?.match(/^>=\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?/)?.slice(1).map((part) => Number(part ?? 0));
  if (!wanted) return null;
  const have = version.replace(/^v/, '').split('.').map(Number);
  const differs = wanted.findIndex((part, i) => part !== have[i]);
  return differs >= 0 && have[differs] < wanted[differs] ? `needs Node.js ${wanted.join('.')} or newer; this is ${version}` : null;
}

export async function until(what, condition, timeout = 20_000) {
  const end = Date.now() + timeout;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${what}: not within ${timeout / 1000} s`);
    await sleep(50);
  }
}

// A separate server on a free port. `output` is everything it has printed.
export class Server {
  static async start(...options) {
    const server = new Server();
    server.process = spawn(binary, ['serve', ...(options.includes('--port') ? [] : ['--port', '0']), ...options], { stdio: ['ignore', 'pipe', 'pipe'] });
    server.output = '';
    for (const stream of [server.process.stdout, server.process.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => { server.output += text; });
    }
    server.ended = once(server.process, 'exit').then(([code, signal]) => ({ code, signal }));
    let gone = null;
    server.ended.then((how) => { gone = how; });
    await until('the server says its address', () => {
      if (gone) throw new Error(`the server ended (${JSON.stringify(gone)}): ${server.output}`);
      return /listening on \S+\n/.test(server.output);
    }, 60_000);
    server.url = server.output.match(/https?:\/\/[^\s/]+/)[0];
    server.port = Number(new URL(server.url).port);
    return server;
  }

  // From now on the server runs only two of every forty milliseconds, like on a slower machine. Otherwise the demo model
  // would finish an answer before the browser shows it.
  slowed() {
    this.slow = setInterval(() => {
      this.process.kill('SIGCONT');
      setTimeout(() => { if (this.slow) this.process.kill('SIGSTOP'); }, 2);
    }, 40);
    return this;
  }

  // At its own speed again.
  unslowed() {
    clearInterval(this.slow);
    this.slow = null;
    this.process.kill('SIGCONT');
    return this;
  }

  async stop() {
    this.unslowed();
    if (this.process.exitCode === null && this.process.signalCode === null) this.process.kill('SIGTERM');
    const late = setTimeout(() => this.process.kill('SIGKILL'), 20_000);
    const how = await this.ended;
    clearTimeout(late);
    return how;
  }

  // Plain HTTP. The answer has status, headers, text and json().
  async request(method, where, body, { headers = {}, key } = {}) {
    const text = body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
    return new Promise((resolve, reject) => {
      const request = http.request(`${this.url}${where}`, {
        method, agent: false,
        headers: { ...(text !== undefined && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
          ...(key && { authorization: `Bearer ${key}` }), ...headers },
      }, (response) => {
        const pieces = [];
        response.on('data', (piece) => pieces.push(piece)).on('error', reject).on('end', () => {
          const whole = Buffer.concat(pieces).toString('utf8');
          resolve({ status: response.statusCode, headers: response.headers, text: whole, json: () => JSON.parse(whole) });
        });
      });
      request.on('error', reject);
      request.end(text);
    });
  }

  get(where, options) { return this.request('GET', where, undefined, options); }
  post(where, body, options) { return this.request('POST', where, body, options); }

  async complete(body, options) {
    const answer = await this.post('/v1/completions', body, options);
    if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`);
    return answer.json();
  }

  async pool(options) { return (await this.get('/pool', options)).json(); }

  // Pages and states that sequences hold.
  async held(options) {
    const pool = await this.pool(options);
    return pool.groups.reduce((sum, group) => sum + group.held, 0) + (pool.states?.held ?? 0);
  }

  // Waits until nothing runs, nothing is held, and the pool was checked. The server checks its pool when it is idle.
  async comesToRest(options) {
    await until('nothing runs and nothing is held', async () => {
      const pool = await this.pool(options);
      return pool.sequences.length === 0 && pool.groups.every((group) => group.held === 0) && (pool.states?.held ?? 0) === 0;
    });
    return until('the pool is sound', async () => {
      const { stats } = await this.pool(options);
      if (!['sound', 'unchecked'].includes(stats.integrity)) throw new Error(`integrity: ${stats.integrity}`);
      return stats.integrity === 'sound';
    }, 30_000);
  }

  resident() { return residentBytes(this.process.pid); }
}

export function residentBytes(pid) {
  return 1024 * Number(fs.readFileSync(`/proc/${pid}/status`, 'utf8').match(/VmRSS:\s+(\d+)/)[1]);
}

// Streams a completion over its own connection. Calls `onChunk` with each event's JSON. Resolves to the result:
// {text, finish, usage, error, done, times}. `abort` (an AbortSignal) closes the connection.
export function stream(server, where, body, { key, onChunk = () => {}, agent = false, abort } = {}) {
  return new Promise((resolve, reject) => {
    const payload = JSON.stringify({ stream: true, stream_options: { include_usage: true }, ...body });
    const result = { status: 0, text: '', finish: null, usage: null, error: null, done: false, times: [], chunks: 0, headers: null };
    const request = http.request(`${server.url}${where}`, {
      method: 'POST', agent, signal: abort,
      headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload), ...(key && { authorization: `Bearer ${key}` }) },
    }, (response) => {
      result.status = response.statusCode;
      result.headers = response.headers;
      let rest = '';
      response.setEncoding('utf8');
      response.on('data', (piece) => {
        const events = (rest + piece).split('\n\n');
        rest = events.pop();
        for (const event of events) {
          if (!event.startsWith('data: ')) continue;
          const data = event.slice(6);
          if (data === '[DONE]') { result.done = true; continue; }
          const chunk = JSON.parse(data);
          if (chunk.error) { result.error = chunk.error; continue; }
          if (chunk.usage) result.usage = chunk.usage;
          const choice = chunk.choices?.[0];
          if (choice) {
            const text = choice.text ?? choice.delta?.content ?? '';
            if (text) { result.text += text; result.times.push(performance.now()); ++result.chunks; }
            if (choice.finish_reason) result.finish = choice.finish_reason;
          }
          onChunk(chunk, result);
        }
      });
      response.on('end', () => {
        if (result.status !== 200) { try { result.error = JSON.parse(rest).error; } catch { result.error = { message: rest }; } }
        resolve(result);
      });
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(payload);
  });
}

export const quantile = (values, q) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * q))];

// A text of about this many tokens, in words that the demo models know. `about` makes texts differ from the start.
export function notes(lines, about = 0) {
  const names = 'Mia Tom Anna Ben Lily Sam Ella Max Zoe Leo Ruby Finn Nora Jack Ivy Noah'.split(' ');
  return Array.from({ length: lines }, (_, i) => `The code of ${names[(i * 7 + about) % 16]} is ${1000 + ((i + 1) * 7919 + about * 613) % 9000}.`).join(' ');
}

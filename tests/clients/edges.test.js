// The server's edges with real clients: streams that wait, TLS, a Unix socket, the log, clients that leave at once.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { Server, missingNode, models, sleep, until } from './lib.js';

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'quire-edges-'));

for (const name of ['openai-4', 'openai-6', 'openai']) {
  const { version, engines } = JSON.parse(fs.readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url)));
  test(`openai ${version} ignores the comments in a stream that waits`, { skip: missingNode(engines?.node) ?? false }, async () => {
    const { default: OpenAI } = await import(name);
    const server = await Server.start('-m', models.llama, '--max-sequences', '1', '--stream-keep-alive', '0.01');
    try {
      const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
      const busy = server.post('/v1/completions', { prompt: 'Once', max_tokens: 1500, ignore_eos: true });
      await until('it runs', async () => (await server.pool()).stats.running === 1);
      // What a plain client sees in the same place of the queue.
      const seen = server.post('/v1/completions', { prompt: 'Once', max_tokens: 2, stream: true, temperature: 0 });
      let text = '', last = null;
      for await (const chunk of await client.completions.create({ model: 'default', prompt: 'Once upon a', max_tokens: 4, temperature: 0, stream: true })) {
        text += chunk.choices[0]?.text ?? '';
        last = chunk.choices[0]?.finish_reason ?? last;
      }
      assert.match(text, /^ time/);
      assert.equal(last, 'length');
      assert.match((await seen).text, /^: waiting\n\n/);
      await busy;
    } finally {
      await server.stop();
    }
  });
}

test('30 clients that leave right after sending: nothing is computed for nobody', async () => {
  const server = await Server.start('-m', models.llama);
  try {
    const body = JSON.stringify({ prompt: 'Once upon a time', max_tokens: 1500, ignore_eos: true });
    const request = `POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    await Promise.all(Array.from({ length: 30 }, async () => {
      const socket = net.connect(server.port, '127.0.0.1').on('error', () => {});
      await once(socket, 'connect');
      await new Promise((resolve) => socket.write(request, resolve));
      socket.resetAndDestroy();
    }));
    await server.comesToRest();
    const { stats } = await server.pool();
    console.log(`  ${stats.submitted} of 30 reached the engine, ${stats.cancelled} were cancelled, ${stats.generated_tokens} of 45,000 tokens were computed`);
    assert.equal(stats.finished, 0);
    assert.ok(stats.generated_tokens < 4500, `${stats.generated_tokens} tokens`);
  } finally {
    await server.stop();
  }
});

test('TLS: Node.js and curl trust the certificate, and SIGHUP reads a new one', async (t) => {
  const file = (name) => path.join(folder, name);
  const make = (name) => execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', `/CN=${name}`,
    '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1', '-keyout', file('key'), '-out', file('pem')], { stdio: 'ignore' });
  try { make('first'); } catch { return t.skip('there is no openssl command'); }
  const server = await Server.start('-m', models.llama, '--tls-cert', file('pem'), '--tls-key', file('key'));
  try {
    assert.match(server.url, /^https:/);
    const ask = (body) => new Promise((resolve, reject) => {
      const request = https.request(`${server.url}/v1/completions`, { method: 'POST', agent: false, ca: fs.readFileSync(file('pem')) }, (response) => {
        const { CN } = response.socket.getPeerCertificate().subject;
        const protocol = response.socket.getProtocol();
        let text = '';
        response.setEncoding('utf8').on('data', (piece) => { text += piece; }).on('end', () => resolve({ text, CN, protocol })).on('error', reject);
      });
      request.on('error', reject).end(JSON.stringify(body));
    });
    const streamed = await ask({ prompt: 'Once upon a', max_tokens: 200, temperature: 0, stream: true, ignore_eos: true });
    assert.ok(streamed.text.endsWith('data: [DONE]\n\n'));
    assert.equal(streamed.protocol, 'TLSv1.3');
    const curl = execFileSync('curl', ['-sS', '--cacert', file('pem'), `${server.url}/health`, `${server.url}/v1/models`], { encoding: 'utf8' });
    assert.match(curl, /"status":"ok".*"object":"list"/);
    make('second');
    server.process.kill('SIGHUP');
    await until('the new certificate', () => /read the certificate .* again/.test(server.output));
    assert.equal((await ask({ prompt: 'Once', max_tokens: 1 })).CN, 'second');
    fs.writeFileSync(file('pem'), 'broken');
    server.process.kill('SIGHUP');
    await until('the complaint', () => /the certificate stays as it was: .*not a certificate/.test(server.output));
  } finally {
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
  }
});

test('a Unix socket beside a port, private, and gone at the end', async () => {
  const socketPath = path.join(folder, 'quire.sock');
  const server = await Server.start('-m', models.llama, '--port', '0', '--unix', socketPath);
  assert.match(server.output, /listening on unix:/);
  assert.equal(fs.statSync(socketPath).mode & 0o777, 0o600);
  const answer = await new Promise((resolve, reject) => {
    http.get({ socketPath, path: '/v1/models' }, (response) => resolve(response.resume().statusCode)).on('error', reject);
  });
  assert.equal(answer, 200);
  assert.equal((await server.get('/health')).status, 200);
  await server.stop();
  assert.equal(fs.existsSync(socketPath), false);
});

test('the log has a JSON object for each request, and neither prompt nor key', async () => {
  const server = await Server.start('-m', models.llama, '--log-format', 'json', '--api-key', 'hush-hush');
  await server.post('/v1/completions', { prompt: 'Once upon a', max_tokens: 3, ignore_eos: true }, { key: 'hush-hush' });
  await server.post('/v1/completions', { prompt: 'Once upon a' }, { key: 'wrong-key' });
  await sleep(50);
  await server.stop();
  const lines = server.output.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
  const [good, bad] = lines.filter((line) => line.path === '/v1/completions');
  assert.deepEqual([good.status, good.prompt_tokens, good.completion_tokens, good.finish, good.left, good.tenant], [200, 3, 3, 'length', false, 'api-key-1']);
  assert.equal(bad.status, 401);
  assert.ok(lines.some((line) => line.level === 'info'));
  for (const never of ['Once', 'hush', 'wrong-key']) assert.ok(!server.output.includes(never), never);
});

test('a page whose name resolves to this machine is refused', async () => {
  const server = await Server.start('-m', models.llama, '--allowed-host', 'llm.example');
  try {
    for (const [host, status] of [['rebound.example', 403], ['llm.example', 200], [`localhost:${server.port}`, 200]]) {
      assert.equal((await server.get('/v1/models', { headers: { host } })).status, status, host);
    }
  } finally {
    await server.stop();
  }
});

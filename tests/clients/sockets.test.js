// Input that no well-behaved client sends: curl and raw sockets.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { Server, models, sleep, until } from './lib.js';

const run = promisify(execFile);
const MAX_BODY = 1 << 20;
let server;
before(async () => {
  server = await Server.start('-m', models.llama, '--max-body', '1M', '--max-header', '16K', '--header-timeout', '2', '--body-timeout', '3', '--idle-timeout', '60', '--max-connections', '2000');
});
after(() => server?.stop());

// A connection, the bytes it received, and whether the server has closed it.
function dial() {
  return new Promise((resolve, reject) => {
    const socket = net.connect(server.port, '127.0.0.1');
    const peer = { socket, text: '', ended: false, closed: false };
    socket.setEncoding('utf8').on('data', (text) => { peer.text += text; }).on('end', () => { peer.ended = true; });
    socket.on('close', () => { peer.closed = peer.ended = true; }).on('error', (error) => { peer.error = error; reject(error); });
    socket.on('connect', () => resolve(peer));
  });
}
const statuses = (text) => [...text.matchAll(/HTTP\/1\.1 (\d+) /g)].map((match) => Number(match[1]));
const post = (body, where = '/v1/completions', more = '') => `POST ${where} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n${more}\r\n${body}`;
const small = JSON.stringify({ prompt: 'Once upon a', max_tokens: 2, temperature: 0 });
const alive = async () => assert.equal((await server.get('/health')).status, 200);

test('curl as in the README', async () => {
  const { stdout } = await run('curl', ['-sS', '--max-time', '20', `${server.url}/v1/chat/completions`, '-H', 'Content-Type: application/json',
    '-d', '{"messages": [{"role": "user", "content": "What is a quire?"}], "temperature": 0}']);
  assert.match(JSON.parse(stdout).choices[0].message.content, /stack of pages/);
});

test('curl -N sees the pieces as they come', async () => {
  const { stdout } = await run('curl', ['-sSN', '--max-time', '20', `${server.url}/v1/completions`, '-d', '{"prompt": "Once", "stream": true, "max_tokens": 5, "temperature": 0, "ignore_eos": true}']);
  assert.ok(stdout.trim().endsWith('data: [DONE]'));
  assert.ok(stdout.split('\n\n').length >= 6);
});

test('curl: HEAD, If-None-Match, Expect: 100-continue, an upload in chunks', async () => {
  const head = (await run('curl', ['-sSI', `${server.url}/`])).stdout;
  assert.match(head, /^HTTP\/1\.1 200/);
  assert.match(head, /content-security-policy: default-src 'self';/i);
  const tag = head.match(/etag: (\S+)/i)[1];
  assert.match((await run('curl', ['-sSi', '-H', `If-None-Match: ${tag}`, `${server.url}/`])).stdout, /^HTTP\/1\.1 304/);
  const large = JSON.stringify({ prompt: 'Once upon a', max_tokens: 2, temperature: 0, padding: 'x'.repeat(4000) });
  const expecting = await run('curl', ['-sSi', '-H', 'Expect: 100-continue', '-d', large, `${server.url}/v1/completions`]);
  assert.ok(statuses(expecting.stdout).includes(200));
  const chunked = await run('curl', ['-sS', '-H', 'Transfer-Encoding: chunked', '-d', small, `${server.url}/v1/completions`]);
  assert.equal(JSON.parse(chunked.stdout).choices[0].text.slice(0, 5), ' time');
});

test('headers that come too slowly time out', async () => {
  const peer = await dial();
  peer.socket.write('POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n');
  const began = Date.now();
  const drip = setInterval(() => { if (!peer.ended) peer.socket.write('x'); }, 200);
  peer.socket.on('error', () => {});
  await until('the server hangs up', () => peer.ended, 8000);
  clearInterval(drip);
  const took = Date.now() - began;
  assert.ok(took > 1000 && took < 6000, `after ${took} ms`);
  if (peer.text) assert.deepEqual(statuses(peer.text), [408]);
  await alive();
});

test('a body that never comes times out', async () => {
  const peer = await dial();
  peer.socket.on('error', () => {});
  peer.socket.write('POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"prompt"');
  await until('the server hangs up', () => peer.ended, 10_000);
  if (peer.text) assert.deepEqual(statuses(peer.text), [408]);
  await alive();
});

test('oversized headers are refused', async () => {
  for (const head of [`GET /${'a'.repeat(40_000)} HTTP/1.1\r\nHost: localhost\r\n\r\n`, `GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ${'a'.repeat(40_000)}\r\n\r\n`]) {
    const peer = await dial();
    peer.socket.on('error', () => {});
    peer.socket.write(head);
    await until('an answer', () => peer.ended, 5000);
    if (peer.text) assert.ok([431, 414, 400].includes(statuses(peer.text)[0]), peer.text.slice(0, 100));
  }
  await alive();
});

test('oversized bodies are refused, announced or in chunks, before they are read', async () => {
  const announced = await dial();
  announced.socket.on('error', () => {});
  announced.socket.write(`POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${MAX_BODY * 1000}\r\n\r\n`);
  await until('an answer', () => announced.text.includes('\r\n\r\n') || announced.ended, 5000);
  assert.deepEqual(statuses(announced.text), [413]);
  const chunked = await dial();
  chunked.socket.on('error', () => {});
  chunked.socket.write('POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n');
  const piece = `10000\r\n${'x'.repeat(0x10000)}\r\n`;
  for (let i = 0; i < 64 && !chunked.ended; ++i) { chunked.socket.write(piece); await sleep(2); }
  await until('an answer', () => chunked.text.includes('\r\n\r\n') || chunked.ended, 5000);
  if (chunked.text) assert.deepEqual(statuses(chunked.text), [413]);
  await alive();
});

test('an incomplete request and a disconnect leave nothing behind', async () => {
  const requests = [post(small), post(JSON.stringify({ prompt: 'Once upon a', max_tokens: 500, stream: true, ignore_eos: true }))];
  for (const text of requests) {
    for (const share of [0.05, 0.3, 0.6, 0.9, 0.99, 1]) {
      for (const how of ['end', 'destroy', 'resetAndDestroy']) {
        const peer = await dial();
        peer.socket.on('error', () => {});
        peer.socket.write(text.slice(0, Math.floor(text.length * share)));
        await sleep(5);
        (peer.socket[how] ?? peer.socket.destroy).call(peer.socket);
      }
    }
  }
  await server.comesToRest();
});

test('a client that closes its sending side still gets its answer', async () => {
  const peer = await dial();
  peer.socket.on('error', () => {});
  peer.socket.end(post(small, '/v1/completions', 'Connection: close\r\n'));
  await until('the end', () => peer.ended, 10_000);
  // The server may treat a half-closed connection as a client that has gone away. If it answers, it answers in full.
  if (peer.text) assert.ok(statuses(peer.text)[0] === 200 && peer.text.includes('" time'), peer.text);
});

test('pipelined requests are answered in order, each in full', async () => {
  const peer = await dial();
  const ids = [[899], [899, 898], [899, 898, 261]];
  peer.socket.write(ids.map((prompt) => post(JSON.stringify({ prompt, max_tokens: 1 }))).join('') + 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n');
  await until('the end', () => peer.ended, 20_000);
  assert.deepEqual(statuses(peer.text), [200, 200, 200, 200, 404]);
  assert.deepEqual([...peer.text.matchAll(/"prompt_tokens":(\d+)/g)].map((match) => Number(match[1])), [1, 2, 3]);
});

test('a connection is kept, for streams too', async () => {
  const peer = await dial();
  for (let i = 1; i <= 3; ++i) {
    peer.socket.write(post(JSON.stringify({ prompt: 'Once', max_tokens: 3, stream: true, ignore_eos: true })));
    await until('the stream ends', () => peer.text.split('data: [DONE]').length === i + 1 && peer.text.endsWith('0\r\n\r\n'), 10_000);
    assert.equal(peer.ended, false);
  }
  peer.socket.destroy();
});

// openai 4 uses node-fetch 2, which says "Premature close" if a socket still has a listener after a stream. With the
// Node.js 18 of Debian 12 every kept socket has one (nodejs/node#63989).
test('a stream is the last on its connection for clients over node-fetch 2', async () => {
  for (const agent of ['OpenAI/JS 4.104.0', 'node-fetch/1.0 (+https://github.com/bitinn/node-fetch)']) {
    const peer = await dial();
    peer.socket.write(post(small, '/v1/completions', `User-Agent: ${agent}\r\n`));
    await until('an answer', () => peer.text.includes('"usage"'), 10_000);
    assert.match(peer.text, /^connection: keep-alive\r$/im);
    assert.equal(peer.ended, false);
    peer.text = '';
    peer.socket.write(post(JSON.stringify({ prompt: 'Once', max_tokens: 3, stream: true, ignore_eos: true }), '/v1/completions', `User-Agent: ${agent}\r\n`));
    await until('the server ends the connection', () => peer.ended, 10_000);
    assert.match(peer.text, /^connection: close\r$/im);
    assert.match(peer.text, /^transfer-encoding: chunked\r$/im);
    assert.ok(peer.text.endsWith('data: [DONE]\n\n\r\n0\r\n\r\n'), 'the stream has its end');
  }
});

test('invalid UTF-8 and invalid JSON are refused with a message', async () => {
  const bodies = [Buffer.from([0x7b, 0x22, 0x70, 0x22, 0x3a, 0x22, 0xff, 0xfe, 0x22, 0x7d]), Buffer.from('{"prompt": "\xc3\x28"}', 'latin1'), Buffer.from('{"prompt": "\xed\xa0\x80", "max_tokens": 1}', 'latin1'),
    '', '{', '{"prompt": "x"', '[]', 'null', '7', '"x"', '{"prompt": "x",}', '{"prompt": "x"} trailing', '{"prompt": "\\ud800"}', '{'.repeat(100_000), '['.repeat(100_000), '\0\0\0'];
  for (const where of ['/v1/completions', '/v1/chat/completions', '/tokenize', '/detokenize']) {
    for (const body of bodies) {
      const answer = await server.post(where, body);
      assert.equal(answer.status, 400, `${where} ${String(body).slice(0, 40)}: ${answer.status} ${answer.text.slice(0, 200)}`);
      const { error } = answer.json();
      assert.equal(error.type, 'invalid_request_error');
      assert.ok(error.message.length > 5);
    }
  }
  await server.comesToRest();
});

test('what is not HTTP is refused', async () => {
  const spoken = ['\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 'EHLO mail\r\n\r\n', 'GET / HTTP/9.9\r\n\r\n', 'GET /\r\n\r\n', 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n',
    'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!', 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n', 'GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n', 'GET /%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'];
  for (const text of spoken) {
    const peer = await dial();
    peer.socket.on('error', () => {});
    peer.socket.write(Buffer.from(text, 'latin1'));
    await sleep(50);
    peer.socket.end();
    await until(`an end to ${JSON.stringify(text.slice(0, 30))}`, () => peer.ended, 6000);
    for (const status of statuses(peer.text)) assert.ok((status >= 400 && status < 500) || status === 505, `${JSON.stringify(text.slice(0, 60))}: ${peer.text.slice(0, 80)}`);
  }
  await alive();
});

test('a thousand silent connections do not stop the server', async () => {
  const before = server.resident();
  const peers = [];
  for (let i = 0; i < 1000; i += 50) peers.push(...await Promise.all(Array.from({ length: 50 }, dial)));
  const began = Date.now();
  const answer = await server.post('/v1/completions', small);
  assert.equal(answer.status, 200);
  const took = Date.now() - began;
  const grown = (server.resident() - before) / peers.length;
  console.log(`  1,000 silent connections: an answer in ${took} ms; ${(grown / 1024).toFixed(1)} KiB resident for each`);
  assert.ok(took < 5000);
  assert.ok(peers.every((peer) => !peer.ended), 'they may stay');
  assert.ok(grown < 64 * 1024, `${grown} bytes for each`);
  for (const peer of peers) peer.socket.destroy();
  await alive();
});

test('a client that does not read does not delay the others, and memory does not grow', async () => {
  const deaf = await dial();
  deaf.socket.pause();
  deaf.socket.write(post(JSON.stringify({ prompt: 'Once', n: 8, max_tokens: 1500, stream: true, ignore_eos: true, logprobs: 5 })));
  await sleep(200);
  const before = server.resident();
  for (let i = 0; i < 10; ++i) assert.equal((await server.post('/v1/completions', small)).status, 200);
  const grown = server.resident() - before;
  assert.ok(grown < 32 << 20, `${grown} bytes`);
  deaf.socket.on('error', () => {});
  deaf.socket.destroy();
  await server.comesToRest();
});

test('too many connections: the extra one is refused, and the others keep working', async () => {
  const other = await Server.start('-m', models.llama, '--max-connections', '20');
  try {
    const port = other.port;
    const sockets = Array.from({ length: 40 }, () => net.connect(port, '127.0.0.1').on('error', () => {}));
    await sleep(300);
    for (const socket of sockets) socket.destroy();
    await until('it serves again', async () => (await other.get('/health').catch(() => ({}))).status === 200, 5000);
  } finally {
    await other.stop();
  }
});

test('the server does not serve files of the file system', async () => {
  for (const where of ['/etc/passwd', '//etc/passwd', '/app.js/../../../etc/passwd', '/index.html%00']) {
    const { stdout } = await run('curl', ['-sS', '--path-as-is', '-o', '/dev/null', '-w', '%{http_code}', `${server.url}${where}`]);
    assert.equal(stdout, '404', where);
  }
  assert.ok(fs.existsSync('/etc/passwd'));
});

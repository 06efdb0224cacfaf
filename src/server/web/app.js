// The page: a conversation on the left, the pool that holds it on the right. No framework and no build step.
//
// In this file: helpers · talking to the server · the conversation · the cells · the pool · the numbers · start
'use strict';

// --- helpers

const $ = (id) => document.getElementById(id);
const count = (n) => Math.round(n).toLocaleString('en-US');
const stored = (name, fallback) => {
  try { return JSON.parse(sessionStorage.getItem(name)) ?? fallback; } catch { return fallback; }
};
const store = (name, value) => {
  try { sessionStorage.setItem(name, JSON.stringify(value)); } catch { /* full or forbidden: the page works without */ }
};

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child != null));
  return element;
}

function bytes(n) {
  if (n == null) return '';
  for (const unit of ['bytes', 'KiB', 'MiB', 'GiB']) {
    if (n < 1024 || unit === 'GiB') return `${unit === 'bytes' || n >= 100 ? Math.round(n) : n.toFixed(1).replace(/\.0$/, '')} ${unit}`;
    n /= 1024;
  }
}

// A request keeps its colour: neighbours on the wheel of hues are far apart in time.
const hueOf = (request, choice = 0) => Math.round(200 + request * 137.508 + choice * 47) % 360;

const ENDS = {
  'never seen': 'the rest was never seen',
  'evicted': 'the rest had been evicted',
  'other namespace': 'the rest was never seen with this key',
  'no checkpoint': 'no recurrent state was kept any further',
  'window gone': 'the window before the rest had been given back',
  'no room': 'there was no room to hold more of it',
};

// What was found of a prompt, and why no more.
function hitInWords(found, prompt, end) {
  if (end === 'disabled') return `${count(prompt)} tokens, all of them computed: reuse is turned off`;
  if (found === 0) {
    if (end === 'evicted') return `${count(prompt)} tokens; what was known of them had been evicted`;
    if (end === 'never seen' || end === 'other namespace' || end === 'complete' || !end) return `${count(prompt)} tokens, none of them seen before`;
    return `${count(prompt)} tokens, none found in the pool: ${ENDS[end] ?? end}`;
  }
  const start = `${count(found)} of ${count(prompt)} tokens found in the pool`;
  return end === 'complete' || !end ? `${start}: all that can be` : `${start}; ${ENDS[end] ?? end}`;
}

// --- talking to the server

let apiKey = stored('quire.key', '');
let keyArrived = null;  // resolves when somebody has typed one

class ServerError extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

function request(path, options = {}) {
  const headers = { ...options.headers };
  if (apiKey) headers.authorization = `Bearer ${apiKey}`;
  return fetch(path, { ...options, headers, cache: 'no-store' });
}

// The server's own words where it has some.
async function refusal(response) {
  let message = '';
  try { message = (await response.json()).error?.message ?? ''; } catch { /* not JSON: the status has to do */ }
  const words = {
    401: apiKey ? 'The server does not know this API key.' : 'The server wants an API key.',
    404: 'The server does not know this address.',
    413: 'That is more than the server takes at once.',
    429: 'The server is busy. Try again in a moment.',
    503: 'The server is shutting down or not ready.',
  };
  const text = message && response.status !== 401 ? message : words[response.status] ?? `The server answered with status ${response.status}.`;
  return new ServerError(text[0].toUpperCase() + text.slice(1), response.status);
}

function askForKey() {
  keyArrived ??= Promise.withResolvers?.() ?? withResolvers();
  $('key-form').hidden = false;
  return keyArrived.promise;
}

function withResolvers() {
  const result = {};
  result.promise = new Promise((resolve, reject) => Object.assign(result, { resolve, reject }));
  return result;
}

// Server-sent events over fetch, which can send a key where EventSource cannot.
async function* serverSentEvents(response, onBytes = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let event = { type: 'message', data: [] };
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      onBytes();
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (let line of lines) {
        if (line.endsWith('\r')) line = line.slice(0, -1);
        if (line === '') {
          if (event.data.length) yield { type: event.type, data: event.data.join('\n') };
          event = { type: 'message', data: [] };
        } else if (line.startsWith('data:')) {
          event.data.push(line.slice(line[5] === ' ' ? 6 : 5));
        } else if (line.startsWith('event:')) {
          event.type = line.slice(6).trim();
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// --- the conversation
// A message is {role: 'user', text}, an answer {role: 'assistant', text, request, usage, ...}, a fork {kind: 'fork', prefix,
// branches, chosen} or three readers {kind: 'readers', notes, branches}, which are no part of the conversation.

const FORK_TEMPERATURE = 1.1;  // two ways that are the same would show little
const SETTINGS = { temperature: 0.8, seed: '', maxTokens: 400 };
const settings = { ...SETTINGS, ...stored('quire.settings', {}) };
let messages = stored('quire.messages', []);
let running = new Set();  // AbortControllers of answers that are being written
let model = '';

const IDEAS = ['Tell me a story about a brave fox named Ruby.', 'Remember these notes. The code of Mia is 4821. The red box holds a blue kite.',
  'Count from 17 to 25.', 'What is a quire?'];

let savedAt = 0;
function save(now = true) {
  if (!now && Date.now() - savedAt < 500) return;
  savedAt = Date.now();
  store('quire.messages', messages);
}

const spoken = (message) => (message.kind === 'fork' ? message.prefix + message.branches[message.chosen].text : message.text);
function asSent(list) {
  return list.filter((message) => message.kind !== 'readers')
    .map((message) => ({ role: message.role, content: spoken(message) }))
    .filter((message) => message.role === 'user' || message.content !== '');
}

// Streams one answer into `target` ({text, request, usage, ...}); `changed` is called as it grows. Never throws.
async function write(target, sent, changed) {
  const stopper = new AbortController();
  target.stopper = stopper;
  running.add(stopper);
  showRunning();
  Object.assign(target, { text: target.text ?? '', finish: null, error: null });
  const started = performance.now();
  try {
    const response = await request('/v1/chat/completions', {
      method: 'POST',
      signal: stopper.signal,
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model, stream: true, stream_options: { include_usage: true },
        temperature: settings.temperature, max_tokens: settings.maxTokens, ...sent,
      }),
    });
    if (!response.ok) throw await refusal(response);
    target.request = Number(response.headers.get('x-request-id')) || null;
    changed();
    let complete = false;
    for await (const { data } of serverSentEvents(response)) {
      if (data === '[DONE]') { complete = true; break; }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ServerError(chunk.error.message);
      const choice = chunk.choices?.[0];
      if (choice?.delta?.content) target.text += choice.delta.content;
      if (choice?.finish_reason) target.finish = choice.finish_reason;
      if (chunk.usage) target.usage = chunk.usage;
      changed();
    }
    if (!complete && !target.finish) throw new ServerError('The connection broke before the answer was complete.');
    target.seconds = (performance.now() - started) / 1000;
  } catch (error) {
    if (error.name === 'AbortError') target.finish = 'stopped';
    else if (error.status === 401) { target.error = error.message; askForKey(); $('key').focus(); }
    else target.error = error instanceof ServerError ? error.message : 'The server cannot be reached. Is it still running?';
  }
  running.delete(stopper);
  delete target.stopper;
  changed();
  save();
  showRunning();
}

function facts(target) {
  if (target.error) return { text: target.error, bad: true };
  if (target.stopper) return { text: '' };
  const parts = [];
  const usage = target.usage;
  if (usage) {
    parts.push(`${count(usage.completion_tokens)} tokens${target.seconds ? `, ${count(usage.completion_tokens / target.seconds)} a second` : ''}`);
    const details = usage.prompt_tokens_details;
    if (details) parts.push(hitInWords(details.cached_tokens ?? 0, usage.prompt_tokens, details.miss_reason));
  }
  if (target.finish === 'stopped') parts.push('stopped');
  if (target.finish === 'length') parts.push('ended at the limit of tokens');
  return { text: parts.join(' · ') };
}

// One answer on the page: its text, what it cost, its colour in the pool.
function answerView(target, { dot = true } = {}) {
  const text = make('div', { className: 'text' });
  const who = make('span', { className: 'dot' });
  const line = make('p', { className: 'facts' });
  const parts = { text, dot: dot ? who : null, line };
  parts.update = (root) => {
    const shown = dot ? target.text : target.text.trimStart();
    if (text.textContent !== shown) text.textContent = shown;
    const { text: words, bad } = facts(target);
    line.textContent = words;
    line.hidden = words === '';
    line.classList.toggle('bad', Boolean(bad));
    root.classList.toggle('writing', Boolean(target.stopper));
    root.setAttribute('aria-busy', String(Boolean(target.stopper)));
    if (target.request) {
      const colour = `hsl(${hueOf(target.request)} var(--held-s) var(--held-l))`;
      who.style.background = colour;
      root.style.setProperty('--tint', colour);
      root.title = `request ${target.request}`;
    }
  };
  return parts;
}

function copyButton(text) {
  const button = make('button', { type: 'button', className: 'quiet', textContent: 'Copy' });
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Copying is not allowed here';
    }
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  };
  return button;
}

function userView(message) {
  return make('li', { className: 'user text', textContent: message.text });
}

function assistantView(message) {
  const parts = answerView(message);
  const fork = make('button', {
    type: 'button', className: 'quiet', textContent: 'Fork',
    title: 'Goes on from here twice. Select a place in the answer to fork there; otherwise it is its middle, or where the writing stands.',
    onclick: () => forkAnswer(message, parts.text),
  });
  const root = make('li', { className: 'answer' }, make('div', { className: 'who' }, parts.dot, model || 'the model'), parts.text, parts.line,
    make('div', { className: 'tools' }, fork, copyButton(() => message.text)));
  message.changed = () => {
    parts.update(root);
    root.querySelector('.tools').hidden = message.text === '' && !message.stopper;
  };
  message.changed();
  return root;
}

function branchView(branch, label, { chosen = null, choose = null, group = '' } = {}) {
  const parts = answerView(branch, { dot: false });
  const root = make('div', { className: 'branch answer' }, label && make('div', { className: 'who', textContent: label }), parts.text, parts.line);
  if (choose) {
    const radio = make('input', { type: 'radio', name: group, checked: chosen, onchange: choose });
    root.append(make('label', {}, radio, 'go on with this one'));
    root.classList.toggle('chosen', chosen);
    radio.addEventListener('change', () => {
      for (const other of root.parentElement.children) other.classList.toggle('chosen', other === root);
    });
  }
  branch.changed = () => parts.update(root);
  branch.changed();
  return root;
}

function forkView(message) {
  const group = `fork-${messages.indexOf(message)}`;
  const root = make('li', { className: 'answer' }, make('div', { className: 'who', textContent: 'One beginning, two ways on' }),
    message.prefix ? make('div', { className: 'text', textContent: message.prefix }) : null,
    make('div', { className: 'branches' }, ...message.branches.map((branch, i) => branchView(branch, branch.label, {
      group, chosen: i === message.chosen, choose: () => { message.chosen = i; save(); },
    }))),
    make('div', { className: 'tools' }, copyButton(() => spoken(message))));
  return root;
}

function readersView(message) {
  return make('li', { className: 'aside' },
    make('div', { className: 'who', textContent: 'Three readers of one long text. It is read once; its pages are shared.' }),
    make('details', {}, make('summary', { textContent: `The text they share (${count(message.notes.length)} characters)` }), make('p', { textContent: message.notes })),
    make('div', { className: 'branches' }, ...message.branches.map((branch) => branchView(branch, branch.question))));
}

const views = { fork: forkView, readers: readersView, user: userView, assistant: assistantView };

function show(message) {
  $('messages').append(views[message.kind ?? message.role](message));
  $('welcome').hidden = true;
}

function showAll() {
  $('messages').replaceChildren();
  $('welcome').hidden = messages.length > 0;
  messages.forEach(show);
  toEnd(true);
}

// Stays at the end while text grows, unless somebody scrolled up to read.
let atEnd = true;
function toEnd(force = false) {
  if (force || atEnd) $('log').scrollTop = $('log').scrollHeight;
}

function showRunning() {
  $('send').hidden = running.size > 0;
  $('stop').hidden = running.size === 0;
}

function stopAll() {
  for (const stopper of running) stopper.abort();
}

const growing = (target) => () => { target.changed(); toEnd(); save(false); };
const seedFor = (i) => (settings.seed === '' ? Math.floor(Math.random() * 100_000) : Number(settings.seed) + i);

async function send(text) {
  if (running.size > 0 || text.trim() === '') return;
  notice('');
  messages.push({ role: 'user', text: text.trim() });
  show(messages.at(-1));
  const sent = { messages: asSent(messages), seed: seedFor(0) };
  const answer = { role: 'assistant', text: '' };
  messages.push(answer);
  show(answer);
  toEnd(true);
  save();
  await write(answer, sent, growing(answer));
}

// Where in the answer the fork begins: what is selected, else where the writing stands, else the middle.
function forkPoint(message, element, wasWriting) {
  const selection = getSelection();
  if (selection.rangeCount && !selection.isCollapsed && element.contains(selection.anchorNode) && element.contains(selection.focusNode)) {
    const range = selection.getRangeAt(0);
    range.setStart(element, 0);
    return range.toString().length;
  }
  if (wasWriting) return message.text.length;
  const middle = message.text.indexOf(' ', Math.floor(message.text.length / 2));
  return message.text.length < 24 || middle < 0 ? 0 : middle;
}

async function forkAnswer(message, element) {
  const wasWriting = Boolean(message.stopper);
  if (wasWriting) {
    message.stopper.abort();
    while (message.stopper) await new Promise((resolve) => setTimeout(resolve, 10));
  } else if (running.size > 0) {
    return notice('Another answer is being written. Stop it first.');
  }
  const at = messages.indexOf(message);
  if (at < 0) return;
  const before = JSON.stringify(messages);
  const prefix = message.text.slice(0, forkPoint(message, element, wasWriting)).trimEnd();
  const seeds = [1, 2].map(seedFor);
  const fork = {
    role: 'assistant', kind: 'fork', prefix, chosen: 0,
    branches: seeds.map((seed, i) => ({ text: '', label: `${['one', 'the other'][i]} way, seed ${seed}` })),
  };
  const lost = messages.length - at - 1;
  messages.splice(at, messages.length - at, fork);
  showAll();
  save();
  notice(lost > 0 ? 'What came after this answer is gone from the conversation.' : 'The answer as it was has become two.',
    { calm: true, action: 'Undo', run: () => { stopAll(); messages = JSON.parse(before); showAll(); save(); } });
  const conversation = asSent(messages.slice(0, at));
  if (prefix) conversation.push({ role: 'assistant', content: prefix });
  await Promise.all(fork.branches.map((branch, i) => write(branch, {
    messages: conversation, seed: seeds[i], temperature: Math.max(FORK_TEMPERATURE, settings.temperature),
    ...(prefix && { continue_final_message: true, add_generation_prompt: false }),
  }, growing(branch))));
}

// A long text that many could ask about: notes of the kind that the demo model knows. `context` tokens are the model's.
function longNotes(context) {
  const names = 'Mia Tom Anna Ben Lily Sam Ella Max Zoe Leo Ruby Finn Nora Jack Ivy Noah Rosa Theo Clara Hugo Alice Oscar Lucy Felix'.split(' ');
  const colours = 'red blue green yellow white black silver golden brown purple orange grey'.split(' ');
  const boxes = 'box drawer jar bag chest tin case shelf'.split(' ');
  const things = 'kite ball lantern drum boat basket hat book bell key map cup whistle wagon scarf ladder'.split(' ');
  const wanted = Math.min(5200, Math.max(300, context * 1.9));  // characters; a token is some three to four of them
  const lines = ['Remember these notes.'];
  for (let i = 0, length = 0; length < wanted; ++i) {
    const line = i % 2 ? `The ${colours[(i * 5) % 12]} ${boxes[(i * 3) % 8]} holds a ${colours[(i * 7 + 1) % 12]} ${things[(i * 11) % 16]}.`
      : `The code of ${names[(i * 7) % 24]} is ${1000 + (i * 7919) % 9000}.`;
    lines.push(line);
    length += line.length + 1;
  }
  return lines.join(' ');
}

async function threeReaders() {
  if (running.size > 0) return notice('An answer is being written. Stop it first.');
  notice('');
  const notes = longNotes(pool.context ?? 2048);
  const readers = {
    kind: 'readers', notes,
    branches: ['Mia', 'Tom', 'Zoe'].map((name) => ({ text: '', question: `Tell me a story about ${name}.` })),
  };
  messages.push(readers);
  show(readers);
  toEnd(true);
  save();
  const most = Math.min(settings.maxTokens, 200);
  await Promise.all(readers.branches.map((branch, i) => write(branch, {
    messages: [{ role: 'user', content: notes }, { role: 'assistant', content: 'I will remember them.' }, { role: 'user', content: branch.question }],
    seed: seedFor(i), max_tokens: most,
  }, growing(branch))));
}

function notice(text, { calm = false, action = '', run = null } = {}) {
  $('notice').hidden = text === '';
  $('notice').classList.toggle('calm', calm);
  $('notice').querySelector('p').textContent = text;
  $('notice-action').hidden = !run;
  $('notice-action').textContent = action;
  $('notice-action').onclick = () => { notice(''); run(); };
}

// --- the cells
// A grid of cells on a canvas: pages of a group, or recurrent states. Only the visible rows are painted, and of those only
// what changed or still glows. `paint(i)` says how cell i looks, `describe(i)` what it is.

const FREE = 0, HELD = 1, CACHED = 2;
const GLOW_MS = matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : 900;

class Cells {
  constructor(title, describe, wanted = 210) {
    this.describe = describe;
    this.wanted = wanted;  // height in pixels that the grid aims at
    this.canvas = make('canvas');
    this.spacer = make('div');
    this.scroller = make('div', { className: 'scroller', tabIndex: 0, role: 'img' }, this.canvas, this.spacer);
    this.heading = make('h3', { textContent: title });
    this.heading.hidden = title === '';
    this.root = make('div', { className: 'grid' }, this.heading, this.scroller);
    this.context = this.canvas.getContext('2d', { alpha: false });
    this.cursor = -1;
    this.resize(0);
    new ResizeObserver(() => this.lay()).observe(this.scroller);
    this.scroller.addEventListener('scroll', () => this.paintAll());
    this.canvas.addEventListener('pointermove', (event) => this.point(this.at(event)));
    this.canvas.addEventListener('pointerdown', (event) => this.point(this.at(event)));
    this.canvas.addEventListener('pointerleave', (event) => event.pointerType === 'mouse' && this.point(-1));
    this.scroller.addEventListener('keydown', (event) => this.walk(event));
    this.scroller.addEventListener('blur', () => this.point(-1));
  }

  // `perSlab`: so many cells are one slab of the arena, which holds objects of one kind at a time.
  resize(total, perSlab = total) {
    this.total = total;
    this.perSlab = perSlab || 1;
    this.elsewhere = new Uint8Array(Math.ceil(total / this.perSlab));  // by slab: it holds objects of another kind
    this.state = new Uint8Array(total);
    this.hue = new Int16Array(total).fill(-1);  // of the last holder
    this.holders = new Map();                   // cell -> keys of sequences, for those that are held
    this.look = new Int32Array(total);          // what was painted, to see what changed
    this.glow = new Map();                      // cell -> {since, colour}
    this.dirty = new Set();
    this.lay();
  }

  lay() {
    const width = Math.floor(this.scroller.clientWidth);
    if (width === 0 || this.total === 0) return;
    const fitting = (height) => Math.floor(Math.sqrt((width * height) / this.total));
    // Many cells get more room, so that one can still see what each of them is.
    this.pitch = Math.max(4, Math.min(18, fitting(this.wanted) >= 10 ? fitting(this.wanted) : fitting(this.wanted * 1.4)));
    this.gap = this.pitch >= 12 ? 2 : 1;
    this.columns = Math.max(1, Math.floor((width + this.gap) / this.pitch));
    this.rows = Math.ceil(this.total / this.columns);
    const height = this.rows * this.pitch;
    this.height = Math.min(height, 320);
    this.spacer.style.height = `${height - this.height}px`;
    const scale = devicePixelRatio || 1;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.paintAll();
  }

  flash(cell, colour) {
    if (GLOW_MS === 0) return;
    this.glow.set(cell, { since: performance.now(), colour });
    wake();
  }

  touch(cell) { this.dirty.add(cell); wake(); }

  // Called once per frame; true while something still glows.
  frame(now) {
    for (const cell of this.dirty) this.paint(cell, now);
    this.dirty.clear();
    for (const [cell, { since }] of this.glow) {
      if (now - since > GLOW_MS) this.glow.delete(cell);
      this.paint(cell, now);
    }
    return this.glow.size > 0;
  }

  paintAll() {
    if (!this.columns) return;
    const now = performance.now();
    this.context.fillStyle = theme.paper;
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const first = Math.floor(this.scroller.scrollTop / this.pitch) * this.columns;
    const last = Math.min(this.total, first + (Math.ceil(this.height / this.pitch) + 1) * this.columns);
    for (let cell = first; cell < last; ++cell) this.paint(cell, now);
    this.dirty.clear();
  }

  paint(cell, now) {
    if (!this.columns) return;
    const size = this.pitch - this.gap;
    const x = (cell % this.columns) * this.pitch;
    const y = Math.floor(cell / this.columns) * this.pitch - this.scroller.scrollTop;
    if (y < -this.pitch || y > this.height) return;
    const c = this.context;
    const keys = this.holders.get(cell);
    const away = lit !== null && !keys?.includes(lit);
    c.globalAlpha = 1;
    c.fillStyle = theme.paper;
    c.fillRect(x, y, this.pitch, this.pitch);
    c.globalAlpha = away ? 0.3 : 1;
    if (this.state[cell] === HELD && keys?.length > 1) {
      const shown = Math.min(keys.length, Math.max(1, Math.floor(size / 3)));
      for (let i = 0; i < shown; ++i) {
        const from = Math.round((i * size) / shown), to = Math.round(((i + 1) * size) / shown);
        c.fillStyle = theme.bright(hueOfKey(keys[i]));
        c.fillRect(x + from, y, to - from, size);
      }
      if (size >= 5) {
        c.strokeStyle = theme.edge;
        c.lineWidth = 1;
        c.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      }
    } else {
      c.fillStyle = this.isElsewhere(cell) ? theme.paper : this.state[cell] === FREE ? theme.free
        : this.state[cell] === CACHED ? theme.cached(this.hue[cell]) : theme.held(keys ? hueOfKey(keys[0]) : this.hue[cell]);
      c.fillRect(x, y, size, size);
    }
    const glow = this.glow.get(cell);
    if (glow) {
      c.globalAlpha = Math.max(0, 1 - (now - glow.since) / GLOW_MS) * 0.9;
      c.fillStyle = glow.colour;
      c.fillRect(x, y, size, size);
    }
    c.globalAlpha = 1;
    if (cell === this.cursor) {
      c.strokeStyle = theme.focus;
      c.lineWidth = 2;
      c.strokeRect(x + 1, y + 1, size - 2, size - 2);
    }
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.pitch);
    const row = Math.floor((event.clientY - box.top + this.scroller.scrollTop) / this.pitch);
    const cell = row * this.columns + column;
    return column >= 0 && column < this.columns && cell >= 0 && cell < this.total ? cell : -1;
  }

  point(cell) {
    if (cell === this.cursor) return;
    const before = this.cursor;
    this.cursor = cell;
    for (const changed of [before, cell]) if (changed >= 0) this.touch(changed);
    pointed = cell < 0 ? null : { cells: this, cell };
    showDetail();
  }

  walk(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const cell = this.cursor < 0 ? 0 : Math.max(0, Math.min(this.total - 1, this.cursor + steps[event.key]));
    const y = Math.floor(cell / this.columns) * this.pitch;
    if (y < this.scroller.scrollTop) this.scroller.scrollTop = y;
    else if (y + this.pitch > this.scroller.scrollTop + this.height) this.scroller.scrollTop = y + this.pitch - this.height;
    this.point(cell);
  }

  // The holders as the tables say; what looks different from last time is painted again.
  hold(holders) {
    this.holders = holders;
    for (let cell = 0; cell < this.total; ++cell) {
      const keys = holders.get(cell);
      let look = this.state[cell];
      if (keys && look === HELD) {
        this.hue[cell] = hueOfKey(keys[0]);
        for (const key of keys) look = (look * 31 + hueOfKey(key) + 7) | 0;
      } else {
        look = look * 1000 + this.hue[cell];
      }
      if (look !== this.look[cell]) {
        this.look[cell] = look;
        this.touch(cell);
      }
    }
  }

  isElsewhere(cell) { return this.state[cell] === FREE && this.elsewhere[Math.floor(cell / this.perSlab)] === 1; }

  // Which slabs others use: `used` has a kind for each slab, `own` is this one's.
  yieldTo(used, own) {
    for (let slab = 0; slab < this.elsewhere.length; ++slab) {
      const away = used[slab] !== 0 && used[slab] !== own ? 1 : 0;
      if (this.elsewhere[slab] === away) continue;
      this.elsewhere[slab] = away;
      for (let cell = slab * this.perSlab; cell < Math.min(this.total, (slab + 1) * this.perSlab); ++cell) this.touch(cell);
    }
  }

  counts() {
    const result = [0, 0, 0];
    for (const state of this.state) ++result[state];
    for (const away of this.elsewhere) result[FREE] -= away * this.perSlab;
    return { free: result[FREE], held: result[HELD], cached: result[CACHED] };
  }
}

let pointed = null;  // the cell somebody points at
let lit = null;      // key of the sequence somebody points at

const hueOfKey = (key) => { const [request, choice] = key.split('.'); return hueOf(Number(request), Number(choice)); };
const nameOfKey = (key) => { const [request, choice] = key.split('.'); return choice === '0' ? `#${request}` : `#${request} (choice ${Number(choice) + 1})`; };

function showDetail() {
  $('detail').textContent = pointed ? pointed.cells.describe(pointed.cell) : 'Point at a cell, tap it, or walk with the arrow keys.';
}

const theme = {};
function readTheme() {
  const css = getComputedStyle(document.documentElement);
  const value = (name) => css.getPropertyValue(name).trim();
  const hues = (saturation, lightness) => {
    const all = Array.from({ length: 360 }, (_, hue) => `hsl(${hue} ${saturation} ${lightness})`);
    return (hue) => (hue < 0 ? `hsl(0 0% ${lightness})` : all[hue % 360]);
  };
  Object.assign(theme, {
    paper: value('--paper'), free: value('--free'), edge: value('--flash-edge'), flash: value('--flash'), evicted: value('--evicted'),
    focus: value('--focus'), accent: value('--accent'), line: value('--line'), muted: value('--muted'),
    held: hues(value('--held-s'), value('--held-l')), bright: hues('70%', value('--bright-l')), cached: hues(value('--cached-s'), value('--cached-l')),
  });
}

let frameWanted = false;
function wake() {
  if (frameWanted) return;
  frameWanted = true;
  requestAnimationFrame((now) => {
    frameWanted = false;
    let more = false;
    for (const cells of allCells()) more = cells.frame(now) || more;
    if (more) wake();
  });
}

// --- the pool
// What the server told us: the whole once, then changes.

const pool = { groups: [], states: null, sequences: new Map(), ended: new Map(), stats: {}, context: null };
const allCells = () => [...pool.groups.map((group) => group.cells), ...(pool.states ? [pool.states.cells] : [])];
const keyOf = (sequence) => `${sequence.request}.${sequence.choice ?? 0}`;
const several = (keys) => (keys.length < 4 ? keys.map(nameOfKey).join(' and ') : `${keys.slice(0, 3).map(nameOfKey).join(', ')} and ${keys.length - 3} more`);

function describePage(group, cell) {
  const { cells } = pool.groups[group];
  const name = `Page ${count(cell)}${pool.groups.length > 1 ? ` of group ${group + 1}` : ''}`;
  const keys = cells.holders.get(cell);
  if (cells.isElsewhere(cell)) return `${name} is not there now: its memory holds something else.`;
  if (cells.state[cell] === FREE) return `${name} is free.`;
  if (cells.state[cell] === CACHED) return `${name} is cached: nobody holds it, and what it remembers is kept until its room is needed.`;
  if (!keys) return `${name} is held.`;
  const sequence = pool.sequences.get(keys[0]);
  const block = sequence?.tables?.[group]?.indexOf(cell) ?? -1;
  const tokens = block < 0 ? '' : `: tokens ${count(block * pool.blockSize + 1)} to ${count((block + 1) * pool.blockSize)}`;
  return keys.length === 1 ? `${name} is held by ${nameOfKey(keys[0])}${tokens}.`
    : `${name} is shared by ${several(keys)}${tokens} of each, computed once.`;
}

function describeState(cell) {
  const { cells } = pool.states;
  const keys = cells.holders.get(cell);
  if (cells.isElsewhere(cell)) return `State ${cell} is not there now: its memory holds pages.`;
  if (cells.state[cell] === FREE) return `State ${cell} is free.`;
  if (cells.state[cell] === CACHED) return `State ${cell} is a checkpoint: a sequence with the same beginning can go on from it.`;
  return `State ${cell} is the slot of ${keys ? nameOfKey(keys[0]) : 'a sequence'}.`;
}

function takeWhole(data) {
  model = data.model;
  pool.context = data.context;
  pool.blockSize = data.block_size;
  $('model').textContent = data.model;
  const several = data.groups.length > 1;
  // Of each kind there can be as many as the arena holds: their ids go that far, though others may have the memory now.
  const limit = (kind, size) => kind.ids ?? Math.max(kind.total, data.slabs * Math.floor(data.arena_bytes / data.slabs / size));
  const limits = data.groups.map((group) => limit(group, group.page_bytes));
  const stateLimit = data.states ? limit(data.states, data.states.bytes) : 0;
  const perSlab = (cells) => Math.max(1, Math.floor(cells / data.slabs));
  const same = data.groups.length === pool.groups.length && Boolean(data.states) === Boolean(pool.states)
    && data.groups.every((group, i) => limits[i] === pool.groups[i].cells.total && group.window === pool.groups[i].window)
    && (!data.states || stateLimit === pool.states.cells.total);
  if (!same) {
    pool.groups = data.groups.map((group, i) => ({
      window: group.window,
      cells: new Cells(several ? (group.window ? `Pages of layers that look back ${count(group.window)} tokens` : 'Pages of layers that see all tokens') : data.states ? 'Pages' : '',
        (cell) => describePage(i, cell)),
    }));
    pool.states = data.states ? { cells: new Cells('Recurrent states: slots and checkpoints', describeState, data.groups.length ? 80 : 210) } : null;
    $('grids').replaceChildren(...allCells().map((cells) => cells.root));
    limits.forEach((cells, i) => pool.groups[i].cells.resize(cells, perSlab(cells)));
    if (data.states) pool.states.cells.resize(stateLimit, perSlab(stateLimit));
  }
  data.groups.forEach((group, i) => {
    const { state } = pool.groups[i].cells;
    state.fill(FREE);
    for (const [page, , how] of group.pages) state[page] = how === 'cached' ? CACHED : HELD;
  });
  if (data.states) {
    const { state } = pool.states.cells;
    state.fill(FREE);
    for (const [slot, how] of data.states.slots) state[slot] = how === 'checkpoint' ? CACHED : HELD;
  }
  const most = several || data.states ? 'up to ' : '';
  const sizes = data.groups.map((group, i) => `${most}${count(limits[i])} pages of ${bytes(group.page_bytes)}`).join(', ');
  const states = data.states ? `${sizes ? ', ' : ''}${most}${count(stateLimit)} states of ${bytes(data.states.bytes)}` : '';
  $('about').textContent = `${bytes(data.arena_bytes)}: ${sizes}${states}${data.groups.length ? `; a page holds ${data.block_size} tokens` : ''}`;
  takeSequences(data.sequences, data.stats);
}

function takeChange(data) {
  for (const [kind, group, object, detail] of data.events) takeEvent(kind, group, object, detail);
  takeSequences(data.sequences, data.stats);
}

function takeEvent(kind, group, object, detail) {
  const cells = pool.groups[group]?.cells;
  const states = pool.states?.cells;
  const set = (where, cell, state, colour) => {
    if (!where || cell >= where.total) return;
    where.state[cell] = state;
    if (colour) where.flash(cell, colour);
  };
  switch (kind) {
    case 'page_taken': return set(cells, object, HELD, theme.flash);
    case 'page_shared': case 'page_revived': return set(cells, object, HELD, theme.flash);
    case 'page_cached': return set(cells, object, CACHED, theme.held(cells?.hue[object] ?? -1));
    case 'page_freed': return set(cells, object, FREE, theme.cached(cells?.hue[object] ?? -1));
    case 'page_evicted': return set(cells, object, cells?.state[object] === CACHED ? FREE : cells?.state[object], theme.evicted);
    case 'page_copied': return cells?.flash(detail, theme.flash);
    case 'page_moved': case 'slot_moved': {
      const where = kind === 'page_moved' ? cells : states;
      if (!where || object >= where.total || detail >= where.total) return;
      const state = where.state[object];
      where.hue[detail] = where.hue[object];
      set(where, object, FREE);
      return set(where, detail, state, theme.flash);
    }
    case 'slot_taken': return set(states, object, HELD, theme.flash);
    case 'slot_released': return set(states, object, FREE, theme.cached(states?.hue[object] ?? -1));
    case 'checkpoint_stored': return set(states, object, CACHED, theme.flash);
    case 'checkpoint_dropped': return set(states, object, FREE, theme.evicted);
    case 'checkpoint_restored': return states?.flash(object, theme.flash);
  }
}

function takeSequences(sequences, stats) {
  const now = new Map(sequences.map((sequence) => [keyOf(sequence), sequence]));
  for (const [key, sequence] of pool.sequences) {
    if (!now.has(key)) pool.ended.set(key, { ...sequence, ended: Date.now() });
  }
  for (const key of now.keys()) pool.ended.delete(key);
  while (pool.ended.size > 5) pool.ended.delete(pool.ended.keys().next().value);
  pool.sequences = now;
  pool.stats = stats;
  pool.groups.forEach(({ cells }, group) => {
    const holders = new Map();
    for (const [key, sequence] of now) {
      for (const page of sequence.tables?.[group] ?? []) {
        if (page == null) continue;
        const keys = holders.get(page);
        if (keys) keys.push(key);
        else holders.set(page, [key]);
      }
    }
    cells.hold(holders);
  });
  if (pool.states) {
    const holders = new Map();
    for (const [key, sequence] of now) if (sequence.slot != null) holders.set(sequence.slot, [key]);
    pool.states.cells.hold(holders);
  }
  shareSlabs();
  queueNumbers();
}

// A slab belongs to the kind of what is in it.
function shareSlabs() {
  const kinds = allCells();
  if (kinds.length < 2) return;
  const used = new Uint8Array(Math.max(...kinds.map((cells) => cells.elsewhere.length)));
  kinds.forEach((cells, kind) => {
    for (let cell = 0; cell < cells.total; ++cell) if (cells.state[cell] !== FREE) used[Math.floor(cell / cells.perSlab)] = kind + 1;
  });
  kinds.forEach((cells, kind) => cells.yieldTo(used, kind + 1));
}

function link(state, text) {
  $('link').dataset.state = state;
  $('link').textContent = text;
}

// Follows the pool for as long as the page is open.
async function follow() {
  for (let pause = 500; ; pause = Math.min(8000, pause * 2)) {
    const stopper = new AbortController();
    let silence;
    const heard = () => { clearTimeout(silence); silence = setTimeout(() => stopper.abort(), 40_000); };
    try {
      heard();
      const response = await request('/pool/events', { signal: stopper.signal });
      if (response.status === 401) {
        clearTimeout(silence);
        link('broken', 'key wanted');
        await askForKey();
        pause = 250;
        continue;
      }
      if (!response.ok) throw await refusal(response);
      for await (const { type, data } of serverSentEvents(response, heard)) {
        pause = 250;
        link('live', 'live');
        if (type === 'pool') takeWhole(JSON.parse(data));
        else if (type === 'change') takeChange(JSON.parse(data));
      }
    } catch (error) {
      if (error instanceof SyntaxError || error instanceof TypeError && !/fetch|network/i.test(error.message)) console.error(error);
    }
    clearTimeout(silence);
    link('broken', 'reconnecting');
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

// --- the numbers, the sequences, the charts

// At once where nothing was shown for a while, otherwise ten times a second: who is fast is seen too.
let numbersQueued = false;
let numbersAt = -Infinity;
function queueNumbers() {
  if (numbersQueued) return;
  numbersQueued = true;
  setTimeout(() => {
    numbersQueued = false;
    numbersAt = performance.now();
    showNumbers();
  }, Math.max(0, numbersAt + 100 - performance.now()));
}

function showNumbers() {
  const sum = { free: 0, held: 0, cached: 0 };
  let total = 0;
  const counted = pool.groups.length ? pool.groups : pool.states ? [pool.states] : [];
  for (const { cells } of counted) {
    const counts = cells.counts();
    for (const name of Object.keys(sum)) sum[name] += counts[name];
    total += cells.total;
    cells.scroller.setAttribute('aria-label', `${count(cells.total)} cells: ${count(counts.held)} held, ${count(counts.cached)} cached, ${count(counts.free)} free`);
  }
  for (const name of Object.keys(sum)) $(name).textContent = count(sum[name]);
  $('meter-held').style.width = `${(100 * sum.held) / (total || 1)}%`;
  $('meter-cached').style.width = `${(100 * sum.cached) / (total || 1)}%`;
  const stats = pool.stats;
  $('hit-rate').textContent = stats.prompt_tokens ? `${Math.round((100 * stats.cached_tokens) / stats.prompt_tokens)} %` : '–';
  const sound = stats.integrity ?? 'unchecked';
  const rows = [
    ['in the queue', stats.waiting], ['running', stats.running], ['suspended now', stats.suspended],
    ['suspensions', (stats.suspensions_by_copy ?? 0) + (stats.suspensions_by_recompute ?? 0)],
    ['pages evicted', (stats.blocks_evicted ?? 0) + (stats.window_pages_evicted ?? 0)], ['pages copied', stats.pages_copied],
    ['waits for a prefix', stats.prefix_waits], ['requests finished', stats.finished], ['integrity', sound],
  ];
  $('numbers').replaceChildren(...rows.filter(([, value]) => value != null).map(([name, value]) => make('div', {},
    make('dt', { textContent: name }),
    make('dd', { textContent: typeof value === 'number' ? count(value) : value, className: name === 'integrity' && !['sound', 'unchecked'].includes(value) ? 'bad' : '' }))));
  showSequences();
  if (pointed) showDetail();
}

function stateInWords(sequence) {
  const read = Math.min(sequence.computed, sequence.prompt_tokens);
  const written = Math.max(0, sequence.tokens - sequence.prompt_tokens);
  if (sequence.ended) return `ended, ${count(written)} written`;
  switch (sequence.state) {
    case 'waiting': return sequence.waits_for_prefix ? 'waits: another is reading the same text' : 'waiting';
    case 'reading': return `reading, ${count(read)} of ${count(sequence.prompt_tokens)}`;
    case 'writing': return `writing, ${count(written)} written`;
    case 'suspended': return `suspended, ${count(written)} written; will go on`;
    default: return sequence.state;
  }
}

const MOST_ROWS = 24;
const rows = new Map();

function showSequences() {
  const live = [...pool.sequences].sort(([, a], [, b]) => b.request - a.request || a.choice - b.choice);
  const all = [...live, ...[...pool.ended].reverse()].slice(0, MOST_ROWS);
  const list = $('sequences');
  const keys = new Set(all.map(([key]) => key));
  for (const [key, row] of rows) {
    if (!keys.has(key)) { row.root.remove(); rows.delete(key); }
  }
  all.forEach(([key, sequence], i) => {
    let row = rows.get(key);
    if (!row) rows.set(key, row = sequenceRow(key));
    if (list.children[i] !== row.root) list.insertBefore(row.root, list.children[i] ?? null);
    row.update(sequence);
  });
  $('no-sequences').hidden = all.length > 0;
  const hidden = live.length + pool.ended.size - all.length;
  $('sequence-count').textContent = live.length ? `${count(live.length)} now${hidden > 0 ? `, ${count(hidden)} of them not shown` : ''}` : '';
}

function sequenceRow(key) {
  const colour = `hsl(${hueOfKey(key)} var(--held-s) var(--held-l))`;
  const segment = (name, painted = true) => {
    const part = make('i', { className: name });
    if (painted) part.style.background = colour;
    return part;
  };
  const dot = make('span', { className: 'dot' });
  dot.style.background = colour;
  const state = make('span', { className: 'state' });
  const parts = [segment('found'), segment('read'), segment('unread', false), segment('written')];
  const hit = make('p', { className: 'hit' });
  const bar = make('div', { className: 'bar', role: 'progressbar' }, ...parts);
  const root = make('li', { tabIndex: 0 }, make('div', { className: 'sequence-line' }, dot, make('b', { textContent: nameOfKey(key) }), state), bar, hit);
  const light = (on) => () => {
    lit = on ? key : null;
    root.classList.toggle('lit', on);
    for (const cells of allCells()) cells.paintAll();
  };
  root.onpointerenter = root.onfocus = light(true);
  root.onpointerleave = root.onblur = light(false);
  return {
    root,
    update(sequence) {
      const prompt = sequence.prompt_tokens, most = Math.max(sequence.max_tokens, prompt, 1);
      const found = sequence.hit?.tokens ?? 0;
      const read = Math.max(0, Math.min(sequence.computed, prompt) - found);
      const written = Math.max(0, sequence.tokens - prompt);
      [found, read, Math.max(0, prompt - found - read), written].forEach((n, i) => { parts[i].style.width = `${(100 * n) / most}%`; });
      bar.setAttribute('aria-label', `${nameOfKey(key)}: ${count(found + read)} of ${count(prompt)} prompt tokens read, ${count(written)} written`);
      bar.setAttribute('aria-valuenow', Math.round((100 * (found + read + written)) / most));
      root.classList.toggle('ended', Boolean(sequence.ended));
      state.textContent = stateInWords(sequence);
      hit.textContent = sequence.state === 'waiting' && !sequence.ended ? `${count(prompt)} tokens to read` : hitInWords(found, prompt, sequence.hit?.end);
      if (sequence.suspensions) hit.textContent += ` · suspended ${sequence.suspensions === 1 ? 'once' : `${sequence.suspensions} times`}`;
    },
  };
}

const SAMPLES = 180;
const rates = { written: [], read: [], before: null };

function sample() {
  const { generated_tokens: written, computed_tokens: read } = pool.stats;
  if (written == null) return;
  const now = performance.now();
  const before = rates.before;
  rates.before = { now, written, read };
  // The counters begin again when the server does.
  if (!before || written < before.written) return;
  const seconds = (now - before.now) / 1000;
  rates.written.push((written - before.written) / seconds);
  rates.read.push((read - before.read) / seconds);
  for (const name of ['written', 'read']) {
    if (rates[name].length > SAMPLES) rates[name].shift();
    $(`rate-${name}`).textContent = count(rates[name].at(-1));
    chart($(`chart-${name}`), rates[name]);
  }
}

function chart(canvas, values) {
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
  if (!width) return;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const c = canvas.getContext('2d');
  c.scale(scale, scale);
  const most = Math.max(10, ...values);
  c.fillStyle = theme.line;
  c.fillRect(0, height - 1, width, 1);
  const x = (i) => width - ((values.length - i) * width) / SAMPLES;
  const y = (value) => height - 1 - (value / most) * (height - 16);
  c.beginPath();
  c.moveTo(x(0), height - 1);
  values.forEach((value, i) => { c.lineTo(x(i), y(value)); c.lineTo(x(i + 1), y(value)); });
  c.lineTo(width, height - 1);
  c.globalAlpha = 0.75;
  c.fillStyle = theme.accent;
  c.fill();
  c.globalAlpha = 1;
  c.fillStyle = theme.muted;
  c.font = '11px system-ui, sans-serif';
  c.fillText(`${count(most)}`, 0, 10);
}

// --- start

function look(view) {
  document.body.dataset.view = view;
  for (const button of document.querySelectorAll('nav button')) button.setAttribute('aria-pressed', String(button.dataset.view === view));
  store('quire.view', view);
}

function fit() {
  const area = $('prompt');
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight}px`;
}

function readSettings() {
  const number = (id, fallback) => ($(id).value === '' || Number.isNaN(Number($(id).value)) ? fallback : Number($(id).value));
  settings.temperature = number('temperature', SETTINGS.temperature);
  settings.seed = $('seed').value === '' ? '' : number('seed', '');
  settings.maxTokens = Math.max(1, number('max-tokens', SETTINGS.maxTokens));
  store('quire.settings', settings);
}

function start() {
  readTheme();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    readTheme();
    for (const cells of allCells()) cells.paintAll();
  });

  // What was being written when the page went away is as far as it came.
  for (const target of messages.flatMap((message) => message.branches ?? [message])) {
    if (target.stopper || (target.finish === null && !target.error)) target.finish = 'stopped';
    delete target.stopper;
  }
  showAll();
  for (const idea of IDEAS) {
    $('ideas').append(make('li', {}, make('button', { type: 'button', textContent: idea, onclick: () => { send(idea); $('prompt').focus(); } })));
  }

  $('temperature').value = settings.temperature;
  $('seed').value = settings.seed;
  $('max-tokens').value = settings.maxTokens;
  for (const id of ['temperature', 'seed', 'max-tokens']) $(id).addEventListener('change', readSettings);

  const submit = () => {
    if (running.size > 0) return;
    const text = $('prompt').value;
    $('prompt').value = '';
    fit();
    send(text);
  };
  $('composer').onsubmit = (event) => { event.preventDefault(); submit(); };
  $('prompt').addEventListener('input', fit);
  $('prompt').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') stopAll(); });
  $('stop').onclick = () => { stopAll(); $('prompt').focus(); };
  $('fresh').onclick = () => { stopAll(); messages = []; save(); notice(''); showAll(); $('prompt').focus(); };
  $('readers').onclick = threeReaders;
  $('notice-close').onclick = () => notice('');
  $('key-form').onsubmit = (event) => {
    event.preventDefault();
    apiKey = $('key').value.trim();
    store('quire.key', apiKey);
    $('key').value = '';
    $('key-form').hidden = true;
    keyArrived?.resolve();
    keyArrived = null;
  };
  for (const button of document.querySelectorAll('nav button')) button.onclick = () => look(button.dataset.view);
  look(stored('quire.view', 'chat'));
  $('log').addEventListener('scroll', () => { atEnd = $('log').scrollHeight - $('log').scrollTop - $('log').clientHeight < 40; });
  addEventListener('pagehide', () => save());
  setInterval(sample, 1000);
  follow();
}

start();

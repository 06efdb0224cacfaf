// The page in Chromium, at the width of a desktop and of a phone. Screenshots are kept under build/artefacts.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { cells, launch, live, look, number, open as openPage, picture, rested, sizes, wellLaid } from './browser.js';
import { Server, models, until } from './lib.js';

let browser, server, guarded, hybrid;
before(async () => {
  browser = await launch();
  server = (await Server.start('-m', models.llama)).slowed();
  guarded = await Server.start('-m', models.llama, '--api-key', 'secret');
  hybrid = (await Server.start('-m', models.hybrid)).slowed();
});
after(async () => {
  await browser?.close();
  await Promise.all([server, guarded, hybrid].map((each) => each?.stop()));
});

const open = (size, { at = server, ...more } = {}) => openPage(browser, size, { at, ...more });

for (const size of sizes) {
  test(`${size.name} pixels: chat, cells, fork, readers, reload`, { timeout: 180_000 }, async () => {
    const { page, problems, close } = await open(size);
    await live(page);
    await until('the pool is known', () => number(page, 'free'));
    await wellLaid(page);
    await picture(page, `page-${size.name}-empty`);

    // A chat with the keyboard. The cells change during the answer.
    await look(page, size, 'pool');
    const before = await cells(page);
    await look(page, size, 'chat');
    await page.focus('#prompt');
    await page.keyboard.type('Tell me a story');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('about a brave fox named Ruby.');
    assert.equal((await page.inputValue('#prompt')).split('\n').length, 2, 'Shift+Enter is a new line');
    const held = page.waitForFunction(() => Number(document.querySelector('#held').textContent) > 0, null, { timeout: 20_000 });
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.answer .text')?.textContent.length > 20);
    await held;
    await picture(page, `page-${size.name}-writing`);
    await rested(page);
    await look(page, size, 'pool');
    await until('the cells have changed', async () => await cells(page) !== before);
    await until('nothing is held, much is cached', async () => await number(page, 'held') === 0 && await number(page, 'cached') > 0);
    await look(page, size, 'chat');
    const story = await page.textContent('.answer .text');
    assert.match(await page.textContent('.answer .facts'), /tokens.*(seen|reused)/);
    await wellLaid(page);

    // The same question again reuses the first prompt.
    await page.fill('#prompt', 'What is a quire?');
    await page.keyboard.press('Enter');
    await rested(page);
    await page.waitForFunction(() => /\d tokens reused/.test(document.querySelectorAll('.answer .facts')[1]?.textContent));

    // Escape stops.
    await page.fill('#prompt', 'Tell me a story.');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#stop:not([hidden])');
    await page.keyboard.press('Escape');
    await rested(page);

    // Three readers share pages: the cells show more than one sequence, and the text says so.
    await look(page, size, 'pool');
    await page.click('#readers');
    await until('three sequences', async () => (await page.$$('#sequences li')).length >= 3);
    await page.waitForFunction(() => [...document.querySelectorAll('#sequences .hit')].some((line) => /of [\d,]+ tokens reused/.test(line.textContent)), null, { timeout: 30_000 });
    await page.waitForFunction(() => [...quire.pool.groups[0].cells.holders.values()].some((keys) => keys.length === 3), null, { timeout: 30_000 });
    const spot = await page.evaluate(() => {
      const [{ cells, layout }] = quire.cellGrid.grids;
      const [cell] = [...cells.holders].find(([, keys]) => keys.length >= 2);
      const { x, y } = quire.gridLayout.placeOf(layout, cell);
      return { x: x + 2, y: y + 2 };
    });
    if (size.phone) await page.tap('.scroller canvas', { position: spot });
    else await page.hover('.scroller canvas', { position: spot });
    await page.waitForFunction(() => /shared by #\d+/.test(document.querySelector('#detail').textContent), null, { timeout: 2000 });
    await picture(page, `page-${size.name}-readers`);
    await wellLaid(page);
    await look(page, size, 'chat');
    await rested(page);
    for (const text of await page.$$eval('.aside .branch .text', (all) => all.map((element) => element.textContent))) assert.ok(text.length > 20, 'each reader got an answer');

    // Fork: one prefix, two answers; the second reuses the pages of the first.
    await page.locator('.answer .tools button', { hasText: 'Fork' }).first().click();
    await page.waitForFunction(() => document.querySelectorAll('.branch').length === 2 && [...document.querySelectorAll('.branch .text')].every((text) => text.textContent.length > 10), null, { timeout: 30_000 });
    await picture(page, `page-${size.name}-fork`);
    await rested(page);
    const ways = await page.$$eval('.branch .text', (all) => all.map((element) => element.textContent));
    assert.notEqual(ways[0], ways[1]);
    const beginning = await page.$eval('li.answer > .text', (element) => element.textContent);
    assert.ok(story.startsWith(beginning.trim()) && beginning.length > 10);
    assert.match((await page.$$eval('.branch .facts', (all) => all.map((element) => element.textContent))).join('|'), /\d tokens reused/);
    await wellLaid(page);
    await page.click('#notice-action');
    assert.equal(await page.textContent('.answer .text'), story, 'undone');

    // A reload loses nothing.
    const said = await page.$$eval('#messages > li', (all) => all.length);
    await page.reload();
    await live(page);
    assert.equal(await page.$$eval('#messages > li', (all) => all.length), said);
    assert.equal(await page.textContent('.answer .text'), story);
    await picture(page, `page-${size.name}-reloaded`);

    await page.click('#fresh');
    assert.equal(await page.$$eval('#messages > li', (all) => all.length), 0);
    assert.deepEqual(problems, []);
    await close();
  });

  test(`${size.name} pixels, dark: a hybrid model shows slots and checkpoints`, { timeout: 60_000 }, async () => {
    const { page, problems, close } = await open(size, { at: hybrid, scheme: 'dark' });
    await live(page);
    await look(page, size, 'pool');
    assert.equal((await page.$$('.scroller canvas')).length, 2);
    await page.click('#readers');
    await page.waitForFunction(() => quire.pool.states.cells.state.includes(1), null, { timeout: 20_000 });
    await picture(page, `page-${size.name}-hybrid-dark`);
    await wellLaid(page);
    await page.waitForFunction(() => quire.pool.states.cells.state.includes(2) && !quire.pool.states.cells.state.includes(1), null, { timeout: 60_000 });
    await page.focus('.grid:nth-child(2) .scroller');
    await page.keyboard.press('ArrowRight');
    assert.match(await page.textContent('#detail'), /State 0 is/);
    assert.deepEqual(problems, []);
    await close();
  });
}

test('a key is asked for, kept in the tab and sent', async () => {
  const { page, problems, close } = await open(sizes[0], { at: guarded });
  await page.waitForSelector('#key-form:not([hidden])');
  await picture(page, 'page-1280-key');
  await wellLaid(page);
  await page.fill('#key', 'wrong');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#key-form:not([hidden])');
  await page.fill('#key', 'secret');
  await page.keyboard.press('Enter');
  await live(page);
  await page.fill('#prompt', 'What is a quire?');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /stack of pages|memory/.test(document.querySelector('.answer .text')?.textContent), null, { timeout: 20_000 });
  await page.reload();
  await live(page);
  assert.deepEqual(problems, []);
  await close();
});

test('the keyboard reaches everything, in order, and is seen', async () => {
  const { page, close } = await open(sizes[0]);
  await live(page);
  await until('the pool is known', () => number(page, 'free'));
  const order = [];
  await page.evaluate(() => document.activeElement.blur());
  for (let i = 0; i < 12; ++i) {
    await page.keyboard.press('Tab');
    order.push(await page.evaluate(() => {
      const element = document.activeElement;
      if (element === document.body) return 'the end';
      const style = getComputedStyle(element.id === 'prompt' ? element.parentElement : element);
      const seen = style.outlineStyle !== 'none' || style.boxShadow !== 'none';
      return `${element.id || element.className || element.textContent.slice(0, 12)}${seen ? '' : ' (unseen)'}`;
    }));
  }
  assert.deepEqual(order.filter((name) => name.endsWith('(unseen)')), []);
  const at = (name) => order.findIndex((entry) => entry.startsWith(name));
  assert.ok(at('prompt') >= 0 && at('send') === at('prompt') + 1 && at('readers') > at('send') && at('scroller') > at('readers'), order.join(', '));
  await close();
});

test('the page says when the server is gone, and reconnects', { timeout: 60_000 }, async () => {
  const first = await Server.start('-m', models.llama);
  const { page, close } = await open(sizes[0], { at: first });
  await live(page);
  await first.stop();
  await page.waitForSelector('#link[data-state=broken]');
  await page.fill('#prompt', 'What is a quire?');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /cannot be reached/.test(document.querySelector('.facts.bad')?.textContent));
  await picture(page, 'page-1280-gone');
  const second = await Server.start('-m', models.llama, '--port', String(first.port));
  await live(page);
  await close();
  await second.stop();
});

test('after a restart of the server an answer does not show the page of another request with its number', { timeout: 60_000 }, async () => {
  const first = await Server.start('-m', models.llama);
  const { page, close } = await open(sizes[0], { at: first });
  await live(page);
  const routes = new Set();
  page.on('request', (request) => { if (/completions|pool|models/.test(new URL(request.url()).pathname) && request.resourceType() === 'fetch') routes.add(request.headers()['x-quire-route']); });
  const chunk = { choices: [{ index: 0, delta: { content: 'Yes' }, logprobs: { content: [{ token: 'Yes', logprob: -0.1, top_logprobs: [] }] }, finish_reason: 'stop' }] };
  await page.route('**/v1/chat/completions', (route) => route.fulfill({ headers: { 'content-type': 'text/event-stream', 'x-request-id': '1' }, body: `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n` }));
  await page.fill('#prompt', 'Is it so?');
  await page.keyboard.press('Enter');
  await rested(page);
  // Each server has a request 1, as its pool would tell.
  const said = async () => {
    await page.evaluate(async () => {
      const { takeChange } = await import('/pool_view.js');
      takeChange({ events: [['page_taken', 0, 3, 0]], changed: [], ended: [], stats: {},
        began: [{ request: 1, choice: 0, state: 'decode', tokens: 9, prompt_tokens: 4, computed: 8, max_tokens: 64, tables: [[3]] }] });
    });
    await page.locator('.answer .tools button', { hasText: 'Tokens' }).click();
    const text = await page.textContent('#token-page');
    await page.click('#token-close');
    return text;
  };
  assert.equal(await said(), 'It lies in page 3.');
  await first.stop();
  await page.waitForSelector('#link[data-state=broken]');
  const second = await Server.start('-m', models.llama, '--port', String(first.port));
  await live(page);
  assert.match(await said(), /^Its page is not known/);
  assert.ok(routes.size === 1 && /^page-/.test([...routes][0]), `one route for the tab: ${[...routes]}`);
  await close();
  await second.stop();
});

test('an error is shown as a message', async () => {
  const { page, close } = await open(sizes[0], { settings: { temperature: 0.8, seed: '', max_tokens: 100 } });
  await live(page);
  await page.fill('#prompt', 'fox '.repeat(4000));
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /context/.test(document.querySelector('.facts.bad')?.textContent));
  await picture(page, 'page-1280-error');
  await close();
});

test('twenty thousand pages stay smooth', { timeout: 90_000 }, async () => {
  const large = (await Server.start('-m', models.llama, '--memory', '1280M')).slowed();
  try {
    const { page, close } = await open(sizes[0], { at: large });
    await live(page);
    await until('the pool is known', async () => await number(page, 'free') > 19_000);
    await page.click('#readers');
    await page.waitForFunction(() => [...quire.pool.sequences.values()].some((sequence) => sequence.state === 'decode'), null, { timeout: 30_000 });
    const frames = await page.evaluate(() => new Promise((resolve) => {
      const took = [];
      const { CellGrid, grids } = quire.cellGrid;
      const real = CellGrid.prototype.frame;
      CellGrid.prototype.frame = function frame(now) { const began = performance.now(); const more = real.call(this, now); took.push(performance.now() - began); return more; };
      const whole = performance.now();
      grids[0].paintAll();
      const all = performance.now() - whole;
      setTimeout(() => resolve({ took, all }), 1500);
    }));
    const longest = Math.max(...frames.took);
    console.log(`  ${frames.took.length} frames in 1.5 s, the longest took ${longest.toFixed(1)} ms to paint; all cells at once ${frames.all.toFixed(1)} ms`);
    assert.ok(longest < 50);
    await picture(page, 'page-1280-large');
    await wellLaid(page);
    await close();
  } finally {
    await large.stop();
  }
});

// The tiers' figures are given to the page as the server would send them, so that each row can be seen in every state.
for (const [size, scheme] of [[sizes[0], 'light'], [sizes[0], 'dark'], [sizes[1], 'light'], [sizes[1], 'dark']]) {
  test(`${size.name} pixels, ${scheme}: a row of cells for each tier, and what moves lights up`, { timeout: 60_000 }, async () => {
    const { page, problems, close } = await open(size, { scheme });
    await live(page);
    await until('the pool is known', () => number(page, 'free'));
    await look(page, size, 'pool');
    assert.equal(await page.isVisible('.of-tiers'), false, 'a server without tiers shows no row');
    await page.evaluate(async () => {
      const { takeChange, takeWhole } = await import('/pool_view.js');
      const data = await (await fetch('/pool')).json();
      const tier = (more) => ({ working: true, bytes: 0, capacity_bytes: 0, objects: 0, puts: 0, hits: 0, misses: 0, damaged: 0, tokens: 0, ...more });
      const disk = { kind: 'disk', bytes: 30 * 2 ** 30, capacity_bytes: 96 * 2 ** 30, objects: 17_520, puts: 100, hits: 420, misses: 12, tokens: 6720 };
      const shared = { kind: 'shared', objects: 53_211, working: false, problem: 'redis://cache.example:6379: connection refused; next attempt in 4 s' };
      takeWhole({ ...data, stats: { ...data.stats, tiers: [tier(disk), tier(shared)] } });
      quire.moves = (written, brought) => takeChange({
        events: [], began: [], changed: [], ended: [], stats: { tiers: [tier({ ...disk, puts: disk.puts += written, hits: disk.hits += brought, tokens: disk.tokens += 16 * brought }), tier(shared)] },
      });
    });
    await page.waitForFunction(() => /420 hits/.test(document.querySelector('.tier-facts')?.textContent));
    assert.deepEqual(await page.$$eval('.tier h3', (all) => all.map((each) => each.textContent)),
      ['Disk working', 'Shared store redis://cache.example:6379: connection refused; next attempt in 4 s']);
    assert.equal(await page.textContent('.tier-facts'), '30 GiB of 96 GiB · 17,520 objects · 420 hits, 12 misses · 6,720 tokens brought');
    assert.equal(await page.isVisible('.of-tiers'), true);
    const row = await page.evaluate(() => {
      const grid = quire.cellGrid.grids.find(({ cells }) => cells === quire.pool.tiers[0].cells);
      const before = grid.glow.size;
      quire.moves(3, 5);
      return { before, glowing: [...grid.glow.keys()], rows: grid.layout.rows, filled: quire.pool.tiers[0].filled() };
    });
    assert.deepEqual(row, { before: 0, glowing: [0, 1, 2, 3, 4], rows: 1, filled: 15 });
    await page.waitForFunction(() => /425 hits.*6,800 tokens brought/.test(document.querySelector('.tier-facts').textContent));
    await page.locator('.tier').first().scrollIntoViewIfNeeded();
    await page.evaluate(() => quire.moves(3, 5));
    await picture(page, `page-${size.name}-tiers-${scheme}`);
    await wellLaid(page);
    await page.waitForFunction(() => quire.cellGrid.grids.every(({ glow }) => glow.size === 0), null, { timeout: 5000 });
    await page.focus('.tier .scroller');
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction(() => document.querySelector('#detail').textContent === 'Disk: each cell stands for 2 GiB. This one is filled.');
    assert.deepEqual(problems, []);
    await close();
  });
}

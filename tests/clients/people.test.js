// What people do on the page, in Chromium, at the width of a desktop and of a phone: markdown, regenerate, edit, retry,
// conversations, settings, tools, reasoning, tokens. Screenshots are kept under build/artefacts. Where the demo model cannot
// write what a test needs, the answer comes from the test, in the form of the API.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, test } from 'node:test';
import { launch, live, look, open as openPage, picture, rested, sizes, wellLaid } from './browser.js';
import { Server, models, until } from './lib.js';

let browser, server, guarded;
before(async () => {
  browser = await launch();
  server = await Server.start('-m', models.llama);
  guarded = await Server.start('-m', models.llama, '--api-key', 'secret');
});
after(async () => {
  await browser?.close();
  await Promise.all([server, guarded].map((each) => each?.stop()));
});

const open = (size, { at = server, ...more } = {}) => openPage(browser, size, { at, ...more });
const ask = async (page, text) => {
  await page.fill('#prompt', text);
  await page.keyboard.press('Enter');
  await rested(page);
};
const texts = (page, selector) => page.$$eval(selector, (all) => all.map((element) => element.textContent));
const tool = (page, name, which = 0) => page.locator('#messages > li .tools button', { hasText: name }).locator('visible=true').nth(which);

// Answers requests for completions with these deltas. Returns the bodies that were sent.
async function answerWith(page, answers) {
  const sent = [];
  await page.route('**/v1/chat/completions', (route) => {
    sent.push(route.request().postDataJSON());
    const next = answers[Math.min(sent.length, answers.length) - 1];
    if (next.status) return route.fulfill({ status: next.status, contentType: 'application/json', body: JSON.stringify({ error: { message: next.message } }) });
    const chunks = next.map((delta, i) => {
      const { logprobs = null, finish = i === next.length - 1 ? 'stop' : null, ...rest } = typeof delta === 'string' ? { content: delta } : delta;
      return { choices: [{ index: 0, delta: rest, logprobs, finish_reason: finish }] };
    });
    return route.fulfill({ status: 200, contentType: 'text/event-stream', body: `${[...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]'].map((data) => `data: ${data}\n\n`).join('')}` });
  });
  return sent;
}

const ANSWER = `# Trains and planes

For 600 km there is **no clear winner**. See [the figures](https://example.com/figures) or \`compare()\`.

| | Train | Plane |
|:--|--:|--:|
| door to door | 3.5 h | 4 h |
| CO₂ | 20 kg | 160 kg |

1. Book early
2. Check the way to the station:
   - bus
   - *on foot*

\`\`\`python
def compare(train: float, plane: float) -> str:
    return "train" if train < plane else "plane"  # a line that is long enough to be scrolled on a narrow screen
\`\`\`

> Prices change daily.

<img src=x onerror="globalThis.broken = true"> [bad](javascript:globalThis.broken=true)
`;

for (const size of sizes) {
  test(`${size.name} pixels: markdown is drawn, and text of the model never becomes HTML`, { timeout: 60_000 }, async () => {
    const { page, problems, close } = await open(size);
    await live(page);
    await answerWith(page, [ANSWER.match(/[^]{1,7}/g)]);
    await ask(page, 'Compare trains and planes.');
    const answer = page.locator('.answer .markdown');
    assert.equal(await answer.locator('h3').textContent(), 'Trains and planes');
    assert.deepEqual(await texts(page, '.answer th'), ['', 'Train', 'Plane']);
    assert.equal(await answer.locator('ol > li').count(), 2);
    assert.equal(await answer.locator('ol ul em').textContent(), 'on foot');
    assert.match(await answer.locator('pre code').textContent(), /^def compare[^]*screen$/);
    assert.deepEqual(await page.$$eval('.answer a', (all) => all.map(({ href, rel, target }) => ({ href, rel, target }))), [{ href: 'https://example.com/figures', rel: 'noopener noreferrer', target: '_blank' }]);
    assert.equal(await page.$('.answer img'), null);
    assert.equal(await page.evaluate(() => globalThis.broken), undefined);
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']).catch(() => {});
    await answer.locator('.code-head button').click();
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^def compare/);
    await wellLaid(page);
    await picture(page, `people-${size.name}-markdown`);
    await page.$eval('#log', (log) => { log.scrollTop = 0; });
    await picture(page, `people-${size.name}-markdown-top`);
    assert.deepEqual(problems, []);
    await close();
  });

  test(`${size.name} pixels: regenerate, edit, retry, undo`, { timeout: 60_000 }, async () => {
    const { page, problems, close } = await open(size);
    await live(page);
    await ask(page, 'Tell me a story about Tom.');
    await ask(page, 'What is 2 + 3?');
    const [first, second] = await texts(page, '.answer .markdown');
    // Regenerate the first answer: the second question goes with it, and comes back with Undo.
    await tool(page, 'Regenerate').click();
    await rested(page);
    assert.equal(await page.locator('#messages > li').count(), 2);
    assert.notEqual((await texts(page, '.answer .markdown'))[0], first);
    await picture(page, `people-${size.name}-regenerated`);
    await page.click('#notice-action');
    assert.deepEqual(await texts(page, '.answer .markdown'), [first, second]);
    // Edit the first question. Escape leaves it as it was.
    await tool(page, 'Edit').click();
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('.editor').count(), 0);
    await tool(page, 'Edit').click();
    await page.fill('.editor textarea', 'Count from 3 to 6.');
    await wellLaid(page);
    await picture(page, `people-${size.name}-editing`);
    await page.keyboard.press('Enter');
    await rested(page);
    assert.deepEqual(await texts(page, '.bubble'), ['Count from 3 to 6.']);
    // Edit the answer: the model continues it.
    await page.locator('.answer .tools button', { hasText: 'Edit' }).click();
    await page.fill('.editor textarea', 'Three, four and');
    await page.keyboard.press('Enter');
    await rested(page);
    const [continued] = await texts(page, '.answer .markdown');
    assert.ok(continued.startsWith('Three, four and') && continued.length > 'Three, four and'.length, continued);
    // Retry after an error.
    let broken = true;
    await page.route('**/v1/chat/completions', (route) => (broken ? route.fulfill({ status: 503, body: '{"error": {"message": "the device is lost"}}' }) : route.continue()));
    await ask(page, 'What is a quire?');
    assert.equal(await page.textContent('.facts.bad'), 'The device is lost');
    await wellLaid(page);
    await picture(page, `people-${size.name}-error`);
    broken = false;
    await tool(page, 'Retry').click();
    await rested(page);
    assert.equal(await page.locator('.facts.bad').count(), 0);
    assert.match((await texts(page, '.answer .markdown')).at(-1), /stack of pages|memory/);
    assert.deepEqual(problems.filter((problem) => !/503/.test(problem)), []);
    await close();
  });

  test(`${size.name} pixels: conversations are kept, listed, renamed, deleted, exported and imported`, { timeout: 60_000 }, async () => {
    const { page, problems, close } = await open(size);
    await live(page);
    await ask(page, 'What is a quire?');
    await page.click('#fresh');
    assert.equal(await page.locator('#messages > li').count(), 0);
    await ask(page, 'What is 2 + 3?');
    await page.click('#library-open');
    assert.deepEqual(await texts(page, '.entry-open b'), ['What is 2 + 3?', 'What is a quire?']);
    await wellLaid(page, '#library');
    await picture(page, `people-${size.name}-conversations`);
    await page.locator('.entry-open').nth(1).click();
    assert.deepEqual(await texts(page, '.bubble'), ['What is a quire?']);
    // Rename, by the keyboard.
    await page.click('#library-open');
    await page.locator('#library-list li', { hasText: 'quire' }).getByText('Rename').click();
    await page.keyboard.type('Pages');
    await wellLaid(page, '#library');
    await page.keyboard.press('Enter');
    assert.deepEqual(await texts(page, '.entry-open b'), ['Pages', 'What is 2 + 3?'].sort((a, b) => (a === 'Pages' ? -1 : 1)));
    // Export all, delete one, undo, delete, import.
    const [saved] = await Promise.all([page.waitForEvent('download'), page.click('#library-export')]);
    const file = await saved.path();
    const data = JSON.parse(fs.readFileSync(file, 'utf8'));
    assert.deepEqual(data.conversations.map(({ title }) => title).sort(), ['Pages', 'What is 2 + 3?']);
    const remove = () => page.locator('#library-list li', { hasText: 'Pages' }).getByText('Delete').click();
    await remove();
    assert.deepEqual(await texts(page, '.entry-open b'), ['What is 2 + 3?']);
    await page.locator('#library-said button').click();
    assert.equal(await page.locator('.entry-open').count(), 2);
    await remove();
    await page.setInputFiles('#library-file', file);
    await until('both are imported', async () => await page.locator('.entry-open').count() === 3);
    await page.setInputFiles('#library-file', { name: 'wrong.json', mimeType: 'application/json', buffer: Buffer.from('{"format": "quire conversations", "version": 1, "conversations": [{"messages": [{"role": "king", "text": ""}]}]}') });
    await page.waitForSelector('#library-said.bad');
    assert.match(await page.textContent('#library-said'), /^wrong\.json: conversations\[0\]\.messages\[0\]\.role must be one of/);
    await wellLaid(page, '#library');
    await picture(page, `people-${size.name}-import-error`);
    await page.keyboard.press('Escape');
    // Another tab has the same list, and its own conversation.
    const other = await page.context().newPage();
    await other.goto(`${server.url}/`);
    await live(other);
    assert.equal(await other.locator('#messages > li').count(), 0);
    await other.click('#library-open');
    assert.equal(await other.locator('.entry-open').count(), 3);
    assert.deepEqual(problems, []);
    await close();
  });
}

test('a browser that keeps nothing: the page works, and says so', async () => {
  const { page, close } = await open(sizes[0], { settings: null });
  await page.addInitScript(() => { Object.defineProperty(globalThis, 'localStorage', { get() { throw new DOMException('denied', 'SecurityError'); } }); });
  await page.reload();
  await live(page);
  await ask(page, 'What is a quire?');
  assert.match(await page.textContent('#notice p'), /does not let this page keep anything/);
  assert.match(await page.textContent('.answer .markdown'), /stack of pages|memory/);
  await page.click('#library-open');
  assert.equal(await page.locator('.entry-open').count(), 1);
  await close();
});

test('what was typed is sent after a key was asked for', async () => {
  const { page, close } = await open(sizes[0], { at: guarded });
  await page.waitForSelector('#key-form:not([hidden])');
  await page.fill('#prompt', 'What is a quire?');
  await page.focus('#prompt');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.facts.bad');
  await picture(page, 'people-1280-key');
  await page.fill('#key', 'secret');
  await page.keyboard.press('Enter');
  await rested(page);
  assert.match(await page.textContent('.answer .markdown'), /stack of pages|memory/);
  assert.deepEqual(await texts(page, '.bubble'), ['What is a quire?']);
  await close();
});

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

// Answers requests for completions with these deltas, or with a promise of them. Returns the bodies that were sent.
async function answerWith(page, answers) {
  const sent = [];
  await page.route('**/v1/chat/completions', async (route) => {
    sent.push(route.request().postDataJSON());
    const next = await answers[Math.min(sent.length, answers.length) - 1];
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
    assert.deepEqual(await texts(page, '.entry-open b'), ['What is 2 + 3?', 'Pages'], 'what was only looked at stays in its place');
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


for (const size of sizes) {
  test(`${size.name} pixels: settings are checked, kept and sent; the theme can be chosen`, { timeout: 60_000 }, async () => {
    const { page, problems, close } = await open(size, { settings: null });
    await live(page);
    const sent = await answerWith(page, [['Yes.']]);
    await page.click('#settings-open');
    await wellLaid(page, '#settings');
    await picture(page, `people-${size.name}-settings`);
    await page.fill('#set-system', 'Be short.');
    const values = { temperature: 0.3, top_k: 20, top_p: 0.9, min_p: 0.02, repetition_penalty: 1.1, presence_penalty: 0.5, frequency_penalty: -0.5, seed: 11, max_tokens: 50, min_tokens: 5 };
    for (const [name, value] of Object.entries(values)) await page.fill(`#set-${name}`, String(value));
    await page.fill('#set-stop', 'END\n\\n\\n');
    await page.fill('#set-tools', '[{"name": "weather"}');
    await page.fill('#set-logit_bias', '[[" Hello", 2.5], [7, true]]');
    await page.fill('#set-top_p', '3');
    await page.fill('#set-min_tokens', '-1');
    await page.focus('#set-seed');
    assert.equal(await page.textContent('#set-top_p-problem'), 'Top p goes from 0 to 1.');
    assert.equal(await page.textContent('#set-min_tokens-problem'), 'Min tokens goes from 0 to very much.');
    assert.equal(await page.textContent('#set-logit_bias-problem'), 'Logit bias: that of 7 is not a number from -100 to 100, and not false.');
    assert.match(await page.textContent('#set-tools-problem'), /^The tools are not JSON/);
    await wellLaid(page, '#settings');
    await picture(page, `people-${size.name}-settings-wrong`);
    await page.fill('#set-top_p', '0.9');
    await page.fill('#set-min_tokens', '5');
    await page.fill('#set-logit_bias', '[[" Hello", 2.5], [7, false]]');
    await page.fill('#set-tools', '[{"name": "weather"}]');
    for (const name of ['top_p', 'min_tokens', 'logit_bias', 'tools']) assert.equal(await page.isVisible(`#set-${name}-problem`), false, name);
    await page.locator('#settings [value=dark]').check();
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(19, 21, 24)');
    await page.keyboard.press('Escape');
    await ask(page, 'Hi');
    const [{ messages, model, stream, stream_options: options, ...body }] = sent;
    assert.deepEqual(messages, [{ role: 'system', content: 'Be short.' }, { role: 'user', content: 'Hi' }]);
    assert.deepEqual(body, { ...values, stop: ['END', '\n\n'], logit_bias: [[' Hello', 2.5], [7, false]], tools: [{ type: 'function', function: { name: 'weather' } }], logprobs: true, top_logprobs: 5 });
    await picture(page, `people-${size.name}-dark`);
    await page.reload();
    await live(page);
    assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(19, 21, 24)', 'the theme is kept');
    await page.click('#settings-open');
    assert.equal(await page.inputValue('#set-min_p'), '0.02');
    assert.equal(await page.inputValue('#set-min_tokens'), '5');
    assert.equal(await page.inputValue('#set-logit_bias'), '[[" Hello", 2.5], [7, false]]');
    assert.equal(await page.inputValue('#set-system'), 'Be short.');
    assert.deepEqual(problems, []);
    await close();
  });

  test(`${size.name} pixels: reasoning and calls are folded, a result is given, and the model goes on`, { timeout: 60_000 }, async () => {
    const { page, problems, close } = await open(size);
    await live(page);
    const sent = await answerWith(page, [
      [{ reasoning_content: 'The user wants the weather. ' }, { reasoning_content: 'I call the tool.' }, 'I will look.',
        { tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'weather', arguments: '' } }] },
        { tool_calls: [{ index: 0, function: { arguments: '{"city":' } }] }, { tool_calls: [{ index: 0, function: { arguments: '"Rome"}' } }] }, { finish: 'tool_calls' }],
      ['It is **sunny**.'],
    ]);
    await ask(page, 'The weather in Rome?');
    assert.equal(await page.textContent('.reasoning summary'), 'Reasoning, 9 words');
    assert.equal(await page.locator('.reasoning .folded').isVisible(), false, 'folded');
    await page.click('.reasoning summary');
    assert.equal(await page.locator('.reasoning .folded').textContent(), 'The user wants the weather. I call the tool.');
    assert.equal(await page.textContent('.call summary'), 'Calls weather');
    await page.click('.call summary');
    assert.equal(await page.textContent('.call .folded'), '{\n  "city": "Rome"\n}');
    await wellLaid(page);
    await picture(page, `people-${size.name}-call`);
    await page.fill('.result textarea', '{"sky": "clear"}');
    await page.click('.result button');
    await rested(page);
    assert.equal(await page.locator('.answer .markdown strong').textContent(), 'sunny');
    assert.deepEqual(sent[1].messages.slice(1), [
      { role: 'assistant', content: 'I will look.', tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Rome"}' } }] },
      { role: 'tool', tool_call_id: 'call_1', name: 'weather', content: '{"sky": "clear"}' }]);
    await page.reload();
    await live(page);
    assert.equal(await page.textContent('.tool-result summary'), 'Result of weather');
    await wellLaid(page);
    await picture(page, `people-${size.name}-result`);
    assert.deepEqual(problems, []);
    await close();
  });

  test(`${size.name} pixels: a token can be pointed at: its probability, what else was likely, its page`, { timeout: 60_000 }, async () => {
    // The page looks at the pool twenty times a second: an answer that came and went in between has no known pages.
    server.slowed();
    const { page, problems, close } = await open(size);
    await live(page);
    await ask(page, 'Tell me a story about Tom.').finally(() => server.unslowed());
    const text = (await page.textContent('.answer .markdown')).trim();
    await tool(page, 'Tokens').click();
    assert.equal((await texts(page, '.token')).join('').trim(), text);
    if (size.phone) await page.locator('.token').nth(30).tap();
    else await page.locator('.token').nth(30).hover();
    assert.match(await page.textContent('#token-said'), /^token 31 of \d+, probability (\d+(\.\d)?|< 0\.1)\s%$/);
    assert.equal(await page.locator('#token-alternatives li').count(), 5);
    assert.match(await page.textContent('#token-page'), /^It lies in page \d+\.$/);
    const [number] = (await page.textContent('#token-page')).match(/\d+/);
    assert.equal(await page.evaluate(() => quire.cellGrid.grids[0].marked), Number(number), 'the page is marked in the pool');
    // The server says the same: the token's place in the sequence is behind the prompt.
    await wellLaid(page);
    await picture(page, `people-${size.name}-tokens`);
    // The keyboard goes from token to token.
    await page.focus('.tokens');
    await page.keyboard.press('Home');
    assert.match(await page.textContent('#token-said'), /^token 1 of/);
    await page.keyboard.press('ArrowRight');
    assert.match(await page.textContent('#token-said'), /^token 2 of/);
    await page.click('#token-show');
    await picture(page, `people-${size.name}-tokens-page`);
    await look(page, size, 'chat');
    await page.click('#token-close');
    assert.equal(await page.locator('#token-panel').isVisible(), false);
    assert.equal(await page.evaluate(() => quire.cellGrid.grids[0].marked), -1);
    await page.reload();
    await live(page);
    await tool(page, 'Tokens').click();
    assert.match(await page.textContent('#token-page'), /^Its page is not known/, 'after a reload the probabilities are there, the page is not');
    assert.deepEqual(problems, []);
    await close();
  });
}

test('the page that a token is said to lie in is the one that the server has for it', { timeout: 60_000 }, async () => {
  const slow = (await Server.start('-m', models.llama)).slowed();
  try {
    const { page, close } = await open(sizes[0], { at: slow });
    await live(page);
    await page.fill('#prompt', 'Tell me a story about a brave fox named Ruby.');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelectorAll('.answer .markdown')[0]?.textContent.length > 120);
    const compared = await page.evaluate(async () => {
      const { conversation } = await import('/conversation.js');
      const answer = conversation.messages.at(-1);
      const data = await (await fetch('/pool')).json();
      const sequence = data.sequences.find(({ request }) => request === answer.request);
      if (!sequence) return null;
      const index = 20;
      return { said: quire.pool.pagesOf(`${answer.request}.0`, index)[0], real: sequence.tables[0][Math.floor((sequence.prompt_tokens + index) / data.block_size)] };
    });
    assert.ok(compared !== null && compared.said === compared.real && compared.real !== undefined, JSON.stringify(compared));
    await close();
  } finally {
    await slow.stop();
  }
});

test('while an answer grows, blocks that are complete keep their elements', async () => {
  const { page, close } = await open(sizes[0]);
  const seen = await page.evaluate(async (answer) => {
    const { MarkdownView } = await import('/markdown_view.js');
    const root = document.createElement('div');
    const view = new MarkdownView(root);
    let heading = null, code = null, kept = true;
    for (let end = 1; end <= answer.length; ++end) {
      view.update(answer.slice(0, end));
      if (end > answer.indexOf('For 600')) { heading ??= root.children[0]; kept &&= root.children[0] === heading; }
      if (end > answer.indexOf('def ')) { code ??= root.querySelector('.code'); kept &&= root.querySelector('.code') === code; }
    }
    const whole = document.createElement('div');
    new MarkdownView(whole).update(answer);
    return { kept, same: root.textContent === whole.textContent && root.isEqualNode(whole) };
  }, ANSWER);
  assert.deepEqual(seen, { kept: true, same: true });
  await close();
});

test('Escape closes a dialog and does not stop the answer behind it', async () => {
  const slow = (await Server.start('-m', models.llama)).slowed();
  try {
    const { page, close } = await open(sizes[0], { at: slow });
    await live(page);
    await page.fill('#prompt', 'Tell me a story.');
    await page.keyboard.press('Enter');
    await page.waitForSelector('#stop:not([hidden])');
    await page.click('#library-open');
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('#library').isVisible(), false);
    await rested(page);
    assert.ok(!(await page.textContent('.answer .facts')).includes('stopped'));
    await close();
  } finally {
    await slow.stop();
  }
});

for (const size of sizes) {
  test(`${size.name} pixels: the prompts that are offered fit the model`, async () => {
    const { page, close } = await open(size);
    await live(page);
    await page.waitForSelector('#ideas button');
    assert.ok((await texts(page, '#ideas button')).includes('What is a quire?'));
    await page.route('**/v1/models', (route) => route.fulfill({ contentType: 'application/json', body: '{"data": [{"id": "qwen3-8b", "vocabulary": 151936, "chat": true}]}' }));
    await page.reload();
    await live(page);
    await page.waitForSelector('#ideas button');
    assert.ok(!(await texts(page, '#ideas button')).some((text) => /quire|Ruby|Mia/.test(text)));
    await wellLaid(page);
    await picture(page, `people-${size.name}-ideas`);
    await close();
  });
}

test('dialogs and buttons have names, and the focus comes back', async () => {
  const { page, close } = await open(sizes[0]);
  await live(page);
  await ask(page, 'What is a quire?');
  await tool(page, 'Tokens').click();
  for (const [opener, dialog] of [['#settings-open', '#settings'], ['#library-open', '#library']]) {
    await page.focus(opener);
    await page.keyboard.press('Enter');
    assert.ok(await page.evaluate((name) => document.querySelector(name).contains(document.activeElement), dialog), `the focus is in ${dialog}`);
    const nameless = await page.evaluate(() => [...document.querySelectorAll('button, input, textarea, [tabindex="0"], dialog')].filter((element) => {
      if (element.checkVisibility?.() === false || element.hidden) return false;
      const labelled = element.getAttribute('aria-labelledby');
      return !(element.ariaLabel || element.textContent.trim() || element.labels?.length || element.title || (labelled && document.getElementById(labelled)));
    }).map((element) => element.outerHTML.slice(0, 80)));
    assert.deepEqual(nameless, []);
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => `#${document.activeElement.id}`), opener, 'the focus is where it was');
  }
  await close();
});

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

// Two calls of tools in one answer.
const TWO_CALLS = [...['weather', 'time'].map((name, index) => ({ tool_calls: [{ index, id: `call_${name}`, type: 'function', function: { name, arguments: '{}' } }] })), { finish: 'tool_calls' }];

test('what cannot be sent because an answer is running stays in its form', { timeout: 60_000 }, async () => {
  const { page, problems, close } = await open(sizes[0]);
  await live(page);
  let finish;
  const slow = () => new Promise((resolve) => { finish = () => resolve(['At last.']); });
  const answers = [TWO_CALLS, slow(), ['Yes.']];
  const sent = await answerWith(page, answers);
  await ask(page, 'First?');
  await tool(page, 'Edit').click();
  await page.fill('.user .editor textarea', 'First, changed?');
  await page.fill('.result >> nth=0 >> textarea', 'sunny');
  await page.fill('#prompt', 'Second?');
  await page.press('#prompt', 'Enter');
  await page.waitForSelector('#stop:not([hidden])');
  await page.press('.user .editor textarea', 'Enter');
  assert.match(await page.textContent('#notice p'), /^An answer is still running/);
  assert.equal(await page.inputValue('.user .editor textarea'), 'First, changed?');
  await page.locator('.result button').first().click();
  assert.equal(await page.inputValue('.result >> nth=0 >> textarea'), 'sunny');
  assert.equal(sent.length, 2);
  finish();
  await rested(page);
  await page.fill('.user .editor textarea', ' ');
  await page.press('.user .editor textarea', 'Enter');
  assert.equal(await page.locator('.user .editor').count(), 1, 'an empty message is not sent either');
  await page.fill('.user .editor textarea', 'First, changed?');
  await page.press('.user .editor textarea', 'Enter');
  await rested(page);
  assert.deepEqual(await texts(page, '.bubble'), ['First, changed?']);
  assert.deepEqual(problems, []);
  await close();
});

test('the panel of a token goes with its answer, and Close closes the answer that is pointed at', { timeout: 60_000 }, async () => {
  const { page, problems, close } = await open(sizes[0]);
  await live(page);
  const said = (token) => ({ content: token, logprobs: { content: [{ token, logprob: -0.2, top_logprobs: [{ token, logprob: -0.2 }] }] } });
  await answerWith(page, [[said('One'), said('.')], [said('Two'), said('.')]]);
  await ask(page, 'First?');
  await ask(page, 'Second?');
  const buttons = page.locator('.answer .tools button', { hasText: 'Tokens' });
  const pressed = () => buttons.evaluateAll((all) => all.map((button) => button.getAttribute('aria-pressed')));
  await buttons.nth(0).click();
  await buttons.nth(1).click();
  assert.equal(await page.textContent('#token-name'), 'Two');
  await page.click('#token-close');
  assert.equal(await page.isVisible('#token-panel'), false);
  assert.deepEqual(await pressed(), ['true', 'false']);
  await page.hover('.token >> nth=0');
  assert.equal(await page.textContent('#token-name'), 'One');
  await buttons.nth(1).click();
  await page.hover('.token >> nth=0');
  await buttons.nth(1).click();
  assert.equal(await page.textContent('#token-name'), 'One', 'another answer\'s tokens are hidden');
  assert.equal(await page.isVisible('#token-panel'), true);
  await page.click('#fresh');
  assert.equal(await page.isVisible('#token-panel'), false, 'its answer is gone');
  assert.deepEqual(problems, []);
  await close();
});

test('of two calls the second can be answered after a reload', { timeout: 60_000 }, async () => {
  const { page, problems, close } = await open(sizes[0]);
  await live(page);
  const sent = await answerWith(page, [TWO_CALLS, ['Sunny at noon.']]);
  await ask(page, 'The weather and the time?');
  await page.fill('.result >> nth=0 >> textarea', 'sunny');
  await page.locator('.result button').first().click();
  assert.deepEqual(await texts(page, '.result .who'), ['Result of time']);
  await page.reload();
  await live(page);
  assert.deepEqual(await texts(page, '.result .who'), ['Result of time']);
  await page.fill('.result textarea', 'noon');
  await page.click('.result button');
  await rested(page);
  assert.deepEqual(sent[1].messages.slice(2).map(({ role, tool_call_id: call, content }) => [role, call, content]), [['tool', 'call_weather', 'sunny'], ['tool', 'call_time', 'noon']]);
  assert.equal(await page.locator('.result').count(), 0);
  assert.deepEqual(problems, []);
  await close();
});

test('two tabs with one conversation: neither overwrites the other, and what is deleted stays so', { timeout: 60_000 }, async () => {
  const { page: one, problems, close } = await open(sizes[0]);
  await live(one);
  const answers = [['Yes.']];
  await answerWith(one, answers);
  await ask(one, 'First?');
  const openOther = async () => {
    const other = await one.context().newPage();
    await other.goto(`${server.url}/`);
    await live(other);
    await answerWith(other, answers);
    await other.click('#library-open');
    await other.locator('.entry-open').last().click();
    return other;
  };
  const leave = (page) => page.goto(`${server.url}/style.css`);
  // What the user has said, in each conversation that the browser has.
  const kept = (page) => page.evaluate(() => Object.keys(localStorage).filter((name) => name.startsWith('quire.conversation.'))
    .map((name) => JSON.parse(localStorage[name]).messages.filter(({ role }) => role === 'user').map(({ text }) => text)));
  // The second tab only looks, at the conversation and at the list.
  let other = await openOther();
  await ask(one, 'Second?');
  await other.click('#library-open');
  await leave(other);
  assert.deepEqual(await kept(one), [['First?', 'Second?']]);
  // Both write: there are two conversations then.
  other = await openOther();
  await ask(one, 'Third?');
  await ask(other, 'Third, in the other tab?');
  assert.match(await other.textContent('#notice p'), /^Another tab has changed or deleted this conversation/);
  for (const [page, last] of [[one, 'Third?'], [other, 'Third, in the other tab?']]) {
    await page.reload();
    await live(page);
    assert.deepEqual(await texts(page, '.bubble'), ['First?', 'Second?', last]);
  }
  // A conversation that one tab deletes while another shows it.
  await other.click('#library-open');
  assert.equal(await other.locator('.entry-open').count(), 2);
  await other.locator('#library-list li').filter({ hasNot: other.locator('[aria-current]') }).getByText('Delete').click();
  await leave(one);
  assert.deepEqual(await kept(other), [['First?', 'Second?', 'Third, in the other tab?']]);
  assert.deepEqual(problems, []);
  await close();
});

for (const size of sizes) {
  test(`${size.name} pixels: what was typed is sent after a key was asked for`, async () => {
    const { page, close } = await open(size, { at: guarded });
    await page.waitForSelector('#key-form:not([hidden])');
    await page.fill('#prompt', 'What is a quire?');
    await page.focus('#prompt');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.facts.bad');
    await wellLaid(page);
    await picture(page, `people-${size.name}-key`);
    await page.fill('#key', 'secret');
    await page.keyboard.press('Enter');
    await rested(page);
    assert.match(await page.textContent('.answer .markdown'), /stack of pages|memory/);
    assert.deepEqual(await texts(page, '.bubble'), ['What is a quire?']);
    await close();
  });
}

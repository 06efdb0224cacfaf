import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { GrowingMarkdown, cellsOf, inlinesOf, parse, safeAddress, sourceEnd } from './markdown.js';

const text = (value) => ({ type: 'text', text: value });
const paragraph = (...inlines) => ({ type: 'paragraph', inlines });

const SAMPLE = `# A title with *stress*

Some **bold text** and \`code\`, then
a second line with https://example.com/a_b.

- one
- two
  - inner

  still two
- [x] done

1. first
2) second

| name | size |
|:-----|-----:|
| a \\| b | 12 |
| c | 
after

\`\`\`js
const x = "**not bold**";

  indented
\`\`\`
> quoted
> - item

---
    old code

#hash is text
#
-
para
a | b
---|---
1 | 2
<b>no html</b> [bad](javascript:alert(1)) [good](https://example.com "title")
`;

test('blocks: headings, lists, tables, code, quotes, rules', () => {
  const kinds = parse(SAMPLE).map(({ type }) => type);
  assert.deepEqual(kinds, ['heading', 'paragraph', 'list', 'list', 'list', 'table', 'code', 'quote', 'rule', 'code', 'paragraph', 'heading', 'list', 'paragraph', 'table']
    .filter((kind, i) => i !== 4), 'the two numbered items are one list');
  const [title, , bullets, numbers, table, code, quote] = parse(SAMPLE);
  assert.deepEqual(title, { type: 'heading', level: 1, inlines: [text('A title with '), { type: 'em', inlines: [text('stress')] }] });
  assert.equal(bullets.items.length, 3);
  assert.deepEqual(bullets.items[1].blocks.map(({ type }) => type), ['paragraph', 'list', 'paragraph']);
  assert.deepEqual(bullets.items.map(({ task }) => task), [null, null, true]);
  assert.deepEqual([numbers.ordered, numbers.start, numbers.items.length], [true, 1, 2]);
  assert.deepEqual(table.aligns, ['left', 'right']);
  assert.deepEqual(table.rows[0], [[text('a | b')], [text('12')]]);
  assert.deepEqual(table.rows[1], [[text('c')], []], 'a missing cell is empty');
  assert.deepEqual(code, { type: 'code', language: 'js', text: 'const x = "**not bold**";\n\n  indented' });
  assert.equal(quote.blocks[1].type, 'list');
});

test('a text that grows letter by letter has at every moment the blocks of the whole text', () => {
  const growing = new GrowingMarkdown();
  for (const sample of [SAMPLE, TABS]) {
    for (let end = 0; end <= sample.length; ++end) assert.deepEqual(growing.update(sample.slice(0, end)), parse(sample.slice(0, end)), JSON.stringify(sample.slice(0, end)));
  }
  assert.deepEqual(growing.update('Another *text*'), parse('Another *text*'), 'a text that does not continue the last one');
});

const TABS = `Tabs\tin a text.

\`\`\`make
all:
\tcc -o all\tall.c

\t\tdeeper
\`\`\`

-\ttab item

\tstill it
\t- inner

\t\t\`\`\`make
\t\tall:
\t\t\tcc
\t\t\`\`\`

> \`\`\`
> \tquoted
> \`\`\`

>\tno code

\tfirst
\t\tsecond\tcolumn
`;

test('tabs in code stay tabs; those of the indentation count as four spaces', () => {
  const [said, make, list, quote, near, old] = parse(TABS);
  assert.deepEqual(said, paragraph(text('Tabs\tin a text.')));
  assert.equal(make.text, 'all:\n\tcc -o all\tall.c\n\n\t\tdeeper');
  assert.deepEqual(list.items[0].blocks.map(({ type }) => type), ['paragraph', 'paragraph', 'list']);
  assert.equal(list.items[0].blocks[2].items[0].blocks[1].text, 'all:\n\tcc');
  assert.equal(quote.blocks[0].text, '\tquoted');
  assert.deepEqual(near.blocks, [paragraph(text('no code'))], 'a tab after the mark is three spaces and the mark\'s own');
  assert.equal(old.text, 'first\n\tsecond\tcolumn', 'code by indentation');
  // Where tabs are indentation only, a text with four spaces in their place has the same blocks.
  const indented = '- a\n\t- b\n\n\t\tc\n1.\tone\n\ttwo\n\n\told code\n-\t\tcode in an item\n \tx\n';
  assert.deepEqual(parse(indented), parse(indented.replace(/\t/g, '    ')));
});

test('what is settled is not parsed again: a long answer costs as much per token as a short one', () => {
  const growing = new GrowingMarkdown();
  const line = 'A **line** of text with `code` and [a link](https://example.com).\n\n';
  let whole = '';
  const began = performance.now();
  for (let i = 0; i < 3000; ++i) growing.update(whole += line);
  assert.ok(performance.now() - began < 5000, `${performance.now() - began} ms`);
  assert.equal(growing.update(whole).length, 3000);
});

test('inlines: emphasis, code, strike, breaks, escapes', () => {
  const strong = (...inlines) => ({ type: 'strong', inlines });
  const em = (...inlines) => ({ type: 'em', inlines });
  const cases = [
    ['a **b *c* d** e', [text('a '), strong(text('b '), em(text('c')), text(' d')), text(' e')]],
    ['*a **b** c*', [em(text('a '), strong(text('b')), text(' c'))]],
    ['***both***', [em(strong(text('both')))]],
    ['2 * 3 * 4 and snake_case_name', [text('2 * 3 * 4 and snake_case_name')]],
    ['_word_ __strong__', [em(text('word')), text(' '), strong(text('strong'))]],
    ['**open', [text('**open')]],
    ['`a **b`', [{ type: 'code', text: 'a **b' }]],
    ['`` ` ``', [{ type: 'code', text: '`' }]],
    ['**a `**` b**', [strong(text('a '), { type: 'code', text: '**' }, text(' b'))]],
    ['~~gone~~ ~one~', [{ type: 'strike', inlines: [text('gone')] }, text(' ~one~')]],
    ['one  \ntwo', [text('one'), { type: 'break' }, text('two')]],
    ['\\*no\\* \\q', [text('*no* \\q')]],
    ['<script>alert(1)</script> &amp;', [text('<script>alert(1)</script> &amp;')]],
  ];
  for (const [source, inlines] of cases) assert.deepEqual(inlinesOf(source), inlines, source);
});

test('links lead to pages and mails only', () => {
  const link = (href, label) => ({ type: 'link', href, inlines: [text(label)] });
  assert.deepEqual(inlinesOf('[a](https://example.com/x_(y))'), [link('https://example.com/x_(y)', 'a')]);
  assert.deepEqual(inlinesOf('(see https://example.com/a.)'), [text('(see '), link('https://example.com/a', 'https://example.com/a'), text('.)')]);
  assert.deepEqual(inlinesOf('<mailto:a@example.com>'), [link('mailto:a@example.com', 'mailto:a@example.com')]);
  assert.deepEqual(inlinesOf('![alt](https://example.com/i.png)'), [link('https://example.com/i.png', 'alt')], 'an image is a link');
  for (const bad of ['javascript:alert(1)', 'JaVaScRiPt:alert(1)', 'java\nscript:alert(1)', ' javascript:alert(1)', 'data:text/html,x', 'vbscript:x', 'file:///etc/passwd', '//example.com', '/x', '\u0001javascript:alert(1)', 'blob:x']) {
    assert.equal(safeAddress(bad), null, bad);
    assert.ok(!JSON.stringify(inlinesOf(`[x](${bad})`)).includes('"link"'), bad);
    assert.ok(!JSON.stringify(inlinesOf(`[x](<${bad}>)`)).includes('"link"'), bad);
  }
});

test('hostile texts take no more than a moment', () => {
  const many = 20_000;
  for (const source of ['*a '.repeat(many), '_a'.repeat(many), '['.repeat(many), '![x]('.repeat(many), '`'.repeat(many), '`a'.repeat(many), '> '.repeat(many), '- '.repeat(many),
    '**a*'.repeat(many), '[](('.repeat(many), 'http://'.repeat(many), '|'.repeat(many), '|\n|-'.repeat(many), '\n'.repeat(many), '- a\n'.repeat(many), '* _ `'.repeat(many)]) {
    const began = performance.now();
    parse(source);
    assert.ok(performance.now() - began < 2000, `${JSON.stringify(source.slice(0, 12))}: ${performance.now() - began} ms`);
  }
});

test('cells of a row', () => {
  assert.deepEqual(cellsOf('| a | b |'), ['a', 'b']);
  assert.deepEqual(cellsOf('a|b\\|c|'), ['a', 'b|c', ''].slice(0, 2));
});

test('the end of what was selected is found in the source', () => {
  const source = 'One **two** three `four` five';
  assert.equal(source.slice(0, sourceEnd(source, 'One two th')), 'One **two** th');
  assert.equal(sourceEnd(source, ''), 0);
});

test('no module of the page writes HTML', () => {
  for (const name of readdirSync(new URL('.', import.meta.url)).filter((each) => each.endsWith('.js') && !each.endsWith('.test.js'))) {
    assert.doesNotMatch(readFileSync(new URL(name, import.meta.url), 'utf8'), /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(/, name);
  }
});

// Draws markdown. Text of a model only ever becomes text nodes. While a text grows, blocks that stay as they were keep
// their elements, so that a selection in them and the scroll position of wide ones stay too.
import { make } from './dom.js';
import { GrowingMarkdown } from './markdown.js';

// A button that copies what `text()` returns.
export function copyButton(text, what = '') {
  const button = make('button', { type: 'button', className: 'quiet', textContent: 'Copy' });
  if (what) button.ariaLabel = `Copy ${what}`;
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

function drawInline(inline) {
  switch (inline.type) {
    case 'text': return document.createTextNode(inline.text);
    case 'code': return make('code', { textContent: inline.text });
    case 'break': return make('br');
    case 'link': return make('a', { href: inline.href, target: '_blank', rel: 'noopener noreferrer' }, ...inline.inlines.map(drawInline));
    default: return make({ strong: 'strong', em: 'em', strike: 's' }[inline.type], {}, ...inline.inlines.map(drawInline));
  }
}
const drawInlines = (inlines) => inlines.map(drawInline);

function drawCode({ language, text }) {
  const code = make('code', { textContent: text });
  const root = make('div', { className: 'code' },
    make('div', { className: 'code-head' }, make('span', { textContent: language }), copyButton(() => code.textContent, 'the code')),
    make('pre', { tabIndex: 0, ariaLabel: language ? `Code in ${language}` : 'Code' }, code));
  return root;
}

function drawTable({ aligns, head, rows }) {
  const row = (tag) => (cells) => make('tr', {}, ...cells.map((inlines, column) => {
    const cell = make(tag, {}, ...drawInlines(inlines));
    if (aligns[column]) cell.style.textAlign = aligns[column];
    return cell;
  }));
  return make('div', { className: 'table', tabIndex: 0, role: 'region', ariaLabel: 'Table' },
    make('table', {}, make('thead', {}, row('th')(head)), make('tbody', {}, ...rows.map(row('td')))));
}

// A paragraph that is alone in an item has no space around it.
const drawItem = ({ task, blocks }) => {
  const item = make('li', {}, ...blocks.flatMap((block, i) => (i === 0 && block.type === 'paragraph' ? drawInlines(block.inlines) : [drawBlock(block)])));
  if (task !== null) {
    item.className = 'task';
    item.prepend(make('input', { type: 'checkbox', checked: task, disabled: true, ariaLabel: task ? 'done' : 'not done' }), ' ');
  }
  return item;
};

function drawBlock(block) {
  switch (block.type) {
    case 'heading': return make(`h${Math.min(6, block.level + 2)}`, {}, ...drawInlines(block.inlines));  // h1 and h2 are the page's
    case 'paragraph': return make('p', {}, ...drawInlines(block.inlines));
    case 'code': return drawCode(block);
    case 'quote': return make('blockquote', {}, ...block.blocks.map(drawBlock));
    case 'list': return make(block.ordered ? 'ol' : 'ul', block.ordered ? { start: block.start } : {}, ...block.items.map(drawItem));
    case 'table': return drawTable(block);
    default: return make('hr');
  }
}

export class MarkdownView {
  #growing = new GrowingMarkdown();
  #keys = [];  // of the blocks that are drawn

  constructor(root) {
    this.root = root;
    root.classList.add('markdown');
  }

  update(text) {
    const blocks = this.#growing.update(text);
    const { children } = this.root;
    blocks.forEach((block, i) => {
      if (this.#keys[i]?.block === block) return;  // a settled block is the same object
      const key = JSON.stringify(block);
      const same = this.#keys[i]?.key === key;
      const before = this.#keys[i]?.block;
      this.#keys[i] = { block, key };
      if (same) return;
      // Code that grows keeps its element.
      if (block.type === 'code' && before?.type === 'code' && before.language === block.language) {
        children[i].querySelector('code').textContent = block.text;
      } else if (i < children.length) {
        children[i].replaceWith(drawBlock(block));
      } else {
        this.root.append(drawBlock(block));
      }
    });
    while (children.length > blocks.length) this.root.lastChild.remove();
    this.#keys.length = blocks.length;
  }
}

// Markdown as data: the part of it that models write. No drawing, and no HTML: a tag is text.
//
// Blocks:   heading {level, inlines}, paragraph {inlines}, code {language, text}, quote {blocks}, rule,
//           list {ordered, start, items: [{task, blocks}]}, table {aligns, head, rows}; cells are inlines
// Inlines:  text {text}, code {text}, strong, em, strike {inlines}, link {href, inlines}, break
//
// Not known: HTML, footnotes, reference links, headings that are underlined. Images become links: the page loads nothing.

const MOST_DEPTH = 12;  // of blocks in blocks, and of inlines in inlines; deeper ones are text

const FENCE = /^( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*))?$/;
const DELIMITER_ROW = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const blank = (line) => /^\s*$/.test(line);

// A tab in the indentation counts as four spaces. All other tabs stay as they are: code may need them.
const TAB = 4;
const indentOf = (line) => {
  let columns = 0;
  for (let i = 0; line[i] === ' ' || line[i] === '\t'; ++i) columns += line[i] === '\t' ? TAB : 1;
  return columns;
};
// The line without so many columns of its indentation. What is left of a tab that is cut becomes spaces.
function outdent(line, columns) {
  let i = 0;
  for (; columns > 0 && (line[i] === ' ' || line[i] === '\t'); ++i) columns -= line[i] === '\t' ? TAB : 1;
  return ' '.repeat(Math.max(0, -columns)) + line.slice(i);
}
const opensBlock = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
// An empty item does not end a paragraph: the line may become something else as it is written.
const opensList = (line) => Boolean(line.match(ITEM)?.[4]);

// The cells of a row. `\|` is no border.
export function cellsOf(line) {
  const cells = [''];
  const inner = line.trim().replace(/^\|/, '').replace(/(^|[^\\])\|$/, '$1');
  for (let i = 0; i < inner.length; ++i) {
    if (inner[i] === '\\' && inner[i + 1] === '|') { cells[cells.length - 1] += '|'; ++i; }
    else if (inner[i] === '|') cells.push('');
    else cells[cells.length - 1] += inner[i];
  }
  return cells.map((cell) => cell.trim());
}

const tableAt = (lines, i) => i + 1 < lines.length && lines[i].includes('|') && DELIMITER_ROW.test(lines[i + 1])
  && cellsOf(lines[i]).length === cellsOf(lines[i + 1]).length;

function codeBlock(lines, i) {
  const [, indent, fence, info] = lines[i].match(FENCE);
  const closing = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}[ \\t]*$`);
  const text = [];
  let end = i + 1;
  while (end < lines.length && !closing.test(lines[end])) text.push(lines[end++].replace(new RegExp(`^ {0,${indent.length}}`), ''));
  return [{ type: 'code', language: info.trim().split(/\s/)[0], text: text.join('\n') }, Math.min(end + 1, lines.length)];
}

function indentedCode(lines, i) {
  let end = i;
  while (end < lines.length && (blank(lines[end]) || indentOf(lines[end]) >= 4)) ++end;
  const text = lines.slice(i, end).map((line) => outdent(line, 4));
  while (text.length && blank(text.at(-1))) text.pop();
  return [{ type: 'code', language: '', text: text.join('\n') }, end];
}

function quoteBlock(lines, i, depth) {
  let end = i;
  while (end < lines.length && QUOTE.test(lines[end])) ++end;
  return [{ type: 'quote', blocks: blocksOf(lines.slice(i, end).map((line) => outdent(line.replace(QUOTE, ''), 1)), depth + 1) }, end];
}

function tableBlock(lines, i, depth) {
  const aligns = cellsOf(lines[i + 1]).map((cell) => (/^:-+:$/.test(cell) ? 'center' : cell.endsWith(':') ? 'right' : cell.startsWith(':') ? 'left' : ''));
  const row = (line) => Array.from({ length: aligns.length }, (_, column) => inlinesOf(cellsOf(line)[column] ?? '', depth));
  let end = i + 2;
  while (end < lines.length && !blank(lines[end]) && !opensBlock(lines[end])) ++end;
  return [{ type: 'table', aligns, head: row(lines[i]), rows: lines.slice(i + 2, end).map(row) }, end];
}

// Models often indent less than the standard asks for: two spaces are enough for what belongs to an item.
function listBlock(lines, i, depth) {
  const kind = (marker) => (/\d/.test(marker) ? 'ordered' : marker);
  const [, , first] = lines[i].match(ITEM);
  const ordered = kind(first) === 'ordered';
  const items = [];
  let end = i;
  while (end < lines.length) {
    const found = lines[end].match(ITEM);
    if (!found || kind(found[2]) !== kind(first) || RULE.test(lines[end])) break;
    const [, before, marker, space = ' ', rest = ''] = found;
    const gap = indentOf(space);
    const inner = before.length + marker.length + (gap > 4 ? 1 : gap);
    const least = Math.min(inner, before.length + 2);
    const own = [gap > 4 ? outdent(space + rest, 1) : rest];
    for (++end; end < lines.length; ++end) {
      const line = lines[end];
      if (blank(line)) {
        const next = lines.slice(end).find((later) => !blank(later));
        if (next === undefined || indentOf(next) < least) break;
        own.push('');
      } else if (indentOf(line) >= least) {
        own.push(outdent(line, inner));
      } else if (opensBlock(line) || ITEM.test(line) || blank(own.at(-1)) || tableAt(lines, end)) {
        break;
      } else {
        own.push(line);
      }
    }
    const task = own[0].match(/^\[([ xX])\][ \t]+/);
    if (task) own[0] = own[0].slice(task[0].length);
    items.push({ task: task ? task[1] !== ' ' : null, blocks: blocksOf(own, depth + 1) });
    let next = end;
    while (next < lines.length && blank(lines[next])) ++next;
    if (next === lines.length || !ITEM.test(lines[next])) break;
    end = next;
  }
  return [{ type: 'list', ordered, start: ordered ? parseInt(first, 10) : 1, items }, end];
}

function paragraph(lines, i, depth) {
  let end = i + 1;
  while (end < lines.length && !blank(lines[end]) && !opensBlock(lines[end]) && !opensList(lines[end]) && !tableAt(lines, end)) ++end;
  return [{ type: 'paragraph', inlines: inlinesOf(lines.slice(i, end).map((line) => line.replace(/^[ \t]+/, '')).join('\n'), depth) }, end];
}

// The block that begins at this line, and the line after it.
function blockAt(lines, i, depth) {
  const line = lines[i];
  if (depth < MOST_DEPTH) {
    if (FENCE.test(line)) return codeBlock(lines, i);
    if (HEADING.test(line)) {
      const [, marks, text = ''] = line.match(HEADING);
      return [{ type: 'heading', level: marks.length, inlines: inlinesOf(text, depth) }, i + 1];
    }
    if (RULE.test(line)) return [{ type: 'rule' }, i + 1];
    if (QUOTE.test(line)) return quoteBlock(lines, i, depth);
    if (ITEM.test(line)) return listBlock(lines, i, depth);
    if (tableAt(lines, i)) return tableBlock(lines, i, depth);
    if (indentOf(line) >= 4) return indentedCode(lines, i);
  }
  return paragraph(lines, i, depth);
}

function blocksOf(lines, depth) {
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (blank(lines[i])) { ++i; continue; }
    const [block, end] = blockAt(lines, i, depth);
    blocks.push(block);
    i = end;
  }
  return blocks;
}

export const parse = (text) => blocksOf(text.replace(/\r\n?/g, '\n').split('\n'), 0);

// The blocks of a text that grows. Blocks that can no longer change are not parsed again: of the lines that are complete,
// all blocks but the last. A text is taken for a longer version of the last one if it has what was not settled of it.
export class GrowingMarkdown {
  #open = '';  // what was not settled of the last text
  #settled = [];
  #from = 0;   // where it begins

  update(text) {
    if (!text.startsWith(this.#open, this.#from)) { this.#settled = []; this.#from = 0; }
    const lines = text.slice(this.#from, text.lastIndexOf('\n') + 1).replace(/\r/g, ' ').split('\n');
    lines.pop();
    let line = 0;  // the first line of the block that is still open
    for (let i = 0; i < lines.length;) {
      if (blank(lines[i])) { ++i; continue; }
      const [block, end] = blockAt(lines, i, 0);
      let next = end;
      while (next < lines.length && blank(lines[next])) ++next;
      if (next >= lines.length) break;  // the last one: what follows may belong to it
      this.#settled.push(block);
      line = next;
      i = next;
    }
    for (; line > 0; --line) this.#from = text.indexOf('\n', this.#from) + 1;
    this.#open = text.slice(this.#from);
    return [...this.#settled, ...parse(this.#open)];
  }
}

// --- inlines

const PUNCTUATION = /[!-/:-@[-`{-~]/;
const BARE = /^https?:\/\/[^\s<>]+/i;

// The address as the browser reads it; null if it could do anything but open a page or a mail.
export function safeAddress(text) {
  try {
    const address = new URL(text);
    return ['http:', 'https:', 'mailto:'].includes(address.protocol) ? address.href : null;
  } catch { return null; }
}

// A link's text, address and end, with `at` at its bracket; null if there is none.
function linkAt(text, at) {
  let depth = 0, close = at;
  for (; close < text.length; ++close) {
    if (text[close] === '\\') ++close;
    else if (text[close] === '[') ++depth;
    else if (text[close] === ']' && --depth === 0) break;
  }
  if (text[close + 1] !== '(') return null;
  const rest = text.slice(close + 2).match(/^[ \t\n]*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*))(?:[ \t\n]+(?:"[^"]*"|'[^']*'))?[ \t\n]*\)/);
  if (!rest) return null;
  const href = safeAddress((rest[1] ?? rest[2]).replace(/\\([!-/:-@[-`{-~])/g, '$1'));
  return href && { label: text.slice(at + 1, close), href, end: close + 2 + rest[0].length };
}

// Where the emphasis that begins at `at` with `run` marks ends: the place of its closing marks, or -1.
function closing(text, at, run) {
  const mark = text[at];
  for (let i = at + run; i < text.length; ++i) {
    if (text[i] === '\\') { ++i; continue; }
    if (text[i] === '`') {
      const ticks = text.slice(i).match(/^`+/)[0];
      const end = codeEnd(text, i, ticks.length);
      i = (end < 0 ? i : end) + ticks.length - 1;
      continue;
    }
    if (text[i] !== mark) continue;
    let end = i;
    while (text[end] === mark) ++end;
    const size = end - i;
    const after = text[end] ?? ' ';
    const closes = !/\s/.test(text[i - 1]) && i > at + run && (mark !== '_' || !/[\p{L}\p{N}]/u.test(after));
    if (closes && (mark === '~' ? size === run : run === 1 ? size % 2 === 1 : size >= run)) return end - run;
    i = end - 1;
  }
  return -1;
}

function codeEnd(text, at, ticks) {
  for (let i = at + ticks; i < text.length; ++i) {
    if (text[i] !== '`') continue;
    let end = i;
    while (text[end] === '`') ++end;
    if (end - i === ticks) return i;
    i = end - 1;
  }
  return -1;
}

export function inlinesOf(text, depth = 0) {
  const out = [];
  const hopeless = new Set();  // marks without an end: not searched for again
  const plain = (piece) => {
    if (out.at(-1)?.type === 'text') out.at(-1).text += piece;
    else if (piece) out.push({ type: 'text', text: piece });
  };
  const inner = (piece) => inlinesOf(piece, depth + 1);
  for (let i = 0; i < text.length;) {
    const c = text[i];
    if (c === '\\' && (PUNCTUATION.test(text[i + 1] ?? '') || text[i + 1] === '\n')) {
      if (text[i + 1] === '\n') out.push({ type: 'break' });
      else plain(text[i + 1]);
      i += 2;
    } else if (c === '\n') {
      if (out.at(-1)?.type === 'text' && / {2,}$/.test(out.at(-1).text)) {
        out.at(-1).text = out.at(-1).text.trimEnd();
        out.push({ type: 'break' });
      } else {
        plain('\n');
      }
      ++i;
    } else if (c === '`') {
      const ticks = text.slice(i).match(/^`+/)[0].length;
      const end = hopeless.has(`\`${ticks}`) ? -1 : codeEnd(text, i, ticks);
      if (end < 0) { hopeless.add(`\`${ticks}`); plain('`'.repeat(ticks)); i += ticks; continue; }
      const code = text.slice(i + ticks, end).replace(/\n/g, ' ');
      out.push({ type: 'code', text: /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code });
      i = end + ticks;
    } else if (depth < MOST_DEPTH && (c === '*' || c === '_' || c === '~')) {
      let run = 0;
      while (text[i + run] === c) ++run;
      const opens = run <= (c === '~' ? 2 : 3) && (c !== '~' || run === 2) && !/\s/.test(text[i + run] ?? ' ')
        && (c !== '_' || !/[\p{L}\p{N}]/u.test(text[i - 1] ?? ''));
      const end = opens && !hopeless.has(c + run) ? closing(text, i, run) : -1;
      if (end < 0) { if (opens) hopeless.add(c + run); plain(c.repeat(run)); i += run; continue; }
      const inlines = inner(text.slice(i + run, end));
      if (c === '~') out.push({ type: 'strike', inlines });
      else if (run === 3) out.push({ type: 'em', inlines: [{ type: 'strong', inlines }] });
      else out.push({ type: run === 2 ? 'strong' : 'em', inlines });
      i = end + run;
    } else if (depth < MOST_DEPTH && (c === '[' || (c === '!' && text[i + 1] === '[')) && !hopeless.has('[')) {
      const link = linkAt(text, c === '!' ? i + 1 : i);
      if (!link) { if (!text.includes('](', i)) hopeless.add('['); plain(c); ++i; continue; }
      out.push({ type: 'link', href: link.href, inlines: inner(link.label || link.href) });
      i = link.end;
    } else if (c === '<' && /^<(?:https?:\/\/|mailto:)[^\s<>]+>/i.test(text.slice(i, i + 2048))) {
      const address = text.slice(i + 1, text.indexOf('>', i));
      const href = safeAddress(address);
      if (href) out.push({ type: 'link', href, inlines: [{ type: 'text', text: address }] });
      else plain(`<${address}>`);
      i += address.length + 2;
    } else if ((c === 'h' || c === 'H') && !/[\p{L}\p{N}]/u.test(text[i - 1] ?? '') && BARE.test(text.slice(i, i + 2048))) {
      let address = text.slice(i, i + 2048).match(BARE)[0];
      // Marks at the end belong to the sentence, and so does a parenthesis that was opened before.
      address = address.replace(address.includes('(') ? /[.,;:!?'"*_~]+$/ : /[.,;:!?'"*_~)]+$/, '');
      const href = safeAddress(address);
      if (href) out.push({ type: 'link', href, inlines: [{ type: 'text', text: address }] });
      else plain(address);
      i += address.length;
    } else {
      let end = i + 1;
      while (end < text.length && !'\\\n`*_~[!<hH'.includes(text[end])) ++end;
      plain(text.slice(i, end));
      i = end;
    }
  }
  return out;
}

// The place in the source after the text that was shown: the shown characters stand in the source in the same order, with
// marks between them.
export function sourceEnd(source, shown) {
  let at = 0;
  for (const c of shown.replace(/\s+/g, '')) {
    const found = source.indexOf(c, at);
    if (found < 0) break;
    at = found + c.length;
  }
  return at;
}

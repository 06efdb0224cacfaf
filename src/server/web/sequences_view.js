// The list of sequences: a row for each running one, and for the last few that ended.
import { $, make } from './dom.js';
import { hueOfKey, nameOfKey } from './sequence_key.js';
import { colourOf } from './theme.js';
import { count, hitInWords, stateInWords } from './words.js';

const MOST_ROWS = 24;
const rows = new Map();  // by key

// Calls `light(key)` when the user points at a row, and `light(null)` when they leave it.
export function showSequences(pool, light) {
  const live = [...pool.sequences].sort(([, a], [, b]) => b.request - a.request || a.choice - b.choice);
  const all = [...live, ...[...pool.ended].reverse()].slice(0, MOST_ROWS);
  const list = $('sequences');
  const keys = new Set(all.map(([key]) => key));
  for (const [key, row] of rows) {
    if (!keys.has(key)) { row.root.remove(); rows.delete(key); }
  }
  all.forEach(([key, sequence], i) => {
    let row = rows.get(key);
    if (!row) rows.set(key, row = sequenceRow(key, light));
    if (list.children[i] !== row.root) list.insertBefore(row.root, list.children[i] ?? null);
    row.update(sequence);
  });
  $('no-sequences').hidden = all.length > 0;
  const hidden = live.length + pool.ended.size - all.length;
  $('sequence-count').textContent = live.length ? `${count(live.length)} now${hidden > 0 ? `, ${count(hidden)} of them not shown` : ''}` : '';
}

function sequenceRow(key, light) {
  const colour = colourOf(hueOfKey(key));
  const segment = (name, painted = true) => {
    const part = make('i', { className: name });
    if (painted) part.style.background = colour;
    return part;
  };
  const dot = make('span', { className: 'dot' });
  dot.style.background = colour;
  const state = make('span', { className: 'state' });
  const parts = [segment('reused'), segment('prefilled'), segment('remaining', false), segment('decoded')];
  const hit = make('p', { className: 'hit' });
  const bar = make('div', { className: 'bar', role: 'progressbar' }, ...parts);
  const root = make('li', { tabIndex: 0 }, make('div', { className: 'sequence-line' }, dot, make('b', { textContent: nameOfKey(key) }), state), bar, hit);
  const lit = (on) => () => {
    root.classList.toggle('lit', on);
    light(on ? key : null);
  };
  root.onpointerenter = root.onfocus = lit(true);
  root.onpointerleave = root.onblur = lit(false);
  return {
    root,
    update(sequence) {
      const prompt = sequence.prompt_tokens, most = Math.max(sequence.max_tokens, prompt, 1);
      const reused = sequence.hit?.tokens ?? 0;
      const prefilled = Math.max(0, Math.min(sequence.computed, prompt) - reused);
      const decoded = Math.max(0, sequence.tokens - prompt);
      [reused, prefilled, Math.max(0, prompt - reused - prefilled), decoded].forEach((n, i) => { parts[i].style.width = `${(100 * n) / most}%`; });
      bar.setAttribute('aria-label', `${nameOfKey(key)}: ${count(reused + prefilled)} of ${count(prompt)} prompt tokens in the pool, ${count(decoded)} decoded`);
      bar.setAttribute('aria-valuenow', Math.round((100 * (reused + prefilled + decoded)) / most));
      root.classList.toggle('ended', Boolean(sequence.ended));
      state.textContent = stateInWords(sequence);
      hit.textContent = sequence.state === 'waiting' && !sequence.ended ? `${count(prompt)} prompt tokens` : hitInWords(reused, prompt, sequence.hit?.end, sequence.hit?.from);
      if (sequence.suspensions) hit.textContent += ` · suspended ${sequence.suspensions === 1 ? 'once' : `${sequence.suspensions} times`}`;
    },
  };
}

// Tells about the token that the user points at, and marks its page in the pool.
import { grids } from './cell_grid.js';
import { $, make } from './dom.js';
import { pool } from './pool.js';
import { pointedToken } from './tokens_view.js';
import { pageInWords, percent, visibleToken } from './words.js';

// The pages of the token: one for each group of layers; null where it is no more.
function pagesOf({ answer, index }) {
  const key = pool.keyOfAnswer(answer);
  return key === null ? null : pool.pagesOf(key, index);
}

function alternativeRow([token, logprob], chosen) {
  const bar = make('i');
  bar.style.width = `${Math.max(0.5, 100 * Math.exp(logprob))}%`;
  return make('li', { className: chosen ? 'chosen' : '' }, make('code', { textContent: visibleToken(token) }), make('span', { className: 'likely', ariaHidden: 'true' }, bar), make('span', { textContent: percent(logprob) }));
}

function showToken(pointed) {
  $('token-panel').hidden = pointed === null;
  if (pointed === null) {
    for (const grid of grids) grid.mark(-1);
    return;
  }
  const { answer, index } = pointed;
  const [token, logprob, alternatives] = answer.tokens[index];
  $('token-name').textContent = visibleToken(token);
  $('token-said').textContent = `token ${index + 1} of ${answer.tokens.length}, probability ${percent(logprob)}`;
  const shown = alternatives.some(([other]) => other === token) ? alternatives : [...alternatives, [token, logprob]];
  $('token-alternatives').replaceChildren(...shown.map((entry) => alternativeRow(entry, entry[0] === token)));
  const pages = pagesOf(pointed);
  $('token-page').textContent = pageInWords(pool, pages);
  $('token-show').hidden = !pages?.some((page) => page !== null);
  grids.forEach((grid, group) => grid.mark(pages?.[group] ?? -1));
}

export function startTokenPanel(lookAtPool) {
  pointedToken.onPoint = showToken;
  $('token-show').onclick = lookAtPool;
  $('token-close').onclick = () => {
    const view = pointedToken.now?.view;
    pointedToken.point(null);
    view?.close();
  };
}

// The rows of the tiers, under the cells of the pool: how full each is, what moves, and whether it works.
import { CellGrid } from './cell_grid.js';
import { $, make } from './dom.js';
import { describeTierCell, tierFacts, tierState, tierTitle } from './words.js';

let rows = [];

// The grids of the tiers, to be shown with the pool's.
export function makeTierRows(tiers) {
  rows = tiers.map((tier) => {
    const grid = new CellGrid(tier.cells, { title: tierTitle(tier), describe: (cell) => describeTierCell(tier, cell), row: true });
    const state = make('span');
    const facts = make('p', { className: 'tier-facts' });
    grid.root.classList.add('tier');
    grid.root.querySelector('h3').append(' ', state);
    grid.root.append(facts);
    return { tier, grid, state, facts };
  });
  for (const item of $('legend').querySelectorAll('.of-tiers')) item.hidden = rows.length === 0;
  return rows.map(({ grid }) => grid);
}

export function showTiers() {
  for (const { tier, grid, state, facts } of rows) {
    const { text, bad } = tierState(tier);
    state.textContent = text;
    state.className = bad ? 'bad' : '';
    facts.textContent = tierFacts(tier);
    grid.scroller.setAttribute('aria-label', `${tierTitle(tier)}: ${tier.filled()} of ${tier.cells.total} cells filled`);
  }
}

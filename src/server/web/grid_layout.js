// The geometry of a grid of cells, in CSS pixels. A layout is {columns, rows, pitch, gap, height, scrolled}: `pitch` is the
// size of a cell with its gap, `height` the visible height, `scrolled` the height that is out of view.

const MOST_HEIGHT = 320;

// `wanted` is the preferred height. Null: there is nothing to lay out.
export function layOut(width, total, wanted) {
  if (width <= 0 || total <= 0) return null;
  const fitting = (height) => Math.floor(Math.sqrt((width * height) / total));
  // Many cells get more height, so that each can still be seen.
  const pitch = Math.max(4, Math.min(18, fitting(wanted) >= 10 ? fitting(wanted) : fitting(wanted * 1.4)));
  const gap = pitch >= 12 ? 2 : 1;
  const columns = Math.max(1, Math.floor((width + gap) / pitch));
  const rows = Math.ceil(total / columns);
  const height = Math.min(rows * pitch, MOST_HEIGHT);
  return { columns, rows, pitch, gap, height, scrolled: rows * pitch - height };
}

// All cells in one row, as large as the width allows.
export function layRow(width, total) {
  if (width <= 0 || total <= 0) return null;
  const pitch = Math.max(4, Math.min(18, Math.floor((width + 2) / total)));
  return { columns: total, rows: 1, pitch, gap: pitch >= 12 ? 2 : 1, height: pitch, scrolled: 0 };
}

// The upper left corner of a cell, with the grid scrolled to `top`; null if the cell is not visible.
export function placeOf({ columns, pitch, height }, cell, top = 0) {
  const y = Math.floor(cell / columns) * pitch - top;
  return y < -pitch || y > height ? null : { x: (cell % columns) * pitch, y };
}

// The cell at a point, or -1.
export function cellAt({ columns, pitch }, total, x, y, top = 0) {
  const column = Math.floor(x / pitch);
  const cell = Math.floor((y + top) / pitch) * columns + column;
  return column >= 0 && column < columns && cell >= 0 && cell < total ? cell : -1;
}

// The visible cells: [first, last).
export function visible({ columns, pitch, height }, total, top = 0) {
  const first = Math.floor(top / pitch) * columns;
  return { first, last: Math.min(total, first + (Math.ceil(height / pitch) + 1) * columns) };
}

// The cell that an arrow key leads to; null for other keys. If no cell is selected, it is the first.
export function stepTo({ columns }, total, cell, key) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  if (!(key in steps)) return null;
  return cell < 0 ? 0 : Math.max(0, Math.min(total - 1, cell + steps[key]));
}

// The scroll position at which a cell is visible; `top` if it already is.
export function scrollTo({ columns, pitch, height }, cell, top) {
  const y = Math.floor(cell / columns) * pitch;
  if (y < top) return y;
  return y + pitch > top + height ? y + pitch - height : top;
}

// The stripes [from, to) of a cell of `size` pixels, one for each holder that there is room for.
export function stripes(size, holders) {
  const shown = Math.min(holders, Math.max(1, Math.floor(size / 3)));
  return Array.from({ length: shown }, (_, i) => [Math.round((i * size) / shown), Math.round(((i + 1) * size) / shown)]);
}

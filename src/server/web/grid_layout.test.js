import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cellAt, layOut, layRow, placeOf, scrollTo, stepTo, stripes, visible } from './grid_layout.js';

const shapes = [];
for (const width of [1, 60, 350, 600, 1200]) for (const total of [1, 12, 247, 2048, 20_480, 100_000]) for (const wanted of [80, 210]) shapes.push({ width, total, wanted });

test('there is nothing to lay out without room or without cells', () => {
  assert.equal(layOut(0, 100, 210), null);
  assert.equal(layOut(600, 0, 210), null);
});

test('all cells have a place, in the width there is', () => {
  for (const { width, total, wanted } of shapes) {
    const { columns, rows, pitch, gap, height, scrolled } = layOut(width, total, wanted);
    const about = `${total} cells in ${width}`;
    assert.ok(columns * rows >= total && columns * (rows - 1) < total, about);
    assert.ok(columns * pitch - gap <= width || columns === 1, about);
    assert.ok(pitch >= 4 && pitch <= 18 && gap < pitch, about);
    assert.equal(height + scrolled, rows * pitch, about);
    assert.ok(height <= 320, about);
  }
});

test('a point in a cell is that cell, wherever it is scrolled to', () => {
  for (const { width, total, wanted } of shapes) {
    const layout = layOut(width, total, wanted);
    for (const top of [0, 7, layout.scrolled]) {
      const { first, last } = visible(layout, total, top);
      for (const cell of [first, first + 1, Math.floor((first + last) / 2), last - 1]) {
        if (cell < first || cell >= last) continue;
        const place = placeOf(layout, cell, top);
        if (!place) continue;
        assert.equal(cellAt(layout, total, place.x + 1, place.y + 1, top), cell);
      }
    }
  }
});

test('the visible cells are those with a place in the window', () => {
  for (const { width, total, wanted } of shapes.filter((shape) => shape.total <= 20_480)) {
    const layout = layOut(width, total, wanted);
    const top = Math.min(layout.scrolled, 33);
    const { first, last } = visible(layout, total, top);
    for (let cell = 0; cell < total; ++cell) {
      const place = placeOf(layout, cell, top);
      const inside = place && place.y + layout.pitch > 0 && place.y < layout.height;
      if (inside) assert.ok(cell >= first && cell < last, `cell ${cell} of ${total}`);
    }
  }
});

test('a point outside the cells is no cell', () => {
  const layout = layOut(600, 100, 210);
  assert.equal(cellAt(layout, 100, -1, 5), -1);
  assert.equal(cellAt(layout, 100, layout.columns * layout.pitch + 1, 5), -1);
  assert.equal(cellAt(layout, 100, 5, -1), -1);
  const last = placeOf(layout, 99);
  assert.equal(cellAt(layout, 100, last.x + layout.pitch + 1, last.y + 1), -1, 'behind the last');
});

test('arrow keys walk, and stop at the ends', () => {
  const layout = layOut(600, 100, 210);
  assert.equal(stepTo(layout, 100, -1, 'ArrowDown'), 0);
  assert.equal(stepTo(layout, 100, 0, 'ArrowLeft'), 0);
  assert.equal(stepTo(layout, 100, 5, 'ArrowRight'), 6);
  assert.equal(stepTo(layout, 100, 5, 'ArrowDown'), 5 + layout.columns);
  assert.equal(stepTo(layout, 100, 99, 'ArrowDown'), 99);
  assert.equal(stepTo(layout, 100, 5, 'Enter'), null);
});

test('it scrolls no further than a cell needs', () => {
  const layout = layOut(600, 20_480, 210);
  const low = layout.columns * (layout.rows - 1);
  const top = scrollTo(layout, low, 0);
  assert.equal(top, layout.scrolled);
  assert.equal(scrollTo(layout, low, top), top, 'it is seen already');
  assert.equal(scrollTo(layout, 0, top), 0);
});

test('a shared cell has a stripe for each holder that there is room for, without gaps', () => {
  for (const size of [3, 8, 16]) {
    for (const holders of [1, 2, 3, 7]) {
      const all = stripes(size, holders);
      assert.ok(all.length <= holders && all.length >= 1);
      assert.equal(all[0][0], 0);
      assert.equal(all.at(-1)[1], size);
      all.forEach(([from, to], i) => { assert.ok(to > from); if (i) assert.equal(from, all[i - 1][1]); });
    }
  }
  assert.equal(stripes(16, 3).length, 3);
  assert.equal(stripes(3, 3).length, 1);
});

test('a row fills the width with cells that can be seen, and never breaks', () => {
  for (const width of [200, 358, 590, 950, 3000]) {
    const layout = layRow(width, 48);
    assert.equal(layout.rows, 1);
    assert.equal(layout.columns, 48);
    assert.ok(layout.pitch >= 4 && layout.pitch <= 18);
    assert.ok(48 * layout.pitch - layout.gap <= Math.max(width, 192), `${width}: ${48 * layout.pitch}`);
    assert.deepEqual(placeOf(layout, 47), { x: 47 * layout.pitch, y: 0 });
  }
  assert.equal(layRow(0, 48), null);
  assert.equal(layRow(100, 0), null);
});

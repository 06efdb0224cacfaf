// Shared by the tests of the page: Chromium, and what they look at in it.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { artefacts } from './lib.js';

export function launch() {
  fs.mkdirSync(artefacts, { recursive: true });
  const executablePath = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((file) => fs.existsSync(file));
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

export const sizes = [{ name: '1280', width: 1280, height: 800 }, { name: '390', width: 390, height: 844, phone: true }];

// Opens a page and records its errors.
export async function open(browser, size, { at, scheme = 'light', settings = { temperature: 0.8, seed: 7, max_tokens: 200 } } = {}) {
  const context = await browser.newContext({ viewport: size, colorScheme: scheme, deviceScaleFactor: size.phone ? 2 : 1, isMobile: Boolean(size.phone), hasTouch: Boolean(size.phone) });
  if (settings) await context.addInitScript((value) => { if (!localStorage.getItem('quire.settings')) localStorage.setItem('quire.settings', JSON.stringify(value)); }, settings);
  const page = await context.newPage();
  const problems = [];
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (message) => { if (message.type() === 'error' && !/401/.test(message.text())) problems.push(message.text()); });
  page.on('request', (request) => { if (!request.url().startsWith(at.url) && !request.url().startsWith('data:')) problems.push(`asks for ${request.url()}`); });
  await page.goto(`${at.url}/`);
  // Gives the tests access to the page's own module instances.
  await page.evaluate(async () => {
    const { pool } = await import('/pool.js');
    globalThis.quire = { pool, cellGrid: await import('/cell_grid.js'), gridLayout: await import('/grid_layout.js') };
  });
  return { page, problems, close: () => context.close() };
}

export const look = async (page, size, view) => { if (size.phone) await page.click(`nav button[data-view=${view}]`); };
export const live = (page) => page.waitForSelector('#link[data-state=live]');
export const rested = (page) => page.waitForSelector('#send:not([hidden])', { timeout: 60_000 });
export const number = async (page, id) => Number((await page.textContent(`#${id}`)).replace(/\D/g, '') || 0);
export const picture = (page, name) => page.screenshot({ path: path.join(artefacts, `${name}.png`) });
// A fingerprint of the first canvas of cells.
export const cells = (page) => page.$eval('.scroller canvas', (canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let hash = 0;
  for (let i = 0; i < data.length; i += 4) hash = (hash * 31 + data[i] + 7 * data[i + 1] + 13 * data[i + 2]) | 0;
  return hash;
});

// Checks that nothing extends beyond the window, and that no texts or controls overlap. `within`: only in this element.
export async function wellLaid(page, within = 'body') {
  const wrong = await page.evaluate((within) => {
    const result = [];
    if (document.documentElement.scrollWidth > innerWidth) result.push(`the page is ${document.documentElement.scrollWidth} wide`);
    const shown = [...document.querySelector(within).querySelectorAll('h1, h2, h3, p, dt, dd, .bubble, .text, button, textarea, input, summary, label, canvas, figcaption, .bar')].filter((element) => {
      if (element.closest('.unseen') || element.checkVisibility?.() === false) return false;
      const box = element.getBoundingClientRect();
      return box.width > 0 && box.height > 0;
    });
    const clip = (element) => {
      const box = element.getBoundingClientRect();
      let { left, top, right, bottom } = box;
      for (let parent = element.parentElement; parent; parent = parent.parentElement) {
        const style = getComputedStyle(parent);
        if (style.overflowY === 'visible') continue;
        const outer = parent.getBoundingClientRect();
        top = Math.max(top, outer.top);
        bottom = Math.min(bottom, outer.bottom);
      }
      return { left, top, right, bottom };
    };
    const boxes = shown.map((element) => ({ element, ...clip(element) })).filter((box) => box.bottom - box.top > 1);
    const name = ({ element }) => `${element.tagName.toLowerCase()}${element.id && `#${element.id}`}.${element.className} "${element.textContent.trim().slice(0, 20)}"`;
    for (const box of boxes) {
      if (box.left < -1 || box.right > innerWidth + 1) result.push(`${name(box)} reaches over the edge`);
      if (box.element.tagName !== 'TEXTAREA' && box.element.scrollWidth > box.element.clientWidth + 1 && getComputedStyle(box.element).display !== 'inline' && box.element.id !== 'model' && !box.element.closest('.entry-open')) result.push(`${name(box)} is cut`);
    }
    for (const [i, a] of boxes.entries()) {
      for (const b of boxes.slice(i + 1)) {
        if (a.element.contains(b.element) || b.element.contains(a.element)) continue;
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2) result.push(`${name(a)} lies on ${name(b)}`);
      }
    }
    return result;
  }, within);
  assert.deepEqual(wrong, []);
}

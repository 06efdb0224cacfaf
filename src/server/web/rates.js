// Tokens per second over the last minutes, from the pool's counters.
import { $ } from './dom.js';
import { pool } from './pool.js';
import { theme } from './theme.js';
import { count } from './words.js';

const SAMPLES = 180;

// Turns samples of counters into rates. The counters start at 0 when the server restarts.
export class Rates {
  #before = null;
  values = { decode: [], prefill: [] };

  // True: there is a new value. `now` is in milliseconds.
  sample(stats, now) {
    const { generated_tokens: decode, computed_tokens: prefill } = stats;
    if (decode == null) return false;
    const before = this.#before;
    this.#before = { now, decode, prefill };
    if (!before || decode < before.decode) return false;
    const seconds = (now - before.now) / 1000;
    this.values.decode.push((decode - before.decode) / seconds);
    this.values.prefill.push((prefill - before.prefill) / seconds);
    for (const list of Object.values(this.values)) if (list.length > SAMPLES) list.shift();
    return true;
  }
}

// The corners of the area under a step curve. The newest value is at the right edge, the largest is 15 pixels below the top.
export function outline(values, width, height, most) {
  const x = (i) => width - ((values.length - i) * width) / SAMPLES;
  const y = (value) => height - 1 - (value / most) * (height - 16);
  return [[x(0), height - 1], ...values.flatMap((value, i) => [[x(i), y(value)], [x(i + 1), y(value)]]), [width, height - 1]];
}

function draw(canvas, values) {
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
  if (!width) return;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const c = canvas.getContext('2d');
  c.scale(scale, scale);
  const most = Math.max(10, ...values);
  c.fillStyle = theme.line;
  c.fillRect(0, height - 1, width, 1);
  c.beginPath();
  outline(values, width, height, most).forEach(([x, y], i) => (i === 0 ? c.moveTo(x, y) : c.lineTo(x, y)));
  c.globalAlpha = 0.75;
  c.fillStyle = theme.accent;
  c.fill();
  c.globalAlpha = 1;
  c.fillStyle = theme.muted;
  c.font = '11px system-ui, sans-serif';
  c.fillText(`${count(most)}`, 0, 10);
}

export function startRates() {
  const rates = new Rates();
  setInterval(() => {
    if (!rates.sample(pool.stats, performance.now())) return;
    for (const [name, values] of Object.entries(rates.values)) {
      $(`rate-${name}`).textContent = count(values.at(-1));
      draw($(`chart-${name}`), values);
    }
  }, 1000);
}

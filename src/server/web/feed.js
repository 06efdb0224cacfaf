// Follows the server's pool as long as the page is open. It reconnects when the connection breaks.
import { $ } from './dom.js';
import { eventsOf } from './event_stream.js';
import { pool } from './pool.js';
import { takeChange, takeWhole } from './pool_view.js';
import { askForKey, refusal, request } from './server.js';

const SILENCE_MS = 40_000;  // the server sends something more often than that

function link(state, text) {
  $('link').dataset.state = state;
  $('link').textContent = text;
}

// `onConnected` is called whenever the pool has been received as a whole. app.js sets it.
export const feed = { onConnected: () => {} };

export async function follow() {
  for (let pause = 500; ; pause = Math.min(8000, pause * 2)) {
    const stopper = new AbortController();
    let silence;
    const heard = () => { clearTimeout(silence); silence = setTimeout(() => stopper.abort(), SILENCE_MS); };
    try {
      heard();
      const response = await request('/pool/events', { signal: stopper.signal });
      if (response.status === 401) {
        clearTimeout(silence);
        link('broken', 'key needed');
        await askForKey();
        pause = 250;
        continue;
      }
      if (!response.ok) throw await refusal(response);
      for await (const { type, data } of eventsOf(response, heard)) {
        pause = 250;
        link('live', 'live');
        if (type === 'pool') { takeWhole(JSON.parse(data)); feed.onConnected(); }
        else if (type === 'change') takeChange(JSON.parse(data));
      }
    } catch (error) {
      if (error instanceof SyntaxError || error instanceof TypeError && !/fetch|network/i.test(error.message)) console.error(error);
    }
    clearTimeout(silence);
    pool.disconnect();
    link('broken', 'reconnecting');
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

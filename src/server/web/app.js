// The page: a conversation on the left, the pool that holds it on the right. No framework and no build step. This module
// connects the controls to the other modules.
//
//   app ─┬─ chat ── answer, messages_view ── conversation         the conversation
//        ├─ feed ── pool_view ── cell_grid, sequences_view        the pool
//        └─ rates                                                 tokens per second
//
// Computing and drawing are separate: pool, cells, conversation, words, grid_layout, event_stream and sequence_key do not
// use the document. The tests beside them run in Node.js (tests/clients/run).
import { running, stopAll } from './answer.js';
import { paintGrids } from './cell_grid.js';
import { beginAgain, forkAnswer, send, threeReaders } from './chat.js';
import { conversation, markStopped, save, saveSettings, settings } from './conversation.js';
import { $, make, store, stored } from './dom.js';
import { follow } from './feed.js';
import { actions, notice, showAll, watchScrolling } from './messages_view.js';
import { startRates } from './rates.js';
import { startKeyForm } from './server.js';
import { readTheme } from './theme.js';

const IDEAS = ['Tell me a story about a brave fox named Ruby.', 'Remember these notes. The code of Mia is 4821. The red box holds a blue kite.',
  'Count from 17 to 25.', 'What is a quire?'];

function startTheme() {
  readTheme();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    readTheme();
    paintGrids();
  });
}

function startConversation() {
  actions.fork = forkAnswer;
  running.onChange = () => {
    $('send').hidden = running.stoppers.size > 0;
    $('stop').hidden = running.stoppers.size === 0;
  };
  markStopped(conversation.messages);
  showAll();
  watchScrolling();
  for (const idea of IDEAS) {
    $('ideas').append(make('li', {}, make('button', { type: 'button', textContent: idea, onclick: () => { send(idea); $('prompt').focus(); } })));
  }
  $('readers').onclick = threeReaders;
  $('fresh').onclick = () => { beginAgain(); $('prompt').focus(); };
  $('notice-close').onclick = () => notice('');
  addEventListener('pagehide', () => save());
}

function startComposer() {
  const area = $('prompt');
  const fit = () => {
    area.style.height = 'auto';
    area.style.height = `${area.scrollHeight}px`;
  };
  const submit = () => {
    if (running.stoppers.size > 0) return;
    const text = area.value;
    area.value = '';
    fit();
    send(text);
  };
  $('composer').onsubmit = (event) => { event.preventDefault(); submit(); };
  area.addEventListener('input', fit);
  area.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') stopAll(); });
  $('stop').onclick = () => { stopAll(); area.focus(); };
}

function startSettings() {
  const fields = { temperature: $('temperature'), seed: $('seed'), maxTokens: $('max-tokens') };
  for (const [name, field] of Object.entries(fields)) {
    field.value = settings[name];
    field.addEventListener('change', () => saveSettings(Object.fromEntries(Object.entries(fields).map(([key, { value }]) => [key, value]))));
  }
}

// A narrow screen shows either the conversation or the pool.
function startViews() {
  const buttons = document.querySelectorAll('nav button');
  const look = (view) => {
    document.body.dataset.view = view;
    for (const button of buttons) button.setAttribute('aria-pressed', String(button.dataset.view === view));
    store('quire.view', view);
  };
  for (const button of buttons) button.onclick = () => look(button.dataset.view);
  look(stored('quire.view', 'chat'));
}

startTheme();
startConversation();
startComposer();
startSettings();
startKeyForm();
startViews();
startRates();
follow();

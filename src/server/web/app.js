// The page: a conversation on the left, the pool that holds it on the right. No framework and no build step. This module
// connects the controls to the other modules.
//
//   app ─┬─ chat ── answer, messages_view ── answer_view ── markdown_view, tokens_view      the conversation
//        ├─ library_view ── library ── transfer, storage                                    conversations that are kept
//        ├─ settings_view ── settings                                                       what is sent with a request
//        ├─ feed ── pool_view ── cell_grid, sequences_view                                  the pool
//        └─ rates                                                                           tokens per second
//
// Computing and drawing are separate: pool, cells, conversation, library, transfer, settings, markdown, words, grid_layout,
// event_stream and sequence_key do not use the document. The tests beside them run in Node.js (tests/clients/run).
import { running, stopAll } from './answer.js';
import { paintGrids } from './cell_grid.js';
import { edit, forkAnswer, giveResult, idle, regenerate, send, threeReaders, turnTo } from './chat.js';
import { $, make } from './dom.js';
import { feed, follow } from './feed.js';
import { keeping, resume, saveChanges } from './keeping.js';
import { startLibrary } from './library_view.js';
import { actions, notice, showAll, watchScrolling } from './messages_view.js';
import { askForModel, ideas, model } from './model.js';
import { startRates } from './rates.js';
import { startKeyForm } from './server.js';
import { settings } from './settings.js';
import { startSettings } from './settings_view.js';
import { inTab } from './storage.js';
import { startTheme } from './theme.js';
import { startTokenPanel } from './token_panel.js';

function showIdeas() {
  if (!model.chat) $('welcome-about').textContent = 'This model has no chat template, so it cannot be talked to here. It continues texts: POST /v1/completions.';
  $('ideas').replaceChildren(...ideas().map((idea) => make('li', {},
    make('button', { type: 'button', textContent: idea, onclick: () => { send(idea); $('prompt').focus(); } }))));
}

function startConversation() {
  Object.assign(actions, { fork: forkAnswer, regenerate, edit, giveResult, idle });
  keeping.onProblem = notice;
  running.onChange = () => {
    $('send').hidden = running.stoppers.size > 0;
    $('stop').hidden = running.stoppers.size === 0;
  };
  resume(settings.system);
  showAll();
  watchScrolling();
  // The prompts fit the model, so they come when the server has said which one it serves.
  feed.onConnected = async () => { if (await askForModel()) showIdeas(); };
  $('readers').onclick = threeReaders;
  $('fresh').onclick = () => { turnTo(); $('prompt').focus(); };
  $('notice-close').onclick = () => notice('');
  addEventListener('pagehide', saveChanges);
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
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && !document.querySelector('dialog[open]')) stopAll();
  });
  $('stop').onclick = () => { stopAll(); area.focus(); };
}

// A narrow screen shows either the conversation or the pool.
function startViews() {
  const buttons = document.querySelectorAll('nav button');
  const look = (view) => {
    document.body.dataset.view = view;
    for (const button of buttons) button.setAttribute('aria-pressed', String(button.dataset.view === view));
    inTab.set('quire.view', view);
  };
  for (const button of buttons) button.onclick = () => look(button.dataset.view);
  look(inTab.get('quire.view') === 'pool' ? 'pool' : 'chat');
  startTokenPanel(() => look('pool'));
}

startTheme(paintGrids);
startConversation();
startComposer();
startSettings();
startLibrary();
startKeyForm();
startViews();
startRates();
follow();

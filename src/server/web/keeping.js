// Keeps the conversation that is shown.
import { conversation, markStopped, replaceWith } from './conversation.js';
import { library } from './library.js';
import { inTab } from './storage.js';

const SAVE_MS = 500;
let savedAt = 0;
let told = null;  // the last problem, so that it is told once

// `onProblem` is called with a sentence when the browser does not keep it. app.js sets it.
export const keeping = { onProblem: () => {} };

// If `now` is false, it saves only if the last save is some time ago.
export function save(now = true) {
  if (!now && Date.now() - savedAt < SAVE_MS) return;
  savedAt = Date.now();
  const problem = library.save(conversation);
  inTab.set('quire.current', conversation.id);
  if (problem && problem !== told) keeping.onProblem(problem);
  told = problem;
}

// Shows this conversation from now on. False: it is not there.
export function openConversation(id) {
  const found = id && library.load(id);
  if (!found) return false;
  markStopped(found.messages);
  replaceWith(found);
  inTab.set('quire.current', id);
  return true;
}

export function newConversation(system) {
  replaceWith({ system });
  inTab.set('quire.current', null);
}

// The conversation that this tab showed last.
export const resume = (system) => openConversation(inTab.get('quire.current')) || newConversation(system);
